"""Where each inference of a trace begins and ends, and its time budget: T = EC + CS, and what these two are made of.

An inference is found by the queries, by ranges that the program set, or by its waits. EC is the execution context's
span on the host: preparing and launching. CS is the time in which the host waits for the GPU in a synchronising call.
(Definitions: arXiv 2508.08430, 6.2; `edgescope docs profiling`.) Every nanosecond belongs to exactly one part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.rows import Cover, Distribution, Rows, different, lanes
from edgescope.errors import UsageError, closest_name
from edgescope.records import CLOCK_MARK, SPAN_KINDS

#: Ranges that torch.profiler's schedule sets around each iteration: where they are, they are the inferences.
STEPS = "ProfilerStep#N"
#: A name with the number of the iteration at its end: `ProfilerStep#7`, `step 7`, `frame_7`. `layer7` is another layer.
_NUMBERED = re.compile(
    r"(.*#|(?:.*[^a-z])?(?:step|iter|iteration|batch|frame|infer|inference|query|request|epoch|sample)[ _:=-]*)\d+",
    re.IGNORECASE,
)
#: Ranges of libraries, which are parts of an iteration: collectives of any library, parameters, optimizers, loaders.
_PART = re.compile(
    r"(\w*ccl|gloo|mpi|ucc|c10d|c10d_functional)\s*:.*|record_param_comms.*|\[\w+\|.*"
    r"|Optimizer\.\w+#.*|enumerate\(DataLoader\).*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Inferences:
    """One row per inference, sorted by start within each process."""

    how: str
    """How they were found, for a reader."""
    process: NDArray[Any]
    thread: NDArray[Any]
    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    def of_process(self, process: int) -> Inferences:
        """Return the inferences of one process."""
        return self.where(self.process == process)

    def where(self, rows: NDArray[Any]) -> Inferences:
        """Return the inferences that a mask chooses."""
        return Inferences(self.how, self.process[rows], self.thread[rows], self.start[rows], self.end[rows])


def inferences(rows: Rows, name: str = "") -> Inferences:
    """Return the inferences of a trace; none if nothing marks them.

    `name` is the name of their ranges. Without it, they are the units of work that edgescope noted, else the iterations
    of torch.profiler, else the ranges of the most frequent name that is not within another such range, else what lies
    between two waits for the GPU. Names that differ in the number of the iteration are one; collectives and other
    ranges of libraries are parts of an inference.
    """
    if name:
        return _called(rows, name)
    units = rows.of("unit")
    if len(units["start_ns"]):
        return _as_inferences("the units of work that edgescope noted", units, slice(None))
    ranges = rows.of("range")
    best = _outermost(rows, ranges)
    if best:
        return _called(rows, best)
    return _between_waits(rows)


def shared_name(name: str) -> str:
    """Return the name that the ranges of all iterations share: `ProfilerStep#N` of `ProfilerStep#7`."""
    numbered = _NUMBERED.fullmatch(name)
    return f"{numbered[1]}N" if numbered else name


def _called(rows: Rows, name: str) -> Inferences:
    found = rows.of("range", "unit", "op")
    names = {i: rows.spans.names[i] for i in different(found["name"])}
    same = [i for i, own in names.items() if own == name] or [
        i for i, own in names.items() if shared_name(own) in (name, f"{name}N", f"{name}#N")
    ]
    if not same:
        known = set(names.values()) | set(map(shared_name, names.values()))
        close = closest_name(name, known)
        raise UsageError(
            "E-PROF-4",
            f"the trace has no range called {name!r}",
            evidence=f"ranges: {', '.join(sorted(known)[:8]) or 'none'}",
            fix=f"--range {close!r}" if close else "without --range",
        )
    return _as_inferences(f"ranges called {name!r}", found, np.isin(found["name"], same))


def _as_inferences(how: str, c: Mapping[str, NDArray[Any]], rows: Any) -> Inferences:
    order = np.lexsort((c["start_ns"][rows], c["process"][rows]))
    return Inferences(
        how, *(np.asarray(c[k])[rows][order] for k in ("process", "thread", "start_ns", "end_ns"))
    )


def _outermost(rows: Rows, ranges: Mapping[str, NDArray[Any]]) -> str:
    """Return the most frequent name of ranges that lie in no other range of their thread; '' if there is none."""
    names = {i: rows.spans.names[i] for i in different(ranges["name"])}
    own = {
        i: shared_name(n) for i, n in names.items() if not (_PART.fullmatch(n) or n.startswith(CLOCK_MARK))
    }
    if STEPS in own.values():
        return STEPS
    count: Counter[str] = Counter()
    candidates = np.isin(ranges["name"], list(own))
    for process, thread in lanes(ranges["process"][candidates], ranges["thread"][candidates]):
        mine = np.flatnonzero(candidates & (ranges["process"] == process) & (ranges["thread"] == thread))
        end = np.maximum.accumulate(ranges["end_ns"][mine])
        outer = np.concatenate(([True], ranges["start_ns"][mine][1:] >= end[:-1]))
        for i, n in zip(*np.unique(ranges["name"][mine][outer], return_counts=True), strict=True):
            count[own[int(i)]] += int(n)
    return max(count, key=lambda n: (count[n], n)) if count else ""


def _between_waits(rows: Rows) -> Inferences:
    """Return what lies between the end of one wait for the GPU and the end of the next, in each thread that waits.

    Only waits that follow a launch end an inference, so a second wait in a row belongs to the first.
    """
    calls = rows.of("api", "sync")
    is_sync = calls["kind"] == SPAN_KINDS.index("sync")
    launches = rows.launching[calls["name"]] & ~is_sync if len(is_sync) else is_sync
    parts = []
    for process, thread in lanes(calls["process"][is_sync], calls["thread"][is_sync]):
        mine = (calls["process"] == process) & (calls["thread"] == thread)
        sync, launch = np.flatnonzero(mine & is_sync), np.flatnonzero(mine & launches)
        seen = np.searchsorted(launch, sync)
        last = np.concatenate((seen[1:] > seen[:-1], [True])) if len(sync) else np.empty(0, bool)
        ends = np.maximum.accumulate(calls["end_ns"][sync])[last]
        if len(ends) > 1:
            many = np.full(len(ends) - 1, 1)
            parts.append((process * many, thread * many, ends[:-1], ends[1:]))
    if not parts:
        none = np.empty(0, "int64")
        return Inferences(
            "the trace has no markers of single inferences, so times are totals", none, none, none, none
        )
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    return Inferences("the time from the end of one wait for the GPU to the end of the next", *columns)


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
            for p in different(who)
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
    for process, thread in lanes(found.process, found.thread):
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
    threads = set(different(on["thread"]))
    return bool(len(on["start_ns"])) and all(t in threads for t in different(found.thread))
