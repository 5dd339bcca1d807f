"""Draw detections onto a frame with Pillow, for annotated output."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Detections
from edgescope.registry import need

Colour = tuple[int, int, int]
GOLDEN = 0.618034
"""Step between the hues of two neighbouring classes: the golden ratio keeps all of them apart."""
LINE, TEXT = 1 / 240, 1 / 28
"""Width of a line and height of a letter, as shares of the short side of the frame."""


def colour(kind: int) -> Colour:
    """Return the colour of a class: its hue from its number, light enough for black letters."""
    red, green, blue = colorsys.hsv_to_rgb(0.33 + kind * GOLDEN, 0.75, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def drawn(
    frame: NDArray[np.uint8], found: Detections, names: Sequence[str] = (), *, scores: bool = True
) -> NDArray[np.uint8]:
    """Return a copy of an RGB frame (height, width, 3) with each box, its class and its score; the best lie on top.

    `names` are the classes by number; a class beyond them is written as its number. UnavailableError without Pillow.
    """
    image = need("PIL.Image:fromarray", "drawing", "pip install pillow")(np.ascontiguousarray(frame))
    brush = need("PIL.ImageDraw:Draw", "drawing", "pip install pillow")(image)
    short = min(image.size)
    width, size = max(1, round(short * LINE)), max(10, round(short * TEXT))
    font = need("PIL.ImageFont:load_default", "drawing", "pip install pillow")(size)
    for box, score, kind in reversed(list(zip(found.boxes, found.scores, found.classes, strict=True))):
        x1, y1, x2, y2 = (float(side) for side in box)
        text = names[kind] if kind < len(names) else str(kind)
        _box(brush, (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)), colour(int(kind)), width)
        _label(brush, (x1, y1), f"{text} {score:.2f}" if scores else text, colour(int(kind)), font)
    return np.asarray(image)


def _box(brush: Any, sides: tuple[float, float, float, float], of: Colour, width: int) -> None:
    brush.rectangle(sides, outline=of, width=width)


def _label(brush: Any, corner: tuple[float, float], text: str, of: Colour, font: Any) -> None:
    """Write text in black on the box's colour: above its corner, or inside the frame where that is outside."""
    left, top, right, bottom = brush.textbbox((0, 0), text, font=font)
    wide, high = right - left + 4, bottom - top + 4
    limit = brush.im.size
    x = min(max(corner[0], 0), max(limit[0] - wide, 0))
    y = corner[1] - high if corner[1] >= high else max(corner[1], 0)
    y = min(y, max(limit[1] - high, 0))
    brush.rectangle((x, y, x + wide, y + high), fill=of)
    brush.text((x + 2 - left, y + 2 - top), text, fill=(0, 0, 0), font=font)
