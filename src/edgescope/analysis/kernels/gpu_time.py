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
from edgescope.analysis.kernels.rows import ON_GPU, Cover, Distribution, Rows
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


@dataclass(frozen=True)
class Turns:
    """How often the GPU went from one process's work to another's."""

    process: int
    turns: int
    mean_ns: float
    """Mean time from the first start to the last end of a turn."""
    share: float
    """Share of the time with work in which this process's work ran."""


@dataclass(frozen=True)
class Sharing:
    """The blame between processes, in nanoseconds."""

    blocked_ns: dict[tuple[int, int], int]
    """(who waited, whose work ran meanwhile) -> time: work had been launched, none of its process ran."""
    turns: tuple[Turns, ...]
    overlapped_ns: int
    """Time in which work of two processes ran at once (MPS); 0 where the GPU slices time."""


def sharing(rows: Rows) -> Sharing | None:
    """Return whose work held up whom, or None if at most one process used a GPU."""
    work = rows.of(*ON_GPU)
    who = np.unique(work["process"]).tolist()
    if len(who) < 2:
        return None
    index, _ = join(rows, work)
    ends = rows.of("api", "sync")["end_ns"]
    waiting = {}
    for process in who:
        mine = np.flatnonzero((work["process"] == process) & (index >= 0))
        queued = Cover.of(ends[index[mine]], work["start_ns"][mine]) if len(ends) else Cover.of(ends, ends)
        waiting[process] = queued - rows.gpu_cover(process)
    blocked = {(a, b): (waiting[a] & _on_same_gpus(rows, a, b)).total for a in who for b in who if a != b}
    covers = sum(rows.gpu_cover(p).total for p in who)
    return Sharing(blocked, _turns(rows, who), covers - rows.gpu_cover().total)


def _on_same_gpus(rows: Rows, mine: int, other: int) -> Cover:
    """Return when the other process's work ran on a GPU that this process uses."""
    work = rows.of(*ON_GPU)
    devices = np.unique(work["device"][work["process"] == mine])
    theirs = (work["process"] == other) & np.isin(work["device"], devices)
    return Cover.of(work["start_ns"][theirs], work["end_ns"][theirs])


def _turns(rows: Rows, who: list[int]) -> tuple[Turns, ...]:
    """Return the turns of each process: runs of its work in order of start, without another's between them."""
    work, busy = rows.of(*ON_GPU), rows.gpu_cover().total
    found: dict[int, list[float]] = {process: [] for process in who}
    for device in rows.devices:
        here = np.flatnonzero(work["device"] == device)
        process = work["process"][here]
        first = np.flatnonzero(np.concatenate(([True], process[1:] != process[:-1])))
        last = np.append(first[1:] - 1, len(process) - 1)
        reach = np.maximum.accumulate(work["end_ns"][here])
        lengths = reach[last] - work["start_ns"][here][first]
        for one in who:
            found[one].extend(lengths[process[first] == one].tolist())
    return tuple(
        Turns(p, len(t), float(np.mean(t)) if t else 0.0, rows.gpu_cover(p).total / busy if busy else 0.0)
        for p, t in found.items()
    )


@dataclass(frozen=True)
class Scheduled:
    """The scheduling of one process's threads, from scheduling events."""

    process: int
    threads: int
    switches: int
    """Times that a thread was put on a CPU."""
    migrations: int
    """Times that it was put on another CPU than before."""
    on_cpu_ns: int
    off_cpu: Distribution
    """Times between leaving a CPU and being on one again: sleeping, waiting, or preempted."""
    run_queue: Distribution
    """Times from being able to run to running; empty if the trace has no wake-ups."""


def scheduling(rows: Rows) -> tuple[Scheduled, ...]:
    """Return the scheduling of each process, the one with most time on a CPU first; () without events."""
    c = rows.of("sched")
    if not len(c["start_ns"]):
        return ()
    order = np.lexsort((c["start_ns"], c["thread"], c["process"]))
    process, thread, cpu = (c[k][order] for k in ("process", "thread", "device"))
    start, end = c["start_ns"][order], c["end_ns"][order]
    same = (process[1:] == process[:-1]) & (thread[1:] == thread[:-1])
    moved = same & (cpu[1:] != cpu[:-1])
    off = start[1:] - end[:-1]
    ready = rows.of("ready")
    found = []
    for one in np.unique(process).tolist():
        mine = process == one
        pairs = mine[1:] & same
        queue = ready["process"] == one
        found.append(
            Scheduled(
                one,
                len(np.unique(thread[mine])),
                int(mine.sum()),
                int((moved & pairs).sum()),
                int((end - start)[mine].sum()),
                Distribution.of(off[pairs & (off > 0)]),
                Distribution.of((ready["end_ns"] - ready["start_ns"])[queue]),
            )
        )
    return tuple(sorted(found, key=lambda s: -s.on_cpu_ns))
