"""The decoder of detectors whose outputs are boxes already, as YOLOv8's export gives them: (N, 4 + classes, points)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope.models.boxes.decoder import SLACK, Candidate, Candidates, GreedyDecoder, corners, per_class


@dataclass(frozen=True)
class PointDecoder(GreedyDecoder):
    """Reads centre x, y, width, height in pixels and one score per class of every point."""

    score: float = 0.25
    overlap: float = 0.7
    classes: int = 80
    width: int = 640
    height: int = 640

    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return the size of the input, which the outputs do not show."""
        return self.width, self.height

    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return a box for every point and class whose score lies above the threshold."""
        (rows,) = outputs
        image, point = xp.where(xp.amax(rows[:, 4:], 1) > self.score - SLACK)
        some = xp.asarray(rows[image, :, point], dtype=xp.float64)
        row, kind = per_class(some[:, 4:], xp, self.score)
        x, y, wide, high = (some[row, side] for side in range(4))
        boxes = corners(x, y, wide, high, xp)
        return Candidates(image[row], boxes, some[row, kind + 4], kind)

    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image, reading the column of one point after another."""
        (rows,) = outputs
        for point in range(rows.shape[2]):
            x, y, wide, high, *scores = rows[image, :, point].tolist()
            for kind, score in enumerate(scores):
                if score > self.score:
                    sides = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
                    yield Candidate(sides, score, kind)
