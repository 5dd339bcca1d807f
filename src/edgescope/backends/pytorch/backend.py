"""PyTorch in eager mode, as most people run it, and through torch.compile, on the CPU or a CUDA device.

Eager mode: a reduced precision converts the whole module, so every convolution and matrix product runs in it; the
precision is read back from those operators' outputs in the first call. With `graph=true` on a CUDA device the whole
call, a compiled one too, is captured once and replayed, copies included (see backends/pytorch/cuda.py).

torch.compile: inductor with frozen weights. Compilation happens in the first call (that is `first_s`) and its kernels
are cached by inductor across processes. Freezing folds weights into the graph, which lets inductor fold batch norms and
pre-pack weights; it needs inference without gradients.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from numpy.typing import NDArray

from edgescope.analysis.roofline import Layer
from edgescope.backends.base import LAYER_RUNS, Artifact, Session, Spec, choice, flag
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.about import AboutCompile, AboutEager
from edgescope.backends.pytorch.cuda import CudaSession, GraphSession
from edgescope.backends.pytorch.layers import layers
from edgescope.errors import UnavailableError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective

TUNES = ("default", "max-autotune")


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


class Frames:
    """Counts the frames that dynamo compiled; hooks would break its graphs."""

    def __init__(self) -> None:
        self.frames: Counter[str] = torch._dynamo.utils.counters["frames"]
        self.frames.clear()

    def stop(self) -> None:
        """Nothing is hooked."""

    def effective(self, spec: Spec, prefix: str = "") -> Effective:
        """Return the parameters' precision; a graph that fell back to eager is reported as such."""
        ok, total = self.frames["ok"], self.frames["total"]
        where = spec.device if ok else f"{spec.device} (eager fallback: nothing was compiled)"
        dtype = shared.NAMES[shared.DTYPES[spec.precision]]
        return shared.effective(spec, where, dtype, f"{prefix}dynamo compiled {ok} of {total} frames")


class TorchCompile(AboutCompile):
    """torch_compile: the precisions of torch_eager through inductor."""

    OPTIONS: ClassVar[dict[str, str]] = {
        **shared.OPTIONS,
        "tune": "default or max-autotune: inductor times kernels for minutes (default)",
    }

    def __init__(self) -> None:
        """Import inductor: that takes a second, which listing the engines need not wait for."""
        self._inductor: Any = importlib.import_module("torch._inductor.config")

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; the first call compiles."""
        choice(spec, "tune", TUNES)
        return shared.prepared("torch_compile", model, spec, self.OPTIONS)

    def load(self, artifact: Artifact) -> Session:
        """Return a session that compiles in its first call."""
        _require_compiler(artifact.spec)
        self._inductor.freezing = True
        tune = choice(artifact.spec, "tune", TUNES)
        if artifact.spec.place.cuda and tune != "default":
            _assembler_of_workers()
        mode = None if tune == "default" else "max-autotune-no-cudagraphs"
        precision_check = Frames()
        run = cast(torch.nn.Module, torch.compile(shared.ready(artifact), dynamic=False, mode=mode))
        return session_of(artifact)(run, artifact, precision_check)


def _assembler_of_workers() -> None:
    """Make this process use the same ptxas as inductor's compile workers.

    Some versions (torch 2.11) give the workers PyTorch's ptxas and leave Triton's to this process, which times the
    kernels. The version of ptxas is in the key of Triton's cache, so the kernels that the workers had compiled in
    parallel were compiled again here, one after another.
    """
    with contextlib.suppress(ImportError):  # private: a version without it has another way
        from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

        _set_triton_ptxas_path()


def _require_compiler(spec: Spec) -> None:
    from torch._inductor import cpp_builder
    from torch.utils import _triton

    if spec.place.cuda and not _triton.has_triton():
        raise UnavailableError(
            "E-COMP-2",
            "torch.compile needs Triton to make kernels for a GPU, and it does not work here",
            evidence=f"torch {torch.__version__}: has_triton() is false",
            fix="--backend torch_eager --option fold=true",
        )
    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        raise UnavailableError(
            "E-COMP-1", "torch.compile needs a C++ compiler", evidence=str(error), fix="apt install g++"
        ) from error
