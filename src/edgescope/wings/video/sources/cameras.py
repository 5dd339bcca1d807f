"""A camera of this machine (V4L2) or of the network (RTSP over TCP), through FFmpeg (PyAV): its newest frame.

Frames count from the time stamps of a camera's driver where it keeps the monotonic clock, as almost all do; else, and
those of a stream, from when they were decoded.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av

from edgescope.clock import Clock
from edgescope.errors import DeviceError, UsageError
from edgescope.wings.video.sources.file import Rgb, Size
from edgescope.wings.video.sources.live import STALL_S, Connection, Grabbed, Live, Shown

ERRORS = (av.error.FFmpegError, OSError, IndexError)
CONNECT_S, READ_S = 5.0, 5.0
"""How long FFmpeg waits for a connection, and for the next packet."""
FRESH_NS = 10_000_000_000
"""A time stamp this old or in the future is not one of the monotonic clock."""
RTSP = {"rtsp_transport": "tcp", "fflags": "nobuffer", "flags": "low_delay"}
FIX = "a name that is in /dev, and add the user to the group video"


def camera(
    name: str,
    *,
    size: Size | None = None,
    whole: bool = False,
    capture: str = "",
    fps: float = 0.0,
    input_format: str = "",
    stall_s: float = STALL_S,
    clock: Clock | None = None,
) -> Live:
    """Return the camera `name`: its number, or /dev/videoN.

    `capture` (640x480), `fps` and `input_format` (mjpeg, yuyv422 ...) are what the camera is set to; '' and 0
    leave it as it is. `size` (width, height) is what FFmpeg scales its frames to; with `whole` they are kept as well.
    """
    if not name.startswith("/dev/") and not name.isdigit():
        raise UsageError("E-VIDEO-3", f"{name!r} is no camera", fix="camera:0, or /dev/video0")
    device = name if name.startswith("/dev/") else f"/dev/video{name}"
    if not Path(device).exists():  # a camera that is unplugged later is waited for
        found = ", ".join(sorted(str(path) for path in Path("/dev").glob("video*"))) or "no camera is there"
        raise DeviceError(
            "E-VIDEO-2",
            f"{device} is not there",
            evidence=found,
            effect="The pipeline has no frames",
            fix=FIX,
        )
    chosen = {
        "video_size": capture,
        "framerate": f"{fps:g}" if fps else "",
        "input_format": input_format,
    }
    options = {key: value for key, value in chosen.items() if value}
    connect = functools.partial(
        connected, device, size, format="v4l2", options=options, stamped=True, whole=whole
    )
    return Live(device, connect, errors=ERRORS, stall_s=stall_s, clock=clock, fix=FIX)


def rtsp(
    name: str,
    *,
    size: Size | None = None,
    whole: bool = False,
    stall_s: float = STALL_S,
    clock: Clock | None = None,
) -> Live:
    """Return the stream at `name`: rtsp://[user:password@]host[:port]/path, or //host/path."""
    url = f"rtsp:{name}" if name.startswith("//") else name
    connect = functools.partial(connected, url, size, options=RTSP, whole=whole)
    return Live(url, connect, errors=ERRORS, stall_s=stall_s, clock=clock, fix=f"ffprobe {url}")


class Stream(Connection):
    """An open connection; `stamped` says that its time stamps may be those of the monotonic clock (V4L2)."""

    def __init__(self, container: Any, size: Size | None, *, stamped: bool, whole: bool = False) -> None:
        self._container, self._stamped, self._rgb = container, stamped, Rgb(size, whole=whole)
        video = container.streams.video[0]
        video.thread_type = "SLICE"  # decoding several frames at once would delay each of them
        rate = video.average_rate or video.guessed_rate
        self.about = {
            "codec": video.codec_context.name,
            "width": video.codec_context.width,
            "height": video.codec_context.height,
            "fps": float(rate) if rate else None,
        }

    def grabbed(self) -> Iterator[Grabbed]:
        """Yield the frames with the time when each was taken (V4L2) or decoded; damaged packets are passed over."""
        first = math.nan
        for packet in self._container.demux(video=0):
            for picture in _decoded(packet):
                now, stamp = time.monotonic_ns(), picture.time
                first = stamp if math.isnan(first) and stamp is not None else first
                taken = int(stamp * 1e9) if self._stamped and stamp is not None else now
                created = taken if now - FRESH_NS < taken <= now else now
                yield Grabbed(picture, created, math.nan if stamp is None else stamp - first)

    def image(self, picture: Any) -> Shown:
        """Return the frame upright in RGB."""
        image = self._rgb(picture)
        return Shown(image, self._rgb.sides if self._rgb.size else None, self._rgb.whole(picture))


def _decoded(packet: Any) -> list[Any]:
    try:
        return [picture for picture in packet.decode() if not picture.is_corrupt]
    except av.error.InvalidDataError:  # a lost packet: the next key frame mends it
        return []


@contextmanager
def connected(
    url: str,
    size: Size | None,
    *,
    format: str | None = None,
    options: Mapping[str, str],
    stamped: bool = False,
    whole: bool = False,
) -> Iterator[Stream]:
    """Hold a connection open."""
    with av.open(url, format=format, options=dict(options), timeout=(CONNECT_S, READ_S)) as container:
        yield Stream(container, size, stamped=stamped, whole=whole)
