"""Figures of the moments that queries noted on their way: first token, parts of a step, stages, phases of a device.

metrics.toml says from where the time to a mark runs (`since`: another mark, else when the query was due) and which
quantile of it is the figure. A query that failed, or lacks one of the two moments, does not count. The rows of all
workers are pooled before anything is computed, so a figure is never a mean of quantiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from edgescope.metrics import METRICS
from edgescope.records import QUERY_OK, Absent, Field, Queries
from edgescope.stats import quantile_metric

NOT_DUE = Absent("time since a query was due n/a (offline: all are due at the start)")


def metrics(rows: Queries, *, timed: bool = True) -> dict[str, Field]:
    """Return each figure that metrics.toml declares of the marks of these rows, which are those of the window.

    A mark that none of them reached is of other work, as of a model that ran beside. `timed`: whether the time since a
    query was due means anything.
    """
    marks = [name for name, moments in rows.marks.items() if (moments >= 0).any()]
    found: dict[str, Field] = {}
    for metric in METRICS.values():
        for word in _words(metric.of_mark, marks):
            name, mark, since = (t.replace("*", word) for t in (metric.name, metric.of_mark, metric.since))
            if not since and not timed:
                found[name] = NOT_DUE
            elif not since or since in marks:
                found[name] = figure(rows, mark, since, metric.mark_quantile)
    return found


def _words(pattern: str, marks: Iterable[str]) -> Iterator[str]:
    """Yield what a * stands for in each mark that has the form of `pattern`; '' for a pattern without one."""
    before, star, after = pattern.partition("*")
    for mark in marks if pattern else ():
        if not star and mark == pattern:
            yield ""
        elif star and mark.startswith(before) and mark.endswith(after) and len(mark) >= len(pattern):
            yield mark.removeprefix(before).removesuffix(after)


def figure(rows: Queries, mark: str, since: str = "", quantile: float = 0.5) -> Field:
    """Return a quantile of the seconds to a mark from another, or from when each query was due."""
    return quantile_metric(took_ns(rows, mark, since).astype(np.float64) * 1e-9, quantile)


def took_ns(rows: Queries, mark: str, since: str = "") -> NDArray[np.int64]:
    """Return the nanoseconds to a mark of the rows that succeeded and have both moments, in the order of the rows."""
    marks = rows.marks
    begins, ends = marks[since] if since else rows.due_ns(), marks[mark]
    known = (rows.columns["status"] == QUERY_OK) & (ends >= 0) & (begins >= 0)
    return np.asarray((ends - begins)[known], dtype=np.int64)
