"""One unit is a batch of video frames through a pipeline: decode, preprocess, infer, postprocess, and stages of yours.

With one unit in flight the stages follow one another; with several, each runs in threads of its own and works on
another unit. Frames of a file are decoded while the pipeline is measured, and each comes through exactly once. A film
that plays in place of cameras is paced by the scenario: `--scenario fixed_rate --rate 120` with `cameras=8` is eight
cameras of 15 frames a second, whose frames fall due in turn.

Each network passes the accuracy gate. What the pipeline finds in the first frames must also be what a plain loop over
them finds (one frame after another, each step done the simple way), and their numbers must follow one another, so that
a frame that is lost, doubled or out of order shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgescope.backends.base import spec_of
from edgescope.errors import Message
from edgescope.frames import Item
from edgescope.models.base import Detections
from edgescope.options import Option
from edgescope.records import (
    QUERY_OK,
    UNIT,
    Absent,
    Field,
    GateOutcome,
    Json,
    Machine,
    Measured,
    Queries,
    Spans,
    Trial,
    Verification,
    Window,
)
from edgescope.stats import Interval
from edgescope.stats.shares import clustered_share
from edgescope.verify.measures import overlap
from edgescope.wings.video import annotated, what_if
from edgescope.wings.video.flow import BRIEF_NS, Calls, Done, EndOfFilm, Flow, Ledger, Sequential, Stage
from edgescope.wings.video.pipeline import (
    FILM,
    OPTIONS,
    Pipeline,
    class_names,
    planned,
    preprocess_of,
    supported,
    widened,
)
from edgescope.workloads import gate
from edgescope.workloads.base import EndOfInput, OpenWorkload, Parts
from edgescope.workloads.inference import Loaded, loaded, sample_output

#: Extra units after the window with a timer around each stage; frames whose results are compared with a plain loop's.
TIMED, CHECKED = 20, 32
#: Where that would take longer than this, so many frames are compared.
CHECKED_S, FEWEST = 4.0, 8
#: Share of the plain loop's detections that the pipeline must find: resampling in another place moves weak boxes.
SAME = 0.9
#: Seconds that each variant of the pipeline runs in each round of what_if; overlapped, many units are under way.
WHAT_IF_S, OVERLAPPED_S = 0.15, 0.4
#: Pictures with boxes for a page, and the frames, or seconds, of the film that they are taken from.
SAMPLES, SAMPLED, SAMPLED_S = 3, 120, 3.0

#: Whole arrays at once, on the host (frames come in the network's size) or on the device.
HOST = {"decode": "scaled", "preprocess": "host", "postprocess": "host"}
DEVICE = {"preprocess": "device", "postprocess": "device"}


class Video:
    """Runs the frames of a film or a camera through the stages of a pipeline."""

    OPTIONS: ClassVar[Mapping[str, Option]] = OPTIONS
    CANDIDATES: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]] = {
        "cpu": (
            {"workload_options": HOST},
            {"in_flight": 4, "workload_options": HOST},
            {"in_flight": 6, "workload_options": {**HOST, "infer_threads": 2}},
        ),
        "cuda": (
            {"io": "device", "workload_options": DEVICE},
            {"io": "device", "batch": 8, "in_flight": 4, "workload_options": DEVICE},
            {
                "io": "device",
                "batch": 32,
                "in_flight": 12,
                "workload_options": {**DEVICE, "infer_threads": 3, "postprocess_threads": 2},
            },
        ),
    }

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Build each network's artifact and its reference; read the first frame of the film."""
        plan = planned(trial, parts)
        supported(plan)
        for one in plan.trials:
            model = parts.model(one)
            if one.model != plan.trials[-1].model or not plan.options["head"]:
                preprocess_of(model)
            parts.backend(one.backend).prepare(model, spec_of(one), parts.folder)
            gate.prepare(model, parts, one.metric, one.batch)
        source = plan.source()
        try:
            source.read()
        finally:
            source.close()

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Hold the decoders and every network open; run one unit through all of it before anything is timed."""
        plan = planned(trial, parts)
        supported(plan)
        with ExitStack() as stack:
            models = [parts.model(one) for one in plan.trials]
            ready = [
                stack.enter_context(loaded(one, model, parts.backend(one.backend), parts))
                for one, model in zip(plan.trials, models, strict=True)
            ]
            widened(
                plan, ready
            )  # before a decoder runs: while a CUDA graph is captured, no other thread may allocate
            pipeline = Pipeline(plan, models, ready)
            stack.callback(pipeline.close)
            flow = pipeline.flow(pipeline.stages())
            stack.callback(flow.close)
            flow.ledger = Ledger()
            about = _described(pipeline)

            def verify(machine: Machine) -> GateOutcome | None:
                about.update(_annotated(pipeline))
                return _verified(trial, pipeline, parts, machine)

            yield OpenWorkload(
                work=Fed(flow, plan.options["cameras"]),
                model=models[0].info,
                effective=ready[0].session.effective,
                verify=verify,
                facts=_facts(ready),
                artifact=about,
                failure=lambda: flow.counts.first_error,
                breakdown=lambda: _breakdown(pipeline),
                metrics=lambda rows, window: _metrics(flow, pipeline, rows, window),
                sample_output=lambda: sample_output(models[0], trial.batch, ready[0].answer),
            )


class Fed:
    """The load generator's view of a flow."""

    def __init__(self, flow: Flow, streams: int) -> None:
        """`streams`: cameras that take turns, unit after unit."""
        self.flow, self.streams = flow, streams

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start (or do) one unit; EndOfInput if no frame is left."""
        try:
            self.flow.issue(query_id, samples, done)
        except EndOfFilm:
            raise EndOfInput from None

    def flush(self) -> None:
        """Return at once: the scenario waits for its slots."""


def _facts(ready: Sequence[Loaded]) -> dict[str, Field]:
    """Return the build, load and first-answer times, each summed over all networks."""
    found: dict[str, Field] = {}
    for name, first in ready[0].facts.items():
        known = [fact for made in ready if isinstance(fact := made.facts[name], Measured)]
        whole = Measured(sum(fact.value for fact in known), "s", n=len(known))
        found[name] = whole if len(known) == len(ready) else first
    return found


def _described(pipeline: Pipeline) -> dict[str, Json]:
    """Return the artifact of the first network, the source's facts, and the stages as data."""
    unit = pipeline.plan.unit
    about: dict[str, Json] = {
        "source": str(pipeline.plan.options["source"]).partition("#")[0] or FILM[1],
        "film": dict(pipeline.decode.sources[0].facts()),
        "stages": [
            {
                "name": s.name,
                "place": s.place,
                "threads": s.threads,
                "batch": pipeline.plan.batch(s.name) or unit,
            }
            for s in pipeline.stages(pipeline.decode)
        ],
        "also": [{"model": m.info.name, **r.about} for _, m, r in pipeline.every[1:]],
    }
    return {**pipeline.ready[0].about, **about}


