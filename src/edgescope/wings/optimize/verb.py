"""Find the fastest way to run a model that still gives the right answers: `edgescope.optimize(model)`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import units
from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.objective import FASTEST, Wanted, least_share, wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.cells.row import row_line, row_of
from edgescope.analysis.cells.variants import Pick, VariantTable
from edgescope.data import dataset_model, opening
from edgescope.errors import UsageError, is_wrong_request
from edgescope.models import zoo
from edgescope.records import Answer, Json, Measured, Result, Scalar, Status, Trial
from edgescope.registry import need
from edgescope.runner.run import UNJUDGED, ExperimentRunner
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.scenarios.base import checked as checked_load
from edgescope.search import candidates
from edgescope.search.candidates import NotHere, Proposal
from edgescope.search.loop import Loop, Spent, counting
from edgescope.study import grid, rules
from edgescope.verify import metric_names
from edgescope.wings.optimize import racing

if TYPE_CHECKING:
    from edgescope.report.chapter import Chapter

TURNS = {"turn_s": 0.05, "min_s": 0.7, "max_s": 0.7}
"""Seconds of a turn, and of all turns of one process of a pair.

No length from 0.05 to 0.2 s was clearly better than the others (benchmarks/pairs.py turn_length); short ones leave a
pair of 0.7 s enough blocks. A turn is at least as long as two queries.
"""
BUDGET_S = 90.0
LEFT_OUT = "the budget left no time to try it"


@dataclass(frozen=True, repr=False)
class Optimized(Answer):
    """The variants that were compared, and the one to use; a notebook shows it as a table."""

    variants: VariantTable
    pick: Pick
    results: tuple[Result, ...]
    not_here: tuple[NotHere, ...]
    """Candidates that cannot run here or were not reached, with the reason and what would change that."""
    measured: bool = True
    """Whether anything was measured for it: False where the store held every run."""

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

        model, groups = self.results[0].trial.model, by_cell(self.results)
        return Chapter(model, self.results, self.variants, self.pick, groups, advises=self.measured)

    def _repr_html_(self) -> str:
        from edgescope.report import html
        from edgescope.report import variants as page

        table = (page.comparison(self.chapter),) if self.chapter.measured else ()
        return html.fragment((page.answer(self.chapter), *table))

    def report(self, path: Path | str = "report.html") -> Path:
        """Write the report (.html, .md or .csv) and return its path."""
        from edgescope.report import write

        return write(self.results, Path(path), wanted=self.variants.wanted, missing=self.not_here)

    def save(self, folder: Path | str) -> Path | None:
        """Write the pick's model file, run.py and card into a folder; return its path, or None if there is no pick."""
        from edgescope.wings.optimize.save import save

        cell = self.pick.row.cell if self.pick.row else ""
        chosen = [r for r in self.results if r.trial.cell == cell]
        return save(chosen, list(self.results), Path(folder), wanted=self.variants.wanted) if chosen else None


def optimize(
    model: str | Path | Callable[..., Any],
    example_inputs: Any = None,
    *,
    objective: str = "latency",
    constraints: Sequence[str] = (),
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
    budget: float | str | None = BUDGET_S,
    exhaustive: bool = False,
    cached: bool = True,
    store: Stored = None,
    setup: Setup = Setup(),
    **trial: Any,
) -> Optimized:
    """Compare engines and precisions on a model, each verified against fp32; return the table and the pick.

    `model` is a name, a file, or a network (nn.Module, function) with `example_inputs` as edgescope.live takes them.
    `budget` is the time that it may take, in seconds or as "90s" (None: as long as it needs). `backend`, `precision`
    and `exclude` select candidates; every other key is a key of Trial and applies to all of them. `exhaustive` leaves
    out the screening, `cached=False` measures again what the store holds.
    """
    begin = time.monotonic()
    budget = units.seconds(budget) if isinstance(budget, str) else budget
    goals, cells = wanted(objective, constraints), setup.cells(store_of(store))
    trial["min_accuracy"] = least_share(goals.constraints, trial.get("min_accuracy"))
    model = named(model, example_inputs)
    of = base(model, trial, goals)
    dataset_model.checked(of)
    propose = partial(proposed, of, backend, precision, exclude, piled=goals.goal.name == "throughput_sps")
    look, proposal = _begin(of, propose, cells, setup)
    there = candidates.installed()
    if said := zoo.asks_for_data(model, proposal.trials[0].data):
        setup.tell(said)
    question = ["optimize", [t.id for t in proposal.trials], objective, list(constraints), exhaustive]
    with counting(cells, question, cached=cached):
        loop = Loop(cells, setup.tell)
        before = Spent(cells, question, anew=not cached)
        plan = racing.Budget(
            None if exhaustive else budget,
            proposal.trials[0].seed,
            exhaustive,
            begun=begin,
            before=before.seconds,
            known=lambda step: loop.known(step) is not None,
        )
        race = racing.Race(
            goals,
            plan,
            instead=lambda t: candidates.instead(t, there),
            by_hand=lambda t: candidates.by_hand(t, there),
            look=look,
        )
        results: list[Result] = []
        for result in loop.run(race.run(proposal.trials)):
            if result.status is Status.CANCELLED:  # the race names it, or the other side of its pair
                continue
            results.append(result)
            if loop.measured:  # what only reads the store spends nothing
                before.keep(time.monotonic() - begin)
            if words := so_far(results, race.screened[0] if race.screened else results[0]):
                setup.tell(words)
    if loop.note:
        setup.tell(loop.note)
    left_out = unreached(race.unreached, race.enough_s)
    return replace(answered(tuple(results), goals, (*proposal.not_here, *left_out)), measured=loop.measured)


