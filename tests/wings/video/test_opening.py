"""The name of a source chooses its kind."""

import pytest

from edgescope.errors import UnavailableError, UsageError
from edgescope.registry import SOURCES
from films import film

pytest.importorskip("av")
from edgescope.frames import Source, kind_of, opened
from edgescope.wings.video.sources.file import File
from edgescope.wings.video.sources.simulated import Paced, Synthetic


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("rtsp://host:554/a", "rtsp", "//host:554/a"),
        ("rtsps://host/a", "rtsp", "rtsps://host/a"),
        ("/dev/video0", "camera", "/dev/video0"),
        ("camera:0", "camera", "0"),
        ("synthetic:640x480@30", "synthetic", "640x480@30"),
        ("nvdec:a.mp4", "nvdec", "a.mp4"),
        ("gstreamer:videotestsrc ! x264enc", "gstreamer", "videotestsrc ! x264enc"),
        ("file:a.mp4", "file", "a.mp4"),
        ("paced:a.mp4@5", "paced", "a.mp4@5"),
    ],
)
def test_a_name_chooses_a_kind(name, kind, text):
    assert kind_of(name) == (kind, text) and kind in SOURCES


@pytest.mark.codec
def test_a_plain_file_is_a_file_even_if_its_name_holds_a_colon(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    film(tmp_path / "camera:0.mp4", 2, form="mp4")
    assert kind_of("camera:0.mp4") == ("file", "camera:0.mp4")
    source = opened("camera:0.mp4", loop=True, size=(8, 8), threads="NONE")
    assert isinstance(source, File) and isinstance(source, Source) and source.loop


@pytest.mark.parametrize(
    ("name", "fix"),
    [("rstp://host/a", "rtsp"), ("synthetc:640x480", "synthetic"), ("gsteamer:a", "gstreamer")],
)
def test_a_mistyped_kind_is_told_the_closest(name, fix):
    with pytest.raises(UsageError, match=rf"E-NAME-1: .*Try: {fix}$"):
        opened(name)


def test_a_file_that_is_missing_is_told():
    with pytest.raises(UsageError, match=r"E-VIDEO-3: .* 'nowhere\.mp4'"):
        opened("nowhere.mp4")


def test_an_option_of_another_kind_is_refused():
    with pytest.raises(UsageError, match=r"E-VIDEO-5: .* synthetic .* 'threads'"):
        opened("synthetic:8x8", threads="AUTO")
    assert isinstance(opened("synthetic:8x8", loop=True, frames=3, size=None), Synthetic)
    assert isinstance(opened("synthetic:8x8@5", loop=True, frames=3), Paced)


def test_a_missing_package_is_told_with_its_command(monkeypatch):
    import importlib

    def missing(name):
        raise ImportError("No module named 'av'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UnavailableError, match=r"Try: pip install 'edgescope\[video\]'"):
        opened("rtsp://host/a")
