"""Sets of videos with their labels: our own list file, and how published sets are laid out, one function a layout.

    list             videos.csv in the folder of the set, with the columns below
    folders          ROOT/normal/*.mp4 and ROOT/KIND/*.mp4, below ROOT/train, validation (or val), test or not;
                     labels.csv of video,start,end gives frame labels
    ucf_crime        Anomaly_Train.txt and the temporal annotation, of the authors or with frame counts (UR-DMU)
    uit_vnanomaly    the form of ucf_crime; the set is not public, so this is what its paper suggests and no more
    shanghaitech     SH_Train.txt, SH_Test.txt (the weakly supervised split) and test_frame_mask/*.npy
    xd_violence      labels in file names (_label_A is normal), annotations.txt for the test videos
    msad             anomaly_annotation.csv; train.txt and test.txt if they are there

A set without a validation split lends a fifth of its training videos to it, the same ones every time. The test split is
never touched. A listed video that is not there is left out, and reported.

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
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgescope import cache, foreign
from edgescope.errors import Message, ModelError, UsageError, closest_name

VALIDATION = 0.2


@dataclass(frozen=True)
class VideoSet:
    """The videos of a folder, and those that its lists name and that are not there."""

    root: Path
    layout: str
    videos: tuple[Video, ...]
    missing: tuple[str, ...] = ()
    by: str = ""
    """The label file by which the layout was found, '' if it was asked for or there is none."""

    @property
    def found(self) -> Message | None:
        """Return the note that says which layout was found by which file, None if it was asked for or usual."""
        if not self.by:
            return None
        return Message(
            "W-ANOMALY-3",
            f"{self.root} is read as {self.layout}",
            evidence=f"it holds {self.by}",
            effect="Categories, splits and frame labels are what its label files say",
            fix="--layout folders reads folders of videos and no label file",
        )

    @property
    def warning(self) -> Message | None:
        """Return the warning about missing videos, or None if all are there."""
        if not self.missing:
            return None
        more = ", ..." if len(self.missing) > 3 else ""
        return Message(
            "W-ANOMALY-1",
            f"{len(self.missing)} of {len(self.missing) + len(self.videos)} listed videos are not in {self.root}",
            evidence=", ".join(self.missing[:3]) + more,
            effect="They are left out",
        )


def read(root: Path, layout: str = "") -> VideoSet:
    """Return the videos of a folder; without a layout, that of its label files, else of folders.

    UsageError for an unknown layout, and for label files of two; ModelError for a label file that cannot be used or a
    folder without videos.
    """
    name, by = (layout, "") if layout else _recognised(root)
    if name not in LAYOUTS:
        raise UsageError(
            "E-ANOMALY-9",
            f"no layout is called {name!r}",
            evidence=f"known: {', '.join(LAYOUTS)}",
            fix=f"--layout {closest_name(name, LAYOUTS) or 'folders'}",
        )
    videos = LAYOUTS[name](root)
    there = tuple(video for video in videos if os.path.exists(video.path))
    if not there:
        raise wrong(root, 0, f"the layout {name} found no video")
    missing = tuple(video.name for video in videos if not os.path.exists(video.path))
    return VideoSet(root, name, tuple(_with_validation(there)), missing, by)


def _recognised(root: Path) -> tuple[str, str]:
    """Return the layout of the label files in a folder and the file that shows it, ('folders', '') without any.

    UsageError where there are label files of two layouts.
    """
    if (root / LIST).exists():
        return "list", ""
    paths = {name: [_first(root, pattern) for pattern in patterns] for name, patterns in MARKS.items()}
    found = {name: str(p[0].relative_to(root)) for name, p in paths.items() if p[0] and None not in p}
    if len(found) > 1:
        both = ", ".join(f"{path} of {name}" for name, path in found.items())
        raise UsageError(
            "E-ANOMALY-16",
            f"{root} holds the label files of {len(found)} layouts",
            evidence=both,
            effect="Which videos are normal depends on which of them is meant",
            fix=f"--layout {next(iter(found))}",
        )
    return next(iter(found.items()), ("folders", ""))


def _with_validation(videos: Sequence[Video]) -> Iterator[Video]:
    """Yield the videos; if none is for validation, a fifth of the training videos of each category are."""
    if any(video.split == SPLITS[1] for video in videos):
        yield from videos
        return
    lent: dict[str, str] = {}
    for kind in {video.anomalous for video in videos}:
        names = [v.name for v in videos if v.split == SPLITS[0] and v.anomalous == kind]
        lent |= by_hash(names, (1 - VALIDATION, VALIDATION, 0.0))
    for video in videos:
        yield replace(video, split=lent.get(video.name, video.split))


# -- one function a layout -----------------------------------------------------------------------------------------


# -- our own list file

LIST = "videos.csv"
SPLITS = ("train", "validation", "test")
NORMAL = "normal"
SUFFIXES = (".mp4", ".avi", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".ts")
LISTED = ("video", "split", "category", "intervals", "frames")
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


def read_list(root: Path) -> list[Video]:
    """Return the videos of ROOT/videos.csv; ModelError names a row that cannot be used."""
    path = root / LIST
    try:
        rows = list(csv.DictReader(foreign.read(path).splitlines()))
    except (OSError, csv.Error) as error:
        raise wrong(path, 0, str(error)) from error
    found = []
    for number, row in enumerate(rows, start=2):
        if not row.get("video") or not row.get("split") or not row.get("category"):
            raise wrong(path, number, f"its columns are {', '.join(LISTED)}")
        found.append(_listed_video(root, path, number, row))
    return checked(path, found)


def _listed_video(root: Path, path: Path, number: int, row: dict[str, str]) -> Video:
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


def write_list(root: Path, videos: Iterable[Video]) -> Path:
    """Write ROOT/videos.csv, completely or not at all; return its path."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(LISTED)
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


