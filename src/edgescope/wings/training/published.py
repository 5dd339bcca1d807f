"""Data sets of pictures in the files that their authors publish: MNIST and its kin, CIFAR, and federated landmarks.

    train-images-idx3-ubyte, t10k-labels-idx1-ubyte ...   MNIST, Fashion-MNIST, KMNIST, EMNIST; .gz as they come, too
    data_batch_1 ... test_batch, batches.meta             CIFAR-10 for Python; train, test, meta: CIFAR-100
    data_batch_1.bin ... test_batch.bin                   CIFAR-10 in binary; train.bin, test.bin: CIFAR-100
    *.csv of user_id,image_id,class and image_id,class    GLD-23k, GLD-160k: the pictures of each user, and the test

They lie in the folder that is named, or where torchvision and the archives put them below it. The pickles of CIFAR are
read by edgescope.foreign.pickled, which runs nothing of them. The landmarks' pictures are found by their ids, in
images/ (as FedML keeps them) or in train/0/1/2/ (as the landmarks themselves come).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import foreign
from edgescope.data.base import Found, Record, content_of
from edgescope.errors import UsageError
from edgescope.foreign import pickled
from edgescope.registry import need

BELOW = (
    *("", "raw", "MNIST/raw", "FashionMNIST/raw", "KMNIST/raw", "EMNIST/raw"),
    *("cifar-10-batches-py", "cifar-100-python", "cifar-10-batches-bin", "cifar-100-binary"),
)
"""Where the files lie below the folder that is named."""
IDX = re.compile(r"(.*?)(train|t10k|test)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
IDX_BYTES = 8
"""The type of an .idx file that holds bytes without a sign."""
CIFAR_SIDE = 32
PARTS = {"train": ("train",), "t10k": ("test",), "test": ("test",)}
TABLES = {"train": {"user_id", "image_id", "class"}, "test": {"image_id", "class"}}
"""The columns of the tables of a federated set: only those who train are told apart."""
JPEGS = (".jpg", ".jpeg", ".JPG")


@dataclass(frozen=True)
class Packed:
    """Small pictures of one size, and the class of each."""

    images: NDArray[np.uint8]
    """(n, height, width, channels)."""
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    """The names of class 0, 1, 2 ...; () where labels are numbers."""
    note: str
    """The files that are used, and those that are not."""


@dataclass(frozen=True)
class Listed:
    """Files of pictures, and the class of each."""

    files: tuple[tuple[Path, int], ...]
    note: str


Set = Packed | Listed


def reader(root: Path, wanted: Sequence[str] = foreign.JUDGING) -> Callable[[], Set] | None:
    """Return the function that reads a published set in a folder; None where none lies there.

    `wanted` are the parts of a data set in the order in which they are used: train, test.
    """
    for place in (root / name for name in BELOW) if root.is_dir() else ():
        if place.is_dir():
            names = frozenset(p.name for p in place.iterdir())
            for form in (_idx, _python, _binary, _federated):
                if parts := form(place, names):
                    part = next((name for name in wanted if name in parts), next(iter(parts)))
                    return partial(_read, root, parts, part)
    return None


def _read(root: Path, parts: dict[str, Callable[[], Set]], part: str) -> Set:
    try:
        found = parts[part]()
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise _damaged(root, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}") from error
    rest = [name for name in parts if name != part]
    note = f"{found.note} ({part}) is used" + (f", and not the part {rest[0]}" if rest else "")
    if isinstance(found, Packed):
        return Packed(found.images, found.labels, found.classes, note)
    return Listed(found.files, note)


def recognises(folder: Path) -> bool:
    """Return whether a published set lies in a folder."""
    return reader(folder) is not None


def read(name: str) -> Found:
    """Return the records of a published set, of its test part where it has one."""
    given = reader(Path(name))
    assert given is not None
    found = given()
    if isinstance(found, Listed):
        from edgescope.data.opening import image

        return Found([image(path, path.name, label) for path, label in found.files], (), (found.note,))
    rows = zip(found.images, found.labels.tolist(), strict=True)
    return Found(
        [
            Record(f"picture {i}", partial(content_of, [pixels]), partial(_picture, pixels), label)
            for i, (pixels, label) in enumerate(rows)
        ],
        found.classes,
        (found.note,),
    )


def _picture(pixels: NDArray[np.uint8]) -> Any:
    made = need("PIL.Image:fromarray", "the image reader", "pip install pillow")
    return made(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _damaged(root: Path, why: str) -> UsageError:
    return UsageError(
        "E-DATASET-18",
        f"the published data set in {root} cannot be read",
        evidence=why,
        effect="Nothing was measured",
        fix="copy or unpack its files again",
    )


# -- MNIST's files


def _idx(place: Path, names: frozenset[str]) -> dict[str, Callable[[], Set]]:
    """Return the parts of a set of .idx files: images and labels beside each other."""
    found: dict[str, dict[str, Path]] = {}
    for name in sorted(names, reverse=True):  # the file without .gz comes last and is taken
        if match := IDX.fullmatch(name):
            found.setdefault(match[1] + match[2], {})[match[3]] = place / name
    sets = {key.removesuffix(part) for key in found for part in PARTS if key.endswith(part)}
    if len(sets) > 1:
        raise UsageError(
            "E-DATASET-19",
            f"{place} holds several data sets",
            evidence=", ".join(sorted(sets)),
            effect="It is not known which of them is meant",
            fix="put the files of one of them into a folder of its own",
        )
    return {
        PARTS[next(part for part in PARTS if key.endswith(part))][0]: partial(_pairs, files)
        for key, files in found.items()
        if len(files) == len(("images", "labels"))
    }


def _pairs(files: dict[str, Path]) -> Packed:
    images, labels = _array(files["images"]), _array(files["labels"])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(f"{files['images'].name} holds {images.shape}, its labels {labels.shape}")
    return Packed(images[..., None], labels.astype(np.int64), (), files["images"].name)


def _array(path: Path) -> NDArray[np.uint8]:
    """Return what an .idx file holds; ValueError where its length is not what its head says."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    axes = data[3] if len(data) > 3 else 0
    if data[:3] != bytes((0, 0, IDX_BYTES)) or len(data) < 4 + 4 * axes or not axes:
        raise ValueError(f"{path.name} does not begin as a file of bytes in idx does")
    shape = np.frombuffer(data, ">u4", axes, 4).tolist()
    if math.prod(shape) != len(data) - 4 - 4 * axes:
        raise ValueError(f"{path.name} says {shape} and holds {len(data) - 4 - 4 * axes} bytes")
    return np.frombuffer(data, np.uint8, -1, 4 + 4 * axes).reshape(shape)


