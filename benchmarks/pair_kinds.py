"""Does the kind of pair change the speed-up that it gives, or how much pairs differ? Three kinds, alternating.

`forked`: as `optimize` measures from its second pair on, the baseline's process forked, turns of 0.05 s. `started`: the
same turns, both processes started. `long`: both started, turns of 0.1 s for 5 s, as demo_runs.py once judged answers.
The fork server is a new one after every --server rounds. Reported: each kind's speed-up with its interval, its ratio to
the started kind's, round by round, and the standard deviation of the pairs' log ratios: all, and within one server.

    python benchmarks/pair_kinds.py [--rounds 20] [--server 5]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import replace
from typing import Any

from facts import publish
from turn_length import BASELINE, CANDIDATE

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.stats import paired_log_ratio
from edgescope.stats.alternation import Turns, alternation_ratio

KINDS = {
    "forked": {"turn_s": 0.05, "min_s": 0.7, "max_s": 0.7},
    "started": {"turn_s": 0.05, "min_s": 0.7, "max_s": 0.7},
    "long": {"turn_s": 0.1, "min_s": 5.0, "max_s": 5.0},
}


def pair(leader: PersistentChild, kind: str, number: int) -> Turns:
    """Return the turns of one pair of a kind."""
    sides = (replace(trial, **KINDS[kind], replicate=number) for trial in (BASELINE, CANDIDATE))
    first, second = leader.pair(tuple(sides), alternation.CONFIRMING)
    if first.process != ("forked" if kind == "forked" else "fresh"):
        raise SystemExit(f"{kind}: {first.process} {first.reason or second.reason}")
    return alternation.turns(second, first)


def started(kind: str, number: int) -> Turns:
    """Return the turns of a leader's first pair, whose processes are started."""
    with PersistentChild() as leader:
        return pair(leader, kind, number)


def measured(rounds: int, each: int) -> dict[str, list[Turns]]:
    """Return the pairs of every kind, one of each a round, in an order that changes."""
    found: dict[str, list[Turns]] = {kind: [] for kind in KINDS}
    kinds, leader = [*KINDS], PersistentChild()
    for number in range(rounds):
        if number % each == 0:
            leader.close()
            pair(leader, "started", number)  # tells what to import; counts for nothing
        kinds = [*kinds[1:], kinds[0]]
        for kind in kinds:
            found[kind].append(pair(leader, kind, number) if kind == "forked" else started(kind, number))
        told = {kind: f"{math.exp(pairs[-1].ratio):.2f}" for kind, pairs in found.items()}
        print(number, told, file=sys.stderr, flush=True)
    leader.close()
    return found


def figures(found: dict[str, list[Turns]], each: int) -> dict[str, Any]:
    """Return what is published of the pairs."""
    means = {kind: [p.ratio for p in pairs] for kind, pairs in found.items()}
    logs = {kind: [math.exp(mean) for mean in of] for kind, of in means.items()}
    out: dict[str, Any] = {"servers_of": each, "speedups": logs, "kinds": {}}
    for kind, pairs in found.items():
        ratio = alternation_ratio(pairs)
        groups = [means[kind][i : i + each] for i in range(0, len(pairs), each)]
        within = [statistics.variance(group) for group in groups if len(group) > 1]
        row = {"speedup": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi}}
        row |= {"sd": statistics.stdev(means[kind]), "sd_within": math.sqrt(statistics.fmean(within))}
        if kind != "started":
            beside = paired_log_ratio(logs[kind], logs["started"])
            row["over_started"] = {"value": beside.value, "lo": beside.lo, "hi": beside.hi}
        out["kinds"][kind] = row
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--server", type=int, default=5, help="rounds that one fork server serves")
    args = parser.parse_args()
    for trial in (BASELINE, CANDIDATE):
        if failed := fresh.prepare(trial):
            raise SystemExit(str(failed.reason))
    page = figures(measured(args.rounds, args.server), args.server)
    beside = page["kinds"]["forked"]["over_started"]
    publish("pair_kinds", page, met=beside["lo"] <= 1 <= beside["hi"])


if __name__ == "__main__":
    main()
