"""Read a folder of labelled videos in UCF50's layout, ROOT/CLASS/v_Class_g01_c01.avi, and cut clips from them.

UCF50 (Reddy and Shah, Machine Vision and Applications 2013) cuts several videos from one recording: the same
people in the same place. They share a group, the g01 of the name, and must not be on both sides of the split, or
the network would score for having seen the place before. So the split is by group, the same groups in every class,
and does not depend on any seed. A file with another form of name is its own group.

A clip is 16 frames, every second one of the video (1.3 s at 25 frames/s). Decoded frames are kept small, as
uint8, in the cache.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import Message, ModelError
from edgescope.foreign import folders
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
    there = {p.name: p for p in folders.folders(folder)} if folder.is_dir() else {}
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
    found = {name: folders.inside(there[name], SUFFIXES) for name in chosen}
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
        decode = need(
            "edgescope.wings.training.clip_classifier.reader:decode",
            "reading videos",
            "pip install 'edgescope[video]'",
        )
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
