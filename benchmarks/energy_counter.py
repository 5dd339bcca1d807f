"""Energy by integrating power readings, held against the hardware's own energy counter.

Twenty windows of at least ten seconds, each opened and closed at the moment the counter moves, so that its steps are no
error. Meanwhile the shipped sampler reads power at its usual 10 Hz, and a load of matrix products in another process is
switched on and off at random, so that power moves; --beside WORDS starts none: something else loads the machine. What
`analysis.energy` makes of the power readings alone must agree with the counter within 1 %; of two kinds of readings it
takes those with the narrower bound. On a GPU the counter is NVML's; where RAPL is readable its counter is the truth and
its own differences at 10 Hz are the power readings.

    python benchmarks/energy_counter.py     # five minutes; writes published/energy_counter.json
    python benchmarks/energy_counter.py --seconds 30 --beside "a sweep" --name energy_counter_sweep     # ten
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from facts import publish

from edgescope.analysis.energy.window import energies
from edgescope.devices.base import Source, SourceSpec
from edgescope.devices.cpu.sensors import Rapl
from edgescope.devices.nvidia.device import NvidiaDevice
from edgescope.records import Channel, Json, Measured, Readings
from edgescope.telemetry.sampler import Sampler

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
Window = tuple[int, int, float]
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
) -> list[Window]:
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


def compare(readings: Readings, found: Sequence[Window]) -> dict[str, Json]:
    """Return how energy from each power channel alone does against the counter, and from all, as a trial chooses."""
    names = [c.name for c in readings.channels]
    power = [n for n in names if n.endswith(("_power_w", "_power_average_w"))]
    alone = {n: without(readings, [other for other in names if other != n]) for n in power}
    whole = {CHOSEN: without(readings, [n for n in names if n not in power])} if len(power) > 1 else {}
    rows = {n: compared(each, found) for n, each in {**alone, **whole}.items()}
    return {n: row for n, row in rows.items() if row}


def compared(readings: Readings, found: Sequence[Window]) -> dict[str, Json]:
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
        from edgescope.devices.nvidia.nvml import NvmlSource

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="", help="what loads the machine meanwhile; no load is started")
    parser.add_argument("--name", default="energy_counter", help="name of what is published")
    args = parser.parse_args()
    found = [measure(counter, specs, args) for counter, specs in counters()]
    if not found:
        print(
            "no energy counter answers here: neither NVML's nor RAPL's; nothing was measured", file=sys.stderr
        )
        return 1
    met = all(reached(f["power"], args.windows) for f in found)
    setup = {"windows": args.windows, "seconds": args.seconds, "hz": args.hz, "limit": LIMIT}
    publish(args.name, {"counters": found, "setup": setup}, met=met)
    return 0


if __name__ == "__main__":
    sys.exit(main())
