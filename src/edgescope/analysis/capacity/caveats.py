"""What is to be held against a capacity answer: the machine as it was, a client that fares worse than the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.capacity.answer import Capacity
from edgescope.analysis.capacity.slo_check import Point, shown
from edgescope.analysis.run.backlog import measured_rows
from edgescope.errors import message
from edgescope.records import Queries, Trust
from edgescope.stats import percentile


def doubts(found: Capacity) -> tuple[str, ...]:
    """Return the warnings that belong to the run an answer rests on."""
    rests_on = found.confirmed or found.above
    if rests_on is None or not rests_on.held:
        return ()
    unequal = _unequal(found.confirmed) if found.confirmed else ""
    return tuple(text for text in (_untrusted(rests_on), unequal) if text)


def _untrusted(point: Point) -> str:
    verdict = point.result.verdict
    if verdict.trust is Trust.CLEAN:
        return ""
    what = f"the run that the answer rests on is {verdict.trust.value}"
    effect = "The answer is that of this machine as it was then"
    fix = "the same command with --fresh on a quiet machine"
    return message("W-CAP-3", what, evidence="; ".join(verdict.evidence[:2]), effect=effect, fix=fix)


def _unequal(point: Point) -> str:
    """Say which promise a client with a process of its own does not get, though all of them together do; or ''."""
    if point.result.trial.processes == 1:
        return ""
    rows = measured_rows(point.result)
    for slo in (h.slo for h in point.held if h.slo.quantile is not None):
        q = slo.quantile or 0.0
        each = [_of(rows, n) for n in range(point.result.trial.processes)]
        worst = max((percentile(x, q) for x in each if len(x) * (1 - q) >= 1), default=0.0)
        if not slo.kept_by(worst):
            return message(
                "W-CAP-4",
                f"the worst client's own {slo.name} is {shown(worst, 's')}",
                evidence=f"promised {shown(slo.limit, 's')}, which all clients together get",
                effect="The promise does not hold for each of them",
                fix="--sharing pinned, or --serve one",
            )
    return ""


def _of(rows: Queries, worker: int) -> NDArray[np.float64]:
    """Return the latencies (s) of one worker's queries."""
    mine = rows.columns["worker"] == worker
    own = Queries({name: column[mine] for name, column in rows.columns.items()})
    return np.asarray(own.latency_ns(), dtype=np.float64) * 1e-9
