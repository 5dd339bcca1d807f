"""A set of videos with its labels, as a list file: videos.csv in the folder of the set.

    video,split,category,intervals,frames
    train/clip_007.mp4,train,normal,,96
    test/clip_031.mp4,test,freeze,32-64;80-90,96

split is train, validation or test; category is normal or the kind of anomaly. intervals are frames [start, end) that
are anomalous; empty in an anomalous row means that only the label of the whole video is known. frames, if given, is
checked against what is decoded. Training reads the category alone (weak labels), evaluation the intervals.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope import cache, foreign
from edgescope.errors import ModelError

LIST = "videos.csv"
SPLITS = ("train", "validation", "test")
NORMAL = "normal"
SUFFIXES = (".mp4", ".avi", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".ts")
COLUMNS = ("video", "split", "category", "intervals", "frames")
Span = tuple[int, int]


@dataclass(frozen=True)
class Video:
    """One video of a set."""

    name: str
    """Its path within the set, without the ending."""
    path: Path
    """A video file, or a folder of pictures."""
    split: str
    category: str
    intervals: tuple[Span, ...] | None = ()
    """Anomalous frames [start, end); None: only the label of the whole is known."""
    frames: int | None = None
    """The number of frames that the labels state, or None."""

    @property
    def anomalous(self) -> bool:
        """Return whether it holds an anomaly."""
        return self.category != NORMAL


def read(root: Path) -> list[Video]:
    """Return the videos of ROOT/videos.csv; ModelError names a row that cannot be used."""
    path = root / LIST
    try:
        rows = list(csv.DictReader(foreign.read(path).splitlines()))
    except (OSError, csv.Error) as error:
        raise wrong(path, 0, str(error)) from error
    found = []
    for number, row in enumerate(rows, start=2):
        if not row.get("video") or not row.get("split") or not row.get("category"):
            raise wrong(path, number, f"its columns are {', '.join(COLUMNS)}")
        found.append(_video(root, path, number, row))
    return checked(path, found)


def _video(root: Path, path: Path, number: int, row: dict[str, str]) -> Video:
    if row["split"] not in SPLITS:
        raise wrong(path, number, f"split is {row['split']!r} and must be one of {', '.join(SPLITS)}")
    file, stated = root / row["video"], (row.get("frames") or "").strip()
    if stated and not stated.isdigit():
        raise wrong(path, number, f"frames is {stated!r}")
    intervals = spans(row.get("intervals") or "", path, number)
    category = row["category"]
    if category == NORMAL and intervals:
        raise wrong(path, number, "a normal video has anomalous frames")
    return Video(
        name=str(Path(row["video"]).with_suffix("")) if file.suffix.lower() in SUFFIXES else row["video"],
        path=file,
        split=row["split"],
        category=category,
        intervals=intervals if intervals or category == NORMAL else None,
        frames=int(stated) if stated else None,
    )


def spans(words: str, path: Path, number: int) -> tuple[Span, ...]:
    """Return the intervals of `32-64;80-90`; ModelError names the row if they are none."""
    found = []
    for part in filter(None, (piece.strip() for piece in words.split(";"))):
        start, dash, end = part.partition("-")
        if not (dash and start.strip().isdigit() and end.strip().isdigit() and int(start) < int(end)):
            raise wrong(path, number, f"{part!r} is no interval START-END")
        found.append((int(start), int(end)))
    return tuple(found)


def write(root: Path, videos: Iterable[Video]) -> Path:
    """Write ROOT/videos.csv, completely or not at all; return its path."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for video in videos:
        intervals = ";".join(f"{start}-{end}" for start, end in video.intervals or ())
        place = video.path.relative_to(root).as_posix()
        rows.writerow([place, video.split, video.category, intervals, video.frames or ""])
    with cache.writing(root / LIST) as temporary:
        temporary.write_text(out.getvalue(), encoding="utf-8")
    return root / LIST


def checked(path: Path, videos: Sequence[Video]) -> list[Video]:
    """Return the videos; ModelError if there is none, or two have one name."""
    if not videos:
        raise wrong(path, 0, "it names no video")
    seen: set[str] = set()
    for video in videos:
        if video.name in seen:
            raise wrong(path, 0, f"{video.name} stands there twice")
        seen.add(video.name)
    return list(videos)


def by_hash(names: Sequence[str], shares: Sequence[float] = (0.6, 0.2, 0.2)) -> dict[str, str]:
    """Return a split for each name, in these shares, in the order of the names' hashes; no seed is involved."""
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    first, second = round(shares[0] * len(ordered)), round((shares[0] + shares[1]) * len(ordered))
    return {
        name: SPLITS[0] if place < first else SPLITS[1] if place < second else SPLITS[2]
        for place, name in enumerate(ordered)
    }


def wrong(path: Path, number: int, what: str) -> ModelError:
    """Return the error for a label file that cannot be used."""
    row = f", row {number}" if number else ""
    return ModelError(
        "E-ANOMALY-8",
        f"the labels in {path}{row} cannot be used",
        evidence=what,
        effect="Nothing was read",
        fix="mend the file; `edgescope docs anomaly` shows its form",
    )
