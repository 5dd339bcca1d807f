"""The Pareto front: the rows that no other row beats on every cost; on it, each gain on one costs on another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Point = TypeVar("Point")


def pareto(
    rows: Iterable[Point], x: Callable[[Point], float | None], y: Callable[[Point], float | None]
) -> list[Point]:
    """Return the rows on the front of two costs (less is better), by rising x.

    A row without one of the costs is left out. Negate a key if more is better. Rows equal on both costs all stay.
    """
    points = [(a, b, row) for row in rows if (a := x(row)) is not None and (b := y(row)) is not None]
    front: list[tuple[float, float, Point]] = []
    for point in sorted(points, key=lambda p: p[:2]):
        if not front or point[1] < front[-1][1] or point[:2] == front[-1][:2]:
            front.append(point)
    return [row for *_, row in front]


def nondominated(rows: Iterable[Point], costs: Callable[[Point], Sequence[float] | None]) -> list[Point]:
    """Return, in order, the rows that no other dominates (as good on every cost and better on one).

    A row without costs is left out; equals all stay.
    """
    points = [(found, row) for row in rows if (found := costs(row)) is not None]

    def beaten(mine: Sequence[float]) -> bool:
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and tuple(other) != tuple(mine)
            for other, _ in points
        )

    return [row for found, row in points if not beaten(found)]
