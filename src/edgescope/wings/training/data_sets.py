"""Data sets to train a classifier on: JPEG files decoded one by one, pictures packed in memory, or arrays.

A folder of sub-folders of JPEG files is read, decoded and augmented item by item, as studies of large photographs do. A
folder with `images.npy` and `labels.npy` is held in memory, as are MNIST and CIFAR in their own files (published.py),
which knows GLD-23k's lists of photographs, too. `edgescope train data` writes both kinds.
"""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from edgescope import foreign
from edgescope.errors import UsageError
from edgescope.wings.training import medium, published
from edgescope.wings.training.loading import stage
from edgescope.wings.training.medium import MEDIA, Throttle

IMAGES, LABELS = "images.npy", "labels.npy"
"""Files of a packed data set: uint8 (n, height, width, channels), int64 (n,)."""
ENDINGS, OTHERS = (".jpg", ".jpeg"), (".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
"""Endings of what is read, and of pictures that are not."""
CUTOUT = 16
"""Side in pixels of the square that augmentation blanks."""
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Ranges of a random crop's share of the area, and of its ratio of sides."""


@dataclass(frozen=True)
class Pictures:
    """How the network takes a picture."""

    channels: int
    height: int
    width: int
    mean: Sequence[float] = (0.5,)
    std: Sequence[float] = (0.5,)

    def normalised(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """Return (channels, height, width) float32 of uint8 (height, width[, channels])."""
        tensor = torch.from_numpy(np.array(pixels)).to(torch.float32).div_(255)
        tensor = tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)
        mean, std = (torch.tensor(tuple(values))[:, None, None] for values in (self.mean, self.std))
        return (tensor - mean) / std


class Held(Dataset[Any]):
    """Arrays in memory, each sample taken as it is; `size` samples are drawn from them in turn."""

    files: Sequence[Path] = ()

    def __init__(self, inputs: NDArray[Any], labels: NDArray[np.int64], size: int) -> None:
        self.inputs, self.labels, self.size = torch.from_numpy(inputs), torch.from_numpy(labels), size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index % len(self.labels)], self.labels[index % len(self.labels)]


class Packed(Dataset[Any]):
    """Small pictures held in memory and normalised one by one."""

    files: Sequence[Path] = ()

    def __init__(
        self, folder: Path, pictures: Pictures, size: int, given: published.Packed | None = None
    ) -> None:
        self.notes: tuple[str, ...] = (given.note,) if given else ()
        self.images: NDArray[np.uint8] = given.images if given else np.load(folder / IMAGES)
        self.labels: NDArray[np.int64] = given.labels if given else np.load(folder / LABELS)
        self.pictures, self.size = pictures, min(size or len(self.labels), len(self.labels))
        self.classes = int(self.labels.max(initial=-1)) + 1
        wanted = (pictures.height, pictures.width, pictures.channels)
        if self.images.shape[1:] != wanted or len(self.images) != len(self.labels):
            raise _unfit(folder, f"it holds {self.images.shape}, the network takes {wanted}")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.pictures.normalised(self.images[index]), int(self.labels[index])

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        """Return several items: one mark for all of a minibatch, as one item takes only tens of microseconds."""
        with stage("augment"):
            return [self[index] for index in indices]


