"""A profiler runs the same cell as a clean run, and what it recorded becomes one table of spans.

The spans of every tool have the same columns, so analysis never needs to know which profiler they came from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, runtime_checkable

from edgescope.process import Launch
from edgescope.records import Readings, Spans

#: Names the folder that a process's tracer writes to; a process that has it exits normally, never at once.
FOLDER = "EDGESCOPE_TRACE"


class Tracer(Protocol):
    """One profiler; nsys and ncu own the process they profile, others work from inside."""

    def launch(self, folder: Path) -> Launch:
        """Return how a process starts under this profiler, which writes to `folder`."""

    def window(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for the profiled process; the profiler records only inside it."""

    def spans(self, folder: Path) -> Spans:
        """Return the recorded spans, with times on the queries' clock; called after the process has ended."""


@runtime_checkable
class Samples(Protocol):
    """A tracer that samples the GPU's counters as well."""

    def readings(self, folder: Path) -> Readings | None:
        """Return the samples, with times on the queries' clock; None where none were taken."""


class NullTracer:
    """Records nothing."""

    def launch(self, folder: Path) -> Launch:
        """Return an empty launch."""
        return Launch()

    def window(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def spans(self, folder: Path) -> Spans:
        """Return no spans."""
        return Spans.none()
