"""The columns of the before/after table, once for every format: what they read and how they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.variants import VariantRow
from edgescope.analysis.energy.scopes import METRICS
from edgescope.plots.style import ordered
from edgescope.records import Absent, Field, Measured
from edgescope.report.chapter import Chapter
from edgescope.report.numbers import Format, joules, memory, rates, ratios, shares, times, watts


@dataclass(frozen=True)
class Column:
    """One metric of the table."""

    key: str
    """Attribute of VariantRow, and of the glossary's entry."""
    words: str
    format: Callable[[Iterable[Field]], Format]

    def read(self, row: VariantRow) -> Field:
        """Return the metric of a row."""
        field: Field = getattr(row, self.key)
        return field


COLUMNS: Sequence[Column] = (
    Column("speedup", "Speed-up", ratios),
    Column("p50_s", "Median latency", times),
    Column("p99_s", "p99 latency", times),
    Column("throughput_sps", "Throughput", rates),
    Column("peak_rss_bytes", "Peak memory", memory),
    Column("power_w", "Power", watts),
    Column("energy_per_sample_j", "Energy per sample", joules),
    Column("agreement", "Agreement with fp32", shares),
    Column("accuracy", "Accuracy", shares),
)


@dataclass(frozen=True)
class Shown:
    """The part of the table worth printing, and what was measured in no variant at all."""

    rows: Sequence[VariantRow]
    columns: Sequence[Column]
    formats: Sequence[Format]
    missing: Sequence[tuple[Column, str]]
    """Columns without a single value, each with the reasons."""

    def heading(self, i: int) -> str:
        """Return `Median latency (ms)`, and of watts and joules the scope: `Power (W, module)`."""
        unit = self.formats[i].unit
        if self.columns[i].key in METRICS:
            scopes = dict.fromkeys(r.scope for r in self.rows if r.scope)
            unit = ", ".join((unit, *scopes))
        return f"{self.columns[i].words} ({unit})" if unit else self.columns[i].words

    def field(self, i: int, row: VariantRow, chapter: Chapter) -> Field:
        """Return what to print; the baseline over itself is 1 by definition, without an interval."""
        field = self.columns[i].read(row)
        if (
            isinstance(field, Measured)
            and self.columns[i].key == "speedup"
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
        return self.columns[i].format([field])

    def gaps(self) -> dict[str, str]:
        """Return reason -> the columns that are missing for it, e.g. `Power, Energy per sample`."""
        found: dict[str, list[str]] = {}
        for column, why in self.missing:
            found.setdefault(why, []).append(column.words)
        return {why: ", ".join(words) for why, words in found.items()}


def shown(chapter: Chapter) -> Shown:
    """Return the rows with figures in reading order, and the columns with a value somewhere with their formats."""
    rows = [row for row in ordered(chapter.table) if row.replicates]
    kept = [c for c in COLUMNS if any(isinstance(c.read(r), Measured) for r in rows)]
    missing = [(c, _reasons(c, rows)) for c in COLUMNS if c not in kept]
    kept = [c for c in kept if c.key != "speedup" or len(rows) > 1]
    used = [row for row in rows if not row.rejected] or rows  # what is struck out sets no scale
    return Shown(rows, kept, [c.format([c.read(r) for r in used]) for c in kept], missing)


def _reasons(column: Column, rows: Sequence[VariantRow]) -> str:
    fields = (column.read(r) for r in rows if not r.rejected)
    found = dict.fromkeys(f.reason for f in fields if isinstance(f, Absent))
    return "; ".join(found) or "no variant finished"
