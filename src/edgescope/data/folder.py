"""A folder of images: its sub-folders are the classes, as torchvision's ImageFolder reads them.

photos/cat/1.jpg photos/dog/2.png      classes cat and dog: 0 and 1, by name
photos/7/1.jpg                         class 7: names that are numbers are the labels themselves
photos/1.jpg                           no label: it serves the ranges of int8, and the agreement with fp32
photos/classes.txt                     the names of class 0, 1, 2 ..., one a line, where the order by name is wrong
photos/train/... photos/val/...        parts of a data set: the held-out one is used, which the report says
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.data.base import Found, Label, Record
from edgescope.errors import UsageError
from edgescope.foreign import folders
from edgescope.registry import need

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
RULES = ("preprocess.toml", "preprocess.json", "preprocessor_config.json")


def read(name: str) -> Found:
    """Return the images under a folder; UsageError where there are none."""
    root = Path(name)
    place = folders.find(root, IMAGES)
    files = folders.files(place.top, IMAGES)
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
