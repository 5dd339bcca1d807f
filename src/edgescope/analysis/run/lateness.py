"""How late work comes: how old results are, which miss their deadline, and the queue that an open loop builds.

A frame ages from its own time stamp (`source_ns`) until its results are there. Work without time stamps has no frames:
the age of a query is then its latency from the time it was due. Rows are taken in the order in which results came. A
result is late if it comes more than the deadline after that; a query that was dropped or failed has no result, so it
missed its deadline. Misses come in bursts, so a share of n queries is worth fewer independent ones: its interval is
Wilson's, of the effective number of queries that `stats.bursty_share` finds.

If more queries of an open loop fall due than are done, the queue grows without end: latency then measures the length of
the run, and no percentile describes a steady state. All of it comes from the raw rows: when each query was due, issued
and done. A queue within the work (a pipeline's) may drop queries; such a row says when. One without a time still waited
at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import Message
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Window
from edgescope.stats import bursty_share, drift, mean_interval
from edgescope.stats.intervals import Floats

NAMES = ("frame_age_p50_s", "frame_age_p99_s", "frame_age_p99_bound_s", "frame_age_growth", "jitter_s")
#: Results that a slope needs.
FEW = 20
UNSTAMPED = Absent(
    "unsupported: inputs carry no time stamps; the latency runs from the due time and is the age of a result"
)


def stamped(rows: Queries) -> bool:
    """Return whether the results of these rows say when their inputs were created."""
    c = rows.columns
    ok = c["status"] == QUERY_OK
    return bool(ok.any() and (c["source_ns"][ok] >= 0).all())


def origin_ns(rows: Queries) -> NDArray[np.int64]:
    """Return when each row's input was created, or fell due if that is not known; -1 if neither is."""
    c = rows.columns
    return np.asarray(np.where(c["source_ns"] >= 0, c["source_ns"], c["scheduled_ns"]), dtype=np.int64)


def ages(rows: Queries) -> tuple[NDArray[np.int64], Floats]:
    """Return (when each result came in ns, its age in seconds), in the order of the results."""
    c, origin = rows.columns, origin_ns(rows)
    known = (c["status"] == QUERY_OK) & (origin >= 0)
    done, born = c["done_ns"][known], origin[known]
    order = np.argsort(done, kind="stable")
    return done[order], np.multiply((done - born)[order], 1e-9)


def age_growth(rows: Queries) -> Field:
    """Return by how many seconds results get older in each second; with an interval if it is not by chance."""
    return trend(*ages(rows))


def trend(at_ns: NDArray[np.int64], y_s: Floats) -> Field:
    """Return the least-squares slope of y over time in s/s; with an interval if it is significant (1 %)."""
    if len(at_ns) < FEW:
        return Absent(f"n/a: have {len(at_ns)}, need {FEW}")
    at_s = np.multiply(at_ns - at_ns[0], 1e-9)
    if at_s[-1] <= 0:
        return Absent("all of them were at one moment")
    slope = float(np.polyfit(at_s, y_s, 1)[0])
    found = drift(y_s)
    sure = found.significant and np.isfinite(found.lo)
    mean = float(y_s.mean()) / float(at_s[-1]) * (1 - 1 / len(y_s))  # n values span n - 1 gaps
    lo, hi = (found.lo * mean, found.hi * mean) if sure else (None, None)
    return Measured(slope, "1", lo, hi, len(y_s))


def jitter(rows: Queries) -> Field:
    """Return the interarrival jitter in seconds: the mean change of the age from one result to the next.

    RFC 3550 (6.4.1) calls this change D and averages |D| with a running weight of 1/16; here all count alike. Each
    worker and each camera is a stream of its own.
    """
    c, origin = rows.columns, origin_ns(rows)
    known = np.flatnonzero((c["status"] == QUERY_OK) & (origin >= 0))
    stream = c["worker"][known].astype(np.int64) << 16 | c["stream"][known].astype(np.int64)
    order = np.lexsort((c["done_ns"][known], stream))
    age, stream = (c["done_ns"] - origin)[known][order], stream[order]
    changes = np.abs(np.diff(age))[np.diff(stream) == 0] * 1e-9
    if len(changes) < 2:
        return Absent(f"n/a: have {len(changes)}, need 2")
    return mean_interval(changes).measured("s")


MISSES = ("deadline_miss_ratio", "deadline_overrun_worst_s", "deadline_miss_burst")
NO_DUE_TIME = Absent(
    "no deadline applies: a query of a closed loop is not due at a time, and has no time stamp"
)


def misses(rows: Queries, deadline_s: float) -> dict[str, Field]:
    """Return the figures of MISSES for a deadline in seconds."""
    c, late = rows.columns, overruns_s(rows, deadline_s)
    done = c["status"] == QUERY_OK
    if not len(rows) or (origin_ns(rows)[done] < 0).any():
        return dict.fromkeys(MISSES, NO_DUE_TIME if len(rows) else Absent("no query was offered"))
    missed = ~done | (late > 0)
    return {
        "deadline_miss_ratio": bursty_share(missed, late).measured("share"),
        "deadline_overrun_worst_s": _worst_overrun(late[done & missed], missed),
        "deadline_miss_burst": Measured(float(longest_burst(rows, missed)), "queries", n=len(rows)),
    }


def overruns_s(rows: Queries, deadline_s: float) -> Floats:
    """Return how long after its deadline each result came (negative: before it); without a result, beyond the worst."""
    c = rows.columns
    done = c["status"] == QUERY_OK
    late = np.asarray((c["done_ns"] - origin_ns(rows)) * 1e-9 - deadline_s, dtype=np.float64)
    late[~done] = max(0.0, float(late[done].max(initial=0.0))) + deadline_s
    return late


