"""An hour of eight cameras in fast time: memory must stay flat.

The pipeline reads eight synthetic cameras of 15 frames a second as fast as it can, with stages in threads and a small
real network, for as many frames as an hour has. The process's resident memory is read every ten thousand frames, and
the counts are held to one another: each frame came through or was counted. Target: memory after the first tenth stays
within 1 %.

    python benchmarks/cameras_hour.py [--hours 1] [--model lenet5]
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import Any

import psutil
from facts import publish

from edgescope.backends.base import spec_of
from edgescope.bench.parts import HERE
from edgescope.records import Trial
from edgescope.video import what_if
from edgescope.workloads.inference import loaded
from edgescope.workloads.pipeline import Pipeline, planned

CAMERAS, RATE, EVERY, WITHIN = 8, 15, 10_000, 0.01


def hour(trial: Trial, frames: int) -> dict[str, Any]:
    """Return the resident memory in bytes while the frames go through, and what was counted."""
    process, plan, model = psutil.Process(), planned(trial, HERE), HERE.model(trial)
    resident: list[int] = []
    with ExitStack() as stack:
        ready = stack.enter_context(loaded(trial, model, HERE.backend(trial.backend), HERE))
        pipeline = Pipeline(plan, [model], [ready])
        stack.callback(pipeline.close)
        start = time.monotonic()

        def more(number: int) -> bool:
            if number % EVERY == 0:
                resident.append(process.memory_info().rss)
            return number < frames

        with what_if.running(pipeline.flow(pipeline.stages())) as flow:
            through = what_if.driven(flow, trial.in_flight, more)
            counts = flow.counts
        spent = time.monotonic() - start
    return {
        "frames": frames,
        "through": through,
        "counted": counts.done + counts.dropped + counts.skipped,
        "seconds": spent,
        "resident_bytes": resident,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--model", default="lenet5")
    args = parser.parse_args()
    trial = Trial(
        model=args.model,
        backend="onnxruntime",
        workload="video",
        in_flight=16,
        options={"threads": 1},
        workload_options={"source": "synthetic:160x120", "cameras": CAMERAS, "preprocess": "host"},
    )
    HERE.backend(trial.backend).prepare(HERE.model(trial), spec_of(trial), HERE.folder)
    found = hour(trial, round(args.hours * 3600 * RATE * CAMERAS))
    settled = found["resident_bytes"][max(1, len(found["resident_bytes"]) // 10) :]
    found["spread"] = max(settled) / min(settled) - 1
    found["growth"] = settled[-1] / settled[0] - 1
    whole = found["through"] == found["counted"] == found["frames"]
    publish("cameras_hour", found, met=whole and found["spread"] <= WITHIN)


if __name__ == "__main__":
    main()
