"""A child process that probes the machine whenever it is asked.

A process of its own: its buffer does not count as the trial's memory, and the same child probes before and after a run.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import ModuleType

from edgescope.devices import probing
from edgescope.process import Process


class Prober:
    """The child process, while the block runs."""

    def __init__(self, *probes: ModuleType) -> None:
        """`probes`: modules with a function `prepared` that returns a probe; standard library only."""
        self.probes = probes

    def __enter__(self) -> Prober:
        """Start the child; if it cannot be started, `seconds` returns None."""
        self._child: Process | None = None
        files = [str(probe.__file__) for probe in self.probes]
        with suppress(OSError):
            self._child = Process([sys.executable, "-I", "-S", probing.__file__, *files])
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()

    def seconds(self, number: int = 0) -> float | None:
        """Probe now with the probe of this number; return its seconds, or None if it has none or the child is gone."""
        if self._child is None:
            return None
        try:
            self._child.pipe.write(b"%d\n" % number)
            return float(self._child.pipe.line())
        except (OSError, EOFError, ValueError):
            return None
