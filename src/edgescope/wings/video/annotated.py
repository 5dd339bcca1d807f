"""Frames with what was found drawn onto them: as a video, as a folder of pictures, or a few for a page.

The picture of an alarm is the frame at its peak, and below it the score of the stream with the threshold.
"""

from __future__ import annotations

import base64
import colorsys
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

from edgescope.frames import Item
from edgescope.models.base import Detections
from edgescope.records import Json
from edgescope.registry import need
from edgescope.wings.video.alarm import Alarm, Scored
from edgescope.wings.video.flow import EndOfFilm, Flow

Colour = tuple[int, int, int]
GOLDEN = 0.618034
"""Step between the hues of two neighbouring classes: the golden ratio keeps all of them apart."""
LINE, TEXT = 1 / 240, 1 / 28
"""Width of a line and height of a letter, as shares of the short side of the frame."""


def colour(kind: int) -> Colour:
    """Return the colour of a class: its hue from its number, light enough for black letters."""
    red, green, blue = colorsys.hsv_to_rgb(0.33 + kind * GOLDEN, 0.75, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def drawn(
    frame: NDArray[np.uint8], found: Detections, names: Sequence[str] = (), *, scores: bool = True
) -> NDArray[np.uint8]:
    """Return a copy of an RGB frame (height, width, 3) with each box, its class and its score; the best lie on top.

    `names` are the classes by number; a class beyond them is written as its number. UnavailableError without Pillow.
    """
    image = need("PIL.Image:fromarray", "drawing", "pip install pillow")(np.ascontiguousarray(frame))
    brush = need("PIL.ImageDraw:Draw", "drawing", "pip install pillow")(image)
    short = min(image.size)
    width, size = max(1, round(short * LINE)), max(10, round(short * TEXT))
    font = need("PIL.ImageFont:load_default", "drawing", "pip install pillow")(size)
    for box, score, kind in reversed(list(zip(found.boxes, found.scores, found.classes, strict=True))):
        x1, y1, x2, y2 = (float(side) for side in box)
        text = names[kind] if kind < len(names) else str(kind)
        _box(brush, (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)), colour(int(kind)), width)
        _label(brush, (x1, y1), f"{text} {score:.2f}" if scores else text, colour(int(kind)), font)
    return np.asarray(image)


def _box(brush: Any, sides: tuple[float, float, float, float], of: Colour, width: int) -> None:
    brush.rectangle(sides, outline=of, width=width)


def _label(brush: Any, corner: tuple[float, float], text: str, of: Colour, font: Any) -> None:
    """Write text in black on the box's colour: above its corner, or inside the frame where that is outside."""
    left, top, right, bottom = brush.textbbox((0, 0), text, font=font)
    wide, high = right - left + 4, bottom - top + 4
    limit = brush.im.size
    x = min(max(corner[0], 0), max(limit[0] - wide, 0))
    y = corner[1] - high if corner[1] >= high else max(corner[1], 0)
    y = min(y, max(limit[1] - high, 0))
    brush.rectangle((x, y, x + wide, y + high), fill=of)
    brush.text((x + 2 - left, y + 2 - top), text, fill=(0, 0, 0), font=font)


# -- frames of a film ----------------------------------------------------------------------------------------


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


# -- the picture of an alarm ----------------------------------------------------------------------------------


PLOT_HIGH, EDGE, LEAST_WIDE = 120, 8, 320
RED, GREY, BLUE, WHITE, BLACK = (220, 40, 40), (150, 150, 150), (60, 120, 220), (255, 255, 255), (20, 20, 20)


def alarm_picture(
    frame: NDArray[np.uint8], scores: Sequence[Scored], alarm: Alarm, threshold: float
) -> NDArray[np.uint8]:
    """Return the frame (height, width, 3) with a red border, its words, and the plot of the scores below it."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(np.ascontiguousarray(frame))
    if image.width < LEAST_WIDE:
        image = image.resize((LEAST_WIDE, round(image.height * LEAST_WIDE / image.width)))
    sheet = Image.new("RGB", (image.width, image.height + PLOT_HIGH), WHITE)
    sheet.paste(image)
    brush = ImageDraw.Draw(sheet)
    brush.rectangle((0, 0, image.width - 1, image.height - 1), outline=RED, width=4)
    end = f"{alarm.end_s:.1f} s" if alarm.over else "now"
    words = f"ALARM {alarm.start_s:.1f} s to {end}, peak {alarm.peak:.2f} at {alarm.peak_s:.1f} s"
    font = ImageFont.load_default(14)
    box = brush.textbbox((10, 8), words, font=font)
    brush.rectangle((box[0] - 4, box[1] - 3, box[2] + 4, box[3] + 3), fill=RED)
    brush.text((10, 8), words, fill=WHITE, font=font)
    _plot(
        brush, scores, alarm, threshold, (EDGE, image.height + EDGE, image.width - EDGE, sheet.height - EDGE)
    )
    return np.asarray(sheet)


def _plot(
    brush: Any,
    scores: Sequence[Scored],
    alarm: Alarm,
    threshold: float,
    place: tuple[int, int, int, int],
) -> None:
    left, top, right, bottom = place
    known = [each for each in scores if np.isfinite(each.smoothed)]
    if not known:
        return
    start, end = known[0].snippet.start_s, max(known[-1].snippet.end_s, known[0].snippet.start_s + 1e-6)

    def across(seconds: float) -> float:
        return left + (right - left) * min(1.0, max(0.0, (seconds - start) / (end - start)))

    def up(score: float) -> float:
        return bottom - (bottom - top) * min(1.0, max(0.0, score))

    brush.rectangle((across(alarm.start_s), top, across(alarm.end_s), bottom), fill=(255, 220, 220))
    brush.line((left, up(threshold), right, up(threshold)), fill=GREY)
    brush.line((left, bottom, right, bottom), fill=BLACK)
    points: list[tuple[float, float]] = []
    reached = start
    for each in known:  # snippets that overlap: each score holds from where the one before it ended
        height = up(each.smoothed)
        points += [(across(max(reached, each.snippet.start_s)), height), (across(each.snippet.end_s), height)]
        reached = each.snippet.end_s
    brush.line(points, fill=BLUE, width=2)
