"""The Jetson Nano study's table beside this machine's: the answer, the rows, and the study's misprints.

One Document for every renderer; all parts read the same NanoTable, so a figure and the number beside it agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from edgescope import units
from edgescope.analysis.cells.machines import called
from edgescope.analysis.roofline import Ceilings
from edgescope.records import Absent, Field, Measured, Result, Trial, Trust
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import (
    BRIEF,
    DATA,
    DETAIL,
    MAIN,
    Cell,
    Column,
    Items,
    Mark,
    Section,
    Table,
    Text,
    Tile,
)
from edgescope.wings.studies.jetson_nano import table as rows_of
from edgescope.wings.studies.jetson_nano.printed import StudyRow, study
from edgescope.wings.studies.jetson_nano.table import TIMES, NanoRow, NanoTable, nano_table
from edgescope.wings.studies.paper import Paper

FIGURE = (
    "Filled circles are this machine, with 95 % intervals; open circles are the same processes timed as the study did; "
    "diamonds are the study on its board. Crosses are printed ratios that its own seconds contradict."
)
LEGEND = (
    "before: PyTorch eager, fp32, tf32 off (on a GPU it comes with cuDNN's tf32 on); after: the fastest variant whose "
    "outputs passed the accuracy gate",
    "cold: from the network's definition to its first answer (load + first; importing the framework is not in it)",
    "first: the first answer alone; warm: mean of the ten answers after it; steady: median once latencies settled",
    "speed-up: steady before / steady after, paired within rounds of fresh processes",
    "cold / warm: what timing a cold start before and a warm call after would have made of the same processes",
    "of the limit: least time that this machine's measured ceilings allow / steady after, at the fastest precision "
    "that passed the gate (a lower bound on time: activations are not counted)",
    "small figures are 95 % intervals over fresh processes; those of a mean say how well the mean of these networks "
    "is known",
)
SIZES = "A multiply-accumulate (MAC) is two floating-point operations; convolutions and matrix products are counted."
COUNTS = "Its FLOPS column counts multiply-accumulates in some rows and twice as many in others."


def models() -> tuple[str, ...]:
    """Return the study's networks, as the zoo names them."""
    return tuple(r.ours for r in study().rows)


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial is of this study."""
    return rows_of.wanted(trial, models, device)


def document(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    ceilings: Ceilings | None = None,
    left_out: int = 0,
    command: str = "",
) -> doc.Document:
    """Return the whole answer; `left_out` counts the results of other loads, which it does not use."""
    return of(nano_table(results, models, device=device, ceilings=ceilings), command)


def of(found: NanoTable, command: str = "") -> doc.Document:
    """Return a table as a document."""
    where = f" on {called(found.machine)}" if found.machine else ""
    wrong = sum(len(r.study.misprints) for r in found.rows)
    figure = doc.Figure("speedups", "Speed-ups, ours and the study's", FIGURE, partial(_drawn, found))
    parts = (
        _answer(found),
        figure,
        _here(found),
        Text("* misprinted in the study; -v says how, and what the columns mean", "lead", BRIEF)
        if wrong
        else None,
        Items(tuple(_empty(found)), kind="missing", level=BRIEF),
        _printed(found),
        _sizes(found),
        _rows(found),
    )
    return doc.Document(
        f"The Jetson Nano study's table{where} ({found.device})", parts, _data(found), command
    )


def _drawn(found: NanoTable) -> Any:
    from edgescope.wings.studies.jetson_nano.figures import beside_study  # only a page needs plotly

    return beside_study(found)


# -- the answer ----------------------------------------------------------------------------------------------


def _answer(found: NanoTable) -> doc.Answer:
    page, n, of = found.study, len(found.measured), len(found.rows)
    geometric, arithmetic = f"{page.geometric_mean:.2f}", f"arithmetic {page.arithmetic_mean:.2f}"
    theirs = f"the study's own seconds give {geometric}x ({arithmetic}x)"
    printed, abstract = page.mean_speedup_in_conclusion, f"abstract: {page.mean_speedup_in_abstract}"
    tiles = (
        _tile("Geometric mean here", found.geometric, "steady before / steady after, gated"),
        _tile("Timed the study's way", found.claimed, "cold before / warm after, same processes"),
        Tile("The study, recomputed", f"{geometric}×", small=(f"{arithmetic}×",)),
        Tile("The study, printed", f"{printed}×", small=(abstract,)),
    )
    if not n:
        some = sum(
            isinstance(getattr(s, t), Measured)
            for r in found.rows
            for s in (r.before, r.after)
            for t in TIMES
        )
        what = "has a speed-up: before or after is missing" if some else "was measured"
        none = f"None of the {of} networks {what} on {found.device}: edgescope study nano_table --run"
        return doc.Answer(
            "No speed-up" if some else "Nothing measured", "", (none, theirs), none, tiles, kind="none"
        )
    short = (
        f"{theirs}, printed {printed}x",
        f"timed the study's way, cold before and warm after: {units.ratio(found.claimed)}",
        *disturbed(found),
    )
    reason = (
        f"Over {n} of {of} networks the gated pick is {units.ratio(found.geometric)} as fast as PyTorch eager (fp32, "
        f"tf32 off), both steady (geometric mean; arithmetic {units.ratio(found.arithmetic)}); {theirs}. Timed the "
        "study's way, cold before and warm after, the same processes would have claimed "
        f"{units.ratio(found.claimed)}. {' '.join(disturbed(found))}"
    )
    pick = f"{units.ratio(found.geometric)} as fast as PyTorch eager"
    return doc.Answer(f"{n} of {of} networks", pick, short, reason.rstrip(), tiles)


def _tile(title: str, field: Field, what: str) -> Tile:
    between = units.column("ratio", [field]).interval(field) if isinstance(field, Measured) else ""
    return Tile(title, field, "ratio", tuple(filter(None, (between, what))))


def disturbed(found: NanoTable) -> list[str]:
    """Return which networks were measured on a disturbed machine."""
    bad = [r.model for r in found.measured if set(r.verdicts) & {"DISTURBED", "THROTTLED"}]
    return [f"Measured while the machine was disturbed or throttled: {', '.join(bad)}."] if bad else []


# -- the tables ----------------------------------------------------------------------------------------------


def _here(found: NanoTable) -> Section:
    limit = any(isinstance(r.of_limit, Measured) for r in found.rows)
    columns = (
        Column("Network"),
        *(Column(f"{t[:-2].title()} before", "s", head=t[:-2], rank=7 - i) for i, t in enumerate(TIMES)),
        Column("Steady after", "s", head="after", rank=2),
        Column("Speed-up", "ratio", note="steady / steady", head="speed-up"),
        Column("Study's way", "ratio", note="cold / warm", head="cold/warm", rank=3),
        Column("Of the limit", "share", head="of limit", rank=1, level=MAIN if limit else DATA),
        Column("The study", "ratio", note="its seconds", head="study"),
        Column("After", head="variant", rank=8),
    )
    table = Table(columns, tuple(map(_row, found.rows)))
    notes = Items(tuple(row_notes(found)), "Gates, rejections, gaps", "missing", DETAIL)
    legend = Items(LEGEND, kind="missing", level=DETAIL)
    return Section("Before and after, timed four ways", (table, legend, notes))


def _row(row: NanoRow) -> doc.Row:
    badges = tuple((doc.badge(Trust(v)), " ") for v in dict.fromkeys(filter(None, row.verdicts)))
    star = "*" if row.study.misprints else ""
    printed = Cell(Measured(row.study.recomputed, "ratio"), brief=f"{row.study.recomputed:.2f}x{star}")
    times = (*(getattr(row.before, t) for t in TIMES), row.after.steady_s)
    cells = (*times, row.speedup, row.claimed, row.of_limit, printed, row.variant or "n/a")
    kind = "dim" if isinstance(row.speedup, Absent) and not row.variant else ""
    return doc.Row((Cell(row.model, badges or None), *cells), kind)


def row_notes(found: NanoTable) -> list[str]:
    """Return why rows are empty, what was rejected and which gate the pick passed; equal sentences are joined."""
    found_of: dict[str, list[str]] = {}
    for row in found.rows:
        mine = [n for n in row.notes if n not in row.study.notes]
        if isinstance(row.speedup, Absent) and (row.variant or not mine):
            mine = [*mine, row.speedup.reason]
        for note in (*mine, *([f"gate: {row.gate}"] if row.gate else [])):
            found_of.setdefault(note, []).append(row.model)
    return [f"{', '.join(names)}: {note}" for note, names in found_of.items()]


def _empty(found: NanoTable) -> Iterator[str]:
    """Yield why rows have no figures, and what would fill them."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if isinstance(row.speedup, Absent):
            notes = [n for n in row.notes if n not in row.study.notes]
            said = [*notes, row.speedup.reason] if row.variant else notes
            reasons.setdefault("; ".join(said) or "no result in this store", []).append(row.model)
    for why, names in reasons.items():
        yield f"not measured, {why}: {', '.join(names)}"
    if reasons:
        some = tuple(r.model for r in found.rows)
        chosen = "" if some == models() else f" --models {','.join(some)}"
        yield f"measure the rest: edgescope study nano_table --run --device {found.device}{chosen}"


