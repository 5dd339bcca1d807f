"""A camera of this machine (V4L2), through FFmpeg (PyAV): its newest frame, with the driver's time stamp.

The time stamps are those of the driver where it keeps the monotonic clock, as almost all do; else a frame
counts from when it was decoded.
"""

from __future__ import annotations

import functools
from pathlib import Path

from edgescope.clock import Clock
from edgescope.errors import DeviceError, UsageError
from edgescope.wings.video.sources.live import STALL_S, Live
from edgescope.wings.video.sources.rgb import Size
from edgescope.wings.video.sources.stream import ERRORS, connected

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
