"""A trial, traced: run clean, then for a shorter time under the best profiler that works here.

What each step down from the best profiler loses, and what would unlock more, is said in notes.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from edgescope import registry
from edgescope.analysis.kernels.account import Account, account, trace_of
from edgescope.bench.layers import of_operators
from edgescope.errors import Message
from edgescope.models import zoo
from edgescope.records import Result, Status, Trial
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.loop import InOrder
from edgescope.study import grid
from edgescope.wings.trace import nsys_run


@dataclass(frozen=True)
class Step:
    """One profiler: what it needs here, and what is lost where the next one takes its place."""

    tracer: str
    package: str
    """The module that must be importable; '' if none."""
    loses: str
    """What is missing where this one cannot be used."""
    unlock: str
    """The command that makes it usable."""
    imports: str = ""
    """The module that is imported to see whether it can be, where that is cheap: a package can lack what it needs."""

    def missing(self) -> str:
        """Return why the module cannot be used here, '' if it can as far as is known."""
        if not self.package:
            return ""
        if importlib.util.find_spec(self.package) is None:
            return f"there is no module {self.package}"
        try:
            if self.imports:
                importlib.import_module(self.imports)
        except (ImportError, OSError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        return ""


CUDA = (
    Step("cupti", "cupti", "less perturbation", "pip install cupti-python", imports="cupti.cupti"),
    Step("kineto", "torch", "every call, kernel and copy", "pip install 'edgescope[torch]'"),
)
CPU = {
    "kineto": (Step("kineto", "torch", "every operator", "pip install 'edgescope[torch]'"),),
    "engine": (Step("engine", "", "every operator", ""),),
}
"""What sees an engine's operators on a CPU (About.TRACER) -> the steps."""


@dataclass(frozen=True)
class Chosen:
    """The profiler that a trial gets."""

    name: str
    """A key of registry.TRACERS; none if the phases that the engine reports are all there is."""
    notes: tuple[Message, ...] = ()
    """What was lost on the way down."""
    lighter: str = ""
    """A command that perturbs less."""


def choose(trial: Trial, profiler: str = "", failed: Mapping[str, str] = MappingProxyType({})) -> Chosen:
    """Return the profiler for a trial; UsageError if `profiler` names none.

    `failed`: what became of the trial under profilers that were tried, which are not tried again.
    """
    if profiler:
        registry.entry(registry.TRACERS, profiler, "profiler")
        return Chosen(profiler, nsys_run.here().notes if profiler == "nsys" and shutil.which("nsys") else ())
    notes: list[Message] = []
    for step in _ladder(trial):
        if step.tracer in failed:
            notes.append(_ended_by(step, failed[step.tracer]))
        elif why := step.missing():
            notes.append(
                Message(
                    "I-PROF-5",
                    f"the profiler {step.tracer} cannot be used here",
                    evidence=why,
                    effect=f"What it would add: {step.loses}",
                    fix=step.unlock,
                )
            )
        else:
            lighter = next((note.fix for note in notes if note.code == "I-PROF-5"), "")
            return Chosen(step.tracer, tuple(notes), lighter)
    notes.append(
        Message(
            "W-PROF-10",
            f"no profiler here sees into {trial.backend} on {trial.device}",
            effect="The account has the phases that the engine reports itself, and no operators or kernels",
            fix="--backend torch_eager, onnxruntime or openvino, which can be profiled everywhere",
        )
    )
    return Chosen(Trial.tracer, tuple(notes))


def _ended_by(step: Step, why: str) -> Message:
    return Message(
        "W-PROF-18",
        f"the trial runs alone and fails under the profiler {step.tracer}",
        evidence=why,
        effect=f"Another one takes its place, or none; missing is {step.loses}",
        fix=f"{step.unlock} in another version, or --profiler {step.tracer} to see it again",
    )


def _ladder(trial: Trial) -> tuple[Step, ...]:
    return CUDA if trial.place.cuda else CPU.get(registry.facts(trial.backend).TRACER, ())


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
