"""Data sets as others keep them: a .csv of files and labels, COCO annotations, a folder of .npy files, saved rows.

A .csv has `file,label` a line, with or without a heading. A label is a number, a class's name, or an image of class
numbers (a mask) for segmentation; none means no label. A heading says by its words which columns are meant; without
one there are two columns, the file and its label. Separators are commas, semicolons or tabs: the one by which most
lines name a file that is there.

COCO annotations are a .json with images, annotations and categories. Classes are numbered 0, 1, 2 ... in the order of
their ids, as most detectors give them. Crowds and regions marked as ignored or difficult are kept as regions where
nothing is judged. Whatever finds no partner (a box of a category or an image that is not listed) is left out, counted
and named.

Each .npy is one sample without the batch axis; sub-folders are classes, as of images. For a network with several inputs
each sample is a folder: `0001/ids.npy`, `0001/mask.npy`, named as the inputs are.

Rows that Hugging Face's `datasets` saved (save_to_disk) are read with pyarrow as they are asked for. Columns `label`,
`labels` or `fine_label` are the labels, and a ClassLabel's names their names; images decode from their bytes. Other
columns are arrays by input name.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, foreign
from edgescope.data.base import Found, Label, Record
from edgescope.data.opening import IMAGES, image, opened, rules
from edgescope.errors import UsageError, closest_name
from edgescope.records import digest
from edgescope.registry import need
from edgescope.units import counted
from edgescope.verify.measures import CROWD, IGNORED, JUDGED

FILE = (
    *("file", "filename", "file_name", "filepath", "file_path", "path"),
    *("image", "image_path", "image_name", "image_id", "img", "img_path", "img_name", "picture", "photo"),
    *("name", "id"),
)
LABEL = (
    *(
        "label",
        "labels",
        "class",
        "class_id",
        "class_index",
        "label_id",
        "category",
        "category_id",
        "target",
        "y",
    ),
    *("class_name", "label_name", "category_name", "mask"),
)
"""Words of a heading, in small letters, the surest first."""
NEITHER = frozenset(("split", "subset", "fold", "width", "height", "url", "index", "unnamed:_0"))
"""Words of columns that are no labels, even where they stand alone beside the file."""
BOXES = frozenset(("xmin", "x_min", "bbox", "x1"))
"""Words of a heading of boxes, a line each."""
SEPARATORS = ",;\t"
LOOKED_AT = 40
"""Lines that show which separator and which column it is."""
LONGEST = 80
"""Characters of a cell that a message repeats: where a quote does not end, a cell is half of the file."""
Rows = Sequence[Sequence[str]]


def read_csv(name: str) -> Found:
    """Return the files that a .csv lists; UsageError where it is none, or lists files that are not there."""
    path = Path(name)
    rows = _lines(path)
    head = rows[0] if rows and _is_heading(path.parent, rows) else ()
    body = rows[1:] if head else rows
    file, label = _columns(path, head, body)
    found = [(_cell(row, file), _cell(row, label)) for row in body]
    _all_there(path, [word for word, _ in found])
    words = {word for _, word in found if word.lower() not in foreign.NOTHING and not _is_mask(word)}
    known = foreign.classes_of(words, path.parent)
    _classes_only(path, words, known)
    records = [_record(path.parent, *pair, known) for pair in found]
    notes = (
        (f"labels are its column {head[label] or label + 1!r}",)
        if label is not None and _telling(head, label)
        else ()
    )
    bare = sum(not record.truth for record in records)
    some = (f"{bare} of {len(records)} files have no label",) if 0 < bare < len(records) else ()
    return Found(records, known.names, (*notes, *some, *known.notes), rules(path.parent))


def _telling(head: Sequence[str], label: int) -> bool:
    """Return whether a reader would want to know which column the labels are."""
    return len(head) > 2 or (label < len(head) and _word(head[label]) not in LABEL)


def _lines(path: Path) -> Rows:
    """Return the cells of all lines that hold any, by the separator that names most files."""
    try:
        lines = foreign.read(path)
        every = [_split(lines, separator) for separator in SEPARATORS]
    except (OSError, csv.Error) as error:
        raise UsageError(
            "E-DATASET-17",
            f"{path.name} cannot be read as a table",
            evidence=f"{type(error).__name__}: {error}"[:200],
            effect="Nothing was measured",
            fix="write `file,label` a line, files relative to the .csv",
        ) from error
    return max(every, key=lambda rows: _hits(path.parent, rows))


def _split(lines: str, separator: str) -> Rows:
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(lines), delimiter=separator)]
    return [row for row in rows if any(row)]


def _hits(root: Path, rows: Rows) -> int:
    """Return how many of the first lines name a file that is there."""
    return sum(any(there(root, cell) for cell in row) for row in rows[:LOOKED_AT])


def there(root: Path, word: str) -> Path | None:
    """Return the file that a word names, seen from a folder and by either slash; None if there is none."""
    for spelt in (word, word.replace("\\", "/")):
        if word and os.path.isfile(root / spelt):  # False, too, of too long a name and of a zero byte in it
            return root / spelt
    return None


def _is_heading(root: Path, rows: Rows) -> bool:
    """Return whether the first line is a heading: it names no file, there or not, and the next ones do."""
    first = rows[0]
    if any(there(root, cell) or cell.lower().endswith(IMAGES) for cell in first):
        return False
    return any(_word(cell) in (*FILE, *LABEL) for cell in first) or _hits(root, rows[1:]) > 0


def _word(cell: str) -> str:
    """Return a cell of a heading as FILE and LABEL write it: `Image Path` as image_path."""
    return re.sub(r"[\s-]+", "_", cell.strip().lower())


def _columns(path: Path, head: Sequence[str], rows: Rows) -> tuple[int, int | None]:
    """Return the numbers of the columns of files and of labels (None: there are none)."""
    width = max((len(row) for row in rows), default=2)
    words = [_word(cell) for cell in head]
    if BOXES & {*words}:
        raise _unclear(path, words, "a line is a box, and not a picture", "give boxes as COCO annotations")
    full = [i for i in range(width) if any(_cell(row, i) for row in rows)] or [0]
    hits = {i: sum(there(path.parent, _cell(r, i)) is not None for r in rows[:LOOKED_AT]) for i in full}
    most = max(hits.values())
    best = [i for i in full if hits[i] == most]
    named = [words.index(word) for word in FILE if word in words]
    file = next((i for i in named if i in best), best[0] if most or not named else named[0])
    others = [i for i in full if i != file and (i >= len(words) or words[i] not in NEITHER)]
    if len(others) < 2:
        return file, others[0] if others else None
    return file, _label(path, words, others, rows)


def _label(path: Path, words: Sequence[str], others: Sequence[int], rows: Rows) -> int:
    """Return the column of labels of several; UsageError where no word of the heading says it, or two do."""
    said = [words.index(word) for word in LABEL if word in words and words.index(word) in others]
    numeric = [i for i in said if all(foreign.whole(_cell(r, i)) is not None for r in rows if _cell(r, i))]
    if len(said) == 1 or len(numeric) == 1:
        return (numeric or said)[0]  # of a class's name and its number the number is the network's
    what = (
        "no word of a heading says which column is the label" if not said else "two columns may be the label"
    )
    close = next((w for w in words if closest_name(w, LABEL)), "") if not said else words[said[0]]
    raise _unclear(path, words, what, f"call it `label`{f', if it is {close}' if close else ''}")


def _unclear(path: Path, words: Sequence[str], what: str, fix: str) -> UsageError:
    return UsageError(
        "E-DATASET-15",
        f"it is not known which column of {path.name} holds the labels",
        evidence=f"{what}; heading: {', '.join(words) or 'none'}"[:300],
        effect="Numbers that are no classes would be taken for them",
        fix=fix,
    )


def _cell(row: Sequence[str], column: int | None) -> str:
    return row[column] if column is not None and column < len(row) else ""


def _all_there(path: Path, files: Sequence[str]) -> None:
    missing = [file for file in files if there(path.parent, file) is None]
    if not missing and files:
        return
    raise UsageError(
        "E-DATASET-9",
        f"{path.name} lists files that are not there" if missing else f"{path.name} lists no files",
        evidence=f"{len(missing)} of {len(files)}: {', '.join(m[-LONGEST:] or 'an empty cell' for m in missing[:3])}"
        if missing
        else "no line after the heading",
        effect="Nothing was measured",
        fix="write `file,label` a line, files relative to the .csv",
    )


def _classes_only(path: Path, words: set[str], known: foreign.Classes) -> None:
    """Raise UsageError for labels that are all numbers, but not whole ones: they are no classes."""
    fractions = [word for word in words if re.fullmatch(r"[+-]?\d*[.,]\d*[1-9]\d*", word)]
    if fractions and not known.numeric and len(fractions) > len(words) / 2:
        raise UsageError(
            "E-LABEL-5",
            f"the labels of {path.name} are no classes",
            evidence=f"{counted(len(fractions), 'fraction')} such as {min(fractions)}",
            effect="No answer of a classifier can be right or wrong by them",
            fix="give class numbers or names; without a label column, outputs are compared with those of fp32",
        )


def _is_mask(word: str) -> bool:
    return word.lower().endswith(IMAGES)


def _record(root: Path, file: str, label: str, known: foreign.Classes) -> Record:
    place = there(root, file) or root / file
    if _is_mask(label):
        mask = there(root, label)
        if mask is None:
            raise UsageError(
                "E-DATASET-9",
                f"the mask {label[-LONGEST:]} of {file[-LONGEST:]} is not there",
                effect="Nothing was measured",
                fix="write masks relative to the .csv, too",
            )
        return image(place, file, classes=partial(class_map, mask), mark=cache.content(mask))
    return image(place, file, None if label.lower() in foreign.NOTHING else known.label(label))


def class_map(path: Path) -> NDArray[Any]:
    """Return the class numbers of an image: its palette's, or its grey values."""
    picture = opened(path)
    return np.asarray(picture if picture.mode in ("P", "L", "I", "I;16") else picture.convert("L"))


