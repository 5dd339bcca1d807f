"""What plays in place of a camera: a film at its own speed or a given one, and a made-up moving picture.

Frames are due by the clock. The made-up picture costs next to nothing a frame, for tests and for pipelines without
decoding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgescope.clock import Clock, MonotonicClock
from edgescope.errors import UsageError
from edgescope.frames import Frame, Source
from edgescope.records import Json
from edgescope.registry import SOURCES, load


class Paced:
    """Plays `source` from the first `read` on: at `fps`, or by its time stamps if `fps` is 0.

    A reader that comes early waits; one that comes late gets the newest frame that is due, and the older ones
    are dropped and counted. They are decoded all the same, in the reader's time.
    """

    live = True

    def __init__(self, source: Source, *, fps: float = 0.0, clock: Clock | None = None) -> None:
        self.source, self._clock = source, clock or MonotonicClock()
        self.fps = fps
        self._ahead: Frame | None = None
        self._first: tuple[int, Frame] | None = None
        self._dropped = 0

    def read(self) -> Frame | None:
        """Return the newest frame that is due, waiting for the next if none is; None after the last one."""
        frame = self._next()
        if frame is None:
            return None
        while self._due(frame) <= self._clock.now() and (after := self._next()) is not None:
            if self._due(after) > self._clock.now():
                self._ahead = after
                break
            frame, self._dropped = after, self._dropped + 1
        frame.created_ns = self._due(frame)
        self._clock.sleep_until(frame.created_ns)
        return frame

    def facts(self) -> Mapping[str, Json]:
        """Return the source's facts with `dropped`, and the fps that it is played at."""
        known = self.source.facts()
        return {**known, "fps": self.fps or known.get("fps"), "dropped": self._dropped}

    def close(self) -> None:
        """Close the source."""
        self._ahead = None
        self.source.close()

    def _next(self) -> Frame | None:
        frame, self._ahead = self._ahead or self.source.read(), None
        if frame is not None and self._first is None:
            self._first = (self._clock.now(), frame)
        return frame

    def _due(self, frame: Frame) -> int:
        """Return when the frame is due, on the clock."""
        start, first = self._first or (self._clock.now(), frame)
        seconds = (frame.index - first.index) / self.fps if self.fps else frame.time_s - first.time_s
        if math.isnan(seconds):
            raise UsageError(
                "E-VIDEO-4", "the film has no time stamps and names no frame rate", fix="paced:FILE@30"
            )
        return start + round(seconds * 1e9)


def paced(name: str, *, loop: bool = False, clock: Clock | None = None, **options: object) -> Paced:
    """Return the video file `name` (FILE, or FILE@FPS) played as a camera; `options` are those of a file."""
    found = re.fullmatch(r"(.+)@(\d+(?:\.\d+)?)", name)
    path, fps = (found[1], float(found[2])) if found else (name, 0.0)
    return Paced(load(SOURCES, "file", "source")(path, loop=loop, **options), fps=fps, clock=clock)


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
