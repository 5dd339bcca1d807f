"""A .csv of files and labels: `file,label` a line, with or without a heading; files lie relative to it.

A label is a number, a class's name, or an image of class numbers (a mask) for segmentation; none means no label.
"""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data.base import Found, Record
from edgescope.data.folder import IMAGES, image, names, opened, rules
from edgescope.errors import UsageError


def read(name: str) -> Found:
    """Return the files that a .csv lists; UsageError where it is none, or lists files that are not there."""
    path = Path(name)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    if rows and not (path.parent / rows[0][0]).is_file():
        rows = rows[1:]  # the heading
    missing = [row[0] for row in rows if not (path.parent / row[0]).is_file()]
    if missing or not rows:
        raise UsageError(
            "E-DATASET-9",
            f"{path.name} lists files that are not there" if missing else f"{path.name} lists no files",
            evidence=f"{len(missing)} of {len(rows)}: {', '.join(missing[:3])}"
            if missing
            else "no line after the heading",
            effect="Nothing was measured",
            fix="write `file,label` a line, files relative to the .csv",
        )
    records = [_record(path.parent, *row[:2]) for row in rows]
    words = sorted({record.label for record in records if isinstance(record.label, str)})
    return Found(records, names(path.parent, words), (), rules(path.parent))


def _record(root: Path, file: str, label: str = "") -> Record:
    if label.lower().endswith(IMAGES):
        mask = root / label
        return image(root / file, file, classes=partial(class_map, mask), mark=cache.content(mask))
    return image(root / file, file, int(label) if label.lstrip("-").isdecimal() else label or None)


def class_map(path: Path) -> NDArray[Any]:
    """Return the class numbers of an image: its palette's, or its grey values."""
    picture = opened(path)
    return np.asarray(picture if picture.mode in ("P", "L", "I", "I;16") else picture.convert("L"))
