"""The speed-up of two variants that were measured in turns, from their stored turns.

Each side's Result names its partner and holds its turns; the blocks' ratios are formed here, late. A pick's ratio comes
from the pairs that ran after it was chosen, where there are any: those that chose it favour it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from edgescope import units
from edgescope.analysis.cells.replicates import MEASURED, value_of
from edgescope.metrics import Metric
from edgescope.records import Result, Trial
from edgescope.stats.alternation import Blocks, alternation_ratio, difference
from edgescope.stats.intervals import Interval

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
    return Blocks([base[b] - ours[b] for b in both])


def _times(result: Result, *, latency: bool = True) -> dict[int, float]:
    """Return block -> mean log time of its turns, for the blocks in which every turn had a time."""
    found: dict[int, list[float]] = {}
    for turn in result.alternation.turns if result.alternation else ():
        samples = turn.queries * result.trial.batch if turn.time_s > 0 else 0
        each = turn.time_s if latency or not samples else (turn.stop_ns - turn.start_ns) * 1e-9 / samples
        found.setdefault(turn.block, []).append(each)
    return {b: math.fsum(map(math.log, times)) / len(times) for b, times in found.items() if min(times) > 0}


def better(mine: Result, theirs: Result, goal: Metric) -> float | None:
    """Return the log of how many times better `mine` is on the objective, of one pair; None if it is not known."""
    if mine.alternation is not None and goal.name in OF_SPEED:
        found = blocks(mine, theirs)
        return found.mean if found.logs else None
    a, b = value_of(mine, goal.of[0]), value_of(theirs, goal.of[0])
    if a is None or b is None or a <= 0 or b <= 0:
        return None
    return math.log(a / b) if goal.higher else math.log(b / a)


def typical_s(result: Result) -> float:
    """Return the geometric mean of its turns' times: of the two sides of a pair, their ratio is the blocks' mean."""
    found = _times(result)
    return math.exp(math.fsum(found.values()) / len(found)) if found else 0.0


def words(found: Paired) -> str:
    """Return `6 pairs in turns`: what the ratio is based on."""
    return f"{units.counted(len(found), 'pair')} in turns"


def against(a: Paired, b: Paired, level: float = 0.95) -> Interval | None:
    """Return how many times faster the candidate of `a` is than that of `b`; None where too few pairs know it."""
    return difference([blocks(*pair) for pair in a], [blocks(*pair) for pair in b], level)


def speedup(found: Paired, level: float = 0.95) -> Interval:
    """Return how many times faster the first of each pair is than the second; n counts the pairs."""
    return alternation_ratio([blocks(mine, theirs) for mine, theirs in found], level)
