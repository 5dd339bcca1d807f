"""Whether a machine runs at the clocks that are set: busy probes of a CPU, trip points of heat, looks at its counters.

An accepted limit is not yet a clock. A Jetson Thor has been seen to report scaling_cur_freq 2601 MHz, the
request, while cpuinfo_cur_freq, the hardware, stood at 649 MHz after an over-current event. So a core of each
cluster is kept busy for 0.2 s and the hardware's own figure is read where root may, the kernel's otherwise.

The spin probe does the same integer work before and after a run. It works even if no clock, counter or thermometer is
readable, as in a virtual machine. The work is a chain of SHA-256 rounds: no memory traffic, no floating point, one C
call that holds no interpreter lock, so only clock speed and preemption change its time. The best of several rounds is
the least preempted one.

Trip points are the temperatures at which a thermal zone slows the machine down or cuts it off.
Documentation/driver-api/thermal/sysfs-api.rst: `passive` slows clocks, `hot` notifies user space, `critical` shuts
down; `active` starts a fan, which does not matter to a measurement. A trip at or below 0 C is a disabled slot.

A device's own counters of throttling are read twice, before and after a run, and compared (`Looks`).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from edgescope.devices.base import Throttle, Value
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import Fact, KernelFile, absent, cpu_list, fact, is_absent

PROBE_S = 0.2
#: The busy clock of a mode in effect lies within these shares of the policy's limit; turbo bins and rounding are less.
LEAST, MOST = 0.7, 1.05
_WHOSE = {
    "cpuinfo_cur_freq": "the hardware's, cpuinfo_cur_freq",
    "scaling_cur_freq": "the kernel's request, scaling_cur_freq; the hardware's cannot be read",
}
_READ_S = 0.01
_LOOPS = 4000
_SPIN_S = 0.01
"""Longer rounds find a slower core no more often, and give no fewer false alarms (benchmarks/probes.py spin_length)."""
_CALIBRATION_LOOPS = 2_000


def probe(root: Path = Path("/"), seconds: float = PROBE_S) -> tuple[str, str]:
    """Return (problem, evidence) for the clocks under load; problem is '' if there is none or no cpufreq."""
    found = policies(root)
    problems, seen = [], []
    for policy in found:
        limit = fact(policy / "scaling_max_freq", lambda t: int(t) * 1000)
        busy = busy_hz(policy, seconds / len(found))
        if is_absent(limit) or is_absent(busy):
            seen.append(f"{policy.name} not probed ({(busy if is_absent(busy) else limit)['absent']})")
            continue
        source = clock_file(policy)
        whose = _WHOSE[source.name] if source else ""
        seen.append(f"{policy.name} {busy / 1e6:.0f} MHz busy of {limit / 1e6:.0f} ({whose})")
        if not LEAST * limit <= busy <= MOST * limit:
            problems.append(
                f"{policy.name} runs at {busy / 1e6:.0f} MHz when busy, its limit is {limit / 1e6:.0f} MHz"
            )
    return "; ".join(problems), ", ".join(seen) or "clocks not probed (no cpufreq)"


def clock_file(policy: Path) -> Path | None:
    """Return the file of the policy's clock: the hardware's if it can be read, otherwise the kernel's."""
    return next((f for n in _WHOSE if not is_absent(fact(f := policy / n, int))), None)


def busy_hz(policy: Path, seconds: float) -> Fact:
    """Return the highest clock in Hz seen while one of the policy's cores is kept busy, or absent."""
    cpus = fact(policy / "affected_cpus", lambda t: cpu_list(",".join(t.split())))
    if is_absent(cpus) or not cpus:
        return absent(f"no {policy / 'affected_cpus'}")
    source = clock_file(policy)
    if source is None:
        return absent(f"no clock can be read in {policy}")
    stop = threading.Event()
    refused: list[str] = []

    def burn() -> None:
        try:
            os.sched_setaffinity(0, {cpus[0]})  # 0 is this thread alone
        except OSError as error:
            refused.append(f"CPU {cpus[0]} cannot be used: {error.strerror}")
            return
        while not stop.is_set():
            work(_LOOPS)  # holds no interpreter lock

    worker = threading.Thread(target=burn, daemon=True)
    worker.start()
    try:
        highest, end = 0, time.monotonic() + seconds
        while time.monotonic() < end and not refused:
            time.sleep(_READ_S)
            now = fact(source, lambda t: int(t) * 1000)
            highest = max(highest, 0 if is_absent(now) else now)
    finally:
        stop.set()
        worker.join()
    return absent(refused[0]) if refused else highest


