"""The speed-up of two variants that were measured in turns, from their stored turns.

Each side's Result names its partner and holds its turns; their ratio is formed here, late. A pick's ratio comes
from the pairs that ran after it was chosen, where there are any: those that chose it favour it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from edgescope import units
from edgescope.analysis.cells.replicates import MEASURED, value_of
from edgescope.metrics import Metric
from edgescope.records import Measured, Result, Trial
from edgescope.stats.alternation import (
    BASE,
    OURS,
    Turns,
    alternation_ratio,
    by_speed,
    difference,
    pairs_for,
)
from edgescope.stats.intervals import Interval
from edgescope.stats.pairs import MIN_PAIRS, SAME_WITHIN
from edgescope.stats.sequential import LEAST_SHARE

CONFIRMING, SELECTING = "confirming", "selecting"
OF_SPEED = frozenset({"p50_s", "throughput_sps", "speedup"})
"""Metrics that the ratio of two variants in turns speaks for."""
NARROW = 0.05
"""An interval that reaches no further than this share to either side is narrow enough to act on."""


Paired = Sequence[tuple[Result, Result]]


def pairs(over: Iterable[Result], under: Iterable[Result]) -> list[tuple[Result, Result]]:
    """Return (candidate, baseline) of every finished pair of these results, in the order of their time."""
    partners = {r.id: r for r in under if r.alternation is not None and r.status in MEASURED}
    found = []
    for mine in sorted(over, key=lambda r: r.started_at):
        taken = mine.alternation
        if taken is not None and taken.partner in partners and mine.status in MEASURED:
            found.append((mine, partners[taken.partner]))
    return found


def decisive(found: Paired) -> list[tuple[Result, Result]]:
    """Return the pairs that ran after the candidate was chosen; all of them where none did."""
    return [p for p in found if confirms(p[0])] or list(found)


def confirms(result: Result) -> bool:
    """Return whether a Result was measured in turns after its variant was chosen."""
    return result.alternation is not None and result.alternation.purpose == CONFIRMING


def same_load(mine: Trial, theirs: Trial) -> bool:
    """Return whether two trials have as many samples under way, so that the ratio of latencies is that of speeds."""
    return (mine.batch, mine.in_flight) == (theirs.batch, theirs.in_flight)


def turns(mine: Result, theirs: Result) -> Turns:
    """Return the turns of the blocks in which every turn has a time; `theirs` are the baseline's.

    Latencies are compared; seconds a sample where the two have different batches or queries in flight.
    """
    timed = same_load(mine.trial, theirs.trial)
    base, ours = _times(theirs, latency=timed), _times(mine, latency=timed)
    both = base.keys() & ours.keys()
    taken = [
        (start_ns, side, log)
        for side, blocks in ((BASE, base), (OURS, ours))
        for block in both
        for start_ns, log in blocks[block]
    ]
    taken.sort()
    return Turns([side for _, side, _ in taken], [log for _, _, log in taken])


def _times(result: Result, *, latency: bool = True) -> dict[int, list[tuple[int, float]]]:
    """Return block -> start and log time of its turns, for the blocks in which every turn had a time."""
    found: dict[int, list[tuple[int, float]]] = {}
    for turn in result.alternation.turns if result.alternation else ():
        samples = turn.queries * result.trial.batch if turn.time_s > 0 else 0
        each = turn.time_s if latency or not samples else (turn.stop_ns - turn.start_ns) * 1e-9 / samples
        found.setdefault(turn.block, []).append((turn.start_ns, math.log(each) if each > 0 else -math.inf))
    return {b: times for b, times in found.items() if min(log for _, log in times) > -math.inf}


def better(found: Paired, goal: Metric) -> tuple[float, int]:
    """Return the mean log of how many times better the first of each pair is on the objective.

    Beside it stands the number of pairs that it is of: those at full speed, where there are any (-inf, 0 of none).
    """
    if goal.name in OF_SPEED and all(mine.alternation is not None for mine, _ in found):
        of = by_speed(_turns(found))
        logs = [p.ratio for p in of.counted] or of.logs
    else:
        logs = [log for pair in found if (log := _better(*pair, goal)) is not None]
    return (statistics.fmean(logs), len(logs)) if logs else (-math.inf, 0)


def _better(mine: Result, theirs: Result, goal: Metric) -> float | None:
    a, b = value_of(mine, goal.of[0]), value_of(theirs, goal.of[0])
    if a is None or b is None or a <= 0 or b <= 0:
        return None
    return math.log(a / b) if goal.higher else math.log(b / a)


def typical_s(result: Result) -> float:
    """Return the median of its turns' times."""
    found = [log for times in _times(result).values() for _, log in times]
    return math.exp(statistics.median(found)) if found else 0.0


