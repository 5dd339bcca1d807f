"""Frames of video: what flows through a pipeline, what was found in it, and from the name of a source to the source.

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
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError, closest_name
from edgescope.models.base import Detections, Fit
from edgescope.records import Json
from edgescope.registry import SOURCES, entry, load, need


@dataclass(slots=True)
class Frame:
    """One decoded frame."""

    image: Any
    """(height, width, 3) uint8, RGB, upright: a numpy array on the host, or a CUDA tensor."""
    index: int
    """Its number within its source, from 0; a live source that dropped frames leaves gaps."""
    created_ns: int = -1
    """When it was created, on the monotonic clock: a camera's time stamp; -1 for a frame of a file."""
    camera: int = 0
    """The number of its source, from 0."""
    sides: tuple[int, int] | None = None
    """Its width and height before its source scaled it; None if `image` has the size that it was decoded in."""
    whole: Any = None
    """The frame as it was decoded, where `image` was scaled for a network and somebody wants to see it as well."""
    time_s: float = math.nan
    """Seconds from the first frame of its source, by the source's own time stamps; nan if it has none."""

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """Return the image as an array on the host, copied there if it is not."""
        return _on_host(self.image)

    @property
    def shown(self) -> NDArray[np.uint8]:
        """Return the frame for people to see, on the host: as it was decoded, if that is known."""
        return self.pixels if self.whole is None else _on_host(self.whole)

    @property
    def size(self) -> tuple[int, int]:
        """Return the width and height of the decoded frame, in which detections are given."""
        if self.sides is not None:
            return self.sides
        height, width = self.image.shape[:2]
        return int(width), int(height)


def _on_host(image: Any) -> NDArray[np.uint8]:
    return np.asarray(image if isinstance(image, np.ndarray) else image.cpu().numpy())


@dataclass(slots=True)
class Item:
    """One unit on its way through the stages: some frames and what the stages have made of them."""

    query_id: int
    frames: list[Frame] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    """The input of each network, (batch, ...), on the host or a device; the last row repeats if frames are missing."""
    fits: list[Fit] = field(default_factory=list)
    """How each frame was fitted into the first network's input."""
    outputs: list[Sequence[Any]] = field(default_factory=list)
    """The outputs of each network, each (batch, ...), on the host or a device."""
    found: list[Detections] = field(default_factory=list)
    """What the first network found in each frame; of a classifier, its class with the whole frame as its box."""
    classes: list[tuple[int, ...]] = field(default_factory=list)
    """The class that each classifying network gave each frame."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What a user's own stages leave for later ones."""
    marks: dict[str, int] = field(default_factory=dict)
    """When each stage began and ended with it, on the monotonic clock: NAME_begin, NAME_end."""


PER_FRAME = ("frames", "fits", "found", "classes")
"""The fields of a unit that have one entry for each frame."""


def joined(items: Sequence[Item]) -> Item:
    """Return one unit of the frames of several, in their order, without rows that only fill a batch."""
    whole = Item(items[0].query_id)
    for name in PER_FRAME:
        setattr(whole, name, [one for item in items for one in getattr(item, name)])
    counts = [len(item.frames) for item in items]
    whole.inputs = [_together(parts, counts) for parts in zip(*(i.inputs for i in items), strict=True)]
    whole.outputs = [
        [_together(parts, counts) for parts in zip(*networks, strict=True)]
        for networks in zip(*(i.outputs for i in items), strict=True)
    ]
    for item in items:
        whole.notes.update(item.notes)
    return whole


def parted(whole: Item, items: Sequence[Item]) -> None:
    """Give each unit its share of what a stage made of all of them; each gets what the stage noted."""
    start, before = 0, {key for item in items for key in item.notes}
    for item in items:
        end = start + len(item.frames)
        for name in PER_FRAME:
            setattr(item, name, getattr(whole, name)[start:end])
        item.inputs = [given[start:end] for given in whole.inputs]
        item.outputs = [[output[start:end] for output in outputs] for outputs in whole.outputs]
        item.notes.update({key: note for key, note in whole.notes.items() if key not in before})
        start = end


def _together(arrays: Sequence[Any], counts: Sequence[int]) -> Any:
    rows = [array[:count] for array, count in zip(arrays, counts, strict=True)]
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows)
    return need("torch:cat", "torch", "pip install 'edgescope[torch]'")(rows)


@runtime_checkable
class Source(Protocol):
    """A stream of frames."""

    live: bool
    """Whether the world paces it (a camera): frames that are not taken in time are dropped and counted. A source
    that is not live gives every frame exactly once."""

    def read(self) -> Frame | None:
        """Return the next frame, waiting for it if the source is live; None after the last one.

        Raises ModelError E-VIDEO-1 if a file cannot be decoded any further.
        """

    def facts(self) -> Mapping[str, Json]:
        """Return width, height, fps, codec, and what was met: `dropped`, `damaged`, `reconnects`, `rotation`."""

    def close(self) -> None:
        """Free the decoder or the connection; it may be called twice."""


@runtime_checkable
class ReadsMany(Protocol):
    """A source that gives several frames at once for less than one by one."""

    def read_many(self, n: int) -> list[Frame]:
        """Return the next n frames, or those that are left; none after the last one."""


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