FOLDERS = (".", "images", "train2017", "val2017", "..")
"""Where images may lie, seen from the .json; a folder of its own name counts, too."""
UNJUDGED = ("ignore", "difficult")
"""Fields of an annotation that say that nobody is to find it, nor to be blamed for finding it."""
Row = Mapping[str, Any]


def read_coco(name: str) -> Found:
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
        about = json.loads(foreign.read(path))
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
    number = foreign.whole(given)
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
    wide, high = foreign.whole(row.get("width")), foreign.whole(row.get("height"))
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


# -- arrays

ARRAYS = (".npy",)


def read_npy(name: str) -> Found:
    """Return the samples under a folder of .npy files."""
    root = Path(name)
    by_folder = {p: foreign.inside(p, ARRAYS) for p in {p.parent for p in foreign.files(root, ARRAYS)}}
    same = {tuple(sorted(p.name for p in files)) for files in by_folder.values()}
    if root not in by_folder and len(by_folder) > 1 and len(same) == 1 and len(next(iter(same))) > 1:
        return Found([_several_arrays(p, by_folder[p], root) for p in sorted(by_folder)], (), (), rules(root))
    place = foreign.find(root, ARRAYS)
    files = foreign.files(place.top, ARRAYS)
    known = place.classes(root, {place.kind(path) for path in files} - {""})
    records = [_one_array(path, root, known.label(place.kind(path))) for path in files]
    return Found(records, known.names, (*place.notes, *known.notes), rules(place.top) or rules(root))


