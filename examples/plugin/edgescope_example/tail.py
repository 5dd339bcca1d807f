"""Print how far the slow queries of each stored result lie from its median.

edgescope tail
edgescope tail -o tail.html
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgescope.commandline import context, trial_flags

if TYPE_CHECKING:
    from edgescope.records import Result
    from edgescope.report.document import Document

METRIC = """
[p75_s]
title = "p75 latency"
heading = "p75"
unit = "s"
merge = "rows"
better = "lower"
of = ["latency_p75_s"]
quantile = 0.75
bound = ["p75"]
shown = ["table"]
anchor = "latency"
"""


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)
    trial_flags.add_output(sub, "file to write: the page as well (.html, .md, .csv, .json)")


def run(args: argparse.Namespace) -> int:
    """Print the table, write the page; return 0."""
    store = context.store(args)
    context.show(args, tail(store.results()))
    return 0


def tail(results: Iterable[Result]) -> Document:
    """Return a page of the results: their median, upper quartile and p99, and p99 over the median."""
    from edgescope.metrics import find
    from edgescope.records import Measured
    from edgescope.report.document import Column, Document, Row, Table

    names = ("latency_p50_s", "latency_p75_s", "latency_p99_s")
    rows = []
    for result in results:
        found = tuple(result.metrics.get(name) for name in names)
        first, last = found[0], found[-1]
        both = isinstance(first, Measured) and isinstance(last, Measured)
        rows.append(Row((result.trial.label, *found, last.value / first.value if both else None)))
    columns = (
        Column("trial"),
        *(Column.of(metric) for name in names if (metric := find(name))),
        Column("p99 over p50", "ratio"),
    )
    return Document("How long the tails are", (Table(columns, tuple(rows)),))
