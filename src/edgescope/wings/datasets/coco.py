"""COCO annotations: a .json with images, annotations and categories, the images in a folder beside it.

Classes are numbered 0, 1, 2 ... in the order of their ids, as most detectors give them. Crowds and regions marked as
ignored or difficult are kept as regions where nothing is judged. Whatever finds no partner (a box of a category or an
image that is not listed) is left out, counted and named.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.data.base import Found, Record
from edgescope.data.kinds import image, rules
from edgescope.errors import UsageError
from edgescope.foreign import text
from edgescope.units import counted
from edgescope.verify.measures import CROWD, IGNORED, JUDGED
from edgescope.wings.datasets.csv import there

FOLDERS = (".", "images", "train2017", "val2017", "..")
"""Where images may lie, seen from the .json; a folder of its own name counts, too."""
UNJUDGED = ("ignore", "difficult")
"""Fields of an annotation that say that nobody is to find it, nor to be blamed for finding it."""
Row = Mapping[str, Any]


def read(name: str) -> Found:
    """Return the images of COCO annotations with their boxes; UsageError where it is none, or they are not there."""
    path = Path(name)
    about = _parsed(path)
    kinds, images = _once(path, about, "categories", "name"), _once(path, about, "images", "file_name")
    number = {key: i for i, key in enumerate(sorted(kinds, key=_order))}
    joined = _Annotations(number, images.keys())
    for row in _rows(path, about, "annotations"):
        joined.add(row)
    if joined.left_out and not joined.boxes:
        raise _none(path, f"none of its annotations can be used: {joined.note}")
    files = {key: str(row.get("file_name", "")) for key, row in images.items()}
    root = _root(path, list(files.values()))
    lost = {key: file for key, file in files.items() if there(root, file) is None}
    gone = sum(len(joined.boxes[key]) for key in lost)
    width = 6 if joined.unjudged else 5
    records: list[Record] = [
        image(place, file, boxes=_boxes(joined.boxes[key], width), size=_size(images[key]))
        for key, file in files.items()
        if (place := there(root, file)) is not None
    ]
    classes = tuple(str(kinds[key].get("name", key)) for key in number)
    notes = (joined.note, _lost(list(lost.values()), len(files), gone), joined.empty(classes))
    return Found(records, classes, tuple(filter(None, notes)), rules(path.parent))


def _parsed(path: Path) -> Row:
    try:
        about = json.loads(text.read(path))
    except (OSError, ValueError, RecursionError) as error:
        raise _none(path, f"{type(error).__name__}: {error}"[:200]) from error
    if not isinstance(about, Mapping):
        raise _none(path, f"it is a {type(about).__name__}, as detections are, and not an object")
    return about


def _rows(path: Path, about: Row, key: str) -> list[Row]:
    rows = about.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise _none(path, f"{key} is missing" if rows is None else f"{key} is no list of objects")
    return rows


def _once(path: Path, about: Row, part: str, name: str) -> dict[Hashable, Row]:
    """Return the rows of a part by their ids; UsageError where two different ones share an id."""
    found: dict[Hashable, Row] = {}
    for row in _rows(path, about, part):
        key = _key(row.get("id"))
        if key is None:
            raise _none(path, f"one of its {part} has no id: {dict(row)}"[:200])
        if key in found and found[key].get(name) != row.get(name):
            both = f"{found[key].get(name)} and {row.get(name)}"
            raise _none(path, f"ids of its {part} are not unique: {key} is {both}")
        found[key] = row
    return found


def _key(given: Any) -> Hashable | None:
    """Return an id by which rows are joined: numbers as numbers, however they are written; None for no id."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    number = text.whole(given)
    return given if number is None else number


def _order(key: Hashable) -> tuple[bool, int, str]:
    return (isinstance(key, str), key if isinstance(key, int) else 0, str(key))


