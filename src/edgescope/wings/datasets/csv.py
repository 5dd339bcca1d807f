"""A .csv of files and labels: `file,label` a line, with or without a heading; files lie relative to it.

A label is a number, a class's name, or an image of class numbers (a mask) for segmentation; none means no label. A
heading says by its words which columns are meant; without one there are two columns, the file and its label.
Separators are commas, semicolons or tabs: the one by which most lines name a file that is there.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data.base import Found, Record
from edgescope.data.kinds import IMAGES, image, opened, rules
from edgescope.errors import UsageError, closest_name
from edgescope.foreign import folders, text
from edgescope.units import counted

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


def read(name: str) -> Found:
    """Return the files that a .csv lists; UsageError where it is none, or lists files that are not there."""
    path = Path(name)
    rows = _rows(path)
    head = rows[0] if rows and _is_heading(path.parent, rows) else ()
    body = rows[1:] if head else rows
    file, label = _columns(path, head, body)
    found = [(_cell(row, file), _cell(row, label)) for row in body]
    _all_there(path, [word for word, _ in found])
    words = {word for _, word in found if word.lower() not in text.NOTHING and not _is_mask(word)}
    known = folders.classes_of(words, path.parent)
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


def _rows(path: Path) -> Rows:
    """Return the cells of all lines that hold any, by the separator that names most files."""
    try:
        lines = text.read(path)
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
    numeric = [i for i in said if all(text.whole(_cell(r, i)) is not None for r in rows if _cell(r, i))]
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


def _classes_only(path: Path, words: set[str], known: folders.Classes) -> None:
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


def _record(root: Path, file: str, label: str, known: folders.Classes) -> Record:
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
    return image(place, file, None if label.lower() in text.NOTHING else known.label(label))


def class_map(path: Path) -> NDArray[Any]:
    """Return the class numbers of an image: its palette's, or its grey values."""
    picture = opened(path)
    return np.asarray(picture if picture.mode in ("P", "L", "I", "I;16") else picture.convert("L"))