# -- published layouts


def folders(root: Path) -> list[Video]:
    """Return the videos of ROOT/KIND or ROOT/SPLIT/KIND; a folder's name is the category."""
    labels = _spans_of(root / "labels.csv")
    found = []
    tops = foreign.parts(root, SUFFIXES) or {"": root}
    for split, top in tops.items():
        for kind in foreign.folders(top):
            files = foreign.files(kind, SUFFIXES)
            splits = (
                dict.fromkeys((f.stem for f in files), split) if split else by_hash([f.stem for f in files])
            )
            for file in files:
                name = file.relative_to(root).with_suffix("").as_posix()
                spans = labels.get(name, labels.get(file.stem))
                category = NORMAL if kind.name.lower() == NORMAL else kind.name
                known = () if category == NORMAL else spans
                found.append(Video(name, file, splits[file.stem], category, known))
    _normal_known(root, {video.category for video in found})
    return checked(root, found)


def _normal_known(root: Path, kinds: set[str]) -> None:
    """Raise UsageError where no folder is called normal and one nearly is: it would become a kind of anomaly."""
    near = sorted(kind for kind in kinds if NORMAL in kind.lower() and "abnormal" not in kind.lower())
    if near and NORMAL not in kinds:
        renamed = shlex.join(["mv", str(root / near[0]), str(root / NORMAL)])
        raise UsageError(
            "E-ANOMALY-17",
            f"it is not known which videos of {root} are normal",
            evidence=f"no folder is called {NORMAL}, and one {near[0]}",
            effect="As a kind of anomaly it would turn all scores round",
            fix=f"{renamed}, or --layout with the name of the published set",
        )


def ucf_crime(root: Path) -> list[Video]:
    """Return the 1,610 training and 290 test videos of UCF-Crime."""
    train, annotation = (
        _one(root, *MARKS["ucf_crime"]),
        _one(root, "*emporal*nnotation*.txt", "UCF_Annotation.txt"),
    )
    files = _index(root)
    found = []
    for line in _lines(train):
        kind, _, name = line.strip().rpartition("/")
        category = NORMAL if "Normal" in kind else kind
        found.append(_listed(_place(files, root, Path(name).stem), "train", category, None))
    for name, category, frames, spans in ucf_annotations(annotation):
        video = _listed(_place(files, root, name), "test", category, spans)
        found.append(replace(video, frames=frames))
    return checked(annotation, found)


