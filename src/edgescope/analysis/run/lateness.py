"""How old results are when they come, how the age grows and varies, and which miss their deadline.

A frame ages from its own time stamp (`source_ns`) until its results are there. Work without time stamps has no frames:
the age of a query is then its latency from the time it was due. Rows are taken in the order in which results came. A
result is late if it comes more than the deadline after that; a query that was dropped or failed has no result, so it
missed its deadline. Misses come in bursts, so a share of n queries is worth fewer independent ones: its interval is
Wilson's, of the effective number of queries that `stats.bursty_share` finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries
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


def growth(rows: Queries) -> Field:
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
