"""Pipelines of GStreamer, as text and run by gst-launch-1.0."""

import json
import os
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.errors import ModelError, UnavailableError
from films import all_of, film, number_of

pytest.importorskip("av")
from edgescope.frames import Source, opened
from edgescope.wings.video.sources import gstreamer as module
from edgescope.wings.video.sources.gstreamer import gstreamer, is_live, pipeline


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


# -- what gst-launch-1.0 writes, from a program of this file ------------------------------------------------------

LOGGED = (
    "/GstPipeline:p/GstFdSink:frames.GstPad:sink: caps = video/x-raw, "
    "width=(int){w}, height=(int){h}, framerate=(fraction){f}\n"
)


class Program:
    """A gst-launch-1.0 that has written these bytes and this log, and ends with `code`."""

    def __init__(self, monkeypatch, data=b"", log="", code=0, hangs=False):
        self.did, self.asked, self.returncode, self.hangs = [], [], None, hangs
        self.data, self.text, self.code = data, log, code
        monkeypatch.setattr(module.shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(module.subprocess, "Popen", self.started)
        monkeypatch.setattr(module, "JETSON", SimpleNamespace(exists=lambda: False))
        self.now = 0.0
        clock = {"monotonic": lambda: self.now, "sleep": self.sleep, "monotonic_ns": lambda: 77}
        monkeypatch.setattr(module, "time", SimpleNamespace(**clock))

    def started(self, command, **how):
        self.asked.append((command, how))
        os.write(how["pass_fds"][0], self.data)
        how["stdout"].write(self.text.encode())
        how["stdout"].flush()
        return self

    def sleep(self, seconds):
        self.did.append("slept")
        self.now += seconds

    def wait(self, timeout=None):
        self.did.append(("wait", timeout))
        if self.hangs and timeout is not None:
            raise subprocess.TimeoutExpired("gst", timeout)
        self.returncode = self.code
        return self.code

    def kill(self):
        self.did.append("kill")

    def terminate(self):
        self.did.append("terminate")


def padded_frames(count, width, height):
    """Frames whose every pixel is their number; rows are padded to four bytes with 255."""
    row = -(-3 * width // 4) * 4
    whole = np.full((count, height, row), 255, np.uint8)
    whole[:, :, : 3 * width] = np.arange(count)[:, None, None]
    return whole.tobytes()


@pytest.mark.parametrize(
    ("width", "fps", "step_s"), [(4, "25/1", 0.04), (5, "30000/1001", 1001 / 30000), (3, "0/1", None)]
)
def test_frames_are_cut_out_of_the_pipe_without_what_pads_their_rows(monkeypatch, width, fps, step_s):
    program = Program(monkeypatch, padded_frames(3, width, 2), "noise\n" + LOGGED.format(w=width, h=2, f=fps))
    source = gstreamer("videotestsrc")
    frames = all_of(source)
    assert [frame.index for frame in frames] == [0, 1, 2]
    assert all(
        (frame.image == k).all() and frame.image.shape == (2, width, 3) for k, frame in enumerate(frames)
    )
    times = [frame.time_s for frame in frames]
    assert times == pytest.approx([k * step_s for k in range(3)]) if step_s else np.isnan(times).all()
    assert source.facts() == {
        **{
            "name": "videotestsrc",
            "codec": "gstreamer",
            "width": width,
            "height": 2,
            "frames": 3,
            "passes": 1,
        },
        "fps": pytest.approx(1 / step_s) if step_s else None,
    }
    command, how = program.asked[0]
    assert command[:2] == ["/bin/gst-launch-1.0", "-v"] and command[2] == "videotestsrc"
    (write,) = how["pass_fds"]
    assert command[-4:] == ["fdsink", "name=frames", f"fd={write}", "sync=false"]
    assert how["stdin"] == subprocess.DEVNULL and how["stdout"] is how["stderr"]
    assert program.did == [("wait", 2.0), "terminate", ("wait", 2.0)]


def test_a_pipeline_that_loops_begins_again_and_one_that_is_closed_ends(monkeypatch):
    program = Program(monkeypatch, padded_frames(2, 4, 2), LOGGED.format(w=4, h=2, f="25/1"))
    source = gstreamer("videotestsrc", loop=True)
    assert [frame.index for frame in all_of(source, 5)] == [0, 1, 2, 3, 4]
    assert source.facts()["passes"] == 2 and len(program.asked) == 3
    source.close()
    assert source.read() is None and program.did[-2:] == ["terminate", ("wait", 2.0)]


def test_a_program_that_does_not_end_is_killed(monkeypatch):
    program = Program(monkeypatch, padded_frames(2, 4, 2), LOGGED.format(w=4, h=2, f="25/1"))
    source = gstreamer("videotestsrc")
    program.hangs = True
    source.close()
    assert program.did == ["terminate", ("wait", 2.0), "kill", ("wait", None)]


@pytest.mark.parametrize(
    ("log", "code", "says"),
    [
        ("all is well\n  ERROR: no element \n WARNING: x\n", 1, "ERROR: no element"),
        ("Setting up\n  WARNING: from y\nlast\n", 1, "WARNING: from y"),
        ("first\nsecond\n last words \n", 1, "last words"),
        ("oops\n", 1, "oops"),
        ("", 3, "it ended with 3"),
    ],
)
def test_a_pipeline_without_a_frame_says_what_the_program_said(monkeypatch, log, code, says):
    program = Program(monkeypatch, b"", log, code)
    with pytest.raises(ModelError, match="E-VIDEO-1") as caught:
        gstreamer("nosuchthing")
    assert caught.value.evidence == says and program.did[:2] == ["kill", ("wait", None)]


def test_a_pipeline_that_fails_after_some_frames_gives_them_first(monkeypatch):
    Program(
        monkeypatch, padded_frames(2, 4, 2) + b"123", LOGGED.format(w=4, h=2, f="25/1") + "ERROR: lost\n", 1
    )
    source = gstreamer("videotestsrc")
    assert [source.read().index, source.read().index] == [0, 1]
    with pytest.raises(ModelError, match="lost"):
        source.read()


def test_the_size_of_a_frame_is_waited_for_two_seconds(monkeypatch):
    program = Program(monkeypatch, padded_frames(1, 4, 2), "Setting pipeline to PLAYING\n")
    with pytest.raises(ModelError, match="E-VIDEO-1"):
        gstreamer("videotestsrc")
    assert 2.0 <= program.now < 2.01 and program.did.count("slept") == pytest.approx(1000, abs=2)


@pytest.mark.parametrize(
    ("name", "live"),
    [
        *(("rtsps://a", True), ("v4l2src device=x", True), ("nvarguscamerasrc", True), ("rtspsrc x", True)),
        *(("videotestsrc is-live=false", False), ("a rtsp:", False)),
    ],
)
def test_what_a_camera_or_a_stream_begins_with(monkeypatch, name, live):
    assert is_live(name) is live
    if live:
        Program(monkeypatch, padded_frames(1, 4, 2), LOGGED.format(w=4, h=2, f="25/1"))
        source = gstreamer(name, size=(4, 2), stall_s=3.0)
        assert source.live and source.stall_s == 3.0 and source._fix == f"gst-launch-1.0 {name} ! fakesink"
        source.close()


def test_a_live_pipeline_is_told_to_end_so_that_its_reader_goes_on(monkeypatch):
    program = Program(monkeypatch, padded_frames(1, 4, 2), LOGGED.format(w=4, h=2, f="25/1"))
    with module.running("videotestsrc", None, live=True) as connection:
        (got,) = connection.grabbed()
        assert (got.created_ns, got.time_s, connection.image(got.picture).sides) == (77, 0.0, None)
        connection.stop()
        assert program.did[-1] == "terminate"
    assert "leaky=downstream" in program.asked[0][0]