def ucf_annotations(path: Path) -> list[tuple[str, str, int | None, tuple[Span, ...]]]:
    """Return (name, category, frames or None, intervals) of UCF-Crime's temporal annotation, in both published forms.

    `Abuse028_x264.mp4  Abuse  165  240  -1  -1`, or with the number of frames before the class. ModelError names a row
    of another form.
    """
    found = []
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        counted = len(words) == 7 and words[1].isdigit()
        numbers = words[-4:]
        if len(words) not in (6, 7) or not all(re.fullmatch(r"-?\d+", word) for word in numbers):
            raise wrong(
                path, number, "a row is a name, perhaps a number of frames, a class, and two intervals"
            )
        a, b, c, d = map(int, numbers)
        spans = tuple((start, end) for start, end in ((a, b), (c, d)) if start >= 0)
        if any(end < start for start, end in spans):
            raise wrong(path, number, f"an interval of {words[0]} ends before it begins")
        category = words[2] if counted else words[1]
        name, frames = Path(words[0]).stem, int(words[1]) if counted else None
        found.append((name, NORMAL if category == "Normal" else category, frames, spans))
    return found


def shanghaitech(root: Path) -> list[Video]:
    """Return the videos of ShanghaiTech Campus in the weakly supervised split: a name of four digits is anomalous."""
    files, masks = _index(root, pictures=True), {p.stem: p for p in root.rglob("test_frame_mask/*.npy")}
    found = []
    for split, name in (("train", "SH_Train.txt"), ("test", "SH_Test.txt")):
        for line in filter(None, map(str.strip, _lines(root / name))):
            anomalous = len(line.partition("_")[2]) == 4
            spans: tuple[Span, ...] | None = None
            frames = None
            if anomalous and line in masks:
                mask = np.load(masks[line])
                spans, frames = runs(mask), len(mask)
            category = "anomaly" if anomalous else NORMAL
            found.append(replace(_listed(_place(files, root, line), split, category, spans), frames=frames))
    return checked(root / "SH_Train.txt", found)


KINDS_OF_XD = {
    "B1": "Fighting",
    "B2": "Shooting",
    "B4": "Riot",
    "B5": "Abuse",
    "B6": "CarAccident",
    "G": "Explosion",
}


def xd_violence(root: Path) -> list[Video]:
    """Return the videos of XD-Violence; the first of a video's kinds is its category."""
    path = _one(root, "annotations.txt")
    labelled = {}
    for number, line in enumerate(_lines(path), start=1):
        name, *numbers = line.split()
        if len(numbers) % 2 or not all(word.isdigit() for word in numbers):
            raise wrong(path, number, "a row is a name and pairs of frames")
        ends = list(map(int, numbers))
        labelled[Path(name).stem] = tuple(zip(ends[::2], ends[1::2], strict=True))
    tests = {
        file
        for folder in root.rglob("*")
        if folder.is_dir() and "test" in folder.name
        for file in foreign.inside(folder, SUFFIXES)
    }
    found = []
    for name, file in sorted(_index(root).items()):
        kind = name.rpartition("_label_")[2].split("-")[0]
        category = NORMAL if kind == "A" else KINDS_OF_XD.get(kind, kind)
        split = "test" if name in labelled or file in tests else "train"
        spans = None if split == "train" else labelled.get(name)
        found.append(Video(name, file, split, category, () if category == NORMAL else spans))
    return checked(root, found)


