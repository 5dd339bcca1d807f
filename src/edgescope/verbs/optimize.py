"""Find the fastest way to run a model that still gives the right answers: `edgescope.optimize(model)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import Wanted, wanted
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import Pick, VariantTable
from edgescope.models import zoo
from edgescope.records import Answer, Json, Result, Scalar, Trial
from edgescope.records.answers import plain
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.scenarios import settings
from edgescope.search import candidates, halving, start
from edgescope.search.candidates import NotHere, Proposal
from edgescope.search.loop import Loop
from edgescope.study import ranges

WINDOW = {"min_s": 1.0, "max_s": 2.5}
"""Shortest and longest window of a search in seconds, unless the trial sets them."""


@dataclass(frozen=True, repr=False)
class Optimized(Answer):
    """The variants that were compared, and the one to use."""

    table: VariantTable
    pick: Pick
    results: tuple[Result, ...]
    not_here: tuple[NotHere, ...]
    """Candidates that cannot run here, each with the reason and the fix."""

    def lines(self) -> Iterator[str]:
        """Yield the pick, then one line for each variant."""
        yield f"pick: {self.pick.row.label if self.pick.row else 'none'}. {self.pick.reason}"
        yield from (f"  {row_line(row)}" for row in self.table.rows)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each variant."""
        return [row_of(row) for row in self.table.rows]

    def save(self, folder: Path | str) -> Path | None:
        """Write the pick's model file, run.py and card into a folder; return its path, or None if there is no pick."""
        from edgescope.deploy.save import save

        cell = self.pick.row.cell if self.pick.row else ""
        chosen = [r for r in self.results if r.trial.cell == cell]
        return save(chosen, list(self.results), Path(folder), wanted=self.table.wanted) if chosen else None


def row_line(row: Row) -> str:
    """Return a cell in one line: its name, p50, and why it was rejected."""
    timed = plain(row["p50"])
    figure = "" if timed is None else f"  p50 {timed * 1e3:.4g} ms"
    return f"{row.label}{figure}{f'  ({row.rejected})' if row.rejected else ''}"


def row_of(row: Row) -> dict[str, Json]:
    """Return a cell as a row of a data frame: model, label, status, and the value of every metric by its name."""
    about = {"model": row.trial.model.partition("#")[0], "label": row.label, "status": row.status.value}
    figures = {name: plain(field) for name, field in row.metrics.items()}
    return about | {"verdict": row.verdict.trust.value, "rejected": row.rejected} | figures


def optimize(
    model: str,
    *,
    objective: str = "latency",
    constraints: Sequence[str] = (),
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
    rounds: int = 5,
    exhaustive: bool = False,
    cached: bool = True,
    store: Stored = None,
    setup: Setup = Setup(),
    **trial: Any,
) -> Optimized:
    """Compare engines and precisions on a model, each verified against fp32; return the table and the pick.

    `backend`, `precision` and `exclude` select candidates; every other key is a key of Trial and applies to all of
    them. `exhaustive` leaves out the short rounds, `cached=False` measures again what the store holds.
    """
    goals, there = wanted(objective, constraints), candidates.installed()
    proposal = proposed(base(model, trial), backend, precision, exclude)
    plan = halving.Rounds(rounds, proposal.trials[0].seed, short=0 if exhaustive else 2)
    question = ["optimize", [t.id for t in proposal.trials], objective, list(constraints), rounds, exhaustive]
    with start.counting(setup, store_of(store), question, cached=cached) as cells:
        loop = Loop(cells, setup.tell)
        strategy = halving.halving(
            proposal.trials, wanted=goals, rounds=plan, instead=lambda t: candidates.mixture(t, there)
        )
        results = tuple(loop.run(strategy))
    if loop.note:
        setup.tell(loop.note)
    return answered(results, goals, proposal.not_here)


def answered(results: Sequence[Result], goals: Wanted, not_here: tuple[NotHere, ...] = ()) -> Optimized:
    """Return the answer to one optimisation, computed from its results."""
    table = variants.table(results, wanted=goals)
    return Optimized(table, variants.pick(table, goals.objective), tuple(results), not_here)


def base(model: str, trial: Mapping[str, Any]) -> Trial:
    """Return the Trial that all candidates share: these keys, on the usual device unless they name one."""
    keys = {**WINDOW, **trial}
    keys["device"] = keys.get("device") or candidates.usual_device(model)
    return ranges.checked(settings.checked(Trial(model=zoo.pin(model), **keys)))


def proposed(
    of: Trial,
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
) -> Proposal:
    """Return the candidates that can run here; UnavailableError if there are none."""
    there = candidates.installed()
    return candidates.propose(of, there, backend=backend, precision=precision, exclude=exclude).possible()
