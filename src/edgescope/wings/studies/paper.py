"""Reads published studies: each is a folder of this package, and `edgescope study NAME` finds it without registration.

    paper.toml    [paper] its name on the command line, title, source, boards; [options.NAME] flags of its own;
                  [[number]] its figures, each with its board and its source; [[claim]] what it claims;
                  [[part]] its page: tables and figures as data (page.py)
    study.py      one rule for each claim, under the claim's key (claim.py); a claim with `unmeasured` needs none;
                  and if the study is no sweep over precision, batch, processes and sharing (sweep.py, sweep.toml):
                  wanted(trial, models, ...) -> bool, which stored results belong to it
                  content(paper, results, ...) -> Content, what its page says of them (page.py)
                  planned(paper, ...) -> trials, what --run measures, if `measured_by` is plan

Figures of other boards are shown next to this machine's; no ratio of the two is ever computed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Number:
    """One figure of a paper."""

    model: str
    """'' if the figure is about all models."""
    board: str
    precision: str
    """'' if the paper's precision is unknown."""
    batch: int
    processes: int
    figure: str
    """A metric, or memory_growth or ec_growth (the execution context's) over one process."""
    value: float
    text: str
    known: str
    """confirmed (the paper's own text) or secondary (quoted from it by others)."""
    note: str = ""
    unmeasured: str = ""
    """Why edgescope measures nothing that is comparable; '' if it does."""

    @property
    def source(self) -> str:
        """Return the source of the figure, in words."""
        whence = "the paper's text" if self.known == "confirmed" else "secondary notes that quote the paper"
        return f"{whence}; {self.note}" if self.note else whence

    @property
    def place(self) -> str:
        """Return the cell of the paper that the figure belongs to."""
        t = " ".join(filter(None, [self.model or "all models", self.precision, f"batch {self.batch}"]))
        return f"{t}, P = {self.processes}"


@dataclass(frozen=True)
class Stated:
    """One claim as the paper states it."""

    key: str
    title: str
    says: str
    known: str
    unmeasured: str = ""
    """Why nothing that edgescope measures can answer the claim; '' if something can."""
    boards: Mapping[str, Any] = field(default_factory=dict)
    """For a claim about machines: which, by which figure, and the limit (boards.py)."""


@dataclass(frozen=True)
class Paper:
    """The content of a paper.toml."""

    folder: str
    name: str
    """Its name on the command line of `edgescope study`."""
    summary: str
    title: str
    source: str
    boards: str
    measure: str
    """The command that measures its cells into a store."""
    heading: str = ""
    """Its subject in a few words."""
    method: str = ""
    measured_by: str = ""
    """What --run does for what the store lacks: it calls optimize or ladder, or runs the trials that the study plans
    (`plan`); '' if a sweep measures it."""
    stands_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Model of the paper -> beginnings of the names of the models that represent it here."""
    numbers: tuple[Number, ...] = ()
    claims: tuple[Stated, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Flag of this study -> help, metavar, choices, default, kind."""
    page: Mapping[str, Any] = field(default_factory=dict)
    """The whole file, of a sweep with sweep.toml."""

    def is_of(self, number: Number, model: str) -> bool:
        """Return whether a model of edgescope represents the model of a number."""
        return model.startswith(tuple(self.stands_for.get(number.model, ())) or "\0")

    @property
    def own(self) -> ModuleType:
        """Return the module that knows its results: its own study.py, or sweep."""
        mine = self.judges
        return mine if hasattr(mine, "content") else importlib.import_module(f"{__package__}.sweep")

    @property
    def judges(self) -> ModuleType:
        """Return the module with the rules of its claims."""
        return importlib.import_module(f"{__package__}.{self.folder}.study")


@cache
def paper(folder: str) -> Paper:
    """Return the Paper of a folder."""
    return next(each for each in papers().values() if each.folder == folder)


@cache
def papers() -> Mapping[str, Paper]:
    """Return name -> paper for every folder that has one."""
    homes = importlib.import_module(str(__package__)).__path__
    places = [place for home in homes for place in sorted(Path(home).glob("*/paper.toml"))]
    found = [_read(place.parent.name, place.read_text(encoding="utf-8")) for place in places]
    return {each.name: each for each in found}


@cache
def sweep() -> Mapping[str, Any]:
    """Return what every study that is a sweep has: its flags and its page."""
    return tomllib.loads(Path(__file__).with_name("sweep.toml").read_text(encoding="utf-8"))


def _read(folder: str, text: str) -> Paper:
    found = tomllib.loads(text)
    page = found if "part" in found else {**sweep(), **found}
    return Paper(
        folder,
        **page["paper"],
        numbers=tuple(Number(**n) for n in page.get("number", ())),
        claims=tuple(Stated(**c) for c in page.get("claim", ())),
        options=page.get("options", {}),
        page=page,
    )
