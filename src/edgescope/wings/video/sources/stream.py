"""What a camera and a network stream share: a connection that FFmpeg (PyAV) reads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import av

from edgescope.wings.video.sources.live import Connection, Grabbed, Shown
from edgescope.wings.video.sources.rgb import Rgb, Size

ERRORS = (av.error.FFmpegError, OSError, IndexError)
CONNECT_S, READ_S = 5.0, 5.0
"""How long FFmpeg waits for a connection, and for the next packet."""
FRESH_NS = 10_000_000_000
"""A time stamp this old or in the future is not one of the monotonic clock."""


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
