"""The scenario seam: something that offers queries to a Work until its plan says stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from edgescope.clock import Clock
from edgescope.records import Json, Queries
from edgescope.workloads.base import Exam, Work


class Scenario(Protocol):
    """Offers queries to a Work until its plan says stop."""

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Return every query offered, warm-up first, as columns."""


@runtime_checkable
class Foreign(Protocol):
    """Optional, of a scenario whose load another program makes (LoadGen); the Result says driver = external."""

    def accuracy(self, exam: Exam) -> None:
        """Have that program ask every input of the exam, in its accuracy mode, and check what it was answered."""

    def notes(self) -> Mapping[str, Json]:
        """Return what the program says of itself and of the run, and its log files as `files`: name -> text."""

    def warnings(self) -> tuple[str, ...]:
        """Return where the program's own numbers and ours do not agree."""
