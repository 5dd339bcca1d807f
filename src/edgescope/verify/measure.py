"""Which measure of right answers applies to a model and its labels, and what it says of a variant beside fp32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgescope.errors import ModelError, UsageError
from edgescope.models.base import Decoder, Decodes, Fit, Model, Samples
from edgescope.records import Absent, Field, Measured
from edgescope.records.lazy import NDArray, np
from edgescope.stats.shares import clustered_share, drawn_difference, share_difference
from edgescope.verify.measures import BoxAgreement, Found, MeanAp, MeanIou, Own, TopK
from edgescope.verify.metric_names import decoded_by, function, named

Tally = tuple[NDArray[Any], ...]
DRAWING_S = 20.0
"""The longest that an interval's sets are drawn for: a user's function may take its time."""
JUDGED = 0.05
"""The score from which boxes are judged: precision over recall needs those below the detector's own threshold."""
SCORE = "score"
"""Unit of a measure that is no share: it is printed as it is, where a share is printed in per cent."""


class Measure(Protocol):
    """How right answers are, over any of the labelled inputs it was made with; more is better."""

    @property
    def name(self) -> str:
        """Its word in --metric, in a constraint and in a result: top1, miou."""

    @property
    def title(self) -> str:
        """What people call it: top-1, mIoU."""

    @property
    def share(self) -> bool | None:
        """Whether it is a share, printed in per cent; None: if its values look like one."""

    @property
    def chance(self) -> float:
        """The value that shows nothing: if fp32 does not exceed it, the labels are of no use."""

    @property
    def others(self) -> Sequence[Measure]:
        """Measures of the same tally that are told beside this one."""

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return what is kept of these inputs, one row each; ValueError, with the reason, if it does not apply."""

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these inputs (some may be given twice)."""


def measure_of(model: Model, labelled: Samples | None, metric: str = "") -> Measure | None:
    """Return the measure that `metric` names; for '' the one that task and labels call for, or None if none does.

    UsageError if what it needs of the inputs is not there.
    """
    if metric == "agreement" or (labelled is None and not metric):
        return _agreement(model)
    if reader := decoded_by(metric):
        if labelled is None or labelled.boxes is None:
            raise lacking("map", f"{model.info.name}: its inputs have no boxes")
        return MeanAp(labelled.boxes, _read_by(reader))
    known = _fitting(model, labelled)
    if not metric:
        return next(iter(known.values()), None)
    if metric in known:
        return known[metric]
    if metric in LACKED:
        raise lacking(metric, f"{model.info.name}: {LACKED[metric]}")
    truth = None if labelled is None else labelled.labels if labelled.boxes is None else labelled.boxes
    return Own(function(metric), truth, named(metric))


LACKED = {
    **dict.fromkeys(("top1", "top5"), "its inputs have no class numbers"),
    "miou": "its inputs have no class maps",
    "map": "its inputs have no boxes, or it does not say how its outputs are read as boxes (--metric"
    " map@module:callable names what reads them)",
}


def lacking(metric: str, why: str) -> UsageError:
    """Return the UsageError for a measure that does not apply to these inputs and outputs."""
    return UsageError(
        "E-MEAS-5",
        f"--metric {metric} cannot be computed",
        evidence=why,
        effect="Nothing would say whether a variant is still right",
        fix="--metric agreement, or inputs whose labels it can read",
    )


def _fitting(model: Model, labelled: Samples | None) -> dict[str, Measure]:
    """Return the measures whose labels are there, by name, the usual one first."""
    if labelled is None:
        return {}
    if labelled.boxes is not None and isinstance(model, Decodes) and any(len(b) for b in labelled.boxes):
        return {"map": MeanAp(labelled.boxes, _boxes_of(model.decoder))}
    if labelled.labels is None:
        return {}
    if labelled.labels.ndim == 3:
        return {"miou": MeanIou(labelled.labels)}
    return {f"top{k}": TopK(labelled.labels, k) for k in (1, 5)}


def _agreement(model: Model) -> BoxAgreement | None:
    """Return the measure by which boxes agree with those of fp32; None unless the model is a trained detector."""
    if not isinstance(model, Decodes) or not model.info.trained:
        return None
    return BoxAgreement(_boxes_of(model.decoder), model.decoder.score)


def _boxes_of(decoder: Decoder) -> Callable[[Sequence[NDArray[Any]]], Sequence[Found]]:
    """Return the function from outputs to each image's boxes in pixels of the input, uncertain ones included."""
    lenient = decoder.at(min(JUDGED, decoder.score))

    def boxes(outputs: Sequence[NDArray[Any]]) -> list[Found]:
        found = lenient.host(outputs, [Fit()] * len(outputs[0]))
        return [(image.boxes, image.scores, image.classes) for image in found]

    return boxes