def dvfs(root: Path = Path("/")) -> Fact:
    """Return whether the CPU clocks may float: False if every policy's lowest and highest clocks are equal."""
    found = policies(root)
    if not found:
        return absent("no cpufreq")
    ends = [[fact(p / f"scaling_{end}_freq", int) for end in ("min", "max")] for p in found]
    unread = next((e for pair in ends for e in pair if is_absent(e)), None)
    return unread if unread is not None else any(low != high for low, high in ends)


@dataclass(frozen=True)
class Spin:
    """The time that a fixed amount of integer work took."""

    loops: int
    rounds_s: tuple[float, ...]
    """Seconds of each round, in order."""

    @property
    def best_s(self) -> float:
        """Return the time of the least disturbed round in seconds."""
        return min(self.rounds_s)


def work(loops: int) -> None:
    """Do `loops` rounds of dependent integer work."""
    hashlib.pbkdf2_hmac("sha256", b"edgescope", b"spin", loops)


def calibrate(target_s: float = _SPIN_S, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return the number of loops that take about `target_s` seconds here and now."""
    best = min(_timed(_CALIBRATION_LOOPS, clock) for _ in range(5))
    return max(1, round(_CALIBRATION_LOOPS * target_s / best))


def spin(loops: int, rounds: int = 5, clock: Callable[[], float] = time.perf_counter) -> Spin:
    """Return the time of `rounds` rounds of `loops` loops; about 0.05 s at the calibrated length."""
    return Spin(loops, tuple(_timed(loops, clock) for _ in range(rounds)))


def _timed(loops: int, clock: Callable[[], float]) -> float:
    start = clock()
    work(loops)
    return clock() - start


def slowdown(before: Spin, after: Spin) -> float:
    """Return the seconds after divided by the seconds before, for the same work: 1.10 means 10 % slower afterwards."""
    if before.loops != after.loops:
        raise ValueError(f"the probes did different work: {before.loops} and {after.loops} loops")
    return after.best_s / before.best_s


FIXED_C = (50.0, 100.0)
"""The constant values of a Tegra's PMIC-Die zone: 100 on most boards up to the TX2, 50 on a Xavier."""
HELD = 0.9
"""Share of the requested clock below which the hardware is held; readback varies by some per cent."""
_HARMFUL = ("passive", "hot", "critical")


@dataclass(frozen=True)
class Trip:
    """The lowest harmful trip of a zone: its kind and its temperature in degrees Celsius."""

    kind: str
    celsius: float


def next_trip(zone: Path) -> Trip | None:
    """Return the lowest passive, hot or critical trip of a thermal zone's folder, or None if none is readable."""
    found = []
    for file in zone.glob("trip_point_*_temp"):
        kind = fact(file.with_name(file.name[: -len("temp")] + "type"))
        celsius = fact(file, lambda text: float(text) / 1000)
        if kind in _HARMFUL and not is_absent(celsius) and celsius > 0:
            found.append(Trip(kind, celsius))
    return min(found, key=lambda trip: trip.celsius, default=None)


def is_fixed(name: str, celsius: float) -> bool:
    """Return whether a temperature channel's value is a constant of its driver, not a temperature."""
    return "pmic" in name and celsius in FIXED_C


def pair(requested: KernelFile, effective: KernelFile) -> tuple[float, float] | Value:
    """Return the (requested, effective) clock in hertz; requested is 0 if the request changed between the reads."""
    first, clock, last = requested.number(1e3), effective.number(1e3), requested.number(1e3)
    for value in (clock, first, last):
        if not isinstance(value, float):
            return value
    assert isinstance(first, float) and isinstance(clock, float)
    return (first if first == last else 0.0), clock


Look = TypeVar("Look")


class Looks(Generic[Look]):
    """Reads on entering and on leaving; `evidence()` compares both, or returns `missed` if one is missing."""

    def __init__(
        self, look: Callable[[], Look], compare: Callable[[Look, Look], Throttle], missed: str
    ) -> None:
        self._look, self._compare, self._missed = look, compare, missed
        self._taken: list[Look] = []

    def __enter__(self) -> Looks[Look]:
        self._taken = [self._look()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken.append(self._look())

    def evidence(self) -> Throttle:
        """Return the events between entering and leaving, and the counters that could not be read."""
        if len(self._taken) < 2:
            return Throttle(absent=(self._missed,))
        before, after = self._taken
        return self._compare(before, after)