def _annotated(pipeline: Pipeline) -> dict[str, Json]:
    """Write the frames with their boxes, if the trial asks for them; return what was written, and samples for a page.

    Samples come with `what_if`. A full disk costs the pictures, not the measurement.
    """
    options, names = pipeline.plan.options, class_names(pipeline.models[0])
    about: dict[str, Json] = {}
    if options["what_if"] and not pipeline.decode.sources[0].live:
        with pipeline.again(loop=False, size=None) as decode:
            flow = Sequential(pipeline.stages(decode))
            about["samples"] = annotated.thumbnails(
                annotated.pictures(flow, names, SAMPLED, SAMPLED_S), SAMPLES
            )
    if options["annotate"]:
        with pipeline.again(loop=False, size=None) as decode:
            flow, path = Sequential(pipeline.stages(decode)), Path(str(options["annotate"]))
            fps = float(decode.sources[0].facts().get("fps") or 25)
            shown = annotated.pictures(flow, names, int(options["annotate_frames"]))
            try:
                about["annotated"] = {"path": str(path), "frames": annotated.write(path, shown, fps)}
            except OSError as error:
                about["annotated"] = {"absent": f"{path}: {error}"}
    return about


def _metrics(flow: Flow, pipeline: Pipeline, rows: Queries, window: Window) -> dict[str, Field]:
    right = rows.columns["samples"][rows.columns["status"] == QUERY_OK]
    assert flow.ledger is not None  # since it was opened
    dropped, skipped = flow.ledger.lost(window.start_ns, window.stop_ns)
    read = int(right.sum()) + dropped + skipped
    found: dict[str, Field] = {
        "frames": Measured(float(right.sum()), "frames", n=len(right)),
        "frames_dropped": Measured(float(dropped), "frames", n=read),
        "frames_skipped": Measured(float(skipped), "frames", n=read),
    }
    for number, stage in enumerate(flow.stages):
        found |= _spent(stage.name, flow.ledger.calls(number, window.start_ns, window.stop_ns))
    found |= {f"{s.name}_device_s": Absent(_no_device(s)) for s in flow.stages if s.device_ns is None}
    if pipeline.plan.options["what_if"]:
        found |= _what_if(pipeline)
    return found


