"""The cells of the study: whole chains as trials of the workload `video`, what was measured, what its page says of it.

engines   the study's own chain, the form that its boards ran, in each engine, in rounds of fresh processes
shapes    snippets that the head looks at x frames of a snippet
views     one crop against ten
chains    the other chains in one engine
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgescope.analysis.cells.replicates import above, across, quotient
from edgescope.analysis.cells.row import Row
from edgescope.records import Absent, Field, Json, Measured, Result, Status, Trial
from edgescope.records.answers import plain
from edgescope.report import document as doc
from edgescope.units import show
from edgescope.wings.studies import boards, claim
from edgescope.wings.studies.boards import MEMORY, Entry
from edgescope.wings.studies.claim import Found, Voice, heard, held, unknown
from edgescope.wings.studies.page import Content, Reading, of_trial, reasons, where
from edgescope.wings.studies.paper import Paper

PARTS = ("engines", "shapes", "views", "chains")
ROUNDS = 3
"""Runs of each engine; the other parts differ by so much that one run shows it."""
SNIPPETS, FRAMES = 32, 16
GOOD = (Status.OK, Status.UNSTABLE)
FIGURES = ("throughput_sps", MEMORY, "power_w", "energy_per_sample_j")
STAGES = ("decode", "preprocess", "infer", "score", "alarm")
AUC = ("UCF-Crime", "XD-Violence", "MSAD")
"""The data sets of the published AUC, in the order of paper.toml."""
UNSAID = Absent("not in the study's text")
TIMES: Mapping[str, Any] = {"warmup": 1.0, "min_s": 4.0, "max_s": 6.0}


@dataclass
class Cell:
    """One cell: what it varies, its trial, and its results."""

    part: str
    chain: str
    """The title of its chain."""
    trial: Trial
    snippets: int = SNIPPETS
    frames: int = FRAMES
    views: int = 1
    runs: list[Result] = field(default_factory=list)
    problem: str = ""
    """Why it did not run, as far as it was tried."""

    def has(self, wish: Mapping[str, int]) -> bool:
        """Return whether it is the cell with these snippets, frames or views."""
        return all(getattr(self, name) == value for name, value in wish.items())

    @property
    def engine(self) -> str:
        """Return its engine and precision."""
        return f"{self.trial.backend} {self.trial.precision}"

    def __getitem__(self, name: str) -> Field:
        """Return one figure over its runs."""
        if not self.runs:
            return Absent(self.problem or "not measured")
        return boards.memory(self.runs) if name == MEMORY else across(self.runs, name)

    @property
    def fps(self) -> Field:
        """Return its frames per second."""
        rate = self["throughput_sps"]
        return replace(rate, unit="frames/s") if isinstance(rate, Measured) else rate

    @property
    def row(self) -> Row:
        """Return it as a row of evidence."""
        first = self.runs[0]
        return Row(trial=first.trial, status=first.status, verdict=first.verdict, metrics=first.metrics)


@dataclass(frozen=True)
class Cells:
    """Every cell of the study on one device."""

    every: tuple[Cell, ...]

    def of(self, part: str) -> list[Cell]:
        """Return the cells of one part."""
        return [cell for cell in self.every if cell.part == part]

    @property
    def fastest(self) -> Cell | None:
        """Return the engine of the study's chain with most frames per second; None if none ran."""
        ran = [cell for cell in self.of("engines") if not isinstance(cell["throughput_sps"], Absent)]
        return max(ran, key=lambda cell: cell.runs[0].value("throughput_sps"), default=None)


def gain(over: Cell, under: Cell) -> Field:
    """Return the frames per second of one cell over another's."""
    if not over.runs or not under.runs:
        return Absent("not measured")
    return quotient(over.runs, under.runs, "throughput_sps")


def planned(paper: Paper, *, device: str = "cpu", source: str = "", part: str = "all") -> list[Trial]:
    """Return the trials to measure, engines in rounds."""
    cells = [cell for cell in _cells(paper, device, source) if part in ("all", cell.part)]
    found = [
        replace(cell.trial, replicate=number)
        for number in range(ROUNDS)
        for cell in cells
        if cell.part == "engines"
    ]
    return list(dict.fromkeys([*found, *(cell.trial for cell in cells)]))


def measured(paper: Paper, results: Sequence[Result], device: str, source: str = "") -> Cells:
    """Return the cells with those of the results that belong to them."""
    cells = _cells(paper, device, source)
    for result in results:
        asked = question(result.trial)
        for cell in cells:
            if question(cell.trial) == asked:
                if result.status in GOOD:
                    cell.runs.append(result)
                else:
                    cell.problem = str(result.reason or result.status.value)
    return Cells(tuple(cells))


def _cells(paper: Paper, device: str, source: str) -> list[Cell]:
    page = paper.page
    chains, usual = {row["key"]: row for row in page["chain"]}, page["usual"]
    engine = usual[device]

    def cell(part: str, key: str, engine: Mapping[str, Any], **shape: Any) -> Cell:
        row = chains[key]
        made = Cell(part, row["title"], _trial(row, device, source, engine, **shape))
        return replace(made, **shape)

    return [
        *(cell("engines", page["usual"]["study"], each) for each in page["engines"][device]),
        *(
            cell("shapes", "rtfm", engine, snippets=snippets, frames=frames)
            for frames in usual["frames"]
            for snippets in usual["snippets"]
        ),
        *(cell("views", "rtfm", engine, views=views) for views in usual["views"]),
        *(cell("chains", key, engine) for key in chains),
    ]


