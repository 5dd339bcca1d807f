"""The checks of cameras and decoders: the clip itself, and programs that stand for GStreamer and v4l2-ctl."""

import os
import shutil
from pathlib import Path

import pytest

from edgescope.wings.verify_board.check import Status
from edgescope.wings.verify_board.checks import video
from edgescope.wings.verify_board.site import Here

pytestmark = pytest.mark.process

pytest.importorskip("av", reason="PyAV is not installed")
LAUNCH = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in *nvarguscamerasrc*) {csi};; esac
head -c {bytes} /dev/zero > out.raw
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs on PATH: programs(gst-launch's bytes, whether its elements exist, what a CSI camera does)."""

    def make(size, exists=True, csi="exit 1"):
        folder = tmp_path / "bin"
        folder.mkdir()
        texts = {
            video.LAUNCH: LAUNCH.format(calls=tmp_path / "calls", bytes=size, csi=csi),
            video.INSPECT: f"#!/bin/sh\nexit {int(not exists)}\n",
        }
        for name, text in texts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.chdir(folder)  # what edgescope's own source starts writes where it is started
        return tmp_path / "calls"

    return make


WHOLE = video.FRAMES * video.WIDTH * video.HEIGHT * 4


def test_the_clip_has_its_frames_and_each_shows_where_the_block_is():
    found = video._own("file", str(video.CLIP), video.FRAMES)
    assert found.status is Status.HOLDS and found.evidence["frames"] == video.FRAMES
    assert found.evidence["source"]["codec"] == "h264"
    assert found.evidence["source"]["path"] == "clip.mp4"  # the file to send names no folder


def test_a_decoder_that_shows_something_else_or_gives_fewer_frames_does_not_hold(monkeypatch):
    real = video._shows
    monkeypatch.setattr(video, "_shows", lambda frame: frame.index != 7 and real(frame))
    found = video._own("file", str(video.CLIP), video.FRAMES + 1)
    assert found.status is Status.FAILS
    assert (
        "30 of 31 frames" in found.says and "1 frames show something else, the first of them 7" in found.says
    )


def test_without_gstreamer_or_its_element_there_is_nothing_to_verify(programs, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if shutil.which(video.LAUNCH) is None:
        assert "no gst-launch-1.0" in video.decoder(Here()).says
    programs(WHOLE, exists=False)
    for check in (video.decoder, video.camera_csi):
        found = check(Here())
        assert found.status is Status.UNSUPPORTED and "GStreamer has no nv" in found.says


@pytest.mark.process
def test_the_boards_decoder_is_judged_by_its_frames_and_then_by_edgescopes_own_source(programs, monkeypatch):
    calls = programs(WHOLE)
    found = video.decoder(Here())
    assert (
        found.status is Status.FAILS and "edgescope's source" in found.says
    )  # what stands for it gives no picture
    assert found.evidence["frames"] == video.FRAMES
    assert "filesrc location=clip.mp4 ! qtdemux ! h264parse ! nvv4l2decoder" in calls.read_text()
    monkeypatch.setattr(video, "find_spec", lambda name: None)
    assert video.decoder(Here()).status is Status.HOLDS


@pytest.mark.process
@pytest.mark.parametrize("size", [WHOLE - 1, 0])
def test_frames_that_are_missing_or_cut_do_not_hold(programs, size):
    programs(size)
    found = video.decoder(Here())
    assert found.status is Status.FAILS and "of 30 frames" in found.says


@pytest.mark.process
def test_a_csi_camera_that_is_not_there_is_unsupported_and_one_that_answers_holds(programs):
    calls = programs(
        video.FRAMES * 1280 * 720 * 4, csi="echo no cameras available; [ -e here ] || touch here && exit 1"
    )
    found = video.camera_csi(Here())
    assert found.status is Status.UNSUPPORTED and "no CSI camera answered" in found.says
    launch = calls.parent / "bin" / video.LAUNCH
    launch.write_text(launch.read_text().replace("exit 1", "true"))
    assert video.camera_csi(Here()).status is Status.HOLDS
    assert "video/x-raw(memory:NVMM)" in calls.read_text()


def test_a_machine_without_a_camera_is_unsupported():
    if list(Path("/dev").glob("video*")):
        pytest.skip("this machine has a camera")
    assert video.camera(Here()).status is Status.UNSUPPORTED
