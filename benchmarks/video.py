"""The video pipeline: paced cameras, the ladder of a pipeline's levels, and the loop that people write.

    python benchmarks/video.py COMMAND --help

The commands: the age of frames (ages), an hour of cameras (an_hour), the ladder (levels), its top on a GPU (top_level),
and a loop by hand (beside).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

import facts
import numpy as np
import psutil
from facts import publish
from numpy.typing import NDArray

from edgescope import bench
from edgescope.backends.base import spec_of
from edgescope.bench import parts
from edgescope.bench.parts import HERE
from edgescope.devices.manifest import machine
from edgescope.frames import Item
from edgescope.models import zoo
from edgescope.models.base import Fit
from edgescope.options import pinned
from edgescope.records import QUERY_OK, Measured, Result, Status, Trial
from edgescope.report import save
from edgescope.stats import paired_log_ratio
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.studies.page import of
from edgescope.wings.studies.paper import papers
from edgescope.wings.studies.video_ladder import climb, study
from edgescope.wings.video import what_if
from edgescope.wings.video.flow import POLICIES, Flow, FlowWork, Stage, Threaded
from edgescope.wings.video.pipeline import Pipeline, planned, supported
from edgescope.workloads.inference import loaded

CAMERAS_CAMERAS, CAMERAS_WITHIN, CALIBRATED_S = 8, 0.1, 6.0
LOADS: dict[str, dict[str, Any]] = {
    "fixed_rate": {"scenario": "fixed_rate"},
    "burst": {"scenario": "burst", "scenario_options": {"burst_size": CAMERAS_CAMERAS}},
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
        rate = round(share * full / CAMERAS_CAMERAS, 1) * CAMERAS_CAMERAS
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


def ages() -> None:
    """The age of frames under eight paced cameras, beside what a simulated queue makes of the stages' times.

    The face detector's pipeline in threads, on a made-up moving picture that costs next to nothing to decode, at half
    of the rate that it can do: cameras that take turns (fixed_rate), and cameras with one trigger (burst). The
    prediction takes each stage's times from a few seconds of the same load beforehand, and the frames' own due times.
    Each repeat times the stages anew. Target: p99 within 10 %.

        python benchmarks/video.py ages [--repeats 5] [--seconds 20] [--model centerface] [--backend openvino]
    """
    parser = argparse.ArgumentParser(description=facts.summary(ages))
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
        workload_options={"source": "synthetic:640x480", "cameras": CAMERAS_CAMERAS, "preprocess": "host"},
    )
    HERE.backend(trial.backend).prepare(HERE.model(trial), spec_of(trial), HERE.folder)
    figures: dict[str, Any] = {}
    for name, load in LOADS.items():
        runs = [one(trial, load, args.seconds, args.share) for _ in range(args.repeats)]
        off = [run["predicted_p99_s"] / run["measured_p99_s"] - 1 for run in runs]
        figures[name] = {"runs": runs, "p99_off": off, "median_off": sorted(off)[len(off) // 2]}
        print(name, off, flush=True)
    publish(
        "video/ages",
        figures,
        met=all(abs(found["median_off"]) <= CAMERAS_WITHIN for found in figures.values()),
    )


HOUR_CAMERAS, RATE, EVERY, HOUR_WITHIN = 8, 15, 10_000, 0.01


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


def an_hour() -> None:
    """An hour of eight cameras in fast time: memory must stay flat.

    The pipeline reads eight synthetic cameras of 15 frames a second as fast as it can, with stages in threads and a
    small real network, for as many frames as an hour has. The process's resident memory is read every ten thousand
    frames, and the counts are held to one another: each frame came through or was counted. Target: memory after the
    first tenth stays within 1 %.

        python benchmarks/video.py an_hour [--hours 1] [--model lenet5]
    """
    parser = argparse.ArgumentParser(description=facts.summary(an_hour))
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--model", default="lenet5")
    args = parser.parse_args()
    trial = Trial(
        model=args.model,
        backend="onnxruntime",
        workload="video",
        in_flight=16,
        options={"threads": 1},
        workload_options={"source": "synthetic:160x120", "cameras": HOUR_CAMERAS, "preprocess": "host"},
    )
    HERE.backend(trial.backend).prepare(HERE.model(trial), spec_of(trial), HERE.folder)
    found = hour(trial, round(args.hours * 3600 * RATE * HOUR_CAMERAS))
    settled = found["resident_bytes"][max(1, len(found["resident_bytes"]) // 10) :]
    found["spread"] = max(settled) / min(settled) - 1
    found["growth"] = settled[-1] / settled[0] - 1
    whole = found["through"] == found["counted"] == found["frames"]
    publish("video/an_hour", found, met=whole and found["spread"] <= HOUR_WITHIN)


TARGETS, REACHED, SAME = {"cuda": 72.0, "cpu": 4.0}, 0.9, 0.9
HANGS_S = 150
"""A run that takes longer prints where each thread is, and ends the program."""


def levels() -> None:
    """The ladder of a video pipeline, all levels measured in one process: for machines that are lent for minutes.

    `edgescope study ladder --run` starts a fresh process for every run. Here every level is opened in this process,
    and the rounds follow one another; the levels, what is kept, the checks and the page are the same. Targets: on a
    GPU the top is 72 times the first level, on a CPU 4 times, with the same detections at every level; and the top
    reaches 0.9 of what its slowest stage does alone.

        python benchmarks/video.py levels --device cuda --source clip.mp4 [--model ssd300] [--page FILE] [--store DIR]
    """
    parser = argparse.ArgumentParser(description=facts.summary(levels))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seconds", type=float, default=480.0, help="no new run begins after this time")
    parser.add_argument("--brief", action="store_true", help="stub each stage in two or three rounds only")
    parser.add_argument("--ends", action="store_true", help="rounds of the first level and the top alone")
    parser.add_argument(
        "--rounds", type=int, default=climb.ROUNDS, help="rounds of all levels after the first look"
    )
    args = parser.parse_args()
    if args.brief:
        what_if.ROUNDS, what_if.FEWEST, what_if.LONGEST_S = 3, 2, 12.0
    model, film = args.model or study.MODELS[args.device], pinned(args.source) if args.source else ""
    paper = papers()[study.NAME]
    steps, start = climb.levels(paper, args.device), time.monotonic()
    store = Store(args.store) if args.store else None
    seen = {result.trial.id: result for result in store.results()} if store else {}
    running = (args.store or Path("ladder")).with_suffix(".running")
    faulthandler.enable()

    def known(trial: Trial) -> Result | None:
        return seen.get(grid.pinned(trial, zoo.pin).id)

    while (
        found := climb.climb(steps, model, args.device, film, known, rounds=args.rounds, ends=args.ends)
    ).wants is not None:
        if time.monotonic() - start > args.seconds:
            break
        trial = grid.pinned(found.wants, zoo.pin)
        if store and running.exists() and running.read_text() == trial.id:
            bare = Result.begun(trial, machine(bench.present()))
            result = replace(bare, status=Status.CRASHED, reason="an earlier try ended or hung the program")
        else:
            if store:
                running.write_text(trial.id)
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            result = bench.run(trial)
            faulthandler.cancel_dump_traceback_later()
        seen[trial.id] = result
        if store:
            store.save(result)
        told = (
            f"{time.monotonic() - start:5.0f} s  {trial.label}: {result.status.value} {climb.rate_of(result)}"
        )
        print(f"{told} {result.reason or ''}", file=sys.stderr, flush=True)
    if args.page:
        save(of(paper, study.told(paper, found, model, args.device)), args.page)
    first, top = found.rungs[0], found.kept[-1]
    whole = study.gain(found, top, first)
    rows = study.records(found)
    alone = [rows[top.level.number][f"{name}_alone_fps"] for name in study.STAGES]
    rate = study.metric(top, "pipeline_fps")
    engine = rows[top.level.number]["infer_alone_fps"]
    known = [each for each in alone if each]
    reached = rate.value / min(known) if known and isinstance(rate, Measured) else None
    same = all((row["agreement"] or 0) >= SAME for row in rows if row["fps"])
    met = (
        isinstance(whole, Measured)
        and whole.value >= TARGETS[args.device]
        and (reached or 0) >= REACHED
        and same
    )
    figures = {
        "model": model,
        "levels": rows,
        "batches": found.batches,
        "knee": found.knee,
        "over_the_first": [whole.value, whole.lo, whole.hi] if isinstance(whole, Measured) else None,
        "top_over_its_slowest_stage": reached,
        "top_over_its_engine": rate.value / engine if engine and isinstance(rate, Measured) else None,
        "same_detections": same,
    }
    publish(f"video/levels_{args.device}", figures, met=met)


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
    for level in climb.levels(papers()[study.NAME], device):
        if not level.stays and "source" not in level.changes.get("workload_options", {}):
            trial = climb.changed(trial, level.changes, film)
    return replace(trial, batch=batch)


def looked(trial: Trial, seconds: float) -> dict[str, Any]:
    """Return the rates and the times of one setting."""
    began = time.monotonic()
    with parts.open_work(trial) as opened:
        assert isinstance(opened.work, FlowWork)
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


def top_level() -> None:
    """Where the top of the GPU ladder spends its time, in a minute: a look before the ladder itself is measured.

    Opens the compiled, overlapped pipeline in a few settings and prints of each: frames/s of the pipeline, of its
    network alone and of its decoder alone (in turns, same process), the milliseconds a unit that each stage's threads
    are busy, and the host's and the device's time of a stage alone.

        python benchmarks/video.py top_level --source clip.mp4 --seconds 60 [--json FILE]
    """
    parser = argparse.ArgumentParser(description=facts.summary(top_level))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--model", default="")
    parser.add_argument("--source", required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="no new setting begins after this time")
    parser.add_argument("--window", type=float, default=0.5, help="seconds of each rate")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start, film = time.monotonic(), pinned(args.source)
    model = args.model or study.MODELS[args.device]
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


def beside() -> None:
    """The face-detector pipeline beside the loop that most people write: OpenCV reads, the engine answers, repeat.

    All use the same file and the same vectorised reading of boxes; by hand, the steps follow one another:
    VideoCapture.read, cv2.resize, a float32 blob, the engine's own Python call. `by hand` has our engine, precision
    and artifact with the engine's defaults; `by hand, fp32` is the same loop around onnxruntime and the network as it
    comes. They take turns; a ratio is frames per second, ours over theirs, over pairs of turns. Targets: 1.2 over by
    hand, 0.9 of the engine alone (all other stages stubbed). OpenCV is needed for this script alone.

        pip install --no-deps opencv-python-headless
        python benchmarks/video.py beside --source clip.mp4 [--rounds 9] [--seconds 3]
    """
    parser = argparse.ArgumentParser(description=facts.summary(beside))
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
        "video/beside", figures, met=ratios["by hand"].value >= TARGET and ratios["engine only"].value >= 0.9
    )


# -- the pipeline as a model ----------------------------------------------------------------------------------

# Stages in series, each with its servers and a queue before them, are fed with frames. A frame waits in the queue of a
# stage until one of the stage's servers is free, and so on to the last stage; its age is the time from its creation to
# the end of the last stage. Service times are the measured ones, repeated in their order. A queue may be bounded; its
# policy says what happens to a frame that finds it full:
#
#     block        the server before keeps the frame and waits; before the first stage, the source waits
#     drop_oldest  the frame that has waited longest is dropped
#     drop_newest  the frame that comes is dropped
#
# A stage may gather a batch: its server takes `batch` frames at once, or those that are there once the first of them
# has waited for `gather_s`. One service time is then that of a whole batch.

DROPPED = -1
"""The age of a frame that was dropped."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StageModel:
    """One stage: how long it takes, how many do it at once, and the queue before it."""

    service_s: Floats
    """Seconds of each call, in the order in which they were measured."""
    servers: int = 1
    batch: int = 1
    """The most frames of one call."""
    gather_s: float = 0.0
    """Seconds for which a call waits for a full batch."""
    queue: int | None = None
    """The most frames that wait; None: any number."""
    policy: str = "block"

    def __post_init__(self) -> None:
        """Raise ValueError for a stage that cannot be."""
        problems = (
            (len(self.service_s) > 0 and bool(np.all(np.asarray(self.service_s) >= 0)), "no service times"),
            (self.servers >= 1 and self.batch >= 1 and self.gather_s >= 0, "no servers, or no batch"),
            (self.queue is None or self.queue >= 1, "a queue holds at least one frame"),
            (self.policy in POLICIES, f"a policy is one of {', '.join(POLICIES)}, not {self.policy!r}"),
        )
        if wrong := next((text for fine, text in problems if not fine), ""):
            raise ValueError(wrong)


