"""What a report is about: one chapter per model and machine, each with its table and its pick.

Numbers of different models or machines do not belong in one table. Results that did not finish keep their
place: a chapter of failures alone is still a chapter that says what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgescope.analysis.compare import by_cell
from edgescope.analysis.machines import called
from edgescope.analysis.objective import FASTEST, Wanted
from edgescope.analysis.remarks import remarks
from edgescope.analysis.variants import Pick, VariantRow, VariantTable, pick, table
from edgescope.records import Machine, ModelInfo, Result


@dataclass(frozen=True)
class Chapter:
    """All results of one model on one machine, tabulated."""

    model: str
    results: Sequence[Result]
    table: VariantTable
    pick: Pick
    groups: Mapping[str, Sequence[Result]]
    """Cell -> all its results, those that failed included."""

    @property
    def machine(self) -> Machine:
        """The machine, as the newest result describes it."""
        return max(self.results, key=lambda r: r.started_at).machine

    @property
    def info(self) -> ModelInfo | None:
        """What is known of the model, or None."""
        return next((r.model for r in self.results if r.model), None)

    @property
    def baseline(self) -> VariantRow:
        """The row that speed-ups are relative to."""
        return self.table.row(self.table.baseline)

    @property
    def title(self) -> str:
        """Return `mobilenet_v2 on AMD EPYC 9R14`."""
        return f"{self.model} on {called(self.machine)}"

    @property
    def remarks(self) -> list[str]:
        """What is worth saying unasked: one way of sharing the device against another at equal cells."""
        return [str(r) for r in remarks(self.results)]

    def first(self, row: VariantRow) -> Result:
        """The result that speaks for a row: a finished replicate where there is one."""
        return next(iter(row.replicates.values()), self.groups[row.cell][0])


def chapters(results: Iterable[Result], wanted: Wanted = FASTEST) -> list[Chapter]:
    """Return one Chapter per (model, machine), in order of first appearance; empty for no results."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.trial.model, result.machine.id), []).append(result)
    return [_chapter(model, group, wanted) for (model, _), group in groups.items()]


def _chapter(model: str, results: list[Result], wanted: Wanted) -> Chapter:
    found = table(results, wanted=wanted)
    return Chapter(model, results, found, pick(found, wanted.objective), by_cell(results))
