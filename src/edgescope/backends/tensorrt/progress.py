"""Signs of life while an engine is built, which takes minutes on a board, and a limit where TensorRT can be stopped.

A build runs inside one call that cannot be interrupted from outside; from TensorRT 10 it asks a monitor after every
step whether to go on. Before that a build that hangs ends with the trial, which the parent process kills on time-out.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorrt as trt

#: Seconds between two lines.
EVERY_S = 10.0


@contextmanager
def ticking(what: str) -> Iterator[None]:
    """Print `what` and the seconds so far on stderr every EVERY_S while the block runs."""
    done, start = threading.Event(), time.monotonic()

    def tick() -> None:
        while not done.wait(EVERY_S):
            print(f"{what}: {time.monotonic() - start:.0f} s so far", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def stopping_after(seconds: float) -> Any:
    """Return a progress monitor that ends the build at the first step after so many seconds (TensorRT 10 and later).

    Its attribute `stopped` says whether it did.
    """

    class Deadline(trt.IProgressMonitor):  # type: ignore[misc]
        """Says yes until the time is over."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.stopped, self.end = False, time.monotonic() + seconds

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
            """Nothing to do."""

        def step_complete(self, phase_name: str, step: int) -> bool:
            """Return whether to go on."""
            self.stopped = self.stopped or time.monotonic() > self.end
            return not self.stopped

        def phase_finish(self, phase_name: str) -> None:
            """Nothing to do."""

    return Deadline()
