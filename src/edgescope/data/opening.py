"""From a name to data: what kind it is, its pin, and how the kinds are read that need no other library.

    FOLDER                 images (sub-folders are classes), .npy files, or what Hugging Face's `datasets` saved
    FOLDER                 MNIST, CIFAR-10, CIFAR-100 or GLD-23k in their own files (wings/training/published.py)
    FILE.csv FILE.json     files and labels; COCO annotations
    FILE.npz               arrays by input name, and `labels`
    module:callable        a function of yours that returns an iterable
    kind:name              a kind that an installed plug-in adds

A name goes into a Trial pinned by its content, `photos#0123456789ab`, so that a trial never silently means other
inputs; the pin covers names, labels and inputs.

photos/cat/1.jpg photos/dog/2.png      classes cat and dog: 0 and 1, by name, as torchvision's ImageFolder reads them
photos/7/1.jpg                         class 7: names that are numbers are the labels themselves
photos/1.jpg                           no label: it serves the ranges of int8, and the agreement with fp32
photos/classes.txt                     the names of class 0, 1, 2 ..., one a line, where the order by name is wrong
photos/train/... photos/val/...        parts of a data set: the held-out one is used, which the report says

A .npz holds arrays by input name, (n, ...) each, and `labels`: (n,) class numbers or (n, height, width) class maps.
Numbers may have an axis of one, as Keras gives them, or be one-hot, (n, classes). Boxes of detection are `boxes`,
(n, most, 5): x1, y1, x2, y2 in pixels of the input, class number; rows of NaN fill up. A sixth column says which are
regions where nothing is judged (verify.measures).

`module:callable` is a function that returns an iterable of samples or of batches; in Python any iterable will do.
Each item is an input, (input, label), a dict of inputs, or (dict, label): arrays, tensors or PIL images. Where an
item's labels are several, the item is a batch, as a DataLoader gives it. It is gone through once, and what it gave
lies in the cache as a .npz under its content, so that the processes that measure run none of its code.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgescope import cache, foreign
from edgescope.data.base import MOST, Found, Label, Record, content_of, digest_of
from edgescope.errors import UnavailableError, UsageError
from edgescope.records.lazy import NDArray, np
from edgescope.registry import DATA, load, need

PIN = re.compile(r"#([0-9a-f]{12})$")
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "coco", ".npz": "npz"}
HELP = "edgescope docs your-data"


def bare(name: str) -> str:
    """Return a name without its pin."""
    return PIN.sub("", name)


def kind(name: str) -> str:
    """Return the registry's key for the kind of data that a name refers to; UsageError if it refers to nothing."""
    path, word = Path(name), name.partition(":")[0]
    exists = os.path.exists(path)  # False, too, of a name that is too long for one
    if word in DATA.plugins:
        return word
    if exists and path.is_dir():
        if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
            return "datasets"
        if recognised := next((name for name in DATA if _recognises(name, path)), ""):
            return recognised
        return "npy" if foreign.holds(path, (".npy",)) and not foreign.holds(path, IMAGES) else "folder"
    if exists and path.is_file() and path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if ":" in name and not exists:
        return "loader"
    raise UsageError(
        "E-DATASET-7",
        f"--data {name} is no data",
        evidence="no such file or folder" if not exists else f"kinds: {', '.join(DATA)}",
        effect="Nothing was measured",
        fix=f"--data FOLDER, a .csv, .npz or COCO .json, or module:callable ({HELP})",
    )


def _recognises(name: str, folder: Path) -> bool:
    """Return whether a kind of data knows a folder by its files: its module has `recognises`, and its wing is here."""
    try:
        module = sys.modules[load(DATA, name, "data").__module__]
    except UnavailableError:
        return False
    return bool(getattr(module, "recognises", lambda folder: False)(folder))


def read(name: str) -> Found:
    """Return what lies under a name, which may be pinned; UsageError if it is not what the pin says."""
    pinned = PIN.search(name)
    copy = cache.read_json(_known(pinned[1])) if pinned else None
    found = _read(copy if copy and Path(copy).is_file() else bare(name))
    if pinned and digest_of(found) != pinned[1]:
        raise UsageError(
            "E-DATASET-8",
            f"{bare(name)} does not hold what this trial was planned with",
            evidence=f"content {digest_of(found)}, planned {pinned[1]}",
            effect="Its numbers would be filed under other inputs",
            fix=f"plan again with --data {bare(name)}",
        )
    return found


@functools.lru_cache(maxsize=4)
def _read(name: str) -> Found:
    found: Found = load(DATA, kind(name), "data")(name)
    return replace(found, name=name)