# -- CIFAR's files


def _python(place: Path, names: frozenset[str]) -> dict[str, Callable[[], Set]]:
    """Return the parts of CIFAR-10 or CIFAR-100 as pickles."""
    if "batches.meta" in names:
        parts, meta = _batches(names, ""), ("batches.meta", "label_names", "labels")
    elif {"meta", "train", "test"} <= names and (place / "train").is_file():
        parts, meta = {"train": ["train"], "test": ["test"]}, ("meta", "fine_label_names", "fine_labels")
    else:
        return {}
    return {part: partial(_pickles, place, files, *meta) for part, files in parts.items()}


def _batches(names: frozenset[str], ending: str) -> dict[str, list[str]]:
    several = sorted(n for n in names if re.fullmatch(rf"data_batch_\d+{ending}", n))
    parts = {"train": several, "test": [n for n in (f"test_batch{ending}",) if n in names]}
    return {part: files for part, files in parts.items() if files}


def _pickles(place: Path, files: Sequence[str], meta: str, names: str, key: str) -> Packed:
    rows = [pickled.read(place / file) for file in files]
    known = pickled.read(place / meta)
    labels = np.array([label for row in rows for label in row[key]], dtype=np.int64)
    return _cifar(np.concatenate([row["data"] for row in rows]), labels, known[names], place)


