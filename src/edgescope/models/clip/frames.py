"""Frames of a video file one by one, as images, decoded while a pipeline is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av

from edgescope.errors import ModelError


class Film:
    """A video file that is read frame by frame, again from the start if `loop` is set."""

    def __init__(self, path: Path, *, loop: bool) -> None:
        self.path, self.loop, self.passes = path, loop, 0
        self._frames = self._opened()

    def _opened(self) -> Iterator[Any]:
        """Yield PIL images in presentation order; ModelError if the file is not a video or is damaged."""
        try:
            with av.open(str(self.path)) as container:
                for frame in container.decode(video=0):
                    yield frame.to_image()
        except (av.error.FFmpegError, OSError, IndexError) as error:
            raise ModelError(
                "E-FRAMES-1",
                f"{self.path.name} cannot be decoded",
                evidence=f"{type(error).__name__}: {error}",
                effect="The pipeline has no more frames",
                fix="--workload-option source=FILE with a whole video",
            ) from error

    def next(self) -> Any | None:
        """Return the next frame, or None after the last frame if the film does not loop."""
        frame = next(self._frames, None)
        if frame is not None or not self.loop:
            return frame
        self.passes += 1
        self._frames = self._opened()
        return next(self._frames, None)
