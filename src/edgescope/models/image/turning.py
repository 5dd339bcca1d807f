"""What was drawn on a picture (boxes, a map of classes), turned as the picture is that its camera noted to be turned.

It was drawn on the picture as it is stored or as a person sees it; which of the two, its size says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from edgescope.records.lazy import NDArray, np

ORIENTATION = 0x0112
"""The number of the EXIF field that says how a picture is to be turned."""
Points: TypeAlias = "NDArray[np.float32]"
#: Orientation -> where a point (x, y) of a stored picture of width w and height h comes to lie.
POINTS: Mapping[int, Callable[[Any, Any, int, int], tuple[Any, Any]]] = {
    2: lambda x, y, w, h: (w - x, y),
    3: lambda x, y, w, h: (w - x, h - y),
    4: lambda x, y, w, h: (x, h - y),
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (h - y, x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (y, w - x),
}


def orientation(image: Any) -> int:
    """Return how a PIL image is to be turned: 1 for not at all, else a key of POINTS."""
    found = image.getexif().get(ORIENTATION, 1)
    return found if found in POINTS else 1


def size(image: Any) -> tuple[int, int]:
    """Return the width and height of a PIL image once it is turned."""
    wide, high = image.size
    return (high, wide) if orientation(image) >= 5 else (wide, high)


def boxes(found: Points, image: Any) -> Points:
    """Return boxes (k, 5 or 6) that were drawn on the stored picture as they lie on the turned one."""
    turned = POINTS.get(orientation(image))
    if turned is None:
        return found
    out = found.copy()
    one, other = (turned(found[:, a], found[:, b], *image.size) for a, b in ((0, 1), (2, 3)))
    for column, (a, b) in enumerate(zip(one, other, strict=True)):
        out[:, column], out[:, column + 2] = np.minimum(a, b), np.maximum(a, b)
    return out


def class_map(found: NDArray[Any], image: Any) -> NDArray[Any]:
    """Return a map (height, width) of the stored picture as it lies on the turned one."""
    turned = orientation(image)
    if turned == 1:
        return found
    wide, high = size(image)
    rows, columns = np.indices((high, wide))
    back = {6: 8, 8: 6}.get(turned, turned)  # the others undo themselves
    x, y = POINTS[back](columns + 0.5, rows + 0.5, wide, high)
    moved: NDArray[Any] = found[np.floor(y).astype(int), np.floor(x).astype(int)]
    return moved
