"""Decode a video into small frames: the part of dataset.py that needs PyAV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

CROP = 0.875
"""Share of the resized short side that the centre crop keeps."""


def decode(path: Path, *, side: int, every: int, limit: int) -> NDArray[np.uint8]:
    """Return up to `limit` frames, every `every`-th of the video: uint8 RGB (n, side, side, 3).

    The short side is resized (bilinear) and the middle cropped. ValueError with the reason if the file is not a
    video, is damaged in the part that is read, or has fewer than two such frames.
    """
    frames = []
    try:
        with av.open(str(path)) as container:
            for index, frame in enumerate(container.decode(video=0)):
                if index % every == 0:
                    frames.append(_small(frame, side))
                if len(frames) == limit:
                    break
    except (av.error.FFmpegError, OSError, IndexError, ValueError) as error:
        raise ValueError(_reason(error, path)) from error
    if len(frames) < 2:
        raise ValueError(f"{len(frames)} usable frames")
    return np.stack(frames)


def _small(frame: Any, side: int) -> NDArray[np.uint8]:
    scale = int(side / CROP) / min(frame.width, frame.height)
    width, height = (round(length * scale) for length in (frame.width, frame.height))
    image = frame.reformat(width=width, height=height, format="rgb24", interpolation="BILINEAR").to_ndarray()
    top, left = (height - side) // 2, (width - side) // 2
    cut: NDArray[np.uint8] = image[top : top + side, left : left + side]
    return cut


def _reason(error: BaseException, path: Path) -> str:
    if isinstance(error, IndexError):
        return "no video stream"
    return " ".join(str(error).replace(str(path), path.name).split()) or type(error).__name__
