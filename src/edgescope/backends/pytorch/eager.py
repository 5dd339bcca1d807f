"""PyTorch as most people run it: eager mode under inference_mode, on the CPU or a CUDA device.

A reduced precision converts the whole module, so every convolution and matrix product runs in it; the precision is
read back from those operators' outputs in the first call. With `graph=true` on a CUDA device the whole call is
captured once and replayed (see backends/pytorch/cuda.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

from edgescope.analysis.layers import Layer
from edgescope.backends.base import LAYER_RUNS, Artifact, Session, Spec, flag
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.about import AboutEager
from edgescope.backends.pytorch.cuda import CudaSession, GraphSession
from edgescope.backends.pytorch.layers import layers
from edgescope.models.base import Batch, Model
from edgescope.records import Effective


class TorchSession:
    """One module on the CPU; inputs and outputs are numpy arrays on the host."""

    def __init__(
        self, module: torch.nn.Module, artifact: Artifact, precision_check: shared.PrecisionCheck
    ) -> None:
        self.run, self.spec, self.dtype = module, artifact.spec, shared.require(artifact.spec)
        self.names = shared.input_names(artifact)
        self.precision_check = precision_check

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs as float32 arrays."""
        with torch.inference_mode():
            inputs = (torch.from_numpy(batch[name]) for name in self.names)
            outputs = self.run(*(shared.shaped(tensor, self.spec, self.dtype) for tensor in inputs))
        self.precision_check.stop()
        return shared.arrays(outputs)

    def effective(self) -> Effective:
        """Return the precision that most heavy operators produced in the first call."""
        return self.precision_check.effective(self.spec)

    def close(self) -> None:
        """Drop the module."""
        del self.run


def session_of(artifact: Artifact) -> type[TorchSession] | type[CudaSession]:
    """Return the session for a spec's device and options."""
    if not artifact.spec.place.cuda:
        return TorchSession
    return GraphSession if flag(artifact.spec, "graph") else CudaSession


class TorchEager(AboutEager):
    """torch_eager: fp32 and bf16 on a CPU that has it; fp32, tf32, fp16 and bf16 on a CUDA device."""

    OPTIONS: ClassVar[dict[str, str]] = shared.OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; nothing is built."""
        return shared.prepared("torch_eager", model, spec, self.OPTIONS)

    def load(self, artifact: Artifact) -> Session:
        """Return a session over the module."""
        module = shared.ready(artifact)
        return session_of(artifact)(module, artifact, shared.Heavy(module))

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return the time, FLOPs and bytes of every operation, without a CUDA graph around them."""
        spec, dtype = artifact.spec, shared.require(artifact.spec)
        module = shared.ready(artifact)
        where, names = spec.place.called("torch"), shared.input_names(artifact)
        tensors = (torch.from_numpy(batch[name]).to(where) for name in names)
        inputs = [shared.shaped(tensor, spec, dtype) for tensor in tensors]
        return layers(module, inputs, spec.device, spec.precision, LAYER_RUNS)
