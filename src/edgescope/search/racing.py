"""Drop the finalists of an optimisation that were clearly behind in every round so far.

The final rounds are interleaved, so run i of two variants saw the same machine. A finalist leaves if it was behind
the leader in every round by more than fresh processes of one program may differ: by 10 % each time after two
rounds, by 3 % each time and 5 % in the mean from three on. A disturbed round must show three times as much. Close
finalists stay to the end, so ties are still found.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.replicates import by_replicate, value_of
from edgescope.records import Result, Trust

#: (least, mean) share by which a variant must be behind, after two rounds and from three on.
BEHIND = ((0.10, 0.10), (0.03, 0.05))
#: In a disturbed round the difference must be this many times larger.
PATIENCE = 3.0
DISTURBED = (Trust.DISTURBED, Trust.THROTTLED)


def trailing(results: Sequence[Result], wanted: Wanted) -> set[str]:
    """Return the variants that are clearly behind the best one that keeps the constraints in the final rounds."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(variants.variant(result.trial), []).append(result)
    runs = {name: by_replicate(group) for name, group in groups.items()}
    broken = {r.cell for r in variants.table(results, wanted=wanted).rows if r.rejected}
    able = {n for n, found in runs.items() if found and next(iter(found.values())).trial.cell not in broken}
    costs = {name: _costs(runs[name], wanted) for name in runs}
    leading = min((n for n in able if costs[n]), key=lambda n: _mean(costs[n]), default=None)
    if leading is None:
        return set()
    return {n for n in costs if n != leading and _behind(runs, costs, n, leading)}


def _costs(runs: Mapping[int, Result], wanted: Wanted) -> dict[int, float]:
    """Return replicate number -> log of the objective, negated if higher is better."""
    values = {i: value_of(r, wanted.goal.of[0]) for i, r in runs.items()}
    sign = -1.0 if wanted.goal.higher else 1.0
    return {i: sign * math.log(v) for i, v in values.items() if v is not None and v > 0}


def _mean(costs: Mapping[int, float]) -> float:
    return statistics.fmean(costs.values())


def _behind(
    runs: Mapping[str, Mapping[int, Result]],
    costs: Mapping[str, Mapping[int, float]],
    name: str,
    leading: str,
) -> bool:
    shared = sorted(costs[name].keys() & costs[leading].keys())
    if len(shared) < 2:
        return False
    least, mean = BEHIND[min(len(shared) - 2, 1)]
    gaps = []
    for i in shared:
        disturbed = any(runs[n][i].verdict.trust in DISTURBED for n in (name, leading))
        gaps.append((costs[name][i] - costs[leading][i]) / (PATIENCE if disturbed else 1.0))
    return min(gaps) > math.log1p(least) and statistics.fmean(gaps) > math.log1p(mean)
