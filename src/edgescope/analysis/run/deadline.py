"""Count the queries that miss their deadline: their share, the worst overrun, and the most of them in a row.

A result is late if it comes more than the deadline after its frame was created, or after its query was due if the row
has no time stamp. A query that was dropped or failed has no result: it missed its deadline.

Misses come in bursts, so a share of n queries is worth fewer independent ones. Its interval is Wilson's, of the
effective number of queries that `stats.bursty_share` finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.run.frame_age import origin_ns
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries
from edgescope.stats import bursty_share
from edgescope.stats.intervals import Floats

NAMES = ("deadline_miss_ratio", "deadline_overrun_worst_s", "deadline_miss_burst")
NO_DUE_TIME = Absent(
    "no deadline applies: a query of a closed loop is not due at a time, and has no time stamp"
)


def metrics(rows: Queries, deadline_s: float) -> dict[str, Field]:
    """Return the metrics of NAMES for a deadline in seconds."""
    c, late = rows.columns, overruns_s(rows, deadline_s)
    done = c["status"] == QUERY_OK
    if not len(rows) or (origin_ns(rows)[done] < 0).any():
        return dict.fromkeys(NAMES, NO_DUE_TIME if len(rows) else Absent("no query was offered"))
    missed = ~done | (late > 0)
    return {
        "deadline_miss_ratio": bursty_share(missed, late).measured("share"),
        "deadline_overrun_worst_s": _worst(late[done & missed], missed),
        "deadline_miss_burst": Measured(float(longest_burst(rows, missed)), "queries", n=len(rows)),
    }


def overruns_s(rows: Queries, deadline_s: float) -> Floats:
    """Return how long after its deadline each result came (negative: before it); without a result, beyond the worst."""
    c = rows.columns
    done = c["status"] == QUERY_OK
    late = np.asarray((c["done_ns"] - origin_ns(rows)) * 1e-9 - deadline_s, dtype=np.float64)
    late[~done] = max(0.0, float(late[done].max(initial=0.0))) + deadline_s
    return late


def _worst(late: Floats, missed: NDArray[np.bool_]) -> Field:
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
