"""A made-up moving picture that costs next to nothing a frame, for tests and for pipelines without decoding."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.frames.frame import Frame, Source
from edgescope.records import Json
from edgescope.wings.video.sources.paced import Paced

POOL = 16
"""Different frames, made at the start; they come again and again."""
USUAL_FPS = 30.0
"""The time stamps' rate if no rate is given."""


class Synthetic:
    """Gives the same frames in the same order in every run; `frames` of them, or endlessly if it is 0."""

    live = False

    def __init__(self, width: int, height: int, *, fps: float = USUAL_FPS, frames: int = 0) -> None:
        self._pool = [_picture(width, height, k) for k in range(POOL)]
        self._about: dict[str, Json] = {"width": width, "height": height, "fps": fps, "codec": "synthetic"}
        self._fps, self._frames, self._given = fps, frames, 0

    def read(self) -> Frame | None:
        """Return the next frame, whose array is read-only; None after the last one."""
        if not self._pool or (self._frames and self._given == self._frames):
            return None
        index = self._given
        self._given += 1
        return Frame(self._pool[index % POOL], index, time_s=index / self._fps)

    def facts(self) -> Mapping[str, Json]:
        """Return its size, its rate, and how many frames were given."""
        return {**self._about, "frames": self._given}

    def close(self) -> None:
        """Free the frames."""
        self._pool = []


def _picture(width: int, height: int, step: int) -> NDArray[np.uint8]:
    """Return colour gradients with a bright square that moves a sixteenth of the way a step."""
    across = np.linspace(0, 255, width, dtype=np.uint8)[None, :]
    down = np.linspace(0, 255, height, dtype=np.uint8)[:, None]
    image = np.empty((height, width, 3), np.uint8)
    image[..., 0], image[..., 1], image[..., 2] = across, down, 16 * step
    side = max(1, min(width, height) // 4)
    x, y = (width - side) * step // POOL, (height - side) * step // POOL
    image[y : y + side, x : x + side] = 255
    image.setflags(write=False)
    return image


def synthetic(name: str, *, frames: int = 0, clock: Clock | None = None) -> Source:
    """Return WIDTHxHEIGHT, or WIDTHxHEIGHT@FPS, which is live; UsageError if `name` is neither."""
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)(?:@(\d+(?:\.\d+)?))?", name)
    fps = float(found[3] or USUAL_FPS) if found else 0.0
    if found is None or not fps:
        raise UsageError(
            "E-VIDEO-3",
            f"{name!r} is no size of a synthetic video",
            fix="synthetic:640x480, or synthetic:640x480@30",
        )
    made = Synthetic(int(found[1]), int(found[2]), fps=fps, frames=frames)
    return Paced(made, fps=fps, clock=clock) if found[3] else made
