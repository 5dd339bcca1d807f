"""How to serve and train on one device in turns: what each pair of minibatches would give, and which to choose.

A query that arrives during a step of training waits for its end, so the longest latency is one step, one inference and
what it queues behind; training gets the time that inference leaves. Both times are those measured alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """One of the two, measured alone at one batch."""

    batch: int
    seconds: float
    """Of one inference, or of one step of training: the mean."""
    watts: float | None = None
    tail: float | None = None
    """The percentile of the seconds that a latency bound is about; None: as the mean."""

    @property
    def longest(self) -> float:
        """Return how long a query may have to reckon with."""
        return self.seconds if self.tail is None else self.tail


@dataclass(frozen=True)
class Slice:
    """A pair of minibatches that take turns, and what to expect of it."""

    served: Side
    trained: Side
    latency_s: float
    """The longest latency of a query that queues behind no other."""
    trained_sps: float
    watts: float | None
    """Mean power while both take their turns; None if it was not measured alone."""


def expected(served: Side, trained: Side, rate: float) -> Slice:
    """Return what a pair gives if `rate` queries of the served batch arrive a second."""
    busy = min(1.0, rate * served.seconds)
    known = served.watts is not None and trained.watts is not None
    return Slice(
        served,
        trained,
        served.longest + trained.longest,
        (1 - busy) * trained.batch / trained.seconds,
        busy * (served.watts or 0.0) + (1 - busy) * (trained.watts or 0.0) if known else None,
    )


def plan(
    served: Iterable[Side],
    trained: Iterable[Side],
    samples_s: float,
    *,
    latency_s: float,
    watts: float | None = None,
) -> Slice | None:
    """Return the pair that trains fastest within a latency and a power budget; None if no pair keeps both.

    `samples_s` samples arrive a second to be served; a larger served batch waits until it is full.
    """
    best: Slice | None = None
    steps = list(trained)
    for side in served:
        for step in steps:
            found = expected(side, step, samples_s / side.batch)
            filled = (side.batch - 1) / samples_s
            if found.latency_s + filled > latency_s or samples_s / side.batch * side.seconds >= 1:
                continue
            if watts is not None and (found.watts is None or found.watts > watts):
                continue
            if best is None or found.trained_sps > best.trained_sps:
                best = found
    return best
