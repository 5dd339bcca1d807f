"""A video file: each frame once, in order, upright, whatever the file is like."""

import json
import math
import re
import struct
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgescope.errors import ModelError
from films import all_of, cut, film, number_of, picture, scratched

pytest.importorskip("av")
from edgescope.frames import Source
from edgescope.wings.video.sources import file as module
from edgescope.wings.video.sources.file import File, Rgb, Times, degrees, missing_bytes, upright


def numbers(source):
    return [number_of(frame.image) for frame in all_of(source)]


@pytest.mark.slow
@settings(max_examples=20)
@given(
    frames=st.integers(1, 40),
    gop=st.integers(1, 12),
    b_frames=st.integers(0, 4),
    threads=st.sampled_from(["AUTO", "FRAME", "SLICE", "NONE"]),
    name=st.sampled_from(["a.mp4", "a.mkv", "a.ts", "a.h264"]),
)
def test_every_frame_comes_once_and_in_order(tmp_path, frames, gop, b_frames, threads, name):
    assume(frames > 4 or not name.endswith(".ts"))  # FFmpeg does not know shorter streams for what they are
    path = film(tmp_path / name, frames, gop=gop, b_frames=b_frames)
    source = File(path, threads=threads)
    found = all_of(source)
    assert [number_of(frame.image) for frame in found] == list(range(frames))
    assert [frame.index for frame in found] == list(range(frames))
    assert np.allclose([frame.time_s for frame in found], np.arange(frames) / 25, atol=0.002)
    assert source.read() is None and source.facts()["frames"] == frames
    looped = File(path, threads=threads, loop=True)
    twice = all_of(looped, 2 * frames + 1)
    assert [number_of(frame.image) for frame in twice] == [*range(frames), *range(frames), 0]
    assert [frame.index for frame in twice] == list(range(2 * frames + 1))
    assert np.allclose([frame.time_s for frame in twice], np.arange(2 * frames + 1) / 25, atol=0.005)
    assert looped.facts()["passes"] == 2
    looped.close()


@pytest.mark.codec
def test_a_frame_is_a_contiguous_rgb_array_and_facts_are_json(tmp_path):
    source = File(film(tmp_path / "a.mp4"))
    frame = source.read()
    assert isinstance(source, Source) and not source.live
    assert frame.image.shape == (48, 64, 3) and frame.image.dtype == np.uint8
    assert frame.image.flags.c_contiguous and frame.created_ns == -1 and frame.sides is None
    assert np.abs(frame.image.astype(int) - picture(0)).mean() < 12
    facts = json.loads(json.dumps(source.facts()))
    assert (facts["width"], facts["height"], facts["fps"], facts["codec"]) == (64, 48, 25.0, "h264")
    assert facts["damaged"] == 0 and facts["rotation"] == 0


@pytest.mark.codec
def test_a_frame_that_is_scaled_keeps_its_original_size(tmp_path):
    path = film(tmp_path / "a.mp4")
    source = File(path, size=(30, 20))
    frame = source.read()
    assert frame.image.shape == (20, 30, 3) and frame.size == (64, 48)
    assert (source.facts()["width"], source.facts()["height"]) == (64, 48)
    assert [number_of(f.image) for f in [frame, *all_of(source)]] == list(range(20))


@pytest.mark.codec
def test_the_colours_of_a_scaled_frame_lie_apart_and_are_on_average_those_of_the_film(tmp_path):
    """By the matrix of BT.601 in 64-bit floats; libswscale's pixels of three colours are 2 levels too dark."""
    import av

    path = film(tmp_path / "a.mp4", 3, size=(384, 288), noise=40)
    with av.open(str(path)) as container:
        planes = next(container.decode(video=0)).planes
        bytes_of = [np.frombuffer(p, np.uint8).reshape(p.height, -1)[:, : p.width] for p in planes]
    y, u, v = (plane.mean() - zero for plane, zero in zip(bytes_of, (16, 128, 128), strict=True))
    wanted = [
        255 / 219 * y + 255 / 224 * part for part in (1.402 * v, -0.344136 * u - 0.714136 * v, 1.772 * u)
    ]
    image = File(path, size=(640, 480)).read().image
    assert image.shape == (480, 640, 3) and image.transpose(2, 0, 1).flags.c_contiguous
    assert image.mean(axis=(0, 1)) == pytest.approx(wanted, abs=0.7)


