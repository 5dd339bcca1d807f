"""The scenario seam: something that offers queries to a Work until its plan says stop.

A trial that lacks a setting that its scenario needs is refused before anything is built or measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

from edgescope import options, registry
from edgescope.clock import Clock
from edgescope.errors import Message, UsageError
from edgescope.options import Option
from edgescope.records import Json, Queries, Trial
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import ReferenceSet, Work


class Scenario(Protocol):
    """Offers queries to a Work until its plan says stop; it is made from a Trial and a Plan."""

    OPTIONS: ClassVar[Mapping[str, Option]]
    """The options that Trial.scenario_options may hold, by name."""

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Return every query offered, warm-up first, as columns."""


class CheckedScenario:
    """Base of the scenarios here: its constructor checks the trial."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, trial: Trial, plan: Plan) -> None:
        """Raise UsageError if the trial lacks a setting that its scenario needs, or has one that it does not take."""
        self.trial, self.plan = checked(trial), plan
        self.options = options.read(trial.scenario, trial.scenario_options, self.OPTIONS, "scenario")


@runtime_checkable
class Foreign(Protocol):
    """Optional for a scenario whose load another program makes (LoadGen); the Result's driver is `external`."""

    def accuracy(self, reference_set: ReferenceSet) -> None:
        """Have that program request every input in its accuracy mode; check the outputs that it received."""

    def notes(self) -> Mapping[str, Json]:
        """Return the program's version, settings and results, and its log files as `files`: name -> text."""

    def warnings(self) -> tuple[Message, ...]:
        """Return a warning for each disagreement between the program's numbers and ours."""


def checked(trial: Trial) -> Trial:
    """Return the trial if it has the settings that its scenario needs; raise UsageError otherwise."""
    name, facts = trial.scenario, registry.scenario(trial.scenario)
    if facts.rated:
        rate_of(trial)
    elif (
        trial.rate is not None and not facts.open_loop
    ):  # an open loop with its own rate (Trace) raises its own error
        raise UsageError(
            "E-SCEN-11",
            f"{name} takes no rate",
            evidence=f"--rate {trial.rate:g}; queries come at a rate in {', '.join(rated())}",
            effect="Nothing was measured",
            fix=f"--scenario server --rate {trial.rate:g}, or leave --rate out",
        )
    _due(trial)
    _alone(trial)
    return trial


def _due(trial: Trial) -> None:
    """Raise UsageError if the trial has a deadline and nothing says when a query is due."""
    timed = registry.scenario(trial.scenario).open_loop or registry.stamps(trial.workload)
    if trial.deadline_s is None or timed:
        return
    raise UsageError(
        "E-SCEN-12",
        f"no query of {trial.scenario} is due at a time, so none can miss a deadline",
        evidence=f"--deadline {trial.deadline_s:g}s; inputs of {trial.workload} carry no time stamps",
        effect="Nothing was measured",
        fix="--scenario fixed_rate --rate 30, or another open loop",
    )


def _alone(trial: Trial) -> None:
    """Raise UsageError if the scenario allows one sample, one query or one process and the trial has more."""
    name, facts = trial.scenario, registry.scenario(trial.scenario)
    if facts.one_sample and trial.batch != 1:
        raise UsageError(
            "E-SCEN-7",
            f"a query of {name} is one sample",
            evidence=f"batch {trial.batch}",
            fix="--batch 1, or --scenario mlperf_multi_stream or mlperf_offline",
        )
    if facts.one_in_flight and trial.in_flight != 1:
        raise UsageError(
            "E-SCEN-8",
            f"{name} has one query in flight",
            evidence=f"in_flight {trial.in_flight}",
            fix="leave --in-flight at 1",
        )
    if trial.multi_process and facts.alone:
        raise UsageError(
            "E-SCEN-10",
            f"{name} needs one process that has the device to itself",
            evidence=f"processes {trial.processes}, sharing {trial.sharing}, colocated {trial.colocated or 'nothing'}",
            fix="--scenario single_stream, offline or server for several",
        )


def rated() -> list[str]:
    """Return the scenarios that offer queries at a rate."""
    return [name for name, found in registry.SCENARIOS.items() if found.rated]


def rate_of(trial: Trial) -> float:
    """Return the queries offered per second; UsageError if the trial gives none."""
    if trial.rate is None:
        raise UsageError(
            "E-SCEN-1",
            f"{trial.scenario} needs a rate in queries/s",
            fix=f"--scenario {trial.scenario} --rate 30",
        )
    return trial.rate
