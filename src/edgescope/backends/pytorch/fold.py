"""Fewer, larger kernels without a compiler: fold batch norms into weights and use cuDNN's fused convolutions.

At batch 1 a convolution takes about as long as launching the two or three small kernels after it. Batch norms of a
trained network are linear, so they go into the weights before them (torch.fx does that); and cuDNN has one kernel
for convolution + bias + ReLU, and one with a residual added in between. A compiler would do the same, but PyTorch
wheels for Jetson often come without Triton.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import fx, nn
from torch.fx.experimental import optimization

from edgescope.errors import UnsupportedError

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
