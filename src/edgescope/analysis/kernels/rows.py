"""The rows of a trace by what they are, as the accounts of this package need them: taken once, sorted by start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.cover import Cover
from edgescope.records import SPAN_KINDS, Spans

ON_GPU = ("kernel", "copy", "graph")
#: Calls that put work on the GPU, by the beginning of their names.
LAUNCHES = (
    *("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "cudaMemcpy", "cuMemcpy", "cudaMemset"),
    *("cuMemset", "hipLaunch", "hipExtLaunch", "hipGraphLaunch", "hipModuleLaunch", "hipMemcpy", "hipMemset"),
    *("musaLaunch", "musaMemcpy", "musaMemset", "urEnqueueKernelLaunch", "urEnqueueMem", "urEnqueueUSM"),
    *("piEnqueueKernelLaunch", "piEnqueueMem", "piextUSMEnqueue", "zeCommandListAppend"),
)


@dataclass(frozen=True)
class Rows:
    """The spans of a trace, with the kinds apart; every method returns columns in order of start."""

    spans: Spans

    def of(self, *kinds: str) -> Mapping[str, NDArray[Any]]:
        """Return the columns of some kinds of spans, sorted by start."""
        key = "+".join(kinds)
        if key not in self._taken:
            self._taken[key] = _sorted(self.spans, kinds)
        return self._taken[key]

    @cached_property
    def _taken(self) -> dict[str, Mapping[str, NDArray[Any]]]:
        return {}

    @cached_property
    def launching(self) -> NDArray[np.bool_]:
        """Return whether each name is that of a call which puts work on the GPU."""
        return np.array([name.startswith(LAUNCHES) for name in self.spans.names], bool)

    @cached_property
    def processes(self) -> list[int]:
        """Return the processes with work on a GPU, or all of them if none has any."""
        on_gpu: list[int] = np.unique(self.of(*ON_GPU)["process"]).tolist()
        every: list[int] = np.unique(self.spans.columns["process"]).tolist()
        return on_gpu or every

    @cached_property
    def devices(self) -> list[int]:
        """Return the GPUs on which something ran."""
        found: list[int] = np.unique(self.of(*ON_GPU)["device"]).tolist()
        return found

    def gpu_cover(self, process: int | None = None, device: int | None = None) -> Cover:
        """Return when something ran on a GPU: of one process, on one device, or of all."""
        key = (process, device)
        if key not in self._covers:
            c = self.of(*ON_GPU)
            mine = np.ones(len(c["start_ns"]), bool)
            mine &= True if process is None else c["process"] == process
            mine &= True if device is None else c["device"] == device
            self._covers[key] = Cover.of(c["start_ns"][mine], c["end_ns"][mine])
        return self._covers[key]

    @cached_property
    def _covers(self) -> dict[tuple[int | None, int | None], Cover]:
        return {}

    def others_cover(self, process: int) -> Cover:
        """Return when other processes' work ran, and none of this one's, on the GPUs that this process uses."""
        c = self.of(*ON_GPU)
        mine = np.unique(c["device"][c["process"] == process])
        theirs = (c["process"] != process) & np.isin(c["device"], mine)
        if not theirs.any():
            return Cover(c["start_ns"][:0], c["start_ns"][:0])
        return Cover.of(c["start_ns"][theirs], c["end_ns"][theirs]) - self.gpu_cover(process)


def _sorted(spans: Spans, kinds: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
    numbers = [SPAN_KINDS.index(kind) for kind in kinds]
    kind = spans.columns["kind"]
    chosen = kind == numbers[0]
    for number in numbers[1:]:
        chosen |= kind == number
    rows = np.flatnonzero(chosen)
    start = spans.columns["start_ns"][rows]
    if (start[1:] < start[:-1]).any():
        rows = rows[np.argsort(start, kind="stable")]
    return Columns(spans, rows)


class Columns(Mapping[str, "NDArray[Any]"]):
    """Columns of chosen rows, each taken when it is first used: most accounts need few of them."""

    def __init__(self, spans: Spans, rows: NDArray[np.intp]) -> None:
        self._spans, self.rows = spans, rows
        self._known: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._known:
            column = self._spans.columns[name]
            constant = column.strides == (0,) and len(column) > 0
            self._known[name] = np.broadcast_to(column[0], len(self.rows)) if constant else column[self.rows]
        return self._known[name]

    def __iter__(self) -> Any:
        return iter(self._spans.columns)

    def __len__(self) -> int:
        return len(self._spans.columns)
