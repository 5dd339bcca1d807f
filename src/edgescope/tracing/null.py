"""The null tracer: the process starts unchanged, and there are no spans."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from edgescope.process import Launch
from edgescope.records import Spans


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
