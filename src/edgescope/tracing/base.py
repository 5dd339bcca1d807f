"""The tracer seam: a profiler around the same cell, turned into one table of spans.

Every span of every tool has the same columns, so analysis never asks which profiler it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from edgescope.records import Spans


class Tracer(Protocol):
    """One profiler; nsys and ncu own the process they profile, others work from inside."""

    def wrap(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run `argv` under this profiler."""

    def window(self) -> AbstractContextManager[None]:
        """Return the context, in the child, that bounds what is recorded."""

    def spans(self, folder: Path) -> Spans:
        """Return what was recorded, times on the queries' clock."""
