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
from edgescope.data.base import Found, Record
from edgescope.data.folder import names, rules
from edgescope.records import digest


def read(name: str) -> Found:
    """Return the samples under a folder of .npy files."""
    root = Path(name)
    files = sorted(root.rglob("*.npy"))
    parents = {path.parent for path in files}
    same = {tuple(sorted(p.name for p in parent.glob("*.npy"))) for parent in parents}
    if root not in parents and len(parents) > 1 and len(same) == 1 and len(next(iter(same))) > 1:
        return Found([_several(parent, root) for parent in sorted(parents)], (), (), rules(root))
    folders = sorted({path.relative_to(root).parts[0] for path in files if path.parent != root})
    return Found([_one(path, root) for path in files], names(root, folders), (), rules(root))


def _several(folder: Path, root: Path) -> Record:
    files = {path.stem: path for path in sorted(folder.glob("*.npy"))}
    return Record(
        str(folder.relative_to(root)), partial(_content, list(files.values())), partial(_all, files)
    )


def _content(files: list[Path]) -> str:
    return digest([cache.content(path) for path in files])


def _all(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, allow_pickle=False) for name, path in files.items()}


def _one(path: Path, root: Path) -> Record:
    inside = path.relative_to(root)
    word = inside.parts[0] if len(inside.parts) > 1 else ""
    label = int(word) if word.isdecimal() else word or None
    return Record(
        str(inside), partial(cache.content, path), partial(np.load, path, allow_pickle=False), label
    )
