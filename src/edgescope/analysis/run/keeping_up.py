"""Whether a machine keeps up with what is offered: what was answered, how busy it was, whether the wait grows.

All of it from the raw rows of an open loop: when each query was due, when it was begun, when it was done.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Result
from edgescope.stats import drift

#: A wait that grows by this many seconds a second is that of a server 1 % too slow.
GROWTH = 0.01
#: Queries that a slope needs.
FEW = 20


def measured_rows(result: Result) -> Queries:
    """Return the rows of the trial's own model that fell due within the window, in the order in which they did.

    A crew counts as done what was done by its stop; what fell due before it and came later is part of a tail.
    """
    assert result.queries is not None and result.window is not None
    w, rows = result.window, result.queries
    if result.workers:
        due, worker = rows.columns["scheduled_ns"], rows.columns["worker"]
        mine = (due >= w.start_ns) & (due < w.stop_ns) & (worker < result.trial.processes)
        rows = _picked(rows, np.flatnonzero(mine)) if mine.any() else rows.rows(w)
    else:
        rows = rows.rows(w)
    return _picked(rows, np.argsort(_due(rows), kind="stable"))


def _picked(rows: Queries, which: NDArray[np.int64]) -> Queries:
    return Queries({name: column[which] for name, column in rows.columns.items()})


def behind(rows: Queries, growing: Field, offered: float) -> list[str]:
    """Return in words how the machine falls behind what is offered; empty where it keeps up."""
    out = []
    if isinstance(growing, Measured) and growing.lo is not None and growing.value >= GROWTH:
        served = offered / (1 + growing.value)  # query k is due at k / offered and begun at k / served
        grown = f"the wait grows by {growing.value * 1e3:.3g} ms each second"
        out.append(f"arrivals {offered:.4g}/s > service {served:.4g}/s: {grown}")
    dropped = int((rows.columns["status"] == QUERY_DROPPED).sum())
    if dropped:
        out.append(f"{dropped} of {len(rows)} queries still waited when the run had to end")
    return out


def achieved(rows: Queries) -> Field:
    """Return answered queries per second, from the first that was due to the last that was done."""
    c = rows.columns
    ok = c["status"] == QUERY_OK
    if not ok.any():
        return Absent("no query succeeded")
    span_s = float(c["done_ns"][ok].max() - _due(rows).min()) * 1e-9
    return Measured(float(ok.sum()) / span_s, "queries/s", n=int(ok.sum()))


def busy(rows: Queries, servers: int) -> Field:
    """Return the share of the servers' time in which they had a query, from issued to done."""
    c = rows.columns
    if not len(rows):
        return Absent("no query was offered")
    done = c["done_ns"]
    span = float(max(done.max(), _due(rows).max()) - _due(rows).min())
    worked = float((done - c["issued_ns"])[done >= 0].sum())
    return Measured(min(1.0, worked / span / servers), "share", n=len(rows))


def growth(rows: Queries) -> Field:
    """Return by how many seconds a second the wait for a server grows; with an interval where it is no chance."""
    issued = rows.columns["issued_ns"]
    begun = issued >= 0  # those that were dropped never were
    if int(begun.sum()) < FEW:
        return Absent(f"n/a: have {int(begun.sum())}, need {FEW}")
    due = _due(rows)[begun]
    wait = (issued[begun] - due) * 1e-9
    at = (due - due[0]) * 1e-9
    if at[-1] <= 0:
        return Absent("all queries were due at once")
    slope = float(np.polyfit(at, wait, 1)[0])
    found = drift(wait)
    sure = found.significant and np.isfinite(found.lo)
    mean = float(wait.mean()) / float(at[-1])
    return Measured(
        slope, "1", found.lo * mean if sure else None, found.hi * mean if sure else None, len(wait)
    )


def _due(rows: Queries) -> NDArray[np.int64]:
    c = rows.columns
    return np.asarray(np.where(c["scheduled_ns"] >= 0, c["scheduled_ns"], c["issued_ns"]), dtype=np.int64)