@pytest.mark.codec
@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_phones_video_is_shown_upright(tmp_path, rotation):
    path = film(tmp_path / "a.mp4", 3, rotation=rotation)
    whole, small = File(path), File(path, size=(32, 32))
    image = whole.read().image
    wanted = np.rot90(picture(0), -rotation // 90)
    assert image.shape == wanted.shape and np.abs(image.astype(int) - wanted).mean() < 12
    assert whole.facts()["rotation"] == rotation and whole.facts()["height"] == wanted.shape[0]
    frame = small.read()
    assert frame.image.shape == (32, 32, 3) and frame.size == wanted.shape[1::-1]


def test_display_matrices_turn_and_mirror():
    image = picture(0)
    for turn, matrix in {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}.items():
        assert degrees(matrix) == turn and (upright(image, matrix) == np.rot90(image, -turn // 90)).all()
    assert (upright(image, (-1, 0, 0, 1)) == image[:, ::-1]).all()
    assert (upright(image, (1, 0, 0, -1)) == image[::-1]).all()
    assert (upright(image, (0, 1, 1, 0)) == image.transpose(1, 0, 2)).all()


@pytest.mark.codec
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("odd.mkv", {"size": (33, 17), "codec": "ffv1", "pixels": "bgr0"}),
        ("odd.mp4", {"size": (33, 17), "codec": "libx264", "pixels": "yuv444p"}),
        ("ten.mp4", {"pixels": "yuv420p10le"}),
        ("ten.mkv", {"codec": "ffv1", "pixels": "yuv420p10le"}),
        ("grey.mkv", {"codec": "ffv1", "pixels": "gray"}),
        ("full.avi", {"codec": "mjpeg", "pixels": "yuvj420p"}),
        ("old.avi", {"codec": "mpeg4"}),
    ],
)
def test_odd_sizes_ten_bits_and_grey_are_decoded(tmp_path, name, keys):
    source = File(film(tmp_path / name, 8, **keys))
    found = all_of(source)
    width, height = keys.get("size", (64, 48))
    assert found[0].image.shape == (height, width, 3)
    assert [number_of(frame.image) for frame in found] == list(range(8))
    if keys.get("pixels") == "gray":
        assert (found[0].image[..., 0] == found[0].image[..., 2]).all()


@pytest.mark.codec
def test_a_variable_frame_rate_keeps_its_time_stamps(tmp_path):
    times = [0, 40, 50, 200, 210, 900, 1000]
    source = File(film(tmp_path / "a.mkv", 7, times=times))
    found = all_of(source)
    assert [number_of(frame.image) for frame in found] == list(range(7))
    assert np.allclose([frame.time_s for frame in found], np.array(times) / 1000, atol=0.0015)


def test_time_goes_on_where_stamps_jump_or_are_missing():
    times = Times()
    times.begin(10.0)
    stamps = [5.0, 5.1, None, 5.3, 2.0, 2.1, None]
    assert np.allclose([times.next(s) for s in stamps], [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    unknown = Times()
    unknown.begin(None)
    assert unknown.next(3.0) == 0.0 and unknown.next(3.5) == 0.5
    assert np.isnan([unknown.next(None), unknown.next(None)]).all()


@pytest.mark.codec
@pytest.mark.parametrize("name", ["a.ts", "a.h264"])
def test_the_resolution_may_change_in_mid_stream(tmp_path, name):
    one = film(tmp_path / f"one_{name}", 6)
    two = film(tmp_path / f"two_{name}", 6, size=(96, 64), first=6)
    both = tmp_path / name
    both.write_bytes(one.read_bytes() + two.read_bytes())
    source = File(both)
    found = all_of(source)
    assert [frame.image.shape[:2] for frame in found] == [(48, 64)] * 6 + [(64, 96)] * 6
    assert [number_of(frame.image) for frame in found] == list(range(12))
    assert source.facts()["size_changes"] == 1 and source.facts()["width"] == 96
    assert (np.diff([frame.time_s for frame in found]) > 0).all()
    same = File(both, size=(40, 30))
    assert {frame.image.shape for frame in all_of(same)} == {(30, 40, 3)}


# -- damage ----------------------------------------------------------------------------------------------------


@pytest.mark.codec
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("a.mp4", {"options": {"movflags": "faststart"}}),
        ("a.ts", {}),
        ("a.mkv", {}),
        ("a.avi", {"codec": "mpeg4"}),
        ("m.avi", {"codec": "mjpeg", "pixels": "yuvj420p"}),
    ],
)
def test_a_truncated_file_gives_its_frames_and_then_says_how_many(tmp_path, name, keys):
    path = cut(film(tmp_path / name, 48, noise=6, **keys), 0.4)
    source, found = File(path), []
    with pytest.raises(ModelError, match=r"E-VIDEO-1: a_cut|E-VIDEO-1: m_cut") as caught:
        while True:
            found.append(source.read())
            assert found[-1] is not None, "the end of a truncated film looked like any end"
    shown = [
        number_of(frame.image) for frame in found
    ]  # the file ends in decoding order: a B frame may be missing
    assert shown[:-2] == list(range(len(found) - 2)) and (np.diff(shown) > 0).all()
    assert f"after {len(found)} frames" in caught.value.what and 2 <= len(found) < 30
    skipping = File(path, damaged="skip")
    kept = numbers(skipping)
    assert kept[: len(found)] == shown and len(kept) < 30
    assert skipping.facts()["damaged"] >= 1


@pytest.mark.codec
@pytest.mark.parametrize(
    ("name", "keys"),
    [("a.mp4", {}), ("a.ts", {}), ("f.mkv", {"codec": "ffv1"})],
)
def test_garbage_in_the_middle_stops_or_is_skipped_and_counted(tmp_path, name, keys):
    path = scratched(film(tmp_path / name, 48, noise=6, **keys))
    source, found = File(path), []
    with pytest.raises(ModelError, match="E-VIDEO-1"):
        while (frame := source.read()) is not None:
            found.append(number_of(frame.image))
    assert found == list(range(len(found))) and 5 < len(found) < 40
    skipping = File(path, damaged="skip")
    kept = numbers(skipping)
    assert len(found) < len(kept) < 48 and kept[-1] == 47
    assert skipping.facts()["damaged"] >= 1


@pytest.mark.codec
@pytest.mark.parametrize("content", [b"", b"nothing of the kind" * 100])
def test_what_is_no_video_is_refused_at_once(tmp_path, content):
    path = tmp_path / "not.mp4"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"E-VIDEO-1: not\.mp4 .* 0 frames"):
        File(path)


