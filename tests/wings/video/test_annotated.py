"""Boxes are drawn on a copy of the frame, where they are, in colours that can be told apart.

Frames with boxes: in order, as many as asked for, in a video that decodes, in a folder, small ones for a page.
"""

import base64
import io
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgescope.frames import Frame
from edgescope.models.base import Detections
from edgescope.wings.video import annotated
from edgescope.wings.video.annotated import colour, drawn
from edgescope.wings.video.flow import EndOfFilm, Sequential, Stage

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


def film(frames: int, size=(48, 31), broken: int = -1):
    """A pipeline over grey frames of two a unit; frame k has k % 4 boxes."""

    def decode(item):
        first = item.query_id * 2
        if first >= frames:
            raise EndOfFilm
        item.frames = [
            Frame(np.full((size[1], size[0], 3), 90, np.uint8), k)
            for k in range(first, min(first + 2, frames))
        ]

    def find(item):
        if item.query_id == broken:
            raise ValueError("no boxes here")
        item.found = [boxes(frame.index % 4) for frame in item.frames]

    return Sequential([Stage("decode", decode), Stage("find", find)])


def boxes(n: int) -> Detections:
    sides = np.array([[2 + k, 12, 20 + k, 28] for k in range(n)], np.float32).reshape(-1, 4)
    return Detections(sides, np.full(n, 0.9, np.float32), np.zeros(n, np.int64))


def test_pictures_come_in_order_with_their_boxes_drawn_and_no_more_than_asked_for():
    shown = list(annotated.pictures(film(9), ["thing"], 5))
    assert [index for index, _, _ in shown] == [0, 1, 2, 3, 4]
    assert [n for _, n, _ in shown] == [0, 1, 2, 3, 0]
    assert [bool((pixels != 90).any()) for _, _, pixels in shown] == [False, True, True, True, False]
    assert len(list(annotated.pictures(film(9), [], 100))) == 9


def test_a_unit_that_fails_is_left_out_and_time_ends_it():
    assert [index for index, _, _ in annotated.pictures(film(6, broken=1), [], 100)] == [0, 1, 4, 5]
    assert list(annotated.pictures(film(6), [], 100, seconds=0.0)) == []


@pytest.mark.codec
def test_a_video_is_written_that_decodes_to_as_many_frames_with_even_sides(tmp_path):
    path = tmp_path / "new" / "boxes.mp4"
    assert annotated.write(path, annotated.pictures(film(9), [], 7), 12.5) == 7
    with av.open(str(path)) as read:
        frames = [frame.to_ndarray(format="rgb24") for frame in read.decode(video=0)]
        assert float(read.streams.video[0].average_rate) == pytest.approx(12.5)
    assert len(frames) == 7 and frames[0].shape == (30, 48, 3)
    assert np.abs(frames[0].astype(int) - 90).max() < 12 and np.ptp(frames[3]) > 100


def test_a_path_without_a_suffix_is_a_folder_of_jpegs_named_by_frame(tmp_path):
    assert annotated.write(tmp_path / "out", annotated.pictures(film(3), [], 9), 25) == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "000000.jpg",
        "000001.jpg",
        "000002.jpg",
    ]


def test_of_each_part_of_the_film_the_picture_with_most_boxes_is_shown_small():
    shown = annotated.thumbnails(annotated.pictures(film(8, size=(1000, 500)), [], 8), 2)
    assert [caption for _, caption in shown] == ["frame 3: 3 boxes", "frame 7: 3 boxes"]
    head, _, data = shown[0][0].partition(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (annotated.SIDE, annotated.SIDE // 2)
    assert annotated.thumbnails([], 3) == []
    assert len(annotated.thumbnails(annotated.pictures(film(2), [], 8), 3)) == 2


def test_no_picture_is_begun_once_the_time_is_over(monkeypatch):
    """The clock goes on by a second at each look; two frames are drawn of each unit that was begun."""
    ticks = iter(range(100))
    monkeypatch.setattr(annotated.time, "monotonic", lambda: float(next(ticks)))
    assert len(list(annotated.pictures(film(40), [], 100, seconds=3.0))) == 4


def test_only_the_first_cameras_frames_are_shown():
    def decode(item):
        if item.query_id > 1:
            raise EndOfFilm
        item.frames = [Frame(np.zeros((8, 8, 3), np.uint8), k, camera=item.query_id) for k in range(2)]

    flow = Sequential([Stage("decode", decode), Stage("find", lambda i: setattr(i, "found", [boxes(1)] * 2))])
    assert [(index, n) for index, n, _ in annotated.pictures(flow, [], 9)] == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("fps", "rate"),
    [
        (12.5, Fraction(25, 2)),
        (30000 / 1001, Fraction(30000, 1001)),
        (0.0, 25),
        (1 / 1002, Fraction(1, 1001)),
    ],
)
def test_a_video_has_the_rate_of_the_film_and_four_bits_for_each_pixel(tmp_path, monkeypatch, fps, rate):
    stream = SimpleNamespace(encode=lambda *frame: frame)
    made, muxed = [], []
    out = SimpleNamespace(
        add_stream=lambda codec, rate: made.append((codec, rate)) or stream,
        mux=lambda packets: muxed.append(len(packets)),
        close=lambda: muxed.append("closed"),
    )
    real = annotated.need
    monkeypatch.setattr(
        annotated,
        "need",
        lambda name, *about: (lambda *_: out) if name == "av:open" else real(name, *about),
    )
    shown = [(k, 0, np.zeros((31, 49, 3), np.uint8)) for k in range(2)]
    assert annotated.write(tmp_path / "a" / "b" / "c.mkv", iter(shown), fps) == 2
    assert made == [("mpeg4", rate)] and muxed == [1, 1, 0, "closed"]
    assert (stream.width, stream.height, stream.pix_fmt, stream.bit_rate) == (48, 30, "yuv420p", 4 * 48 * 30)
    assert annotated.write(tmp_path / "d.avi", iter([]), fps) == 0 and len(made) == 1


def jpeg(pixels, quality):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=quality)
    return out.getvalue()


def test_pictures_are_stored_at_the_quality_of_their_use(tmp_path):
    pixels = np.random.default_rng(3).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    folder = tmp_path / "a" / "b"
    for _ in range(2):  # the folder may be there
        assert annotated.write(folder, [(7, 0, pixels)], 25) == 1
    assert (folder / "000007.jpg").read_bytes() == jpeg(pixels, 90)
    ((uri, caption),) = annotated.thumbnails([(7, 1, pixels)], 1)
    assert caption == "frame 7: 1 box" and base64.b64decode(uri.partition(",")[2]) == jpeg(pixels, 80)


def test_each_part_of_an_uneven_film_is_shown_once():
    shown = annotated.thumbnails(annotated.pictures(film(8, size=(722, 361)), [], 8), 3)
    assert [caption for _, caption in shown] == ["frame 1: 1 box", "frame 3: 3 boxes", "frame 7: 3 boxes"]
    assert Image.open(io.BytesIO(base64.b64decode(shown[0][0].partition(",")[2]))).size == (360, 180)
