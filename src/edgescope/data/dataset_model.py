"""A trial's model with the trial's data: its samples come from there, whatever kind of model it is.

Nothing else of the model changes but what the data make known: pictures are prepared as the trial says, and a network
whose training is unknown counts as trained, because whoever gives inputs says that its answers to them mean something.
A network that is known to be untrained stays so. What a report shows of the data is left in the cache: facts, and the
first inputs as the network sees them.
"""

from __future__ import annotations

import base64
import copy
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data import opening, preprocessing, samples
from edgescope.data.base import Found
from edgescope.data.preprocessing import Known, known, ready, searched
from edgescope.data.samples import Wanted, picture_input, sides
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import TRAINED_FRAMES, Model, Purpose, Samples
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Json, ModelInfo, Trial
from edgescope.report import chapter
from edgescope.units import counted
from edgescope.verify.judge import Run

Opener = Callable[[Model], Run]
"""Returns the fp32 network as a function of one batch."""


def with_data(model: Model, trial: Trial, opened: Opener | None = None) -> Model:
    """Return the model with the samples and the preprocessing that a trial names; the model itself for none.

    `opened` runs the fp32 network where only the labels can show how it wants its pictures. The option `calibration`
    names data that set the ranges of int8 in place of a share of the others.
    """
    if not trial.has_data:
        return model
    made, ranges = copy.copy(model), str(trial.options.get("calibration", ""))
    said = known(model, trial)
    if said is not None:
        vars(made)["preprocess"] = said.preprocess
    if trial.data:
        data = _Data(model, trial, said, opened)
        vars(made).update(samples=data.samples, info=data.info)
    if ranges:
        rules = preprocessing.pinned(trial.preprocess, zoo.bare(trial.model), ranges)
        asked = replace(trial, data=ranges, preprocess=rules)
        own, rest = _Data(model, asked, known(model, asked), opened), made.samples
        vars(made)["samples"] = lambda purpose, n: (
            own.samples(None, n) if purpose is Purpose.CALIBRATION else rest(purpose, n)
        )
    return made


def checked(trial: Trial) -> None:
    """Raise UsageError, before anything is built, where a trial's data cannot become its network's inputs.

    What needs the network itself is found later: a callable's inputs before it first ran, and labels that show no way
    of preparing.
    """
    if not trial.data or not zoo.described(trial.model, trial.shapes):
        return
    model, found = zoo.get(trial.model, trial.shapes, trial.batch), opening.read(trial.data)
    spec, said = picture_input(model.inputs), known(model, trial)
    if spec is not None and said is None and samples.pictures(found, model.inputs):
        preprocessing.shown_by_labels(model, found)
        return
    samples.fits(found, Wanted(model.inputs, said.preprocess if said else None))


class _Data:
    """The data of one trial for one model."""

    def __init__(self, model: Model, trial: Trial, said: Known | None, opened: Opener | None) -> None:
        self._model, self._opened = model, opened
        self._name = trial.data if opening.PIN.search(trial.data) else opening.pin(trial.data)
        self._said, self._trial = said, trial

    @property
    def info(self) -> ModelInfo:
        """Return the model's facts, with what its data make known."""
        info = replace(self._model.info, prepared=self._prepared())
        if info.trained or info.task != "unknown":
            return info
        return replace(info, trained=True, source=f"{info.source}; judged on {opening.bare(self._name)}")

    def _prepared(self) -> str:
        """Return how pictures become inputs and who says so, '' where nothing is done to them."""
        way = self._preprocess()
        return f"{self._said.origin}: {way.said}" if way is not None and self._said is not None else ""

    def samples(self, purpose: Purpose | None, n: int) -> Samples | None:
        """Return up to n samples of this purpose (None: of any), always the same ones, from the cache if there."""
        wanted = Wanted(self._model.inputs, self._preprocess())
        place = samples.place(self._name, purpose, n, wanted)
        if not samples.whole(place):
            but = self._judged() if purpose is Purpose.CALIBRATION else ()
            samples.keep(place, samples.made(opening.read(self._name), purpose, n, wanted, but))
        given = samples.kept(place)
        if purpose is Purpose.GATE and given is not None and not shown(self._trial):
            with suppress(UsageError):  # the inputs are in the cache, and where they came from is gone
                leave(self._trial, opening.read(self._name), self._said, given)
        if given is not None and given.unread:
            leave_unread(self._trial, given.unread)
        return given

    def _judged(self) -> tuple[str, ...]:
        gate = self.samples(Purpose.GATE, TRAINED_FRAMES)
        return gate.digests if gate else ()

    def _preprocess(self) -> Preprocess | None:
        """Return how pictures are prepared, or None if the network takes none or the data are its inputs already."""
        spec = picture_input(self._model.inputs)
        if spec is None or (self._said is None and ready(self._name, spec)):
            return None
        if self._said is None:
            self._said = searched(self._model, self._name, self._opened)
        return self._said.preprocess