def _spent(name: str, calls: Calls) -> dict[str, Field]:
    """Return the mean time of a unit in a stage, and the part of it on a CPU."""
    if not calls.units:
        return {}
    busy, cpu = (
        Measured(ns * 1e-9 / calls.units, "s", n=calls.units) for ns in (calls.busy_ns, calls.cpu_ns)
    )
    return {f"{name}_busy_s": busy, f"{name}_cpu_s": cpu if calls.cpu_ns else UNREAD}


UNREAD = Absent(f"no call of the stage is longer than {BRIEF_NS // 1000} us, so its CPU time is not read")


def _no_device(stage: Stage) -> str:
    if stage.place == "cpu":
        return "unsupported: the stage runs on the CPU, where its time is the host's"
    return "unsupported: the stage puts no events of the device around its work"


def _what_if(pipeline: Pipeline) -> dict[str, Field]:
    """Return, for each stage, the gain if it were free and its own ceiling, and the pipeline's rate beside them."""
    with pipeline.again(loop=True) as decode:
        made = pipeline.stages(decode)
        in_flight = pipeline.plan.trial.in_flight
        seconds = WHAT_IF_S if in_flight == 1 else OVERLAPPED_S
        found = what_if.measured(made, pipeline.lossless, in_flight, seconds)
    fields: dict[str, Field] = {"pipeline_fps": Measured(found.fps, "frames/s", n=what_if.ROUNDS)}
    for stage in found.stages:
        fields[f"{stage.name}_free_gain"] = stage.gain.measured("ratio")
        fields[f"{stage.name}_alone_fps"] = replace(
            stage.ceiling.measured("frames/s", found.fps), value=stage.alone_fps
        )
    return fields


def _breakdown(pipeline: Pipeline) -> Spans:
    """Return the stages of a few units that go through one by one, each waited for, and the device's part of each."""
    rows: list[tuple[str, int, int, int]] = []
    device: list[tuple[str, int, int, int]] = []
    with pipeline.again(loop=True) as decode:
        for number, marks, on_device in what_if.timed(pipeline.stages(decode), TIMED + 1):
            if number:  # the first opens the film
                rows.append((UNIT, number, marks[0][1], marks[-1][2]))
                rows += [(name, number, start, end) for name, start, end in marks]
                device += [(f"{name}_device", number, start, end) for name, start, end in on_device]
    return Spans.joined([Spans.of("stage", rows), Spans.of("phase", device)])


