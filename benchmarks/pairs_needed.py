"""How many pairs bound a demo's speed-up within 5 %, by how much of the time a neighbour slows the machine.

It measures nothing. The long runs of demo_runs.py, hours of one machine, are cut into every stretch of so many pairs
that follow each other, and each stretch gets edgescope's own interval. Ninety seconds have NOW pairs; IDEAL is what
they would have if loading, warming up and checking took no time (`seconds`). The turns without a break of busy_hour.py
are cut likewise. Stretches overlap, so their number is not that of independent runs. `reach` is the share of slowed
turns up to which nine stretches of ten are within 5 %. `runs` are those of the newest pages, by what each says of
its own turns, with today's UNSEEN.

    python benchmarks/pairs_needed.py
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from alternation import TRACES, XEON, half_with, longest, published, turns_of
from facts import publish

from edgescope.stats.alternation import Turns, alternation_ratio, by_speed, mean_ratio

PAGES = (*TRACES.values(), *XEON)
PRESENT = PAGES[-2:]
"""Pages whose runs count, too."""
WAS = XEON[PRESENT[0]]
UNBROKEN = "busy_hour"
NOW, IDEAL = 10, 18
COUNTS = (NOW, 12, IDEAL, 30)
SHARES = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
WITHIN, ENOUGH = 0.05, 0.9
SLOWED = re.compile(r"W-PAIR-3: something slowed the machine in (\d+)% of the turns")


@dataclass(frozen=True)
class Stretch:
    """What so many pairs in a row say: the share of slowed turns, the half-width, and whether it holds the hour's."""

    slowed: float
    half: float
    held: bool


def stretches(pairs: Sequence[Turns], count: int) -> list[Stretch]:
    """Return every stretch of `count` pairs; turns are slowed, and held is told, as all the pairs say."""
    full = mean_ratio([pair.ratio for pair in by_speed(pairs).counted]).value
    whole = mean_ratio([pair.mixed_ratio for pair in pairs]).value
    found = []
    for start in range(len(pairs) - count + 1):
        some = pairs[start : start + count]
        said = alternation_ratio(some)
        truth = full if by_speed(some).at_full_speed else whole
        half = max(said.hi / said.value - 1, 1 - said.lo / said.value)
        found.append(Stretch(by_speed(some, pairs).slowed_share, half, said.lo <= truth <= said.hi))
    return found


def told(found: Sequence[Stretch]) -> dict[str, Any]:
    """Return how many stretches are within 5 % and hold the hour's ratio."""
    return {
        "stretches": len(found),
        "narrow": sum(each.half <= WITHIN for each in found) / len(found),
        "held": sum(each.held for each in found) / len(found),
    }


def hour(pairs: Sequence[Turns]) -> dict[str, Any]:
    """Return what stretches of each length say in one hour."""
    by_count = {str(n): told(stretches(pairs, n)) for n in COUNTS if n <= len(pairs)}
    return {"pairs": len(pairs), "slowed": by_speed(pairs).slowed_share, "by_pairs": by_count}


def by_share(hours: Sequence[Sequence[Turns]], count: int) -> dict[str, Any]:
    """Return what stretches of `count` pairs say, by their share of slowed turns, and how far that is enough."""
    found = [each for pairs in hours for each in stretches(pairs, count)]
    shares, reach, goes_on = {}, 0.0, True
    for low, high in pairwise(SHARES):
        inside = [each for each in found if low <= each.slowed < high or each.slowed == high == SHARES[-1]]
        if inside:
            shares[f"{low:g} to {high:g}"] = told(inside)
            goes_on = goes_on and shares[f"{low:g} to {high:g}"]["narrow"] >= ENOUGH
            reach = high if goes_on else reach
    return {"shares": shares, "reach": reach}


def slowed_of(run: dict[str, Any]) -> float:
    """Return the share of turns that a run of demo_runs.py says was slowed; 0 if it names none, a burst at most."""
    said = [found for note in run["notes"] if (found := SLOWED.search(note))]
    return int(said[0][1]) / 100 if said else 0.0


def runs_by_share(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs are within 5 %, by their own share of slowed turns."""
    found = {}
    for low, high in pairwise(SHARES):
        inside = [run for run in runs if low <= slowed_of(run) < high or slowed_of(run) == high == SHARES[-1]]
        said = [run["speedup"] for run in inside if "lo" in run.get("speedup", {})]
        narrow = sum(math.expm1(half_with(each, WAS)) <= WITHIN for each in said)
        found[f"{low:g} to {high:g}"] = {"runs": len(inside), "narrow": narrow}
    return found


def pieces(pair: Turns, length: int) -> list[Turns]:
    """Return a long pair's turns in pieces of `length`."""
    ends = range(length, len(pair) + 1, length)
    return [Turns(pair.sides[end - length : end], pair.logs[end - length : end]) for end in ends]


def usual(pairs: Sequence[Turns]) -> int:
    """Return how many turns a usual pair has, in whole blocks of four."""
    lengths = sorted(map(len, pairs))
    return lengths[len(lengths) // 2] // 4 * 4


def main() -> None:
    runs = {name: longest(published(name)) for name in PAGES}
    hours = {name: turns_of(run) for name, run in runs.items()}
    busy = published(UNBROKEN)
    length = usual(hours[PAGES[-1]])
    shares = {str(n): by_share(list(hours.values()), n) for n in COUNTS}
    figures = {
        "hours": {name: hour(pairs) for name, pairs in hours.items()},
        "by_share": shares,
        "runs": runs_by_share([run for name in PRESENT for run in published(name)["runs"]]),
        "unbroken": hour([piece for pair in turns_of(busy) for piece in pieces(pair, length)]),
        "seconds": {
            "pair": statistics.median(b - a for a, b in pairwise(runs[PAGES[-1]]["began_s"])),
            "turns": length * busy["turn_s"],
        },
    }
    publish("pairs_needed", figures, met=math.isclose(shares[str(NOW)]["reach"], 1.0))


if __name__ == "__main__":
    main()
