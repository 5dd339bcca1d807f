"""A .npz: arrays by input name, (n, ...) each, and `labels`: (n,) class numbers or (n, height, width) class maps.

Boxes of detection are `boxes`, (n, most, 5): x1, y1, x2, y2 in pixels of the input, class number; rows of NaN fill up.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.data.base import Found, Record, content_of
from edgescope.errors import UsageError

LABELS = ("labels", "label", "y")
BOXES = "boxes"


def read(name: str) -> Found:
    """Return the rows of a .npz; UsageError where it cannot be read, or its arrays differ in length."""
    try:
        with np.load(name, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise unfit(name, f"it cannot be read: {error}") from error
    return rows(arrays, Path(name).name)


def rows(arrays: Mapping[str, NDArray[Any]], name: str) -> Found:
    """Return the rows of arrays of one length, their labels among them."""
    key = next((key for key in LABELS if key in arrays and len(arrays) > 1), "")
    inputs = {k: v for k, v in arrays.items() if k not in (key, BOXES)}
    lengths = {k: len(v) if v.ndim else 0 for k, v in arrays.items()}
    if not inputs or len(set(lengths.values())) > 1 or not min(lengths.values()):
        said = ", ".join(f"{k} {n}" for k, n in lengths.items())
        raise unfit(name, f"its arrays hold {said or 'no'} rows")
    labels, boxes = arrays.get(key), arrays.get(BOXES)
    if labels is not None and labels.dtype.kind not in "iuUb":
        raise unfit(name, f"{key} holds {labels.dtype}, not class numbers")
    return Found(
        [_record(inputs, labels, boxes, i, name) for i in range(next(iter(lengths.values())))],
        _classes(labels),
    )


def _classes(labels: NDArray[Any] | None) -> tuple[str, ...]:
    return tuple(map(str, np.unique(labels))) if labels is not None and labels.dtype.kind == "U" else ()


def _record(
    inputs: Mapping[str, NDArray[Any]],
    labels: NDArray[Any] | None,
    boxes: NDArray[Any] | None,
    i: int,
    name: str,
) -> Record:
    row = {key: array[i] for key, array in inputs.items()}
    label: Any = None if labels is None else labels[i]
    found = None if boxes is None else boxes[i][np.isfinite(boxes[i]).all(axis=1)].astype(np.float32)
    record = partial(
        Record, f"row {i} of {name}", partial(content_of, list(row.values())), lambda: row, boxes=found
    )
    if np.ndim(label):
        return record(classes=lambda: label, mark=content_of([label]))
    return record(None if label is None else label.item())


def unfit(name: str, why: str) -> UsageError:
    """Return the error for arrays that are no data set."""
    return UsageError(
        "E-DATASET-11",
        f"{Path(name).name} is no data set",
        evidence=why,
        effect="Nothing was measured",
        fix="numpy.savez(file, INPUT=array of (n, ...), labels=array of (n,))",
    )
