"""The half of tflite.py that needs litert-torch: convert, quantise, compare with PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import litert_torch
import numpy as np
import torch
from ai_edge_quantizer import qtyping, quantizer, recipe
from ai_edge_quantizer.algorithm_manager import AlgorithmName
from numpy.typing import NDArray

from edgescope.artifacts.onnx_export import TOLERANCE
from edgescope.errors import ModelError
from edgescope.models.base import Samples, TensorSpec
from edgescope.records import Json
from edgescope.wings.litert import backend

SIGNATURE = "serving_default"
METHOD = "static, weights int8 per channel, activations int8, MinMax; floats in and out"


def convert(
    module: torch.nn.Module, inputs: Sequence[TensorSpec], samples: Samples, path: Path, *, batch: int
) -> dict[str, Json]:
    """Write `module` to `path` for this batch; return seconds, the names of the inputs and the parity.

    ModelError if litert-torch cannot convert it or the file gives other outputs than PyTorch.
    """
    arrays = _rows(samples, range(batch))
    given = tuple(torch.from_numpy(arrays[spec.name]) for spec in inputs)
    start = time.perf_counter()
    try:
        litert_torch.convert(module.eval(), given).export(str(path))
    except Exception as error:  # exporter and converter may raise anything
        raise ModelError(
            "E-TFL-7",
            "litert-torch cannot convert this network",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="--backend torch_eager or onnxruntime, or convert it elsewhere and give the .tflite",
        ) from error
    seconds = time.perf_counter() - start
    names = _names(path, [spec.name for spec in inputs])
    difference = _parity(module, given, path, {file: arrays[name] for file, name in names.items()})
    return {
        "build_s": round(seconds, 3),
        "names": names,
        "parity": {"max_rel_error": difference, "batches": [batch], "against": "torch_eager fp32"},
    }


def quantise(
    source: Path, names: Mapping[str, str], calibration: Samples, path: Path, *, batch: int
) -> dict[str, Json]:
    """Write the int8 form of the float file `source` to `path`; return seconds and method."""
    arguments = {name: argument for argument, name in _arguments(source).items()}
    start = time.perf_counter()
    maker = quantizer.Quantizer(str(source), recipe.static_wi8_ai8())
    for end in (
        qtyping.TFLOperationName.INPUT,
        qtyping.TFLOperationName.OUTPUT,
    ):  # floats in and out, as elsewhere
        maker.update_quantization_recipe(".*", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
    batches = [
        {arguments[file]: array for file, array in _feed(names, calibration, first, batch).items()}
        for first in range(0, len(calibration), batch)
    ]
    ranges = maker.calibrate({SIGNATURE: batches}, num_threads=1)
    made = maker.quantize(ranges, enable_progress_report=False).quantized_model
    assert made is not None
    path.write_bytes(bytes(made))
    return {"build_s": round(time.perf_counter() - start, 3), "method": METHOD}


def _feed(names: Mapping[str, str], samples: Samples, first: int, batch: int) -> dict[str, NDArray[Any]]:
    arrays = _rows(samples, range(first, first + batch))
    return {file: arrays[name] for file, name in names.items()}


def _rows(samples: Samples, which: range) -> dict[str, NDArray[Any]]:
    rows = np.array(which) % len(samples)
    return {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}


def _names(path: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Return {input name in the file: input name in the model}, in the model's order."""
    by_argument = {argument: name for argument, name in _arguments(path).items()}
    ordered = sorted(by_argument, key=lambda argument: int(argument.rpartition("_")[2]))
    return {by_argument[argument]: name for argument, name in zip(ordered, wanted, strict=True)}


def _arguments(path: Path) -> dict[str, str]:
    """Return {argument of the signature (args_0 ...): name of its tensor}."""
    interpreter = backend.allocated(path, backend.opened(path))
    runner = interpreter.get_signature_runner(SIGNATURE)
    return {argument: str(tensor["name"]) for argument, tensor in runner.get_input_details().items()}


def _parity(
    module: torch.nn.Module, given: Sequence[torch.Tensor], path: Path, arrays: Mapping[str, NDArray[Any]]
) -> float:
    """Return the largest difference from PyTorch over the largest output; ModelError if it is too large."""
    with torch.inference_mode():
        outputs = module(*given)
    wanted = [o.numpy() for o in (outputs if isinstance(outputs, tuple | list) else (outputs,))]
    interpreter = backend.allocated(path, backend.opened(path))
    for tensor in interpreter.get_input_details():
        interpreter.set_tensor(tensor["index"], arrays[tensor["name"]])
    interpreter.invoke()
    got = [interpreter.get_tensor(tensor["index"]) for tensor in interpreter.get_output_details()]
    apart = [
        float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))
        if a.shape == b.shape
        else float("inf")
        for a, b in zip_longest(got, wanted, fillvalue=np.zeros(0))  # an output less is no agreement
    ]
    worst = float(np.max(apart))  # Python's own max passes over a NaN
    if not worst <= TOLERANCE:
        raise ModelError(
            "E-TFL-8",
            "the converted file does not compute what PyTorch computes",
            evidence=f"largest difference {worst:.2g} of the largest output, at most {TOLERANCE:g}",
            effect="The file was not kept",
            fix="--backend torch_eager, and report the network to litert-torch",
        )
    return worst
