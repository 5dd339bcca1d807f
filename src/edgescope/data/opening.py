"""From a name to data: what kind it is, and its pin, so that a trial never silently means other inputs.

    FOLDER                 images (sub-folders are classes), .npy files, or what Hugging Face's `datasets` saved
    FILE.csv FILE.json     files and labels; COCO annotations
    FILE.npz               arrays by input name, and `labels`
    module:callable        a function of yours that returns an iterable
    kind:name              a kind that an installed plug-in adds

A name goes into a Trial pinned by its content, `photos#0123456789ab`; the pin covers names, labels and inputs.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope import cache, foreign
from edgescope.data.base import Found, digest_of
from edgescope.data.kinds import materialised
from edgescope.errors import UsageError
from edgescope.registry import DATA, load

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
        from edgescope.data.kinds import IMAGES

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