def _read_by(reader: Callable[..., Any]) -> Callable[[Sequence[NDArray[Any]]], Sequence[Found]]:
    """Return a user's function with its answer checked; ValueError if it raises or gives no boxes for each image."""

    def boxes(outputs: Sequence[NDArray[Any]]) -> list[Found]:
        try:
            found = list(reader(outputs[0] if len(outputs) == 1 else tuple(outputs)))
            images = [tuple(np.asarray(part) for part in image) for image in found]
        except Exception as error:  # a user's function may raise anything
            raise ValueError(f"{type(error).__name__}: {error}"[:300]) from error
        if len(images) != len(outputs[0]):
            raise ValueError(f"it returned {len(images)} entries for {len(outputs[0])} images")
        for image in images:
            shapes = [part.shape for part in image]
            if len(image) != 3 or shapes != [(len(image[1]), 4), (len(image[1]),), (len(image[1]),)]:
                raise ValueError(
                    f"for each image it must return boxes (k, 4), scores (k,), classes (k,), not {shapes}"
                )
        return [(image[0], image[1], image[2]) for image in images]

    return boxes


def agreed(
    measure: BoxAgreement, ours: Tally, theirs: Tally, groups: NDArray[np.int64] | None
) -> Measured | Absent:
    """Return how well boxes agree with those of fp32 on the same images, with its interval over drawn images."""
    truth, n = measure.against(theirs), len(ours[0])
    if not any(len(boxes) for boxes in truth.boxes):
        return Absent(f"fp32 finds no box above {measure.score:g} in {n} images")
    kept = truth.tally(ours, slice(None))
    interval = drawn_difference(lambda rows: truth.value(kept, rows), n, groups, most_s=DRAWING_S)
    return interval.measured("1")


@dataclass(frozen=True)
class Compared:
    """What a measure says of a variant and of fp32 on the same inputs, and of their difference, with its interval."""

    measure: Measure
    ours: Measured
    theirs: Measured
    difference: Measured

    @property
    def telling(self) -> bool:
        """Whether fp32 itself is better than chance, so that the labels can show what a variant loses."""
        end = self.theirs.value if self.theirs.lo is None else self.theirs.lo
        return end > self.measure.chance

    def fields(self) -> dict[str, Field]:
        """Return the figures by their names in metrics.toml."""
        name = self.measure.name
        return {} if ":" in name else {name: self.ours, f"reference_{name}": self.theirs}

    def sentence(self, floor: float) -> str:
        """Return `top-1 91.2 % (fp32 91.8 %; difference -0.6 points, 95 % CI -1.9 to 0.7; floor -0.9)`."""
        share = self.ours.unit != SCORE
        unit, points = (" %", " points") if share else ("", "")
        ours, theirs = (_number(f.value, share) for f in (self.ours, self.theirs))
        apart = self.difference
        between = "no interval"
        if apart.lo is not None and apart.hi is not None:
            between = f"95 % CI {_number(apart.lo, share)} to {_number(apart.hi, share)}"
        return (
            f"{self.measure.title} {ours}{unit} (fp32 {theirs}{unit}; difference {_number(apart.value, share)}{points},"
            f" {between}; floor {_number(floor, share)})"
        )


def _number(value: float, share: bool) -> str:
    text = f"{100 * value:.1f}" if share else f"{value:.4g}"
    return text.removeprefix("-") if float(text) == 0 else text


def compared(
    measure: Measure, ours: Tally, theirs: Tally, groups: NDArray[np.int64] | None, *, drawn: bool = True
) -> Compared:
    """Return what `measure` says of two tallies of the same inputs; ModelError if a user's function gives no number.

    Sets are drawn for the interval unless `drawn` is False.
    """
    n = len(ours[0])
    every = np.arange(n)
    a, b = (called(measure, tally, every) for tally in (ours, theirs))
    share = all(0 <= value <= 1 for value in (a, b)) if measure.share is None else measure.share
    unit = "1" if share else SCORE
    if isinstance(measure, TopK):
        hits = measure.right(ours), measure.right(theirs)
        one, other = (clustered_share(x, groups).measured("1") for x in hits)
        return Compared(measure, one, other, share_difference(*hits, groups).measured("1"))
    apart = Measured(a - b, unit, n=n)
    if drawn:
        sets = drawn_difference(lambda rows: _apart(measure, ours, theirs, rows), n, groups, most_s=DRAWING_S)
        apart = sets.measured(unit)
    return Compared(measure, Measured(a, unit, n=n), Measured(b, unit, n=n), apart)


def _apart(measure: Measure, ours: Tally, theirs: Tally, rows: NDArray[np.intp]) -> float:
    """Return the difference over a drawn set; NaN where a user's function cannot answer for it."""
    try:
        return measure.value(ours, rows) - measure.value(theirs, rows)
    except Exception:  # such as a set without one of two classes; over all inputs it has answered
        return math.nan


def called(measure: Measure, tally: Tally, rows: NDArray[np.intp]) -> float:
    """Return the measure over these inputs; ModelError if it raises, or returns NaN or no number."""
    try:
        found, why = measure.value(tally, rows), "it returned NaN or infinity"
    except Exception as error:  # a user's function may raise anything
        found, why = math.nan, f"{type(error).__name__}: {error}"[:300]
    if math.isfinite(found):
        return found
    raise ModelError(
        "E-MEAS-6",
        f"the measure {measure.title} gives no number for {len(rows)} inputs",
        evidence=why,
        effect="No variant can be judged by it",
        fix="--metric agreement, or mend it: metric(outputs, labels) returns one number, or one for each input",
    )


def absent(why: str) -> dict[str, Field]:
    """Return the figures of labelled inputs where there are none, with the reason."""
    return dict.fromkeys(("accuracy", "reference_accuracy", "accuracy_difference"), Absent(why))
