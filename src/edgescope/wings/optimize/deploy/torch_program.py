"""The part of save.py that needs torch: it writes a module as a file that PyTorch runs without the defining code."""

from __future__ import annotations

from pathlib import Path

import torch

from edgescope.backends.pytorch import fold
from edgescope.models.base import Model, Purpose
from edgescope.records import Trial

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def export(model: Model, trial: Trial, path: Path) -> None:
    """Write the module to `path` as torch.export sees it, in the precision and batch of the trial, on its device.

    The file does not hold the memory layout; run.py sets it.
    """
    dtype = DTYPES.get(trial.precision, torch.float32)
    samples = model.samples(Purpose.BENCH, trial.batch)
    assert samples is not None
    module = model.module().eval()
    if trial.options.get("fold"):
        module = fold.folded(module)
    module = module.to(device=trial.device, dtype=dtype)
    example = []
    for spec in model.inputs:
        rows = [i % len(samples) for i in range(trial.batch)]
        tensor = torch.from_numpy(samples.arrays[spec.name][rows]).to(trial.device)
        example.append(tensor.to(dtype) if tensor.is_floating_point() else tensor)
    with torch.no_grad(), fold.exportable():
        torch.export.save(torch.export.export(module, tuple(example)), path)
