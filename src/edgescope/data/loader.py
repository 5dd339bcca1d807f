"""`module:callable`: a function of yours that returns an iterable of samples or of batches; in Python any iterable.

Each item is an input, (input, label), a dict of inputs, or (dict, label): arrays, tensors or PIL images. Where an
item's labels are several, the item is a batch, as a DataLoader gives it. It is gone through once, and what it gave
lies in the cache as a .npz under its content, so that the processes that measure run none of its code.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data import npz
from edgescope.data.base import MOST, Found, content_of
from edgescope.errors import UsageError

INPUT = "input"
"""The name of an input that has none; a network with one input takes it by any name."""


def read(name: str) -> Found:
    """Return what the callable's iterable holds; UsageError where it raises or holds nothing."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # it is the user's code
        raise _failed(name, "cannot be called", error) from error
    copy = str(materialised(made, name))
    return replace(npz.read(copy), copy=copy)


def materialised(items: Iterable[Any], name: str = "the data") -> Path:
    """Return the .npz in the cache that holds the samples of an iterable; UsageError where that fails."""
    rows: list[tuple[dict[str, NDArray[Any]], Any]] = []
    try:
        for item in items:
            rows += itertools.islice(_samples(item), MOST - len(rows))
            if len(rows) >= MOST:
                break
    except Exception as error:  # it is the user's code
        raise _failed(name, f"raised after {len(rows)} samples", error) from error
    if not rows:
        raise _failed(name, "ended before its first sample", ValueError("it holds nothing"))
    return _kept(rows, name)


def _samples(item: Any) -> Iterator[tuple[dict[str, NDArray[Any]], Any]]:
    """Yield (arrays by name, label) of each sample of an item."""
    value, label = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
    if not isinstance(value, Mapping):
        value = {INPUT: value}
    arrays = {str(key): _array(array) for key, array in value.items()}
    key = next((key for key in npz.LABELS if key in arrays and label is None and len(arrays) > 1), "")
    label = arrays.pop(key) if key else label if label is None or isinstance(label, str) else _array(label)
    if label is None or isinstance(label, str) or np.ndim(label) == 0:
        yield arrays, label
        return
    for i, one in enumerate(np.asarray(label)):
        yield {name: array[i] for name, array in arrays.items()}, one


def _array(value: Any) -> NDArray[Any]:
    """Return an array of a tensor, a PIL image or anything that numpy reads."""
    if hasattr(value, "convert"):
        value = value.convert("RGB")
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _kept(rows: list[tuple[dict[str, NDArray[Any]], Any]], name: str) -> Path:
    labels = [label for _, label in rows]
    try:
        arrays = {key: np.stack([row[key] for row, _ in rows]) for key in rows[0][0]}
        if all(label is not None for label in labels):
            arrays["labels"] = np.asarray(labels)
    except (KeyError, ValueError) as error:
        raise _failed(name, "gives samples that differ in names or shapes", error) from error
    path = cache.folder("data") / f"{cache.safe(name)}-{content_of(list(arrays.values()))[:16]}.npz"
    if not path.exists():
        with cache.writing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **dict[str, Any](arrays))
    return path


def _failed(name: str, what: str, error: Exception) -> UsageError:
    return UsageError(
        "E-DATASET-13",
        f"the loader {name} {what}",
        evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
        effect="Nothing was measured",
        fix="let it give inputs, (inputs, labels) or dicts, all of one shape (edgescope docs your-data)",
    )
