"""The shared part of the torch backends: from a spec to a module in its precision and layout on its device.

fp32 means fp32: by default PyTorch lets cuDNN use tf32, so both switches are set for fp32 and for tf32. A precision
that a device would only emulate is refused.

`fold=true` gives fewer, larger kernels without a compiler. At batch 1 a convolution takes about as long as launching
the two or three small kernels after it. Batch norms of a trained network are linear, so they go into the weights before
them (torch.fx does that); and cuDNN has one kernel for convolution + bias + ReLU, and one with a residual added in
between. A compiler would do the same, but PyTorch wheels for Jetson often come without Triton.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn
from torch.fx.experimental import optimization

from edgescope.artifacts.for_precision import refuse
from edgescope.backends.base import (
    Artifact,
    Spec,
    checked,
    choice,
    counted,
    flag,
    precision_of,
    threads_of,
    unforced,
)
from edgescope.errors import ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Model
from edgescope.records import Effective

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "int8"}
LAYOUTS = ("contiguous", "channels_last")
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory formats of channels_last for images and for clips."""
#: Compute capability from which tensor cores take tf32 and bf16 (Ampere, Orin), and arithmetic fp16 (Jetson TX1, Nano).
AMPERE, HALF = (8, 0), (5, 3)

OPTIONS = {
    "threads": "intra-op threads (PyTorch's default)",
    "layout": "contiguous or channels_last (contiguous)",
    "graph": "on cuda: capture one CUDA graph and replay it (false)",
    "fold": "on cuda: fold batch norms, use cuDNN's fused convolutions (false)",
}


def require(spec: Spec) -> torch.dtype:
    """Return the dtype of the precision; UnsupportedError if this device would only emulate it."""
    if spec.place.cuda:
        return _require_cuda(spec.precision)
    return _require_cpu(spec.precision) if spec.place.is_host else _require_other(spec)


def _require_cpu(precision: str) -> torch.dtype:
    if precision not in ("fp32", "bf16"):
        raise UnsupportedError(
            "E-PREC-1",
            f"PyTorch on this CPU has no {precision} path",
            effect="It would be emulated, and the number would describe the emulation",
            fix="--backend onnxruntime --precision int8" if precision == "int8" else "--precision fp32",
        )
    if precision == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UnsupportedError(
            "E-PREC-2",
            "this CPU has no bf16 instructions that oneDNN uses",
            evidence=f"torch CPU capability {torch.backends.cpu.get_cpu_capability()}",
            fix="--precision fp32",
        )
    return DTYPES[precision]


def _require_cuda(precision: str) -> torch.dtype:
    if not torch.cuda.is_available():
        raise UnavailableError(
            "E-CUDA-1",
            "PyTorch sees no CUDA device",
            evidence=f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'none: a CPU build'}",
            fix="edgescope doctor; on a Jetson install the PyTorch wheel of its JetPack",
        )
    able = torch.cuda.get_device_capability()
    need = {"fp32": (0, 0), "fp16": HALF, "tf32": AMPERE, "bf16": AMPERE}.get(precision)
    if need is None or able < need:
        raise UnsupportedError(
            "E-PREC-3",
            f"PyTorch has no {precision} path on this GPU",
            evidence=f"{torch.cuda.get_device_name()}, compute capability {able[0]}.{able[1]}",
            effect="It would be emulated, and the number would describe the emulation",
            fix="--backend tensorrt --precision int8" if precision == "int8" else "--precision fp32",
        )
    return DTYPES[precision]


def _require_other(spec: Spec) -> torch.dtype:
    """Return the dtype of the precision on a place that PyTorch's own names (xpu, mps ...) reach."""
    module = getattr(torch, spec.place.names.get("torch", ""), None)
    if module is None or not module.is_available():
        raise UnavailableError(
            "E-PLACE-1",
            f"PyTorch cannot compute on {spec.device} here",
            evidence=f"torch {torch.__version__} calls it {spec.place.names.get('torch') or 'nothing'}",
            fix="edgescope backends",
        )
    if spec.precision not in ("fp32", "fp16", "bf16"):
        raise refuse("PyTorch", spec.precision, "its kernels there take floats", spec.device)
    return DTYPES[spec.precision]


