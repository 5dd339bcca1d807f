"""A folder of labelled videos in UCF50's layout, ROOT/CLASS/v_Class_g01_c01.avi, and the clips that are cut from them.

UCF50 (Reddy and Shah, Machine Vision and Applications 2013) cuts several videos from one recording: the same
people in the same place. They share a group, the g01 of the name, and must not be on both sides of the split, or
the network would score for having seen the place before. So the split is by group, the same groups in every class,
and does not depend on any seed. A file with another form of name is its own group.

A clip is 16 frames, every second one of the video (1.3 s at 25 frames/s). Decoded frames are kept small, as
uint8, in the cache.

A trained classifier is timed, judged and calibrated with these clips:

    gate         up to 400 clips of held-out videos, at many offsets: does a variant agree with fp32?
    labelled     the middle clip of each held-out video: task accuracy, one clip per video because the clips
                 of one video are not independent
    bench        the labelled clips again
    calibration  the middle clip of each training video: ranges for int8

They are kept in the cache, under the digest of the data, so a process that measures decodes nothing and needs the
videos only once.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, foreign
from edgescope.errors import Message, ModelError, UnavailableError
from edgescope.models.base import TRAINED_FRAMES, Purpose, Samples
from edgescope.models.image.photos import fingerprint
from edgescope.records import digest
from edgescope.registry import need

VERSION = 1  # raise this when the decoding or the split changes
FRAMES = 16
EVERY = 2
SIDE = 64
LIMIT = 256
"""Frames kept of one video, from its start: 20 s at 25 frames/s."""
HELD_OUT = 0.2
SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".mpg", ".mpeg", ".webm")
GROUP = re.compile(r"_(g\d+)_c\d+$", re.IGNORECASE)
LAYOUT = "lay the videos out as ROOT/CLASS/video.avi"


@dataclass(frozen=True)
class Video:
    """One readable video: its class, its group, its content."""

    path: Path
    label: int
    group: str
    content: str
    """SHA-256 of the file."""
    frames: int
    """Frames kept of it."""

    @property
    def starts(self) -> range:
        """Return the kept frames at which a clip may begin."""
        return range(max(1, self.frames - FRAMES + 1))

    @property
    def middle(self) -> int:
        """Return the kept frame at which the clip in the middle begins."""
        return self.starts[len(self.starts) // 2]


@dataclass(frozen=True)
class Data:
    """A folder of videos, split: no group is in both `training` and `held_out`."""

    folder: Path
    classes: tuple[str, ...]
    training: tuple[Video, ...]
    held_out: tuple[Video, ...]
    skipped: tuple[str, ...]
    """Files left out, each with the reason."""
    digest: str
    """Hash of the names and contents of all files of these classes."""

    @property
    def warning(self) -> Message | None:
        """Return the warning about the files left out, or '' if there are none."""
        if not self.skipped:
            return None
        total = len(self.training) + len(self.held_out) + len(self.skipped)
        return Message(
            "W-CLIPS-1",
            f"{len(self.skipped)} of {total} videos were left out",
            evidence="; ".join(self.skipped[:3]) + ("; ..." if len(self.skipped) > 3 else ""),
            effect="They are neither trained on nor judged with",
            fix="copy them again, or delete them",
        )


def read(folder: Path, classes: Sequence[str] = ()) -> Data:
    """Return the videos of `classes` (by default all of the folder), decoded once, split by group.

    A video that cannot be read, or that repeats another's content, is left out and listed. ModelError if fewer than
    two classes remain, or a class has no video or only one group.
    """
    files = _files(folder, classes)
    content = {path: cache.content(path) for paths in files.values() for path in paths}
    videos, skipped = _readable(files, content)
    held = _held_out(files)
    _check(videos, held, tuple(files))
    return Data(
        folder=folder,
        classes=tuple(files),
        training=tuple(v for v in videos if v.group not in held),
        held_out=tuple(v for v in videos if v.group in held),
        skipped=skipped,
        digest=digest([VERSION, [[path.parent.name, path.name, sha] for path, sha in content.items()]]),
    )


def _readable(
    files: Mapping[str, Sequence[Path]], content: Mapping[Path, str]
) -> tuple[list[Video], tuple[str, ...]]:
    videos, skipped, seen = [], [], dict[str, Path]()
    for label, (name, paths) in enumerate(files.items()):
        for path in paths:
            first = seen.setdefault(content[path], path)
            try:
                if first is not path:
                    raise ValueError(f"the same file as {first.parent.name}/{first.name}")
                count = _kept(path, content[path])
                videos.append(Video(path, label, _group(path), content[path], count))
            except ValueError as error:
                skipped.append(f"{name}/{path.name}: {error}")
    return videos, tuple(skipped)


def _files(folder: Path, classes: Sequence[str]) -> dict[str, list[Path]]:
    """Return class -> its video files, both in order; ModelError if there are fewer than two classes."""
    there = {p.name: p for p in foreign.folders(folder)} if folder.is_dir() else {}
    unknown = [name for name in classes if name not in there]
    if unknown or not there:
        raise ModelError(
            "E-CLIPS-1",
            f"there is no folder {folder / (unknown[0] if unknown else 'CLASS')}",
            evidence=f"folders there: {', '.join(there) or 'none'}",
            effect="Nothing was trained or judged",
            fix=LAYOUT,
        )
    chosen = sorted(set(classes or there))
    if len(chosen) < 2:
        raise ModelError(
            "E-CLIPS-2",
            f"{folder} gives one class, {chosen[0]}, and a classifier needs at least two",
            fix=f"{LAYOUT}, with two classes or more",
        )
    found = {name: foreign.inside(there[name], SUFFIXES) for name in chosen}
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise ModelError(
            "E-CLIPS-3",
            f"the class {empty[0]} has no video",
            evidence=f"looked in {there[empty[0]]} for {', '.join(SUFFIXES)}",
            fix=f"--classes {shlex.quote(','.join(name for name in chosen if name not in empty))}, or add videos",
        )
    return found


def _group(path: Path) -> str:
    found = GROUP.search(path.stem)
    return found[1].lower() if found else f"{path.parent.name}/{path.name}"


def _held_out(files: Mapping[str, Sequence[Path]]) -> frozenset[str]:
    """Return the groups to hold out: a fifth of all, in the order of their hashes, and at least one of each class.

    Only names decide, so an unreadable file does not move a group to the other side.
    """
    of_class = {name: {_group(path) for path in paths} for name, paths in files.items()}
    groups = sorted(set().union(*of_class.values()), key=lambda name: hashlib.sha256(name.encode()).digest())
    held = set(groups[: math.ceil(HELD_OUT * len(groups))])
    for mine in of_class.values():
        held |= set() if mine & held else {next(g for g in groups if g in mine)}
    return frozenset(held)


def _check(videos: Sequence[Video], held: frozenset[str], classes: Sequence[str]) -> None:
    """Raise ModelError if a class has no readable video on one of the two sides."""
    for label, name in enumerate(classes):
        mine = {v.group for v in videos if v.label == label}
        if not mine - held or not mine & held:
            raise ModelError(
                "E-CLIPS-4",
                f"the videos of {name} cannot be split into training and held-out ones",
                evidence=f"{len(mine)} groups are readable, {len(mine & held)} of them are to be held out",
                effect="An accuracy on training videos, or on their recordings, says nothing",
                fix=f"add videos of other recordings to {name}, or mend those that cannot be read",
            )


def _kept(path: Path, content: str) -> int:
    """Return how many frames of a video are in the cache, decoding it if needed; ValueError if unreadable."""
    target = _frames_file(content)
    if not target.exists():
        need("av:open", "reading videos", "pip install 'edgescope[video]'")
        frames = decode(path, side=SIDE, every=EVERY, limit=LIMIT)
        with cache.writing(target) as temporary:
            np.save(temporary, frames)
    return len(np.load(target, mmap_mode="r"))


def _frames_file(content: str) -> Path:
    return cache.folder("clips") / f"{content[:16]}-{SIDE}-{EVERY}-{VERSION}.npy"


def clip(video: Video, start: int) -> NDArray[np.uint8]:
    """Return the clip that begins at kept frame `start`: uint8 (16, 64, 64, 3).

    A video shorter than a clip is spread over it: frames are repeated, evenly.
    """
    frames = np.load(_frames_file(video.content), mmap_mode="r")
    end = min(start + FRAMES, len(frames)) - 1
    rows = np.linspace(start, end, FRAMES).round().astype(int)
    cut: NDArray[np.uint8] = frames[rows]
    return cut


def prepared(cut: NDArray[np.uint8], entry: Mapping[str, Sequence[float]]) -> NDArray[np.float32]:
    """Return a network's input, float32 (3, 16, 64, 64): (x / 255 - mean) / std, as its zoo entry gives them."""
    mean, std = (np.asarray(entry[key], dtype=np.float32) for key in ("mean", "std"))
    scaled = (cut.astype(np.float32) / 255 - mean) / std
    return np.ascontiguousarray(scaled.transpose(3, 0, 1, 2))