def _begin(
    of: Trial, propose: Callable[[], Proposal], cells: ExperimentRunner, setup: Setup
) -> tuple[Result | None, Proposal]:
    """Look at the likely baseline and build it, unless the store has a result of it, and find out what is installed.

    Return the look if it has a figure, and what there is to try. It is measured alone, before data are read and
    references computed; the engines are found while it loads. What is tried next is built beside the baseline.
    """
    first, seen, words = candidates.propose(of).trials[0], None, ""
    likely = racing.short(first, 0)
    new = not cells.store.names(cells.where, likely.id)
    if new:
        with setup.waiting(f"looking at {likely.label}, and at which engines are installed"):
            seen = cells.look(unjudged(likely), meanwhile=candidates.installed)
    if seen is not None and (words := first_look(seen)):
        setup.tell(words)
    dataset_model.checked(of)  # the inputs of a callable are known once it ran
    with nullcontext() if seen else setup.waiting("checking which engines are installed"):
        found = propose()
    cells.expect([first])
    if new:
        cells.builds.build([likely, *racing.in_order(found.trials, of.seed)[:2]])
        failed = cells.builds.failure(likely)
        if failed is not None and failed.reason is not None and is_wrong_request(failed.reason):
            raise UsageError.of(failed.reason)
    return seen if words else None, found


def unjudged(trial: Trial) -> Trial:
    """Return the trial on the model's own inputs, with nothing that its outputs would be judged by."""
    return replace(trial, data="", preprocess="", metric="", min_accuracy=None, min_agreement=None)


def first_look(found: Result) -> str:
    """Return the latency of a run that nobody judged, as a line; '' if it has none."""
    timed = found.metrics.get("latency_p50_s")
    if found.status not in MEASURED or not isinstance(timed, Measured):
        return ""
    return f"  {found.trial.label}: {units.show(timed)} at first look; no outputs judged yet"


def so_far(results: Sequence[Result], base: Result) -> str:
    """Return what the newest result says of its variant, with how sure that is; '' if it says nothing new.

    `base` is the first run of the baseline.
    """
    newest = results[-1]
    if newest.alternation is None:
        return _alone(newest, base)
    mine = [r for r in results if r.trial.variant == newest.trial.variant]
    every = alternation.pairs(mine, results)
    turns = alternation.decisive(every)
    if newest.alternation.side == "baseline" or not turns:
        return ""
    ratio = alternation.speedup(turns, among=every)
    value, lo, hi = map(units.number, (ratio.value, ratio.lo, ratio.hi))
    between = f" [{lo}, {hi}]" if ratio.reliable else ", no interval yet"
    return f"  {newest.trial.label}: {value}x so far{between} ({alternation.words(turns, every)})"


def _alone(newest: Result, first: Result) -> str:
    """Return the latency of a run alone (or its throughput), and roughly how it compares with that of the baseline."""
    if UNJUDGED in newest.warnings:
        return ""  # it was told when it was seen
    alike = alternation.same_load(newest.trial, first.trial)
    timed, base = (r.metrics.get("latency_p50_s" if alike else "throughput_sps") for r in (newest, first))
    if not isinstance(timed, Measured) or newest.status not in MEASURED:
        why = f" ({newest.reason.code}: {newest.reason.what})" if newest.reason else ""
        return f"  {newest.trial.label}: {newest.status.value}{why}"
    words = f"  {newest.trial.label}: {units.show(timed, interval=False)}"
    own = newest.trial.variant == first.trial.variant
    if own or not isinstance(base, Measured) or min(timed.value, base.value) <= 0:
        return words
    ratio = base.value / timed.value if alike else timed.value / base.value
    margin = racing.margin([first, newest])
    value, lo, hi = (units.number(r, digits=2) for r in (ratio, ratio / margin, ratio * margin))
    return f"{words}, roughly {value}x [{lo}, {hi}] by one short run"


def unreached(trials: Sequence[Trial], enough_s: float) -> tuple[NotHere, ...]:
    """Return the candidates that the budget left no time for, with a budget that has room for them."""
    minutes = math.ceil(enough_s / 60)
    more = f"--budget {minutes}min" if minutes > 1 else f"--budget {10 * math.ceil(enough_s / 10)}s"
    return tuple(NotHere(t.label, LEFT_OUT, more) for t in trials)


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


def base(model: str, trial: Mapping[str, Any], goals: Wanted = FASTEST) -> Trial:
    """Return what all candidates share: these keys of a Trial, on the usual device unless it is said.

    They are measured in turns, unless a meter is asked that could not tell two processes apart.
    """
    device = trial.get("device") or candidates.usual_device(model)
    keys = {**(candidates.WINDOW if goals.alone(device) else TURNS), **trial, "device": device}
    keys["data"] = opening.name_of(trial.get("data") or "")
    keys["metric"] = metric_names.named(trial.get("metric") or "")
    return grid.pinned(rules.in_range(checked_load(Trial(model=model, **keys))), zoo.pin)


def proposed(
    of: Trial,
    backend: Sequence[str] = (),
    precision: Sequence[str] = (),
    exclude: Sequence[Mapping[str, Scalar]] = (),
    *,
    piled: bool = False,
) -> Proposal:
    """Return the candidates that can run here; UnavailableError if there are none."""
    there = candidates.installed()
    found = candidates.propose(of, there, backend=backend, precision=precision, exclude=exclude, piled=piled)
    return found.possible()