def prepared(name: str, model: Model, spec: Spec, options: dict[str, str]) -> Artifact:
    """Return the artifact of the torch backends: the module itself, without a file."""
    require(checked(name, spec, options))
    threads_of(spec)
    choice(spec, "layout", LAYOUTS)
    on_cuda = [key for key in ("fold", "graph") if flag(spec, key)]
    if on_cuda and not spec.place.cuda:
        raise UsageError("E-OPT-4", f"{', '.join(on_cuda)}: only on a CUDA device", fix="--device cuda")
    return Artifact(model, spec, digest=model.info.digest)


def ready(artifact: Artifact) -> torch.nn.Module:
    """Return the module in eval mode on its device, in its dtype and layout, and configure the process."""
    spec, dtype = artifact.spec, require(artifact.spec)
    module = artifact.model.module().eval()
    settle(spec)  # last, because the user's file may set the same switches when it is imported
    if flag(spec, "fold"):
        module = folded(module)
    module = module.to(device=spec.place.called("torch"), dtype=dtype)
    if spec.options.get("layout") == "channels_last":
        rank = max((parameter.dim() for parameter in module.parameters()), default=4)
        module = module.to(memory_format=LAST.get(rank, LAST[4]))  # type: ignore[call-overload]
    return module


def settle(spec: Spec) -> None:
    """Set the threads and, on cuda, cuDNN's search and both tf32 switches; SettingError if overridden from outside."""
    threads = threads_of(spec)
    if not spec.place.cuda:
        if threads is not None:
            torch.set_num_threads(threads)
        return
    unforced(spec)
    torch.set_num_threads(threads or 1)  # the host only copies; waking other cores takes longer than that
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = spec.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = spec.precision == "tf32"


class PrecisionCheck(Protocol):
    """Observes the precision in which a module really ran, in its first calls."""

    def stop(self) -> None:
        """Stop observing, because it costs time."""

    def effective(self, spec: Spec, prefix: str = "") -> Effective:
        """Return the observed precision; `prefix` is put before the evidence."""


class Heavy:
    """Counts the output dtypes of convolutions and linear layers until it is stopped."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.kinds: Counter[str] = Counter()
        self.hooks = [
            m.register_forward_hook(self._note)
            for m in module.modules()
            if not list(m.children()) and isinstance(m, torch.nn.Linear | torch.nn.modules.conv._ConvNd)
        ]

    def _note(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.kinds[NAMES.get(output.dtype, str(output.dtype))] += 1

    def stop(self) -> None:
        """Remove the hooks, because counting costs time."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def effective(self, spec: Spec, prefix: str = "") -> Effective:
        """Return the output precision of most heavy layers, or the parameters' precision if there are none."""
        if not self.kinds:
            name, evidence = NAMES[DTYPES[spec.precision]], "parameter dtype; no convolution or linear layer"
        else:
            name = precision_of(self.kinds)
            evidence = f"outputs of convolutions and linear layers: {counted(self.kinds)}"
        return effective(spec, spec.device, name, prefix + evidence)


def effective(spec: Spec, where: str, dtype: str, evidence: str) -> Effective:
    """Return precision and device; fp32 tensors count as tf32 with both of PyTorch's switches on, mixed with one."""
    if not spec.place.cuda:
        return Effective(where, dtype, torch.get_num_threads() if spec.place.is_host else None, evidence)
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    precision = dtype
    if dtype == "fp32" and (matmul or cudnn):
        precision = "tf32" if matmul and cudnn else "mixed (tf32, fp32)"
    text = f"{evidence}; allow_tf32 matmul {matmul}, cuDNN {cudnn}; {torch.cuda.get_device_name()}"
    return Effective(where, precision, None, text)


