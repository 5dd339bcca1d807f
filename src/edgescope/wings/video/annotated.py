"""Frames with what was found drawn onto them: as a video, as a folder of pictures, or a few for a page."""

from __future__ import annotations

import base64
import io
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.frames.frame import Item
from edgescope.records import Json
from edgescope.registry import need
from edgescope.wings.video.drawing import drawn
from edgescope.wings.video.flow import EndOfFilm, Flow

VIDEO = (".mp4", ".mkv", ".avi", ".mov")
PYAV = "pip install 'edgescope[video]'"
SIDE = 360
"""Longest side of a picture for a page, in pixels."""
Picture = tuple[int, int, NDArray[np.uint8]]
"""A frame's number, the number of boxes found in it, and its pixels with the boxes, RGB (height, width, 3).

The frame itself is not kept: its image may lie in a decoder's memory."""


def pictures(
    flow: Flow, names: Sequence[str], frames: int, seconds: float = float("inf")
) -> Iterator[Picture]:
    """Yield the first camera's frames with their boxes, in order: at most `frames`, none begun after `seconds`.

    `flow` runs its stages one after another; `names` are the classes by number.
    """
    seen: list[Item] = []
    flow.seen = seen.append
    end, given, unit = time.monotonic() + seconds, 0, 0
    while given < frames and time.monotonic() < end:
        try:
            flow.issue(unit, 0, lambda *_: None)
        except EndOfFilm:
            return
        unit += 1
        while seen:
            item = seen.pop()
            for frame, found in zip(item.frames[: frames - given], item.found, strict=False):
                if frame.camera == 0:
                    given += 1
                    yield frame.index, len(found), drawn(frame.pixels, found, names)


def write(path: Path, shown: Iterable[Picture], fps: float) -> int:
    """Write the pictures as a video (a suffix of VIDEO), or into a folder as JPEG files; return how many.

    Raises OSError if the disk does, UnavailableError without PyAV.
    """
    return _video(path, shown, fps) if path.suffix in VIDEO else _folder(path, shown)


def thumbnails(shown: Iterable[Picture], count: int) -> list[Json]:
    """Return `count` small pictures as [JPEG data URI, caption], of each part of the film the one with most boxes."""
    kept = list(shown)
    ends = [k * len(kept) // count for k in range(count + 1)]
    parts = [kept[first:stop] for first, stop in itertools.pairwise(ends) if first < stop]
    best = [max(part, key=lambda picture: picture[1]) for part in parts]
    return [[_uri(pixels), _caption(index, boxes)] for index, boxes, pixels in best]


def _caption(index: int, boxes: int) -> str:
    return f"frame {index}: {boxes} box{'' if boxes == 1 else 'es'}"


def _uri(pixels: NDArray[np.uint8]) -> str:
    image: Any = need("PIL.Image:fromarray", "drawing", "pip install pillow")(pixels)
    image.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def _folder(path: Path, shown: Iterable[Picture]) -> int:
    path.mkdir(parents=True, exist_ok=True)
    fromarray = need("PIL.Image:fromarray", "drawing", "pip install pillow")
    written = 0
    for index, _, pixels in shown:
        fromarray(pixels).save(path / f"{index:06d}.jpg", quality=90)
        written += 1
    return written


def _video(path: Path, shown: Iterable[Picture], fps: float) -> int:
    """Write MPEG-4, which every build of FFmpeg has; sides are made even, as its pixel format asks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame_of = need("av:VideoFrame", "writing videos", PYAV).from_ndarray
    stream, written = None, 0
    with closing(need("av:open", "writing videos", PYAV)(str(path), "w")) as out:
        for _, _, pixels in shown:
            high, wide = (side // 2 * 2 for side in pixels.shape[:2])
            if stream is None:
                stream = out.add_stream("mpeg4", rate=Fraction(fps or 25).limit_denominator(1001))
                stream.width, stream.height, stream.pix_fmt = wide, high, "yuv420p"
                stream.bit_rate = 4 * wide * high
            out.mux(stream.encode(frame_of(np.ascontiguousarray(pixels[:high, :wide]), format="rgb24")))
            written += 1
        if stream is not None:
            out.mux(stream.encode())
    return written
