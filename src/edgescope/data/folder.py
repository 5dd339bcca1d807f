"""A folder of images: its sub-folders are the classes, as torchvision's ImageFolder reads them.

photos/cat/1.jpg photos/dog/2.png      classes cat and dog: 0 and 1, by name
photos/7/1.jpg                         class 7: names that are numbers are the labels themselves
photos/1.jpg                           no label: it serves the ranges of int8, and the agreement with fp32
photos/classes.txt                     the names of class 0, 1, 2 ..., one a line, where the order by name is wrong
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.data.base import Found, Label, Record
from edgescope.errors import UsageError
from edgescope.registry import need

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
CLASSES = "classes.txt"
RULES = ("preprocess.toml", "preprocess.json", "preprocessor_config.json")


def read(name: str) -> Found:
    """Return the images under a folder; UsageError where there are none."""
    root = Path(name)
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in IMAGES and p.is_file())
    if not files:
        raise UsageError(
            "E-DATASET-1",
            f"{root} holds no images",
            evidence=f"none of its files ends in {', '.join(IMAGES)}",
            effect="Nothing was measured",
            fix="--data FOLDER with images, a .npz, a .csv or a COCO .json (edgescope docs your-data)",
        )
    folders = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    full = {p.relative_to(root).parts[0] for p in files if p.parent != root}
    empty = [folder for folder in folders if folder not in full]
    notes = (f"class folders without an image: {', '.join(empty[:5])}",) if empty else ()
    classes = names(root, folders)
    records = [image(path, str(path.relative_to(root)), _label(path.relative_to(root))) for path in files]
    return Found(records, classes, notes, rules(root))


def _label(path: Path) -> Label:
    """Return the sub-folder that an image lies in; None for one at the top."""
    if len(path.parts) == 1:
        return None
    return int(path.parts[0]) if path.parts[0].isdecimal() else path.parts[0]


def names(root: Path, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the names of class 0, 1, 2 ...: of classes.txt, else of the folders; () where these are numbers."""
    if (root / CLASSES).is_file():
        return tuple((root / CLASSES).read_text().split("\n")[:-1])
    return () if all(folder.isdecimal() for folder in folders) else tuple(folders)


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