def msad(root: Path) -> list[Video]:
    """Return the videos of MSAD; `Assault_1` is of the category Assault, a name with normal in it is normal."""
    path = _one(root, "anomaly_annotation.csv")
    spans = {}
    columns = ("name", "total frames", "starting frame of anomaly", "ending frame of anomaly")
    for number, row in enumerate(csv.DictReader(_lines(path)), start=2):
        values = [(row.get(column) or "").strip() for column in columns]
        if not values[0] or not all(value.isdigit() for value in values[1:]):
            raise wrong(path, number, f"its columns are {', '.join(columns)}")
        name, frames, start, end = values[0], *map(int, values[1:])
        spans[Path(name).stem] = (frames, ((start, end),))
    lists = {split: root / f"{split}.txt" for split in ("train", "test")}
    named = {Path(n.strip()).stem: s for s, p in lists.items() if p.exists() for n in _lines(p)}
    files = _index(root)
    splits = named or by_hash(sorted(files))
    found = []
    for name, file in sorted(files.items()):
        known = spans.get(name)
        category = NORMAL if "normal" in file.as_posix().lower() else name.rpartition("_")[0] or name
        intervals = () if category == NORMAL else known and known[1]
        found.append(Video(name, file, splits.get(name, "train"), category, intervals, known and known[0]))
    return checked(path, found)


MARKS: Mapping[str, tuple[str, ...]] = {
    "ucf_crime": ("Anomaly_Train.txt",),
    "shanghaitech": ("SH_Train.txt",),
    "xd_violence": ("annotations.txt", "*_label_*.mp4"),
    "msad": ("anomaly_annotation.csv",),
}
"""The files by which a layout is recognised, all of them."""
LAYOUTS: Mapping[str, Callable[[Path], list[Video]]] = {
    "list": read_list,
    "folders": folders,
    "ucf_crime": ucf_crime,
    "uit_vnanomaly": ucf_crime,
    "shanghaitech": shanghaitech,
    "xd_violence": xd_violence,
    "msad": msad,
}


# -- reading -------------------------------------------------------------------------------------------------------


def runs(mask: np.ndarray) -> tuple[Span, ...]:
    """Return the intervals [start, end) in which a mask of frames is not 0."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], np.asarray(mask) != 0, [False]]).astype(np.int8)))
    return tuple((int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True))


COLUMNS = ("video", "start", "end")
"""The columns of a labels.csv."""


def _spans_of(path: Path) -> dict[str, tuple[Span, ...]]:
    """Return the intervals of a labels.csv of video,start,end; none if there is no such file."""
    found: dict[str, tuple[Span, ...]] = {}
    if not path.exists():
        return found
    for number, row in enumerate(csv.DictReader(_lines(path)), start=2):
        name, start, end = (str(row.get(column) or "").strip() for column in COLUMNS)
        if not name or not start.isdigit() or not end.isdigit() or int(end) <= int(start):
            raise wrong(path, number, "its columns are video,start,end, and a start lies before its end")
        key = Path(name).with_suffix("").as_posix() if Path(name).suffix.lower() in SUFFIXES else name
        found[key] = (*found.get(key, ()), (int(start), int(end)))
    return found


def _index(root: Path, *, pictures: bool = False) -> dict[str, Path]:
    """Return stem -> path of every video below a folder, and of folders of pictures if these are videos, too."""
    found = {p.stem: p for p in foreign.files(root, SUFFIXES)}
    return found | ({p.parent.name: p.parent for p in foreign.files(root, (".jpg",))} if pictures else {})


def _place(files: Mapping[str, Path], root: Path, name: str) -> Path:
    """Return where a listed video is, or where it should be."""
    return files.get(name, root / f"{name}.mp4")


def _listed(path: Path, split: str, category: str, spans: tuple[Span, ...] | None) -> Video:
    return Video(path.stem, path, split, category, () if category == NORMAL else spans)


def _first(root: Path, pattern: str) -> Path | None:
    """Return the first file below a folder that fits a pattern, and that no system left; None if there is none."""
    fitting = sorted(root.rglob(pattern))
    return next((p for p in fitting if not any(map(foreign.hidden, p.relative_to(root).parts))), None)


def _one(root: Path, *patterns: str) -> Path:
    """Return the first file below a folder that fits one of the patterns; ModelError if there is none."""
    found = next(filter(None, (_first(root, pattern) for pattern in patterns)), None)
    if found is None:
        raise wrong(root, 0, f"there is no {' or '.join(patterns)}")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in foreign.read(path).splitlines() if line.strip()]
    except OSError as error:
        raise wrong(path, 0, str(error)) from error
