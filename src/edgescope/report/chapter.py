"""Splits results into the chapters of a report: one per model, machine and load, each with its table and its pick.

Numbers of different models, machines or loads do not belong in one table (analysis.cells.row). Results that did
not finish are kept: a chapter with only failures still says what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope import cache, registry, units
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.concurrency import remarks
from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.row import Row, in_words, of_harness, question_id
from edgescope.analysis.cells.variants import Pick, VariantTable, described, pick, table
from edgescope.records import Machine, ModelInfo, Result, Trial, digest
from edgescope.report import document as doc


@dataclass(frozen=True)
class Chapter:
    """All results of one model on one machine under one load, tabulated."""

    model: str
    results: Sequence[Result]
    table: VariantTable
    pick: Pick
    groups: Mapping[str, Sequence[Result]]
    """Cell -> all its results, including those that failed."""
    advises: bool = True
    """Whether to say what more pairs would bound: not where the store answered and nothing was measured."""

    @property
    def machine(self) -> Machine:
        """Return the machine as the newest result describes it."""
        return max(self.results, key=lambda r: r.started_at).machine

    @property
    def info(self) -> ModelInfo | None:
        """Return the facts about the model, or None."""
        return next((r.model for r in self.results if r.model), None)

    @property
    def baseline(self) -> Row:
        """Return the row that speed-ups are relative to."""
        return self.table.row(self.table.baseline)

    @property
    def title(self) -> str:
        """Return `mobilenet_v2 on AMD EPYC 9R14`."""
        return f"{self.model.partition('#')[0]} on {called(self.machine)}"

    @property
    def load(self) -> str:
        """Return the load: `single_stream, batch 4`."""
        return in_words(self.results[0].trial)

    @property
    def measured(self) -> list[Row]:
        """Return the rows with figures, including those of rejected variants."""
        return [row for row in self.table.rows if row.replicates]

    @property
    def alone(self) -> Row | None:
        """Return the variant that has no rival (the only one measured under this load, or the harness), or None."""
        rows = [row for row in self.measured if not row.rejected]
        harness = bool(rows) and all(of_harness(row.trial) for row in rows)
        one = len(self.measured) == 1 and not self.table.screened
        return rows[0] if rows and (one or harness) else None

    @property
    def remarks(self) -> list[str]:
        """Return remarks that compare one way of sharing the device with another at equal cells."""
        return [str(r) for r in remarks(self.results)]

    def first(self, row: Row) -> Result:
        """Return the result that represents a row: a finished replicate if there is one."""
        return next(iter(row.replicates.values()), self.groups[row.cell][0])


def chapters(results: Iterable[Result], wanted: Wanted = FASTEST) -> list[Chapter]:
    """Return one Chapter per (model, machine, load) in order of appearance, grouped by model and machine."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results:
        loads = groups.setdefault((result.trial.model, result.machine.id), {})
        loads.setdefault(question_id(result.trial), []).append(result)
    return [_chapter(group, wanted) for loads in groups.values() for group in loads.values()]


def chapter(results: Sequence[Result], wanted: Wanted = FASTEST) -> Chapter:
    """Return the Chapter of these results, which have one model, machine and load."""
    found = table(results, wanted=wanted)
    return Chapter(results[0].trial.model, results, found, pick(found, wanted.objective), by_cell(results))


def _chapter(results: list[Result], wanted: Wanted) -> Chapter:
    if not registry.scenario(results[0].trial.scenario).timed and wanted.objective == "latency":
        wanted = replace(wanted, objective="throughput")  # offline has no latency
    found = chapter(results, wanted)
    row = found.alone
    return found if row is None else replace(found, pick=Pick(None, _undisputed(row, wanted)))


def _undisputed(row: Row, wanted: Wanted) -> str:
    """Return the figures of a variant without rivals, and why nothing is chosen."""
    why = "Nothing else was measured under this load, so there is nothing to choose."
    if of_harness(row.trial):
        why = "It measures edgescope itself and computes nothing, so there is nothing to choose."
    return f"{described(row, wanted)} {why}"


# -- the user's data and what the network sees of them: facts, and the first few inputs as pictures ---------------
# They are not in a result, which would carry them as often as there are replicates. The process that prepares leaves
# them in the cache (data/dataset_model.py); where they are gone, the page says so.

AT_CHANCE = "W-LABEL-1"
"""The warning that stands before everything else: fp32 is no better than chance on the labels."""
FILES_NAMED = 3
"""Number of files that an answer names."""


def shown_data(trial: Trial) -> Path:
    """Return where the facts and pictures of a trial's data lie."""
    shapes = {name: shape[1:] for name, shape in trial.shapes.items()}
    return cache.root() / "shown" / f"{digest([trial.model, trial.data, trial.preprocess, shapes])}.json"


def doubts(results: Iterable[Result]) -> list[doc.Part]:
    """Return the first lines of an answer where labels are not those of the network; [] where nothing says so."""
    found = dict.fromkeys(str(w) for r in results for w in r.warnings if w.code == AT_CHANCE)
    return [doc.Text(doc.Mark(text, "warn")) for text in found]


def unread(trial: Trial) -> str:
    """Return how many files of a trial's data could not be read, and the first names; '' if all could."""
    names = (cache.read_json(shown_data(trial)) or {}).get("unread", []) if trial.data else []
    if not names:
        return ""
    more = f" and {len(names) - FILES_NAMED} more" if len(names) > FILES_NAMED else ""
    which = f"{', '.join(names[:FILES_NAMED])}{more}"
    return f"{units.counted(len(names), 'input')} of {trial.data.partition('#')[0]} cannot be read: {which}"


def data_section(chapter: Chapter) -> doc.Section | None:
    """Return the section on a chapter's data; None for a model's own inputs."""
    trial = chapter.results[0].trial
    if not trial.data:
        return None
    about = cache.read_json(shown_data(trial))
    ways = dict.fromkeys(r.model.prepared for r in chapter.results if r.model and r.model.prepared)
    prepared = doc.Pairs(tuple(("prepared", way) for way in ways), level=doc.DETAIL) if ways else None
    if about is None:
        gone = f"{trial.data}: its pictures are no longer in the cache of this machine."
        return doc.Section("Your data", (prepared, doc.Text(gone, "lead", doc.PAGE)), level=doc.DETAIL)
    facts = doc.Pairs(tuple((key, value) for key, value in about["facts"]), level=doc.DETAIL)
    pictures = doc.Pictures(tuple((one["png"], one["caption"]) for one in about["pictures"]))
    return doc.Section(
        "Your data", (facts, prepared, pictures if about["pictures"] else None), level=doc.DETAIL
    )
