"""A camera that stalls, breaks off and comes back, in fake time and with a fake connection."""

import contextlib
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import DeviceError, UsageError
from fake_time import FakeClock

pytest.importorskip("av")
from edgescope.video.frame import Source
from edgescope.video.sources.camera import camera
from edgescope.video.sources.live import FIRST_S, LONGEST_S, Connection, Grabbed, Live, Shown, pause_s

IMAGE = np.zeros((2, 2, 3), np.uint8)


class Cable(Connection):
    """A connection that sends what a test puts on it: a number is a frame, an exception breaks off, None ends it."""

    def __init__(self) -> None:
        self.about = {"width": 2, "height": 2, "fps": 25.0, "codec": "test"}
        self.sent: list = []
        self.more = threading.Condition()
        self.stopped = False

    def send(self, *what) -> None:
        with self.more:
            self.sent += what
            self.more.notify_all()

    def grabbed(self):
        while True:
            with self.more:
                while not self.sent and not self.stopped:
                    self.more.wait(0.01)
                if self.stopped:
                    return
                what = self.sent.pop(0)
            if what is None:
                return
            if isinstance(what, Exception):
                raise what
            yield Grabbed(what, what * 1000, what / 25)

    def image(self, picture):
        return Shown(IMAGE + np.uint8(picture), None)

    def stop(self) -> None:
        self.stopped = True


def live(connect, **keys):
    clock = keys.pop("clock", FakeClock())
    return Live("test camera", connect, clock=clock, **keys)


def until(condition, seconds=5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.002)


def test_the_newest_frame_is_kept_and_the_older_ones_are_counted():
    cable = Cable()
    source = live(lambda: contextlib.nullcontext(cable))
    assert isinstance(source, Source) and source.live
    cable.send(0)
    first = source.read()
    assert (first.index, first.created_ns, first.image.max()) == (0, 0, 0)
    cable.send(1, 2, 3)
    until(lambda: source.facts()["frames"] == 4)
    newest = source.read()
    assert (newest.index, newest.created_ns, newest.image.max(), newest.time_s) == (3, 3000, 3, 0.12)
    facts = source.facts()
    assert (facts["dropped"], facts["reconnects"], facts["width"]) == (2, 0, 2)
    source.close()


@given(st.integers(1, 60))
def test_pauses_double_up_to_a_limit(failures):
    assert pause_s(1) == FIRST_S and FIRST_S <= pause_s(failures) <= pause_s(failures + 1) <= LONGEST_S


def test_a_lost_connection_is_tried_again_with_growing_pauses():
    clock, tried, cable = FakeClock(), [], Cable()
    clock.late_ns = 0

    @contextlib.contextmanager
    def connect():
        tried.append(clock.t / 1e9)
        if len(tried) in (2, 3, 4):
            raise OSError("no route")
        yield cable

    cable.send(0)
    source = live(connect, clock=clock)
    assert source.read().index == 0
    cable.send(OSError("the cable is out"))
    until(lambda: len(tried) == 5)
    assert np.allclose(np.diff(tried), [0.5, 1.0, 2.0, 4.0])
    cable.send(1)
    assert source.read().index == 1
    assert source.facts()["reconnects"] == 4
    cable.send(None)
    until(lambda: len(tried) == 6)
    assert tried[5] - tried[4] == FIRST_S, "after a frame the pauses begin anew"
    source.close()


def test_a_camera_that_sends_nothing_is_reported_after_a_bounded_time():
    source = live(
        lambda: contextlib.nullcontext(Cable()), clock=FakeClock(look_ns=100_000_000), stall_s=3.0, fix="look"
    )
    with pytest.raises(DeviceError, match=r"E-VIDEO-2: test camera gave no frame for 3\.\d s .*Try: look"):
        source.read()
    source.close()


def test_a_camera_that_is_not_there_says_why():
    def connect():
        raise OSError("No such device")

    source = live(connect, clock=FakeClock(look_ns=100_000_000), stall_s=3.0)
    with pytest.raises(DeviceError, match="OSError: No such device"):
        source.read()
    source.close()


def test_a_mistake_in_the_thread_reaches_the_reader():
    def connect():
        raise ZeroDivisionError("a mistake")

    source = live(connect)
    with pytest.raises(ZeroDivisionError):
        source.read()
    source.close()


def test_closing_twice_ends_the_thread_and_a_waiting_reader():
    source = live(lambda: contextlib.nullcontext(Cable()))
    found = []
    reader = threading.Thread(target=lambda: found.append(source.read()))
    reader.start()
    source.close()
    source.close()
    reader.join(5)
    assert found == [None] and source.read() is None
    assert not any(thread.name == "source test camera" for thread in threading.enumerate())


def test_a_camera_of_this_machine_that_is_missing(tmp_path):
    with pytest.raises(DeviceError, match="E-VIDEO-2: /dev/video987 is not there"):
        camera("/dev/video987", stall_s=0.3)
    with pytest.raises(UsageError, match="E-VIDEO-3"):
        camera("front door")