@pytest.mark.codec
def test_a_file_with_sound_alone_is_no_video(tmp_path):
    import av

    path = tmp_path / "sound.wav"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(ModelError, match="E-VIDEO-1"):
        File(path)


@pytest.mark.codec
def test_a_loop_over_nothing_but_damage_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(File, "_pictures", lambda self: iter(()))
    source = File(film(tmp_path / "a.mp4"), loop=True, damaged="skip")
    with pytest.raises(ModelError, match=r"E-VIDEO-1: .*no frame"):
        source.read()


@pytest.mark.codec
def test_closing_twice_is_fine_and_leaves_no_thread(tmp_path):
    path = film(tmp_path / "a.mp4", 40, size=(320, 240))
    File(path, threads="FRAME").close()
    before = psutil.Process().num_threads()
    for _ in range(3):
        source = File(path, threads="FRAME", size=(100, 100))
        source.read()
        source.close()
        source.close()
        assert source.read() is None
    assert psutil.Process().num_threads() <= before


# -- times, rates and what is lost, by numbers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamps", "frames", "header", "rate"),
    [
        ([0.0, 0.1, 0.2], 3, 10.0, 10.0),
        ([0.0, 0.1, 0.2], 3, 10.1, 10.1),  # 0.99 per cent: it agrees
        ([0.0, 0.1, 0.2], 3, 10.11, 10.0),
        ([0.0, 0.1, 0.2], 3, 9.9, 10.0),
        ([0.0, 0.1, 0.2], 3, 9.91, 9.91),
        ([5.0, 5.1, 5.2], 3, None, 10.0),
        ([0.0, 0.5], 2, None, 2.0),
        ([0.0], 1, 25.0, 25.0),
        ([0.0, None, 0.2], 3, 25.0, 25.0),  # not each frame has one
        ([None, None], 2, None, None),
    ],
)
def test_the_rate_of_a_pass_is_that_of_its_time_stamps_unless_the_headers_agrees(
    stamps, frames, header, rate
):
    times = Times()
    times.begin(header)
    for stamp in stamps:
        times.next(stamp)
    assert times.rate(frames, header) == (rate if rate is None else pytest.approx(rate))


