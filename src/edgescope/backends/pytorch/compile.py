"""torch.compile with inductor and frozen weights, on the CPU or a CUDA device.

Compilation happens in the first call (that is `first_s`) and its kernels are cached by inductor across processes.
Freezing folds weights into the graph, which lets inductor fold batch norms and pre-pack weights; it needs inference
without gradients. `graph=true` captures the compiled call in a CUDA graph of ours, copies included.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, cast

import torch

from edgescope.backends.base import Artifact, Session, Spec, choice
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.about import AboutCompile
from edgescope.backends.pytorch.eager import session_of
from edgescope.errors import UnavailableError
from edgescope.models.base import Model
from edgescope.records import Effective

TUNES = ("default", "max-autotune")


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