SHOWN_INPUTS, MOST_PIXELS = 8, 160


def shown(trial: Trial) -> bool:
    """Return whether a report finds the facts and pictures of a trial's data."""
    return chapter.shown_data(trial).exists()


def leave(trial: Trial, found: Found, known: Known | None, given: Samples) -> None:
    """Write the facts and pictures of a trial's data."""
    path = chapter.shown_data(trial)
    cache.made(path.parent)
    cache.write_json(path, {"facts": _facts(trial, found, given), "pictures": _pictures(found, known, given)})


def leave_unread(trial: Trial, names: Sequence[str]) -> None:
    """Add inputs that could not be read to the facts of a trial's data, once these are there."""
    path = chapter.shown_data(trial)
    about: Any = cache.read_json(path) or {}
    known = about.get("unread", [])
    if about and not set(names) <= set(known):
        cache.write_json(path, about | {"unread": sorted({*known, *names})})


def _facts(trial: Trial, found: Found, given: Samples) -> list[list[str]]:
    parts = sides(found)
    labelled = sum(bool(r.truth) for r in (*parts.calibration, *parts.judged))
    total = len(parts.calibration) + len(parts.judged)
    ranges = opening.bare(str(trial.options.get("calibration", len(parts.calibration))))
    left_out = (
        counted(parts.copies, "copy") if parts.copies else "",
        f"{counted(parts.doubtful, 'input')} under two labels" if parts.doubtful else "",
    )
    facts = [
        ["data", f"{opening.bare(trial.data)} ({counted(len(found.records), 'record')})"],
        [
            "inputs",
            f"{total} different ones, {labelled} with labels; {ranges} set the ranges of int8",
        ],
        ["judged on", f"{len(given)}; {given.origin}"],
        ["left out", ", ".join(filter(None, left_out))],
        ["remarks", "; ".join(found.notes)],
    ]
    return [fact for fact in facts if fact[1]]


def _pictures(found: Found, known: Known | None, given: Samples) -> list[Json]:
    """Return the first inputs as PNGs with their labels; [] where they are no pictures."""
    if known is None:
        return []
    arrays = next(iter(given.arrays.values()))
    return [
        {"png": png(seen(np.asarray(array), known.preprocess)), "caption": _caption(found, given, i)}
        for i, array in enumerate(arrays[:SHOWN_INPUTS])
    ]


def _caption(found: Found, given: Samples, i: int) -> str:
    if given.boxes is not None:
        return counted(len(given.boxes[i]), "box")
    if given.labels is None or given.labels.ndim != 1:
        return ""
    number = int(given.labels[i])
    return f"{number} {found.classes[number]}" if 0 <= number < len(found.classes) else str(number)


def seen(array: NDArray[Any], way: Preprocess) -> NDArray[np.uint8]:
    """Return an input as pixels (height, width, channels) again: the normalisation undone, made smaller."""
    plain = array.transpose(1, 2, 0) if array.shape[0] == len(way.mean) else array
    pixels = (plain * np.array(way.std) + np.array(way.mean)) * way.divide
    if way.order == "bgr":
        pixels = pixels[..., ::-1]
    step = -(-max(pixels.shape[:2]) // MOST_PIXELS)
    small: NDArray[np.uint8] = pixels[::step, ::step].round().clip(0, 255).astype(np.uint8)
    return small


def png(pixels: NDArray[np.uint8]) -> str:
    """Return pixels (height, width, 1 or 3) as a data URI of a PNG."""
    high, wide, channels = pixels.shape
    lines = b"".join(b"\0" + np.ascontiguousarray(line).tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", wide, high, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
