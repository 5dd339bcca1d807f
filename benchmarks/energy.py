"""Whether joules are right: intervals simulated, and a GPU's counter beside the integral of its power.

python benchmarks/energy.py coverage
python benchmarks/energy.py counter [--hz 50]
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import facts
import numpy as np
from facts import publish
from numpy.typing import NDArray

from edgescope.analysis.cells.replicates import spread
from edgescope.analysis.run.energy import consumption
from edgescope.analysis.run.energy_window import energies
from edgescope.devices.base import Source, SourceSpec
from edgescope.devices.cpu.sensors import Rapl
from edgescope.records import QUERY_DTYPES, Channel, Field, Json, Measured, Queries, Readings, Window
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.nvidia import NvidiaDevice

PERIOD_S, HZ, STEP_S = 0.430, 10.0, 0.01
WATTS, CV, LATENCY_S, LATENCY_CV = 10.0, 0.10, 0.020, 0.05
PROCESS_SD, REPLICATES = 0.01, 5
#: Seconds of the window, seconds over which power is correlated.
CASES = (
    *((20, 0.0), (20, 3.0), (30, 0.2), (60, 0.0), (60, 0.2), (60, 1.0), (60, 10.0)),
    *((120, 1.0), (120, 3.0), (120, 10.0)),
)
GOAL = 0.92
#: The goal is asked of windows at least so many memory times long; what shorter ones do is published beside it.
LONG = 40
IDLE_SHARE = 0.4

Floats = NDArray[np.float64]


def power(rng: np.random.Generator, seconds: float, memory_s: float) -> Floats:
    """Watts on a grid of STEP_S, correlated over `memory_s`."""
    n = math.ceil(seconds / STEP_S)
    noise = rng.normal(size=n)
    rho = math.exp(-STEP_S / memory_s) if memory_s else 0.0
    noise[1:] *= math.sqrt(1 - rho * rho)
    for i in range(1, n) if rho else ():
        noise[i] += rho * noise[i - 1]
    return WATTS * (1 + CV * noise)


def sensor(rng: np.random.Generator, watts: Floats, *, hz: float = HZ) -> tuple[Floats, Floats]:
    """What a sampler reads of an averaging sensor: (moments, watts); phase and delay are the sensor's own."""
    seconds, golden = len(watts) * STEP_S, 0.6180339887498949
    used = np.concatenate(([0.0], np.cumsum(watts) * STEP_S))
    grid = np.arange(len(used)) * STEP_S
    ends = np.arange(PERIOD_S * (1 + rng.uniform()), seconds, PERIOD_S)
    means = (np.interp(ends, grid, used) - np.interp(ends - PERIOD_S, grid, used)) / PERIOD_S
    tick = np.arange(int(seconds * hz))
    polls = (tick + tick * golden % 1.0 * 0.2) / hz + rng.uniform(0, 0.002, len(tick))
    shown = np.searchsorted(ends + rng.uniform(0, PERIOD_S), polls, side="right") - 1
    return polls[shown >= 0], means[shown[shown >= 0]]


