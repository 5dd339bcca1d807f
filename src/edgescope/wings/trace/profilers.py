"""Which profiler a trial gets here: the best one first, what each step down loses, and what would unlock more."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgescope import registry
from edgescope.errors import Message
from edgescope.records import Trial


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
        return Chosen(profiler)
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
