"""What the live view and the picture of an alarm show."""

import math

import numpy as np

from edgescope.commandline.screen import ASCII, BLOCKS
from edgescope.wings.video.alarm import Alarm, Scored
from edgescope.wings.video.annotated import PLOT_HIGH, alarm_picture
from edgescope.wings.video.page import MARGIN, live_rows, score_plot, status
from edgescope.wings.video.snippets import Snippet
from watched_day import Planted, session


def scored(values, alarmed=()):
    return [
        Scored(Snippet(0, k, k, float(k), k + 1.0, -1), v, v, k in alarmed, None)
        for k, v in enumerate(values)
    ]


def text(row):
    return "".join(part for part, _ in row)


def test_the_plot_is_as_high_as_the_score_and_the_threshold_is_a_line():
    found = score_plot(scored([0.0, 0.5, 1.0]), 0.5, MARGIN + 3, 4, BLOCKS)
    assert [text(row)[MARGIN:] for row in found] == ["  █", "──█", " ██", " ██"]
    assert (
        text(found[0]).startswith(" 1.00") and text(found[1]).startswith(" 0.50") and "0.00" in text(found[3])
    )


def test_what_is_older_than_the_plot_is_wide_is_left_out_and_nan_is_empty():
    found = score_plot(scored([1.0, 1.0, math.nan, 1.0]), 0.5, MARGIN + 3, 1, ASCII)
    assert text(found[0])[MARGIN:] == "#-#"


def test_columns_during_an_alarm_are_red():
    (row,) = score_plot(scored([1.0, 1.0, 1.0], alarmed={1}), 0.5, 40, 1, BLOCKS)
    assert [style for part, style in row[1:]] == ["", "bad", ""]


def test_a_frame_fits_the_terminal_before_and_during_an_alarm():
    made, _ = session(0.02, 5.0, [Planted(30.0, 60.0)])
    assert "waiting for the first snippet" in "\n".join(text(row) for row in live_rows(made, 80, 24))
    made.run(lambda: made.counts.alarms > 0)
    for width, height in ((80, 24), (40, 12), (20, 5)):
        drawn = [text(row) for row in live_rows(made, width, height)]
        assert len(drawn) <= height and max(map(len, drawn)) <= width
    whole = "\n".join(text(row) for row in live_rows(made, 200, 40))
    assert "watching camera:0" in whole and "alarm 1, camera 0" in whole and "age p50" in whole
    assert "1 alarm" in status(made) and "age" in status(made)


def test_the_picture_of_an_alarm_shows_the_frame_and_the_scores_below_it():
    frame = np.full((240, 360, 3), 100, dtype=np.uint8)
    alarm = Alarm(1, 0, 1.0, 1.5, 2.0, 0.9, 2.0, over=True)
    picture = alarm_picture(frame, scored([0.1, 0.9, 0.2, math.nan]), alarm, 0.5)
    assert picture.shape == (240 + PLOT_HIGH, 360, 3)
    assert (picture[120, 180] == 100).all() and picture[0, 180, 0] > 200 and picture[0, 180, 1] < 60
    plot_part = picture[240:]
    pink = (plot_part == (255, 220, 220)).all(axis=2).any(axis=0)
    assert 100 < np.flatnonzero(pink).min() < 140 and np.flatnonzero(pink).max() < 260
    small = alarm_picture(np.zeros((30, 40, 3), dtype=np.uint8), scored([0.5]), alarm, 0.5)
    assert small.shape[1] == 320
