"""The speed-up of two variants that were measured in turns, from their stored turns.

Each side's Result names its partner and holds its turns; the blocks' ratios are formed here, late. A pick's ratio comes
from the pairs that ran after it was chosen, where there are any: those that chose it favour it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgescope import units
from edgescope.analysis.cells.replicates import MEASURED, value_of
from edgescope.metrics import Metric
from edgescope.records import Result, Trial
from edgescope.stats.alternation import (
    Blocks,
    alternation_ratio,
    by_speed,
    counted,
    difference,
)
from edgescope.stats.intervals import Interval
from edgescope.stats.states import LEAST_SHARE

CONFIRMING, SELECTING = "confirming", "selecting"
OF_SPEED = frozenset({"p50_s", "throughput_sps", "speedup"})
"""Metrics that the ratio of two variants in turns speaks for."""


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


def blocks(mine: Result, theirs: Result) -> Blocks:
    """Return the log of how many times faster `mine` was than `theirs`, block by block.

    Latencies are compared; seconds a sample where the two have different batches or queries in flight.
    """
    timed = same_load(mine.trial, theirs.trial)
    ours, base = _times(mine, latency=timed), _times(theirs, latency=timed)
    both = sorted(ours.keys() & base.keys())
    return Blocks.of([base[b] for b in both], [ours[b] for b in both])


def _times(result: Result, *, latency: bool = True) -> dict[int, float]:
    """Return block -> mean log time of its turns, for the blocks in which every turn had a time."""
    found: dict[int, list[float]] = {}
    for turn in result.alternation.turns if result.alternation else ():
        samples = turn.queries * result.trial.batch if turn.time_s > 0 else 0
        each = turn.time_s if latency or not samples else (turn.stop_ns - turn.start_ns) * 1e-9 / samples
        found.setdefault(turn.block, []).append(each)
    return {b: math.fsum(map(math.log, times)) / len(times) for b, times in found.items() if min(times) > 0}


def better(found: Paired, goal: Metric) -> tuple[float, int]:
    """Return the mean log of how many times better the first of each pair is on the objective.

    Beside it stands the number of pairs that it is of: those at full speed, where there are any (-inf, 0 of none).
    """
    if goal.name in OF_SPEED and all(mine.alternation is not None for mine, _ in found):
        logs = [p.mean for p in counted(_blocks(found))]
    else:
        logs = [log for pair in found if (log := _better(*pair, goal)) is not None]
    return (_mean(logs), len(logs)) if logs else (-math.inf, 0)


def _better(mine: Result, theirs: Result, goal: Metric) -> float | None:
    a, b = value_of(mine, goal.of[0]), value_of(theirs, goal.of[0])
    if a is None or b is None or a <= 0 or b <= 0:
        return None
    return math.log(a / b) if goal.higher else math.log(b / a)


def typical_s(result: Result) -> float:
    """Return the geometric mean of its turns' times: of the two sides of a pair, their ratio is the blocks' mean."""
    found = _times(result)
    return math.exp(math.fsum(found.values()) / len(found)) if found else 0.0


@dataclass(frozen=True)
class Slowed:
    """What pairs say of the time in which something slowed the machine."""

    share: float
    """Of the blocks."""
    left_out: int
    """Number of pairs that say nothing of full speed."""
    longer: float
    """How many times as long as at full speed the baseline takes."""
    speedup: float
    """Of the slowed blocks."""


def slowed(found: Paired, among: Paired = ()) -> Slowed | None:
    """Return what pairs say of the blocks in which both sides were slowed; None if those are no more than a burst."""
    parts, every = by_speed(_blocks(found), _blocks(among)), by_speed(_blocks(among or found))
    out, quick = ([b for p in half for b in p.base] for half in (parts.slowed, every.full))
    if len(out) <= LEAST_SHARE * (len(out) + sum(len(p.logs) for p in parts.full)):
        return None
    return Slowed(
        share=len(out) / (len(out) + sum(len(p.logs) for p in parts.full)),
        left_out=len(found) - len(parts.counted),
        longer=math.exp(_mean(out) - _mean(quick)),
        speedup=math.exp(_mean([log for p in parts.slowed for log in p.logs])),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def words(found: Paired, among: Paired = ()) -> str:
    """Return `6 pairs in turns`, or `4 of 6 pairs in turns`: what the ratio is based on."""
    based = len(counted(_blocks(found), _blocks(among)))
    return f"{f'{based} of ' if based < len(found) else ''}{units.counted(len(found), 'pair')} in turns"


def against(a: Paired, b: Paired, level: float = 0.95) -> Interval | None:
    """Return how many times faster the candidate of `a` is than that of `b`; None where too few pairs know it."""
    return difference(_blocks(a), _blocks(b), level)


def speedup(found: Paired, level: float = 0.95, among: Paired = ()) -> Interval:
    """Return how many times faster the first of each pair is than the second, at the machine's full speed.

    n counts the pairs. `among`: other pairs of the two, which show full speed too (stats/alternation.py).
    """
    return alternation_ratio(_blocks(found), level, _blocks(among))


def _blocks(found: Paired) -> list[Blocks]:
    return [blocks(mine, theirs) for mine, theirs in found]
