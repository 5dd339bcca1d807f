"""The speed-up of two variants that were measured in turns, from their stored turns.

Each side's Result names its partner and holds its turns; the blocks' ratios are formed here, late. A pick's ratio comes
from the pairs that ran after it was chosen, where there are any: those that chose it favour it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from edgescope.analysis.cells.replicates import MEASURED
from edgescope.records import Result
from edgescope.stats.alternation import Blocks, alternation_ratio
from edgescope.stats.intervals import Interval

CONFIRMING, SELECTING = "confirming", "selecting"


def pairs(over: Iterable[Result], under: Iterable[Result]) -> list[tuple[Result, Result]]:
    """Return (candidate, baseline) of every finished pair of these results, in the order of their time."""
    partners = {r.id: r for r in under if r.alternation is not None and r.status in MEASURED}
    found = []
    for mine in sorted(over, key=lambda r: r.started_at):
        taken = mine.alternation
        if taken is not None and taken.partner in partners and mine.status in MEASURED:
            found.append((mine, partners[taken.partner]))
    return found


def decisive(found: Sequence[tuple[Result, Result]]) -> list[tuple[Result, Result]]:
    """Return the pairs that ran after the candidate was chosen; all of them where none did."""
    after = [p for p in found if p[0].alternation is not None and p[0].alternation.purpose == CONFIRMING]
    return after or list(found)


def blocks(mine: Result, theirs: Result) -> Blocks:
    """Return the log of how many times faster `mine` was than `theirs`, block by block."""
    ours, base = _times(mine), _times(theirs)
    both = sorted(ours.keys() & base.keys())
    return Blocks([base[b] - ours[b] for b in both])


def _times(result: Result) -> dict[int, float]:
    """Return block -> mean log time of its turns, for the blocks in which every turn had a time."""
    found: dict[int, list[float]] = {}
    for turn in result.alternation.turns if result.alternation else ():
        found.setdefault(turn.block, []).append(turn.time_s)
    return {
        b: math.fsum(map(math.log, times)) / len(times) for b, times in found.items() if min(times) > 0
    }


def speedup(found: Sequence[tuple[Result, Result]], level: float = 0.95) -> Interval:
    """Return how many times faster the first of each pair is than the second; n counts the pairs."""
    return alternation_ratio([blocks(mine, theirs) for mine, theirs in found], level)
