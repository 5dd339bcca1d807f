"""A GStreamer pipeline, run by gst-launch-1.0: its frames come through a pipe as raw RGB.

A program of its own needs no binding of GStreamer in this Python, and a plug-in that crashes does not end the
measurement. `pipeline` writes the text of a pipeline; NVIDIA's decoder and scaler are chosen on a Jetson, the
best that is installed elsewhere. The size of the frames is what the program logs of its sink, once: a pipeline
whose size changes needs `size`.
"""

from __future__ import annotations

import functools
import io
import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgescope.clock import Clock
from edgescope.errors import ModelError, UnavailableError
from edgescope.frames import Frame, Source
from edgescope.records import Json
from edgescope.wings.video.sources.live import STALL_S, Connection, Grabbed, Live, Shown

PROGRAM = "gst-launch-1.0"
INSTALL = "sudo apt install gstreamer1.0-tools gstreamer1.0-plugins-good gstreamer1.0-libav"
JETSON = Path("/etc/nv_tegra_release")
APPSINK = "appsink max-buffers=1 drop={drop} sync=false"
"""The end of a pipeline for a program with a binding, such as cv2.VideoCapture(text, cv2.CAP_GSTREAMER)."""
END_S = 2.0
"""How long gst-launch-1.0 may take to end, and to log the size of a frame that it has written."""
CAPS = re.compile(rb"GstFdSink:frames.GstPad:sink: caps = video/x-raw,.*")


def pipeline(
    name: str, *, jetson: bool, live: bool, size: tuple[int, int] | None = None, sink: str = ""
) -> str:
    """Return the text of a pipeline that ends in raw RGB frames and `sink`, an appsink if none is given.

    `name` is a file, an rtsp:// address, a /dev/video device, or the text of a pipeline that ends in raw
    video. A live pipeline has a queue of one frame that drops the older one.
    """
    scaled = f",width={size[0]},height={size[1]}" if size else ""
    convert = "videoconvert ! videoscale" if size else "videoconvert"
    if jetson:  # nvvidconv copies out of NVMM and scales in hardware; it has no RGB, which videoconvert makes
        convert = f"nvvidconv ! video/x-raw,format=BGRx{scaled} ! videoconvert"
    leaky = "queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0" if live else ""
    end = sink or APPSINK.format(drop=str(live).lower())
    caps = f"video/x-raw,format=RGB{scaled}"
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

    def __init__(self, name: str, *, loop: bool = False, size: tuple[int, int] | None = None) -> None:
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
                    image = connection.image(got.picture).image
                    self._frames += 1
                    yield Frame(image, self._frames - 1, time_s=got.time_s)
            self._passes += 1
            if not self.loop:
                return


class Pipe(Connection):
    """The frames that a running gst-launch-1.0 writes to the pipe `frames`; `log` is what it prints."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], frames: io.FileIO, log: IO[bytes]
    ) -> None:
        self.name, self._process, self._frames, self._log = name, process, frames, log
        self._ahead = self._frames.read(1)  # waits for the first frame, or the end
        caps = self._caps() if self._ahead else ""
        if not caps:
            raise self._failed()
        self._width, self._height = (_number(key, caps) for key in ("width", "height"))
        rate = re.search(r"framerate=\(fraction\)(\d+)/(\d+)", caps)
        fps = int(rate[1]) / int(rate[2]) if rate and int(rate[1]) else None
        self._step_s = 1 / fps if fps else math.nan
        self.about = {"codec": "gstreamer", "width": self._width, "height": self._height, "fps": fps}

    def grabbed(self) -> Iterator[Grabbed]:
        """Yield the frames until the pipeline ends; ModelError E-VIDEO-1 if it ends with an error."""
        count = 0
        while (frame := self._read()) is not None:
            yield Grabbed(frame, time.monotonic_ns(), count * self._step_s)
            count += 1
        if self._process.wait(END_S):
            raise self._failed()

    def image(self, picture: Any) -> Shown:
        """Return the frame in RGB, in the size that the pipeline gave it."""
        rows = picture.reshape(self._height, -1)[:, : 3 * self._width]
        return Shown(np.ascontiguousarray(rows).reshape(self._height, self._width, 3), None)

    def stop(self) -> None:
        """End the program, so that a reader that waits for its pipe goes on."""
        self._process.terminate()

    def _read(self) -> Any:
        """Return the bytes of the next frame, its rows padded to four bytes; None at the end."""
        frame = np.empty(self._height * (-(-3 * self._width // 4) * 4), np.uint8)
        view, got = frame.data, len(self._ahead)
        view[:got], self._ahead = self._ahead, b""
        while got < len(view):
            if not (more := self._frames.readinto(view[got:])):
                return None
            got += more
        return frame

    def _caps(self) -> str:
        """Return what the program logged of its sink, which may come a moment after the first frame."""
        until = time.monotonic() + END_S
        while time.monotonic() < until:
            if found := CAPS.search(self._printed()):
                return found[0].decode()
            time.sleep(0.002)
        return ""

    def _printed(self) -> bytes:
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0)

    def _failed(self) -> ModelError:
        self._process.kill()
        self._process.wait()
        lines = self._printed().decode(errors="replace").splitlines()
        blamed = [line for line in lines if "ERROR" in line or "WARNING" in line] or lines[-1:]
        return ModelError(
            "E-VIDEO-1",
            "the GStreamer pipeline gives no frames, or no more",
            evidence=blamed[0].strip() if blamed else f"it ended with {self._process.returncode}",
            effect="The pipeline has no more frames",
            fix=f"{PROGRAM} {self.name} ! fakesink",
        )


def _number(key: str, caps: str) -> int:
    found = re.search(rf"{key}=\(int\)(\d+)", caps)
    return int(found[1]) if found else 0


@contextmanager
def running(name: str, size: tuple[int, int] | None, *, live: bool) -> Iterator[Pipe]:
    """Run a pipeline and hold its pipe open; UnavailableError E-VIDEO-6 if GStreamer is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise UnavailableError(
            "E-VIDEO-6", "GStreamer cannot run here", evidence=f"no {PROGRAM}", fix=INSTALL
        )
    read, write = os.pipe()
    sink = f"fdsink name=frames fd={write} sync=false"
    text = pipeline(name, jetson=JETSON.exists(), live=live, size=size, sink=sink)
    command = [program, "-v", *shlex.split(text)]
    with tempfile.TemporaryFile() as log, open(read, "rb", buffering=0) as frames:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(write,)
            )
        finally:
            os.close(write)
        try:
            yield Pipe(name, process, frames, log)
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
    size: tuple[int, int] | None = None,
    stall_s: float = STALL_S,
    clock: Clock | None = None,
) -> Source:
    """Return what `name` gives: a file, an rtsp:// address, a /dev/video device or the text of a pipeline."""
    if not is_live(name):
        return Gstreamer(name, loop=loop, size=size)
    connect = functools.partial(running, name, size, live=True)
    return Live(
        name,
        connect,
        errors=(OSError, ModelError),
        stall_s=stall_s,
        clock=clock,
        fix=f"{PROGRAM} {name} ! fakesink",
    )