@dataclass
class _Annotations:
    """Annotations on their way to the images that they belong to."""

    number: Mapping[Hashable, int]
    images: Container[Hashable]
    boxes: dict[Hashable, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    left_out: Counter[str] = field(default_factory=Counter)
    """How many were left out, by the reason."""
    example: dict[str, str] = field(default_factory=dict)
    total: int = 0
    unjudged: Counter[str] = field(default_factory=Counter)
    """How many regions are not judged, by the field that says so."""
    outlined: int = 0
    """Boxes taken from the outline of a polygon."""

    def add(self, row: Row) -> None:
        """Put an annotation with its image, or count why it cannot be."""
        self.total += 1
        kind, picture, box = _key(row.get("category_id")), _key(row.get("image_id")), _box(row)
        if picture not in self.images:
            self._out("of images that are not listed", row.get("image_id"))
        elif kind not in self.number:
            self._out("of categories that are not listed", row.get("category_id"))
        elif box is None:
            self._out("without a box that can be drawn", row.get("bbox", "no bbox"))
        else:
            self.outlined += "bbox" not in row
            self.boxes[picture].append([*box, self.number[kind], self._judged(row)])

    def _judged(self, row: Row) -> int:
        word = next((w for w in ("iscrowd", *UNJUDGED) if row.get(w) not in (None, 0, False, "0")), "")
        if word:
            self.unjudged[word] += 1
        return CROWD if word == "iscrowd" else IGNORED if word else JUDGED

    def _out(self, why: str, example: Any) -> None:
        self.left_out[why] += 1
        self.example.setdefault(why, str(example)[:40])

    @property
    def note(self) -> str:
        """Return what was left out or read otherwise, '' for nothing."""
        out = [f"{n} {why} ({self.example[why]})" for why, n in self.left_out.items()]
        said = [f"of {counted(self.total, 'annotation')} left out: {', '.join(out)}"] if out else []
        said += [f"{counted(self.outlined, 'box')} drawn around polygons"] if self.outlined else []
        said += [f"{counted(n, 'region')} not judged ({word})" for word, n in self.unjudged.items()]
        return "; ".join(said)

    def empty(self, classes: Sequence[str]) -> str:
        """Return which classes no box is of, '' for none: one too many moves the numbers of all after it."""
        used = {int(box[4]) for boxes in self.boxes.values() for box in boxes}
        none = [f"{name} (class {i})" for i, name in enumerate(classes) if i not in used]
        more = f" and {len(none) - 3} more" if len(none) > 3 else ""
        return f"categories without a box: {', '.join(none[:3])}{more}" if none and used else ""


def _box(row: Row) -> tuple[float, float, float, float] | None:
    """Return x1, y1, x2, y2 of an annotation, from its box or around its polygons; None where it has no area."""
    given = row.get("bbox")
    if given is None:
        return _around(row.get("segmentation"))
    x, y, wide, high = _numbers(given, 4) or (0.0, 0.0, 0.0, 0.0)
    return (x, y, x + wide, y + high) if wide > 0 and high > 0 else None


def _around(polygons: Any) -> tuple[float, float, float, float] | None:
    """Return the box around polygons, x and y in turn; None for what are none (a mask in run lengths, nothing)."""
    parts = [_numbers(part) for part in polygons] if isinstance(polygons, list) else []
    points = np.array([value for part in parts for value in part or ()])
    if not points.size or None in parts or any(len(part or ()) % 2 for part in parts):
        return None
    (left, top), (right, low) = points.reshape(-1, 2).min(0), points.reshape(-1, 2).max(0)
    return (float(left), float(top), float(right), float(low)) if right > left and low > top else None


def _numbers(given: Any, count: int | None = None) -> tuple[float, ...] | None:
    """Return finite numbers, `count` of them, however they are written; None for anything else."""
    try:
        found = tuple(float(value) for value in given)
    except (TypeError, ValueError, OverflowError):
        return None
    fits = (count is None or len(found) == count) and all(map(math.isfinite, found))
    return found if fits and not isinstance(given, str) else None


def _boxes(found: Sequence[Sequence[float]], width: int) -> np.ndarray:
    return np.asarray(found, dtype=np.float32).reshape(-1, 6)[:, :width]


def _size(row: Row) -> tuple[int, int] | None:
    """Return the width and height that boxes are given for; None where they are not said."""
    wide, high = text.whole(row.get("width")), text.whole(row.get("height"))
    return (wide, high) if wide and high and min(wide, high) > 0 else None


def _lost(files: Sequence[str], total: int, boxes: int) -> str:
    """Return how many images are not there, and how many boxes with them; '' if all are."""
    some = ", ".join(files[:3])
    said = (
        f"{len(files)} of {total} listed images are not there ({some}), and {counted(boxes, 'box')} of them"
    )
    return said if files else ""


def _root(path: Path, files: list[str]) -> Path:
    """Return the folder that holds most of the images; UsageError where none holds half of them."""
    places = [
        path.parent / name for name in (*FOLDERS, path.stem, f"../{path.stem.removeprefix('instances_')}")
    ]
    hits = [sum(there(place, file) is not None for file in files) for place in places]
    best = max(range(len(places)), key=lambda i: hits[i])
    if hits[best] * 2 >= len(files) > 0:
        return places[best]
    raise UsageError(
        "E-DATASET-9",
        f"{path.name} lists files that are not there",
        evidence=f"{hits[best]} of {len(files)} images found in {places[best]}, fewer in"
        f" {', '.join(str(p) for i, p in enumerate(places[:3]) if i != best)} ...",
        effect="Nothing was measured",
        fix="put the .json beside its images, or beside a folder `images` with them",
    )


def _none(path: Path, why: str) -> UsageError:
    return UsageError(
        "E-DATASET-10",
        f"{path.name} holds no COCO annotations",
        evidence=why,
        effect="Nothing was measured",
        fix="give a .json with images, annotations (bbox, category_id) and categories",
    )
