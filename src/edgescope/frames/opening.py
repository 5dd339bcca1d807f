"""From the name of a source to the source.

film.mp4, file:film.mp4     a video file, each frame once
paced:film.mp4[@FPS]        a video file played as a camera, at its own or a given frame rate
/dev/video0, camera:0       a camera of this machine
rtsp://host/path            a network camera
synthetic:640x480[@FPS]     a made-up moving picture, live if a frame rate is given
nvdec:film.mp4              a video file decoded on an NVIDIA GPU
gstreamer:PIPELINE          what a GStreamer pipeline, a file or an rtsp:// address gives
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError, closest_name
from edgescope.frames.frame import Source
from edgescope.registry import SOURCES, entry, load


def opened(name: str, *, loop: bool = False, **options: Any) -> Source:
    """Return the source called `name`, opened; `loop` has a file begin again after its last frame.

    `options` are those of its kind, such as `size`, `threads` and `damaged` of a file; None leaves one out.
    UsageError E-VIDEO-3 if there is no such source, E-VIDEO-5 if its kind does not have an option.
    """
    kind, text = kind_of(name)
    make = load(SOURCES, kind, "source")
    known, free = _options(make)
    options = {option: value for option, value in options.items() if value is not None}
    for option in options:
        if option not in known and not free:
            close = closest_name(option, known)
            raise UsageError("E-VIDEO-5", f"a source of the kind {kind} has no option {option!r}", fix=close)
    if "loop" in known:
        options["loop"] = loop
    found: Source = make(text, **options)
    return found


def takes(name: str, option: str) -> bool:
    """Return whether the source called `name` has an option."""
    known, free = _options(load(SOURCES, kind_of(name)[0], "source"))
    return free or option in known


def _options(make: Any) -> tuple[Mapping[str, Any], bool]:
    """Return the options of a kind of source, and whether it passes on those that it does not know."""
    known = inspect.signature(make).parameters
    return known, any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())


def kind_of(name: str) -> tuple[str, str]:
    """Return the kind of a source and its name without the kind; UsageError E-VIDEO-3 if there is no such source."""
    if name.startswith("/dev/video"):
        return "camera", name
    if Path(name).is_file():
        return "file", name
    scheme, colon, text = name.partition(":")
    if colon and scheme in SOURCES:
        return scheme, text
    if scheme == "rtsps":
        return "rtsp", name
    mistyped = closest_name(scheme, SOURCES) if colon and re.fullmatch(r"\w+", scheme) else ""
    if mistyped:
        entry(SOURCES, scheme, "source")  # E-NAME-1 with the closest name
    raise UsageError(
        "E-VIDEO-3",
        f"there is no video {name!r}",
        evidence="it is neither a file nor a kind of source followed by a colon",
        fix=f"a file that exists, or one of {', '.join(f'{kind}:' for kind in SOURCES)}",
    )
