"""A user's own calibration inputs from a folder: images for the int8 ranges, prepared as the network takes them.

    *.jpg *.jpeg *.png   prepared as the network wants images: as the zoo knows it, or as `preprocess.json` in the
                         folder says: {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "crop": 0.875}
    *.npy                an array of one input as the network takes it, without the batch axis

Subfolders count; other files do not. If there are many files, an even selection is read, each content once, in the
order of the contents' hashes, which does not depend on names. A folder goes into a Trial pinned by its content
(`FOLDER#0123456789ab`), so that a trial never silently means other images.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Model, Samples, SeesImages, TensorSpec
from edgescope.models.image.photos import fingerprint
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import digest
from edgescope.registry import need

IMAGES = (".jpg", ".jpeg", ".png")
KINDS = (*IMAGES, ".npy")
MOST = 96
"""Most files read from a folder; a pin covers their content and the names of all files."""
RULES = "preprocess.json"
PIN = re.compile(r"#([0-9a-f]{12})$")


def pin(name: str) -> str:
    """Return `FOLDER#digest` of a folder, replacing an old pin; UsageError if it is no folder or holds no inputs."""
    bare = PIN.sub("", name)
    return f"{bare}#{_content(Path(bare))}"


def pinned(name: str) -> bool:
    """Return whether a folder's name carries a pin."""
    return PIN.search(name) is not None


def samples(name: str, model: Model, n: int) -> Samples:
    """Return up to n inputs for `model` from `FOLDER` or `FOLDER#digest`: arrays (n, ...) by input name.

    UsageError if there is no such folder, no input in it or it is not the pinned one; UnsupportedError if a file
    cannot be read or has another shape, or if its image preprocessing is not known.
    """
    bare, found = PIN.sub("", name), PIN.search(name)
    if found and _content(Path(bare)) != found[1]:
        raise UsageError(
            "E-INT8-12",
            f"the folder {bare} does not hold what this trial was planned with",
            evidence=f"content {_content(Path(bare))}, planned {found[1]}",
            effect="Its numbers would be filed under other calibration inputs",
            fix=f"plan again with {pin(bare)}",
        )
    if len(model.inputs) != 1:
        raise UnsupportedError(
            "E-INT8-9",
            f"{model.info.name} takes {len(model.inputs)} inputs; a folder holds one a file",
            fix="let the model's samples() return inputs for Purpose.CALIBRATION",
        )
    spec = model.inputs[0]
    rows = [_row(path, spec, model, Path(bare)) for path in _chosen(Path(bare))[:n]]
    return Samples(
        arrays={spec.name: np.stack(rows)},
        digests=tuple(fingerprint({"": row}) for row in rows),
        origin=f"the user's folder {Path(bare).name}#{_content(Path(bare))}",
    )


def _files(folder: Path) -> list[Path]:
    """Return the input files under a folder, sorted; UsageError if there are none."""
    everything = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    found = [path for path in everything if path.suffix.lower() in KINDS]
    if not found:
        state = f"{len(everything)} files" if folder.is_dir() else "no such folder"
        raise UsageError(
            "E-INT8-5",
            f"{folder} holds no calibration inputs",
            evidence=f"{state}, none ends in {', '.join(KINDS)}",
            effect="int8 ranges would be guesses",
            fix="--option calibration=FOLDER with images as the network will see them",
        )
    return found


def _chosen(folder: Path) -> list[Path]:
    """Return the files to read: an even selection of the sorted list, each content once, ordered by its hash."""
    files = _files(folder)
    step = max(1.0, len(files) / MOST)
    some = [files[int(i * step)] for i in range(min(MOST, len(files)))]
    return [path for _, path in sorted({cache.content(path): path for path in some}.items())]


def _content(folder: Path) -> str:
    """Return 12 hex digits over the names of all inputs, the content of those read, and the preprocessing rules."""
    rules = folder / RULES
    names = [str(path.relative_to(folder)) for path in _files(folder)]
    contents = [cache.content(path) for path in _chosen(folder)]
    return digest([names, contents, cache.content(rules) if rules.exists() else ""])[:12]


def _row(path: Path, spec: TensorSpec, model: Model, folder: Path) -> NDArray[Any]:
    """Return one input of the shape and type that the network takes."""
    try:
        row = (
            np.load(path, allow_pickle=False)
            if path.suffix.lower() == ".npy"
            else _image(path, model, folder)
        )
    except (OSError, ValueError, EOFError, SyntaxError) as error:  # Pillow raises the last for a bad PNG
        raise UnsupportedError(
            "E-INT8-6",
            f"the calibration input {path.name} cannot be read",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            effect="Nothing was quantised",
            fix=f"mend or remove {path}",
        ) from error
    if row.shape != spec.shape or (row.dtype.kind in "fc") != (np.dtype(spec.dtype).kind in "fc"):
        raise UnsupportedError(
            "E-INT8-7",
            f"the calibration input {path.name} does not fit {model.info.name}",
            evidence=f"it is {row.dtype} {row.shape}, the network takes {spec.dtype} {spec.shape}",
            fix="save arrays as the network takes them, without the batch axis",
        )
    return np.ascontiguousarray(row, dtype=spec.dtype)


def _image(path: Path, model: Model, folder: Path) -> NDArray[np.float32]:
    prepare = _preprocess(model, folder)
    opened = need("PIL.Image:open", "the image reader", "pip install pillow")
    with opened(path) as image:
        return prepare(image)


def _preprocess(model: Model, folder: Path) -> Callable[[Any], NDArray[np.float32]]:
    """Return the network's preprocessing: the folder's rules, else the model's own."""
    rules = cache.read_json(folder / RULES) if (folder / RULES).exists() else None
    if rules is None and isinstance(model, SeesImages):
        return model.preprocess
    shape = model.inputs[0].shape
    keys = {"mean", "std", "crop"}
    square = len(shape) == 3 and shape[0] == 3 and shape[1] == shape[2]
    if not (square and isinstance(rules, dict) and {"mean", "std"} <= set(rules) <= keys):
        raise UnsupportedError(
            "E-INT8-9",
            f"the image preprocessing of {model.info.name} is not known",
            evidence=f"it takes {shape}" + ("" if rules is None else f"; {RULES} says {rules}"),
            effect="Ranges found on wrongly prepared images would be wrong",
            fix=f'write {folder / RULES}: {{"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}} for square RGB'
            " images, or give .npy arrays as the network takes them",
        )
    mean, std = (tuple(float(value) for value in rules[key]) for key in ("mean", "std"))
    return Preprocess(shape[-1], float(rules.get("crop", 0.875)), mean, std)
