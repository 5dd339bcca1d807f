"""The Pareto front: the rows that nothing beats on both axes at once.

Everything off the front is a bad buy whatever one cares about; on it, each gain on one axis costs on the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row")


def pareto(
    rows: Iterable[Row], x: Callable[[Row], float | None], y: Callable[[Row], float | None]
) -> list[Row]:
    """Return the rows on the front of two costs (less is better), by rising x.

    A row without one of them is left out. Negate a key to make more better. Rows equal on both
    all stay.
    """
    points = [(a, b, row) for row in rows if (a := x(row)) is not None and (b := y(row)) is not None]
    front: list[tuple[float, float, Row]] = []
    for point in sorted(points, key=lambda p: p[:2]):
        if not front or point[1] < front[-1][1] or point[:2] == front[-1][:2]:
            front.append(point)
    return [row for *_, row in front]


def nondominated(rows: Iterable[Row], costs: Callable[[Row], Sequence[float] | None]) -> list[Row]:
    """Return the rows that no other is as good as on every cost and better on one, in their order.

    A row without costs is left out; equals all stay.
    """
    points = [(found, row) for row in rows if (found := costs(row)) is not None]

    def beaten(mine: Sequence[float]) -> bool:
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and tuple(other) != tuple(mine)
            for other, _ in points
        )

    return [row for found, row in points if not beaten(found)]
