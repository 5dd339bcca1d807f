"""Where the top of the GPU ladder spends its time, in a minute: a look before the ladder itself is measured.

Opens the compiled, overlapped pipeline in a few settings and prints of each: frames/s of the pipeline, of its network
alone and of its decoder alone (in turns, same process), the milliseconds a unit that each stage's threads are busy, and
the host's and the device's time of a stage alone.

    python benchmarks/ladder_top.py --source clip.mp4 --seconds 60 [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope.bench import parts
from edgescope.models import zoo
from edgescope.options import pinned
from edgescope.papers.paper import papers
from edgescope.papers.video_ladder import climb, report
from edgescope.records import Trial
from edgescope.study import grid
from edgescope.video import what_if
from edgescope.video.flow import Driven, Stage, Threaded
from edgescope.video.frame import Item

#: Name -> what differs from the ladder's own top.
SETTINGS: dict[str, dict[str, Any]] = {
    "top": {},
    "top, decoded on the GPU": {"workload_options": {"source": "nvdec:{source}"}},
    "3 streams": {"in_flight": 12, "workload_options": {"infer_threads": 3}},
    "3 streams, decoded on the GPU": {
        "in_flight": 12,
        "workload_options": {"infer_threads": 3, "source": "nvdec:{source}"},
    },
}


def top(device: str, model: str, film: str, batch: int) -> Trial:
    """Return the last level of the ladder, as if every level but that of NVDEC was kept."""
    trial = Trial(
        model=model, device=device, workload="video", workload_options={"source": film}, **climb.TIMES
    )
    for level in climb.levels(papers()[report.NAME], device):
        if not level.stays and "source" not in level.changes.get("workload_options", {}):
            trial = climb.changed(trial, level.changes, film)
    return replace(trial, batch=batch)


def looked(trial: Trial, seconds: float) -> dict[str, Any]:
    """Return the rates and the times of one setting."""
    began = time.monotonic()
    with parts.open_work(trial) as opened:
        assert isinstance(opened.work, Driven)
        stages = opened.work.flow.stages
        found: dict[str, Any] = {"opened_s": round(time.monotonic() - began, 1)}
        variants = {
            "pipeline": stages,
            "infer": what_if.alone(stages, "infer"),
            "decode": what_if.alone(stages, "decode"),
            "without decode": what_if.without(stages, {"decode"}),
            "without postprocess": what_if.without(stages, {"postprocess"}),
        }
        rates: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(2):
            for name, made in list(variants.items())[:: 1 if number else -1]:
                with what_if.running(Threaded(made)) as flow:
                    rates[name].append(what_if.throughput(flow, trial.in_flight, seconds))
                    if name == "pipeline":
                        units = max(1, flow.counts.units)
                        found["busy_ms"] = {
                            k: round(v / units / 1e6, 2) for k, v in flow.counts.busy_ns.items()
                        }
        found["fps"] = {name: [round(rate) for rate in got] for name, got in rates.items()}
        best = {name: max(got) for name, got in rates.items()}
        found["of_the_engine"] = round(best["pipeline"] / best["infer"], 3)
        found["of_the_decoder"] = round(best["pipeline"] / best["decode"], 3)
        found["alone_ms"] = _alone(stages)
    found["took_s"] = round(time.monotonic() - began, 1)
    return found


def _alone(stages: tuple[Stage, ...]) -> dict[str, list[float | None]]:
    """Return the host's and the device's milliseconds of each stage, nothing else running: medians of ten units."""
    times: dict[str, list[tuple[int, int | None]]] = {stage.name: [] for stage in stages}
    for number in range(12):
        item = Item(number)
        for stage in stages:
            before = time.monotonic_ns()
            stage.run(item)
            if stage.wait:
                stage.wait()
            host = time.monotonic_ns() - before
            device = getattr(stage.run, "device_ns", None)
            times[stage.name].append((host, device(item) if device else None))
    found: dict[str, list[float | None]] = {}
    for name, rows in times.items():
        host = sorted(row[0] for row in rows[2:])[5] / 1e6
        known = sorted(row[1] for row in rows[2:] if row[1] is not None)
        found[name] = [round(host, 2), round(known[len(known) // 2] / 1e6, 2) if known else None]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--model", default="")
    parser.add_argument("--source", required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="no new setting begins after this time")
    parser.add_argument("--window", type=float, default=0.5, help="seconds of each rate")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start, film = time.monotonic(), pinned(args.source)
    model = args.model or report.MODELS[args.device]
    found: dict[str, Any] = {}
    for name, differs in SETTINGS.items():
        if time.monotonic() - start > args.seconds:
            break
        trial = climb.changed(top(args.device, model, film, args.batch), differs, film)
        try:
            found[name] = looked(grid.pinned(trial, zoo.pin), args.window)
        except Exception as error:  # one setting must not lose the others
            traceback.print_exc()
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(
            f"{time.monotonic() - start:4.0f} s {name}: {json.dumps(found[name])}",
            file=sys.stderr,
            flush=True,
        )
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
