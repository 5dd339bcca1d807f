"""A trial's model with the trial's data: its samples come from there, whatever kind of model it is.

Nothing else of the model changes but what the data make known: pictures are prepared as the trial says, and a network
whose training is unknown counts as trained, because whoever gives inputs says that its answers to them mean something.
A network that is known to be untrained stays so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from edgescope.data import opening, preprocessing, samples, thumbnails
from edgescope.data.fitting import picture_input
from edgescope.data.preprocessing import Known, known, ready, searched
from edgescope.data.samples import Wanted
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.base import TRAINED_FRAMES, Model, Purpose, Samples
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import ModelInfo, Trial
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
        if purpose is Purpose.GATE and given is not None and not thumbnails.there(self._trial):
            with suppress(UsageError):  # the inputs are in the cache, and where they came from is gone
                thumbnails.leave(self._trial, opening.read(self._name), self._said, given)
        if given is not None and given.unread:
            thumbnails.leave_unread(self._trial, given.unread)
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
