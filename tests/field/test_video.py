"""Films as recorders and browsers write them: the stream decides how many frames there are and how fast, not a header.

The kinds are those of public reports: AVIs with dropped frames (L-SMASH-Works issue 69), headers that count a frame too
many (MGT-python issue 242), WebM of a browser's recorder that claims 1000 frames a second, 10-bit films that PyAV's
direct way to RGB makes darker than the same film scaled.
"""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest

from edgescope.errors import ModelError
from films import all_of, cut, film, number_of

pytest.importorskip("av")
from edgescope.frames import opened


def dropped(path, frames=30, without=()):
    """An MPEG-4 AVI in which some frames are missing, as a recorder drops them."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in set(range(frames)) - set(without):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), i * 8 % 256, np.uint8), format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("without", [(), (10, 11, 12), (1,), (28,), tuple(range(5, 25))])
def test_dropped_frames_are_no_damage(tmp_path, without):
    source = opened(f"file:{dropped(tmp_path / 'a.avi', 30, without)}")
    found = all_of(source)
    assert (
        len(found) == 30 - len(without) and source.facts()["damaged"] == 0 and source.facts()["lost"] is None
    )
    times = [frame.time_s * 30 for frame in found]
    assert times == pytest.approx(sorted(set(range(30)) - set(without)), abs=0.05)


@pytest.mark.parametrize("more", [1, 5, 1000, -3])
def test_a_count_in_a_header_is_no_promise(tmp_path, more):
    path = dropped(tmp_path / "a.avi")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"avih", 24), (b"strh", 40)):
        at = data.index(mark) + offset
        (count,) = struct.unpack_from("<I", data, at)
        assert count == 30
        struct.pack_into("<I", data, at, count + more)
    path.write_bytes(data)
    source = opened(f"file:{path}")
    assert len(all_of(source)) == 30 and source.facts()["damaged"] == 0


@pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_film_that_was_cut_off_says_so_and_how_many_frames_are_gone(tmp_path, name, share):
    codec = "mpeg4" if name.endswith("avi") else "libx264"
    path = cut(film(tmp_path / name, 48, codec=codec, noise=6), share)
    source = opened(f"file:{path}")
    with pytest.raises(ModelError) as caught:
        all_of(source)
    assert caught.value.code == "E-VIDEO-1"
    skipping = opened(f"file:{path}", damaged="skip")
    found = len(all_of(skipping))
    facts = skipping.facts()
    assert found < 48 and facts["damaged"] >= 1
    if name == "a.avi":
        assert abs(facts["lost"] - (48 - found)) <= 1 and f"{facts['lost']} of 48 frames" in str(caught.value)
    else:
        assert facts["lost"] is None  # nothing in it counts frames


def test_a_last_frame_that_stands_for_seconds_is_no_missing_end(tmp_path):
    import av

    path = tmp_path / "slides.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for pts in (0, 2000, 4000):
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts, frame.time_base = pts, stream.time_base
            for packet in stream.encode(frame):
                packet.duration = 5000 if pts == 4000 else 2000
                container.mux(packet)
        container.mux(stream.encode())
    source = opened(f"file:{path}")
    assert [round(frame.time_s) for frame in all_of(source)] == [0, 2, 4]
    assert source.facts()["fps"] == pytest.approx(0.5)


@pytest.mark.parametrize("claimed", [1000, 5])
def test_the_rate_is_that_of_the_time_stamps(tmp_path, claimed):
    source = opened(f"file:{film(tmp_path / 'a.mkv', 11, fps=claimed, times=[40 * k for k in range(11)])}")
    assert [number_of(frame.image) for frame in all_of(source)] == list(range(11))
    assert source.facts()["fps"] == pytest.approx(25, rel=0.01)


@pytest.mark.parametrize("pixels", ["yuv420p10le", "yuv422p10le", "yuv444p10le", "yuv420p12le"])
def test_a_film_of_more_than_8_bits_is_as_bright_whole_as_scaled(tmp_path, pixels):
    path = film(tmp_path / "a.mkv", 2, size=(384, 288), noise=40, codec="ffv1", pixels=pixels)
    whole, same = (all_of(opened(f"file:{path}", size=size))[1].image for size in (None, (384, 288)))
    assert (whole == same).all() and whole.flags.c_contiguous
