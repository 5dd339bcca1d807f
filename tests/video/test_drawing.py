"""Boxes are drawn on a copy of the frame, where they are, in colours that can be told apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.base import Detections
from edgescope.video.drawing import colour, drawn

GREY = np.full((240, 320, 3), 90, np.uint8)


def detections(*boxes, kind=0):
    n = len(boxes)
    table = np.array(boxes, np.float32).reshape(-1, 4)
    return Detections(table, np.linspace(0.9, 0.5, n, dtype=np.float32), np.full(n, kind, np.int64))


def test_lines_lie_on_the_box_and_the_frame_is_kept():
    before = GREY.copy()
    out = drawn(before, detections((60, 80, 200, 180), kind=3))
    assert (before == 90).all() and out.shape == before.shape and out.dtype == np.uint8
    assert (out[130, 60] == colour(3)).all() and (out[130, 200] == colour(3)).all()  # left and right side
    assert (out[180, 100] == colour(3)).all()  # the lower side
    assert (out[130, 130] == 90).all() and (out[200, 100] == 90).all()  # within and without
    label = out[60:80, 60:110].reshape(-1, 3)
    assert (label < 80).all(1).any() and (label == colour(3)).all(1).any()  # black letters on the colour


def test_names_and_scores_are_written():
    found = detections((60, 80, 200, 180))
    pictures = [drawn(GREY, found), drawn(GREY, found, ["face"]), drawn(GREY, found, ["face"], scores=False)]
    assert all((a != b).any() for a, b in zip(pictures, [*pictures[1:], GREY], strict=True))


def test_a_larger_frame_gets_wider_lines():
    large = drawn(np.zeros((1080, 1920, 3), np.uint8), detections((100, 100, 500, 500)))
    assert (large[300, 100:104] == colour(0)).all() and (large[300, 106] == 0).all()


def test_neighbouring_classes_differ():
    colours = np.array([colour(kind) for kind in range(12)], float)
    apart = np.abs(colours[:, None] - colours[None]).max(2) + 255 * np.eye(12)
    assert apart.min() > 40


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-500, 900)] * 4), max_size=4), st.integers(2, 60), st.integers(2, 60))
def test_any_box_can_be_drawn_on_any_frame(boxes, height, width):
    frame = np.zeros((height, width, 3), np.uint8)
    assert drawn(frame, detections(*boxes)).shape == frame.shape


def test_nothing_found_leaves_the_frame_as_it_is():
    assert (drawn(GREY, detections()) == GREY).all()
    with pytest.raises(TypeError):
        drawn(GREY.astype(np.float64), detections())
