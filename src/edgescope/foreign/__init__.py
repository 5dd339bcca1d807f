"""Files of other people: text however it was written, what of a folder is data, and which classes its names mean.

One rule holds for judging, training and detection:

ROOT/cat/1.jpg ROOT/dog/2.jpg         sub-folders are classes
ROOT/train/cat/1.jpg ROOT/val/...     parts of a data set: one is used and said, and classes are those of all parts
ROOT/images/1.jpg                     a lone folder around all of it is gone into

Files and folders that a system left (a dot in front, __MACOSX, @eaDir, lost+found ...) are no data.

Words that are all whole numbers are the classes themselves, however they are written (2, 02, 2.0). Other words are
names, and a class is numbered by the place of its name: in classes.txt, else in the order of the words as text, as
torchvision and Keras number folders. Tables and arrays follow the same rule.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope.errors import UsageError

CLASSES = "classes.txt"
"""The names of class 0, 1, 2 ..., one a line."""
NOTED = 4
"""Names that a note gives."""


@dataclass(frozen=True)
class Classes:
    """What the words that stand for classes mean."""

    names: tuple[str, ...]
    """The names of class 0, 1, 2 ...; () where words are numbers."""
    numeric: bool
    """Whether the words are numbers."""
    notes: tuple[str, ...] = ()

    def label(self, word: str) -> int | str | None:
        """Return a word as a label: a number, a name, or None for ''."""
        return whole(word) if word and self.numeric else word or None

    def number(self, word: str) -> int | None:
        """Return the number of the class that a word stands for, or None if it stands for none."""
        if self.numeric:
            return whole(word)
        return self.names.index(word) if word in self.names else None


def classes_of(words: Iterable[str], root: Path) -> Classes:
    """Return what words mean in a folder, which may hold a txt; UsageError where that cannot be used."""
    found = sorted(set(words))
    numeric, listed = all(whole(word) is not None for word in found), listed_in(root)
    if numeric or listed:
        return Classes(listed, numeric)
    return Classes(tuple(found), False, _surprises(found))


def _surprises(words: Sequence[str]) -> tuple[str, ...]:
    """Return notes on names whose order as text is not the one that a reader expects."""
    notes = []
    if ordered(words) != list(words):
        first = next(i for i, (a, b) in enumerate(zip(words, ordered(words), strict=True)) if a != b)
        notes.append(
            f"classes are numbered in the order of their names as text ({words[first]} is class {first});"
            f" a {CLASSES} says another order"
        )
    numbers = [word for word in words if whole(word) is not None]
    if numbers:
        notes.append(f"{', '.join(numbers[:NOTED])} are taken for names, as other classes are no numbers")
    return tuple(notes)


def ordered(words: Iterable[str]) -> list[str]:
    """Return words in the order in which people count: a2 before a10."""
    return sorted(words, key=counted)


def listed_in(root: Path) -> tuple[str, ...]:
    """Return the names in a folder's txt, () without one; UsageError for an empty line or a name twice."""
    path = root / CLASSES
    if not path.is_file():
        return ()
    found = lines(path)
    twice = next((name for name, times in Counter(found).items() if times > 1 or not name), None)
    if twice is None:
        return tuple(found)
    what = f"{twice!r} stands there twice" if twice else f"line {found.index('') + 1} is empty"
    raise UsageError(
        "E-LABEL-4",
        f"{path} does not name the classes",
        evidence=what,
        effect="The numbers of the classes after it are not known",
        fix="write the names of class 0, 1, 2 ..., one a line, each once",
    )


SYSTEM = frozenset(
    ("__macosx", "@eadir", "@recycle", "#recycle", "#snapshot", "lost+found", "thumbs.db", "ehthumbs.db")
) | {"desktop.ini", "$recycle.bin", "recycler", "__pycache__", "system volume information", "temporary items"}
"""Names in small letters that macOS, Windows, a NAS, Linux or Python leave in folders."""
SPLITS: Mapping[str, Collection[str]] = {
    "train": ("train", "training", "trn"),
    "validation": ("validation", "val", "valid", "dev", "eval"),
    "test": ("test", "testing", "tst"),
}
"""The parts of a data set, and what people call them."""
JUDGING, TRAINING = ("validation", "test", "train"), ("train",)
"""Which part is used, the first that is there: held-out ones judge."""
PLAIN = frozenset(("images", "image", "imgs", "img", "pictures", "photos", "jpegimages"))
"""Names of a folder that holds all pictures, and no class."""
DEEPEST = 5
"""How many folders around the data are gone into."""

