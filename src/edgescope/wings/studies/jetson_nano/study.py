"""What the page of the Jetson Nano study says: the answer, each network as a row, and the study's misprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from edgescope import units
from edgescope.analysis.cells.replicates import of_fields
from edgescope.analysis.cells.row import Row
from edgescope.analysis.roofline import Ceilings
from edgescope.plots.style import interval
from edgescope.records import Absent, Field, Measured, Result, Trial, Trust
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import Cell, Mark, Tile
from edgescope.wings.studies import boards, claim
from edgescope.wings.studies.boards import Board, Entry
from edgescope.wings.studies.claim import Claim, Voice, held
from edgescope.wings.studies.jetson_nano import table
from edgescope.wings.studies.jetson_nano.table import TIMES, NanoRow, NanoTable, StudyRow, nano_table, study
from edgescope.wings.studies.page import Content, Reading, where
from edgescope.wings.studies.paper import Paper

OWN = ("model", "variant", "gate", "bound_by", "limit_precision", "speedup", "claimed", "limit_s", "of_limit")
"""What a row says under its own names."""
STUDY = ("before_s", "after_s", "ratio", "speedup", "recomputed", "params", "flops")
COUNTS = "Its FLOPS column counts multiply-accumulates in some rows and twice as many in others."


def models() -> tuple[str, ...]:
    """Return the study's networks, as the zoo names them."""
    return tuple(r.ours for r in study().rows)


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial is of this study."""
    return table.wanted(trial, models, device)


def content(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    ceilings: Ceilings | None = None,
    left_out: int = 0,
) -> Content:
    """Return what the page says; `left_out` counts the results of other loads, which it does not use."""
    return told(paper, nano_table(results, models, device=device, ceilings=ceilings))


def told(paper: Paper, found: NanoTable) -> Content:
    """Return what the page says of a table."""
    entries = [_entry(row) for row in found.measured]
    board = Board(found.machine, tuple(entries))
    answered = boards.answered(paper, found, board, "" if found.measured else "no network has a speed-up")
    wrong = any(r.study.misprints for r in found.rows)
    return Content(
        title=f"{paper.heading}{where(found.machine)} ({found.device})",
        answer=_answer(found),
        rows={"networks": [_reading(found, row) for row in found.rows]},
        lines={
            "row_notes": row_notes(found),
            "misprinted": [paper.page["misprinted"]] if wrong else [],
            "lacking": list(_gaps(found)),
            "study_notes": study_notes(found),
        },
        claims=answered,
        data=_data(found) | {"claims": claim.plain(answered)},
        entries=entries,
        printed=[("Nano", _as_printed(row)) for row in found.rows],
    )


def _entry(row: NanoRow) -> Entry:
    """Return a network after optimisation, with what it gained."""
    return boards.entry(row.model, row.variant, row.runs, {"speedup": row.speedup})


def _as_printed(row: NanoRow) -> Entry:
    """Return a network after optimisation as the study printed it of its board."""
    printed = row.study
    figures: dict[str, Field] = {
        boards.RATE: Measured(1 / printed.after_s, "samples/s"),
        boards.LATENCY: Measured(printed.after_s, "s"),
        "speedup": Measured(printed.recomputed, "ratio"),
    }
    return Entry(row.model, "TensorRT", figures)


# -- how the claims are judged --------------------------------------------------------------------------------


ALIKE = 1.1
"""Two networks whose operations differ by less than this factor say nothing about fewer and more."""


def _gains(found: NanoTable) -> Iterator[Voice | None]:
    for row in found.measured:
        yield held(row.speedup, (f"{row.model} ({row.variant}): ", ""), _cells(row))


def _fewer(found: NanoTable) -> Iterator[Voice | None]:
    """Yield for each two networks whether the one with fewer operations gains more."""
    counted = [(row.macs.value, row) for row in found.measured if isinstance(row.macs, Measured)]
    for (few, small), (many, large) in combinations(sorted(counted, key=lambda one: one[0]), 2):
        if many / few >= ALIKE:
            words = f"{small.model} gains, over {large.model} with {many / few:.3g}x the operations: "
            yield held(of_fields(small.speedup, large.speedup), (words, ""), [*_cells(small), *_cells(large)])


def _cells(row: NanoRow) -> list[Row]:
    return [Entry("", "", {}, row.runs).row] if row.runs else []


faster = Claim(_gains, "no network has a speed-up", "steady before over steady after", "networks")
fewer_flops = Claim(
    _fewer,
    "two networks that differ in operations are needed",
    "gain of the smaller over the larger",
    "pairs of networks",
    often=True,
)


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


# -- the rows ------------------------------------------------------------------------------------------------


def _reading(found: NanoTable, row: NanoRow) -> Reading:
    """Return a network as a row of every table and of the figure."""
    facts = {
        "study_name": row.study.name,
        "device": found.device,
        "machine": found.machine.id if found.machine else "",
        "verdict_before": row.verdicts[0],
        "verdict_after": row.verdicts[1],
    }
    sides = {"before": row.before, "after": row.after}
    times = {f"{side}_{t}": getattr(of, t) for side, of in sides.items() for t in TIMES}
    own = {name: getattr(row, name) for name in OWN}
    return {**own, **facts, **times, **_shown(row), **_sizes(row), **_printed(row.study), **_marks(row)}


def _shown(row: NanoRow) -> Reading:
    badges = tuple((doc.badge(Trust(v)), " ") for v in dict.fromkeys(filter(None, row.verdicts)))
    theirs, star = row.study.recomputed, "*" if row.study.misprints else ""
    return {
        "look": "dim" if isinstance(row.speedup, Absent) and not row.variant else "",
        "network": Cell(row.model, badges or None),
        "theirs": Cell(Measured(theirs, "ratio"), brief=f"{theirs:.2f}x{star}"),
        "after": row.variant or "n/a",
    }


def _sizes(row: NanoRow) -> Reading:
    ours = {name: getattr(row, name) for name in ("params", "macs", "flops")}
    words = {f"{k}_text": f"{f.value:,.0f}" if isinstance(f, Measured) else "n/a" for k, f in ours.items()}
    theirs = {f"study_{name}_text": f"{getattr(row.study, name):,}" for name in ("params", "flops")}
    return {**ours, **words, **theirs, "study_flops_count": row.flops_count}


def _printed(row: StudyRow) -> Reading:
    """Return the study's row: as a program reads it, and as the page shows it."""
    wrong = (f"{m.column} {m.printed} should be {m.correct} ({m.why})" for m in row.misprints)
    return {
        **{f"study_{name}": str(getattr(row, name)) for name in STUDY},
        "study_misprints": "; ".join(wrong),
        "before_text": f"{row.before_s:.4f}",
        "after_text": f"{row.after_s:.4f}",
        "ratio_text": _quotient(row, "ratio", row.ratio),
        "speedup_text": _quotient(row, "speed-up", row.speedup),
        "recomputed_text": f"{row.recomputed:.3f}",
    }


