"""What the measured process got of the CPU within the window, from its own counters in /proc: two looks, no sampler.

Time on the CPU, time spent ready to run while another thread ran (schedstat's run delay), switches forced by the
scheduler, page faults, bytes read from disk, and periods in which a CPU quota stopped it. `edgescope explain` reads
them: a slow unit that was on the CPU all the time has another cause than one that waited.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from edgescope.bench.cache_misses import CacheMisses
from edgescope.clock import Clock
from edgescope.records import QUERY_END, Absent, Field, Measured, Trial
from edgescope.workloads.base import EndOfInput, Work

UNSEEN = Absent("the window had no two ends in this process")
TICK_S, TICKING_S, MOST_S, LOOKS = 0.001, 0.4, 2.0, 5
"""Sleep of the thread that looks how late Python lets it go on, how long it looks, how long at most, and how often
at least: where others hold the interpreter, few looks take a long time."""


@dataclass(frozen=True)
class Counters:
    """The counters of one process at one moment; None for one that this kernel does not give."""

    at_ns: int
    user_s: float
    system_s: float
    forced: int
    faults: int
    waited: dict[int, int] | None
    """Thread -> nanoseconds for which it was ready and did not run."""
    read_bytes: int | None
    periods: tuple[int, int] | None
    """Periods of the CPU quota so far, and those in which it stopped the process; None without a quota."""


def now(root: Path = Path("/")) -> Counters:
    """Return this process's counters."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Counters(
        time.monotonic_ns(),
        used.ru_utime,
        used.ru_stime,
        used.ru_nivcsw,
        used.ru_minflt + used.ru_majflt,
        _waited(root / "proc/self/task"),
        _line(root / "proc/self/io", "read_bytes:"),
        _periods(root),
    )


def _waited(folder: Path) -> dict[int, int] | None:
    found = {}
    try:
        for task in os.listdir(folder):
            try:
                found[int(task)] = int((folder / task / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended meanwhile
    except (OSError, ValueError, IndexError):
        return None
    return found or None


def _line(path: Path, key: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(key)), None)
    except (OSError, ValueError, IndexError):
        return None


def _periods(root: Path) -> tuple[int, int] | None:
    """Return the quota's counters of this process's control group (v2, else v1), or None if there are none."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, name = line.split(":", 2)
        below = name.strip("/")
        for top in ("sys/fs/cgroup", "sys/fs/cgroup/unified") if not controllers else ("sys/fs/cgroup/cpu",):
            if controllers and "cpu" not in controllers.split(","):
                continue
            file = root / top / below / "cpu.stat"
            total, stopped = _line(file, "nr_periods"), _line(file, "nr_throttled")
            if total is not None and stopped is not None:
                return total, stopped
    return None


@dataclass(frozen=True)
class ProcessUsage:
    """Looks at the counters at both ends of the window; `metrics` is what lies between them."""

    look: Callable[[], Counters] = now
    seen: list[Counters] = field(default_factory=list)
    caches: CacheMisses = field(default_factory=CacheMisses)

    def mark(self) -> None:
        """Look once."""
        self.caches.mark()
        self.seen.append(self.look())

    def metrics(self) -> dict[str, Field]:
        """Return the process's use of the CPU between the first look and the last."""
        if len(self.seen) < 2 or self.seen[-1].at_ns <= self.seen[0].at_ns:
            return dict.fromkeys((*NAMES, *self.caches.events), UNSEEN)
        wall_s = (self.seen[-1].at_ns - self.seen[0].at_ns) * 1e-9
        return {**_between(self.seen[0], self.seen[-1]), **self.caches.metrics(wall_s)}


NAMES = (
    "cores_used",
    "kernel_time_share",
    "run_wait_share",
    "preemptions_per_s",
    "page_faults_per_s",
    "disk_read_bps",
    "quota_stopped_share",
)


def _between(a: Counters, b: Counters) -> dict[str, Field]:
    wall = (b.at_ns - a.at_ns) * 1e-9
    user, system = b.user_s - a.user_s, b.system_s - a.system_s
    busy = user + system
    return {
        "cores_used": Measured(busy / wall, "1"),
        "kernel_time_share": Measured(system / busy, "share")
        if busy > 0
        else Absent("the process used no CPU time"),
        "run_wait_share": _wait_share(a, b, busy),
        "preemptions_per_s": Measured((b.forced - a.forced) / wall, "1/s"),
        "page_faults_per_s": Measured((b.faults - a.faults) / wall, "1/s"),
        "disk_read_bps": Absent("/proc/self/io tells no bytes read")
        if a.read_bytes is None or b.read_bytes is None
        else Measured((b.read_bytes - a.read_bytes) / wall, "bytes/s"),
        "quota_stopped_share": _stopped_share(a, b),
    }


def _wait_share(a: Counters, b: Counters, busy: float) -> Field:
    if a.waited is None or b.waited is None:
        return Absent("this kernel has no schedstat")
    waited = sum(ns - a.waited.get(task, 0) for task, ns in b.waited.items()) * 1e-9
    return Measured(waited / (waited + busy), "share") if waited + busy > 0 else UNSEEN


def _stopped_share(a: Counters, b: Counters) -> Field:
    if a.periods is None or b.periods is None or b.periods[0] == a.periods[0]:
        return Absent("no CPU quota was in force")
    return Measured((b.periods[1] - a.periods[1]) / (b.periods[0] - a.periods[0]), "share")


def interpreter_wait(work: Work, trial: Trial, clock: Clock) -> Field:
    """Return how much later than due Python lets a thread go on while the work runs with all its units in flight.

    It is the median over time, not over looks: a look that waits is long, so there are few of them.

    A thread that sleeps for a millisecond needs the interpreter's lock to go on. Where threads compute in Python, it
    waits for the switch interval (5 ms); where they compute in C or wait, it hardly waits.
    """
    free, ended = threading.Semaphore(trial.in_flight), threading.Event()
    late: list[int] = []

    def done(query_id: int, status: int, *_: object) -> None:
        if status == QUERY_END:
            ended.set()
        free.release()

    def tick() -> None:
        while not stop.is_set():
            before = clock.now()
            time.sleep(TICK_S)
            late.append(clock.now() - before - round(TICK_S * 1e9))

    stop, ticker = threading.Event(), threading.Thread(target=tick)
    ticker.start()
    begun, number = clock.now(), 0

    def enough() -> bool:
        passed = (clock.now() - begun) * 1e-9
        return passed >= MOST_S or (passed >= TICKING_S and len(late) >= LOOKS)

    try:
        while not enough() and not ended.is_set():
            free.acquire()
            with suppress(EndOfInput):  # the work has called done, too
                work.issue(number, trial.batch, done)
            number += 1
        for _ in range(trial.in_flight):
            free.acquire()
    finally:
        stop.set()
        ticker.join()
    if len(late) < LOOKS:
        return Absent(f"only {len(late)} looks in {MOST_S:g} s")
    return Measured(over_time(late) * 1e-9, "s", n=len(late))


def over_time(late: list[int]) -> int:
    """Return the lateness in nanoseconds that a moment meets which is drawn from the time of all looks."""
    ordered = sorted(late)
    ends = list(accumulate(ns + round(TICK_S * 1e9) for ns in ordered))
    return ordered[bisect_left(ends, ends[-1] / 2)]