# -- decoding a video -----------------------------------------------------------------------------------------


CROP = 0.875
"""Share of the resized short side that the centre crop keeps."""


def decode(path: Path, *, side: int, every: int, limit: int) -> NDArray[np.uint8]:
    """Return up to `limit` frames, every `every`-th of the video: uint8 RGB (n, side, side, 3).

    The short side is resized (bilinear) and the middle cropped. ValueError with the reason if the file is not a
    video, is damaged in the part that is read, or has fewer than two such frames.
    """
    import av

    frames = []
    try:
        with av.open(str(path)) as container:
            for index, frame in enumerate(container.decode(video=0)):
                if index % every == 0:
                    frames.append(_small(frame, side))
                if len(frames) == limit:
                    break
    except (av.error.FFmpegError, OSError, IndexError, ValueError) as error:
        raise ValueError(_reason(error, path)) from error
    if len(frames) < 2:
        raise ValueError(f"{len(frames)} usable frames")
    return np.stack(frames)


def _small(frame: Any, side: int) -> NDArray[np.uint8]:
    scale = int(side / CROP) / min(frame.width, frame.height)
    width, height = (round(length * scale) for length in (frame.width, frame.height))
    image = frame.reformat(width=width, height=height, format="rgb24", interpolation="BILINEAR").to_ndarray()
    top, left = (height - side) // 2, (width - side) // 2
    cut: NDArray[np.uint8] = image[top : top + side, left : left + side]
    return cut