class Photographs(Dataset[Any]):
    """JPEG files, each read, decoded, cropped at random, flipped, normalised and partly blanked.

    `draft` lets the decoder scale by a power of two where the crop stays at least as large as the network's input.
    `medium` delays reads as a class of storage would; `preload` keeps the files' bytes in memory.
    """

    def __init__(
        self,
        folder: Path,
        pictures: Pictures,
        size: int = 0,
        *,
        draft: bool = False,
        medium: str = "",
        preload: bool = False,
    ) -> None:
        rows, self.notes = _rows(folder)
        chosen = rows[:: max(1, len(rows) // size)][:size] if size else rows
        self.files = [path for path, _ in chosen]
        self.labels = [label for _, label in chosen]
        self.classes = max(self.labels, default=-1) + 1
        self.pictures, self.draft = pictures, draft
        self.throttle = Throttle(MEDIA[medium]) if medium else None
        self.bytes: list[bytes] = []
        if preload:
            self.bytes = [self._read(path) for path in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with stage("read"):
            data = self.bytes[index] if self.bytes else self._read(self.files[index])
        with stage("decode"):
            picture = self._decoded(data)
        with stage("augment"):
            return self._augmented(picture), self.labels[index]

    def _read(self, path: Path) -> bytes:
        if self.throttle is not None:
            self.throttle.wait(path)
        return path.read_bytes()

    def _decoded(self, data: bytes) -> NDArray[np.uint8]:
        """Return a random crop of the picture in the network's size."""
        from PIL import Image

        wanted = self.pictures
        with Image.open(io.BytesIO(data)) as image:
            x, y, width, height = _crop(*image.size)
            across = image.width
            if self.draft:
                shrink = min(width / wanted.width, height / wanted.height)
                image.draft(image.mode, (math.ceil(image.width / shrink), math.ceil(image.height / shrink)))
            factor = image.width / across
            box = tuple(edge * factor for edge in (x, y, x + width, y + height))
            mode = "L" if wanted.channels == 1 else "RGB"
            colours = image if image.mode == mode else image.convert(mode)
            return np.asarray(
                colours.resize((wanted.width, wanted.height), Image.Resampling.BILINEAR, box), dtype=np.uint8
            )

    def _augmented(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        flip, across, down = torch.rand(3).tolist()
        tensor = self.pictures.normalised(pixels[:, ::-1] if flip < 0.5 else pixels)
        top, left = int(down * self.pictures.height), int(across * self.pictures.width)
        half = CUTOUT // 2
        tensor[..., max(0, top - half) : top + half, max(0, left - half) : left + half] = 0.0
        return tensor


def _crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Return x, y, width and height of a random crop of a picture."""
    for _ in range(10):
        area, ratio, across, down = torch.rand(4).tolist()
        area = width * height * (SCALE[0] + area * (SCALE[1] - SCALE[0]))
        aspect = math.exp(math.log(RATIO[0]) + ratio * (math.log(RATIO[1]) - math.log(RATIO[0])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(across * (width - w + 1)), int(down * (height - h + 1)), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def opened(folder: Path, pictures: Pictures, size: int, options: Mapping[str, Any]) -> Packed | Photographs:
    """Return the data set in a folder; UsageError if there is none, or it does not fit the network's input."""
    reader = published.reader(folder, foreign.TRAINING)
    given = reader() if reader else None
    if isinstance(given, published.Packed) or (folder / IMAGES).exists():
        return Packed(folder, pictures, size, given if isinstance(given, published.Packed) else None)
    found = Photographs(
        folder,
        pictures,
        size,
        draft=options["decode"] == "draft",
        medium=options["medium"] if options["medium"] != "as_is" and options["medium_by"] == "delay" else "",
        preload=bool(options["preload"]),
    )
    if not found.files:
        raise _unfit(
            folder, "no JPEG file lies in a sub-folder of it" if folder.is_dir() else "no such folder"
        )
    return found


def draft_share(folder: Path, shape: tuple[int, ...], files: int = 8) -> tuple[float, int]:
    """Return what share of the decoding time is left if the decoder scales, and the bytes of all files."""
    spent = []
    channels, height, width = shape
    pictures = Pictures(channels, height, width)
    for draft in (False, True):
        items = Photographs(folder, pictures, draft=draft)
        data = [path.read_bytes() for path in items.files[:files]]
        torch.manual_seed(0)  # the same crops both times
        for each in data:
            items._decoded(each)
        start = time.perf_counter()
        torch.manual_seed(0)
        for each in data:
            items._decoded(each)
        spent.append(time.perf_counter() - start)
    return spent[1] / spent[0], sum(path.stat().st_size for path in items.files)


def _rows(folder: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """Return (file, class number) of every photograph, classes alternating, and what is to be said of them."""
    reader = published.reader(folder, foreign.TRAINING)
    given = reader() if reader else None
    if isinstance(given, published.Listed):
        return _in_turns(given.files), (given.note,)
    return _listed(folder), _notes(folder)


def _listed(folder: Path) -> list[tuple[Path, int]]:
    """Return (file, class number) of every JPEG file; a sub-folder is a class, and classes alternate."""
    if not folder.is_dir():
        return []
    place = foreign.find(folder, ENDINGS, foreign.TRAINING)
    by_class: dict[str, list[Path]] = {}
    for path in foreign.files(place.top, ENDINGS):
        by_class.setdefault(place.kind(path), []).append(path)
    by_class.pop("", None)  # those at the top have no class
    known = place.classes(folder, by_class)
    return _in_turns(
        (path, n) for kind in by_class if (n := known.number(kind)) is not None for path in by_class[kind]
    )


def _in_turns(files: Iterable[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """Return (file, class number) with the classes alternating, so that a part of them holds all classes."""
    by_class: dict[int, list[Path]] = {}
    for path, number in files:
        by_class.setdefault(number, []).append(path)
    numbers = sorted(by_class)
    turns = itertools.zip_longest(*(by_class[number] for number in numbers))
    return [(path, n) for turn in turns for path, n in zip(turn, numbers, strict=True) if path is not None]


def _notes(folder: Path) -> tuple[str, ...]:
    """Return which part of the data set is used, and what of it is left out."""
    if not folder.is_dir():
        return ()
    place = foreign.find(folder, ENDINGS, foreign.TRAINING)
    full = {place.kind(path) for path in foreign.files(place.top, ENDINGS)} - {""}
    unread = len(foreign.files(place.top, OTHERS))
    left_out = (f"{unread} pictures that are no JPEG files are left out",) if unread else ()
    return (*place.notes, *place.classes(folder, full).notes, *left_out)


def _unfit(folder: Path, why: str) -> UsageError:
    return UsageError(
        "E-IMAGES-1",
        f"{folder} is no data set to train this network on",
        evidence=why,
        effect="Nothing was trained",
        fix=f"edgescope train data {folder} --count 1000",
    )


def in_cache(items: Any) -> float | None:
    """Return the share of a data set's files that lies in the page cache; None if it has no files."""
    files = getattr(items, "files", ())
    return medium.residency(files) if files else None
