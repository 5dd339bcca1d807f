"""How often the 95 % interval of energy per inference holds the truth, simulated with a slow sensor.

The sensor is an INA3221 that averages 512 conversions: one update every 430 ms, each the mean since the one
before, shown late by a constant time of its own. The sampler reads it at 10 Hz with the watcher's own jitter, so most
readings are repeats. Power is autocorrelated (an Ornstein-Uhlenbeck process, CV 10 %), latencies vary by 5 %, and the
truth is the process's own mean. One long run has its interval from blocks, five fresh processes (1 % apart) from
Student's t.

    python benchmarks/energy_coverage.py     # two minutes; writes published/energy_coverage.json
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from facts import publish
from numpy.typing import NDArray

from edgescope.analysis.consumption import consumption
from edgescope.analysis.means import spread
from edgescope.records import QUERY_DTYPES, Channel, Measured, Queries, Readings, Window

PERIOD_S, HZ, STEP_S = 0.430, 10.0, 0.01
WATTS, CV, LATENCY_S, LATENCY_CV = 10.0, 0.10, 0.020, 0.05
PROCESS_SD, REPLICATES = 0.01, 5
#: Seconds of the window, seconds over which power is correlated.
CASES = ((20, 0.0), (30, 0.2), (60, 0.0), (60, 0.2), (60, 1.0), (120, 1.0), (120, 3.0))
GOAL = 0.92

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


def run(rng: np.random.Generator, seconds: float, memory_s: float, level: float = 1.0) -> Measured:
    """The energy per sample that one simulated run of `seconds` reports."""
    margin = 3.0
    polls, watts = sensor(rng, level * power(rng, seconds + 2 * margin, memory_s))
    rows, window = queries(rng, margin, margin + seconds)
    channel = Channel("vdd_in_power_w", "W", "module", "average", "simulated INA3221")
    t_ns = (polls * 1e9).round().astype(np.int64)
    readings = Readings((channel,), t_ns, np.zeros(len(t_ns), np.int16), watts)
    found = consumption(readings, rows, window, batch=1).metrics["energy_per_sample_j"]
    assert isinstance(found, Measured), found
    return found


def holds(found: Measured) -> bool:
    """Whether the interval holds the process's own mean."""
    return found.lo is not None and found.hi is not None and found.lo <= WATTS * LATENCY_S <= found.hi


def blocks(rng: np.random.Generator, seconds: float, memory_s: float, runs: int) -> dict[str, float]:
    """Coverage and median half-width (share of the value) of the interval over blocks of single runs."""
    found = [run(rng, seconds, memory_s) for _ in range(runs)]
    wide = [(f.hi - f.lo) / 2 / f.value for f in found if f.lo is not None and f.hi is not None]
    return {
        "window_s": seconds,
        "memory_s": memory_s,
        "covered": float(np.mean([holds(f) for f in found])),
        "median_half_width": float(np.median(wide)),
        "median_blocks": float(np.median([f.n for f in found])),
    }


def replicates(rng: np.random.Generator, seconds: float, memory_s: float, studies: int) -> dict[str, float]:
    """Coverage of Student's t over five fresh processes, each with a level of its own."""
    held = []
    for _ in range(studies):
        levels = np.exp(rng.normal(0, PROCESS_SD, REPLICATES))
        found = spread([run(rng, seconds, memory_s, level).value for level in levels], "J")
        held.append(isinstance(found, Measured) and holds(found))
    return {"window_s": seconds, "memory_s": memory_s, "covered": float(np.mean(held)), "studies": studies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    single = [blocks(rng, *case, args.runs) for case in CASES]
    several = replicates(rng, 20, 0.2, args.runs // 2)
    least = min(case["covered"] for case in (*single, several))
    setup = {
        **{"sensor_period_s": PERIOD_S, "sampler_hz": HZ, "power_cv": CV, "latency_s": LATENCY_S},
        **{"latency_cv": LATENCY_CV, "process_sd": PROCESS_SD, "replicates": REPLICATES},
    }
    figures = {
        **{"least_covered": least, "nominal": 0.95, "goal": GOAL, "runs": args.runs, "seed": args.seed},
        **{"one_run_by_blocks": single, "fresh_processes": several, "setup": setup},
    }
    publish("energy_coverage", figures, met=least >= GOAL)


if __name__ == "__main__":
    main()