def _printed(found: NanoTable) -> Section:
    page = found.study
    columns = (
        Column("Network"),
        *(Column(name, "1", head=name.lower()) for name in ("Before (s)", "After (s)")),
        *(Column(f"{name}, as printed", "1", head=name.lower()) for name in ("Ratio", "Speed-up")),
        Column("Before / after, recomputed", "1", head="recomputed"),
    )
    rows = []
    for s in (r.study for r in found.rows):
        cells = (f"{s.before_s:.4f}", f"{s.after_s:.4f}", _quotient(s, "ratio", s.ratio))
        rows.append(doc.Row((s.name, *cells, _quotient(s, "speed-up", s.speedup), f"{s.recomputed:.3f}")))
    lead = f"{page.title}, {page.source}, on a {page.board}."
    table = Table(columns, tuple(rows), lead=lead, level=DETAIL)
    wrong = Items(tuple(study_notes(found)), kind="missing", level=DETAIL)
    return Section(f"The study as printed ({page.source}, {page.board})", (table, wrong), level=DETAIL)


def _quotient(row: StudyRow, column: str, printed: str) -> Cell:
    """Return the printed value; a misprint struck out, with the corrected value and the arithmetic below."""
    wrong = next((m for m in row.misprints if m.column == column), None)
    if wrong is None:
        return Cell(printed)
    return Cell((Mark(printed, "struck"), " ", Mark(wrong.correct, "strong")), wrong.why)


