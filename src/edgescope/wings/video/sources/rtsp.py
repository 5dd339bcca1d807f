"""A network camera (RTSP over TCP), through FFmpeg (PyAV): its newest frame, from when it was decoded."""

from __future__ import annotations

import functools

from edgescope.clock import Clock
from edgescope.wings.video.sources.live import STALL_S, Live
from edgescope.wings.video.sources.rgb import Size
from edgescope.wings.video.sources.stream import ERRORS, connected

OPTIONS = {"rtsp_transport": "tcp", "fflags": "nobuffer", "flags": "low_delay"}


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
    connect = functools.partial(connected, url, size, options=OPTIONS, whole=whole)
    return Live(url, connect, errors=ERRORS, stall_s=stall_s, clock=clock, fix=f"ffprobe {url}")
