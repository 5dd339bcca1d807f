"""The study as a document: the whole chain by engine beside the boards of the study, its claims, its open questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgescope.analysis.cells.machines import called
from edgescope.records import Absent, Field, Json, Measured, Result, Trial
from edgescope.records.answers import plain
from edgescope.report import document as doc
from edgescope.report.document import Column, Items, Row, Table
from edgescope.units import show
from edgescope.wings.studies.anomaly_detection.chain import (
    MEMORY,
    SNIPPETS,
    Cell,
    Cells,
    gain,
    measured,
    planned,
    question,
)
from edgescope.wings.studies.claim import answered, section, tally
from edgescope.wings.studies.claim import plain as plain_claims
from edgescope.wings.studies.paper import Number, Paper

__all__ = ["document", "planned", "wanted"]

FIGURES = (
    ("throughput_sps", "Frames per second", "frames/s"),
    (MEMORY, "Memory", "bytes"),
    ("power_w", "Power", "W"),
    ("energy_per_sample_j", "Energy per frame", "J"),
)
STAGES = ("decode", "preprocess", "infer", "score", "alarm")
OTHERS = "figures of the study's boards stand beside this machine's; no ratio of the two is computed"


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial may belong to the study on a device."""
    return trial.device == device and "head" in trial.workload_options


def document(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    source: str = "",
    part: str = "all",
    left_out: int = 0,
    command: str = "",
) -> doc.Document:
    """Return the whole answer; `part` matters for what --run measures only, `left_out` results have no place in it."""
    known = list(results)
    cells = measured(paper, known, device, source)
    machine = next((result.machine for result in known), None)
    title = f"{paper.heading} on {called(machine)}" if machine else paper.heading
    best = cells.fastest
    found = answered(paper, cells, "" if best else "no engine ran the chain")
    if best is None:
        none = f"No whole chain on {device} is in this store. Measure: {paper.measure} --device {device} --part engines"
        answer = doc.Answer("Nothing measured", "", (none,), none, kind="none")
        return doc.Document(title, (answer, section(paper, found)), {"cells": []}, command)
    short = (
        f"{best.chain}, {best.frames} frames a snippet, {SNIPPETS} snippets: {show(best.fps)}",
        tally(found, why=True),
        *_answers(cells),
    )
    tiles = (
        doc.Tile("Frames per second", best.fps),
        doc.Tile("Memory", best[MEMORY]),
    )
    parts = (
        doc.Answer("The fastest engine here", best.engine, short, ". ".join(short), tiles),
        _engines(paper, cells),
        section(paper, found),
        _shapes(cells),
        _views(cells),
        _chains(paper, cells),
        Items(tuple(_failed(cells)), "What did not run") if _failed(cells) else None,
        Items(tuple(_answers(cells)), "The study's open questions") if _answers(cells) else None,
    )
    data: dict[str, Any] = {"cells": [_plain(cell) for cell in cells.every], "claims": plain_claims(found)}
    return doc.Document(title, parts, data, command)


def _failed(cells: Cells) -> list[str]:
    """Return each cell that was tried and did not run, with the reason."""
    return [
        f"{cell.engine}, {cell.chain}: {cell.problem}"
        for cell in cells.every
        if cell.problem and not cell.runs
    ]


def _answers(cells: Cells) -> list[str]:
    """Return what the sweeps say to the questions that the study leaves open."""
    found = []
    if (short := _ratio(cells, "shapes", ("snippets", 64), ("snippets", 16), frames=16)) is not None:
        found.append(f"64 snippets in place of 16 cost the head, not the features: {short} of the frames/s")
    if (long := _ratio(cells, "shapes", ("frames", 32), ("frames", 8), snippets=SNIPPETS)) is not None:
        found.append(f"32 frames a snippet in place of 8: {long} of the frames/s")
    if (crops := _ratio(cells, "views", ("views", 10), ("views", 1))) is not None:
        found.append(f"ten crops in place of one: {crops} of the frames/s")
    return found


def _ratio(cells: Cells, part: str, over: tuple[str, int], under: tuple[str, int], **rest: int) -> str | None:
    """Return the frames per second of one cell of a part over those of another, in words; None if one is missing."""

    def one(name: str, value: int) -> Cell | None:
        wish = {**rest, name: value}
        return next((c for c in cells.of(part) if all(getattr(c, k) == v for k, v in wish.items())), None)

    first, second = one(*over), one(*under)
    if first is None or second is None or not first.runs or not second.runs:
        return None
    ratio = first.runs[0].value("throughput_sps") / second.runs[0].value("throughput_sps")
    return f"{ratio:.2f}x"


# -- tables ----------------------------------------------------------------------------------------------------