@dataclass(frozen=True)
class Slowed:
    """What pairs say of the time in which something slowed the machine."""

    share: float
    """Of the turns."""
    whole: bool
    """Whether that was so often that all pairs make the ratio, with their slowed turns."""
    longer: float
    """How many times as long as at full speed the baseline takes."""
    speedup: float
    """Of the slowed turns."""


@dataclass(frozen=True)
class Further:
    """The pairs that a narrow interval needs beside those that there are."""

    pairs: int
    seconds: float


def slowed(found: Paired, among: Paired = ()) -> Slowed | None:
    """Return what pairs say of the turns in which both sides were slowed; None if those are no more than a burst."""
    parts, every = by_speed(_turns(found), _turns(among)), by_speed(_turns(among or found))
    if parts.slowed_share <= LEAST_SHARE:
        return None
    base, ours, quick = (
        statistics.fmean([log for p in of for log in p.of(side)])
        for of, side in ((parts.slowed, BASE), (parts.slowed, OURS), (every.full, BASE))
    )
    return Slowed(
        share=parts.slowed_share,
        whole=not parts.at_full_speed,
        longer=math.exp(base - quick),
        speedup=math.exp(base - ours),
    )


def words(found: Paired, among: Paired = ()) -> str:
    """Return `6 pairs in turns`, or `4 of 6 pairs in turns`: what the ratio is based on."""
    based = len(by_speed(_turns(found), _turns(among)).basis)
    return f"{f'{based} of ' if based < len(found) else ''}{units.counted(len(found), 'pair')} in turns"


def further(found: Paired, said: Measured) -> Further | None:
    """Return what would bound the ratio within NARROW, if further pairs are like these; None where these do.

    None, too, where no number of pairs does.
    """
    half = math.log(said.hi / said.lo) / 2 if said.lo and said.hi else 0.0
    if half <= math.log1p(NARROW) or not found:
        return None
    share, needed = len(found) / said.n, pairs_for(half, said.n, math.log1p(NARROW), math.log(said.value))
    if needed is None:
        return None
    more = math.ceil((needed - said.n) * share)
    return Further(more, more * (pair_s(found) or 0.0))


def pair_s(found: Paired) -> float | None:
    """Return the seconds from the beginning of one pair to that of the next, in the median; None of fewer than two."""
    begun = [datetime.fromisoformat(mine.started_at) for mine, _ in found]
    return statistics.median((b - a).total_seconds() for a, b in pairwise(begun)) if len(begun) > 1 else None


def deciding(ratio: Interval) -> int | None:
    """Return how many further pairs like these would decide which of two is better, or that they are alike.

    None where no number does, or too little is known of how pairs differ.
    """
    if ratio.n < MIN_PAIRS:
        return MIN_PAIRS - ratio.n
    if not (0 < ratio.lo <= ratio.hi < math.inf):
        return None
    gap, half = abs(math.log(ratio.value)), math.log(ratio.hi / ratio.lo) / 2
    needed = pairs_for(half, ratio.n, max(gap, math.log1p(SAME_WITHIN) - gap), gap)
    return None if needed is None else max(1, needed - ratio.n)


def against(a: Paired, b: Paired, level: float = 0.95) -> Interval | None:
    """Return how many times faster the candidate of `a` is than that of `b`; None where too few pairs know it."""
    return difference(_turns(a), _turns(b), level)


def speedup(found: Paired, level: float = 0.95, among: Paired = ()) -> Interval:
    """Return how many times faster the first of each pair is than the second, at the machine's full speed.

    n counts the pairs. `among`: other pairs of the two, which show full speed too (stats/alternation.py).
    """
    return alternation_ratio(_turns(found), level, _turns(among))


def _turns(found: Paired) -> list[Turns]:
    return [turns(mine, theirs) for mine, theirs in found]
