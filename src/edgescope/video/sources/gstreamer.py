"""A GStreamer pipeline, run by gst-launch-1.0: its frames come through a pipe as YUV4MPEG, which PyAV reads.

A program of its own needs no binding of GStreamer in this Python, and a plug-in that crashes does not end the
measurement. `pipeline` writes the text of a pipeline; NVIDIA's decoder and scaler are chosen on a Jetson, the
best that is installed elsewhere.
"""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import av

from edgescope.clock import Clock
from edgescope.errors import ModelError, UnavailableError
from edgescope.records import Json
from edgescope.video.frame import Frame, Source
from edgescope.video.sources.live import STALL_S, Connection, Grabbed, Live
from edgescope.video.sources.rgb import Rgb, Size

PROGRAM = "gst-launch-1.0"
INSTALL = "sudo apt install gstreamer1.0-tools gstreamer1.0-plugins-good gstreamer1.0-libav"
JETSON = Path("/etc/nv_tegra_release")
APPSINK = "appsink max-buffers=1 drop={drop} sync=false"
"""The end of a pipeline for a program with a binding, such as cv2.VideoCapture(text, cv2.CAP_GSTREAMER)."""
ERRORS = (av.error.FFmpegError, OSError, IndexError, ModelError)
END_S = 2.0
"""How long gst-launch-1.0 may take to end after its pipe was closed."""


def pipeline(
    name: str,
    *,
    jetson: bool,
    live: bool,
    size: Size | None = None,
    layout: str = "RGB",
    sink: str = "",
) -> str:
    """Return the text of a pipeline that ends in raw frames of `layout` (RGB, I420 ...) and `sink`.

    `name` is a file, an rtsp:// address, a /dev/video device, or the text of a pipeline that ends in raw
    video. A live pipeline has a queue of one frame that drops the older one. The sink is an appsink if none
    is given.
    """
    caps = f"video/x-raw,format={layout}" + (f",width={size[0]},height={size[1]}" if size else "")
    convert = "videoconvert ! videoscale" if size else "videoconvert"
    if jetson:  # nvvidconv copies out of NVMM and scales in hardware; it has no RGB, which videoconvert makes
        hardware = "video/x-raw,format=I420" if layout == "I420" else "video/x-raw,format=BGRx"
        scaled = hardware + (f",width={size[0]},height={size[1]}" if size else "")
        convert = f"nvvidconv ! {scaled}" + ("" if layout == "I420" else " ! videoconvert")
    leaky = "queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0" if live else ""
    end = sink or APPSINK.format(drop=str(live).lower())
    return " ! ".join(part for part in (_begin(name, jetson), leaky, convert, caps, end) if part)


def _begin(name: str, jetson: bool) -> str:
    """Return the elements from a file or an address to raw video; a pipeline's own text stays as it is."""
    decoder = "parsebin ! nvv4l2decoder" if jetson else "decodebin"
    if name.startswith(("rtsp:", "rtsps:")):
        return f"rtspsrc location={shlex.quote(name)} protocols=tcp latency=100 ! {decoder}"
    if name.startswith("/dev/"):
        return f"v4l2src device={name}"
    if Path(name).is_file():
        return f"filesrc location={shlex.quote(name)} ! {decoder}"
    return name


def is_live(name: str) -> bool:
    """Return whether a pipeline's beginning is a camera or a stream, or says is-live=true."""
    return name.startswith(("rtsp:", "rtsps:", "/dev/", "v4l2src", "nvarguscamerasrc", "rtspsrc")) or (
        "is-live=true" in name
    )


