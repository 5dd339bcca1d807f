"""The workload seam: a thing that takes one unit of work and says when it is truly done.

An inference, a training step and a video clip are the same to the load generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from edgescope.backends.base import Backend, Phases
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Field, Json, Trial

Done = Callable[[int, int], None]
"""done(query_id, status): may come from any thread, in any order, once the results are truly there."""

Answer = Callable[[Batch], Sequence[NDArray[Any]]]
"""The outputs of one batch of the trial's size."""


class Work(Protocol):
    """Takes queries; tells when each is done."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start (or do) one query and call `done` once when its results are there."""

    def flush(self) -> None:
        """Return when everything issued has at least been started."""


@dataclass(frozen=True)
class Opened:
    """A workload that is open: the work, what opening cost, and how to check that it does the right thing."""

    work: Work
    answer: Answer | None
    """What verification calls; None where there is nothing to compare with."""
    effective: Callable[[], Effective]
    facts: Mapping[str, Field] = field(default_factory=dict)
    """build_s, load_s, first_s: what happened before steady state, in seconds."""
    artifact: Mapping[str, Json] = field(default_factory=dict)
    failure: Callable[[], str] = lambda: ""
    """Text of the first query that failed, or ''."""
    phases: Callable[[], Phases] | None = None
    """Answers one query with device events around its parts; None where the engine has none."""


class Workload(Protocol):
    """Opens a trial's model in a backend."""

    def open(
        self, trial: Trial, model: Model, backend: Backend, folder: Path
    ) -> AbstractContextManager[Opened]:
        """Return a context that holds the open work; `folder` is the artifact cache."""