def _cifar(data: NDArray[Any], labels: NDArray[np.int64], names: Sequence[str], place: Path) -> Packed:
    """Return pictures of rows of 3 x 32 x 32 bytes; ValueError where they are none."""
    side = CIFAR_SIDE
    if data.dtype != np.uint8 or data.shape != (len(labels), 3 * side * side):
        raise ValueError(f"it holds {data.dtype} {data.shape} and {len(labels)} labels")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise ValueError(f"its labels go to {labels.max()}, and {len(names)} classes have names")
    pictures = data.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
    return Packed(np.ascontiguousarray(pictures), labels, tuple(map(str, names)), place.name)


def _binary(place: Path, names: frozenset[str]) -> dict[str, Callable[[], Set]]:
    """Return the parts of CIFAR-10 (a byte of label before each picture) or CIFAR-100 (two, the second is fine)."""
    if "batches.meta.txt" in names:
        parts, words, before = _batches(names, r".bin"), "batches.meta.txt", 1
    elif {"fine_label_names.txt", "train.bin", "test.bin"} <= names:
        parts, words, before = {"train": ["train.bin"], "test": ["test.bin"]}, "fine_label_names.txt", 2
    else:
        return {}
    return {part: partial(_bytes, place, files, words, before) for part, files in parts.items()}


def _bytes(place: Path, files: Sequence[str], words: str, before: int) -> Packed:
    data = np.concatenate([np.fromfile(place / file, np.uint8) for file in files])
    rows = data.reshape(-1, before + 3 * CIFAR_SIDE**2)
    names = [line for line in foreign.lines(place / words) if line]
    return _cifar(rows[:, before:], rows[:, before - 1].astype(np.int64), names, place)


# -- landmarks, split for federated learning


def _federated(place: Path, names: frozenset[str]) -> dict[str, Callable[[], Set]]:
    """Return the parts of a set of landmarks: a table with users is of training, one without is of the test."""
    found: dict[str, list[Path]] = {}
    for path in (place / name for name in sorted(names) if name.endswith(".csv")):
        with path.open("rb") as file:
            words = foreign.decoded(file.readline(200)).strip().split(",")
        if set(words) in TABLES.values():
            part = next(part for part, columns in TABLES.items() if columns == set(words))
            found.setdefault(part, []).append(path)
    if "train" not in found:
        return {}
    several = next((paths for paths in found.values() if len(paths) > 1), ())
    if several:
        raise UsageError(
            "E-DATASET-19",
            f"{place} holds several data sets",
            evidence=", ".join(path.name for path in several),
            effect="It is not known which of them is meant",
            fix="put the tables of one of them into a folder of its own, beside a link to the pictures",
        )
    return {part: partial(_landmarks, paths[0]) for part, paths in found.items()}


def _landmarks(table: Path) -> Listed:
    """Return the pictures that a table lists and that are there; ValueError where none is."""
    rows = [(row["image_id"], int(row["class"])) for row in csv.DictReader(io.StringIO(foreign.read(table)))]
    found = [(_place(table.parent, key), label) for key, label in rows]
    there = tuple((path, label) for path, label in found if path is not None)
    if not there:
        raise ValueError(f"none of the {len(rows)} pictures of {table.name} is in images/ or train/")
    gone = len(rows) - len(there)
    return Listed(there, f"{table.name}, of which {gone} pictures are not there," if gone else table.name)


def _place(root: Path, key: str) -> Path | None:
    """Return the file of a picture by its id; None where there is none."""
    split = "/".join(key[:3])
    for folder in ("images", f"train/{split}", f"images/{split}", ""):
        for base in (root, root.parent):
            for ending in JPEGS:
                path = base / folder / f"{key}{ending}"
                if "/" not in key and path.is_file():
                    return path
    return None
