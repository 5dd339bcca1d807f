"""The workload seam: a thing that takes one unit of work and says when it is truly done.

An inference, a training step and a video clip are the same to the load generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edgescope.backends.base import Backend
from edgescope.models.base import Model
from edgescope.records import Effective, Field, Json, Trial, Verification

Done = Callable[[int, int], None]
"""done(query_id, status): may come from any thread, in any order, once the results are truly there."""


class Work(Protocol):
    """Takes queries; tells when each is done."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start (or do) one query and call `done` once when its results are there."""

    def flush(self) -> None:
        """Return when nothing is outstanding."""


@dataclass(frozen=True)
class Opened:
    """A workload that is open: the work, what opening cost, and how to check that it does the right thing."""

    work: Work
    verify: Callable[[], Verification]
    effective: Callable[[], Effective]
    facts: Mapping[str, Field] = field(default_factory=dict)
    """build_s, load_s, first_s: what happened before steady state, in seconds."""
    artifact: Mapping[str, Json] = field(default_factory=dict)


class Workload(Protocol):
    """Opens a trial's model in a backend."""

    def open(self, trial: Trial, model: Model, backend: Backend, folder: Path) -> AbstractContextManager[Opened]:
        """Return a context that holds the open work; `folder` is the artifact cache."""
