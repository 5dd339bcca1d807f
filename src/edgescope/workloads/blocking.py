"""Adapts a plain blocking callable to Work: inline for one unit in flight, one thread per unit for several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from edgescope.records import QUERY_END, QUERY_ERROR, QUERY_OK, Marks
from edgescope.workloads.base import Done, EndOfInput, Work

Call = Callable[[int], object]
"""call(query_id) does one unit; it returns when the unit is truly done, and raises if it failed or none is left.

It may return the unit's number of samples as an int, or a `Unit`; any other value is ignored.
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a call says of the unit that it did."""

    samples: int = 0
    """0: the trial's batch."""
    marks: Marks = field(default_factory=dict)
    """Moments that it reached, on the monotonic clock."""


class Failures:
    """The first failure's text and the number of failures; raising in the loop would lose the earlier queries."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, error: Exception) -> int:
        """Note one failure; return the status of its query."""
        self.first = self.first or f"{type(error).__name__}: {error}"
        self.count += 1
        return QUERY_ERROR


class Inline:
    """Does each unit in the caller's thread."""

    def __init__(self, call: Call, failures: Failures) -> None:
        self.call, self.failures = call, failures

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Do the unit, then call `done`."""
        try:
            held = self.call(query_id)
        except EndOfInput:
            done(query_id, QUERY_END)
            raise
        except Exception as error:  # any engine may raise anything; the unit is recorded as failed
            done(query_id, self.failures.add(error))
        else:
            if type(held) is int:
                done(query_id, QUERY_OK, held)
            elif type(held) is Unit:
                done(query_id, QUERY_OK, held.samples, -1, held.marks)
            else:
                done(query_id, QUERY_OK)

    def flush(self) -> None:
        """Return at once: nothing is ever outstanding."""


class Pool:
    """One thread for each unit in flight; engines release the interpreter lock while they compute."""

    def __init__(self, call: Call, failures: Failures, threads: int) -> None:
        self.inline, self.ended = Inline(call, failures), False
        self.waiting: SimpleQueue[tuple[int, int, Done] | None] = SimpleQueue()
        self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _serve(self) -> None:
        while (query := self.waiting.get()) is not None:
            try:
                self.inline.issue(*query)
            except EndOfInput:
                self.ended = True

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Hand the unit to a free thread; EndOfInput once a thread has reached the end of the input."""
        if self.ended:
            done(query_id, QUERY_END)
            raise EndOfInput
        self.waiting.put((query_id, samples, done))

    def flush(self) -> None:
        """Return at once: the scenario waits for its slots."""

    def close(self) -> None:
        """End the threads."""
        for _ in self.threads:
            self.waiting.put(None)
        for thread in self.threads:
            thread.join()


def blocking(call: Call, in_flight: int, failures: Failures) -> Work:
    """Return a Work that calls `call(query_id)`, up to `in_flight` at once."""
    return Inline(call, failures) if in_flight == 1 else Pool(call, failures, in_flight)