def _figures(cell: Cell) -> tuple[Field, ...]:
    return tuple(cell[name] for name, _, _ in FIGURES)


def _columns() -> tuple[Column, ...]:
    return tuple(
        Column(title, unit, name, rank=max(0, k - 1)) for k, (name, title, unit) in enumerate(FIGURES)
    )


def _engines(paper: Paper, cells: Cells) -> Table:
    eager = next((cell for cell in cells.of("engines") if cell.trial.backend == "torch_eager"), None)
    columns = (
        Column("Where"),
        *_columns(),
        Column("Over PyTorch", "1", "gain", rank=2),
        *(Column(f"{name.capitalize()}", "s", f"{name}_s", rank=4) for name in STAGES),
    )
    rows = [
        Row(
            (
                cell.engine,
                *_figures(cell),
                Absent("it is PyTorch") if cell is eager or eager is None else gain(cell, eager),
                *(cell[f"{name}_s"] for name in STAGES),
            )
        )
        for cell in cells.of("engines")
    ]
    rows += [_printed(paper, board) for board in dict.fromkeys(number.board for number in paper.numbers)]
    return Table(
        columns, tuple(rows), "The whole chain, by engine", f"{_ran(paper)}; {paper.method}; {OTHERS}"
    )


def _printed(paper: Paper, board: str) -> Row:
    """Return the row of one of the study's boards."""
    known = {number.figure: number for number in paper.numbers if number.board == board}

    def one(name: str, unit: str) -> Field:
        number: Number | None = known.get(name)
        return Absent("not in the study's text") if number is None else Measured(number.value, unit)

    names = ("throughput_sps", "memory_bytes", "power_w", "energy_per_sample_j")
    units = [unit for _, _, unit in FIGURES]
    fields = [one(name, unit) for name, unit in zip(names, units, strict=True)]
    rest = [Absent("not in the study's text")] * (1 + len(STAGES))
    return Row((f"{board} (study)", *fields, *rest), "dim")


def _ran(paper: Paper) -> str:
    """Return which network stands in this table: the boards' own."""
    chain = next(row for row in paper.page["chain"] if row["key"] == paper.page["usual"]["study"])
    boards = ", ".join(dict.fromkeys(number.model for number in paper.numbers))
    return f"{chain['features']} + {chain['head']} here, {boards} on the boards"


def _shapes(cells: Cells) -> Table | None:
    mine = cells.of("shapes")
    if not any(cell.runs for cell in mine):
        return None
    snippets = sorted({cell.snippets for cell in mine})
    columns = (
        Column("Frames a snippet"),
        *(Column(f"{k} snippets", "frames/s", f"snippets_{k}") for k in snippets),
    )
    rows = [
        Row((str(frames), *(cell["throughput_sps"] for cell in mine if cell.frames == frames)))
        for frames in sorted({cell.frames for cell in mine})
    ]
    return Table(columns, tuple(rows), "Snippets x frames: frames per second", grid=True)


def _views(cells: Cells) -> Table | None:
    mine = [cell for cell in cells.of("views") if cell.runs]
    if not mine:
        return None
    rows = [Row((f"{cell.views} crop{'s' if cell.views > 1 else ''}", *_figures(cell))) for cell in mine]
    return Table((Column("Crops"), *_columns()), tuple(rows), "One crop against ten")


def _chains(paper: Paper, cells: Cells) -> Table | None:
    mine = cells.of("chains")
    if not any(cell.runs for cell in mine):
        return None
    auc = {row["title"]: row["auc"] for row in paper.page["chain"]}
    names = ("UCF-Crime", "XD-Violence", "MSAD")
    columns = (
        Column("Chain"),
        *_columns(),
        *(Column(f"AUC {name}, published", "share", rank=3) for name in names),
    )
    rows = []
    for cell in mine:
        known = auc[cell.chain] or [None] * len(names)
        published = [Absent("not published") if v is None else Measured(v / 100, "share") for v in known]
        rows.append(Row((cell.chain, *_figures(cell), *published)))
    lead = "The published AUC are of networks trained on the whole data sets, not of the untrained ones timed here."
    return Table(columns, tuple(rows), "Lighter chains", lead)


def _plain(cell: Cell) -> dict[str, Json]:
    trial = cell.trial
    return {
        "part": cell.part,
        "chain": cell.chain,
        "engine": cell.engine,
        "snippets": cell.snippets,
        "frames": cell.frames,
        "views": cell.views,
        "runs": len(cell.runs),
        **{name: plain(cell[name]) for name, _, _ in FIGURES},
        **{f"{name}_s": plain(cell[f"{name}_s"]) for name in STAGES},
        "trial": trial.label,
        "question": str(question(trial)),
    }
