"""What every account of a trace is made of: its rows by kind, sets of time that they cover, distributions of lengths.

An account is a partition of time by such sets, so its parts sum to the whole by construction; what a test must hold is
that the sets are the right ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.records import SPAN_KINDS, Absent, Field, Measured, Spans

Times = NDArray[np.int64]


def different(column: NDArray[Any]) -> list[int]:
    """Return the different numbers of a column, sorted; `np.unique` without counts loads numpy.ma, in 20 ms."""
    if len(column) and (column == column[0]).all():
        return [int(column[0])]
    found: list[int] = np.unique(column, return_counts=True)[0].tolist()
    return found


def lanes(process: NDArray[Any], thread: NDArray[Any]) -> list[tuple[int, int]]:
    """Return the different pairs of a process and a thread, sorted; a thread that is not known is -1."""
    both = different(process.astype("int64") * 2**32 + thread + 1)
    return [(one >> 32, (one & 0xFFFFFFFF) - 1) for one in both]


@dataclass(frozen=True)
class Cover:
    """A set of time: intervals [start, end) in nanoseconds, sorted, apart from each other, none empty."""

    start: Times
    end: Times

    @classmethod
    def of(cls, start: NDArray[Any], end: NDArray[Any]) -> Cover:
        """Return the union of intervals in any order; those that are empty or end before they begin are left out."""
        if not len(start):
            return cls(np.empty(0, "int64"), np.empty(0, "int64"))
        if (end <= start).any():
            start, end = start[end > start], end[end > start]
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        if not len(start):
            return cls(np.empty(0, "int64"), np.empty(0, "int64"))
        reach = np.maximum.accumulate(end)
        first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
        return cls(start[first], reach[np.append(first[1:] - 1, len(reach) - 1)])

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _before(self) -> Times:
        """Return the covered time before each interval."""
        return np.concatenate(([0], np.cumsum(self.end - self.start)))

    @property
    def total(self) -> int:
        """Return the covered nanoseconds."""
        return int(self._before[-1])

    def until(self, t: NDArray[Any]) -> Times:
        """Return the covered nanoseconds before each time."""
        if not len(self):
            return np.zeros(len(t), "int64")
        i = np.searchsorted(self.start, t, side="right") - 1
        inside = np.minimum(t, self.end[i]) - self.start[i]
        return np.where(i < 0, 0, self._before[i] + inside)

    def within(self, start: NDArray[Any], end: NDArray[Any]) -> Times:
        """Return the covered nanoseconds within each interval [start, end)."""
        return self.until(end) - self.until(start)

    def holds(self, t: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether each time is covered."""
        if not len(self):
            return np.zeros(len(t), bool)
        i = np.searchsorted(self.start, t, side="right") - 1
        return np.asarray((i >= 0) & (t < self.end[i]))

    def __or__(self, other: Cover) -> Cover:
        return Cover.of(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Cover) -> Cover:
        return self._where(other, 3)

    def __sub__(self, other: Cover) -> Cover:
        return self._where(other, 1)

    def _where(self, other: Cover, wanted: int) -> Cover:
        """Return the time in which exactly this (1), exactly the other (2) or both (3) cover."""
        times = np.concatenate((self.start, self.end, other.start, other.end))
        steps = np.repeat(np.array([1, -1, 2, -2], "int8"), [len(self), len(self), len(other), len(other)])
        order = np.argsort(times, kind="stable")
        times, state = times[order], np.cumsum(steps[order])
        chosen = np.flatnonzero((state[:-1] == wanted) & (times[1:] > times[:-1]))
        return Cover.of(times[chosen], times[chosen + 1])


def whole(start: int, end: int) -> Cover:
    """Return one interval as a set of time."""
    return Cover.of(np.array([start], "int64"), np.array([end], "int64"))


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
        return different(self.of(*ON_GPU)["process"]) or different(self.spans.columns["process"])

    @cached_property
    def devices(self) -> list[int]:
        """Return the GPUs on which something ran."""
        return different(self.of(*ON_GPU)["device"])

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
        mine = different(c["device"][c["process"] == process])
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


CDF = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Distribution:
    """Durations of one kind of event in nanoseconds."""

    count: int
    total_ns: int
    lowest_ns: float
    quantiles_ns: tuple[float, ...]
    """At the shares of CDF."""
    highest_ns: float

    @classmethod
    def of(cls, durations: NDArray[Any]) -> Distribution:
        """Return the distribution; without durations it has a count of 0 and no quantiles."""
        if not len(durations):
            return cls(0, 0, 0.0, (), 0.0)
        found = np.quantile(durations, [0.0, *CDF, 1.0])
        return cls(
            len(durations),
            int(durations.sum(dtype="int64")),
            float(found[0]),
            tuple(map(float, found[1:-1])),
            float(found[-1]),
        )

    @property
    def mean_ns(self) -> float:
        """Return the mean, 0 without events."""
        return self.total_ns / self.count if self.count else 0.0

    def quantile_ns(self, share: float) -> float:
        """Return the quantile at one of the shares of CDF."""
        return self.quantiles_ns[CDF.index(share)]

    @property
    def median_s(self) -> Field:
        """Return the median in seconds, or Absent without events."""
        return (
            Measured(self.quantile_ns(0.5) * 1e-9, "s", n=self.count)
            if self.count
            else Absent("no such event")
        )
