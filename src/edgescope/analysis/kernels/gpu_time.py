"""When each GPU was busy, why it was idle, and which kernels, copies, operators and functions took the time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.inferences import Inferences
from edgescope.analysis.kernels.launches import join
from edgescope.analysis.kernels.rows import ON_GPU, Cover, Rows
from edgescope.records import SPAN_KINDS


@dataclass(frozen=True)
class GpuTime:
    """The time of one GPU from its first to its last activity, in nanoseconds."""

    device: int
    span_ns: int
    busy_ns: int
    """Something ran: the union over streams and processes. It is occupancy in time, not use of the multiprocessors."""
    kernel_ns: int
    """A kernel ran (union)."""
    copy_ns: int
    """A copy ran and no kernel did."""
    idle_host_ns: int
    """Nothing ran, and the call that launches the next work had not begun: the host was late."""
    idle_launch_ns: int
    """Nothing ran although the next work had been launched: latency of the launch, or a dependency."""
    idle_unknown_ns: int
    """Nothing ran, and the call of the next work is not in the trace."""

    @property
    def idle_ns(self) -> int:
        """Return the time in which nothing ran."""
        return self.span_ns - self.busy_ns

    @property
    def busy(self) -> float:
        """Return the share of the time in which something ran."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True)
class Named:
    """All rows of one name: a kernel, a kind of copy, a call."""

    name: str
    count: int
    total_ns: int | None
    """None if the trace does not tell how long each of them took."""
    longest_ns: int | None
    bytes: int | None = None
    """Bytes that its rows moved; None if none of them tells."""
    spread_ns: tuple[float, float, float] | None = None
    """Quantiles over its rows at SPREAD; None if the rows are means, or of unknown length."""
    inferences: int | None = None
    """Inferences in which at least one of its rows began; None if the trace marks none."""

    @property
    def mean_ns(self) -> float | None:
        """Return the mean length, None if it is not known."""
        return None if self.total_ns is None else self.total_ns / self.count


#: Shares at which the spread of a name's rows is told.
SPREAD = (0.05, 0.5, 0.95)


def gpu_times(rows: Rows) -> tuple[GpuTime, ...]:
    """Return the time of each GPU on which something ran."""
    return tuple(_gpu_time(rows, device) for device in rows.devices)


def _gpu_time(rows: Rows, device: int) -> GpuTime:
    work = rows.of(*ON_GPU)
    here = np.flatnonzero(work["device"] == device)
    busy = rows.gpu_cover(device=device)
    kernel = work["kind"][here] != SPAN_KINDS.index("copy")
    kernels = Cover.of(work["start_ns"][here][kernel], work["end_ns"][here][kernel])
    idle = _idle(rows, work, here, busy)
    span = int(busy.end[-1] - busy.start[0]) if len(busy) else 0
    return GpuTime(device, span, busy.total, kernels.total, busy.total - kernels.total, *idle)


def _idle(
    rows: Rows, work: Mapping[str, NDArray[Any]], here: NDArray[np.intp], busy: Cover
) -> tuple[int, int, int]:
    """Return the idle time by what the next work's launching call was doing: not begun, begun, unknown."""
    begins, ends = busy.start[1:], busy.end[:-1]
    first = np.searchsorted(work["start_ns"][here], begins)
    index, _ = join(rows, {k: work[k][here[first]] for k in ("start_ns", "process", "correlation")})
    known = index >= 0
    calls = rows.of("api", "sync")["start_ns"]
    called = calls[np.maximum(index, 0)] if len(calls) else begins
    host = np.clip(called - ends, 0, begins - ends)
    gaps = begins - ends
    return (
        int(host[known].sum()),
        int((gaps - host)[known].sum()),
        int(gaps[~known].sum()),
    )


