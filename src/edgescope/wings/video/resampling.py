"""Pillow's resampling as a matrix: each row says how much of each old pixel a new one takes.

The product with it is what Pillow computes (a filter that widens where a picture shrinks), for devices that multiply
matrices faster than anything else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

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
