"""Find whether an open loop kept up: the offered load, the achieved load, and the queue between the two.

If more queries fall due than are done, the queue grows without end: latency then measures the length of the run, and
there is no steady state that a percentile could describe.

The second half gives the figures of a machine under load: queries answered, utilisation, growth of the wait.

All of it comes from the raw rows of an open loop: when each query was due, issued and done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import Message
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Result, Window
from edgescope.stats import drift
from edgescope.stats.intervals import Floats

GROWTH_MATTERS = 0.02
"""If this share of the offered queries stays in the queue for good, the load has fallen behind."""
NAMES = ("offered_rate_qps", "achieved_rate_qps", "backlog_queries", "backlog_growth_qps")


@dataclass(frozen=True)
class Backlog:
    """The four metrics by name, and whether the queue grew for good."""

    fields: dict[str, Field]
    behind: bool


def backlog(rows: Queries, window: Window) -> Backlog:
    """Return the backlog of an open loop's window over all workers together; rates in queries/s."""
    c = rows.columns
    due = np.sort(c["scheduled_ns"])
    n, length_s = len(due), (window.stop_ns - window.start_ns) * 1e-9
    span_s = float(due[-1] - due[0]) * 1e-9 if n else 0.0
    if span_s <= 0 or length_s <= 0:
        return Backlog(dict.fromkeys(NAMES, Absent("every query fell due at one moment")), behind=False)
    offered = float(np.count_nonzero(due < due[-1])) / span_s
    ok = int(np.count_nonzero(c["status"] == QUERY_OK))
    waiting = in_system(rows)
    found = drift(waiting)
    growth: Field = Absent(f"n/a: have {found.n_blocks} blocks, need 8")
    if np.isfinite(found.lo):
        per_s = float(waiting.mean()) / span_s
        growth = Measured(found.share * per_s, "queries/s", found.lo * per_s, found.hi * per_s, n)
    grows = isinstance(growth, Measured) and growth.value >= GROWTH_MATTERS * offered and found.significant
    fields: dict[str, Field] = {
        "offered_rate_qps": Measured(offered, "queries/s", n=n),
        "achieved_rate_qps": Measured(ok / length_s, "queries/s", n=ok),
        "backlog_queries": Measured(float(waiting[-1]), "queries", n=n),
        "backlog_growth_qps": growth,
    }
    return Backlog(fields, behind=grows or bool(np.any(c["status"] == QUERY_DROPPED)))


def in_system(rows: Queries) -> Floats:
    """Return, for each query in order of due time, how many earlier queries were waiting or in progress."""
    c = rows.columns
    done = np.sort(np.where(c["done_ns"] >= 0, c["done_ns"], np.iinfo(np.int64).max))
    gone = np.searchsorted(done, np.sort(c["scheduled_ns"]), side="right")
    return np.asarray(np.arange(len(done)) - gone, dtype=np.float64)


def warning(found: Backlog) -> Message:
    """Return the warning about a load that fell behind."""
    offered, achieved, waiting = (found.fields[name] for name in NAMES[:3])
    assert isinstance(offered, Measured) and isinstance(achieved, Measured) and isinstance(waiting, Measured)
    return Message(
        "W-LOAD-1",
        f"{offered.value:.4g} queries/s were offered and {achieved.value:.4g} done",
        evidence=f"{waiting.value:.0f} were waiting or in progress when the last one fell due",
        effect="Latency grows with the length of the run and has no steady state:"
        " the percentiles describe this run only",
        fix=f"{achieved.value / offered.value:.0%} of this load or less, or more --in-flight",
    )


#: A wait that grows by this many seconds per second means a server that is 1 % too slow.
GROWTH = 0.01
#: Queries that a slope needs.
FEW = 20


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
    return _picked(rows, np.argsort(_due(rows), kind="stable"))


def _picked(rows: Queries, which: NDArray[np.int64]) -> Queries:
    return Queries({name: column[which] for name, column in rows.columns.items()})


def behind(rows: Queries, growing: Field, offered: float) -> list[str]:
    """Return a sentence on how the machine falls behind the offered load, or '' if it keeps up."""
    out = []
    if isinstance(growing, Measured) and growing.lo is not None and growing.value >= GROWTH:
        served = offered / (1 + growing.value)  # query k is due at k / offered and issued at k / served
        grown = f"the wait grows by {growing.value * 1e3:.3g} ms each second"
        out.append(f"arrivals {offered:.4g}/s > service {served:.4g}/s: {grown}")
    dropped = int((rows.columns["status"] == QUERY_DROPPED).sum())
    if dropped:
        out.append(f"{dropped} of {len(rows)} queries still waited when the run had to end")
    return out


def achieved(rows: Queries) -> Field:
    """Return the answered queries per second, from the first due to the last done."""
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
    """Return the growth of the wait for a server in seconds per second; with an interval if it is not by chance."""
    issued = rows.columns["issued_ns"]
    started = issued >= 0  # dropped queries were never issued
    if int(started.sum()) < FEW:
        return Absent(f"n/a: have {int(started.sum())}, need {FEW}")
    due = _due(rows)[started]
    wait = (issued[started] - due) * 1e-9
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