def test_each_pass_is_counted_by_itself():
    times = Times()
    for header in (10.0, 4.0):
        times.begin(header)
        for stamp in (0.0, 0.5, 1.0):
            times.next(stamp)
        assert times.rate(3, None) == pytest.approx(2.0)
    assert times.rate(4, 7.0) == 7.0
    assert times.next(None) == pytest.approx(1.0 + 0.25 + 1.0 + 0.25)


@pytest.mark.parametrize(
    ("fps", "stamps", "wanted"),
    [
        (10.0, [3.0, 3.0, 3.4], [0.0, 0.1, 0.5]),  # a stamp that stands still is as if it had jumped back
        (10.0, [None, None, 7.0, 7.3], [0.0, 0.1, 0.2, 0.5]),
        (None, [3.0, 2.0, 2.5], [0.0, 0.0, 0.5]),
        (None, [None, 4.0, None, 4.5], [0.0, 0.0, math.nan, 0.5]),
    ],
)
def test_a_frames_time_is_its_stamp_from_the_first_on_or_what_is_due(fps, stamps, wanted):
    times = Times()
    times.begin(fps)
    assert [times.next(stamp) for stamp in stamps] == pytest.approx(wanted, nan_ok=True)


@pytest.mark.codec
def test_what_is_no_whole_film_says_how_many_frames_it_lacks(tmp_path, monkeypatch):
    path = film(tmp_path / "a.mp4", 12, gop=1, b_frames=0)
    source = File(path, damaged="skip")
    assert source.facts()["lost"] is None
    source._promised, source._packets_read, source._damaged = 12, 9, 0
    monkeypatch.setattr(module, "missing_bytes", lambda path: 5)
    source._met("x")
    assert (source.facts()["lost"], source.facts()["damaged"]) == (3, 1)
    for read in (12, 13):
        source._packets_read = read
        source._met("x")
        assert source.facts()["lost"] is None
    stopping = File(path)
    stopping._promised, stopping._packets_read = 12, 9
    with pytest.raises(ModelError) as caught:
        stopping._met("it broke")
    assert re.fullmatch("it broke; 3 of 12 .*", caught.value.evidence)


@pytest.mark.codec
def test_a_whole_film_promises_and_holds_the_same(tmp_path):
    source = File(film(tmp_path / "a.mp4", 12))
    all_of(source)
    assert (source._promised, source._packets_read) == (12, 12)
    assert (
        source.facts()["lost"] is None
        and source.facts()["size_changes"] == 0
        and source.facts()["passes"] == 1
    )


class Packet:
    """A packet of so many pictures; `key` and `broken` as FFmpeg marks it."""

    size = 10

    def __init__(self, number, *, key=False, broken=False, pictures=1):
        self.number, self.is_keyframe, self.is_corrupt = number, key, broken
        self.pictures = [SimpleNamespace(number=number, is_corrupt=False) for _ in range(pictures)]

    def decode(self):
        return list(self.pictures)


