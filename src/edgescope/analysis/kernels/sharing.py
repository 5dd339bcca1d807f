"""Several processes on one machine: whose work held up whom on a GPU, and what the scheduler did to each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgescope.analysis.kernels.launches import join
from edgescope.analysis.kernels.rows import ON_GPU, Cover, Distribution, Rows


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
