"""From frames to a network's input: one image after another, vectorised on the host, or on the device.

The three ways follow the same Preprocess, so they give the same input but for the resampling: Pillow's where frames
come in full size, libswscale's where the source has scaled them already, torch's on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Fit
from edgescope.models.image.preprocess import FILTERS, Placed, Preprocess
from edgescope.video.frame import Frame, Item


def fit_of(preprocess: Preprocess, frame: Frame) -> Fit:
    """Return how a frame is fitted into the input."""
    width, height = frame.size
    at = preprocess.placed(width, height)
    return Fit(at.width / width, at.height / height, float(-at.left), float(-at.top))


def padded(array: NDArray[Any], batch: int) -> NDArray[Any]:
    """Return the array with its last row repeated up to the batch, contiguous."""
    return np.ascontiguousarray(array[np.minimum(np.arange(batch), len(array) - 1)])


class OneByOne:
    """Turns each frame into a picture and that into an input, as a loop around a network's own preprocessing does."""

    def __init__(self, preprocess: Sequence[Callable[[Any], NDArray[np.float32]]], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        from PIL import Image

        pictures = [Image.fromarray(np.asarray(frame.image)) for frame in item.frames]
        item.inputs = [padded(np.stack([step(p) for p in pictures]), self.batch) for step in self.preprocess]
        item.fits = _fits(self.preprocess[0], item.frames)


class OnHost:
    """Writes all frames of a unit straight into the network's float32 input, one multiply-add per channel."""

    def __init__(self, preprocess: Sequence[Preprocess], batch: int) -> None:
        self.preprocess, self.batch = preprocess, batch

    def __call__(self, item: Item) -> None:
        """Set the unit's inputs and fits."""
        item.inputs = [self._input(step, item.frames) for step in self.preprocess]
        item.fits = _fits(self.preprocess[0], item.frames)

    def _input(self, preprocess: Preprocess, frames: Sequence[Frame]) -> NDArray[np.float32]:
        high, wide = preprocess.sides
        channels = len(preprocess.mean)
        out = np.empty((self.batch, channels, high, wide), dtype=np.float32)
        scale, shift = coefficients(preprocess)
        for row, frame in enumerate(frames):
            pixels = _cut(preprocess, frame)
            for channel in range(channels):
                of = channels - 1 - channel if preprocess.order == "bgr" else channel
                np.multiply(pixels[..., of], scale[channel], out=out[row, channel])
            out[row] += shift[:, None, None]
        out[len(frames) :] = out[len(frames) - 1]
        return out


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
    at, pixels = preprocess.placed(*frame.size), np.asarray(frame.image)
    if len(preprocess.mean) == 1:
        pixels = _grey(pixels)
    if pixels.shape[:2] != (at.height, at.width):
        pixels = _resized(pixels, at, preprocess)
    return _placed(pixels, at, preprocess)


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return luma as Pillow computes it (ITU-R 601), with one channel."""
    luma = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], dtype=np.uint32) + 0x8000 >> 16
    return luma.astype(np.uint8)[..., None]


def _resized(pixels: NDArray[np.uint8], at: Placed, preprocess: Preprocess) -> NDArray[np.uint8]:
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
