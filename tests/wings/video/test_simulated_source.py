"""Files and made-up pictures that play by the clock."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.frames import Frame, Source
from edgescope.wings.video.sources.simulated import POOL, Paced, Synthetic, synthetic
from fake_time import FakeClock
from films import all_of, film, number_of

MS = 1_000_000


def clock():
    return FakeClock()


def test_an_early_reader_waits_for_each_frame():
    time = clock()
    source = Paced(Synthetic(8, 8, frames=5), fps=10.0, clock=time)
    found = []
    while (frame := source.read()) is not None:
        found.append((frame.index, frame.created_ns, time.t))
    assert found == [(k, k * 100 * MS, k * 100 * MS) for k in range(5)]
    assert source.live and isinstance(source, Source) and source.facts()["dropped"] == 0


def test_a_late_reader_loses_the_older_frames():
    time = clock()
    source = Paced(Synthetic(8, 8, frames=10), fps=10.0, clock=time)
    assert source.read().index == 0
    time.t = 350 * MS
    late = source.read()
    assert (late.index, late.created_ns, time.t) == (3, 300 * MS, 350 * MS)
    assert source.facts()["dropped"] == 2
    assert (source.read().index, time.t) == (4, 400 * MS)
    time.t = 10_000 * MS
    assert source.read().index == 9 and source.read() is None
    assert source.facts()["dropped"] == 6


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=40),
    st.integers(1, 60),
    st.sampled_from([5.0, 24.0, 29.97, 120.0]),
)
def test_every_frame_is_given_or_counted_and_never_before_it_is_due(waits, frames, fps):
    time = clock()
    source = Paced(Synthetic(8, 8, frames=frames), fps=fps, clock=time)
    given_, last = 0, -1
    for wait in waits:
        frame = source.read()
        if frame is None:
            break
        assert frame.index > last and frame.created_ns == round(frame.index / fps * 1e9) <= time.t
        assert time.t < round((frame.index + 1) / fps * 1e9) or frame.index == frames - 1, (
            "a newer frame was due"
        )
        given_, last = given_ + 1, frame.index
        time.t += wait * MS
    assert source.facts()["dropped"] == last + 1 - given_


@pytest.mark.codec
def test_a_file_plays_by_its_own_time_stamps(tmp_path):
    pytest.importorskip("av")
    from edgescope.frames import opened

    path = film(tmp_path / "a.mkv", 4, times=[0, 100, 150, 400])
    time = clock()
    found = all_of(opened(f"paced:{path}", clock=time))
    assert [number_of(frame.image) for frame in found] == [0, 1, 2, 3]
    assert np.allclose([frame.created_ns / MS for frame in found], [0, 100, 150, 400], atol=1)
    time = clock()
    quick = opened(f"paced:{path}@100", clock=time, loop=True, size=(20, 10))
    assert [frame.created_ns / MS for frame in all_of(quick, 6)] == [0, 10, 20, 30, 40, 50]
    assert quick.facts()["fps"] == 100.0 and quick.read().sides == (64, 48)
    quick.close()
    quick.close()
    assert quick.read() is None


def test_a_film_without_any_time_needs_a_rate():
    class Timeless(Synthetic):
        def read(self):
            frame = super().read()
            return Frame(frame.image, frame.index)

    source = Paced(Timeless(8, 8), clock=clock())
    with pytest.raises(UsageError, match="E-VIDEO-4"):
        source.read()


def test_synthetic_frames_are_the_same_in_every_run_and_differ_in_one():
    one, two = synthetic("33x17", frames=POOL + 3), synthetic("33x17", frames=POOL + 3)
    assert not one.live
    first, second = all_of(one), all_of(two)
    assert len(first) == POOL + 3 and first[0].image.shape == (17, 33, 3)
    assert all((a.image == b.image).all() for a, b in zip(first, second, strict=True))
    assert len({frame.image.tobytes() for frame in first}) == POOL
    assert (first[POOL].image == first[0].image).all() and first[-1].time_s == pytest.approx((POOL + 2) / 30)
    one.close()
    one.close()
    assert one.read() is None


def test_a_synthetic_camera_is_live():
    source = synthetic("64x48@30", clock=clock())
    assert source.live and [f.created_ns for f in all_of(source, 3)] == [0, 33_333_333, 66_666_667]
    assert source.facts()["fps"] == 30.0


@pytest.mark.parametrize("name", ["", "640", "640x", "0x5", "640x480@", "640x480@0", "ax3"])
def test_a_size_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match=r"E-VIDEO-3: .*Try: synthetic:640x480"):
        synthetic(name)


def test_a_synthetic_frame_is_two_ramps_and_a_square_that_moves():
    source = Synthetic(32, 16, fps=10.0)
    frames = [source.read() for _ in range(POOL)]
    assert not frames[0].image.flags.writeable and [f.time_s for f in frames[:3]] == [0.0, 0.1, 0.2]
    for step, frame in enumerate(frames):
        y, x = 12 * step // 16, 28 * step // 16
        assert (frame.image[y : y + 4, x : x + 4] == 255).all()
        outside = np.ones((16, 32), bool)
        outside[y : y + 4, x : x + 4] = False
        assert (frame.image[..., 2][outside] == 16 * step).all()
        assert (
            frame.image[..., 0][outside]
            == np.linspace(0, 255, 32).astype(np.uint8)[None].repeat(16, 0)[outside]
        ).all()
        assert (
            frame.image[..., 1][outside]
            == np.linspace(0, 255, 16).astype(np.uint8)[:, None].repeat(32, 1)[outside]
        ).all()
    assert source.facts() == {"width": 32, "height": 16, "fps": 10.0, "codec": "synthetic", "frames": POOL}
    assert Synthetic(3, 2).read().image.max() == 255, "a square of one pixel at least"


def test_a_late_reader_gets_what_is_due_at_this_moment_and_the_end_is_kept():
    time = clock()
    source = Paced(Synthetic(8, 8, frames=4), fps=10.0, clock=time)
    source.read()
    time.t = 200 * MS  # the third frame is due now
    assert source.read().index == 2 and source.facts()["dropped"] == 1
    time.t = 300 * MS
    assert source.read().index == 3 and source.read() is None and source.facts()["dropped"] == 1


def test_a_source_begins_with_its_first_frame_whatever_its_number_and_time():
    class Late(Synthetic):
        def read(self):
            frame = super().read()
            return Frame(frame.image, frame.index + 7, time_s=frame.time_s + 5.0)

    for fps, gap in ((4.0, 250), (0.0, 100)):
        time = clock()
        time.t = 3000 * MS
        source = Paced(Late(8, 8, fps=10.0), fps=fps, clock=time)
        assert [source.read().created_ns // MS for _ in range(3)] == [3000, 3000 + gap, 3000 + 2 * gap]
        assert source.facts()["fps"] == (fps or 10.0)