_AFTER = r"(?:[_-]?(?:set|data|images?|imgs?|videos?|split))?(?:[_-]?(?:19|20)\d\d)?"
_PARTS = {
    split: re.compile(rf"(?:seg[_-])?(?:{'|'.join(words)}){_AFTER}", re.IGNORECASE)
    for split, words in SPLITS.items()
}


@dataclass(frozen=True)
class Place:
    """The folder that holds the data, and the classes below it."""

    top: Path
    kinds: tuple[str, ...]
    """The names of all class folders, those of other parts of the data set included."""
    notes: tuple[str, ...] = ()
    """What was chosen, and what was left out."""

    def kind(self, path: Path) -> str:
        """Return the class folder that a file lies in, '' for a file at the top."""
        inside = path.relative_to(self.top).parts
        return inside[0] if len(inside) > 1 else ""

    def classes(self, root: Path, full: Collection[str] = ()) -> Classes:
        """Return what the names of the class folders mean; those in `full` hold files and say if they are numbers."""
        given = next((p for p in (self.top, root) if (p / CLASSES).is_file()), root)
        found = classes_of(full, given) if full else classes_of(self.kinds, given)
        return found if found.numeric else classes_of(self.kinds, given)


def hidden(name: str) -> bool:
    """Return whether a file or folder of this name was left by a system, and is no data."""
    return name.startswith((".", "~$")) or name.lower() in SYSTEM


def folders(root: Path) -> list[Path]:
    """Return the sub-folders that may be data, as people count: 2 before 10."""
    found = [p for p in root.iterdir() if not hidden(p.name) and p.is_dir()]
    return sorted(found, key=lambda p: counted(p.name))


def files(root: Path, endings: Collection[str]) -> list[Path]:
    """Return all files below a folder with one of these endings (in small letters), in order; links are followed."""
    return sorted(_walk(root, endings))


def inside(root: Path, endings: Collection[str]) -> list[Path]:
    """Return the files in a folder itself, as people count: frame 2 before frame 10."""
    found = [p for p in root.iterdir() if _fits(p.name, endings) and p.is_file()]
    return sorted(found, key=lambda p: counted(p.name))


def _fits(name: str, endings: Collection[str]) -> bool:
    return not hidden(name) and os.path.splitext(name)[1].lower() in endings


def _walk(root: Path, endings: Collection[str]) -> Iterator[Path]:
    for place, below, names in os.walk(root, followlinks=True):
        below[:] = [name for name in below if not hidden(name) and not _loops(place, name)]
        yield from (Path(place, name) for name in names if _fits(name, endings))


def _loops(place: str, name: str) -> bool:
    """Return whether a link leads back to a folder that it lies in."""
    path = Path(place, name)
    return path.is_symlink() and any(path.samefile(parent) for parent in path.parents if path.exists())


def holds(root: Path, endings: Collection[str]) -> bool:
    """Return whether there is any file with one of these endings below a folder."""
    return next(_walk(root, endings), None) is not None


def part_of(name: str) -> str:
    """Return the part of a data set that a folder's name stands for: train, validation, test, or ''."""
    return next((split for split, words in _PARTS.items() if words.fullmatch(name)), "")


def parts(root: Path, endings: Collection[str]) -> dict[str, Path]:
    """Return the folders of a data set's parts; {} where sub-folders are classes.

    UsageError where two parts stand beside folders that are none: nobody knows which are which.
    """
    found, others = dict[str, Path](), list[str]()
    for folder in (f for f in folders(root) if holds(f, endings)):
        split = part_of(folder.name)
        if split in found:
            return {}  # test1 and test2 are classes of somebody's
        if split:
            found[split] = folder
        else:
            others.append(folder.name)
    if len(found) > 1 and others:
        raise _unclear(root, [p.name for p in found.values()], others, "parts of a data set")
    return {} if others else found


