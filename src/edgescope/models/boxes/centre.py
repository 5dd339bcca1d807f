"""The decoder of CenterFace (Xu et al., arXiv 1911.03599): a map of how likely a face's centre lies in each cell.

Outputs, for cells of 4 x 4 pixels: the probability, the logarithm of height and width in cells, the offset of the
centre within its cell (y, then x), and five landmarks, which are not read here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgescope.models.boxes.decoder import SLACK, Candidate, Candidates, GreedyDecoder, corners

CELL = 4


@dataclass(frozen=True)
class CentreDecoder(GreedyDecoder):
    """Reads probabilities (N, 1, h, w), sizes (N, 2, h, w) and offsets (N, 2, h, w) of an input of 4h x 4w pixels."""

    READS: ClassVar[int | None] = 3

    score: float = 0.35
    overlap: float = 0.3
    classes: int = 1
    names: tuple[str, ...] = ("face",)

    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return four times the sides of the map."""
        height, width = outputs[0].shape[2:]
        return CELL * int(width), CELL * int(height)

    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return a box for every cell whose probability lies above the score."""
        heat, sizes, offsets = outputs[:3]
        image, y, x = xp.where(heat[:, 0] > self.score - SLACK)
        scores = xp.asarray(heat[image, 0, y, x], dtype=xp.float64)
        (over,) = xp.where(scores > self.score)
        image, y, x, scores = image[over], y[over], x[over], scores[over]
        size = CELL * xp.exp(xp.asarray(sizes[image, :, y, x], dtype=xp.float64))
        moved = xp.asarray(offsets[image, :, y, x], dtype=xp.float64)
        centre_x, centre_y = CELL * (x + moved[:, 1] + 0.5), CELL * (y + moved[:, 0] + 0.5)
        boxes = corners(centre_x, centre_y, size[:, 1], size[:, 0], xp)
        return Candidates(image, boxes, scores, xp.zeros_like(image))

    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image, reading one cell after another."""
        heat, sizes, offsets = outputs[:3]
        for y in range(heat.shape[2]):
            for x in range(heat.shape[3]):
                score = float(heat[image, 0, y, x])
                if score > self.score:
                    high, wide = (CELL * math.exp(float(sizes[image, side, y, x])) for side in range(2))
                    dy, dx = (float(offsets[image, side, y, x]) for side in range(2))
                    centre_x, centre_y = CELL * (x + dx + 0.5), CELL * (y + dy + 0.5)
                    sides = (
                        centre_x - wide / 2,
                        centre_y - high / 2,
                        centre_x + wide / 2,
                        centre_y + high / 2,
                    )
                    yield Candidate(sides, score, 0)