def frame_ages(arrivals_ns: Ints, stages: Sequence[StageModel]) -> Ints:
    """Return the age in nanoseconds of each frame's result; DROPPED for a frame that has none.

    `arrivals_ns` are the times at which the frames were created, in order.
    """
    return _Simulation(arrivals_ns, stages).run()


class _Stage:
    """The state of one stage while it is simulated."""

    def __init__(self, model: StageModel) -> None:
        self.service = np.round(np.asarray(model.service_s) * 1e9).astype(np.int64).tolist()
        self.batch, self.gather_ns = model.batch, round(model.gather_s * 1e9)
        self.room = model.queue if model.queue is not None else 1 << 62
        self.policy, self.free, self.calls = model.policy, model.servers, 0
        self.queue: deque[tuple[int, int]] = deque()
        """(frame, time at which it came) of those that wait."""
        self.blocked: deque[tuple[_Stage | None, deque[int]]] = deque()
        """Frames that found the queue full, with the stage whose server keeps them; None: the source."""
        self.alarm = -1
        """When the present head of the queue has waited long enough."""


_ARRIVED, _DONE, _GATHERED = range(3)


class _Simulation:
    """Frames on their way through the stages, event by event."""

    def __init__(self, arrivals_ns: Ints, stages: Sequence[StageModel]) -> None:
        self.born = np.asarray(arrivals_ns, dtype=np.int64).tolist()
        self.stages = [_Stage(model) for model in stages]
        self.after = dict(zip(self.stages, [*self.stages[1:], None], strict=True))
        self.ages = [DROPPED] * len(self.born)
        self.numbers = count(len(self.born))
        self.events: list[tuple[int, int, int, _Stage, deque[int]]] = []

    def run(self) -> Ints:
        """Return the ages once every frame is through or dropped."""
        if not self.stages:
            return np.zeros(len(self.born), dtype=np.int64)
        first = self.stages[0]
        self.events = [(t, n, _ARRIVED, first, deque((n,))) for n, t in enumerate(self.born)]
        heapify(self.events)
        while self.events:
            now, _, kind, stage, frames = heappop(self.events)
            if kind == _DONE:
                self._leave(stage, frames, now)
            elif kind == _ARRIVED:
                self._enter(None, stage, frames, now)
            else:
                self._start(stage, now)
        return np.array(self.ages, dtype=np.int64)

    def _leave(self, stage: _Stage, frames: deque[int], now: int) -> None:
        """Pass finished frames on; the server is free once the next stage has taken all of them."""
        following = self.after[stage]
        if following is not None:
            self._enter(stage, following, frames, now)
            return
        for frame in frames:
            self.ages[frame] = now - self.born[frame]
        stage.free += 1
        self._start(stage, now)

    def _enter(self, holder: _Stage | None, stage: _Stage, frames: deque[int], now: int) -> None:
        if stage.policy == "block":
            stage.blocked.append((holder, frames))
            self._start(stage, now)
            return
        for frame in frames:
            if len(stage.queue) < stage.room:
                stage.queue.append((frame, now))
            elif stage.policy == "drop_oldest":
                stage.queue.popleft()
                stage.queue.append((frame, now))
            self._start(stage, now)
        self._release(holder, now)

    def _release(self, holder: _Stage | None, now: int) -> None:
        if holder is not None:
            holder.free += 1
            self._start(holder, now)

    def _start(self, stage: _Stage, now: int) -> None:
        """Begin every call that can begin now, and admit blocked frames where there is room."""
        freed: list[_Stage | None] = []
        while True:
            while stage.blocked and len(stage.queue) < stage.room:
                holder, frames = stage.blocked[0]
                stage.queue.append((frames.popleft(), now))
                if not frames:
                    stage.blocked.popleft()
                    freed.append(holder)
            if not stage.free or not stage.queue or not self._gathered(stage, now):
                break
            taken = deque(stage.queue.popleft()[0] for _ in range(min(stage.batch, len(stage.queue))))
            took = stage.service[stage.calls % len(stage.service)]
            stage.calls, stage.free = stage.calls + 1, stage.free - 1
            self._event(now + took, _DONE, stage, taken)
        for holder in freed:
            self._release(holder, now)

    def _gathered(self, stage: _Stage, now: int) -> bool:
        """Return whether a call may begin; else have the stage looked at when its first frame has waited enough."""
        if len(stage.queue) >= min(stage.batch, stage.room):
            return True
        until = stage.queue[0][1] + stage.gather_ns
        if until > now and stage.alarm != until:
            stage.alarm = until
            self._event(until, _GATHERED, stage, deque())
        return until <= now

    def _event(self, at: int, kind: int, stage: _Stage, frames: deque[int]) -> None:
        heappush(self.events, (at, next(self.numbers), kind, stage, frames))


if __name__ == "__main__":
    facts.chosen(ages, an_hour, levels, top_level, beside)
