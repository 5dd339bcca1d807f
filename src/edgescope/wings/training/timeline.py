"""Marks the parts of each step on one time line: the host's clock, or events on a GPU's stream.

A GPU works behind the host, so its parts are bounded by events on its stream, and their lengths are read when the step
is done: no part is waited for. A fetch then lasts as long as the GPU had nothing to do for want of a minibatch.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope import registry
from edgescope.records import SPAN_KINDS, UNIT, Place, Spans
from edgescope.wings.training.epochs import PARTS

Times = NDArray[np.int64]


class Timeline:
    """Collects when each part of each step ended; a step ends its PARTS in their order."""

    def __init__(self, device: str) -> None:
        self.steps, place = 0, registry.place(device)
        self._events = [_event(place) for _ in range(len(PARTS) + 1)] if place.events else []
        self._step: list[int] = []
        """Nanoseconds at which the present step began and each part so far ended."""
        self._ends, self._waits = array("q"), array("q")
        """Numbers and no objects: a step costs 56 bytes and nothing for the garbage collector to visit."""

    def begin(self) -> int:
        """Begin a step now; return when."""
        now = time.monotonic_ns()
        self._step = [now]
        if self._events:
            self._events[0].record()
        return now

    def mark(self, part: str) -> None:
        """End a part of the step; the next one begins."""
        if self._events:
            self._events[len(self._step)].record()
        self._step.append(time.monotonic_ns())

    def end(self) -> int:
        """End the step, which the device has finished; return when."""
        now, start = time.monotonic_ns(), self._step[0]
        if self._events:
            first = self._events[0]
            self._step[1:] = [start + round(first.elapsed_time(e) * 1e6) for e in self._events[1:]]
        self._step.append(now)
        self._ends.extend(self._step)
        self.steps += 1
        return now

    def marks(self) -> dict[str, int]:
        """Return when each part of the last step that ended began and ended."""
        found = dict[str, int]()
        for number, part in enumerate(PARTS):
            found[f"{part}_begin"], found[f"{part}_end"] = self._step[number : number + 2]
        return found

    def waited(self) -> int:
        """Count the time since the step began as a fetch that brought nothing: the epoch was over; return its end."""
        now = time.monotonic_ns()
        self._waits.extend((self._step[0], now))
        return now

    @property
    def seconds(self) -> float:
        """Return the time of all steps that ended."""
        ends = self._table()
        return float((ends[:, -1] - ends[:, 0]).sum()) * 1e-9

    def ends(self) -> tuple[Times, Times]:
        """Return when each step that ended began, and when it ended."""
        ends = self._table()
        return ends[:, 0], ends[:, -1]

    def _table(self) -> Times:
        """Return a row for each step: its begin, the end of each part, its own end."""
        return np.array(self._ends, np.int64).reshape(-1, len(PARTS) + 2)

    def spans(self) -> Spans:
        """Return every step that ended as a unit, its parts as phases, and the fetches that brought nothing."""
        ends = self._table()
        waits = np.array(self._waits, np.int64).reshape(-1, 2)
        number = np.arange(len(ends))
        return Spans.joined(
            [
                spans_of("unit", UNIT, ends[:, 0], ends[:, -1], steps=number),
                spans_of("phase", "fetch", waits[:, 0], waits[:, 1], steps=-1),
                *(
                    spans_of("phase", part, ends[:, i], ends[:, i + 1], steps=number)
                    for i, part in enumerate(PARTS)
                ),
            ]
        )


def spans_of(
    kind: str, name: str, starts: Times, ends: Times, *, steps: Times | int, workers: Times | int = -1
) -> Spans:
    """Return spans of one kind and name: when they began and ended, the steps and the loader's workers they are of."""
    columns: dict[str, Times | int] = {
        "start_ns": starts,
        "end_ns": ends,
        "query_id": steps,
        "stream": workers,
    }
    return Spans.from_columns((name,), {"name": 0, "kind": SPAN_KINDS.index(kind), **columns})


def _event(place: Place) -> Any:
    return getattr(torch, place.called("torch")).Event(enable_timing=True)
