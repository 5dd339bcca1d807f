"""Decode a video into snippets, scaled, a few at a time: no video is ever in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import EdgescopeError, ModelError
from edgescope.foreign import folders
from edgescope.frames import opened
from edgescope.wings.anomaly.preparation import Frames, Preparation

PICTURES = (".jpg", ".jpeg", ".png")


@dataclass
class Read:
    """What was met in a video."""

    frames: int = 0
    repeated: int = 0
    """Copies of the last frame that fill up the last snippet."""
    fps: float | None = None
    """Frames per second of the film; None for pictures, or a file that does not say."""
    damaged: int = 0
    """Frames or packets that were left out."""


def snippets(
    path: Path, preparation: Preparation, read: Read, *, most: int = 8, damaged: str = "stop"
) -> Iterator[Frames]:
    """Yield (k, snippet, height, width, 3) of up to `most` snippets, in order; `read` says what was met.

    `path` is a video file or a folder of pictures. ModelError if it holds no frame, or at damage; with
    damaged="skip", damaged frames are left out and counted.
    """
    held: list[NDArray[np.uint8]] = []
    for frame in _frames(path, preparation.frame_size, read, damaged):
        held.append(frame)
        read.frames += 1
        if len(held) == most * preparation.snippet:
            yield preparation.snippets(np.stack(held))
            held = []
    if not read.frames:
        raise ModelError("E-ANOMALY-11", f"{path.name} holds no frame", effect="It is left out")
    if held:
        read.repeated = -len(held) % preparation.snippet
        yield preparation.snippets(np.stack(held))


def _frames(path: Path, size: tuple[int, int], read: Read, damaged: str) -> Iterator[NDArray[np.uint8]]:
    if path.is_dir():
        yield from _pictures(path, size)
        return
    source = opened(f"file:{path}", size=size, damaged=damaged)
    try:
        while (frame := source.read()) is not None:
            yield frame.pixels
        read.fps = float(source.facts().get("fps") or 0) or None
        read.damaged = int(source.facts().get("damaged") or 0)
    finally:
        source.close()


def _pictures(folder: Path, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    from PIL import Image, UnidentifiedImageError

    for path in folders.inside(folder, PICTURES):
        try:
            with Image.open(path) as image:
                picture = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
        except (OSError, UnidentifiedImageError) as error:
            raise ModelError(
                "E-ANOMALY-11",
                f"the picture {path.name} of {folder.name} cannot be read",
                evidence=str(error),
            ) from error
        yield np.asarray(picture)


def reason(error: EdgescopeError) -> str:
    """Return why a video was left out, in one line."""
    return str(error).partition(" Try:")[0]
