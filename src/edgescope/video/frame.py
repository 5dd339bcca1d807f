"""What flows through a video pipeline: frames, where they come from, and what was found in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from edgescope.models.base import Detections
from edgescope.records import Json

__all__ = ["Detections", "Frame", "Item", "Source"]


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


@dataclass(slots=True)
class Item:
    """One unit on its way through the stages: some frames and what the stages have made of them."""

    query_id: int
    frames: list[Frame] = field(default_factory=list)
    inputs: Any = None
    """The network's input, (batch, ...), on the host or the device; the last rows repeat if frames are missing."""
    outputs: Any = None
    """The network's outputs, each (batch, ...), on the host or the device."""
    found: list[Detections] = field(default_factory=list)
    """The detections of each frame, once they are known."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What a user's own stages leave for later ones."""


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
