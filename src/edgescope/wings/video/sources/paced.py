"""A source that plays at its own speed, or at a given one, like a camera: frames are due by the clock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from edgescope.clock import Clock, MonotonicClock
from edgescope.errors import UsageError
from edgescope.frames.frame import Frame, Source
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
