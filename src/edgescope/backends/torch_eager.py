"""PyTorch as most people run it: eager mode under inference_mode, on the CPU.

bf16 converts the whole module, so every convolution and matrix product runs in bf16; the precision is read back
from those operators' outputs in the first call. fp16 and int8 are refused where the CPU would only emulate them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope.backends.base import Artifact, Spec, checked, counted, precision_of, threads_of
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "int8"}
LAYOUTS = ("contiguous", "channels_last")

OPTIONS = {
    "threads": "intra-op threads (PyTorch's default)",
    "layout": "contiguous or channels_last (contiguous)",
}


def require(spec: Spec) -> torch.dtype:
    """Return the dtype for the asked precision; UnsupportedError where this CPU would only emulate it."""
    if spec.precision not in DTYPES:
        raise UnsupportedError(
            "E-PREC-1",
            f"PyTorch on this CPU has no {spec.precision} path of its own",
            effect="It would be emulated, and the number would describe the emulation",
            fix="--backend onnxruntime --precision int8" if spec.precision == "int8" else "--precision fp32",
        )
    if spec.precision == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UnsupportedError(
            "E-PREC-2",
            "this CPU has no bf16 instructions that oneDNN uses",
            evidence=f"torch CPU capability {torch.backends.cpu.get_cpu_capability()}",
            fix="--precision fp32",
        )
    return DTYPES[spec.precision]


class TorchSession:
    """One module on the CPU; inputs and outputs are numpy arrays on the host."""

    def __init__(
        self, module: torch.nn.Module, names: Sequence[str], dtype: torch.dtype, layout: str
    ) -> None:
        self.run, self.names, self.dtype = module, tuple(names), dtype
        self.layout = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.kinds: Counter[str] = Counter()
        self.hooks = [
            m.register_forward_hook(self._note)
            for m in module.modules()
            if not list(m.children()) and _heavy(m)
        ]

    def _note(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.kinds[NAMES.get(output.dtype, str(output.dtype))] += 1

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs as float32 arrays."""
        with torch.inference_mode():
            outputs = self.run(*(self._tensor(batch[name]) for name in self.names))
        if self.hooks:
            for hook in self.hooks:
                hook.remove()
            self.hooks = []
        return arrays(outputs)

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if not tensor.is_floating_point():
            return tensor
        if tensor.dim() == 4:
            return tensor.to(self.dtype, memory_format=self.layout)
        return tensor.to(self.dtype)

    def effective(self) -> Effective:
        """Return the precision that most heavy operators produced in the first call."""
        threads = torch.get_num_threads()
        if not self.kinds:
            return Effective(
                "cpu", NAMES[self.dtype], threads, "parameter dtype; no convolution or linear layer"
            )
        evidence = f"outputs of convolutions and linear layers: {counted(self.kinds)}"
        return Effective("cpu", precision_of(self.kinds), threads, evidence)

    def close(self) -> None:
        """Drop the module."""
        del self.run


def _heavy(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear | torch.nn.modules.conv._ConvNd)


def arrays(outputs: Any) -> list[NDArray[Any]]:
    """Return a module's outputs (tensor, tuple, list or dict of them) as float32 or integer numpy arrays."""
    if isinstance(outputs, torch.Tensor):
        outputs = (outputs,)
    elif isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    if not isinstance(outputs, tuple | list) or not all(isinstance(o, torch.Tensor) for o in outputs):
        raise ModelError("E-OUT-1", f"the model returned {type(outputs).__name__}, not tensors")
    return [np.asarray((o.float() if o.is_floating_point() else o).detach().cpu().numpy()) for o in outputs]


def prepared(name: str, model: Model, spec: Spec) -> Artifact:
    """Return the artifact both torch backends use: the module itself, nothing on disk."""
    require(checked(name, spec, OPTIONS))
    threads_of(spec)
    layout = spec.options.get("layout", "contiguous")
    if layout not in LAYOUTS:
        raise UsageError("E-OPT-3", f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    return Artifact(model, spec, digest=model.info.digest)


def ready(artifact: Artifact) -> torch.nn.Module:
    """Return the module in eval mode with the asked dtype and layout; sets the thread count."""
    spec = artifact.spec
    if (threads := threads_of(spec)) is not None:
        torch.set_num_threads(threads)
    module = artifact.model.module().eval().to(require(spec))
    if spec.options.get("layout") == "channels_last":
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


class TorchEager:
    """torch_eager: fp32 and, where the CPU has it, bf16."""

    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; nothing is built."""
        return prepared("torch_eager", model, spec)

    def load(self, artifact: Artifact) -> TorchSession:
        """Return a session over the module."""
        names = [i.name for i in artifact.model.inputs]
        layout = str(artifact.spec.options.get("layout", "contiguous"))
        return TorchSession(ready(artifact), names, require(artifact.spec), layout)