def study_notes(found: NanoTable) -> list[str]:
    """Return what is wrong with the study's figures, misprints first."""
    page = found.study
    wrong = [f"{row.study.name}: {m}" for row in found.rows for m in row.study.misprints]
    other = [f"{row.study.name}: {note}" for row in found.rows for note in row.study.notes]
    mean = (
        f"The mean of the eleven speed-ups is {page.arithmetic_mean:.2f}x (geometric {page.geometric_mean:.2f}x); the "
        f"conclusion says {page.mean_speedup_in_conclusion}x, the abstract {page.mean_speedup_in_abstract}."
    )
    return [*wrong, *other, mean, COUNTS, *page.notes]


def _sizes(found: NanoTable) -> Section:
    heads = ("Parameters, ours", "Parameters, the study", "MACs, ours", "FLOPs, ours: 2 × MACs")
    figures = (Column(h, "1", rank=i) for i, h in enumerate((*heads, "FLOPS column, the study")))
    rows = []
    for r in found.rows:
        ours = (f"{f.value:,.0f}" if isinstance(f, Measured) else "n/a" for f in (r.params, r.macs, r.flops))
        params, macs, flops = ours
        theirs = (f"{r.study.params:,}", macs, flops, f"{r.study.flops:,}")
        rows.append(doc.Row((r.model, params, *theirs, r.flops_count)))
    table = Table((Column("Network"), *figures, Column("It counts")), tuple(rows), lead=SIZES, level=DETAIL)
    return Section("Sizes", (table,), level=DETAIL)


# -- what a program reads ------------------------------------------------------------------------------------

FACTS = ("model", "study_name", "device", "machine", "variant", "verdict_before", "verdict_after", "gate")
FIELDS = ("speedup", "claimed", "limit_s", "of_limit", "params", "macs", "flops")
STUDY = ("before_s", "after_s", "ratio", "speedup", "recomputed", "params", "flops")


def _rows(found: NanoTable) -> Table:
    """Return one row for each network, for a CSV: each value with its interval and n, or why it is absent."""
    machine = found.machine.id if found.machine else ""
    names = [*FACTS, "bound_by", "limit_precision"]
    names += [*(f"{side}_{t}" for side in ("before", "after") for t in TIMES), *FIELDS]
    names += [*(f"study_{s}" for s in STUDY), "study_flops_count", "study_misprints"]
    rows = []
    for r in found.rows:
        facts = (r.model, r.study.name, found.device, machine, r.variant, *r.verdicts, r.gate, r.bound_by)
        times = (getattr(side, t) for side in (r.before, r.after) for t in TIMES)
        figures = (getattr(r, f) for f in FIELDS)
        wrong = "; ".join(
            f"{m.column} {m.printed} should be {m.correct} ({m.why})" for m in r.study.misprints
        )
        theirs = (*(str(getattr(r.study, name)) for name in STUDY), r.flops_count, wrong)
        rows.append(doc.Row((*facts, r.limit_precision, *times, *figures, *theirs)))
    return Table(tuple(Column(name, key=name) for name in names), tuple(rows), level=DATA)


def _data(found: NanoTable) -> dict[str, Any]:
    plain = to_plain(found)
    page = found.study
    plain["machine"] = found.machine.id if found.machine else None
    plain["study"] = {k: v for k, v in plain["study"].items() if k != "rows"}
    plain["study"] |= {"arithmetic_mean": page.arithmetic_mean, "geometric_mean": page.geometric_mean}
    for row, out in zip(found.rows, plain["rows"], strict=True):
        own = {"recomputed": row.study.recomputed, "misprints": to_plain(row.study.misprints)}
        out["study"] |= own | {"flops_count": row.flops_count}
    return dict(plain)
