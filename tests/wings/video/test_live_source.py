"""A camera that stalls, breaks off and comes back, in fake time and with a fake connection."""

import contextlib
import threading
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import DeviceError, UsageError
from fake_time import FakeClock

pytest.importorskip("av")
from edgescope.frames import Source
from edgescope.wings.video.sources import cameras
from edgescope.wings.video.sources.cameras import Stream, camera
from edgescope.wings.video.sources.live import (
    FIRST_S,
    LONGEST_S,
    Connection,
    Grabbed,
    Live,
    Shown,
    pause_s,
    shown,
)

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
        lambda: contextlib.nullcontext(Cable()), clock=FakeClock(look_ns=500_000_000), stall_s=3.0, fix="look"
    )
    with pytest.raises(DeviceError, match=r"E-VIDEO-2: test camera .* 3\.\d s .*Try: look"):
        source.read()
    source.close()


def test_a_camera_that_is_not_there_says_why():
    def connect():
        raise OSError("No such device")

    source = live(connect, clock=FakeClock(look_ns=500_000_000), stall_s=3.0)
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


def test_pauses_are_half_a_second_one_two_four_and_at_most_eight():
    assert [pause_s(n) for n in (1, 2, 3, 4, 5, 6, 99, 5000)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize(("look_ms", "waited_s"), [(1000, "3.0"), (1500, "3.0"), (800, "3.2"), (4000, "4.0")])
def test_a_reader_waits_until_the_limit_and_no_longer(look_ms, waited_s):
    source = live(lambda: contextlib.nullcontext(Cable()), stall_s=3.0)
    until(lambda: source._connection is not None)
    source._clock, source._ready = FakeClock(look_ns=look_ms * 1_000_000), mock.MagicMock()
    with pytest.raises(DeviceError) as caught:
        source._wait(lambda: False)
    assert source._ready.wait.call_args_list == [mock.call(0.02)] * (
        round(float(waited_s) * 1000 / look_ms) - 1
    )
    source._ready = threading.Condition()
    source.close()
    assert caught.value.code == "E-VIDEO-2"
    assert caught.value.what.startswith("test camera ") and caught.value.what.endswith(f" {waited_s} s")


def test_a_pause_ends_at_its_moment_in_small_steps(monkeypatch):
    source = live(lambda: contextlib.nullcontext(Cable()))
    source.close()
    clock, dozed = FakeClock(), []

    def doze_until(t_ns):
        dozed.append(t_ns)
        clock.t = t_ns

    monkeypatch.setattr(clock, "doze_until", doze_until)
    source._clock, source._closed = clock, False
    source._rest(0.05)
    assert dozed == [20_000_000, 40_000_000, 50_000_000]
    source._closed = True
    source._rest(9.0)
    assert len(dozed) == 3


@pytest.mark.parametrize(
    ("text", "shown_text"),
    [
        ("rtsp://me:secret@host/a", "rtsp://host/a"),
        ("rtsp://host/a@b", "rtsp://host/a@b"),
        ("a //me@h b //you:x@i", "a //h b //i"),
    ],
)
def test_a_password_stays_out_of_sight(text, shown_text):
    assert shown(text) == shown_text


def test_a_source_that_never_connected_has_no_facts_and_a_closed_one_takes_no_frame():
    cable = Cable()
    source = live(lambda: contextlib.nullcontext(cable), stall_s=20.0)
    cable.send(4)
    until(lambda: source.facts()["frames"] == 1)
    source.close()
    assert source.read() is None and cable.stopped and source.facts()["reconnects"] == 0
    assert source.facts()["name"] == "test camera" and source.stall_s == 20.0


# -- what FFmpeg reads -------------------------------------------------------------------------------------------


def picture(time_s, corrupt=False):
    return SimpleNamespace(time=time_s, is_corrupt=corrupt)


class Packet:
    def __init__(self, *pictures, error=None):
        self.pictures, self.error = pictures, error

    def decode(self):
        if self.error:
            raise self.error
        return self.pictures


class Container:
    """A stream of packets as PyAV gives them."""

    def __init__(self, packets, average=25, guessed=30):
        context = SimpleNamespace(name="h264", width=64, height=48)
        self.video = SimpleNamespace(average_rate=average, guessed_rate=guessed, codec_context=context)
        self.streams, self.packets = SimpleNamespace(video=[self.video]), packets

    def demux(self, *, video):
        assert video == 0
        return iter(self.packets)


@pytest.mark.parametrize(("average", "guessed", "fps"), [(25, 30, 25.0), (0, 30, 30.0), (None, None, None)])
def test_a_stream_says_what_it_is_and_decodes_no_several_frames_at_once(average, guessed, fps):
    container = Container([], average, guessed)
    about = Stream(container, None, stamped=False).about
    assert about == {"codec": "h264", "width": 64, "height": 48, "fps": fps}
    assert container.video.thread_type == "SLICE"


def test_frames_come_with_their_time_from_the_first_stamp_and_damaged_ones_are_passed_over(monkeypatch):
    monkeypatch.setattr(cameras.time, "monotonic_ns", lambda: 50_000_000_000)
    lost = cameras.av.error.InvalidDataError(1, "lost")
    packets = [
        Packet(picture(None)),
        Packet(picture(7.0), picture(8.0, True)),
        Packet(error=lost),
        Packet(picture(7.5)),
    ]
    found = list(Stream(Container(packets), None, stamped=False).grabbed())
    assert np.isnan(found[0].time_s) and [got.time_s for got in found[1:]] == [0.0, 0.5]
    assert [got.created_ns for got in found] == [50_000_000_000] * 3


@pytest.mark.parametrize(
    ("stamp", "created_s"),
    [
        (49.5, 49.5),
        (50.0, 50.0),
        (50.001, 50.0),
        (40.000001, 40.000001),
        (40.0, 50.0),
        (3.0, 50.0),
        (None, 50.0),
    ],
)
def test_a_drivers_stamp_counts_if_it_is_of_the_last_ten_seconds(monkeypatch, stamp, created_s):
    monkeypatch.setattr(cameras.time, "monotonic_ns", lambda: 50_000_000_000)
    (got,) = Stream(Container([Packet(picture(stamp))]), None, stamped=True).grabbed()
    assert got.created_ns == pytest.approx(created_s * 1e9, abs=1)
    (got,) = Stream(Container([Packet(picture(stamp))]), None, stamped=False).grabbed()
    assert got.created_ns == 50_000_000_000


def test_a_stream_is_opened_with_a_limit_of_five_seconds(monkeypatch):
    asked, container = [], Container([])

    @contextlib.contextmanager
    def opened(url, **how):
        asked.append((url, how))
        yield container

    monkeypatch.setattr(cameras.av, "open", opened)
    with cameras.connected("rtsp://a", (4, 2), options={"a": "1"}) as connection:
        assert connection._rgb.size == (4, 2) and not connection._stamped and connection._rgb._full is None
    with cameras.connected(
        "/dev/video0", (4, 2), format="v4l2", options={}, stamped=True, whole=True
    ) as connection:
        assert connection._stamped and connection._rgb._full is not None
    assert asked == [
        ("rtsp://a", {"format": None, "options": {"a": "1"}, "timeout": (5.0, 5.0)}),
        ("/dev/video0", {"format": "v4l2", "options": {}, "timeout": (5.0, 5.0)}),
    ]


@pytest.mark.parametrize(("size", "sides"), [(None, None), ((4, 2), (64, 48))])
def test_a_frame_of_a_stream_says_what_it_was_before_it_was_scaled(monkeypatch, size, sides):
    connection = Stream(Container([]), size, stamped=False)

    class Made:
        def __init__(self):
            self.size, self.sides = size, (64, 48)

        def __call__(self, frame):
            return f"image of {frame}"

        def whole(self, frame):
            return f"whole of {frame}"

    connection._rgb = Made()
    assert connection.image("x") == Shown("image of x", sides, "whole of x")


def kept(monkeypatch, of):
    """The sources that `of` makes, without connecting."""
    made = []
    monkeypatch.setattr(of, "Live", lambda name, connect, **how: made.append((name, connect, how)))
    return made


def test_a_camera_is_set_to_what_is_asked_for(monkeypatch):
    made = kept(monkeypatch, cameras)
    monkeypatch.setattr(cameras.Path, "exists", lambda self: True)
    camera("3")
    camera(
        "/dev/front", size=(8, 6), whole=True, capture="640x480", fps=29.5, input_format="mjpeg", stall_s=4.0
    )
    (plain, connect, how), (named, other, its) = made
    assert (plain, connect.args, how["stall_s"]) == ("/dev/video3", ("/dev/video3", None), 20.0)
    assert connect.keywords == {"format": "v4l2", "options": {}, "stamped": True, "whole": False}
    assert (named, other.args, its["stall_s"], its["errors"]) == (
        "/dev/front",
        ("/dev/front", (8, 6)),
        4.0,
        cameras.ERRORS,
    )
    options = {"video_size": "640x480", "framerate": "29.5", "input_format": "mjpeg"}
    assert other.keywords == {"format": "v4l2", "options": options, "stamped": True, "whole": True}


@pytest.mark.parametrize(
    ("name", "url"),
    [("//host/a", "rtsp://host/a"), ("rtsps://host/a", "rtsps://host/a"), ("rtsp://host", "rtsp://host")],
)
def test_a_network_camera_comes_by_tcp_without_delay(monkeypatch, name, url):
    made = kept(monkeypatch, cameras)
    cameras.rtsp(name, size=(8, 6), stall_s=4.0)
    cameras.rtsp(name, whole=True)
    (found, connect, how), (_, other, its) = made
    options = {"rtsp_transport": "tcp", "fflags": "nobuffer", "flags": "low_delay"}
    assert (found, connect.args, connect.keywords) == (
        url,
        (url, (8, 6)),
        {"options": options, "whole": False},
    )
    assert (how["stall_s"], how["fix"], its["stall_s"], other.keywords["whole"]) == (
        4.0,
        f"ffprobe {url}",
        20.0,
        True,
    )