def _worst_overrun(late: Floats, missed: NDArray[np.bool_]) -> Field:
    if len(late):
        return Measured(float(late.max()), "s", n=len(late))
    return Absent(
        "every query that missed it had no result" if missed.any() else "no query missed its deadline"
    )


def longest_burst(rows: Queries, missed: NDArray[np.bool_]) -> int:
    """Return the most consecutive misses of one worker's stream, in the order of the rows."""
    c, longest = rows.columns, 0
    stream = c["worker"].astype(np.int64) << 16 | c["stream"].astype(np.int64)
    for one in np.unique(stream):
        hits = missed[stream == one]
        ends = np.flatnonzero(np.concatenate(([True], ~hits, [True])))
        longest = max(longest, int(np.diff(ends).max()) - 1)
    return longest


def dropped_share(rows: Queries) -> Field:
    """Return the share of queries that were dropped: by the work's own queue, or because the run had to end."""
    if not len(rows):
        return Absent("no query was offered")
    return bursty_share(rows.columns["status"] == QUERY_DROPPED).measured("share")


GROWTH_MATTERS = 0.02
"""If this share of the offered queries stays in the queue for good, the load has fallen behind."""
BACKLOG = ("offered_rate_qps", "achieved_rate_qps", "backlog_queries", "backlog_growth_qps")


@dataclass(frozen=True)
class Backlog:
    """The four metrics by name, whether the queue grew for good, and how much older each result was."""

    fields: dict[str, Field]
    behind: bool
    ageing: Field
    """Growth of the age of the results in s/s."""
    stamped: bool
    """Whether that is the age of frames with time stamps, rather than the latency."""


def backlog(rows: Queries, window: Window) -> Backlog:
    """Return the backlog of an open loop's window over all workers together; rates in queries/s."""
    c = rows.columns
    due = np.sort(c["scheduled_ns"])
    n, length_s = len(due), (window.stop_ns - window.start_ns) * 1e-9
    span_s = float(due[-1] - due[0]) * 1e-9 if n else 0.0
    if span_s <= 0 or length_s <= 0:
        at_once = Absent("every query fell due at one moment")
        return Backlog(dict.fromkeys(BACKLOG, at_once), False, at_once, False)
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
    behind = grows or bool(np.any(unserved(rows)))
    return Backlog(fields, behind, age_growth(rows), stamped(rows))


def unserved(rows: Queries) -> NDArray[np.bool_]:
    """Return the mask of rows that still waited when the run had to end; what a work's own queue dropped is not."""
    c = rows.columns
    return np.asarray((c["status"] == QUERY_DROPPED) & (c["done_ns"] < 0), dtype=np.bool_)


def in_system(rows: Queries) -> Floats:
    """Return, for each query in order of due time, how many earlier queries were waiting or in progress."""
    c = rows.columns
    done = np.sort(np.where(c["done_ns"] >= 0, c["done_ns"], np.iinfo(np.int64).max))
    gone = np.searchsorted(done, np.sort(c["scheduled_ns"]), side="right")
    return np.asarray(np.arange(len(done)) - gone, dtype=np.float64)


def warning(found: Backlog, *, may_drop: bool = False) -> Message:
    """Return the warning about a load that fell behind; `may_drop` says that the work has a queue that can drop."""
    offered, achieved, waiting = (found.fields[name] for name in BACKLOG[:3])
    assert isinstance(offered, Measured) and isinstance(achieved, Measured) and isinstance(waiting, Measured)
    age = "frame age" if found.stamped else "latency"
    what = f"arrivals {offered.value:.4g}/s > service {achieved.value:.4g}/s"
    if isinstance(found.ageing, Measured) and found.ageing.lo is not None and found.ageing.lo > 0:
        what += f": {age} grows {found.ageing.value:.2g} s per second"
    drop = "; or --workload-option queue=drop_oldest, for fresh results of some frames" if may_drop else ""
    return Message(
        "W-LOAD-1",
        what,
        evidence=f"{waiting.value:.0f} were waiting or in progress when the last one fell due",
        effect=f"The {age} has no steady state, it grows with the length of the run:"
        " the percentiles describe this run only",
        fix=f"{achieved.value / offered.value:.0%} of this load or less (--rate), a larger --batch, or more"
        f" --in-flight{drop}",
    )


def depth(rows: Queries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (times in ns, queries in the machine from each time on): due or created, and not done or dropped."""
    done, origin = rows.columns["done_ns"], origin_ns(rows)
    came = origin >= 0
    left = came & (done >= 0)
    times = np.concatenate([origin[came], done[left]])
    steps = np.concatenate([np.ones(int(came.sum()), np.int64), -np.ones(int(left.sum()), np.int64)])
    order = np.lexsort((steps, times))  # of two events at one time, the end comes first
    return np.asarray(times[order], dtype=np.int64), np.maximum(np.cumsum(steps[order]), 0)


def queue_depth(rows: Queries) -> dict[str, Field]:
    """Return the mean over time and the largest number of queries that were due and not done."""
    times, count = depth(rows)
    span = float(times[-1] - times[0]) if len(times) else 0.0
    if span <= 0:
        return dict.fromkeys(("queue_depth_mean", "queue_depth_max"), Absent("all queries were due at once"))
    mean = float((count[:-1] * np.diff(times)).sum()) / span
    return {
        "queue_depth_mean": Measured(mean, "queries", n=len(rows)),
        "queue_depth_max": Measured(float(count.max()), "queries", n=len(rows)),
    }
