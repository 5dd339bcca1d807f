"""Whether a remedy did what was predicted: the gain over pairs of fresh runs, beside the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgescope import units
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.finding import CLOSE, Bound, Remedy
from edgescope.records import Absent, Field, Measured, Result
from edgescope.stats.pairs import paired_log_ratio
from edgescope.wings.explain.interventions import FASTER

SLACK = FASTER - 1
"""A bound holds if the gain is not beyond it by more than this share: less counts as no change at all."""


@dataclass(frozen=True)
class Check:
    """A remedy that was run, its predicted gain, and the gain that was measured."""

    remedy: Remedy | None
    predicted: Field
    realised: Field
    """Throughput with the remedy over that without it; pairs of fresh processes, 95 % interval."""

    @property
    def holds(self) -> bool | None:
        """Return whether the gain is close to the prediction, or keeps its bound; None if either is not known."""
        if not isinstance(self.predicted, Measured) or not isinstance(self.realised, Measured):
            return None
        share = self.predicted.value / self.realised.value
        bound = self.remedy.bound if self.remedy is not None else Bound.NONE
        if bound is Bound.LEAST:
            return share <= 1 + SLACK
        if bound is Bound.MOST:
            return share >= 1 / (1 + SLACK)
        return abs(share - 1) <= CLOSE

    @property
    def words(self) -> str:
        """Return the gain beside its prediction in one sentence."""
        if isinstance(self.realised, Absent):
            return f"nothing was checked: {self.realised.reason}"
        text = f"the gain is {units.ratio(self.realised)}"
        if isinstance(self.predicted, Absent) or self.remedy is None:
            return f"{text}; none was predicted"
        verdict = "as predicted" if self.holds else "not as predicted"
        return f"{text}, {verdict} ({self.remedy.promise})"


def checked(remedy: Remedy, pairs: Sequence[tuple[Result, Result]]) -> Check:
    """Return the gain of a remedy over (without, with) pairs of runs; absent if a run failed."""
    for pair in pairs:
        for result in pair:
            if result.status not in MEASURED:
                why = f"{result.trial.label} ended with {result.status.value}: {result.reason}"
                return Check(remedy, remedy.gain, Absent(why))
    before, after = ([_rate(pair[side]) for pair in pairs] for side in (0, 1))
    if not pairs or min(*before, *after) <= 0:
        return Check(remedy, remedy.gain, Absent("a run has no throughput"))
    return Check(remedy, remedy.gain, paired_log_ratio(after, before).measured("ratio"))


def _rate(result: Result) -> float:
    """Return the samples per second of a run; 0 if it has none."""
    found = result.metrics.get("throughput_sps")
    return found.value if isinstance(found, Measured) else 0.0
