"""Find how many clients or cameras fit on this machine and what limits them: `edgescope.capacity(model, ...)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope import registry
from edgescope.data import opening
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Answer, Json, Result, Trial
from edgescope.records.answers import plain
from edgescope.records.trial import usual_backend
from edgescope.runner.setup import Setup, Stored, check_modes, store_of
from edgescope.search.loop import Loop, counting
from edgescope.study import grid, rules
from edgescope.wings.capacity.answer import Capacity
from edgescope.wings.capacity.page import line, sentence_of
from edgescope.wings.capacity.question import MISSES, PER_CLIENT, Point, Question, client_constraints
from edgescope.wings.capacity.search import Search


@dataclass(frozen=True, repr=False)
class Fitting(Answer):
    """How many clients fit, with the runs that show it."""

    question: Question
    found: Capacity | None
    """None if no number of clients could be tried; `failed` says why."""
    failed: Result | None = None

    @property
    def clients(self) -> int | None:
        """Return how many clients fit, or None if no number could be tried."""
        return None if self.found is None else self.found.clients

    def lines(self) -> Iterator[str]:
        """Yield the answer in one sentence, then one line for each run."""
        if self.found is None:
            yield f"no number of clients could be tried: {self.failed.reason if self.failed else ''}"
            return
        yield sentence_of(self.found)
        yield from (f"  {line(point)}" for point in self.found.points)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each run."""
        return [_row(point) for point in self.found.points] if self.found else []


def _row(point: Point) -> dict[str, Json]:
    about = {"clients": point.clients, "stage": point.stage, "seconds": point.seconds, "fits": point.fits}
    figures = {held.constraint.text: plain(held.found) for held in point.held}
    return about | {"offered_qps": point.offered, "achieved_qps": plain(point.achieved)} | figures


def capacity(
    model: str,
    *,
    client_rate: float,
    constraints: Sequence[str],
    server_processes: str = "one",
    arrivals: str = "poisson",
    confirm_duration_s: float = 30.0,
    max_duration_s: float = 600.0,
    max_clients: int = 1024,
    exhaustive: bool = False,
    cached: bool = True,
    store: Stored = None,
    setup: Setup = Setup(),
    **trial: Any,
) -> Fitting:
    """Return how many clients of `client_rate` queries a second keep every constraint, confirmed in a sustained run.

    Clients share one server process, or have one each ("per-client"). Further keys are those of a Trial: backend,
    precision, batch, in_flight, sharing, options, workload, deadline_s. `cached=False` measures again what the store
    holds.
    """
    question = Question(
        _base(model, trial),
        client_rate,
        client_constraints(list(constraints)),
        server_processes,
        arrivals,
        confirm_duration_s,
        max_duration_s,
        max_clients,
    )
    _check(question)
    check_modes([question.base], setup.tell)
    place = store_of(store)
    named = [
        question.base.id,
        *(c.text for c in question.constraints),
        client_rate,
        server_processes,
        arrivals,
    ]
    with counting(
        setup.cells(place), ["capacity", *named, confirm_duration_s, exhaustive], cached=cached
    ) as cells:
        search, loop = (
            Search(question, place.root, lambda p: setup.tell(f"  {line(p)}")),
            Loop(cells, setup.tell),
        )
        for _ in loop.run(search.run(exhaustive=exhaustive)):
            pass
    if not search.points or search.hopeless:
        return Fitting(question, None, search.points[-1].result if search.points else search.closed)
    if loop.note:
        setup.tell(loop.note)
    return Fitting(question, search.answer())


def _base(model: str, trial: dict[str, Any]) -> Trial:
    """Return a Trial of the model and the engine; the search sets scenario, rate and processes."""
    backend = trial.get("backend") or usual_backend(model)
    device = trial.get("device") or registry.home(backend)
    keys = trial | {"device": device, "backend": backend, "data": opening.name_of(trial.get("data") or "")}
    return grid.pinned(rules.in_range(Trial(model=model, **keys)), zoo.pin)


def _check(question: Question) -> None:
    """Raise UsageError if a value is out of range or contradicts another."""
    rate, one = question.rate, question.server_processes == "one"
    misses = any(constraint.metric == MISSES for constraint in question.constraints)
    confirm, longest = question.confirm_s, question.max_duration_s
    rules = (
        (one or question.server_processes == PER_CLIENT, "--server-processes is one or per-client"),
        (0 < rate < float("inf"), f"--client-rate must be a positive number of queries/s, not {rate:g}"),
        (question.max_clients >= 1, f"--max-clients must be at least 1, not {question.max_clients}"),
        (
            not misses or question.base.deadline_s,
            "a constraint on misses needs --deadline, e.g. --deadline 33ms",
        ),
        (confirm >= 1, f"--confirm-duration must be at least 1s, not {confirm:g}s"),
        (longest >= confirm, f"--max-duration {longest:g}s is shorter than --confirm-duration"),
        (not one or question.base.sharing == Trial.sharing, "--sharing is for --server-processes per-client"),
        (
            one or question.arrivals != "even",
            "--arrivals even needs --server-processes one: separate processes cannot take turns; use camera",
        ),
    )
    problem = next((text for ok, text in rules if not ok), "")
    if problem:
        raise UsageError(
            "E-CAP-2",
            f"this question makes no sense: {problem}",
            effect="Nothing was measured",
            fix="edgescope capacity --help",
        )
