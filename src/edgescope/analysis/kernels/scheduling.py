"""What the operating system's scheduler did to each process: context switches, migrations, time off the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgescope.analysis.kernels.distribution import Distribution
from edgescope.analysis.kernels.rows import Rows


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