def _several_arrays(folder: Path, paths: list[Path], root: Path) -> Record:
    files = {path.stem: path for path in sorted(paths)}
    return Record(
        str(folder.relative_to(root)), partial(_content_of, list(files.values())), partial(_all_arrays, files)
    )


def _content_of(files: list[Path]) -> str:
    return digest([cache.content(path) for path in files])


def _all_arrays(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, allow_pickle=False) for name, path in files.items()}


def _one_array(path: Path, root: Path, label: Label) -> Record:
    load = partial(np.load, path, allow_pickle=False)
    return Record(str(path.relative_to(root)), partial(cache.content, path), load, label)


SAVED_LABELS = ("label", "labels", "fine_label")
PYARROW = "pip install 'edgescope[datasets]'"


def read_hugging_face(name: str) -> Found:
    """Return the rows of a saved data set."""
    root = Path(name)
    state = json.loads((root / "state.json").read_text())
    features = json.loads((root / "dataset_info.json").read_text()).get("features", {})
    tables = [_saved_table(root / one["filename"]) for one in state["_data_files"]]
    table = need("pyarrow:concat_tables", name, PYARROW)(tables)
    if state.get("_indices_data_files"):
        raise UsageError(
            "E-DATASET-12",
            f"{root.name} was saved with a selection of its rows beside it",
            evidence="state.json names _indices_data_files",
            effect="Rows that were left out would be read",
            fix="save it again: dataset.flatten_indices().save_to_disk(FOLDER)",
        )
    label = next((key for key in SAVED_LABELS if key in table.column_names), "")
    inputs = [key for key in table.column_names if key != label]
    records = [_saved_record(table, i, inputs, label, root) for i in range(table.num_rows)]
    classes = features.get(label, {}).get("names") or () if label else ()
    return Found(records, tuple(classes))


def _saved_table(path: Path) -> Any:
    """Return the rows of an Arrow file, mapped into memory."""
    source = need("pyarrow:memory_map", str(path), PYARROW)(str(path))
    return need("pyarrow.ipc:open_stream", str(path), PYARROW)(source).read_all()


def _saved_record(table: Any, i: int, inputs: list[str], label: str, root: Path) -> Record:
    row: Callable[[], Mapping[str, Any]] = partial(_saved_row, table, i, inputs)
    given = table[label][i].as_py() if label else None
    load = partial(_saved_content, row, root)
    return Record(
        f"row {i}", partial(_saved_digest, row), load, given if isinstance(given, int | str) else None
    )


def _saved_row(table: Any, i: int, inputs: list[str]) -> dict[str, Any]:
    return {key: table[key][i].as_py() for key in inputs}


def _saved_digest(row: Callable[[], Mapping[str, Any]]) -> str:
    return digest([hashlib.sha256(repr(value).encode()).hexdigest() for value in row().values()])


def _saved_content(row: Callable[[], Mapping[str, Any]], root: Path) -> Any:
    """Return a row's picture, or its arrays by name."""
    values = row()
    for value in values.values():
        if isinstance(value, Mapping) and {"bytes", "path"} >= set(value):
            if value.get("bytes"):
                return need("PIL.Image:open", "the image reader", "pip install pillow")(
                    io.BytesIO(value["bytes"])
                )
            return opened(root / value["path"])
    return {key: np.asarray(value) for key, value in values.items() if not isinstance(value, str | None)}
