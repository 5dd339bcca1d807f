"""From frames to a network's input: one image after another, vectorised on the host, or on the device.

The three ways follow the same Preprocess, so they give the same input but for the resampling: Pillow's where frames
come in full size, libswscale's where the source has scaled them already, torch's on a device.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames.frame import Frame, Item
from edgescope.models.base import Fit
from edgescope.models.image.preprocess import FILTERS, Placed, Preprocess


def fit_of(preprocess: Preprocess, frame: Frame) -> Fit:
    """Return how a frame is fitted into the input."""
    width, height = frame.size
    at = preprocess.placed(width, height)
    return Fit(at.width / width, at.height / height, float(-at.left), float(-at.top))


def padded(array: NDArray[Any], batch: int) -> NDArray[Any]:
    """Return the array with its last row repeated up to the batch, contiguous."""
    return np.ascontiguousarray(array[np.minimum(np.arange(batch), len(array) - 1)])


def vectorisable(preprocess: Sequence[Any]) -> list[Preprocess]:
    """Return those that are known as data, not only as a function: only they can be applied to whole arrays."""
    return [step for step in preprocess if isinstance(step, Preprocess)]


class OneByOne:
    """Turns each frame into a picture and that into an input, as a loop around a network's own preprocessing does."""

    def __init__(self, preprocess: Sequence[Callable[[Any], NDArray[np.float32]]], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        from PIL import Image

        pictures = [Image.fromarray(frame.pixels) for frame in item.frames]
        item.inputs = [padded(np.stack([step(p) for p in pictures]), self.batch) for step in self.preprocess]
        item.fits = _fits(self.preprocess[0], item.frames)


class OnHost:
    """Writes all frames of a unit straight into the network's float32 input, one multiply-add per channel."""

    def __init__(self, preprocess: Sequence[Preprocess], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch
        self.factors = [coefficients(step) for step in preprocess]
        self.arrays = [Arrays((batch, len(step.mean), *step.sides)) for step in preprocess]

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        item.inputs = [
            self._input(step, item.frames, *factors, arrays.free())
            for step, factors, arrays in zip(self.preprocess, self.factors, self.arrays, strict=True)
        ]
        item.fits = _fits(self.preprocess[0], item.frames)

    def _input(
        self,
        preprocess: Preprocess,
        frames: Sequence[Frame],
        scale: NDArray[np.float32],
        shift: NDArray[np.float32],
        out: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        for row, frame in enumerate(frames):
            pixels = _cut(preprocess, frame).transpose(2, 0, 1)
            np.copyto(out[row], pixels[::-1] if preprocess.order == "bgr" else pixels)
        some = out[: len(frames)]
        if (scale != 1).any():
            some *= scale[:, None, None]
        if shift.any():
            some += shift[:, None, None]
        out[len(frames) :] = out[len(frames) - 1]
        return out


def _floats(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.empty(shape, dtype=np.float32)


class Arrays:
    """Arrays of one shape that are used again once nobody holds them: new memory costs time, page by page."""

    def __init__(
        self, shape: tuple[int, ...], make: Callable[[tuple[int, ...]], NDArray[Any]] = _floats
    ) -> None:
        self.shape, self.make, self.made = shape, make, list[NDArray[Any]]()
        self.lock = threading.Lock()

    def free(self) -> NDArray[Any]:
        """Return an array that only this list refers to, or a new one."""
        with self.lock:
            for array in self.made:
                if sys.getrefcount(array) <= HELD_HERE:
                    return array
            self.made.append(self.make(self.shape))
            return self.made[-1]


HELD_HERE = 3
"""References to an array that is free: the list's, the loop's, and that of asking."""


def coefficients(preprocess: Preprocess) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return scale and shift per channel: a pixel from 0 to 255 times scale plus shift is the network's input."""
    std = np.array(preprocess.std, dtype=np.float64)
    scale = 1.0 / (preprocess.divide * std)
    return scale.astype(np.float32), (-np.array(preprocess.mean) / std).astype(np.float32)


def _fits(preprocess: Any, frames: Sequence[Frame]) -> list[Fit]:
    """Return how each frame was fitted; a network's own function does not say."""
    return [fit_of(preprocess, frame) if isinstance(preprocess, Preprocess) else Fit() for frame in frames]


def _cut(preprocess: Preprocess, frame: Frame) -> NDArray[np.uint8]:
    """Return the pixels of a frame, resized and cut to the input's size: (height, width, channels)."""
    at, pixels = preprocess.placed(*frame.size), frame.pixels
    if len(preprocess.mean) == 1:
        pixels = _grey(pixels)
    return _placed(resized(pixels, at, preprocess), at, preprocess)


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return luma as Pillow computes it (ITU-R 601), with one channel."""
    luma = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32) + 0x8000 >> 16
    return luma.astype(np.uint8)[..., None]


def resized(pixels: NDArray[np.uint8], at: Placed, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Return the pixels of a frame in the size that comes before cutting, which may be their own."""
    if pixels.shape[:2] == (at.height, at.width):
        return pixels
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    resized = image.resize((at.width, at.height), resample=FILTERS.index(preprocess.interpolation))
    return np.asarray(resized).reshape(at.height, at.width, -1)


def _placed(pixels: NDArray[np.uint8], at: Placed, preprocess: Preprocess) -> NDArray[np.uint8]:
    high, wide = preprocess.sides
    if at.left >= 0 and at.top >= 0:
        return pixels[at.top : at.top + high, at.left : at.left + wide]
    sheet = np.full((high, wide, pixels.shape[2]), 114, dtype=np.uint8)
    sheet[-at.top : -at.top + at.height, -at.left : -at.left + at.width] = pixels
    return sheet
