"""From the runs of two sides to PASS, FAIL or INCONCLUSIVE on each limit.

A limit is passed if the whole interval of the loss is within it, failed if none of it is, and else not decided. To pass
as a whole, every limit must be passed, so none needs a wider interval for the others. To fail, one is enough, so of m
limits each fails on an interval of 1 - 0.05/m. Who looks at a run several times spends the 0.05 over the looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from edgescope.analysis.cells import alternation
from edgescope.analysis.cells.objective import Compliance, Constraint
from edgescope.analysis.cells.replicates import (
    MEASURED,
    across,
    by_replicate,
    neighbours,
    paired_values,
    percentiles,
    value_of,
)
from edgescope.records import Absent, Field, Measured, Result, Status
from edgescope.stats import Interval, paired_log_ratio
from edgescope.stats.alternation import pairs_for
from edgescope.wings.gate.limits import Limit

ERROR = 0.05
"""Share of equal candidates that may fail, and of such at the limit that may pass, over all limits and looks."""


class Verdict(str, Enum):
    """What a pipeline may conclude."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Check:
    """One limit or constraint with its figures and what came of it."""

    limit: str
    """As it was written; `outputs` for the gate of right answers."""
    verdict: Verdict
    why: str
    """What decided, or what would decide."""
    baseline: Field | None = None
    candidate: Field | None = None
    ratio: Field | None = None
    """Candidate / baseline with the interval that passed or failed it."""


def together(checks: Sequence[Check]) -> Verdict:
    """Return the verdict over all: one FAIL fails, and only all PASS pass."""
    found = {check.verdict for check in checks}
    if Verdict.FAIL in found:
        return Verdict.FAIL
    return Verdict.PASS if found == {Verdict.PASS} else Verdict.INCONCLUSIVE


def outputs(runs: Sequence[Result]) -> Check:
    """Return whether the candidate's answers were right: the first thing that a gate asks."""
    wrong = next((r for r in runs if r.status is Status.WRONG_OUTPUT), None)
    known = next(
        (r.verification for r in (wrong, *runs) if r is not None and r.verification is not None), None
    )
    if not any(r.status in MEASURED for r in runs) and wrong is None:
        return Check("outputs", Verdict.FAIL, f"it did not run: {runs[0].status.value}, {runs[0].reason}")
    if known is None:
        return Check("outputs", Verdict.INCONCLUSIVE, "its answers were not compared with fp32's")
    return Check("outputs", Verdict.PASS if wrong is None else Verdict.FAIL, known.detail)


def losses(
    limits: Sequence[Limit], baseline: Sequence[Result], candidate: Sequence[Result], look: int = 0
) -> Iterator[Check]:
    """Yield one Check for each limit; `look` counts from 1 the times that these runs are judged, 0 if only once."""
    error, runs = ERROR / 2**look, (by_replicate(baseline), by_replicate(candidate))
    for limit in limits:
        name = _name(limit, runs)
        sides = [_figure(list(side.values()), limit, name) for side in runs]
        missing = next((side for side in sides if isinstance(side, Absent)), None)
        if missing is not None:
            yield Check(limit.text, Verdict.INCONCLUSIVE, f"could not be judged: {missing.reason}", *sides)
            continue
        old, new = (side for side in sides if isinstance(side, Measured))
        turns = alternation.pairs(candidate, baseline) if limit.metric.name in alternation.OF_SPEED else ()
        levels = (1 - error, 1 - error / len(limits))
        passing, failing = (_worse(limit, (old, new), runs, turns, level) for level in levels)
        yield _judged(limit, (old, new), passing, failing)


Runs = tuple[Mapping[int, Result], Mapping[int, Result]]
"""Of the baseline and of the candidate, by replicate."""


def _name(limit: Limit, runs: Runs) -> str:
    """Return the first figure of a Result that answers for the metric on both sides."""
    names = limit.metric.of or (limit.metric.name,)
    both = (n for n in names if all(any(value_of(r, n) is not None for r in side.values()) for side in runs))
    return next(both, names[0])


def _figure(ran: Sequence[Result], limit: Limit, name: str) -> Field:
    """Return one side's figure over its runs."""
    if limit.metric.artifact or limit.metric.measure:
        told = next((r.verification.fields for r in ran if r.verification), {})
        return told.get(limit.metric.name, told.get(name, Absent(f"{limit.metric.title} was not judged")))
    if limit.metric.quantile is not None:
        return percentiles(ran)[limit.metric.name]
    return across(ran, name)


