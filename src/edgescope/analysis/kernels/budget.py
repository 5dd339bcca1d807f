"""The time budget of an inference: T = EC + CS, and what each of the two is made of.

EC is the execution context's span on the host: preparing and launching. CS is the time in which the host waits for the
GPU in a synchronising call. (Definitions: arXiv 2508.08430, 6.2; `edgescope docs profiling`.) Every nanosecond of an
inference belongs to exactly one part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.cover import Cover
from edgescope.analysis.kernels.distribution import Distribution
from edgescope.analysis.kernels.inferences import Inferences
from edgescope.analysis.kernels.rows import Rows
from edgescope.records import SPAN_KINDS

#: Part -> what it is. The first four make up EC, the others CS.
PARTS = MappingProxyType(
    {
        "launch": "EC: in a call that puts work on the GPU",
        "rescheduled": "EC: the thread is off the CPU, by the scheduling events",
        "blocked": "EC: another process's work runs on the GPU, and none of this one's",
        "compute": "EC: the rest, the program's own work",
        "wait_compute": "CS: waits while its own work runs on the GPU",
        "wait_blocked": "CS: waits while only other processes' work runs on the GPU",
        "wait_idle": "CS: waits while nothing runs: latencies of launching and waking up",
    }
)
EC = ("launch", "rescheduled", "blocked", "compute")


@dataclass(frozen=True)
class Budget:
    """The parts of each inference of a process, or of all processes, in nanoseconds."""

    inferences: Inferences
    parts: Mapping[str, NDArray[np.int64]]
    """PARTS -> nanoseconds in each inference."""
    scheduled: bool
    """Whether scheduling events cover the inferences; without them `rescheduled` is part of the others."""
    syncs: NDArray[np.int64]
    """Waits for the GPU in each inference."""
    launches: NDArray[np.int64]
    """Calls in each inference that put work on the GPU."""

    @property
    def ec(self) -> NDArray[np.int64]:
        """Return the EC of each inference."""
        return np.asarray(sum(self.parts[name] for name in EC), "int64")

    @property
    def cs(self) -> NDArray[np.int64]:
        """Return the CS of each inference."""
        return self.total - self.ec

    @property
    def total(self) -> NDArray[np.int64]:
        """Return T of each inference: the sum of its parts."""
        return np.asarray(sum(self.parts.values()), "int64")

    @property
    def wall_ns(self) -> int:
        """Return the time from the first inference's start to the last one's end, summed over processes."""
        who = self.inferences.process
        return sum(
            int(self.inferences.end[who == p].max() - self.inferences.start[who == p].min())
            for p in np.unique(who)
        )

    @property
    def closure(self) -> float:
        """Return the inferences' sum over the wall time: below 1 by what lies between, above 1 if they overlap."""
        return float(self.total.sum()) / self.wall_ns if self.wall_ns else 0.0

    def distribution(self, part: str) -> Distribution:
        """Return the distribution of `ec`, `cs`, `total` or one of PARTS over the inferences."""
        return Distribution.of(self.parts[part] if part in self.parts else getattr(self, part))

    def of_process(self, process: int) -> Budget:
        """Return the budget of one process."""
        mine = self.inferences.process == process
        return Budget(
            self.inferences.where(mine),
            {name: values[mine] for name, values in self.parts.items()},
            self.scheduled,
            self.syncs[mine],
            self.launches[mine],
        )


def budget(rows: Rows, found: Inferences) -> Budget:
    """Return the budget of every inference."""
    parts = {name: np.zeros(len(found), "int64") for name in PARTS}
    counts = {name: np.zeros(len(found), "int64") for name in ("syncs", "launches")}
    scheduled = bool(len(found)) and _scheduled(rows, found)
    for process, thread in np.unique(np.stack([found.process, found.thread]), axis=1).T.tolist():
        mine = np.flatnonzero((found.process == process) & (found.thread == thread))
        start, end = found.start[mine], found.end[mine]
        host = _Host(rows, process, thread)
        for name, cover in host.parts(Cover.of(start, end), scheduled).items():
            parts[name][mine] = cover.within(start, end)
        for name, times in (("syncs", host.sync_starts), ("launches", host.launch_starts)):
            counts[name][mine] = np.searchsorted(times, end) - np.searchsorted(times, start)
    return Budget(found, parts, scheduled, counts["syncs"], counts["launches"])


class _Host:
    """The calls of one thread and the GPU's work around them, as sets of time."""

    def __init__(self, rows: Rows, process: int, thread: int) -> None:
        calls = rows.of("api", "sync")
        mine = calls["process"] == process
        if thread >= 0 and (calls["thread"][mine] == thread).any():
            mine &= calls["thread"] == thread
        waits = mine & (calls["kind"] == SPAN_KINDS.index("sync"))
        launch = mine & ~waits & rows.launching[calls["name"]] if len(mine) else waits
        self.sync_starts, self.launch_starts = calls["start_ns"][waits], calls["start_ns"][launch]
        self.sync = Cover.of(self.sync_starts, calls["end_ns"][waits])
        self.launch = Cover.of(self.launch_starts, calls["end_ns"][launch])
        self.own, self.others = rows.gpu_cover(process), rows.others_cover(process)
        on = rows.of("sched")
        mine = (on["process"] == process) & (on["thread"] == thread)
        self.on_cpu = Cover.of(on["start_ns"][mine], on["end_ns"][mine])

    def parts(self, inside: Cover, scheduled: bool) -> dict[str, Cover]:
        """Return PARTS as sets of time that do not overlap and together are `inside`."""
        waiting = inside & self.sync
        rest = inside - self.sync
        found = {"launch": rest & self.launch}
        rest = rest - self.launch
        if scheduled:
            found["rescheduled"] = rest - self.on_cpu
            rest = rest & self.on_cpu
        found["blocked"] = rest & self.others
        found["compute"] = rest - self.others
        found["wait_compute"] = waiting & self.own
        waiting = waiting - self.own
        found["wait_blocked"] = waiting & self.others
        found["wait_idle"] = waiting - self.others
        return found


def _scheduled(rows: Rows, found: Inferences) -> bool:
    """Return whether scheduling events tell of the inferences' threads."""
    on = rows.of("sched")
    threads = set(np.unique(on["thread"]).tolist())
    return bool(len(on["start_ns"])) and all(t in threads for t in np.unique(found.thread).tolist())
