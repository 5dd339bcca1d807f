"""Find the fastest way to run a model that still gives the right answers: `edgescope.optimize(model)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.objective import Wanted, least_share, wanted
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import Pick, VariantTable
from edgescope.data import opening
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Answer, Json, Result, Scalar, Trial
from edgescope.records.answers import plain
from edgescope.registry import need
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.scenarios import settings
from edgescope.search import candidates, halving, start
from edgescope.search.candidates import NotHere, Proposal
from edgescope.search.loop import Loop
from edgescope.study import grid, ranges
from edgescope.verify import metric_names

if TYPE_CHECKING:
    from edgescope.report.chapter import Chapter

WINDOW = {"min_s": 1.0, "max_s": 2.5}
"""Shortest and longest window of a search in seconds, unless the trial sets them."""


@dataclass(frozen=True, repr=False)
class Optimized(Answer):
    """The variants that were compared, and the one to use; a notebook shows it as a table."""

    variants: VariantTable
    pick: Pick
    results: tuple[Result, ...]
    not_here: tuple[NotHere, ...]
    """Candidates that cannot run here, each with the reason and the fix."""

    def lines(self) -> Iterator[str]:
        """Yield the pick, then one line for each variant."""
        yield f"pick: {self.pick.row.label if self.pick.row else 'none'}. {self.pick.reason}"
        yield from (f"  {row_line(row)}" for row in self.variants.rows)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each variant."""
        return [row_of(row) for row in self.variants.rows]

    @property
    def table(self) -> Any:
        """Return one row for each variant, as a pandas or Polars data frame."""
        return self.frame()

    @property
    def chapter(self) -> Chapter:
        """Return what a report of it is about."""
        from edgescope.report.chapter import Chapter

        return Chapter(
            self.results[0].trial.model, self.results, self.variants, self.pick, by_cell(self.results)
        )

    def _repr_html_(self) -> str:
        from edgescope.report import variants as page
        from edgescope.report.render import html

        table = (page.comparison(self.chapter),) if self.chapter.measured else ()
        return html.fragment((page.answer(self.chapter), *table))

    def report(self, path: Path | str = "report.html") -> Path:
        """Write the report (.html, .md or .csv) and return its path."""
        from edgescope.report import write

        return write(self.results, Path(path), wanted=self.variants.wanted)

    def save(self, folder: Path | str) -> Path | None:
        """Write the pick's model file, run.py and card into a folder; return its path, or None if there is no pick."""
        from edgescope.deploy.save import save

        cell = self.pick.row.cell if self.pick.row else ""
        chosen = [r for r in self.results if r.trial.cell == cell]
        return save(chosen, list(self.results), Path(folder), wanted=self.variants.wanted) if chosen else None


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
    model: str | Path | Callable[..., Any],
    example_inputs: Any = None,
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

    `model` is a name, a file, or a network (nn.Module, function) with `example_inputs` as edgescope.live takes them.
    `backend`, `precision` and `exclude` select candidates; every other key is a key of Trial and applies to all of
    them. `exhaustive` leaves out the short rounds, `cached=False` measures again what the store holds.
    """
    goals, there = wanted(objective, constraints), candidates.installed()
    trial["min_accuracy"] = least_share(goals.constraints, trial.get("min_accuracy"))
    model = named(model, example_inputs)
    proposal = proposed(base(model, trial), backend, precision, exclude)
    plan = halving.Rounds(rounds, proposal.trials[0].seed, short=0 if exhaustive else 2)
    if said := zoo.asks_for_data(model, proposal.trials[0].data):
        setup.tell(said)
    question = ["optimize", [t.id for t in proposal.trials], objective, list(constraints), rounds, exhaustive]
    with start.counting(setup, store_of(store), question, cached=cached) as cells:
        loop = Loop(cells, setup.tell)
        strategy = halving.halving(
            proposal.trials, wanted=goals, rounds=plan, instead=lambda t: candidates.instead(t, there)
        )
        results = tuple(loop.run(strategy))
    if loop.note:
        setup.tell(loop.note)
    return answered(results, goals, proposal.not_here)


def named(model: str | Path | Callable[..., Any], example_inputs: Any = None) -> str:
    """Return the name of a model; a network is kept in the cache. UsageError for inputs too many or too few."""
    is_name = isinstance(model, str | Path)
    if is_name != (example_inputs is None):
        said = "names its inputs itself" if is_name else "has no example inputs"
        raise UsageError(
            "E-LIVE-4",
            f"the model {model if is_name else type(model).__name__} {said}",
            effect="Nothing was measured",
            fix="optimize('model.onnx'), or optimize(network, torch.randn(1, 3, 224, 224))",
        )
    if isinstance(model, str | Path):
        return str(model)
    live = need("edgescope.models.user.live:live", "PyTorch", "pip install 'edgescope[torch]'")
    kept: str = live(model, example_inputs)
    return kept


def answered(results: Sequence[Result], goals: Wanted, not_here: tuple[NotHere, ...] = ()) -> Optimized:
    """Return the answer to one optimisation, computed from its results."""
    table = variants.table(results, wanted=goals)
    return Optimized(table, variants.pick(table, goals.objective), tuple(results), not_here)


def base(model: str, trial: Mapping[str, Any]) -> Trial:
    """Return the Trial that all candidates share: these keys, on the usual device unless they name one."""
    keys = {**WINDOW, **trial, "data": opening.name_of(trial.get("data") or "")}
    keys["metric"] = metric_names.named(trial.get("metric") or "")
    keys["device"] = keys.get("device") or candidates.usual_device(model)
    return grid.pinned(ranges.checked(settings.checked(Trial(model=model, **keys))), zoo.pin)


def proposed(
    of: Trial,
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
) -> Proposal:
    """Return the candidates that can run here; UnavailableError if there are none."""
    there = candidates.installed()
    return candidates.propose(of, there, backend=backend, precision=precision, exclude=exclude).possible()
