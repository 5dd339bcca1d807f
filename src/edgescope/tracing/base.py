"""The tracer seam: a profiler around the same cell, turned into one table of spans.

Every span of every tool has the same columns, so analysis never asks which profiler it came from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from edgescope.process import Launch
from edgescope.records import Spans

#: Names the folder that a process's tracer writes to; a process that has it ends as interpreters do, at leisure.
FOLDER = "EDGESCOPE_TRACE"


class Tracer(Protocol):
    """One profiler; nsys and ncu own the process they profile, others work from inside."""

    def launch(self, folder: Path) -> Launch:
        """Return how a process starts under this profiler, which writes to `folder`."""

    def window(self, folder: Path) -> AbstractContextManager[None]:
        """Return the context, in the process that is profiled, that bounds what is recorded."""

    def spans(self, folder: Path) -> Spans:
        """Return what was recorded, times on the queries' clock; asked once the process has ended."""