def _known(digest: str) -> Path:
    """Return the note in the cache that says where a copy of the data with this pin lies."""
    return cache.folder("data") / f"copy-{digest}.json"


def pin(name: str) -> str:
    """Return `name#digest`, or '' for ''; UsageError where there is no data."""
    if not name:
        return ""
    _read.cache_clear()  # it may have changed since
    found = _read(bare(name))
    digest = digest_of(found)
    if found.copy:
        cache.write_json(_known(digest), found.copy)
    return f"{bare(name)}#{digest}"


def name_of(data: str | Path | Iterable[Any]) -> str:
    """Return the name of data: itself, or for any iterable of samples that of its copy in the cache."""
    return str(data) if isinstance(data, str | Path) else str(materialised(data))


IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
RULES = ("preprocess.toml", "preprocess.json", "preprocessor_config.json")


def read_folder(name: str) -> Found:
    """Return the images under a folder; UsageError where there are none."""
    root = Path(name)
    place = foreign.find(root, IMAGES)
    files = foreign.files(place.top, IMAGES)
    if not files:
        raise UsageError(
            "E-DATASET-1",
            f"{root} holds no images",
            evidence=f"none of its files ends in {', '.join(IMAGES)}",
            effect="Nothing was measured",
            fix="--data FOLDER with images, a .npz, a .csv or a COCO .json (edgescope docs your-data)",
        )
    full = {place.kind(path) for path in files} - {""}
    known = place.classes(root, full)
    empty = sorted({*place.kinds} - full) if full else []
    notes = (f"class folders without an image: {', '.join(empty[:5])}",) if empty else ()
    records = [image(path, str(path.relative_to(root)), known.label(place.kind(path))) for path in files]
    return Found(records, known.names, (*place.notes, *known.notes, *notes), rules(place.top) or rules(root))


def rules(root: Path) -> str:
    """Return the file in a folder that says how its images are prepared, or ''."""
    return next((str(root / name) for name in RULES if (root / name).is_file()), "")


def image(path: Path, name: str, label: Label = None, **truth: Any) -> Record:
    """Return the record of an image file."""
    return Record(name, partial(cache.content, path), partial(opened, path), label, **truth)


def opened(path: Path) -> Any:
    """Return a PIL image, decoded."""
    picture = need("PIL.Image:open", "the image reader", "pip install pillow")(path)
    picture.load()
    return picture


LABEL_KEYS = ("labels", "label", "y")
BOX_KEY = "boxes"


def read_npz(name: str) -> Found:
    """Return the rows of a .npz; UsageError where it cannot be read, or its arrays differ in length."""
    try:
        with np.load(name, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise unfit(name, f"it cannot be read: {error}") from error
    return rows(arrays, Path(name).name)


def rows(arrays: Mapping[str, NDArray[Any]], name: str) -> Found:
    """Return the rows of arrays of one length, their labels among them."""
    key = next((key for key in LABEL_KEYS if key in arrays and len(arrays) > 1), "")
    inputs = {k: v for k, v in arrays.items() if k not in (key, BOX_KEY)}
    lengths = {k: len(v) if v.ndim else 0 for k, v in arrays.items()}
    if not inputs or len(set(lengths.values())) > 1 or not min(lengths.values()):
        said = ", ".join(f"{k} {n}" for k, n in lengths.items())
        raise unfit(name, f"its arrays hold {said or 'no'} rows")
    labels, boxes = arrays.get(key), arrays.get(BOX_KEY)
    notes: tuple[str, ...] = ()
    if labels is not None:
        labels, notes = _plain(labels, key, name)
    if boxes is not None and (boxes.ndim != 3 or boxes.shape[2] not in (5, 6)):
        raise unfit(name, f"{BOX_KEY} has shape {boxes.shape}, not (n, most, 5)")
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
        numbers = [foreign.whole(word) for word in labels.tolist()]
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


UNNAMED = "input"
"""The name of an input that has none; a network with one input takes it by any name."""


def read_callable(name: str) -> Found:
    """Return what the callable's iterable holds; UsageError where it raises or holds nothing."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # it is the user's code
        raise _failed(name, "cannot be called", error) from error
    copy = str(materialised(made, name))
    return replace(read_npz(copy), copy=copy)


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
        value = {UNNAMED: value}
    arrays = {str(key): _array(array) for key, array in value.items()}
    key = next((key for key in LABEL_KEYS if key in arrays and label is None and len(arrays) > 1), "")
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
