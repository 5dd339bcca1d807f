"""A folder of .npy files, one sample a file without the batch axis; sub-folders are classes, as of images.

For a network with several inputs each sample is a folder: `0001/ids.npy`, `0001/mask.npy`, named as the inputs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data.base import Found, Label, Record
from edgescope.data.folder import rules
from edgescope.foreign import folders
from edgescope.records import digest

ARRAYS = (".npy",)


def read(name: str) -> Found:
    """Return the samples under a folder of .npy files."""
    root = Path(name)
    by_folder = {p: folders.inside(p, ARRAYS) for p in {p.parent for p in folders.files(root, ARRAYS)}}
    same = {tuple(sorted(p.name for p in files)) for files in by_folder.values()}
    if root not in by_folder and len(by_folder) > 1 and len(same) == 1 and len(next(iter(same))) > 1:
        return Found([_several(p, by_folder[p], root) for p in sorted(by_folder)], (), (), rules(root))
    place = folders.find(root, ARRAYS)
    files = folders.files(place.top, ARRAYS)
    known = place.classes(root, {place.kind(path) for path in files} - {""})
    records = [_one(path, root, known.label(place.kind(path))) for path in files]
    return Found(records, known.names, (*place.notes, *known.notes), rules(place.top) or rules(root))


def _several(folder: Path, paths: list[Path], root: Path) -> Record:
    files = {path.stem: path for path in sorted(paths)}
    return Record(
        str(folder.relative_to(root)), partial(_content, list(files.values())), partial(_all, files)
    )


def _content(files: list[Path]) -> str:
    return digest([cache.content(path) for path in files])


def _all(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, allow_pickle=False) for name, path in files.items()}


def _one(path: Path, root: Path, label: Label) -> Record:
    load = partial(np.load, path, allow_pickle=False)
    return Record(str(path.relative_to(root)), partial(cache.content, path), load, label)
