"""The scenario seam: something that offers queries to a Work until its plan says stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

from edgescope import options
from edgescope.clock import Clock
from edgescope.errors import Message
from edgescope.options import Option
from edgescope.records import Json, Queries, Trial
from edgescope.scenarios import settings
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
        self.trial, self.plan = settings.checked(trial), plan
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
