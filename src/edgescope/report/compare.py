"""Two variants side by side: the judgement, the numbers with their ratios, and what was set differently."""

from __future__ import annotations

from edgescope import units
from edgescope.analysis.cells.compare import Compared, Comparison
from edgescope.metrics import METRICS
from edgescope.records import Measured
from edgescope.records.codec import to_plain
from edgescope.report.document import (
    BRIEF,
    DETAIL,
    Answer,
    Cell,
    Column,
    Document,
    Mark,
    Row,
    Section,
    Table,
    Text,
    Value,
)
from edgescope.units import counted, fact

#: How many of the settings that differ a terminal names without -v.
NAMED = 4


def document(found: Comparison, *, noise: str = "", forced: bool = False) -> Document:
    """Return the comparison; `noise`: what identical runs differ by on this machine, in words."""
    word, pairs = found.judgement.value, counted(found.pairs, "pair")
    over = f"over {pairs} of fresh processes" if found.pairs else "not measured together"
    lead = next((r for r in found.rows if r.judgement and isinstance(r.ratio, Measured)), None)
    ratio = f"{lead.metric} {units.ratio(lead.ratio)}, candidate / baseline, " if lead else ""
    name = f"{found.candidate} is {word} against {found.baseline}"
    blocked = [f"W-CMP-1: NOT-COMPARABLE: {b}" for b in found.blockers]
    advice = "" if forced else ". Try: --force, unjudged"
    parts = (
        Answer("", name, (f"{ratio}{over}",) if found.rows else (), kind="none" if found.blockers else ""),
        *(Text(Mark(f"{text}{advice}", "warn")) for text in blocked),
        _table(found) if found.rows else None,
        *_settings(found),
        *(Text(Mark(text, "warn")) for text in found.warnings),
        Text(f"Noise floor of the machine: {noise}", "dim", DETAIL) if noise else None,
    )
    return Document(name, parts, to_plain(found) | {"judgement": word})


def _table(found: Comparison) -> Table:
    heads = (Column("metric"), *(Column(c, "1") for c in ("baseline", "candidate")), Column("ratio", "ratio"))
    return Table((*heads, Column("candidate is")), tuple(_row(r) for r in found.rows))


def _row(row: Compared) -> Row:
    judged = row.judgement.value if row.judgement else ""
    known = next((m for m in METRICS.values() if row.metric in m.of), None)
    unit = known.unit if known and known.unit == "share" else ""
    sides = (Cell(field, brief=units.cell(field, unit)) for field in (row.baseline, row.candidate))
    return Row((row.metric, *sides, row.ratio, judged))


def _settings(found: Comparison) -> tuple[Text | Section, ...]:
    """Return what differs: a terminal names the first few."""
    if not found.differences:
        return ()
    rows: list[Row] = []
    for d in found.differences:
        cells: tuple[Value, ...] = (d.name, fact(d.baseline), fact(d.candidate))
        rows.append(Row(cells))
    heads = (Column("differs"), Column(found.baseline), Column(found.candidate))
    named = "; ".join(
        f"{d.name} {_short(d.baseline)} -> {_short(d.candidate)}" for d in found.differences[:NAMED]
    )
    more = len(found.differences) - NAMED
    brief = f"differs: {named}" + (f" and {more} more (-v)" if more > 0 else "")
    return (
        Text(brief, "lead", BRIEF),
        Section("Settings that differ", (Table(heads, tuple(rows)),), level=DETAIL),
    )


def _short(value: object) -> str:
    text = fact(value) or "none"
    return text if len(text) <= 24 else f"{text[:23]}…"
