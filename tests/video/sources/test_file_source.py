"""A video file: each frame once, in order, upright, whatever the file is like."""

import json

import numpy as np
import psutil
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgescope.errors import ModelError
from films import all_of, cut, film, number_of, picture, scratched

pytest.importorskip("av")
from edgescope.video.frame import Source
from edgescope.video.sources.file import File, Times
from edgescope.video.sources.rgb import degrees, upright


def numbers(source):
    return [number_of(frame.image) for frame in all_of(source)]


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


def test_a_frame_that_is_scaled_keeps_its_original_size(tmp_path):
    path = film(tmp_path / "a.mp4")
    source = File(path, size=(30, 20))
    frame = source.read()
    assert frame.image.shape == (20, 30, 3) and frame.size == (64, 48)
    assert (source.facts()["width"], source.facts()["height"]) == (64, 48)
    assert [number_of(f.image) for f in [frame, *all_of(source)]] == list(range(20))


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


@pytest.mark.parametrize("content", [b"", b"nothing of the kind" * 100])
def test_what_is_no_video_is_refused_at_once(tmp_path, content):
    path = tmp_path / "not.mp4"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"E-VIDEO-1: not.mp4 cannot be decoded after 0 frames"):
        File(path)


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


def test_a_loop_over_nothing_but_damage_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(File, "_pictures", lambda self: iter(()))
    source = File(film(tmp_path / "a.mp4"), loop=True, damaged="skip")
    with pytest.raises(ModelError, match="it holds no frame"):
        source.read()


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