def _trial(
    chain: Mapping[str, Any],
    device: str,
    source: str,
    engine: Mapping[str, Any],
    *,
    snippets: int = SNIPPETS,
    frames: int = FRAMES,
    views: int = 1,
) -> Trial:
    options: dict[str, Any] = {"head": chain["head"], "preprocess": "host", "decode": "scaled"}
    options |= {"source": source} if source else {}
    options |= {"snippets": snippets} if snippets != SNIPPETS else {}
    options |= {"views": views} if views != 1 else {}
    shapes = {} if frames == FRAMES else {"input": (1, 3, frames, 224, 224)}
    return Trial(
        model=chain["features"],
        device=device,
        workload="video",
        workload_options=options,
        shapes=shapes,
        batch=views,
        **engine,
        **TIMES,
    )


def question(trial: Trial) -> tuple[Any, ...]:
    """Return what makes two trials the same cell, whatever their film's pin and their replicate."""
    options = {k: str(v).partition("#")[0] for k, v in trial.workload_options.items()}
    return (
        trial.model.partition("#")[0],
        trial.device,
        trial.backend,
        trial.precision,
        trial.batch,
        trial.in_flight,
        tuple(sorted(options.items())),
        tuple(sorted(trial.shapes.items())),
    )


# -- what the page says --------------------------------------------------------------------------------------


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial may belong to the study on a device."""
    return trial.device == device and "head" in trial.workload_options


def content(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    source: str = "",
    part: str = "all",
    left_out: int = 0,
) -> Content:
    """Return what the page says; `part` matters for --run alone, `left_out` results have no place in it."""
    known = list(results)
    cells = measured(paper, known, device, source)
    title = paper.heading + where(known[0].machine if known else None)
    best = cells.fastest
    entries = [_entry(best)] if best else []
    found = boards.answered(paper, cells, boards.alone(known, entries), "" if best else NOTHING)
    failed = {"failed": reasons(known, of_trial)}
    if best is None:
        none = f"No whole chain on {device} is in this store. Measure: {paper.measure} --device {device} --part engines"
        answer = doc.Answer("Nothing measured", "", (none,), none, kind="none")
        return Content(title, answer, lines=failed, claims=found, data={"cells": []})
    answers = list(_answers(paper, cells))
    short = (
        f"{best.chain}, {best.frames} frames a snippet, {SNIPPETS} snippets: {show(best.fps)}",
        claim.tally(found, why=True),
        *answers,
    )
    tiles = (doc.Tile("Frames per second", best.fps), doc.Tile("Memory", best[MEMORY]))
    return Content(
        title=title,
        answer=doc.Answer("The fastest engine here", best.engine, short, ". ".join(short), tiles),
        rows={
            "engines": [*_engines(cells), *_boards(paper)],
            "shapes": _shapes(cells),
            "views": [_reading(cell) for cell in cells.of("views") if cell.runs],
            "chains": _chains(paper, cells),
        },
        lines={
            "stages": STAGES,
            "auc": AUC,
            "snippets": paper.page["usual"]["snippets"],
            **failed,
            "answers": answers,
        },
        claims=found,
        words={"ran": _ran(paper)},
        data={"cells": [_plain(cell) for cell in cells.every], "claims": claim.plain(found)},
        entries=entries,
        printed=_printed(paper, best.chain),
    )


def _entry(best: Cell) -> Entry:
    """Return the study's chain in the engine that is fastest on this machine."""
    return boards.entry(best.chain, best.engine, best.runs, {"throughput_sps": best.fps})


def _answers(paper: Paper, cells: Cells) -> Iterator[str]:
    """Yield what the sweeps say to the questions that the study leaves open."""
    for question in paper.page["question"]:
        over, under = (
            next((c for c in cells.of(question["part"]) if c.runs and c.has(question[side])), None)
            for side in ("over", "under")
        )
        if over and under:
            ratio = over.runs[0].value("throughput_sps") / under.runs[0].value("throughput_sps")
            yield f"{question['says']}: {ratio:.2f}x of the frames/s"


def _reading(cell: Cell) -> Reading:
    crops = f"{cell.views} crop{'s' if cell.views > 1 else ''}"
    stages = {f"{name}_s": cell[f"{name}_s"] for name in STAGES}
    return {
        "engine": cell.engine,
        "chain": cell.chain,
        "crops": crops,
        **stages,
        **{n: cell[n] for n in FIGURES},
        "throughput_sps": cell.fps,
    }


def _engines(cells: Cells) -> Iterator[Reading]:
    engines = cells.of("engines")
    eager = next((cell for cell in engines if cell.trial.backend == "torch_eager"), None)
    for cell in engines:
        over = Absent("it is PyTorch") if eager is None or cell is eager else gain(cell, eager)
        yield {**_reading(cell), "gain": over}


