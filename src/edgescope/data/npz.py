"""A .npz: arrays by input name, (n, ...) each, and `labels`: (n,) class numbers or (n, height, width) class maps.

Numbers may have an axis of one, as Keras gives them, or be one-hot, (n, classes). Boxes of detection are `boxes`,
(n, most, 5): x1, y1, x2, y2 in pixels of the input, class number; rows of NaN fill up. A sixth column says which are
regions where nothing is judged (verify.measures.mean_ap).
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
from edgescope.foreign import text

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
    notes: tuple[str, ...] = ()
    if labels is not None:
        labels, notes = _plain(labels, key, name)
    if boxes is not None and (boxes.ndim != 3 or boxes.shape[2] not in (5, 6)):
        raise unfit(name, f"{BOXES} has shape {boxes.shape}, not (n, most, 5)")
    return Found(
        [_record(inputs, labels, boxes, i, name) for i in range(next(iter(lengths.values())))],
        _classes(labels),
        notes,
    )


def _plain(labels: NDArray[Any], key: str, name: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return labels as (n,) numbers or names, or as maps of classes, and what was done to them.

    UsageError where they are none of these.
    """
    given = labels.shape
    if labels.ndim > 1 and labels.dtype.kind in "iufb" and 1 in given[1:]:
        labels = labels.reshape(given[0], *(n for n in given[1:] if n != 1))  # (n, 1); a map with one channel
    if labels.ndim == 2 and _one_hot(labels):
        return labels.argmax(axis=1), (
            f"{key} of shape {given} are one-hot: the place of the 1 is the class",
        )
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "U" and labels.ndim == 1:
        numbers = [text.whole(word) for word in labels.tolist()]
        labels = labels if None in numbers else np.array(numbers)
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == labels.round()).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUb":
        raise unfit(name, f"{key} holds {labels.dtype}, not class numbers")
    if labels.ndim not in (1, 3) or (labels.ndim == 3 and labels.dtype.kind == "U"):
        said = f"{key} of shape {given} are neither class numbers, one-hot nor maps of classes"
        return labels, (f"{said}: only a measure of your own can read them",)
    return labels, ()


def _one_hot(labels: NDArray[Any]) -> bool:
    """Return whether each row holds one 1 among zeros."""
    plain = labels.dtype.kind in "iufb" and labels.shape[1] > 1 and bool(np.isin(labels, (0, 1)).all())
    return plain and bool((labels.sum(axis=1) == 1).all())


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
