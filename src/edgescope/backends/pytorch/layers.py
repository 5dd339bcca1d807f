"""The time, FLOPs and bytes of every operation of a PyTorch module, each under the path of the module that calls it.

On a CPU an operation is timed around its call. On a GPU all operations are enqueued behind a kernel that only waits, so
that the device runs them back to back and the events between them hold no launches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from edgescope import registry
from edgescope.analysis.roofline import Layer

WAIT_CYCLES = 300_000_000
"""Clock cycles of the kernel behind which a GPU's operations are enqueued: some tenths of a second."""
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
VIEWS = frozenset(
    {"view", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze"}
    | {"detach", "alias", "as_strided", "split", "unbind", "reshape", "flatten"}
)
"""Operations that move nothing."""


class _Recorder(TorchDispatchMode):
    """Records each operation that runs within the block."""

    def __init__(self, module: nn.Module, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cuda, self.path, self.rows = registry.place(device).cuda, [""], list[dict[str, Any]]()
        self.hooks = [
            hook
            for name, part in module.named_modules()
            for hook in (
                part.register_forward_pre_hook(lambda m, a, n=name: self.path.append(n)),
                part.register_forward_hook(lambda m, a, o: self.path.pop() and None),
            )
        ]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        marks = self._mark()
        out = func(*args, **given)
        ended = self._mark()
        name = func._schema.name.partition("::")[2]
        if name not in VIEWS:
            row = {"name": self.path[-1], "kind": name, "marks": (marks, ended)}
            self.rows.append(row | _work(func, args, given, out))
        return out

    def _mark(self) -> Any:
        if not self.cuda:
            return time.monotonic_ns()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self.hooks:
            hook.remove()


def _work(func: Any, args: Any, kwargs: Any, out: Any) -> dict[str, Any]:
    """Return FLOPs, bytes, precision and whether it is a depthwise convolution."""
    tensors = [t for t in _tensors(args)] + [t for t in _tensors(out)]
    moved = sum(t.numel() * t.element_size() for t in tensors)
    count = flop_registry.get(func._overloadpacket)
    flops = int(count(*args, **kwargs, out_val=out)) if count is not None else 0
    kinds = [NAMES[t.dtype] for t in tensors if t.dtype in NAMES]
    groups = args[8] if func._schema.name == "aten::convolution" and len(args) > 8 else 1
    return {
        "flops": flops,
        "bytes": moved,
        "precision": kinds[0] if kinds else "fp32",
        "grouped": bool(groups > 1 and len(tensors) > 1 and tensors[1].shape[1] == 1),
    }


def _tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def layers(
    module: nn.Module, inputs: Sequence[torch.Tensor], device: str, precision: str, repeats: int = 10
) -> list[Layer]:
    """Return every operation of one forward pass, with the median of its times over `repeats` passes."""
    runs: list[list[dict[str, Any]]] = []
    with torch.no_grad():
        for _ in range(3):
            module(*inputs)
        for _ in range(repeats):
            runs.append(_pass(module, inputs, device))
    least = min(len(run) for run in runs)
    same = [run for run in runs if len(run) == least]
    return [_layer([run[i] for run in same], device, precision) for i in range(least)]


def _pass(module: nn.Module, inputs: Sequence[torch.Tensor], device: str) -> list[dict[str, Any]]:
    recorder = _Recorder(module, device)
    try:
        if registry.place(device).cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(WAIT_CYCLES)  # type: ignore[no-untyped-call]
        with recorder:
            module(*inputs)
        if registry.place(device).cuda:
            torch.cuda.synchronize()
    finally:
        recorder.close()
    return recorder.rows


def _layer(rows: Sequence[dict[str, Any]], device: str, precision: str) -> Layer:
    first = rows[0]
    times = [_seconds(row["marks"], device) for row in rows]
    tf32 = precision == "tf32" and first["precision"] == "fp32"
    return Layer(
        first["name"] or "(network)",
        first["kind"],
        statistics.median(times),
        first["flops"],
        first["bytes"],
        "tf32" if tf32 else first["precision"],
        first["grouped"],
        tuple(times),
    )


def _seconds(marks: tuple[Any, Any], device: str) -> float:
    start, end = marks
    return float(start.elapsed_time(end)) * 1e-3 if registry.place(device).cuda else (end - start) * 1e-9