def packets(tmp_path, monkeypatch, given, **keys):
    """The numbers of the pictures that come out of a file of these packets, and the file."""
    source = File(film(tmp_path / "a.mp4", 2), **keys)
    held = [SimpleNamespace(number=99, is_corrupt=False)]
    stream = SimpleNamespace(frames=4, decode=lambda packet: held)
    container = SimpleNamespace(
        streams=SimpleNamespace(video=[stream]), demux=lambda s: iter(given), close=lambda: None
    )
    source._shut()
    source._container = container
    found = []
    try:
        for one in source._pictures():
            found.append(one.number)
    except ModelError as error:
        found.append(error.evidence)
    return found, source


@pytest.mark.codec
@pytest.mark.parametrize(
    ("given", "stops", "skips"),
    [
        ([Packet(1, key=True), Packet(2)], [1, 2], [1, 2]),
        ([Packet(1, broken=True), Packet(2)], [99, "a packet is incomplete"], [2]),
        ([Packet(1, broken=True), Packet(2, key=True)], [1, 2], [1, 2]),  # two streams that are joined
        ([Packet(1), Packet(2, broken=True)], [1, 2], [1, 2]),  # the last one is empty
    ],
)
def test_a_packet_that_is_broken_ends_the_film_or_is_left_out(tmp_path, monkeypatch, given, stops, skips):
    assert packets(tmp_path, monkeypatch, given)[0] == stops
    found, source = packets(tmp_path, monkeypatch, given, damaged="skip")
    assert found == skips and source.facts()["damaged"] == (skips == [2])


@pytest.mark.codec
def test_a_picture_that_is_damaged_is_counted_and_those_behind_it_are_given(tmp_path, monkeypatch):
    whole = Packet(1, pictures=3)
    whole.pictures[1].is_corrupt = True
    found, source = packets(tmp_path, monkeypatch, [whole, Packet(2)], damaged="skip")
    assert found == [1, 1, 2] and source.facts()["damaged"] == 1 and source._packets_read == 2
    assert packets(tmp_path, monkeypatch, [whole])[0][1:] == ["a frame could be decoded in part only"]


# -- whether a file was cut off ---------------------------------------------------------------------------------


def box(kind, size, head=b""):
    return struct.pack(">I", size) + kind + head + bytes(max(0, size - 8 - len(head)))


def riff(size):
    return b"RIFF" + struct.pack("<I", size) + bytes(size)


EBML = b"\x1a\x45\xdf\xa3"


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (b"", 0),
        (b"nothing of the kind, but long enough", 0),
        (box(b"ftyp", 16) + box(b"mdat", 40), 0),
        ((box(b"ftyp", 16) + box(b"mdat", 40))[:-7], 7),
        (box(b"ftyp", 16) + struct.pack(">I", 40) + b"mdat", 32),
        (box(b"ftyp", 16) + struct.pack(">I", 40) + b"mda", 0),  # not even a head
        (box(b"ftyp", 16) + struct.pack(">I", 0) + b"mdat" + bytes(9), 0),  # to the end
        (box(b"ftyp", 16) + struct.pack(">I", 1) + b"mdat" + struct.pack(">Q", 50) + bytes(30), 4),
        (box(b"ftyp", 16) + struct.pack(">I", 1) + b"mdat" + struct.pack(">Q", 50)[:7], 0),
        (box(b"ftyp", 16) + struct.pack(">I", 40) + b"\0\0\0\0", 0),  # no box at all
        (box(b"ftyp", 16) + box(b"free", 8), 0),
        (riff(20), 0),
        (riff(20)[:-3], 3),
        (riff(21), 1),  # an odd chunk is padded
        (riff(21) + b"\0", 0),
        (riff(20) + riff(12)[:-5], 5),
        (riff(20) + b"JUNK" + bytes(40), 0),
        (b"RIFF" + bytes(4) + bytes(30), 0),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x8a" + bytes(10), 0),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x8a" + bytes(4), 6),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x40\x0a" + bytes(4), 6),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x41\x00" + bytes(200), 56),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x08" + bytes(3) + b"\x14" + bytes(4), 16),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\xff" + bytes(4), 0),  # never filled in
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67" + b"\x01" + b"\xff" * 7, 0),
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x66" + b"\x8a", 0),  # another element
        (EBML + b"\x84" + bytes(4) + b"\x18\x53\x80\x67", 0),
    ],
)
def test_what_a_container_says_of_its_size_beyond_the_end_is_missing(tmp_path, content, missing):
    path = tmp_path / "a"
    path.write_bytes(content)
    assert missing_bytes(path) == missing


