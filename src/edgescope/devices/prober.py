"""A child process that runs one probe of the machine whenever it is asked.

A probe of its own process: its buffer does not count as the trial's memory, and the same child probes before and after
a run. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from edgescope.process import Process


class Prober:
    """The child process, while the block runs."""

    def __init__(self, module: str) -> None:
        """`module`: the full name of the probe's module, whose program calls `answer`."""
        self.module = module

    def __enter__(self) -> Prober:
        """Start the child; if it cannot be started, `seconds` returns None."""
        self._child: Process | None = None
        with suppress(OSError):
            self._child = Process([sys.executable, "-m", self.module])
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()

    def seconds(self) -> float | None:
        """Probe now; return the probe's seconds, or None if it has none or the child is gone."""
        if self._child is None:
            return None
        try:
            self._child.pipe.write(b"\n")
            return float(self._child.pipe.line())
        except (OSError, EOFError, ValueError):
            return None


def answer(probe: Callable[[], float | None]) -> None:
    """Print the probe's seconds for every line of stdin; end with stdin, so that this process ends with its parent."""
    for _ in sys.stdin:
        print(probe(), flush=True)
