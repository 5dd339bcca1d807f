"""The cells of the study: whole chains as trials of the workload `video`, and what was measured of each.

engines   the study's own chain, the form that its boards ran, in each engine, in rounds of fresh processes
shapes    snippets that the head looks at x frames of a snippet
views     one crop against ten
chains    the other chains in one engine
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgescope.analysis.cells.replicates import across, quotient
from edgescope.analysis.cells.row import Row
from edgescope.records import Absent, Field, Measured, Result, Status, Trial
from edgescope.wings.studies.paper import Paper

PARTS = ("engines", "shapes", "views", "chains")
ROUNDS = 3
"""Runs of each engine; the other parts differ by so much that one run shows it."""
SNIPPETS, FRAMES = 32, 16
MEMORY, UNIFIED = "memory_bytes", "unified_memory_bytes"
GOOD = (Status.OK, Status.UNSTABLE)
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

    @property
    def engine(self) -> str:
        """Return its engine and precision."""
        return f"{self.trial.backend} {self.trial.precision}"

    def __getitem__(self, name: str) -> Field:
        """Return one figure over its runs."""
        if not self.runs:
            return Absent(self.problem or "not measured")
        return self._memory() if name == MEMORY else across(self.runs, name)

    def _memory(self) -> Field:
        """Return the memory that the chain takes of the one memory there is, where CPU and GPU share it."""
        unified = [r for r in self.runs if UNIFIED in r.metrics or "jetson" in r.machine.stable]
        if self.trial.device == "cpu" or not unified:
            return across(self.runs, "peak_rss_bytes")
        found = across(self.runs, UNIFIED)
        if isinstance(found, Measured):
            return found
        return Absent(f"what CPU and GPU took of their memory was not measured ({found.reason})")

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
