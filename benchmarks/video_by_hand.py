"""The face-detector pipeline beside the loop that most people write: OpenCV reads a frame, the engine answers, repeat.

All use the same file and the same vectorised reading of boxes; by hand, the steps follow one another:
VideoCapture.read, cv2.resize, a float32 blob, the engine's own Python call. `by hand` has our engine, precision and
artifact with the engine's defaults; `by hand, fp32` is the same loop around onnxruntime and the network as it comes.
They take turns; a ratio is frames per second, ours over theirs, over pairs of turns. Targets: 1.2 over by hand, 0.9 of
the engine alone (all other stages stubbed). OpenCV is needed for this script alone.

    pip install --no-deps opencv-python-headless
    python benchmarks/video_by_hand.py --source clip.mp4 [--rounds 9] [--seconds 3]
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from facts import publish

from edgescope.backends.base import spec_of
from edgescope.bench.parts import HERE
from edgescope.models.base import Fit
from edgescope.options import pinned
from edgescope.records import Trial
from edgescope.stats.pairs import paired_log_ratio
from edgescope.video import what_if
from edgescope.workloads.inference import loaded
from edgescope.workloads.pipeline import Pipeline, planned, supported

TARGET = 1.2


def by_hand(path: Path, model: Any, session: Any, seconds: float) -> float:
    """Return frames per second of the loop, beginning the film again at its end."""
    import cv2

    name, (_, high, wide) = model.inputs[0].name, model.inputs[0].shape
    film, frames, start = cv2.VideoCapture(str(path)), 0, time.monotonic()
    while time.monotonic() < start + seconds:
        ok, frame = film.read()
        if not ok:
            film = cv2.VideoCapture(str(path))
            continue
        picture = cv2.cvtColor(cv2.resize(frame, (wide, high)), cv2.COLOR_BGR2RGB)
        blob = np.ascontiguousarray(picture.transpose(2, 0, 1)[None], dtype=np.float32)
        outputs = session({name: blob})
        model.decoder.host(outputs, [Fit(wide / frame.shape[1], high / frame.shape[0])])
        frames += 1
    return frames / (time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--infer-threads", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], metavar="K=V")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    options = {"source": pinned(str(args.source)), "decode": "scaled", "preprocess": "host"}
    options |= {"infer_threads": args.infer_threads} if args.infer_threads > 1 else {}
    trial = Trial(
        model="centerface",
        backend=args.backend,
        precision=args.precision,
        workload="video",
        in_flight=args.in_flight,
        options={k: int(v) for k, v in (text.split("=") for text in args.option)},
        workload_options=options,
    )
    plan = planned(trial, HERE)
    supported(plan)
    model = HERE.model(trial)
    HERE.backend(trial.backend).prepare(model, spec_of(trial), HERE.folder)
    rates: dict[str, list[float]] = {
        "ours": [],
        "by hand": [],
        "by hand, fp32": [],
        "engine only": [],
    }
    with ExitStack() as stack:
        ready = stack.enter_context(loaded(trial, model, HERE.backend(trial.backend), HERE))
        pipeline = Pipeline(plan, [model], [ready])
        stack.callback(pipeline.close)
        stages = pipeline.stages()
        alone = what_if.alone(stages, "infer")
        usual = replace(trial, options={})  # the engine as it comes: one query at a time, all cores
        hand = stack.enter_context(loaded(usual, model, HERE.backend(trial.backend), HERE)).session
        plain = replace(trial, options={}, backend="onnxruntime", precision="fp32")
        first = stack.enter_context(loaded(plain, model, HERE.backend(plain.backend), HERE)).session
        hands = {"by hand": hand, "by hand, fp32": first}
        for session in hands.values():
            by_hand(args.source, model, session, 1.0)
        for number in range(args.rounds):
            for name in list(rates) if number % 2 else reversed(rates):
                if name in hands:
                    rates[name].append(by_hand(args.source, model, hands[name], args.seconds))
                    continue
                flow = pipeline.flow(stages if name == "ours" else alone)
                with what_if.running(flow):
                    rates[name].append(what_if.throughput(flow, trial.in_flight, args.seconds))
    ratios = {name: paired_log_ratio(rates["ours"], found) for name, found in rates.items() if name != "ours"}
    figures = {
        "trial": replace(trial, workload_options={**options, "source": args.source.name}).to_json(),
        "fps": {name: sorted(found)[len(found) // 2] for name, found in rates.items()},
        "ours_over": {name: [ratio.value, ratio.lo, ratio.hi] for name, ratio in ratios.items()},
        "rounds": args.rounds,
    }
    publish(
        "video_by_hand", figures, met=ratios["by hand"].value >= TARGET and ratios["engine only"].value >= 0.9
    )


if __name__ == "__main__":
    main()
