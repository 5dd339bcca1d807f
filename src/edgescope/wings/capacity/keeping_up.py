"""Whether a machine keeps up with an offered load: the rows that tell, how the wait grows, and what falls behind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.run.lateness import ages, stamped, trend, unserved
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Result

#: A wait that grows by this many seconds per second means a server that is 1 % too slow.
GROWTH = 0.01


def measured_rows(result: Result) -> Queries:
    """Return the rows of the trial's own model that fell due within the window, in that order.

    With several workers, queries that fell due in the window and were done after the stop count here: they are its
    tail.
    """
    assert result.queries is not None and result.window is not None
    w, rows = result.window, result.queries
    if result.workers:
        due, worker = rows.columns["scheduled_ns"], rows.columns["worker"]
        mine = (due >= w.start_ns) & (due < w.stop_ns) & (worker < result.trial.processes)
        rows = _picked(rows, np.flatnonzero(mine)) if mine.any() else rows.rows(w)
    else:
        rows = rows.rows(w)
    return _picked(rows, np.argsort(rows.due_ns(), kind="stable"))


def _picked(rows: Queries, which: NDArray[np.int64]) -> Queries:
    return Queries({name: column[which] for name, column in rows.columns.items()})


def behind(rows: Queries, growing: Field, offered: float, *, may_drop: bool = False) -> list[str]:
    """Return sentences on how the machine falls behind the offered load; none if it keeps up.

    `may_drop` says that a constraint limits how many queries the work's own queue may drop, so dropping is allowed.
    """
    out = []
    if isinstance(growing, Measured) and growing.lo is not None and growing.value >= GROWTH:
        served = offered / (1 + growing.value)  # query k is due at k / offered and issued at k / served
        what = "frame age" if stamped(rows) else "wait"
        grown = f"the {what} grows by {growing.value * 1e3:.3g} ms each second"
        out.append(f"arrivals {offered:.4g}/s > service {served:.4g}/s: {grown}")
    late, dropped = unserved(rows), rows.columns["status"] == QUERY_DROPPED
    if late.any():
        out.append(f"{late.sum()} of {len(rows)} queries still waited when the run had to end")
    if (own := int((dropped & ~late).sum())) and not may_drop:
        out.append(f"{own} of {len(rows)} frames were dropped (--constraint dropped<1% would allow some)")
    return out


def achieved(rows: Queries) -> Field:
    """Return the answered queries per second, from the first due to the last done."""
    c = rows.columns
    ok = c["status"] == QUERY_OK
    if not ok.any():
        return Absent("no query succeeded")
    span_s = float(c["done_ns"][ok].max() - rows.due_ns().min()) * 1e-9
    return Measured(float(ok.sum()) / span_s, "queries/s", n=int(ok.sum()))


def busy(rows: Queries, servers: int) -> Field:
    """Return the share of the servers' time in which they had a query, from issued to done."""
    c = rows.columns
    if not len(rows):
        return Absent("no query was offered")
    done = c["done_ns"]
    due = rows.due_ns()
    span = float(max(done.max(), due.max()) - due.min())
    worked = float((done - c["issued_ns"])[done >= 0].sum())
    return Measured(min(1.0, worked / span / servers), "share", n=len(rows))


def queue_growth(rows: Queries) -> Field:
    """Return the growth of the wait for a server in seconds per second; with an interval if it is not by chance.

    Frames with time stamps may wait within the work (a pipeline's queues), so their age counts in place of the wait.
    """
    if stamped(rows):
        done, age = ages(rows)
        return trend(done - (1e9 * age).astype(np.int64), age)  # over the time of creation
    started = rows.columns["issued_ns"] >= 0  # what still waited at the end was never issued
    due = rows.due_ns()[started]
    wait = rows.columns["issued_ns"][started] - due
    return trend(due, np.multiply(wait, 1e-9))