def _verified(trial: Trial, pipeline: Pipeline, parts: Parts, machine: Machine) -> GateOutcome | None:
    """Return the gate's verdict on the worst network, or why one cannot be judged.

    It is a failed one if the pipeline finds other things than a plain loop.
    """
    judged = [
        found
        for one, model, made in pipeline.every
        if (found := gate.check(one, model, made.answer, made.about, machine=machine, parts=parts))
        is not None
    ]
    if not judged:
        return None
    unjudged = next((found for found in judged if isinstance(found, Message)), None)
    checks = [found for found in judged if isinstance(found, Verification)]
    worst = next((check for check in checks if not check.passed), unjudged or checks[0])
    if isinstance(worst, Message) or not worst.passed:
        return worst
    if why := _unchecked(pipeline):
        return replace(worst, fields={**worst.fields, "frame_agreement": Absent(why)})
    with pipeline.again(loop=False) as decode:
        flow = pipeline.lossless(pipeline.stages(decode))
        got, units = _by_frame(flow, trial.in_flight, _enough(trial.batch))
    with pipeline.again(loop=False, size=None) as decode:
        plain = Sequential(pipeline.plain(decode))
        wanted, _ = _by_frame(plain, 1, lambda number: number < units)
    common = [key for key in wanted if key in got]
    same = matched_share([got[key] for key in common], [wanted[key] for key in common])
    skips = pipeline.plan.options["on_error"] == "skip"
    strange = sorted(set(got) - set(wanted) if skips else set(got) ^ set(wanted))
    fields = {**worst.fields, "frame_agreement": same.measured("1")}
    lost = f", and {len(strange)} frames came through once only, the first {strange[0]}" if strange else ""
    detail = f"{same.value:.1%} of what a plain loop finds in {len(common)} frames is found{lost}"
    if why := plain.counts.first_error:
        detail = f"a plain loop over the frames fails: {why}"
    passed = not strange and not why and same.value >= SAME
    return replace(worst, passed=passed, detail=f"{detail}; {worst.detail}", fields=fields)


def _unchecked(pipeline: Pipeline) -> str:
    """Return why the pipeline cannot be held to a plain loop, or ''."""
    if pipeline.decode.sources[0].live:
        return "a live source cannot be played again"
    built_in = [row.name for row in pipeline.plan.stages if not row.call]
    return (
        "" if {"postprocess", "alarm"} & set(built_in) else "no stage of edgescope's says what is in a frame"
    )


def _enough(batch: int) -> Callable[[int], bool]:
    """Return whether another unit is to be checked: up to CHECKED frames, fewer where a unit takes long."""
    end = time.monotonic() + CHECKED_S
    return lambda number: number * batch < (CHECKED if time.monotonic() < end else FEWEST)


def _by_frame(
    flow: Flow, in_flight: int, more: Callable[[int], bool]
) -> tuple[dict[tuple[int, int], Detections], int]:
    """Return what a flow finds in the frames of its first units, by camera and frame number, and how many units."""
    found: dict[tuple[int, int], Detections] = {}
    issued = 0

    def seen(item: Item) -> None:
        for frame, each in zip(item.frames, item.found, strict=False):
            found[frame.camera, frame.index] = each

    def goes_on(number: int) -> bool:
        nonlocal issued
        issued = number
        return more(number)

    flow.seen = seen
    with what_if.running(flow):
        what_if.driven(flow, in_flight, goes_on)
    return found, issued


IOU = 0.5
"""Least intersection over union of two boxes that count as the same."""


def matched_share(ours: Sequence[Detections], theirs: Sequence[Detections], *, iou: float = IOU) -> Interval:
    """Return the share of boxes that both have, of all boxes of either, over frames; a frame without any counts as 1.

    Its interval takes the boxes of a frame together. Raises ValueError if the two have different numbers of frames.
    """
    hits: list[int] = []
    frames: list[int] = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        both = 2 * _matched(a, b, iou)
        rows = [1] * both + [0] * (len(a) + len(b) - both) or [1]
        hits += rows
        frames += [number] * len(rows)
    return clustered_share(hits, frames)


def _matched(ours: Detections, theirs: Detections, iou: float) -> int:
    """Return how many boxes of one class lie on each other; the pairs that overlap most are matched first."""
    shared = overlap(ours.boxes, theirs.boxes)
    shared[ours.classes[:, None] != theirs.classes[None]] = -1.0
    count = 0
    while shared.size and shared.max() >= iou:
        i, j = np.unravel_index(shared.argmax(), shared.shape)
        shared[i], shared[:, j] = -1.0, -1.0
        count += 1
    return count
