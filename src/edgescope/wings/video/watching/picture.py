"""The picture of an alarm: the frame at its peak, and below it the score of the stream with the threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from edgescope.wings.video.alarm import Alarm, Scored

PLOT_HIGH, EDGE, LEAST_WIDE = 120, 8, 320
RED, GREY, BLUE, WHITE, BLACK = (220, 40, 40), (150, 150, 150), (60, 120, 220), (255, 255, 255), (20, 20, 20)


def alarm_picture(
    frame: NDArray[np.uint8], scores: Sequence[Scored], alarm: Alarm, threshold: float
) -> NDArray[np.uint8]:
    """Return the frame (height, width, 3) with a red border, its words, and the plot of the scores below it."""
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
    brush: ImageDraw.ImageDraw,
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