def queries(rng: np.random.Generator, start_s: float, stop_s: float) -> tuple[Queries, Window]:
    """A closed loop of queries that fills the window."""
    latency = LATENCY_S * (1 + LATENCY_CV * rng.normal(size=int((stop_s - start_s) / LATENCY_S)))
    done = (start_s + np.cumsum(latency)) * 1e9
    columns = {name: np.zeros(len(done), dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["done_ns"] = done.round().astype(np.int64)
    columns["samples"][:] = 1
    return Queries(columns), Window(0, len(done), round(start_s * 1e9), int(columns["done_ns"][-1]))


def metered(
    rng: np.random.Generator,
    seconds: float,
    memory_s: float,
    level: float = 1.0,
    warmup_s: float | None = None,
) -> Mapping[str, Field]:
    """The metrics of one simulated run of `seconds`; before `warmup_s` ahead of the window the machine idles."""
    margin = 3.0
    watts = level * power(rng, seconds + 2 * margin, memory_s)
    if warmup_s is not None:
        watts[: round((margin - warmup_s) / STEP_S)] *= IDLE_SHARE
    polls, shown = sensor(rng, watts)
    rows, window = queries(rng, margin, margin + seconds)
    channel = Channel("vdd_in_power_w", "W", "module", "average", "simulated INA3221")
    t_ns = (polls * 1e9).round().astype(np.int64)
    readings = Readings((channel,), t_ns, np.zeros(len(t_ns), np.int16), shown)
    return consumption(readings, rows, window).metrics


def run(rng: np.random.Generator, seconds: float, memory_s: float) -> Measured:
    """The energy per sample that one simulated run of `seconds` reports."""
    found = metered(rng, seconds, memory_s)["energy_per_sample_j"]
    assert isinstance(found, Measured), found
    return found


def holds(found: Measured) -> bool:
    """Whether the interval holds the process's own mean."""
    return found.lo is not None and found.hi is not None and found.lo <= WATTS * LATENCY_S <= found.hi


def blocks(rng: np.random.Generator, seconds: float, memory_s: float, runs: int) -> dict[str, float]:
    """Coverage and median half-width (share of the value) of the interval over blocks of single runs."""
    every = [run(rng, seconds, memory_s) for _ in range(runs)]
    found = [f for f in every if f.n < seconds / PERIOD_S / 2]  # else the meter's bounds, n its updates
    wide = [(f.hi - f.lo) / 2 / f.value for f in found if f.lo is not None and f.hi is not None]
    return {
        "window_s": seconds,
        "memory_s": memory_s,
        "given": len(found) / runs,
        "missed": sum(not holds(f) for f in found) / runs,
        "covered": float(np.mean([holds(f) for f in found])) if found else math.nan,
        "median_half_width": float(np.median(wide)) if wide else math.nan,
        "median_blocks": float(np.median([f.n for f in found])) if found else math.nan,
    }


def replicates(
    rng: np.random.Generator, seconds: float, memory_s: float, studies: int, warmup_s: float | None = None
) -> dict[str, float | None]:
    """Coverage of the interval over five fresh processes, each with a level of its own."""
    held, wide = [], []
    for _ in range(studies):
        levels = np.exp(rng.normal(0, PROCESS_SD, REPLICATES))
        ends, values = [], []
        for level in levels:
            m = metered(rng, seconds, memory_s, level, warmup_s)
            per, whole = m["energy_per_sample_j"], m["energy_j"]
            assert isinstance(per, Measured) and isinstance(whole, Measured)
            values.append(per.value)
            assert whole.lo is not None and whole.hi is not None
            ends.append((whole.lo * per.value / whole.value, whole.hi * per.value / whole.value))
        found = spread(values, "J", ends)
        assert isinstance(found, Measured) and found.lo is not None and found.hi is not None
        held.append(holds(found))
        wide.append((found.hi - found.lo) / 2 / found.value)
    covered = float(np.mean(held))
    return {
        **{"window_s": seconds, "memory_s": memory_s, "warmup_s": warmup_s},
        **{"covered": covered, "median_half_width": float(np.median(wide)), "studies": studies},
    }


def coverage() -> None:
    """How often the 95 % interval of energy per inference holds the truth, simulated with a slow sensor.

    The sensor is an INA3221 that averages 512 conversions: one update every 430 ms, each the mean since the one
    before, shown late by a constant time of its own. The sampler reads it at 10 Hz with the watcher's own jitter, so
    most readings are repeats. Power is autocorrelated (an Ornstein-Uhlenbeck process, CV 10 %), latencies vary by 5
    %, and the truth is the process's own mean. One long run has its interval from blocks, or none where they cannot
    tell: `covered` is of the intervals given, `missed` of all runs. The goal is 92 % covered where the window is 40
    memory times or longer. Five fresh processes (1 % apart) have Student's t and the meter's bounds, one case of them
    after a warm-up that is shorter than the sensor's delay.

        python benchmarks/energy.py coverage     # two minutes; writes published/energy.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(coverage))
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    single = [blocks(rng, *case, args.runs) for case in CASES]
    several = [
        replicates(rng, 20, 0.2, args.runs // 4),
        replicates(rng, 3, 0.2, args.runs // 4, warmup_s=0.2),
    ]
    steady = [c for c in single if c["window_s"] >= LONG * c["memory_s"]]
    least = min(c["covered"] or 0.0 for c in (*steady, *several))
    setup = {
        **{"sensor_period_s": PERIOD_S, "sampler_hz": HZ, "power_cv": CV, "latency_s": LATENCY_S},
        **{"latency_cv": LATENCY_CV, "process_sd": PROCESS_SD, "replicates": REPLICATES},
    }
    figures = {
        **{
            "least_covered": {
                "long_windows": least,
                "all": min(c["covered"] or 0.0 for c in (*single, *several)),
            },
            "most_missed": max(c["missed"] for c in single),
            "nominal": 0.95,
            "goal": GOAL,
            "runs": args.runs,
            "seed": args.seed,
        },
        **{"one_run_by_blocks": single, "fresh_processes": several, "setup": setup},
    }
    publish("energy/coverage", figures, met=least >= GOAL)


LIMIT, MARGIN_S, SILENT_S = 0.01, 2.0, 5.0
CHOSEN = "as edgescope chooses"
LOAD = """
import random, sys, time
seed, where = int(sys.argv[1]), sys.argv[2]
rng = random.Random(seed)
try:
    import torch
    a = torch.rand(4096 if where == "cuda" else 1024, 4096 if where == "cuda" else 1024, device=where)
    def work(): a @ a; (torch.cuda.synchronize() if where == "cuda" else None)
except Exception as error:
    print(f"no torch load: {error}", file=sys.stderr); sys.exit(3)
print("ready", flush=True)
while True:
    end = time.monotonic() + rng.uniform(1, 4)
    while time.monotonic() < end: work()
    time.sleep(rng.uniform(0.5, 3))
"""

Read = Callable[[], "float | None"]
CounterWindow = tuple[int, int, float]
"""Start and stop in ns, and the joules that the counter moved by between them."""


def reader(source: Source, name: str) -> Read:
    """Return what reads one channel of a source once; None where it answers no number."""

    def read() -> float | None:
        return next((v for n, _, v in source.read() if n == name and isinstance(v, float)), None)

    return read


def edge(read: Read, now: Callable[[], int] = time.monotonic_ns, pause: float = 0.001) -> tuple[int, float]:
    """Wait until the counter moves; return the middle of the read that first saw it, and its new value."""
    old, deadline = read(), now() + int(SILENT_S * 1e9)
    while True:
        before = now()
        value = read()
        if value is None or old is None or before > deadline:
            raise RuntimeError(f"the energy counter does not move or answer: {old} J, then {value} J")
        if value != old:
            return (before + now()) // 2, value
        time.sleep(pause)


def windows(
    read: Read,
    count: int,
    seconds: float,
    *,
    now: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
    pause: float = 0.001,
) -> list[CounterWindow]:
    """Return windows of at least `seconds`, each from one edge of the counter to another."""
    found = []
    for _ in range(count):
        start_ns, before = edge(read, now, pause)
        sleep(seconds)
        stop_ns, after = edge(read, now, pause)
        found.append((start_ns, stop_ns, after - before))
    return found


def without(readings: Readings, drop: Sequence[str]) -> Readings:
    """Return the readings without some channels: the counter must not help to find its own answer."""
    keep = np.array([c.name not in drop for c in readings.channels])
    mine = keep[readings.channel]
    place = np.cumsum(keep) - 1
    channels = tuple(c for c in readings.channels if c.name not in drop)
    kept = place[readings.channel[mine]].astype(np.int16)
    return Readings(channels, readings.t_ns[mine], kept, readings.value[mine])


def differences(readings: Readings, counter: str) -> Readings:
    """Return power readings made of a counter's differences: each the mean since the reading before."""
    t_ns, joules = readings.series(counter)
    watts = np.diff(joules) / (np.diff(t_ns) / 1e9)
    channel = Channel(counter.replace("_energy_j", "_power_w"), "W", "cpu_package", "average", counter)
    return Readings((channel,), t_ns[1:], np.zeros(len(watts), np.int16), watts)


def compare(readings: Readings, found: Sequence[CounterWindow]) -> dict[str, Json]:
    """Return how energy from each power channel alone does against the counter, and from all, as a trial chooses."""
    names = [c.name for c in readings.channels]
    power = [n for n in names if n.endswith(("_power_w", "_power_average_w"))]
    alone = {n: without(readings, [other for other in names if other != n]) for n in power}
    whole = {CHOSEN: without(readings, [n for n in names if n not in power])} if len(power) > 1 else {}
    rows = {n: compared(each, found) for n, each in {**alone, **whole}.items()}
    return {n: row for n, row in rows.items() if row}


def compared(readings: Readings, found: Sequence[CounterWindow]) -> dict[str, Json]:
    """Return the relative errors of integration and how many bounds held the truth; {} without any."""
    pairs = [(next(iter(energies(readings, a, b, 0)), None), joules) for a, b, joules in found]
    measured = [(e.method, e.energy_j, j) for e, j in pairs if e and isinstance(e.energy_j, Measured)]
    if not measured:
        return {}
    errors = np.array([e.value / j - 1 for _, e, j in measured])
    bounds = [(e.lo, e.hi, e.value, j) for _, e, j in measured if e.lo is not None and e.hi is not None]
    return {
        "windows": len(errors),
        "methods": dict(Counter(method for method, *_ in measured)),
        "errors": [round(float(e), 6) for e in errors],
        "largest_error": float(np.abs(errors).max()),
        "mean_error": float(errors.mean()),
        "within_bounds": sum(lo <= j <= hi for lo, hi, _, j in bounds),
        "median_bound": float(np.median([(hi - lo) / 2 / value for lo, hi, value, _ in bounds]))
        if bounds
        else None,
        "median_updates": float(np.median([e.n for _, e, _ in measured])),
    }


@contextlib.contextmanager
def load(where: str, seed: int, beside: str) -> Iterator[str]:
    """Run the load beside the windows, unless something else does; yield what it is."""
    if beside:
        yield beside
        return
    command = [sys.executable, "-c", LOAD, str(seed), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ready = process.stdout.readline().strip() == "ready"
        try:
            yield f"torch matmul on {where}, on and off at random" if ready else "none: torch cannot run here"
        finally:
            process.kill()


def measure(
    counter: tuple[Source, str], specs: Sequence[SourceSpec], args: argparse.Namespace
) -> dict[str, Json]:
    """Return the figures of one counter: windows, errors by power channel."""
    source, name = counter
    where = "cuda" if name.startswith("gpu") else "cpu"
    with tempfile.TemporaryDirectory() as folder, load(where, args.seed, args.beside) as words:
        with Sampler(specs, args.hz, Path(folder)) as sampler:
            time.sleep(MARGIN_S)
            found = windows(reader(source, name), args.windows, args.seconds)
            time.sleep(MARGIN_S)
        readings = sampler.readings()
    power = differences(readings, name) if where == "cpu" else without(readings, [name])
    joules = [round(j, 3) for *_, j in found]
    return {"counter": name, "load": words, "joules": joules, "power": compare(power, found)}


def counters() -> Iterator[tuple[tuple[Source, str], list[SourceSpec]]]:
    """Yield every energy counter that answers here, with the sources to read beside it."""
    device = NvidiaDevice()
    if not device.present():
        from edgescope.wings.nvidia import NvmlSource

        specs = [s for s in device.sources(os.getpid()) if s.kwargs.get("index") == 0]
        yield (NvmlSource(index=0, part="energy"), "gpu0_energy_j"), specs
    rapl = Rapl("/")
    if reader(rapl, "cpu_package_energy_j")() is not None:
        yield (
            (rapl, "cpu_package_energy_j"),
            [SourceSpec("edgescope.devices.cpu.sensors:Rapl", {"root": "/"})],
        )


def reached(power: Mapping[str, Json], windows: int) -> bool:
    """Return whether what a trial would use agrees within LIMIT in every window."""
    mine = power.get(CHOSEN) or next(iter(power.values()), {"windows": 0})
    return bool(mine["windows"] == windows and mine["largest_error"] <= LIMIT)


def counter() -> int:
    """Energy by integrating power readings, held against the hardware's own energy counter.

    Twenty windows of at least ten seconds, each opened and closed at the moment the counter moves, so that its steps
    are no error. Meanwhile the shipped sampler reads power at its usual 10 Hz, and a load of matrix products in
    another process is switched on and off at random, so that power moves; --beside WORDS starts none: something else
    loads the machine. What `analysis.run.energy` makes of the power readings alone must agree with the counter within 1
    %; of two kinds of readings it takes those with the narrower bound. On a GPU the counter is NVML's; where RAPL is
    readable its counter is the truth and its own differences at 10 Hz are the power readings.

        python benchmarks/energy.py counter     # five minutes; writes published/energy.json
        python benchmarks/energy.py counter --seconds 30 --beside "a sweep" --name counter_sweep     # ten
    """
    parser = argparse.ArgumentParser(description=facts.summary(counter))
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="", help="what loads the machine meanwhile; no load is started")
    parser.add_argument("--name", default="counter", help="of the run in published/energy.json")
    args = parser.parse_args()
    found = [measure(counter, specs, args) for counter, specs in counters()]
    if not found:
        print(
            "no energy counter answers here: neither NVML's nor RAPL's; nothing was measured", file=sys.stderr
        )
        return 1
    met = all(reached(f["power"], args.windows) for f in found)
    setup = {"windows": args.windows, "seconds": args.seconds, "hz": args.hz, "limit": LIMIT}
    publish(f"energy/{args.name}", {"counters": found, "setup": setup}, met=met)
    return 0


if __name__ == "__main__":
    facts.chosen(coverage, counter)
