"""When each GPU was busy, why it was idle, how kernels were launched, and what took the time.

A kernel is laid beside the call that launched it: launch, queue, blocked, kernel, gap. API time is the call's length.
Queue time runs from the call's end to the kernel's start; where the kernel began before the call returned there is none
(as `nsys stats -r cuda_kern_exec_trace` says; tools that put a 0 there lower the mean).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.inferences import Inferences
from edgescope.analysis.kernels.rows import ON_GPU, Cover, Distribution, Rows, different, lanes
from edgescope.records import SPAN_KINDS

#: A table from correlation to row is made if ids are at most this many times as large as there are rows.
DENSE = 8


@dataclass(frozen=True)
class Launches:
    """The joined kernels: times in nanoseconds."""

    api: Distribution
    """Length of launching calls, each once."""
    queue: Distribution
    blocked: Distribution
    """The part of the queue time in which another process's or context's work ran, of kernels that had any."""
    kernel: Distribution
    gap: Distribution
    """From the end of the kernel before to this one's start, on one stream, where that is more than 0."""
    total: Distribution
    """From the call's start to the kernel's end."""
    began_early: int
    """Kernels that began before their call returned: they have no queue time."""
    short: int
    """Kernels that ran shorter than their own launching call."""
    lone: int
    """Kernels without a call: it was made before the recording began, or was not recorded."""
    repeated: int
    """Calls whose correlation id an earlier call of the same process had."""
    graph_launches: int
    """Calls that launched a whole CUDA graph."""
    graph_kernels: int
    """Kernels that ran within CUDA graphs; queue and API time of single ones are not separable."""

    @property
    def separable(self) -> bool:
        """Return whether each kernel has a launch of its own."""
        return not self.graph_launches


def join(rows: Rows, work: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], int]:
    """Return for each row on the GPU the index of its call among `rows.of("api", "sync")`, -1 if none; and repeats.

    Where ids repeat within a process, the last call that began before the work did is taken.
    """
    calls = rows.of("api", "sync")
    found = np.full(len(work["start_ns"]), -1, "int64")
    repeats = 0
    for process in rows.processes:
        mine = np.flatnonzero((work["process"] == process) & (work["correlation"] >= 0))
        theirs = np.flatnonzero((calls["process"] == process) & (calls["correlation"] >= 0))
        if len(mine) and len(theirs):
            ids, wanted = calls["correlation"][theirs], work["correlation"][mine]
            index, repeated = _lookup(ids, wanted)
            if repeated:
                index = _latest(ids, calls["start_ns"][theirs], wanted, work["start_ns"][mine])
            found[mine] = np.where(index >= 0, theirs[np.maximum(index, 0)], -1)
            repeats += repeated
    return found, repeats


