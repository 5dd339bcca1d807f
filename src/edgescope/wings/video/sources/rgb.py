"""Frames decoded by FFmpeg -> RGB arrays, upright, in the size that is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from av.sidedata.sidedata import Type
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Size = tuple[int, int]
Matrix = tuple[int, int, int, int]
IDENTITY: Matrix = (1, 0, 0, 1)


#: libswscale in one thread: with several a frame takes a fifth more of the cores that other stages need. Older PyAV
#: has no such argument and always uses one.
ALONE: dict[str, Any] = {"threads": 1} if "threads" in (VideoReformatter.reformat.__doc__ or "") else {}


class Rgb:
    """Turns decoded frames into arrays; libswscale scales and converts in one step, with tables kept between frames.

    `size` is the (width, height) of the upright array; None keeps the size of the frame. With `whole`, `whole()` gives
    the frame in its own size as well.
    """

    def __init__(self, size: Size | None = None, *, whole: bool = False) -> None:
        self.size = size
        self._full = Rgb() if size and whole else None
        self._scale: Callable[..., Any] = VideoReformatter().reformat
        self._part: Callable[..., Any] = VideoReformatter().reformat
        self._turn: int | None = None
        self._matrix = IDENTITY
        self.sides: Size = (0, 0)
        """Width and height, upright, of the last frame before it was scaled."""
        self.rotation = 0
        """Degrees clockwise by which the last frame was turned to be upright."""

    def __call__(self, frame: Any) -> Image:
        """Return (height, width, 3) uint8 of a decoded frame; the colours of a scaled one lie apart in memory."""
        if frame.rotation != self._turn:
            self._turn, self._matrix = frame.rotation, display_matrix(frame)
        matrix = self._matrix
        turned = _swaps(matrix)
        self.sides = (frame.height, frame.width) if turned else (frame.width, frame.height)
        self.rotation = degrees(matrix)
        width, height = self.size or self.sides
        wide, high = (height, width) if turned else (width, height)
        if self.size is None:
            if frame.format.components[0].bits > 8:  # straight to rgb24 is up to 2 levels too dark
                frame = self._scale(frame, wide, high, "gbrp", **ALONE)
                return upright(self._part(frame, wide, high, "rgb24", **ALONE).to_ndarray(), matrix)
            return upright(self._scale(frame, wide, high, "rgb24", **ALONE).to_ndarray(), matrix)
        return upright(_together(self._scale(frame, wide, high, "gbrp", **ALONE)), matrix)

    def whole(self, frame: Any) -> Image | None:
        """Return the upright frame in its own size beside the scaled one; None if nobody asked for it."""
        return None if self._full is None else self._full(frame)

    def close(self) -> None:
        """Free the tables, and libswscale's threads; the next frame makes them again."""
        self._scale, self._part = VideoReformatter().reformat, VideoReformatter().reformat
        if self._full is not None:
            self._full.close()


def _together(picture: Any) -> Image:
    """Return (height, width, 3) of planes of green, blue and red, each of which stays in one piece.

    libswscale scales into planes in half the time that pixels of three colours take, and the inputs of networks have
    their colours apart, too.
    """
    planes = np.empty((3, picture.height, picture.width), np.uint8)
    for colour, plane in zip((1, 2, 0), picture.planes, strict=True):
        planes[colour] = np.frombuffer(plane, np.uint8).reshape(picture.height, -1)[:, : picture.width]
    return planes.transpose(1, 2, 0)


def display_matrix(frame: Any) -> Matrix:
    """Return a, b, c, d of a frame's display matrix: x' = a x + c y, y' = b x + d y, in units of 1/65536.

    A frame whose side data were read is freed by the garbage collector only, so few frames should be.
    """
    data = frame.side_data.get(Type.DISPLAYMATRIX)
    if data is None:
        return IDENTITY
    a, b, _, c, d = np.frombuffer(bytes(data)[:20], "<i4").tolist()
    return a, b, c, d


def degrees(matrix: Matrix) -> int:
    """Return the clockwise turn of a display matrix: 0, 90, 180 or 270."""
    a, b, _, _ = matrix
    return round(math.degrees(math.atan2(b, a)) / 90) * 90 % 360


def _swaps(matrix: Matrix) -> bool:
    """Return whether width and height change places."""
    a, b, _, _ = matrix
    return abs(b) > abs(a)


def upright(image: Image, matrix: Matrix) -> Image:
    """Return the image as its display matrix shows it: itself, or contiguous, turned by 90 degrees and mirrored."""
    a, b, c, d = matrix
    swaps = _swaps(matrix)
    across, down = (c, b) if swaps else (a, d)
    if not swaps and across >= 0 and down >= 0:
        return image
    if swaps:
        image = image.transpose(1, 0, 2)
    if across < 0:
        image = image[:, ::-1]
    if down < 0:
        image = image[::-1]
    return np.ascontiguousarray(image)