def find(root: Path, endings: Collection[str], wanted: Sequence[str] = JUDGING, depth: int = 0) -> Place:
    """Return where the data of a folder lie: of the parts that `wanted` names, the first with classes, or the first.

    UsageError where it is not clear which folders are classes.
    """
    if found := parts(root, endings) if depth < DEEPEST else {}:
        return _chosen(root, {s: find(p, endings, wanted, depth + 1) for s, p in found.items()}, wanted)
    full = [f for f in folders(root) if holds(f, endings)]
    if depth < DEEPEST and len(full) == 1 and not inside(root, endings) and _around(full[0], endings):
        return find(full[0], endings, wanted, depth + 1)
    plain = [f.name for f in full if f.name.lower() in PLAIN]
    if plain and len(full) > 1:
        raise _unclear(root, plain, [f.name for f in full if f.name not in plain], "no class")
    return Place(root, tuple(f.name for f in folders(root)))


def _around(folder: Path, endings: Collection[str]) -> bool:
    """Return whether the only folder with data is no class but holds all: by its name, or by classes within."""
    if folder.name.lower() in PLAIN:
        return True
    within = [f for f in folders(folder) if holds(f, endings)]
    if inside(folder, endings):
        return False
    return len(within) > 1 or any(part_of(f.name) or _around(f, endings) for f in within)


def _chosen(root: Path, found: Mapping[str, Place], wanted: Sequence[str]) -> Place:
    """Return the part to use, with the classes of all, and a note that says so."""
    usable = [split for split in (*wanted, *found) if split in found]
    split = next((s for s in usable if found[s].kinds), usable[0])
    place, others = found[split], [p.top for s, p in found.items() if s != split]
    kinds = {kind for p in found.values() for kind in p.kinds}
    notes = list(place.notes)
    if others:
        rest = ", ".join(_shown(p, root) for p in others)
        notes.insert(0, f"{_shown(place.top, root)} is used, and not {rest}; name another folder to use that")
    return Place(place.top, tuple(sorted(kinds)), tuple(notes))


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _unclear(root: Path, some: Sequence[str], others: Sequence[str], what: str) -> UsageError:
    return UsageError(
        "E-DATASET-14",
        f"it is not clear which folders of {root} are classes",
        evidence=f"{', '.join(some[:3])} look like {what}, {', '.join(others[:3])} stand beside them",
        effect="Pictures under wrong classes would be judged wrong",
        fix=f"name the one to use: {root / some[0]}",
    )


MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins with that of UTF-16, so it is asked for first."""
NOTHING = ("", "nan", "na", "n/a", "none", "null", "nil", "<na>")
"""What tables hold where nothing is known, in small letters."""
NUMBER = re.compile(r"([+-]?\d{1,18})(?:\.0*)?", re.ASCII)


def read(path: Path) -> str:
    """Return a file's text without a byte order mark, lines ending in a newline; OSError as `open` raises it."""
    return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    """Return the text of bytes: as their mark says, else UTF-8, else what Windows writes in western Europe."""
    name = next((name for mark, name in MARKS if data.startswith(mark)), "")
    for encoding in filter(None, (name, "utf-8", "cp1252")):
        try:
            return _lines_as_unix(data.decode(encoding))
        except UnicodeDecodeError:
            continue
    return _lines_as_unix(data.decode("latin-1"))


def _lines_as_unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines(path: Path) -> list[str]:
    """Return the lines of a file without their ends and without blanks around them; empty ones at the end left out."""
    return [line.strip() for line in read(path).rstrip().split("\n")] if path.stat().st_size else []


def whole(word: object) -> int | None:
    """Return the whole number that a word, or a number, says: 3 of `3`, ` 3`, `03`, `3.0` and 3.0; None for no such."""
    found = NUMBER.fullmatch(str(word).strip())
    return int(found[1]) if found else None


def counted(word: str) -> list[tuple[int, str]]:
    """Return a key that sorts words as people count: a2 before a10, and equal numbers by how they are written."""
    parts = re.split(r"(\d+)", word)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


#: Column -> its names over the versions, newest first; all in milliseconds since the start of the loop.
TRTEXEC_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "start_enq": ("startEnqMs",),
    "end_enq": ("endEnqMs",),
    "start_h2d": ("startH2dMs", "startInMs"),
    "end_h2d": ("endH2dMs", "endInMs"),
    "start_compute": ("startComputeMs",),
    "end_compute": ("endComputeMs",),
    "start_d2h": ("startD2hMs", "startOutMs"),
    "end_d2h": ("endD2hMs", "endOutMs"),
    "h2d": ("h2dMs", "inMs"),
    "compute": ("computeMs",),
    "d2h": ("d2hMs", "outMs"),
    "latency": ("latencyMs",),
}
