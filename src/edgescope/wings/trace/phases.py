"""Runs a trial twice: clean, then for a shorter time under the best profiler that works here."""

from __future__ import annotations

from dataclasses import replace

from edgescope.analysis.kernels.account import Account, account, trace_of
from edgescope.bench.layers import of_operators
from edgescope.models import zoo
from edgescope.records import Result, Status, Trial
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.loop import InOrder
from edgescope.study import grid
from edgescope.wings.trace.profilers import Chosen, choose

Accounts = tuple[tuple[str, Account], ...]
"""Label, account."""
Phases = tuple[Accounts, Result, Result | None, Chosen]
#: Seconds that phase 2 measures, unless the trial asks for less: a trace of more tells nothing new.
SECONDS = 1.0
#: What a trial that runs alone owes to its profiler: then the next one is tried, unless this one was asked for.
UNDER_A_PROFILER = (Status.CRASHED, Status.FAILED, Status.UNSUPPORTED)


def traced(trial: Trial, profiler: str, store: Stored, setup: Setup) -> Phases:
    """Return the accounts of a trial, its clean run, the one under a profiler, and why this profiler."""
    trial = grid.pinned(trial, zoo.pin)
    chosen = choose(trial, profiler)
    runs = InOrder(setup.cells(store_of(store)), setup.tell)
    least, most = min(trial.min_s, SECONDS), min(trial.max_s, SECONDS)

    def under(name: str) -> Trial:
        return replace(trial, tracer=name, min_s=least, max_s=most)

    follow = [under(chosen.name)] if chosen.name != Trial.tracer else []
    clean = runs.run("clean", replace(trial, tracer=Trial.tracer), follow, anew=True)
    if clean.status not in (Status.OK, Status.UNSTABLE):
        return (), clean, None, chosen
    failed: dict[str, str] = {}
    while chosen.name != Trial.tracer:
        profiled = runs.run(f"under {chosen.name}", under(chosen.name), (), anew=True)
        if profiler or profiled.status not in UNDER_A_PROFILER:
            return _accounts(profiled), clean, profiled, chosen
        failed[chosen.name] = profiled.reason.what if profiled.reason else profiled.status.value
        chosen = choose(trial, failed=failed)
    return _accounts(clean), clean, None, chosen


def _accounts(result: Result) -> Accounts:
    """Return the account of a stored result, or () if it has no spans."""
    found = trace_of(result)
    if found is None:
        return ()
    label = f"{result.trial.model.partition('#')[0]} {result.trial.label}"
    layers = of_operators(sorted(set(found.spans.of_kind("op").named())), result)
    facts = {**found.facts, "layers": layers} if layers else found.facts
    return ((label, account(replace(found, facts=facts))),)
