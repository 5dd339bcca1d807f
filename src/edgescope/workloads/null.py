"""Work that is done the moment it is issued: its latency is the cost of the harness itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from edgescope.backends.base import spec_of
from edgescope.options import Option, read
from edgescope.records import Effective, Trial
from edgescope.workloads import gate
from edgescope.workloads.base import Done, OpenWorkload, Parts


class NullWork:
    """Calls `done` at once."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Do nothing."""
        done(query_id, 0)

    def flush(self) -> None:
        """Return at once: nothing is ever outstanding."""


class NullWorkload:
    """Opens nothing."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Prepare the model's artifact, so that an error in its name or engine is reported."""
        read("null", trial.workload_options, self.OPTIONS)
        parts.backend(trial.backend).prepare(parts.model(trial), spec_of(trial), parts.folder)

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Hold work that does nothing."""
        yield OpenWorkload(
            work=NullWork(),
            model=parts.model(trial).info,
            effective=lambda: Effective("cpu", trial.precision),
            verify=lambda machine: gate.NOTHING,
        )