def by_name(
    rows: Rows, *kinds: str, within: Inferences | None = None, averaged: bool = False
) -> tuple[Named, ...]:
    """Return count and time of the rows of some kinds by name, the longest total first.

    The time of an operator or a function is its own, without that of those within it. `within` are the inferences to
    count; rows that are `averaged` have no spread. The length of a row that has none (an end below 0) is not known.
    """
    c = rows.of(*kinds)
    if not len(c["start_ns"]):
        return ()
    names = c["name"]
    length = own_ns(c) if kinds in (("op",), ("call",)) else c["end_ns"] - c["start_ns"]
    size = len(rows.spans.names)
    count = np.bincount(names, minlength=size)
    total = np.bincount(names, weights=length, minlength=size)
    longest = np.zeros(size, "int64")
    np.maximum.at(longest, names, length)
    moved = np.bincount(names, weights=np.maximum(c["bytes"], 0), minlength=size)
    has_bytes = np.bincount(names, weights=c["bytes"] >= 0, minlength=size) > 0
    unknown = np.bincount(names, weights=c["end_ns"] < 0, minlength=size) > 0
    spreads = {} if averaged else _spreads(names, length)
    occurs = None if within is None or not len(within) else _occurs(c, within, size)
    order = [i for i in np.argsort(np.where(unknown, 1, -total), kind="stable").tolist() if count[i]]
    return tuple(
        Named(
            rows.spans.names[i],
            int(count[i]),
            None if unknown[i] else int(total[i]),
            None if unknown[i] else int(longest[i]),
            int(moved[i]) if has_bytes[i] else None,
            None if unknown[i] else spreads.get(i),
            None if occurs is None else int(occurs[i]),
        )
        for i in order
    )


def _spreads(names: NDArray[Any], length: NDArray[np.int64]) -> dict[int, tuple[float, float, float]]:
    """Return the quantiles at SPREAD of the lengths of each name."""
    order = np.lexsort((length, names))
    sorted_names, sorted_lengths = names[order], length[order]
    first = np.flatnonzero(np.concatenate(([True], sorted_names[1:] != sorted_names[:-1])))
    found = {}
    for begin, end in pairwise((*first.tolist(), len(order))):
        low, middle, high = np.quantile(sorted_lengths[begin:end], SPREAD).tolist()
        found[int(sorted_names[begin])] = (low, middle, high)
    return found


def _occurs(c: Mapping[str, NDArray[Any]], within: Inferences, size: int) -> NDArray[np.int64]:
    """Return in how many inferences of its process at least one row of each name began."""
    found = np.zeros(size, "int64")
    for process in np.unique(within.process).tolist():
        mine = within.of_process(process)
        rows = np.flatnonzero(c["process"] == process)
        which = np.searchsorted(mine.start, c["start_ns"][rows], side="right") - 1
        inside = (which >= 0) & (c["start_ns"][rows] < mine.end[np.maximum(which, 0)])
        pairs = np.unique(c["name"][rows][inside].astype("int64") * len(mine) + which[inside])
        found += np.bincount(pairs // len(mine), minlength=size)
    return found


def own_ns(c: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the nanoseconds of each span without those of the spans directly within it, in the same thread.

    The columns are sorted by start. Of spans that start together, the longer one holds the other.
    """
    length = np.asarray(c["end_ns"] - c["start_ns"], "int64")
    own = length.copy()
    place = np.stack([c["process"], c["thread"]]) if len(length) else np.empty((2, 0), "int64")
    for process, thread in np.unique(place, axis=1).T.tolist():
        mine = np.flatnonzero((c["process"] == process) & (c["thread"] == thread))
        mine = mine[np.lexsort((-c["end_ns"][mine], c["start_ns"][mine]))]
        start, end = c["start_ns"][mine], c["end_ns"][mine]
        depth = np.arange(len(mine)) - np.searchsorted(np.sort(end), start, side="right")
        depth = np.maximum(depth, 0)
        levels = [np.flatnonzero(depth == d) for d in range(int(depth.max()) + 1)]
        for outer, inner in itertools.pairwise(levels):
            at = np.searchsorted(outer, inner) - 1
            held = (at >= 0) & (end[outer[np.maximum(at, 0)]] >= end[inner])
            np.subtract.at(own, mine[outer[at[held]]], length[mine[inner[held]]])
    return np.asarray(np.maximum(own, 0), "int64")
