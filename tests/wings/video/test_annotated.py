"""Frames with boxes: in order, as many as asked for, in a video that decodes, in a folder, small ones for a page."""

import base64
import io
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
from PIL import Image

from edgescope.frames.frame import Frame
from edgescope.models.base import Detections
from edgescope.wings.video import annotated
from edgescope.wings.video.flow import EndOfFilm, Sequential, Stage


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