class Gstreamer:
    """The frames of a pipeline that is not live, each once."""

    live = False

    def __init__(self, name: str, *, loop: bool = False, size: Size | None = None) -> None:
        self.name, self.loop, self._size = name, loop, size
        self._frames = self._passes = 0
        self._about: Mapping[str, Json] = {}
        self._reader = self._all()
        self._next: Frame | None = next(self._reader, None)  # what cannot run says so here

    def read(self) -> Frame | None:
        """Return the next frame, or None after the last one; ModelError E-VIDEO-1 if the pipeline fails."""
        frame, self._next = self._next, None
        return frame if frame is not None else next(self._reader, None)

    def facts(self) -> Mapping[str, Json]:
        """Return what the pipeline gives, and how many frames it gave."""
        return {"name": self.name, **self._about, "frames": self._frames, "passes": self._passes}

    def close(self) -> None:
        """End the pipeline."""
        self._next = None
        self._reader.close()

    def _all(self) -> Any:
        while True:
            with running(self.name, self._size, live=False) as connection:
                self._about = connection.about
                for got in connection.grabbed():
                    image, sides = connection.image(got.picture)
                    self._frames += 1
                    yield Frame(image, self._frames - 1, sides=sides, time_s=got.time_s)
            self._passes += 1
            if not self.loop:
                return


class Pipe(Connection):
    """The frames that a running gst-launch-1.0 writes."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], frames: int, log: IO[bytes]) -> None:
        """Read from the file descriptor `frames`; `log` is what the program writes to stderr."""
        self.name, self._process, self._log, self._rgb = name, process, log, Rgb()
        try:
            self._container = av.open(f"pipe:{frames}", format="yuv4mpegpipe")
            video = self._container.streams.video[0]
        except (av.error.FFmpegError, IndexError) as error:
            raise self._failed() from error
        self.about = {
            "codec": "gstreamer",
            "width": video.codec_context.width,
            "height": video.codec_context.height,
            "fps": float(video.average_rate) if video.average_rate else None,
        }

    def grabbed(self) -> Iterator[Grabbed]:
        """Yield the frames until the pipeline ends; ModelError E-VIDEO-1 if it ends with an error."""
        for picture in self._container.decode(video=0):
            yield Grabbed(picture, time.monotonic_ns(), picture.time)
        if self._process.wait(END_S):
            raise self._failed()

    def image(self, picture: Any) -> tuple[Any, Size | None]:
        """Return the frame in RGB, in the size that the pipeline gave it."""
        return self._rgb(picture), None

    def stop(self) -> None:
        """End the program, so that a reader that waits for its pipe goes on."""
        self._process.terminate()

    def _failed(self) -> ModelError:
        self._process.kill()
        self._process.wait()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        lines = [
            line for line in text.splitlines() if "ERROR" in line or "WARNING" in line
        ] or text.splitlines()
        return ModelError(
            "E-VIDEO-1",
            "the GStreamer pipeline gives no frames, or no more",
            evidence=lines[0].strip() if lines else f"it ended with {self._process.returncode}",
            effect="The pipeline has no more frames",
            fix=f"{PROGRAM} {self.name} ! fakesink",
        )


@contextmanager
def running(name: str, size: Size | None, *, live: bool) -> Iterator[Pipe]:
    """Run a pipeline and hold its pipe open; UnavailableError E-VIDEO-6 if GStreamer is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise UnavailableError(
            "E-VIDEO-6", "GStreamer cannot run here", evidence=f"no {PROGRAM}", fix=INSTALL
        )
    sink = "y4menc ! fdsink fd=1 sync=false"
    text = pipeline(name, jetson=JETSON.exists(), live=live, size=size, layout="I420", sink=sink)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, "-q", *shlex.split(text)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
        assert process.stdout is not None
        with process.stdout as frames:
            try:
                yield Pipe(name, process, frames.fileno(), log)
            finally:
                _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End a program, by force if it does not answer."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def gstreamer(
    name: str,
    *,
    loop: bool = False,
    size: Size | None = None,
    stall_s: float = STALL_S,
    clock: Clock | None = None,
) -> Source:
    """Return what `name` gives: a file, an rtsp:// address, a /dev/video device or the text of a pipeline."""
    if not is_live(name):
        return Gstreamer(name, loop=loop, size=size)
    connect = functools.partial(running, name, size, live=True)
    return Live(
        name, connect, errors=ERRORS, stall_s=stall_s, clock=clock, fix=f"{PROGRAM} {name} ! fakesink"
    )