def _boards(paper: Paper) -> Iterator[Reading]:
    """Yield the study's boards with what its text says of them."""
    units = {column["key"]: column["unit"] for column in paper.page["figures"]}
    for board in dict.fromkeys(number.board for number in paper.numbers):
        mine = (number for number in paper.numbers if number.board == board)
        known = {number.figure: Measured(number.value, units[number.figure]) for number in mine}
        names = (*FIGURES, "gain", *(f"{stage}_s" for stage in STAGES))
        yield {"engine": f"{board} (study)", "look": "dim", **{n: known.get(n, UNSAID) for n in names}}


def _printed(paper: Paper, chain: str) -> list[tuple[str, Entry]]:
    """Return what the study's text says of each of its boards."""
    return [
        (str(row["engine"]).removesuffix(" (study)"), Entry(chain, "", {n: row[n] for n in FIGURES}))
        for row in _boards(paper)
    ]


def _ran(paper: Paper) -> str:
    """Return which network stands in the table of engines: the boards' own."""
    chain = next(row for row in paper.page["chain"] if row["key"] == paper.page["usual"]["study"])
    boards = ", ".join(dict.fromkeys(number.model for number in paper.numbers))
    return f"{chain['features']} + {chain['head']} here, {boards} on the boards"


def _shapes(cells: Cells) -> list[Reading]:
    """Return a row for each number of frames with the rate at each number of snippets; none if no shape ran."""
    rows: dict[int, dict[str, Any]] = {}
    mine = cells.of("shapes")
    for cell in sorted(mine, key=lambda cell: cell.frames):
        row = rows.setdefault(cell.frames, {"frames": str(cell.frames)})
        row[f"snippets_{cell.snippets}"] = cell["throughput_sps"]
    return list(rows.values()) if any(cell.runs for cell in mine) else []


def _chains(paper: Paper, cells: Cells) -> list[Reading]:
    """Return the chains with the AUC that was published of each; none if no chain ran."""
    auc = {row["title"]: row["auc"] or [None] * len(AUC) for row in paper.page["chain"]}
    mine = cells.of("chains")
    rows: list[Reading] = [
        {**_reading(cell), **dict(zip(AUC, map(_share, auc[cell.chain]), strict=True))} for cell in mine
    ]
    return rows if any(cell.runs for cell in mine) else []


def _share(per_cent: float | None) -> Field:
    return Absent("not published") if per_cent is None else Measured(per_cent / 100, "share")


def _plain(cell: Cell) -> dict[str, Json]:
    names = ("part", "chain", "engine", "snippets", "frames", "views")
    return {
        **{name: getattr(cell, name) for name in names},
        "runs": len(cell.runs),
        **{name: plain(cell[name]) for name in (*FIGURES, *(f"{stage}_s" for stage in STAGES))},
        "trial": cell.trial.label,
        "question": str(question(cell.trial)),
    }


# -- how the claims are judged that this machine alone can answer ---------------------------------------------


CAMERA_FPS, MEMORY_BYTES = 30.0, 3.11e9
NOTHING = "no engine ran the chain"


def real_time(cells: Cells) -> Found:
    """The fastest engine does 30 frames/s or more."""
    best = cells.fastest
    if best is None:
        return unknown(NOTHING)
    rate = best.fps
    text = f"{best.engine}: {show(rate)}, a camera gives {CAMERA_FPS:g} frames/s"
    holds = above(rate, CAMERA_FPS, exact=True)
    if holds is None and isinstance(rate, Measured) and rate.value < CAMERA_FPS / 2:
        holds = False
    return heard([Voice(holds, text, [best.row])], "chain", NOTHING)


def optimised(cells: Cells) -> Found:
    """Every optimising engine beats PyTorch as it is, in the same precision."""
    engines = cells.of("engines")
    voices = [
        held(gain(cell, eager), (f"{cell.engine}: ", f" of {eager.engine}"), [cell.row, eager.row])
        for eager in engines
        if eager.trial.backend == "torch_eager" and eager.runs
        for cell in engines
        if cell.runs and cell.trial.backend != "torch_eager" and cell.trial.precision == eager.trial.precision
    ]
    found = [voice for voice in voices if voice is not None]
    return heard(found, "engines", "PyTorch and another engine are needed", "frames/s over PyTorch's")


def memory(cells: Cells) -> Found:
    """No engine's chain takes more than 3.11 GB, the GPU's share included where it is the same memory."""
    voices = []
    for cell in cells.of("engines"):
        if isinstance(peak := cell[MEMORY], Measured):
            ratio = Measured(peak.value / MEMORY_BYTES, "1")
            voice = held(ratio, (f"{cell.engine}: ", " of 3.11 GB"), [cell.row], rises=False, exact=True)
            fits = peak.value <= MEMORY_BYTES
            voices.append(
                Voice(fits, f"{cell.engine}: {show(peak)}", [cell.row], ratio.value)
                if voice is None
                else voice
            )
    return heard(voices, "engines", NOTHING, "memory over 3.11 GB", read_off=True)
