"""Marks the parts of each step on one time line: the host's clock, or events on a GPU's stream.

A GPU works behind the host, so its parts are bounded by events on its stream, and their lengths are read when the step
is done: no part is waited for. A fetch then lasts as long as the GPU had nothing to do for want of a minibatch.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from edgescope.analysis.run.epochs import PARTS
from edgescope.records import UNIT

Row = tuple[str, int, int, int]
"""Name, number of the step, start and end in nanoseconds of the monotonic clock."""


class Timeline:
    """Collects the parts of the steps as rows."""

    def __init__(self, device: str) -> None:
        self.rows: list[Row] = []
        self.starts_ns: list[int] = []
        """When each step began."""
        self._cuda = device == "cuda"
        self._events = [_event() for _ in range(len(PARTS) + 1)] if self._cuda else []
        self._marks: list[tuple[str, int]] = []

    def begin(self) -> None:
        """Begin a step now."""
        self._marks = []
        self.mark("")

    def mark(self, part: str) -> None:
        """End a part of the step; the next one begins."""
        if self._cuda:
            self._events[len(self._marks)].record()
            self._marks.append((part, time.monotonic_ns() if not self._marks else 0))
        else:
            self._marks.append((part, time.monotonic_ns()))

    def end(self) -> None:
        """End the step, which the device has finished."""
        now, number = time.monotonic_ns(), len(self.starts_ns)
        times = self._times()
        self.rows.append((UNIT, number, times[0], now))
        for (_, start), (name, end) in itertools.pairwise(
            zip((m[0] for m in self._marks), times, strict=True)
        ):
            self.rows.append((name, number, start, end))
        self.starts_ns.append(times[0])

    def waited(self) -> int:
        """Count the time since the step began as a fetch that brought nothing: the epoch was over; return its end."""
        now = time.monotonic_ns()
        self.rows.append(("fetch", -1, self._marks[0][1], now))
        return now

    def _times(self) -> list[int]:
        if not self._cuda:
            return [at for _, at in self._marks]
        start: Any = self._events[0]
        used = self._events[1 : len(self._marks)]
        return [self._marks[0][1], *(self._marks[0][1] + round(start.elapsed_time(e) * 1e6) for e in used)]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
