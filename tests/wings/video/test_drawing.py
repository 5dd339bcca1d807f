"""Boxes are drawn on a copy of the frame, where they are, in colours that can be told apart."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.base import Detections
from edgescope.wings.video import annotated
from edgescope.wings.video.annotated import colour, drawn

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


class Brush:
    """Notes what is drawn; a text is 20 x 10 pixels and begins 1 right of and 2 below where it is put."""

    def __init__(self, size):
        self.im, self.boxes, self.texts = SimpleNamespace(size=size), [], []

    def textbbox(self, corner, text, font):
        assert corner == (0, 0)
        return 1, 2, 21, 12

    def rectangle(self, sides, **how):
        self.boxes.append((sides, how))

    def text(self, corner, text, **how):
        self.texts.append((corner, text, how["fill"], how["font"]))


def brushed(monkeypatch, size, found, *names, **how):
    """What is drawn onto a frame of a width and height; the font is its size."""
    brush = Brush(size)
    made = {
        "PIL.Image:fromarray": lambda array: SimpleNamespace(size=size, __array_interface__=None),
        "PIL.ImageDraw:Draw": lambda image: brush,
        "PIL.ImageFont:load_default": lambda size: size,
    }
    monkeypatch.setattr(annotated, "need", lambda name, *about: made[name])
    monkeypatch.setattr(annotated.np, "asarray", lambda image: image)
    drawn(np.zeros((size[1], size[0], 3), np.uint8), found, names, **how)
    return brush


@pytest.mark.parametrize(
    ("short", "width", "letter"),
    [
        (100, 1, 10),
        (280, 1, 10),
        (359, 1, 13),
        (361, 2, 13),
        (377, 2, 13),
        (378, 2, 14),
        (1319, 5, 47),
        (1320, 6, 47),
    ],
)
def test_lines_and_letters_grow_with_the_short_side(monkeypatch, short, width, letter):
    for size in ((short, 2000), (2000, short)):
        brush = brushed(monkeypatch, size, detections((30, 40, 70, 80)))
        assert [how["width"] for _, how in brush.boxes if "width" in how] == [width]
        assert [font for *_, font in brush.texts] == [letter]


def test_a_box_is_drawn_whichever_corner_comes_first_and_the_best_lies_on_top(monkeypatch):
    found = detections((30, 40, 70, 80), (90, 95, 60, 45), kind=1)
    brush = brushed(monkeypatch, (320, 240), found, "face")
    outlines = [(sides, how["outline"]) for sides, how in brush.boxes if "outline" in how]
    assert outlines == [((60, 45, 90, 95), colour(1)), ((30, 40, 70, 80), colour(1))]
    assert [text for _, text, *_ in brush.texts] == ["1 0.50", "1 0.90"]
    assert [
        text for _, text, *_ in brushed(monkeypatch, (320, 240), found, "a", "b", scores=False).texts
    ] == ["b"] * 2


@pytest.mark.parametrize(
    ("corner", "size", "at"),
    [
        ((30, 40), (320, 240), (30, 26)),
        ((30, 14), (320, 240), (30, 0)),  # 14 pixels are enough above it
        ((30, 13), (320, 240), (30, 13)),
        ((-5, -7), (320, 240), (0, 0)),
        ((310, 250), (320, 240), (296, 226)),
        ((5, 6), (20, 10), (0, 0)),  # a frame smaller than the text
        ((9, 6), (25, 19), (1, 5)),
    ],
)
def test_a_label_lies_above_its_corner_or_within_the_frame(corner, size, at):
    brush = Brush(size)
    annotated._label(brush, corner, "face", (1, 2, 3), None)
    assert brush.boxes == [((at[0], at[1], at[0] + 24, at[1] + 14), {"fill": (1, 2, 3)})]
    assert brush.texts == [((at[0] + 1, at[1]), "face", (0, 0, 0), None)]


def test_the_first_classes_have_these_colours():
    assert [colour(kind) for kind in range(3)] == [(68, 255, 64), (255, 64, 123), (64, 179, 255)]