def _lookup(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the position of each wanted id, -1 if it is not there, and how many ids are there more than once."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > DENSE * len(ids) + 1024:
        different, first = np.unique(ids, return_index=True)
        at = np.minimum(np.searchsorted(different, wanted), len(different) - 1)
        return np.where(different[at] == wanted, first[at], -1), len(ids) - len(different)
    table = np.full(high - low + 2, -1, "int32")
    table[ids - low] = np.arange(len(ids), dtype="int32")
    repeated = len(ids) - int((table >= 0).sum())
    inside = (wanted >= low) & (wanted <= high)
    return np.where(inside, table[np.where(inside, wanted - low, 0)], -1).astype("int64"), repeated


def _latest(
    ids: NDArray[np.int64], starts: NDArray[np.int64], wanted: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each wanted id the last of its calls that began before `at`; -1 if there is none."""
    order = np.lexsort((starts, ids))
    both_ids = np.concatenate((ids[order], wanted))
    both_times = np.concatenate((starts[order], at))
    is_work = np.repeat([0, 1], [len(ids), len(wanted)])
    merged = np.lexsort((is_work, both_times, both_ids))
    call = np.where(is_work[merged] == 0, merged, -1)
    latest = np.maximum.accumulate(call)
    rows = merged[is_work[merged] == 1] - len(ids)
    index = np.full(len(wanted), -1, "int64")
    chosen = latest[is_work[merged] == 1]
    good = (chosen >= 0) & (ids[order][np.maximum(chosen, 0)] == wanted[rows])
    index[rows[good]] = order[chosen[good]]
    return index


def launches(rows: Rows) -> Launches | None:
    """Return how kernels and whole graphs were launched, or None if the trace has none of them or no call.

    A graph that was recorded as a whole has one launch and one queue time, as a kernel has.
    """
    work, calls, kernels = rows.of("kernel", "graph"), rows.of("api", "sync"), rows.of("kernel")
    if not len(work["start_ns"]) or not len(calls["start_ns"]):
        return None
    index, repeats = join(rows, work)
    known = np.flatnonzero(index >= 0)
    chosen = index[known]
    api_start, api_end = calls["start_ns"][chosen], calls["end_ns"][chosen]
    start, end = work["start_ns"][known], work["end_ns"][known]
    kernels_of = (
        np.bincount(chosen, minlength=len(calls["start_ns"])) if len(chosen) else np.zeros(1, "int64")
    )
    in_graph = kernels_of[chosen] > 1
    lengths = end - start
    waits = start - api_end
    queued = (waits >= 0) & ~in_graph
    api_lengths = (calls["end_ns"] - calls["start_ns"])[np.flatnonzero(kernels_of)]
    whole = work["kind"] == SPAN_KINDS.index("graph")
    return Launches(
        api=Distribution.of(api_lengths),
        queue=Distribution.of(waits[queued]),
        blocked=Distribution.of(
            _blocked(rows, work["process"][known][queued], api_end[queued], start[queued])
        ),
        kernel=Distribution.of(kernels["end_ns"] - kernels["start_ns"]),
        gap=Distribution.of(_gaps(kernels)),
        total=Distribution.of((np.maximum(end, api_end) - api_start)[~in_graph]),
        began_early=int(((waits < 0) & ~in_graph).sum()),
        short=int(((lengths < api_end - api_start) & ~in_graph & ~whole[known]).sum()),
        lone=len(index) - len(known),
        repeated=repeats,
        graph_launches=int((kernels_of > 1).sum()) + int(whole.sum()),
        graph_kernels=int(in_graph.sum()),
    )


def _blocked(
    rows: Rows, process: NDArray[Any], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how long other processes' work ran in each interval, without those in which none did."""
    if len(rows.processes) < 2:
        return np.empty(0, "int64")
    found = np.zeros(len(start), "int64")
    for one in rows.processes:
        mine = process == one
        found[mine] = rows.others_cover(one).within(start[mine], end[mine])
    return found[found > 0]


def _gaps(work: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the gaps between kernels that follow each other on one stream of one process."""
    place = [work[k] for k in ("stream", "device", "process")]
    start, end = work["start_ns"], work["end_ns"]
    if not all(len(c) < 2 or (c == c[0]).all() for c in place):
        order = np.lexsort((start, *place))
        start, end = start[order], end[order]
        same = np.logical_and.reduce([c[order][1:] == c[order][:-1] for c in place])
    else:
        same = np.ones(max(len(start) - 1, 0), bool)
    gaps = start[1:] - end[:-1]
    return np.asarray(gaps[same & (gaps > 0)])


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
    place = np.multiply.outer(np.diff(first, append=len(order)) - 1, SPREAD)
    below = np.floor(place).astype("int64")
    low, high = (sorted_lengths[first[:, None] + at] for at in (below, np.ceil(place).astype("int64")))
    spread = (low + (high - low) * (place - below)).tolist()
    return {
        int(name): (one[0], one[1], one[2]) for name, one in zip(sorted_names[first], spread, strict=True)
    }


def _occurs(c: Mapping[str, NDArray[Any]], within: Inferences, size: int) -> NDArray[np.int64]:
    """Return in how many inferences of its process at least one row of each name began."""
    found = np.zeros(size, "int64")
    for process in different(within.process):
        mine = within.of_process(process)
        rows = np.flatnonzero(c["process"] == process)
        which = np.searchsorted(mine.start, c["start_ns"][rows], side="right") - 1
        inside = (which >= 0) & (c["start_ns"][rows] < mine.end[np.maximum(which, 0)])
        pairs = np.asarray(
            different(c["name"][rows][inside].astype("int64") * len(mine) + which[inside]), "int64"
        )
        found += np.bincount(pairs // len(mine), minlength=size)
    return found


def own_ns(c: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the nanoseconds of each span without those of the spans directly within it, in the same thread.

    The columns are sorted by start. Of spans that start together, the longer one holds the other.
    """
    length = np.asarray(c["end_ns"] - c["start_ns"], "int64")
    own = length.copy()
    for process, thread in lanes(c["process"], c["thread"]):
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
    who = different(work["process"])
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
    devices = different(work["device"][work["process"] == mine])
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
    for one in different(process):
        mine = process == one
        pairs = mine[1:] & same
        queue = ready["process"] == one
        found.append(
            Scheduled(
                one,
                len(different(thread[mine])),
                int(mine.sum()),
                int((moved & pairs).sum()),
                int((end - start)[mine].sum()),
                Distribution.of(off[pairs & (off > 0)]),
                Distribution.of((ready["end_ns"] - ready["start_ns"])[queue]),
            )
        )
    return tuple(sorted(found, key=lambda s: -s.on_cpu_ns))
