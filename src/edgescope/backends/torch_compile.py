"""torch.compile with inductor and frozen weights.

Compilation happens in the first call (that is `first_s`) and its kernels are cached by inductor across processes.
Freezing folds weights into the graph, which lets inductor pre-pack them; it needs inference without gradients.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, cast

import torch
import torch._inductor.config as inductor

from edgescope.backends.base import Artifact, Spec
from edgescope.backends.torch_eager import OPTIONS, TorchSession, prepared, ready, require
from edgescope.errors import UnavailableError
from edgescope.models.base import Model
from edgescope.records import Effective


class CompiledSession(TorchSession):
    """A compiled module; precision is that of the parameters it was compiled from."""

    def __init__(self, module: torch.nn.Module, names: list[str], dtype: torch.dtype, layout: str) -> None:
        super().__init__(module, names, dtype, layout)
        for hook in self.hooks:  # a hook would break the graph
            hook.remove()
        self.hooks = []
        self.frames = torch._dynamo.utils.counters["frames"]
        self.frames.clear()
        self.run = cast(torch.nn.Module, torch.compile(module, dynamic=False))

    def effective(self) -> Effective:
        """Return the parameters' precision; a graph that fell back to eager is named as such."""
        ok, total = self.frames["ok"], self.frames["total"]
        where = "cpu" if ok else "cpu (eager fallback: nothing was compiled)"
        name = {torch.float32: "fp32", torch.bfloat16: "bf16"}[self.dtype]
        return Effective(where, name, torch.get_num_threads(), f"dynamo compiled {ok} of {total} frames")


class TorchCompile:
    """torch_compile: fp32 and bf16 through inductor."""

    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; the first call compiles."""
        return prepared("torch_compile", model, spec)

    def load(self, artifact: Artifact) -> CompiledSession:
        """Return a session that compiles in its first call."""
        _require_compiler()
        inductor.freezing = True
        names = [i.name for i in artifact.model.inputs]
        layout = str(artifact.spec.options.get("layout", "contiguous"))
        return CompiledSession(ready(artifact), names, require(artifact.spec), layout)


def _require_compiler() -> None:
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        raise UnavailableError(
            "E-COMP-1", "torch.compile needs a C++ compiler", evidence=str(error), fix="apt install g++"
        ) from error
