"""From a video to a feature network's input: decode, scale, cut into snippets, crop, normalise.

A snippet is 16 consecutive frames. The last one of a video is filled up with its last frame, so a video of n frames has
ceil(n / 16) snippets and no frame is dropped. Ten crops are the four corners and the centre, and their mirror images.
A few snippets are decoded at a time: no video is ever in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import foreign
from edgescope.errors import EdgescopeError, ModelError, UsageError
from edgescope.frames import opened
from edgescope.models import zoo

Frames = NDArray[np.uint8]
"""(n, height, width, 3), RGB."""
NORMALISATIONS = {
    "weights": None,
    "rtfm": (0.5, 0.5),
}
"""What a pixel is normalised with: what the network's weights were trained with, or mean and deviation of the public
extractor of RTFM's features, which differ (x / 127.5 - 1 and not (x - 114.75) / 57.375)."""


@dataclass(frozen=True)
class Preparation:
    """How frames become the input of a feature network."""

    network: str
    """The feature network's name in the zoo."""
    snippet: int
    """Frames in a snippet."""
    crops: int
    """1 (the centre) or 10."""
    frame_size: tuple[int, int]
    """Width and height that a frame is scaled to."""
    side: tuple[int, int]
    """Height and width of a crop."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    width: int
    """Number of features of a snippet."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Preparation:
        """Return what a manifest or a detector's file holds."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        return cls(**fields)

    def differs(self, other: Preparation) -> str:
        """Return what another preparation does otherwise, '' if nothing; a network's own weights are not compared."""
        mine, theirs = ({**asdict(each), "network": each.network.partition("@")[0]} for each in (self, other))
        return ", ".join(
            f"{name} {theirs[name]}, not {mine[name]}" for name in mine if mine[name] != theirs[name]
        )

    @property
    def normalisation(self) -> str:
        """Return the name of its mean and deviation, '' if they have none."""
        for name in NORMALISATIONS:
            usual = preparation(self.network, normalisation=name)
            if (tuple(self.mean), tuple(self.std)) == (usual.mean, usual.std):
                return name
        return ""

    def count(self, frames: int) -> int:
        """Return the number of snippets of a video of so many frames."""
        return -(-frames // self.snippet)

    def scaled(self, frames: Frames) -> Frames:
        """Return frames in `frame_size`, the same array if they are of that size."""
        width, height = self.frame_size
        if frames.shape[1:3] == (height, width):
            return frames
        from PIL import Image

        size, filter_ = (width, height), Image.Resampling.BILINEAR
        return np.stack([np.asarray(Image.fromarray(frame).resize(size, filter_)) for frame in frames])

    def snippets(self, frames: Frames) -> Frames:
        """Return (ceil(n / snippet), snippet, height, width, 3); the last frame is repeated in the last snippet."""
        rows = np.minimum(np.arange(self.count(len(frames)) * self.snippet), len(frames) - 1)
        return frames[rows].reshape(-1, self.snippet, *frames.shape[1:])

    def inputs(self, snippets: Frames) -> NDArray[np.float32]:
        """Return the network's input (n x crops, 3, snippet, side, side) of scaled snippets; crops vary fastest."""
        scale, shift = self._factors()
        channels = snippets.transpose(0, 4, 1, 2, 3)
        high, wide = self.side
        out = np.empty((len(snippets), self.crops, 3, self.snippet, high, wide), dtype=np.float32)
        for crop, (top, left, mirrored) in enumerate(self._places()):
            part = channels[..., top : top + high, left : left + wide]
            np.multiply(part[..., ::-1] if mirrored else part, scale, out=out[:, crop])
        out += shift
        return out.reshape(-1, *out.shape[2:])

    def _factors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        mean, std = (np.asarray(x)[:, None, None, None] for x in (self.mean, self.std))
        return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)

    def _places(self) -> Sequence[tuple[int, int, bool]]:
        (width, height), (high, wide) = self.frame_size, self.side
        below, right = height - high, width - wide
        centre = (below // 2, right // 2)
        if self.crops == 1:
            return [(*centre, False)]
        five = [(0, 0), (0, right), (below, 0), (below, right), centre]
        return [(top, left, mirrored) for mirrored in (False, True) for top, left in five]


def preparation(name: str, *, crops: int = 1, normalisation: str = "weights") -> Preparation:
    """Return how frames are prepared for a feature network of the zoo; UsageError if `name` is none."""
    entry = zoo.table().get(name.partition("@")[0], {})
    if entry.get("task") != "features":
        known = [known for known, other in zoo.table().items() if other.get("task") == "features"]
        raise UsageError(
            "E-ANOMALY-1",
            f"{name} is no feature network",
            evidence=f"those are {', '.join(known)}",
            fix=f"--features {known[0]}",
        )
    if crops not in (1, 10):
        raise UsageError("E-ANOMALY-2", f"--crops must be 1 or 10, not {crops}", fix="--crops 1")
    if normalisation not in NORMALISATIONS:
        raise UsageError(
            "E-ANOMALY-2",
            f"--normalisation must be one of {', '.join(NORMALISATIONS)}, not {normalisation!r}",
            fix="--normalisation weights",
        )
    given = NORMALISATIONS[normalisation]
    mean, std = (entry["mean"], entry["std"]) if given is None else ([given[0]] * 3, [given[1]] * 3)
    _, snippet, high, wide = entry["input"]
    width, height = entry["frame_size"]
    return Preparation(
        network=name,
        snippet=snippet,
        crops=crops,
        frame_size=(width, height),
        side=(high, wide),
        mean=tuple(mean),
        std=tuple(std),
        width=entry["feature_width"],
    )


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


def decoded(
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

    for path in foreign.inside(folder, PICTURES):
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
