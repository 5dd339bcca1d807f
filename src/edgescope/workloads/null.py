"""Work that is done the moment it is issued: what remains is the cost of the harness itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgescope.backends.base import Backend
from edgescope.models.base import Model
from edgescope.records import Effective, Trial
from edgescope.workloads.base import Done, Opened


class NullWork:
    """Says done at once."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Do nothing."""
        done(query_id, 0)

    def flush(self) -> None:
        """Nothing is outstanding."""


class NullWorkload:
    """Opens nothing."""

    @contextmanager
    def open(self, trial: Trial, model: Model, backend: Backend, folder: Path) -> Iterator[Opened]:
        """Hold work that does nothing."""
        yield Opened(NullWork(), None, lambda: Effective("cpu", trial.precision))