def _reason(error: BaseException, path: Path) -> str:
    if isinstance(error, IndexError):
        return "no video stream"
    return " ".join(str(error).replace(str(path), path.name).split()) or type(error).__name__


# -- the clips that a classifier is judged with ---------------------------------------------------------------


SAMPLES_VERSION = 2  # raise this when the choice of clips, or their order, changes
WORDS = {
    Purpose.GATE: "held-out clips, at several offsets of a video, shuffled",
    Purpose.LABELLED: "held-out clips, one a video, shuffled",
    Purpose.BENCH: "held-out clips, one a video, shuffled",
    Purpose.CALIBRATION: "clips that were trained on, one a video, shuffled",
}


@dataclass(frozen=True)
class Origin:
    """The data on which a network was trained, as recorded with its weights."""

    folder: Path
    classes: tuple[str, ...]
    digest: str


def samples(origin: Origin, purpose: Purpose, n: int, entry: Mapping[str, Any]) -> Samples:
    """Return the first n clips of this purpose: arrays["input"] float32 (n, 3, 16, 64, 64), labels (n,).

    UnavailableError if they are not cut yet and the videos are gone, ModelError if these are other videos.
    """
    key = digest([SAMPLES_VERSION, purpose.value, origin.digest, entry["mean"], entry["std"]])
    path = cache.folder("samples") / f"clips-{purpose.value}-{key}.npy"
    about = cache.read_json(path.with_suffix(".json"))
    if about is None or not path.exists() or path.stat().st_size != about["bytes"]:
        about = _cut(_data(origin), purpose, entry, path)
    labels = None if purpose is Purpose.GATE else np.asarray(about["labels"][:n], dtype=np.int64)
    return Samples(
        arrays={"input": np.load(path, mmap_mode="r")[:n]},
        digests=tuple(about["digests"][:n]),
        origin=f"{WORDS[purpose]} ({origin.folder.name}: {', '.join(origin.classes)})",
        labels=labels,
        groups=np.asarray(about["videos"][:n], dtype=np.int64) if purpose is Purpose.GATE else None,
    )


def gate_windows(data: Data) -> list[tuple[Video, int]]:
    """Return up to 400 (held-out video, first frame), spread evenly over all clips, shuffled."""
    pairs = [(video, start) for video in data.held_out for start in video.starts]
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), TRAINED_FRAMES)).round().astype(int)
    return [pairs[i] for i in np.random.default_rng(0).permutation(chosen)]


def _data(origin: Origin) -> Data:
    if not origin.folder.is_dir():
        raise UnavailableError(
            "E-CLIPS-5",
            f"the videos that this network was trained on are gone from {origin.folder}",
            effect="Without held-out clips its answers cannot be judged, and an unjudged network is not timed",
            fix='put them back, or name their new place under "data", "folder" in the .json next to the weights',
        )
    data = read(origin.folder, origin.classes)
    if data.digest != origin.digest:
        raise ModelError(
            "E-CLIPS-6",
            f"the videos in {origin.folder} are not those that this network was trained on",
            evidence=f"digest {data.digest}, at training {origin.digest}",
            effect="A video it was trained on could pass for a held-out one",
            fix="put the old videos back, or train again with edgescope train clips",
        )
    return data


def _cut(data: Data, purpose: Purpose, entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    windows = gate_windows(data) if purpose is Purpose.GATE else _middles(data, purpose)
    arrays: list[NDArray[np.float32]] = [prepared(clip(video, start), entry) for video, start in windows]
    with cache.writing(path) as temporary:
        np.save(temporary, np.stack(arrays))
    about = {
        "digests": [fingerprint({"": array}) for array in arrays],
        "labels": [video.label for video, _ in windows],
        "videos": _numbered([str(video.path) for video, _ in windows]),
        "bytes": path.stat().st_size,
    }
    cache.write_json(path.with_suffix(".json"), about)
    return about


def _middles(data: Data, purpose: Purpose) -> Sequence[tuple[Video, int]]:
    videos = data.training if purpose is Purpose.CALIBRATION else data.held_out
    order = np.random.default_rng(0).permutation(len(videos))[:TRAINED_FRAMES]
    return [(videos[i], videos[i].middle) for i in order]


def _numbered(names: Sequence[str]) -> list[int]:
    """Return each name's number, in the order of their first appearance."""
    known = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return [known[name] for name in names]
