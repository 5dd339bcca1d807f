"""The age of frames under eight paced cameras, beside what a simulated queue makes of the stages' times.

The face detector's pipeline in threads, on a made-up moving picture that costs next to nothing to decode, at half of
the rate that it can do: cameras that take turns (fixed_rate), and cameras with one trigger (burst). The prediction
takes each stage's times from a few seconds of the same load beforehand, and the frames' own due times. Each repeat
times the stages anew. Target: p99 within 10 %.

    python benchmarks/cameras.py [--repeats 5] [--seconds 20] [--model centerface] [--backend openvino]
"""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from facts import publish

from edgescope import bench
from edgescope.analysis.predict.pipeline import StageModel, frame_ages
from edgescope.backends.base import spec_of
from edgescope.bench.parts import HERE
from edgescope.records import QUERY_OK, Trial
from edgescope.video import what_if
from edgescope.video.flow import Flow, Stage
from edgescope.video.frame import Item
from edgescope.workloads.inference import loaded
from edgescope.workloads.pipeline import Pipeline, planned

CAMERAS, WITHIN, CALIBRATED_S = 8, 0.1, 6.0
LOADS: dict[str, dict[str, Any]] = {
    "fixed_rate": {"scenario": "fixed_rate"},
    "burst": {"scenario": "burst", "scenario_options": {"burst_size": CAMERAS}},
}


def stage_times(
    trial: Trial, share: float, burst: int
) -> tuple[dict[str, np.ndarray[Any, Any]], float, float]:
    """Return the seconds of each call of each stage under the load to come, its rate, and the rate at full load.

    Times of units that go through one by one would not hold what stages take from one another on shared cores.
    """
    plan, model = planned(trial, HERE), HERE.model(trial)
    with ExitStack() as stack:
        ready = stack.enter_context(loaded(trial, model, HERE.backend(trial.backend), HERE))
        pipeline = Pipeline(plan, [model], [ready])
        stack.callback(pipeline.close)
        made = pipeline.stages()
        with what_if.running(pipeline.flow(made)) as flow:
            full = what_if.throughput(flow, trial.in_flight, 2.0)
        rate = round(share * full / CAMERAS, 1) * CAMERAS
        times: dict[str, list[float]] = {stage.name: [] for stage in made}
        with what_if.running(pipeline.flow([clocked(stage, times[stage.name]) for stage in made])) as flow:
            paced(flow, rate, burst)
    return {name: np.array(found[burst * 2 :]) for name, found in times.items()}, rate, full


def clocked(stage: Stage, found: list[float]) -> Stage:
    """Return a stage that notes the seconds of each of its calls."""

    def run(item: Item) -> None:
        start = time.monotonic_ns()
        stage.run(item)
        found.append((time.monotonic_ns() - start) * 1e-9)

    return replace(stage, run=run)


def paced(flow: Flow, rate: float, burst: int) -> None:
    """Offer `rate` frames a second, `burst` at once, for CALIBRATED_S seconds; return when all are through."""
    through, start = threading.Semaphore(0), time.monotonic()
    number = round(CALIBRATED_S * rate / burst) * burst
    for unit in range(number):
        due = start + unit // burst * burst / rate
        time.sleep(max(0.0, due - time.monotonic()))
        flow.issue(unit, 0, lambda *_: through.release())
    for _ in range(number):
        through.acquire()


def one(trial: Trial, load: dict[str, Any], seconds: float, share: float) -> dict[str, float]:
    """Return measured and predicted p50 and p99 of the frames' ages in seconds."""
    burst = load.get("scenario_options", {}).get("burst_size", 1)
    times, rate, full = stage_times(trial, share, burst)
    asked = replace(trial, rate=rate, min_s=seconds, max_s=seconds, **load)
    rows = bench.run(asked, hz=0).queries
    column = rows.columns
    good = (column["status"] == QUERY_OK) & (column["scheduled_ns"] >= 0)
    ages = (column["done_ns"] - column["scheduled_ns"])[good] * 1e-9
    stages = [
        StageModel(found, queue=None if number == 0 else 4) for number, found in enumerate(times.values())
    ]
    expected = frame_ages(column["scheduled_ns"][good], stages) * 1e-9
    figures = {f"measured_p{q}_s": float(np.percentile(ages, q)) for q in (50, 99)}
    figures |= {f"predicted_p{q}_s": float(np.percentile(expected, q)) for q in (50, 99)}
    return figures | {"frames": float(len(ages)), "rate": rate, "full_rate": full}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", default="centerface")
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--share", type=float, default=0.5, help="of the rate that the pipeline can do")
    args = parser.parse_args()
    trial = Trial(
        model=args.model,
        backend=args.backend,
        precision=args.precision,
        workload="video",
        in_flight=32,
        warmup=1.0,
        workload_options={"source": "synthetic:640x480", "cameras": CAMERAS, "preprocess": "host"},
    )
    HERE.backend(trial.backend).prepare(HERE.model(trial), spec_of(trial), HERE.folder)
    figures: dict[str, Any] = {}
    for name, load in LOADS.items():
        runs = [one(trial, load, args.seconds, args.share) for _ in range(args.repeats)]
        off = [run["predicted_p99_s"] / run["measured_p99_s"] - 1 for run in runs]
        figures[name] = {"runs": runs, "p99_off": off, "median_off": sorted(off)[len(off) // 2]}
        print(name, off, flush=True)
    publish("cameras", figures, met=all(abs(found["median_off"]) <= WITHIN for found in figures.values()))


if __name__ == "__main__":
    main()
