"""Pipelines of GStreamer, as text and run by gst-launch-1.0."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from edgescope.errors import ModelError, UnavailableError
from films import all_of, film, number_of

pytest.importorskip("av")
from edgescope.video.frame import Source
from edgescope.video.sources import gstreamer as module
from edgescope.video.sources.gstreamer import gstreamer, is_live, pipeline
from edgescope.video.sources.opening import opened


def _lacking() -> str:
    """Why no pipeline can run here; '' if one can."""
    if not (shutil.which("gst-launch-1.0") and shutil.which("gst-inspect-1.0")):
        return "gst-launch-1.0 is not installed"
    absent = [
        name
        for name in ("videoconvert", "decodebin", "videotestsrc", "avdec_h264", "qtdemux")
        if subprocess.run(["gst-inspect-1.0", name], capture_output=True, check=False).returncode
    ]
    return f"GStreamer lacks {', '.join(absent)}" if absent else ""


LACKING = _lacking()
runs = pytest.mark.skipif(bool(LACKING), reason=LACKING)


def test_a_live_pipeline_of_a_jetson():
    text = pipeline("rtsp://cam/1", jetson=True, live=True, size=(300, 300))
    assert text == (
        "rtspsrc location=rtsp://cam/1 protocols=tcp latency=100 ! parsebin ! nvv4l2decoder ! "
        "queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0 ! "
        "nvvidconv ! video/x-raw,format=BGRx,width=300,height=300 ! videoconvert ! "
        "video/x-raw,format=RGB,width=300,height=300 ! appsink max-buffers=1 drop=true sync=false"
    )


def test_a_file_on_a_desktop(tmp_path):
    path = tmp_path / "my film.mp4"
    path.touch()
    assert pipeline(str(path), jetson=False, live=False) == (
        f"filesrc location='{path}' ! decodebin ! videoconvert ! video/x-raw,format=RGB ! "
        "appsink max-buffers=1 drop=false sync=false"
    )
    jetson = pipeline(str(path), jetson=True, live=False, sink="fakesink")
    assert jetson == (
        f"filesrc location='{path}' ! parsebin ! nvv4l2decoder ! nvvidconv ! video/x-raw,format=BGRx ! "
        "videoconvert ! video/x-raw,format=RGB ! fakesink"
    )


def test_what_is_live():
    assert is_live("rtsp://a/b") and is_live("/dev/video0") and is_live("videotestsrc is-live=true")
    assert not is_live("videotestsrc") and not is_live("film.mp4")
    assert pipeline("/dev/video1", jetson=False, live=True).startswith(
        "v4l2src device=/dev/video1 ! queue leaky"
    )


def test_without_gstreamer_the_command_is_told(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda program: None)
    with pytest.raises(UnavailableError, match=r"E-VIDEO-6: .*no gst-launch-1.0.*Try: sudo apt install"):
        gstreamer("videotestsrc")
    live = gstreamer("videotestsrc is-live=true", stall_s=5.0)
    with pytest.raises(UnavailableError, match="E-VIDEO-6"):
        live.read()
    live.close()


@runs
def test_every_frame_of_a_file_comes_once(tmp_path):
    path = film(tmp_path / "a.mp4", 20)
    source = opened(f"gstreamer:{path}")
    assert isinstance(source, Source) and not source.live
    found = all_of(source)
    assert [number_of(frame.image) for frame in found] == list(range(20))
    facts = json.loads(json.dumps(source.facts()))
    assert (facts["width"], facts["height"], facts["frames"]) == (64, 48, 20)
    assert facts["fps"] == pytest.approx(25, rel=0.1), "GStreamer counts edit lists in"
    assert np.allclose([frame.time_s for frame in found], np.arange(20) / facts["fps"])
    looped = opened(f"gstreamer:{path}", loop=True, size=(32, 24))
    again = all_of(looped, 45)
    assert [number_of(frame.image) for frame in again] == [k % 20 for k in range(45)]
    assert again[0].image.shape == (24, 32, 3)
    looped.close()
    looped.close()


@runs
def test_a_pipeline_of_ones_own_and_one_that_fails():
    source = opened("gstreamer:videotestsrc num-buffers=7 ! video/x-raw,width=33,height=17")
    found = all_of(source)
    assert len(found) == 7 and found[0].image.shape == (17, 33, 3)
    with pytest.raises(ModelError, match=r"E-VIDEO-1: .*no element \"nosuchthing\""):
        opened("gstreamer:nosuchthing ! identity")


@runs
def test_a_live_pipeline_drops_what_is_not_read():
    source = opened("gstreamer:videotestsrc is-live=true ! video/x-raw,width=64,height=48,framerate=50/1")
    assert source.live
    first = source.read()
    while source.facts()["frames"] < first.index + 6:
        pass
    late = source.read()
    assert late.index >= 5 and source.facts()["dropped"] >= 4 and late.created_ns > first.created_ns
    thread = source._thread
    source.close()
    assert not thread.is_alive() and source.read() is None
