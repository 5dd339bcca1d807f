"""No profiler: the process as it is, and no spans."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from edgescope.process import Launch
from edgescope.records import Spans


class NullTracer:
    """Records nothing."""

    def launch(self, folder: Path) -> Launch:
        """Return nothing to start with."""
        return Launch()

    def window(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context that bounds nothing."""
        return nullcontext()

    def spans(self, folder: Path) -> Spans:
        """Return no spans."""
        return Spans.none()
