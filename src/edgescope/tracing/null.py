"""No profiler: the command as it is, and no spans. What every trial runs under so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from edgescope.records import Spans


class NullTracer:
    """Records nothing."""

    def wrap(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command unchanged."""
        return list(argv), dict(env)

    def window(self) -> AbstractContextManager[None]:
        """Return a context that bounds nothing."""
        return nullcontext()

    def spans(self, folder: Path) -> Spans:
        """Return no spans."""
        return Spans.none()