def tensors_of(outputs: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors of a module's outputs in order, however they are nested; ModelError for anything else."""
    if isinstance(outputs, torch.Tensor):
        return (outputs,)
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    if not isinstance(outputs, tuple | list):
        raise ModelError("E-OUT-1", f"the model returned {type(outputs).__name__}, not tensors")
    return tuple(tensor for part in outputs if part is not None for tensor in tensors_of(part))


def widened(outputs: Any) -> tuple[torch.Tensor, ...]:
    """Return a module's outputs with floats as float32."""
    return tuple(o.detach().float() if o.is_floating_point() else o.detach() for o in tensors_of(outputs))


def arrays(outputs: Any) -> list[NDArray[Any]]:
    """Return a module's outputs as float32 or integer numpy arrays on the host."""
    return [np.asarray(o.cpu().numpy()) for o in widened(outputs)]


def shaped(tensor: torch.Tensor, spec: Spec, dtype: torch.dtype) -> torch.Tensor:
    """Return an input in the module's dtype and layout, on its device."""
    device = spec.place.called("torch")
    if not tensor.is_floating_point():
        return tensor.to(device)
    if tensor.dim() in LAST and spec.options.get("layout") == "channels_last":
        return tensor.to(device, dtype).contiguous(memory_format=LAST[tensor.dim()])
    return tensor.to(device, dtype)


def input_names(artifact: Artifact) -> Sequence[str]:
    """Return the names of the inputs in the order the module takes them."""
    return [i.name for i in artifact.model.inputs]


RELUS = (torch.relu, torch.relu_, nn.functional.relu)
ADDS = (operator.add, operator.iadd, torch.add)


class ConvRelu(nn.Conv2d):
    """A Conv2d whose ReLU is part of the kernel."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return relu(conv(input))."""
        return torch.cudnn_convolution_relu(input, self.weight, self.bias, *_geometry(self))


class ConvAddRelu(nn.Conv2d):
    """A Conv2d whose residual and ReLU are part of the kernel."""

    def forward(self, input: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return relu(conv(input) + residual); the kernel does not broadcast the residual."""
        if tuple(residual.shape) != _out_shape(self, input):
            return torch.relu(super().forward(input) + residual)
        return torch.cudnn_convolution_add_relu(
            input, self.weight, residual, 1.0, self.bias, *_geometry(self)
        )


@contextmanager
def exportable() -> Iterator[None]:
    """Register output shapes of the two fused kernels while a module is exported; PyTorch (2.13) has none for them."""
    shapes = {"cudnn_convolution_relu": _relu_shape, "cudnn_convolution_add_relu": _residual_shape}
    with torch.library._scoped_library("aten", "IMPL") as library:
        for name, shape in shapes.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, shape, "Meta")
        yield


def _relu_shape(input: Any, weight: Any, bias: Any, *geometry: Any) -> torch.Tensor:
    stride, padding, dilation, groups = geometry
    return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


def _residual_shape(input: Any, weight: Any, residual: Any, alpha: Any, *rest: Any) -> torch.Tensor:
    return _relu_shape(input, weight, *rest)


def _out_shape(conv: nn.Conv2d, input: torch.Tensor) -> tuple[int, ...]:
    """Return the output shape of a convolution with numeric padding."""
    padding, *others = (cast(tuple[int, int], p) for p in (conv.padding, conv.dilation, conv.kernel_size))
    sizes = zip(input.shape[2:], padding, *others, conv.stride, strict=True)
    spatial = ((n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, pad, dilation, k, stride in sizes)
    return (input.shape[0], conv.out_channels, *spatial)


def _geometry(conv: nn.Conv2d) -> tuple[Any, ...]:
    return conv.stride, conv.padding, conv.dilation, conv.groups


def folded(module: nn.Module) -> nn.Module:
    """Return a copy with batch norms folded and convolutions fused; UnsupportedError if that is not possible."""
    try:
        return _rewritten(module.eval())
    except Exception as error:  # tracing runs the user's forward()
        raise UnsupportedError(
            "E-FOLD-1",
            "this network cannot be traced and rewritten, so nothing can be folded",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            fix="leave --option fold out, or --backend torch_compile",
        ) from error


def _rewritten(module: nn.Module) -> fx.GraphModule:
    traced = fx.symbolic_trace(module)
    _check_shared(traced)
    graph = optimization.fuse(traced, no_trace=True)
    assert isinstance(graph, fx.GraphModule)
    modules, convs = dict(graph.named_modules()), _convs(graph)
    for node in list(graph.graph.nodes):
        if _is_relu(node, modules):
            _fuse(graph.graph, node, convs)
    graph.graph.lint()
    graph.recompile()
    return graph


def _check_shared(traced: fx.GraphModule) -> None:
    """Raise ValueError if a batch norm follows a layer that is called twice: its weights would change for both."""
    modules, calls = dict(traced.named_modules()), _calls(traced)
    for node in traced.graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], nn.modules.batchnorm._BatchNorm):
            continue
        before = node.args[0] if node.args else None
        if isinstance(before, fx.Node) and before.op == "call_module" and calls[str(before.target)] > 1:
            raise ValueError(
                f"{before.target} is called {calls[str(before.target)]} times, and normalised after"
            )


def _calls(graph: fx.GraphModule) -> Counter[str]:
    return Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_module")


def _convs(graph: fx.GraphModule) -> dict[str, nn.Conv2d]:
    """Return the plain, biased Conv2d modules that are called once, by name."""
    calls = _calls(graph)
    return {
        name: m
        for name, m in graph.named_modules()
        if type(m) is nn.Conv2d
        and m.bias is not None
        and m.padding_mode == "zeros"
        and not isinstance(m.padding, str)
        and calls[name] == 1
    }


def _fuse(graph: fx.Graph, relu: fx.Node, convs: dict[str, nn.Conv2d]) -> None:
    """Fuse a ReLU, and an addition before it, into the convolution before them, if there is one."""
    before = relu.args[0] if relu.args else None
    if not isinstance(before, fx.Node) or len(before.users) != 1:
        return
    if conv := _conv(before, convs):
        conv.__class__ = ConvRelu
        relu.replace_all_uses_with(before)
        graph.erase_node(relu)
    elif before.op == "call_function" and before.target in ADDS and len(before.args) == 2:
        _fuse_residual(graph, relu, before, convs)


def _fuse_residual(graph: fx.Graph, relu: fx.Node, add: fx.Node, convs: dict[str, nn.Conv2d]) -> None:
    for mine, other in (add.args, add.args[::-1]):
        conv = _conv(mine, convs)
        if conv is None or not isinstance(mine, fx.Node) or not _addable(add, mine, other):
            continue
        conv.__class__ = ConvAddRelu
        with graph.inserting_before(relu):
            fused = graph.call_module(str(mine.target), (mine.args[0], other))
        relu.replace_all_uses_with(fused)
        for node in (relu, add, mine):
            graph.erase_node(node)
        return


def _addable(add: fx.Node, mine: fx.Node, other: Any) -> bool:
    """Return whether an addition is plain (no alpha, no out) and adds two different tensors."""
    return isinstance(other, fx.Node) and other is not mine and not add.kwargs


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[str(node.target)]) is nn.ReLU
    return node.op == "call_function" and node.target in RELUS


def _conv(node: Any, convs: dict[str, nn.Conv2d]) -> nn.Conv2d | None:
    """Return the plain convolution that a node calls and that only one node reads, or None if it is not one."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.users) != 1:
        return None
    return convs.get(str(node.target)) if len(node.args) == 1 and not node.kwargs else None
