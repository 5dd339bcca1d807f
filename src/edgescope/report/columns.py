"""The columns of the before/after table, once for every format: what they read and how they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgescope import metrics
from edgescope.analysis.cells.row import Row
from edgescope.metrics import Metric
from edgescope.plots.style import ordered
from edgescope.records import Absent, Field, Measured
from edgescope.report.chapter import Chapter
from edgescope.report.numbers import Format, joules, memory, plain, rates, ratios, shares, times, watts

#: Unit of a metric -> how its column prints.
FORMATS: Mapping[str, Callable[[Iterable[Field]], Format]] = {
    "s": times,
    "samples/s": rates,
    "bytes": memory,
    "W": watts,
    "J": joules,
    "ratio": ratios,
    "share": shares,
}


def form_of(metric: Metric, fields: Iterable[Field]) -> Format:
    """Return how a column of these figures prints."""
    return FORMATS.get(metric.unit, plain(metric.unit))(fields)


@dataclass(frozen=True)
class Shown:
    """The part of the table worth printing, and what was measured in no variant at all."""

    rows: Sequence[Row]
    columns: Sequence[Metric]
    formats: Sequence[Format]
    missing: Sequence[tuple[Metric, str]]
    """Columns without a single value, each with the reasons."""

    def heading(self, i: int) -> str:
        """Return `Median latency (ms)`, and of watts and joules the scope: `Power (W, module)`."""
        unit = self.formats[i].unit
        if self.columns[i].scope:
            scopes = dict.fromkeys(r.scope for r in self.rows if r.scope)
            unit = ", ".join((unit, *scopes))
        return f"{self.columns[i].title} ({unit})" if unit else self.columns[i].title

    def field(self, i: int, row: Row, chapter: Chapter) -> Field:
        """Return what to print; the baseline over itself is 1 by definition, without an interval."""
        field = row[self.columns[i].name]
        if (
            isinstance(field, Measured)
            and self.columns[i].name == "speedup"
            and row.cell == chapter.table.baseline
        ):
            return Measured(field.value, field.unit, n=field.n)
        return field

    def format(self, i: int, field: Field) -> Format:
        """Return how to print a figure: as its column is, but as itself where that would round it to 0."""
        form = self.formats[i]
        if (
            not isinstance(field, Measured)
            or field.value == 0
            or float(form.number(field.value).replace(",", ""))
        ):
            return form
        return form_of(self.columns[i], [field])

    def gaps(self) -> dict[str, str]:
        """Return reason -> the columns that are missing for it, e.g. `Power, Energy per sample`."""
        found: dict[str, list[str]] = {}
        for column, why in self.missing:
            found.setdefault(why, []).append(column.title)
        return {why: ", ".join(words) for why, words in found.items()}


def shown(chapter: Chapter) -> Shown:
    """Return the rows with figures in reading order, and the columns with a value somewhere with their formats."""
    rows = [row for row in ordered(chapter.table) if row.replicates]
    every = metrics.shown("table", rows[0].trial.workload if rows else "")
    kept = [c for c in every if any(isinstance(r[c.name], Measured) for r in rows)]
    missing = [(c, _reasons(c, rows)) for c in every if c not in kept]
    kept = [c for c in kept if c.name != "speedup" or len(rows) > 1]
    used = [row for row in rows if not row.rejected] or rows  # what is struck out sets no scale
    return Shown(rows, kept, [form_of(c, [r[c.name] for r in used]) for c in kept], missing)


def _reasons(column: Metric, rows: Sequence[Row]) -> str:
    fields = (r[column.name] for r in rows if not r.rejected)
    found = dict.fromkeys(f.reason for f in fields if isinstance(f, Absent))
    return "; ".join(found) or "no variant finished"
