"""Who drives a trial's load: this process. Workers are in workers.py, programs that own their loop in programs.py."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from edgescope import registry
from edgescope.analysis.run import summary
from edgescope.bench.parts import open_work, recorded, scenario_of
from edgescope.bench.process_usage import ProcessUsage, interpreter_wait
from edgescope.bench.watch import Watch, available, peak_rss
from edgescope.clock import Clock
from edgescope.errors import Message, RanElsewhereError
from edgescope.process import give_back
from edgescope.records import (
    Alternation,
    Effective,
    Field,
    GateOutcome,
    Json,
    ModelInfo,
    Queries,
    Result,
    Spans,
    Trial,
    Window,
    Worker,
)
from edgescope.scenarios import Foreign, Scenario
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import Work


@dataclass(frozen=True, kw_only=True)
class Run:
    """The outcome of measuring and checking a trial, with any driver."""

    model: ModelInfo
    artifact: Mapping[str, Json]
    effective: Effective
    verification: GateOutcome | None
    """What the accuracy gate said, or why it can say nothing."""
    queries: Queries
    window: Window
    metrics: Mapping[str, Field]
    """Every metric but energy, long-run behaviour and the sampler's cost; these win if a name is given twice."""
    warnings: Sequence[Message] = ()
    warmed: bool = True
    """Whether the latencies had settled when the window began."""
    failure: str = ""
    """Text of the first unit that failed."""
    driver: str = "edgescope"
    process: str = "fresh"
    workers: tuple[Worker, ...] = ()
    alternation: Alternation | None = None
    spans: Spans | None = None
    review: Callable[[Result], Result] = lambda result: result
    """Adds what only the whole Result tells."""


class Driver(Protocol):
    """Measures a trial that has started; every driver is watched and judged in the same way."""

    def measure(self, started: Result, watch: Watch) -> Run:
        """Open, drive and verify the trial; an EdgescopeError says why there is no run."""


class InProcess:
    """Drives the trial in this process."""

    def __init__(self, clock: Clock, *, judged: bool = True, wait: Callable[[], None] = lambda: None) -> None:
        """`judged`: whether its outputs are verified; `wait` returns once the loaded trial may be measured."""
        self.clock, self.judged, self.wait = clock, judged, wait

    def measure(self, started: Result, watch: Watch) -> Run:
        """Open the trial, drive its scenario under the sampler, then collect the work's own metrics.

        Verification comes after the window: the gate's inputs and reference would otherwise sit in the memory that
        the trial is charged for, and a fast wrong answer is still rejected.
        """
        trial, plan = started.trial, Plan(started.trial)
        process_usage = ProcessUsage()

        def edge() -> None:
            process_usage.mark()
            watch.mark()

        plan.edge = edge
        scenario = scenario_of(trial, plan)
        with ExitStack() as stack:
            watch.get_ready(stack)  # while the trial loads
            opened = stack.enter_context(open_work(trial))
            effective = opened.effective()
            require(trial, effective)
            plan.already(opened.warmed)
            give_back()
            self.wait()
            with watch.watching(), watch.idling(trial.idle_s, self.clock), recorded(trial):
                queries = drive(scenario, opened.work, self.clock)
                opened.watched()
            peak = peak_rss()
            its_own = opened.metrics(queries.rows(plan.window), plan.window)
            spans = opened.breakdown()
            own = {**process_usage.metrics(), **summary.of_spans(spans), **its_own}
            if trial.in_flight > 1 and registry.scenario(trial.scenario).keeps_in_flight:
                own["interpreter_wait_s"] = interpreter_wait(opened.work, trial, self.clock)
            verification = opened.verify(started.machine) if self.judged else None
            foreign = scenario if isinstance(scenario, Foreign) else None
            if foreign and (reference_set := opened.reference_set()):
                foreign.accuracy(reference_set)
        return Run(
            model=opened.model,
            artifact={**opened.artifact, **(foreign.notes() if foreign else {})},
            effective=effective,
            verification=verification,
            queries=queries,
            window=plan.window,
            metrics={
                **opened.facts,
                **summary.metrics(queries, plan.window, trial.scenario, trial.deadline_s),
                "peak_rss_bytes": peak,
                **own,
                **watch.board_memory(trial.device, plan.window, available(started.machine)),
            },
            warnings=foreign.warnings() if foreign else (),
            warmed=plan.settled,
            failure=opened.failure(),
            driver=registry.scenario(trial.scenario).driver,
            spans=spans if len(spans) else None,
            review=opened.review,
        )


def drive(scenario: Scenario, work: Work, clock: Clock) -> Queries:
    """Drive the scenario with the garbage collector out of the way."""
    gc.collect()
    gc.freeze()
    try:
        return scenario.drive(work, clock)
    finally:
        gc.unfreeze()


def require(trial: Trial, effective: Effective) -> None:
    """Raise RanElsewhereError unless the engine did what was requested, as far as it reports."""
    threads = trial.options.get("threads")
    ran = effective.threads if threads is not None and effective.threads is not None else threads
    for code, what, requested, did in (
        ("E-RAN-1", "device", trial.device, effective.device),
        ("E-RAN-2", "precision", trial.precision, effective.precision),
        ("E-RAN-3", "number of threads", threads, ran),
    ):
        if requested not in (did, "as_is"):
            raise RanElsewhereError(
                code,
                f"{trial.backend} ran with {what} {did} instead of {requested}",
                evidence=effective.evidence,
                effect=f"A number under the label {requested} would describe another {what}",
                fix=_instead(code, trial),
            )


def _instead(code: str, trial: Trial) -> str:
    """Return the flag under which this engine's number would be true."""
    if code == "E-RAN-2" and trial.model.partition("#")[0].lower().endswith(".onnx"):
        return "--precision as_is: the file as it is, under the name of what runs"
    return "ask for what this engine does here (edgescope backends), or use another --backend"
