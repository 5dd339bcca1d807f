"""Splits results into the chapters of a report: one per model, machine and load, each with its table and its pick.

Numbers of different models, machines or loads do not belong in one table (analysis.cells.grouping). Results that did
not finish are kept: a chapter with only failures still says what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgescope import registry
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.row import Row, in_words, of_harness, question_id
from edgescope.analysis.cells.sharing_gain import remarks
from edgescope.analysis.cells.variants import Pick, VariantTable, described, pick, table
from edgescope.records import Machine, ModelInfo, Result


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