def _quotient(row: StudyRow, column: str, printed: str) -> Cell:
    """Return the printed value; a misprint struck out, with the corrected value and the arithmetic below."""
    wrong = next((m for m in row.misprints if m.column == column), None)
    if wrong is None:
        return Cell(printed)
    return Cell((Mark(printed, "struck"), " ", Mark(wrong.correct, "strong")), wrong.why)


def _marks(row: NanoRow) -> Reading:
    """Return what the figure shows of a network: a misprinted ratio stands where it was printed."""
    s, f, claimed = row.study, row.speedup, row.claimed
    wrong = next((m for m in s.misprints if m.column == "ratio"), None)
    return {
        "recomputed": s.recomputed,
        "recomputed_says": f"{s.before_s} s / {s.after_s} s = {s.recomputed:.3f}×",
        "speedup_says": f"{row.variant}: {interval(f, 1.0, '×')}" if isinstance(f, Measured) else "",
        "claimed_says": interval(claimed, 1.0, "×") if isinstance(claimed, Measured) else "",
        "wrong": float(wrong.printed) if wrong else None,
        "wrong_says": f"{wrong.column} printed as {wrong.printed}; {wrong.why}" if wrong else "",
    }


# -- what is wrong or missing --------------------------------------------------------------------------------


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


def _gaps(found: NanoTable) -> Iterator[str]:
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


# -- what a program reads ------------------------------------------------------------------------------------


def _data(found: NanoTable) -> dict[str, Any]:
    plain = to_plain(replace(found, rows=tuple(replace(row, runs=()) for row in found.rows)))
    page = found.study
    plain["machine"] = found.machine.id if found.machine else None
    plain["study"] = {k: v for k, v in plain["study"].items() if k != "rows"}
    plain["study"] |= {"arithmetic_mean": page.arithmetic_mean, "geometric_mean": page.geometric_mean}
    for row, out in zip(found.rows, plain["rows"], strict=True):
        del out["runs"]
        own = {"recomputed": row.study.recomputed, "misprints": to_plain(row.study.misprints)}
        out["study"] |= own | {"flops_count": row.flops_count}
    return dict(plain)