# -- colours --------------------------------------------------------------------------------------------------


class Reformatter:
    """libswscale as far as it is used: it notes what it is asked, and gives a picture of one value a plane."""

    def __init__(self):
        self.asked = []

    def reformat(self, frame, width, height, form, **how):
        self.asked.append((width, height, form))
        if form == "rgb24":
            return SimpleNamespace(to_ndarray=lambda: np.zeros((height, width, 3), np.uint8))
        planes = [
            np.full((height, width + 3), value, np.uint8) for value in (1, 2, 3)
        ]  # green, blue, red; padded
        return SimpleNamespace(width=width, height=height, planes=planes)


def decoded(monkeypatch, matrix, bits=8, **keys):
    """A frame of 6 x 4 with a display matrix through `Rgb`, which gives itself and the image."""
    made = Rgb(**keys)
    monkeypatch.setattr(module, "display_matrix", lambda frame: matrix)
    made._scale, made._part = (one := Reformatter()).reformat, (two := Reformatter()).reformat
    frame = SimpleNamespace(
        width=6, height=4, rotation=1, format=SimpleNamespace(components=[SimpleNamespace(bits=bits)])
    )
    return made, made(frame), one.asked, two.asked


@pytest.mark.parametrize(
    ("matrix", "sides", "turn"),
    [
        ((1, 0, 0, 1), (6, 4), 0),
        ((0, 1, -1, 0), (4, 6), 90),
        ((-1, 0, 0, -1), (6, 4), 180),
        ((0, -1, 1, 0), (4, 6), 270),
    ],
)
def test_sizes_are_those_of_the_upright_picture(monkeypatch, matrix, sides, turn):
    made, image, asked, _ = decoded(monkeypatch, matrix)
    assert (made.sides, made.rotation, image.shape) == (sides, turn, (sides[1], sides[0], 3))
    assert asked == [(6, 4, "rgb24")]
    made, image, asked, _ = decoded(monkeypatch, matrix, size=(10, 8))
    assert (made.sides, image.shape, asked) == (
        sides,
        (8, 10, 3),
        [(8, 10, "gbrp") if turn in (90, 270) else (10, 8, "gbrp")],
    )
    assert image.reshape(-1, 3).tolist() == [[3, 1, 2]] * 80


@pytest.mark.parametrize(("bits", "steps"), [(8, [1, 0]), (9, [1, 1]), (10, [1, 1])])
def test_more_than_eight_bits_go_by_planes_first(monkeypatch, bits, steps):
    _, image, one, two = decoded(monkeypatch, (1, 0, 0, 1), bits)
    assert [len(one), len(two)] == steps and image.shape == (4, 6, 3)
    assert one[0][2] == ("rgb24" if bits == 8 else "gbrp")


def test_the_whole_frame_is_made_beside_a_scaled_one_only_if_it_is_wanted():
    assert Rgb((4, 2), whole=True)._full is not None
    for other in (Rgb((4, 2)), Rgb(whole=True), Rgb()):
        assert other._full is None and other.whole("frame") is None
    made = Rgb((4, 2), whole=True)
    made._full = lambda frame: f"whole {frame}"
    assert made.whole("x") == "whole x"


@pytest.mark.parametrize(("down", "across"), [(1, 1), (1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("swaps", [False, True])
def test_every_display_matrix_of_right_angles_is_undone(down, across, swaps):
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    matrix = (0, down, across, 0) if swaps else (across, 0, 0, down)
    wanted = image.transpose(1, 0, 2) if swaps else image
    wanted = wanted[::down, ::across]
    found = upright(image, matrix)
    assert (found == wanted).all() and found.flags.c_contiguous
    assert (found is image) is (matrix == (1, 0, 0, 1))
