"""The training study on this machine: its takeaways, where each epoch's time went, every cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.replicates import spread
from edgescope.records import Field, Result, Status, Trial
from edgescope.report import document as doc
from edgescope.report.document import DATA, DETAIL, MAIN, Column, Row, Section, Table
from edgescope.wings.studies import claim
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.edge_training import grid
from edgescope.wings.studies.edge_training.claims import Cells, figure
from edgescope.wings.studies.paper import Paper

GOOD = (Status.OK, Status.UNSTABLE)
PARTS = ("fetch", "h2d", "forward", "backward", "optimizer", "other")
FIGURES: Mapping[str, str] = {
    "epoch_first_s": "s",
    "epoch_later_s": "s",
    "stall_share": "share",
    "loader_hidden_share": "share",
    "throughput_sps": "samples/s",
    "power_w": "W",
    "energy_per_sample_j": "J",
    "disk_read_bytes": "bytes",
    **{f"{part}_s": "s" for part in PARTS},
    **{f"{stage}_s": "s" for stage in ("read", "decode", "augment", "collate")},
}
CAPTION = (
    "A bar is one minibatch on the device's time line. Fetch is the time in which the device waited for the loader; "
    "what the loader did behind the other parts takes no time of the device and is not drawn."
)
COLD = (
    "The first epoch begins with none of the files in the page cache; whiskers are 95 % intervals over runs."
)


def wanted(trial: Trial, models: Sequence[str] = (), **_: object) -> bool:
    """Return whether a stored trial belongs to the study's grid."""
    return grid.belongs(trial)


def document(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    left_out: int = 0,
    command: str = "",
) -> doc.Document:
    """Return the study's document; `left_out` results have no place in it."""
    found = list(results)
    cells = table(found)
    failed = [r for r in found if r.status not in GOOD]
    nothing = "" if cells.runs else f"no cell of the study is in this store: {paper.measure}"
    answered = claim.answered(paper, cells, nothing)
    machine = f" on {called(found[0].machine)}" if found else ""
    lost = [f"{r.trial.label}: {r.status.value}: {r.reason}" for r in failed]
    parts = (
        _answer(paper, cells, answered, left_out),
        doc.Figure("parts", "Where a minibatch's time goes", CAPTION, partial(_drawn, "parts", cells))
        if cells.runs
        else None,
        doc.Figure("epochs", "First and later epochs", COLD, partial(_drawn, "epochs", cells))
        if cells.runs
        else None,
        claim.section(paper, answered) if cells.runs else None,
        Section("Every cell", (_cells(cells),), level=MAIN) if cells.runs else None,
        Section("Cells without a figure", (doc.Items(tuple(lost), "", "warnings", DETAIL),), level=DETAIL)
        if lost
        else None,
        _rows(cells),
    )
    data = {"command": command, "claims": claim.plain(answered)}
    return doc.Document(f"{paper.heading}{machine}", parts, data, command)


def table(results: Iterable[Result]) -> Cells:
    """Return the finished runs by cell."""
    found: dict[grid.Place, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.trial.replicate):
        if result.status in GOOD:
            found.setdefault(grid.place(result.trial), []).append(result)
    return Cells(found)


def value(runs: Sequence[Result], name: str) -> Field:
    """Return a metric's mean over the runs of a cell, with its interval from three runs on."""
    return spread([figure(run, name) for run in runs], FIGURES.get(name, "s"))


def words(key: grid.Place) -> str:
    """Return a cell's name."""
    more = "".join(f", {each}" for each in (key.medium, key.mode) if each != "as_is")
    return f"{key.model}, {key.workers} workers, batch {key.batch}{more}, {key.device}"


def _drawn(call: str, cells: Cells) -> Any:
    from edgescope.wings.studies.edge_training import figures  # only a page needs plotly

    return getattr(figures, call)(cells)


def _answer(paper: Paper, cells: Cells, answered: Sequence[claim.Answered], left_out: int) -> doc.Answer:
    if not cells.runs:
        why = f"No finished cell of the study is in this store. Measure: {paper.measure}"
        return doc.Answer("Nothing to judge the claims by", "", (why,), why, kind="none")
    runs = sum(map(len, cells.runs.values()))
    text = f"{runs} runs of {len(cells.runs)} cells; {left_out} other results are left out."
    holds = sum(each.found.answer is Answer.HOLDS for each in answered)
    tiles = (doc.Tile("Cells", len(cells.runs)), doc.Tile("Claims that hold", holds))
    reason = f"{text} {claim.tally(answered, why=True)}."
    return doc.Answer("Claims", claim.tally(answered), (text,), reason, tiles)


def _cells(cells: Cells) -> Table:
    columns = (
        Column("Cell", head="cell"),
        Column("First epoch", "s", "epoch_first_s", "first"),
        Column("Later epochs", "s", "epoch_later_s", "later"),
        Column("Waits for the loader", "share", "stall_share", "waits"),
        Column("Loading hidden", "share", "loader_hidden_share", "hidden", rank=1),
        Column("Energy a sample", "J", "energy_per_sample_j", "energy", rank=2),
    )
    names = ("epoch_first_s", "epoch_later_s", "stall_share", "loader_hidden_share", "energy_per_sample_j")
    rows = [
        Row((words(key), *(value(runs, name) for name in names))) for key, runs in sorted(cells.runs.items())
    ]
    return Table(columns, tuple(rows))


def _rows(cells: Cells) -> Table:
    """Return one row for each cell, for a CSV."""
    heads = (*grid.Place._fields, "runs", *FIGURES)
    rows = [
        Row((*key, len(runs), *(value(runs, name) for name in FIGURES)))
        for key, runs in sorted(cells.runs.items())
    ]
    return Table(tuple(Column(name, key=name) for name in heads), tuple(rows), level=DATA)
