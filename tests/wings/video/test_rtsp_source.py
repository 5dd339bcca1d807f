"""A network camera: a real RTSP server on 127.0.0.1."""

import threading
import time

import pytest

from edgescope.errors import DeviceError
from films import number_of
from rtsp_server import RtspServer

pytest.importorskip("av")
from edgescope.frames import opened
from edgescope.wings.video.sources import cameras

pytestmark = pytest.mark.codec


def test_frames_come_in_order_with_their_time():
    with RtspServer(frames=20, size=(160, 120)) as server:
        source = opened(server.url)
        assert source.facts()["width"] == 160, "facts wait for the connection"
        before = time.monotonic_ns()
        found = [source.read() for _ in range(12)]
        source.close()
        assert source.read() is None
    away = {(number_of(frame.image) - frame.index) % 20 for frame in found}
    assert len(away) == 1, "a frame has another number than its place in the stream"
    assert before - 10**9 < found[0].created_ns < found[-1].created_ns <= time.monotonic_ns()
    assert found[0].image.shape == (120, 160, 3)
    assert found[-1].time_s == pytest.approx(found[-1].index / 25, abs=0.01)
    facts = source.facts()
    assert (facts["codec"], facts["width"], facts["reconnects"]) == ("h264", 160, 0)
    assert facts["frames"] >= 12


def test_a_server_that_breaks_off_is_connected_to_again():
    with RtspServer() as server:
        source = opened(server.url, size=(32, 24))
        assert source.read().size == (64, 48)
        server.drop()
        end = time.monotonic() + 20
        while source.facts()["reconnects"] < 1:
            assert source.read() is not None and time.monotonic() < end
        assert source.read().image.shape == (24, 32, 3)
        assert server.sessions == 2 and source.facts()["reconnects"] == 1
        source.close()
    assert not any(thread.name.startswith("source rtsp") for thread in threading.enumerate())


def test_a_server_that_falls_silent_is_reported(monkeypatch):
    monkeypatch.setattr(cameras, "READ_S", 0.5)
    monkeypatch.setattr(cameras, "CONNECT_S", 0.5)
    with RtspServer() as server:
        source = opened(server.url, stall_s=1.0)
        source.read()
        server.mute = True
        with pytest.raises(DeviceError, match=r"E-VIDEO-2: rtsp://127.0.0.1:\d+/cam .* 1\.\d s"):
            while True:
                source.read()
        source.close()


def test_a_password_is_not_shown():
    source = opened("rtsp://me:secret@127.0.0.1:9/cam", stall_s=0.2)
    with pytest.raises(DeviceError) as caught:
        source.read()
    source.close()
    assert "secret" not in str(caught.value) and "secret" not in str(source.facts())
    assert source.facts()["name"] == "rtsp://127.0.0.1:9/cam"
