"""The stages that compute on a CUDA device with torch: preparing frames there, and the streams that stages run on.

Pillow's resampling is a matrix there: each row says how much of each old pixel a new one takes. The product with it is
what Pillow computes (a filter that widens where a picture shrinks), for devices that multiply matrices faster than
anything else.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope import registry
from edgescope.frames import Item
from edgescope.models.image.preprocess import Preprocess
from edgescope.wings.video.stages import Arrays, coefficients, fit_of

Array = NDArray[np.float64]


def _cubic(x: Array) -> Array:
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _hamming(x: Array) -> Array:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(math.pi * x)), 0.0)


KERNELS: Mapping[str, tuple[float, Callable[[Array], Array]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(np.float64)),
    "bilinear": (1.0, lambda x: np.clip(1 - np.abs(x), 0, None)),
    "hamming": (1.0, _hamming),
    "bicubic": (2.0, _cubic),
    "lanczos": (3.0, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}
"""Filter -> half its width, and its weight at a distance in pixels."""


@functools.lru_cache(maxsize=64)
def weights(before: int, after: int, interpolation: str) -> Array:
    """Return (after, before): the weights that resize `before` pixels to `after`; each row adds up to 1."""
    step = before / after
    centre = (np.arange(after) + 0.5) * step
    if interpolation == "nearest":
        nearest = np.zeros((after, before))
        nearest[np.arange(after), np.minimum(centre.astype(int), before - 1)] = 1
        return nearest
    half, kernel = KERNELS[interpolation]
    wider = max(step, 1.0)
    first = np.maximum((centre - half * wider + 0.5).astype(int), 0)[:, None]
    last = np.minimum((centre + half * wider + 0.5).astype(int), before)[:, None]
    pixel = np.arange(before)[None]
    found: Array = kernel((pixel - centre[:, None] + 0.5) / wider) * ((pixel >= first) & (pixel < last))
    found /= found.sum(axis=1, keepdims=True)
    return found


# -- the stages ----------------------------------------------------------------------------------------------


TENSOR_CORES = (7, 0)
"""Compute capability from which fp16 products are fast; pixels are whole numbers in fp16, too."""


class Side(NamedTuple):
    """One axis of a picture that is resized and cut."""

    axis: int
    size: int
    """Pixels after resizing; those from `first` to before `last` are wanted."""
    first: int
    last: int
    interpolation: str


class OnDevice:
    """Uploads a unit's frames as bytes (a quarter of float32) and resizes, cuts and normalises them on the device.

    Frames that were decoded there are not copied to it. All frames of a unit have one size. Resizing is two matrix
    products with Pillow's weights, and rounds where Pillow rounds.
    """

    def __init__(self, preprocess: Sequence[Preprocess], batch: int, device: str = "cuda") -> None:
        self.preprocess, self.batch, self.device = preprocess, batch, device
        self.cuda = registry.place(device).cuda
        self.factors = [
            tuple(torch.from_numpy(c).to(device)[None, :, None, None] for c in coefficients(step))
            for step in preprocess
        ]
        fast = self.cuda and torch.cuda.get_device_capability() >= TENSOR_CORES
        self.dtype = torch.float16 if fast else torch.float32
        self.staging: dict[tuple[int, ...], Arrays] = {}
        self.made: dict[tuple[int, Side], torch.Tensor] = {}

    @torch.inference_mode()
    def __call__(self, item: Item) -> None:
        """Set the unit's inputs, on the device, and fits; the device is done when it returns."""
        images = [frame.image for frame in item.frames]
        held = None  # the bytes that the copy reads must outlive it
        if isinstance(images[0], torch.Tensor):
            pixels = torch.stack(images)
        else:
            held = self._staged(images)
            pixels = torch.from_numpy(held[: len(images)]).to(self.device, non_blocking=True)
        pixels = pixels.permute(0, 3, 1, 2).to(self.dtype, memory_format=torch.contiguous_format)
        item.fits = [fit_of(self.preprocess[0], frame) for frame in item.frames]
        size = item.frames[0].size
        item.inputs = [
            self._input(pixels, size, step, *factors)
            for step, factors in zip(self.preprocess, self.factors, strict=True)
        ]
        if self.cuda:
            torch.cuda.current_stream().synchronize()  # the network runs on another stream
        del held

    def _staged(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the images in one array of pinned memory, which the device copies from while the host goes on."""
        shape = (self.batch, *images[0].shape)
        if shape not in self.staging:
            self.staging[shape] = Arrays(shape, _pinned if self.cuda else _plain)
        staged = self.staging[shape].free()
        for row, image in enumerate(images):
            staged[row] = image
        return staged

    def _input(
        self,
        pixels: torch.Tensor,
        size: tuple[int, int],
        preprocess: Preprocess,
        scale: torch.Tensor,
        shift: torch.Tensor,
    ) -> torch.Tensor:
        at, (high, wide) = preprocess.placed(*size), preprocess.sides
        left, top = max(0, at.left), max(0, at.top)
        right, bottom = min(at.width, left + wide), min(at.height, top + high)
        filter_ = preprocess.interpolation
        sides = [Side(3, at.width, left, right, filter_), Side(2, at.height, top, bottom, filter_)]
        if at.height < size[1] and at.height * size[0] < size[1] * at.width:
            sides.reverse()  # Pillow begins with the side that shrinks more
        inputs = pixels
        for side in sides:
            inputs = self._resized(inputs, side)
        if preprocess.order == "bgr":
            inputs = inputs.flip(1)
        if len(preprocess.mean) == 1:
            grey = torch.tensor([0.299, 0.587, 0.114], device=inputs.device)[None, :, None, None]
            inputs = (inputs * grey).sum(1, keepdim=True)
        if at.left < 0 or at.top < 0:
            border = (-at.left, wide - at.width + at.left, -at.top, high - at.height + at.top)
            inputs = torch.nn.functional.pad(inputs, border, value=114.0)
        inputs = torch.addcmul(shift, inputs, scale)  # float32, whatever the pixels are
        if len(inputs) < self.batch:
            inputs = torch.cat([inputs, inputs[-1:].expand(self.batch - len(inputs), -1, -1, -1)])
        return inputs.contiguous()

    def _resized(self, pixels: torch.Tensor, side: Side) -> torch.Tensor:
        """Return the wanted pixels of an axis after resizing it, as whole numbers."""
        n, channels, high, wide = pixels.shape
        before = pixels.shape[side.axis]
        if before == side.size:
            return pixels.narrow(side.axis, side.first, side.last - side.first)
        key = (before, side)
        if key not in self.made:
            made = torch.from_numpy(weights(before, side.size, side.interpolation)[side.first : side.last])
            self.made[key] = made.to(self.device, self.dtype)
        matrix = self.made[key]
        flat = pixels.reshape(n * channels, high, wide)
        if side.axis == 3:
            product = (flat.reshape(-1, wide) @ matrix.T).view(n, channels, high, -1)
        else:
            product = torch.bmm(matrix.expand(len(flat), -1, -1), flat).view(n, channels, -1, wide)
        return product.round_().clamp_(0, 255)


class OnStream:
    """A stage on a stream of the calling thread, which the device serves before the networks' own streams.

    Threads would else share one stream and wait for each other's work, and short kernels would queue behind a whole
    network. The stream is done when the stage returns, so its results may be read on any other.
    """

    def __init__(self, run: Callable[[Item], None]) -> None:
        self.run, self.local = run, threading.local()

    def __call__(self, item: Item) -> None:
        """Run the stage on this thread's stream, to its end."""
        with torch.cuda.stream(self.stream):
            self.run(item)
            self.stream.synchronize()

    @property
    def stream(self) -> torch.cuda.Stream:
        """Return this thread's stream."""
        if not hasattr(self.local, "stream"):
            self.local.stream = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
        found: torch.cuda.Stream = self.local.stream
        return found

    def device_ns(self, item: Item) -> int:
        """Run the stage again between two events and return the nanoseconds between them, on the device."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self.stream):
            start.record()
            self.run(item)
            end.record()
            end.synchronize()
        return int(start.elapsed_time(end) * 1e6)


def _pinned(shape: tuple[int, ...]) -> np.ndarray:
    made: np.ndarray = torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    return made


def _plain(shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, dtype=np.uint8)
