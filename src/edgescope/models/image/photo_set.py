"""Writes data sets of real pictures to train on: crops of photographs, labelled by the photograph that they are from.

A folder of JPEG files stands for a data set that is decoded item by item (large photographs), a packed one for a data
set that is held in memory (MNIST, CIFAR). The label can be learned, so a loss that falls means something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError
from edgescope.models.image import photos
from edgescope.records import Json
from edgescope.records.lazy import NDArray, np

ABOUT = "about.json"
QUALITY = 90
"""JPEG quality: 640 x 480 pixels then take about 100 KB, as photographs on the web do."""
LEAST = 0.3
"""Least share of a photograph's shorter side that a crop covers."""


@dataclass(frozen=True)
class Recipe:
    """What to write."""

    count: int
    width: int = 640
    height: int = 480
    classes: int = 10
    packed: bool = False
    """One file of all pixels, held in memory when it is trained on, instead of a JPEG file for each picture."""
    grey: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError if nothing can be made of it."""
        known = len(photos.CALIBRATION_PHOTOS) + LABELLED
        for wrong, text in (
            (self.count < 1, f"--count must be at least 1, not {self.count}"),
            (
                min(self.width, self.height) < 8,
                f"--size must be at least 8x8, not {self.width}x{self.height}",
            ),
            (not 1 <= self.classes <= known, f"--photographs must be from 1 to {known}, not {self.classes}"),
            (self.packed and self.count * self.width * self.height > 4e9, "a packed data set of over 4 GB"),
        ):
            if wrong:
                raise UsageError(
                    "E-IMAGES-2", text, effect="Nothing was written", fix="edgescope train data --help"
                )


LABELLED = 20
"""Number of photographs in foolbox."""


def write(folder: Path, recipe: Recipe, tell: Callable[[int], None] = lambda done: None) -> dict[str, Json]:
    """Write a data set and return what it holds; a folder that holds this very one is left as it is.

    UsageError if the folder holds something else, UnavailableError if the photographs are missing. `tell` is called
    with the number of pictures written so far.
    """
    about = folder / ABOUT
    wanted = asdict(recipe)
    if about.is_file():
        found: dict[str, Json] = json.loads(about.read_text())
        if {key: found.get(key) for key in wanted} == wanted:
            return found
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            "E-IMAGES-3",
            f"{folder} is not empty",
            evidence="it holds another data set" if about.is_file() else "it holds other files",
            effect="Nothing was written",
            fix="another folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    size = (_packed if recipe.packed else _files)(folder, recipe, tell)
    facts = wanted | {"bytes": size, "origin": "crops of photographs (foolbox 3.3.4, scikit-image 0.26.0)"}
    about.write_text(json.dumps(facts, indent=1))
    return facts


def _files(folder: Path, recipe: Recipe, tell: Callable[[int], None]) -> int:
    size = 0
    for number, (crop, label) in enumerate(_crops(recipe)):
        path = folder / f"{label:03}" / f"{number:06}.jpg"
        path.parent.mkdir(exist_ok=True)
        crop.save(path, "JPEG", quality=QUALITY)
        size += path.stat().st_size
        tell(number + 1)
    return size


def _packed(folder: Path, recipe: Recipe, tell: Callable[[int], None]) -> int:
    channels = 1 if recipe.grey else 3
    shape = (recipe.count, recipe.height, recipe.width, channels)
    images = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    labels: NDArray[np.int64] = np.empty(recipe.count, np.int64)
    for number, (crop, label) in enumerate(_crops(recipe)):
        images[number] = np.asarray(crop, np.uint8).reshape(shape[1:])
        labels[number] = label
        tell(number + 1)
    images.flush()
    np.save(folder / "labels.npy", labels)
    return int(images.nbytes)


def _crops(recipe: Recipe) -> Iterator[tuple[Any, int]]:
    """Yield (picture, its label): crops of random place and size, the labels in turn."""
    from PIL import Image

    mode, rng = "L" if recipe.grey else "RGB", np.random.default_rng(recipe.seed)
    sources = [image.convert(mode) for image in _sources(recipe.classes)]
    ratio = recipe.width / recipe.height
    small = recipe.width * recipe.height < 128 * 128
    if small:  # a crop of a large photograph would cost its whole area
        for image in sources:
            image.thumbnail((256, 256))
    for number in range(recipe.count):
        image = sources[number % len(sources)]
        most = min(image.width, image.height * ratio)
        width = most * rng.uniform(LEAST, 1.0)
        x, y = rng.uniform(0, image.width - width), rng.uniform(0, image.height - width / ratio)
        box = (x, y, x + width, y + width / ratio)
        yield (
            image.resize((recipe.width, recipe.height), Image.Resampling.BILINEAR, box),
            number % len(sources),
        )


def _sources(n: int) -> Iterator[Any]:
    """Yield n photographs."""
    from PIL import Image

    found = 0
    for path in sorted(photos.located("foolbox", "data").glob("imagenet_*.jpg"))[:n]:
        yield Image.open(path)
        found += 1
    for name in photos.CALIBRATION_PHOTOS[: n - found]:
        yield Image.open(photos.located("skimage", f"data/{name}"))