def _worse(
    limit: Limit, sides: tuple[Measured, Measured], runs: Runs, turns: alternation.Paired, level: float
) -> Interval:
    """Return the factor by which the candidate is worse, with an interval of `level` where pairs give one."""
    metric, (before, after) = limit.metric, (side.value for side in sides)
    plain = (before / after if metric.higher else after / before) if before > 0 and after > 0 else math.inf
    if metric.measure or metric.artifact:  # it does not vary from run to run
        return Interval(plain, plain, plain, 1, 1)
    if turns:
        faster = alternation.speedup(turns, level)
        return replace(faster, lo=_over(faster.hi), hi=_over(faster.lo), value=_over(faster.value))
    old, new = neighbours(*runs)
    pairs = paired_values(old, new, _name(limit, runs))
    if pairs[0]:
        return paired_log_ratio(*(pairs if metric.higher else pairs[::-1]), level)
    return Interval(0.0, math.inf, plain, 0, 0, False, "the two sides were not measured together")


def _over(value: float) -> float:
    return 1 / value if value > 0 else math.inf


def _judged(limit: Limit, sides: tuple[Measured, Measured], passing: Interval, failing: Interval) -> Check:
    """Return the Check of one limit, from the interval that passes and the wider one that fails."""
    most = limit.most(sides[0].value)
    if passing.hi <= most:
        verdict, by, why = Verdict.PASS, passing, f"at most {passing.hi:.3f}x worse, {most:.3f}x may be"
    elif failing.lo > most:
        verdict, by, why = Verdict.FAIL, failing, f"at least {failing.lo:.3f}x worse, {most:.3f}x may be"
    else:
        verdict, by, why = Verdict.INCONCLUSIVE, failing, _needed(passing, most)
    return Check(limit.text, verdict, why, *sides, _ratio(by, inverse=limit.metric.higher))


def _ratio(worse: Interval, *, inverse: bool) -> Field:
    """Return candidate / baseline as a field; without an interval where there is none."""
    if not (worse.value > 0 and math.isfinite(worse.value)):
        return Absent("a ratio of a value that is 0 says nothing")
    value, lo, hi = worse.value, worse.lo, worse.hi
    if inverse:
        value, lo, hi = _over(value), _over(hi), _over(lo)
    known = lo > 0 and math.isfinite(hi)
    return Measured(value, "1", lo if known else None, hi if known else None, worse.n)


def _needed(worse: Interval, most: float) -> str:
    """Return what would decide."""
    if not (0 < worse.lo <= worse.hi < math.inf):
        return worse.note or "too few runs: at least three pairs give an interval"
    half, gap = math.log(worse.hi / worse.lo) / 2, abs(math.log(most) - math.log(worse.value))
    more = pairs_for(half, worse.n, gap, math.log(worse.value)) if gap > 0 else None
    if more is None:
        return f"{worse.value:.3f}x worse is too near {most:.3f}x for any number of pairs"
    return f"{max(1, more - worse.n)} more pairs would decide if they go on alike"


def bounds(constraints: Sequence[Constraint], figures: Mapping[str, Field]) -> Iterator[Check]:
    """Yield one Check for each constraint on a side's own figures, judged on the ends of their intervals."""
    words = {
        Compliance.YES: Verdict.PASS,
        Compliance.NO: Verdict.FAIL,
        Compliance.PERHAPS: Verdict.INCONCLUSIVE,
    }
    for constraint in constraints:
        found = figures.get(constraint.metric.name, Absent("not measured"))
        if not constraint.judged(figures) or isinstance(found, Absent):
            yield Check(constraint.text, Verdict.INCONCLUSIVE, constraint.broken(figures), candidate=found)
            continue
        worst, best = _ends(found, at_most=constraint.at_most, exact=constraint.metric.measure)
        kind = (
            words[constraint.check(worst, best)]
            if not constraint.relative
            else _relative(constraint, figures)
        )
        why = constraint.broken(figures) or constraint.kept(figures)
        yield Check(constraint.text, kind, why, candidate=found)


def _ends(found: Measured, *, at_most: bool, exact: bool) -> tuple[float | None, float]:
    """Return the worse and the better end; no worse end where the figure has no interval."""
    if exact:
        return found.value, found.value
    worst, best = (found.hi, found.lo) if at_most else (found.lo, found.hi)
    return worst, found.value if best is None else best


def _relative(constraint: Constraint, figures: Mapping[str, Field]) -> Verdict:
    return Verdict.FAIL if constraint.broken(figures) else Verdict.PASS
