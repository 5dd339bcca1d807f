"""Files and made-up pictures that play by the clock."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.video.frame import Frame, Source
from edgescope.video.sources.paced import Paced
from edgescope.video.sources.synthetic import POOL, Synthetic, synthetic
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


def test_a_file_plays_by_its_own_time_stamps(tmp_path):
    pytest.importorskip("av")
    from edgescope.video.sources.opening import opened

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
