"""The document of a comparison: the judgement, the numbers with their ratios, and the settings that differ."""

from __future__ import annotations

from edgescope import units
from edgescope.analysis.cells.compare import Compared, Comparison
from edgescope.analysis.cells.devices import DeviceRow
from edgescope.metrics import METRICS
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.stats import Judgement
from edgescope.units import counted, fact

#: Number of differing settings that a terminal names without -v.
NAMED = 4


def document(found: Comparison, *, noise: str = "", forced: bool = False) -> doc.Document:
    """Return the document; `noise` says by how much identical runs differ on this machine, '' if unknown."""
    word, pairs = found.judgement.value, counted(found.pairs, "pair")
    over = f"over {pairs} of fresh processes" if found.pairs else "not measured together"
    lead = found.lead
    ratio = f"{lead.metric} {units.ratio(lead.ratio)}, candidate / baseline, " if lead else ""
    sides = (found.candidate, found.baseline)
    if found.candidate == found.baseline:
        sides = (f"{found.candidate}: the candidate", "the baseline")
    name = f"{sides[0]} is {word} against {sides[1]}"
    blocked = [f"W-CMP-1: NOT-COMPARABLE: {b}" for b in found.blockers]
    advice = "" if forced else ". Try: --force, which shows the numbers without a judgement"
    parts = (
        *(doc.Text(doc.Mark(f"{text[:1].upper()}{text[1:]}", "warn")) for text in found.wrong),
        doc.Answer(
            "",
            name,
            (f"{ratio}{over}", *_undecided(found)) if found.rows else (),
            kind="none" if found.blockers else "",
        ),
        *(doc.Text(doc.Mark(f"{text}{advice}", "warn")) for text in blocked),
        _table(found) if found.rows else None,
        doc.Text(_based(found), "lead") if _based(found) else None,
        _devices(found) if found.devices else None,
        *_settings(found),
        *(doc.Text(doc.Mark(text, "warn")) for text in found.warnings),
        doc.Text(f"Noise floor of the machine: {noise}", "dim", doc.DETAIL) if noise else None,
    )
    return doc.Document(name, parts, to_plain(found) | {"judgement": word})


def _undecided(found: Comparison) -> tuple[str, ...]:
    """Return why nothing is decided, if all runs of the two sides say the opposite of their pairs."""
    lead = found.lead
    shown = lead.contradicted if lead and lead.judgement is Judgement.AMBIGUOUS else None
    if lead is None or shown is None:
        return ()
    pairs = counted(found.pairs, "pair") if found.pairs else "the runs"
    ratios = units.ratio(lead.ratio, interval=False), units.ratio(shown)
    return (f"undecided: {pairs} of runs say {ratios[0]}, all runs say {ratios[1]}, the opposite",)


def _based(found: Comparison) -> str:
    """Return what the ratios are from, if the columns are over more runs than they are."""
    if not found.pairs or max(found.runs) <= found.pairs:
        return ""
    pairs = counted(found.pairs, "pair")
    return f"ratio: from {pairs}; the columns: over all {found.runs[0]} and {found.runs[1]} runs"


def _table(found: Comparison) -> doc.Table:
    heads = (
        doc.Column("metric"),
        *(doc.Column(c, "1") for c in ("baseline", "candidate")),
        doc.Column("ratio", "ratio"),
    )
    return doc.Table((*heads, doc.Column("candidate is", rank=1)), tuple(_row(r) for r in found.rows))


def _row(row: Compared) -> doc.Row:
    judged = row.judgement.value if row.judgement else ""
    known = next((m for m in METRICS.values() if row.metric in m.of), None)
    unit = known.unit if known and known.unit == "share" else ""
    sides = (doc.Cell(field, brief=units.cell(field, unit)) for field in (row.baseline, row.candidate))
    return doc.Row((row.metric, *sides, row.ratio, judged))


DEVICE_NAMES = {
    "latency_p50_s": "median latency",
    "throughput_sps": "samples/s",
    "power_w": "power",
    "energy_per_sample_j": "energy per sample",
    "samples_per_s_per_w": "samples/s per watt",
    "samples_per_s_per_price": "samples/s per price",
    "throughput_within_budget_sps": "samples/s in budget",
}


def _devices(found: Comparison) -> doc.Table:
    """Return what each machine does for its energy, watts and price; better and worse are said, never judged."""
    heads = (doc.Column("machine for machine"), *(doc.Column(c, "1") for c in ("baseline", "candidate")))
    return doc.Table((*heads, doc.Column("ratio", "ratio")), tuple(map(_device, found.devices)))


def _device(row: DeviceRow) -> doc.Row:
    sides = (doc.Cell(field, brief=units.show(field)) for field in (row.baseline, row.candidate))
    return doc.Row((DEVICE_NAMES[row.name], *sides, row.ratio))


def _settings(found: Comparison) -> tuple[doc.Text | doc.Section, ...]:
    """Return the settings that differ; without -v a terminal names only the first few."""
    if not found.differences:
        return ()
    rows: list[doc.Row] = []
    for d in found.differences:
        cells: tuple[doc.Value, ...] = (d.name, fact(d.baseline), fact(d.candidate))
        rows.append(doc.Row(cells))
    names = (found.baseline, found.candidate)
    sides = names if len(set(names)) == 2 else ("baseline", "candidate")  # one variant on two machines
    heads = (doc.Column("differs"), *map(doc.Column, sides))
    named = "; ".join(
        f"{d.name} {_short(d.baseline)} -> {_short(d.candidate)}" for d in found.differences[:NAMED]
    )
    more = len(found.differences) - NAMED
    brief = f"differs: {named}" + (f" and {more} more (-v)" if more > 0 else "")
    return (
        doc.Text(brief, "lead", doc.BRIEF),
        doc.Section("Settings that differ", (doc.Table(heads, tuple(rows)),), level=doc.DETAIL),
    )


def _short(value: object) -> str:
    text = fact(value) or "none"
    return text if len(text) <= 24 else f"{text[:23]}…"
