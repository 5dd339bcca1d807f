"""COCO annotations: ids written in other ways or without a partner, boxes that are none, files that are not there."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_foreign import Told
from PIL import Image

from edgescope.data import coco

MOST, FILES = 60, 6
KINDS = (1, 3, 7, 90)
#: Fields with which an annotation cannot be used.
BAD: tuple[dict[str, Any], ...] = (
    *({"category_id": 8}, {"category_id": None}, {"category_id": [1]}, {"category_id": "cat"}),
    *({"image_id": 10**9}, {"image_id": None}, {"image_id": {}}, {"image_id": True}, {"image_id": "x"}),
    *({"bbox": None}, {"bbox": []}, {"bbox": [1, 2, 3]}, {"bbox": [1, 2, 0, 4]}, {"bbox": [1, 2, -3, 4]}),
    *({"bbox": "1 2 3 4"}, {"bbox": [1, 2, "x", 4]}, {"bbox": {"x": 1}}, {"bbox": [1, 2, float("nan"), 4]}),
    *(
        {"bbox": [1e308, 2, float("inf"), 4]},
        {"bbox": 7},
        {"bbox": [[1], 2, 3, 4]},
        {"bbox": [1, 2, 10**400, 4]},
    ),
)
#: Fields that are odd, and take nothing from the annotation.
STRANGE: tuple[dict[str, Any], ...] = (
    *({"iscrowd": 1}, {"iscrowd": "0"}, {"iscrowd": None}, {"ignore": 1}, {"difficult": True}),
    *({"area": "many"}, {"id": None}, {"id": [1]}, {"segmentation": 5}, {"segmentation": []}, {"score": "é"}),
)
RUBBISH = ('"', "\\", "}", "]", ",", "{", ":", "\0", "nan", "\ud800")


def attempt(rng: random.Random, folder: Path) -> Told:
    """Write annotations of up to MOST boxes, read them; the sound ones must be there with their corners."""
    images = [{"id": i * 7, "file_name": f"{rng.randrange(FILES)}.png"} for i in range(rng.randint(1, 12))]
    rows, sound = list[dict[str, Any]](), list[tuple[float, ...]]()
    for number in range(rng.randint(1, MOST)):
        row, corners = _row(rng, number, len(images))
        rows.append(row)
        sound += [corners] if corners else []
    kinds = [{"id": _spelt(rng, kind), "name": str(kind)} for kind in KINDS]
    text = json.dumps({"images": images, "annotations": rows, "categories": kinds})
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(RUBBISH) + text[at + 1 :]
        sound = []  # whatever was hit
    path = folder / "a.json"
    path.write_bytes(text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")), "surrogatepass"))
    _files(folder)
    found = coco.read(str(path))
    got = sorted(tuple(box[:5]) for record in found.records for box in record.boxes.tolist())
    for corners in sound:
        assert corners in got, f"{corners} is not among {got[:5]}"
    left_out = re.search(r"of \d+ annotations? left out: (.*?)(?:;|$)", " ".join(found.notes))
    noted = sum(map(int, re.findall(r"(\d+) (?:of|without)", left_out[1]))) if left_out else 0
    return Told(len(rows) if sound else 0, len(got), noted, len(sound))


def _row(rng: random.Random, number: int, images: int) -> tuple[dict[str, Any], tuple[float, ...] | None]:
    """Return an annotation, and its corners and class if it can be used."""
    x, y, wide, high = (rng.randint(0, 8), rng.randint(0, 8), rng.randint(1, 9), rng.randint(1, 9))
    kind = rng.choice(KINDS)
    row: dict[str, Any] = {"id": number, "bbox": [x, y, wide, high]}
    row |= {"image_id": _spelt(rng, rng.randrange(images) * 7), "category_id": _spelt(rng, kind)}
    if rng.random() < 0.3:
        row |= rng.choice(STRANGE)
    if rng.random() < 0.1:
        return row | rng.choice(BAD), None
    if rng.random() < 0.1:
        del row["bbox"]
        row["segmentation"] = [[x, y, x + wide, y, x + wide, y + high], [x, y + high, x, y, x + wide, y]]
    return row, (x, y, x + wide, y + high, KINDS.index(kind))


def _spelt(rng: random.Random, number: int) -> int | str | float:
    return rng.choice((number, number, str(number), float(number), f" {number}", f"{number:03}"))


def _files(folder: Path) -> None:
    for i in range(FILES):
        if not (folder / f"{i}.png").exists():
            Image.fromarray(np.full((4, 4), i, np.uint8)).save(folder / f"{i}.png")
