"""COCO annotations: a .json with images, annotations and categories, the images in a folder beside it.

Classes are numbered 0, 1, 2 ... in the order of their ids, as most detectors give them. Crowds are left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.data.base import Found, Record
from edgescope.data.folder import image, rules
from edgescope.errors import UsageError

FOLDERS = (".", "images", "train2017", "val2017", "..")
"""Where images may lie, seen from the .json; a folder of its own name counts, too."""


def read(name: str) -> Found:
    """Return the images of COCO annotations with their boxes; UsageError where it is none, or they are not there."""
    path = Path(name)
    try:
        about: Any = json.loads(path.read_text())
        kinds = sorted(about["categories"], key=lambda kind: kind["id"])
        number = {kind["id"]: i for i, kind in enumerate(kinds)}
        boxes = defaultdict[Any, list[list[float]]](list)
        for one in about["annotations"]:
            if not one.get("iscrowd"):
                x, y, wide, high = one["bbox"]
                boxes[one["image_id"]].append([x, y, x + wide, y + high, number[one["category_id"]]])
        images = [(one["file_name"], boxes[one["id"]]) for one in about["images"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "E-DATASET-10",
            f"{path.name} holds no COCO annotations",
            evidence=f"{type(error).__name__}: {error}",
            effect="Nothing was measured",
            fix="give a .json with images, annotations (bbox, category_id) and categories",
        ) from error
    root = _root(path, [file for file, _ in images])
    records: list[Record] = [
        image(root / file, file, boxes=np.asarray(found, dtype=np.float32).reshape(-1, 5))
        for file, found in images
    ]
    classes = tuple(str(kind.get("name", kind["id"])) for kind in kinds)
    return Found(records, classes, (), rules(path.parent))


def _root(path: Path, files: list[str]) -> Path:
    """Return the folder that holds the images."""
    places = [
        path.parent / name for name in (*FOLDERS, path.stem, f"../{path.stem.removeprefix('instances_')}")
    ]
    for place in places:
        if files and all((place / file).is_file() for file in files):
            return place
    raise UsageError(
        "E-DATASET-9",
        f"{path.name} lists files that are not there",
        evidence=f"{len(files)} images, not all in one of {', '.join(str(p) for p in places[:3])} ...",
        effect="Nothing was measured",
        fix="put the .json beside its images, or beside a folder `images` with them",
    )
