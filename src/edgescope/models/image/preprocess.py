"""How a picture becomes a network's input, and every way of saying so: flags, a file, a config of timm or transformers.

    --preprocess imagenet                            a name of NAMED
    --preprocess mean=0.5,0.5,0.5,std=0.5,0.5,0.5    keys of Preprocess; several values follow one another
    --preprocess half,resize=stretch                 a name, and keys that differ
    --preprocess preprocessor_config.json            a file: transformers' or timm's config, or keys of Preprocess

What is not said follows from the shape of the input: size and number of channels.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError, closest_name, flagged, near_names
from edgescope.records.lazy import NDArray, np

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Ways of resampling, in the order of Pillow's numbers."""
RESIZES = ("crop", "stretch", "letterbox")
NAMED: Mapping[str, Mapping[str, Any]] = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "half": {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
    "unit": {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)},
    "bytes": {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "divide": 1.0},
    "caffe": {"mean": (103.939, 116.779, 123.68), "std": (1.0,) * 3, "divide": 1.0, "order": "bgr"},
    "clip": {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)},
}
"""The usual normalisations: ImageNet's statistics, -1 to 1, 0 to 1, 0 to 255, Caffe's (BGR), CLIP's."""


@dataclass(frozen=True)
class Placed:
    """Where a picture comes to lie in the input: its size after resizing, and what is cut off (or added, negative)."""

    width: int
    height: int
    left: int
    top: int


@dataclass(frozen=True)
class Preprocess:
    """Turns a picture into a network's input: resize, cut, normalise."""

    size: int | tuple[int, int] = 224
    """Height and width, or one number for both."""
    crop: float = 0.875
    """Share of the resized short side that the crop keeps."""
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """One value per channel: three for colour, one for grey."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resize: str = "crop"
    """crop: the short side, then the middle; stretch: both sides; letterbox: the long side, then a grey border."""
    interpolation: str = "bicubic"
    order: str = "rgb"
    divide: float = 255.0
    """What pixels are divided by before mean and std apply: 255, or 1 for a network that takes 0 to 255."""
    label_offset: int = 0
    """What is added to every label: 1 for a network whose class 0 is the background."""
    white: float = 0.0
    """The value that is white in pictures of more than 8 bits: 4095 for 12 bits, 1 for floats; 0 for 65535."""

    @property
    def sides(self) -> tuple[int, int]:
        """Return height and width."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def said(self) -> str:
        """Return it in words, every step of it: `224 x 224, crop 0.875, bicubic, rgb / 255, mean 0.5, std 0.5`."""
        (high, wide), several = self.sides, {k: _several(getattr(self, k)) for k in ("mean", "std")}
        cut = f"crop {self.crop:g}" if self.resize == "crop" else self.resize
        more = [f"labels {self.label_offset:+d}"] if self.label_offset else []
        more += [f"white {self.white:g}"] if self.white else []
        scale = f"{self.order} / {self.divide:g}, mean {several['mean']}, std {several['std']}"
        return ", ".join((f"{wide} x {high}", cut, self.interpolation, scale, *more))

    def placed(self, width: int, height: int) -> Placed:
        """Return where a picture of this size comes to lie."""
        high, wide = self.sides
        if self.resize == "stretch":
            return Placed(wide, high, 0, 0)
        if self.resize == "letterbox":
            scale = min(wide / width, high / height)
        else:
            short = [math.floor(side / self.crop + 1e-9) for side in (wide, high)]
            scale = max(short[0] / width, short[1] / height)
        sides = max(1, round(width * scale)), max(1, round(height * scale))  # a line of a picture stays one
        return Placed(*sides, (sides[0] - wide) // 2, (sides[1] - high) // 2)

    def cut(self, image: Any, resample: int, fill: Any) -> Any:
        """Return a PIL image resized and cut to the input's size."""
        (high, wide), at = self.sides, self.placed(*image.size)
        resized = image.resize((at.width, at.height), resample=resample)
        if at.left < 0 or at.top < 0:
            from PIL import Image

            sheet = Image.new(image.mode, (wide, high), fill)
            sheet.paste(resized, (-at.left, -at.top))
            return sheet
        return resized.crop((at.left, at.top, at.left + wide, at.top + high))

    def __call__(self, image: Any) -> NDArray[np.float32]:
        """Return float32 (channels, height, width) of a PIL image: (x/255 - mean) / std."""
        colour = len(self.mean) == 3
        fill = (114, 114, 114) if colour else 114
        plain = upright(image, self.white).convert("RGB" if colour else "L")
        cut = self.cut(plain, FILTERS.index(self.interpolation), fill)
        mean, std = np.array(self.mean, dtype=np.float32), np.array(self.std, dtype=np.float32)
        pixels = np.asarray(cut, dtype=np.float32).reshape(*self.sides, -1)
        if self.order == "bgr":
            pixels = pixels[..., ::-1]
        scaled = (pixels / np.float32(self.divide) - mean) / std
        return np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32)

    @property
    def leaves_bytes(self) -> bool:
        """Return whether pixels stay what they are: 0 to 255."""
        return self.divide == 1 and not any(self.mean) and set(self.std) == {1.0}

    def boxes(self, found: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
        """Return boxes (k, 5 or 6) of a picture in pixels of the input, without those that are cut off altogether."""
        at, (high, wide) = self.placed(width, height), self.sides
        out = found.copy()
        out[:, [0, 2]] = (found[:, [0, 2]] * (at.width / width) - at.left).clip(0, wide)
        out[:, [1, 3]] = (found[:, [1, 3]] * (at.height / height) - at.top).clip(0, high)
        return out[(out[:, 2] > out[:, 0]) & (out[:, 3] > out[:, 1])]


def _several(values: Sequence[float]) -> str:
    """Return values of channels, once where they are equal."""
    return " ".join(f"{v:g}" for v in (values if len(set(values)) > 1 else values[:1]))


def upright(image: Any, white: float = 0.0) -> Any:
    """Return a PIL image as a person sees it: turned as its camera noted, of 8 bits.

    `white` is the value that is white, 0 for 65535 of whole numbers. ValueError for floats whose white nobody says.
    """
    from PIL import Image, ImageOps

    turned = ImageOps.exif_transpose(image)
    if turned.mode[0] not in "IF":
        return turned
    if not white and turned.mode == "F":
        raise ValueError("its values are floats, and nobody says which is white")
    pixels = np.asarray(turned).astype(np.float64) * (255 / (white or 65535))
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


# -- reading it from words, files and other packages' configs --------------------------------------------------

Shape = Sequence[int]
KEYS = tuple(field.name for field in fields(Preprocess))


def sides_of(shape: Shape) -> tuple[int, tuple[int, int]] | None:
    """Return (channels, (height, width)) of an input without its batch axis, of either layout; None for no picture."""
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape[0], (shape[1], shape[2])
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], (shape[0], shape[1])
    return None


def named(name: str, shape: Shape, **differs: Any) -> Preprocess:
    """Return a normalisation of NAMED for an input of this shape."""
    return made({**NAMED[name], **differs}, shape)


def made(keys: Mapping[str, Any], shape: Shape) -> Preprocess:
    """Return the Preprocess that `keys` say, and the shape of the input for the rest; UsageError if they cannot be."""
    about = sides_of(shape)
    if about is None:
        raise _unfit(f"an input of shape {'x'.join(map(str, shape))} is no picture")
    channels, sides = about
    given = {"size": sides[0] if sides[0] == sides[1] else sides, **keys}
    for name in ("mean", "std"):
        value = given.get(name, getattr(Preprocess, name))
        value = tuple(float(v) for v in (value if isinstance(value, Sequence) else [value]))
        if len(value) == 3 and channels == 1:
            value = (sum(value) / 3,)
        given[name] = value * channels if len(value) == 1 else value
    if isinstance(given["size"], Sequence):
        high, wide = (*given["size"], *given["size"])[:2]
        given["size"] = int(high) if high == wide else (int(high), int(wide))
    try:
        found = Preprocess(**given)
    except TypeError as error:
        raise _unfit(str(error)) from error
    _checked(found, channels, sides)
    return found


def _checked(found: Preprocess, channels: int, sides: tuple[int, int]) -> None:
    rules = (
        (found.sides == sides, f"size {found.sides}, the input is {sides}"),
        (0 < found.crop <= 1, f"crop {found.crop:g} must lie between 0 and 1"),
        (len(found.mean) == channels, f"{len(found.mean)} means for {channels} channels"),
        (len(found.std) == channels, f"{len(found.std)} deviations for {channels} channels"),
        (all(found.std), "std holds 0"),
        (found.divide > 0, f"divide {found.divide:g} must be positive"),
        (found.white >= 0, f"white {found.white:g} must be positive"),
        *(
            (getattr(found, key) in words, f"{key} {getattr(found, key)} is none of {', '.join(words)}")
            for key, words in (("resize", RESIZES), ("interpolation", FILTERS), ("order", ("rgb", "bgr")))
        ),
    )
    for fits, problem in rules:
        if not fits:
            raise _unfit(problem)


def read(text: str, shape: Shape) -> Preprocess:
    """Return the Preprocess that a text says, for an input of this shape; UsageError if it says none."""
    first, _, rest = text.partition(",")
    if first in NAMED:
        return named(first, shape, **_keys(rest))
    if "=" in text:
        return made(_keys(text), shape)
    check_there(text)
    return of_file(Path(text), shape)


def check_there(text: str) -> None:
    """Raise UsageError, with the nearest names, if a word names neither a preset nor a file."""
    if not Path(text).exists():
        near = near_names(text, NAMED) or list(NAMED)[:3]
        raise _unfit(f"{text!r} is neither a name nor a file", flagged("--preprocess", near))


def beside_a_normalisation(text: str) -> dict[str, Any]:
    """Return the keys of a text that says no normalisation, so that the network's own stays; {} for one that does."""
    if "=" not in text.partition(",")[0]:
        return {}
    keys = _keys(text)
    return {} if keys.keys() & {"mean", "std", "divide"} else keys


def _keys(text: str) -> dict[str, Any]:
    """Return the keys of `size=224,mean=0.5,0.5,0.5`."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in filter(None, text.split(",")):
        key, sep, value = word.partition("=")
        if sep:
            name = key.strip()
            if name not in KEYS:
                close = closest_name(name, KEYS)
                raise _unfit(f"{name!r} is no key", f"--preprocess {close}={value}" if close else "")
        if not name:
            close = closest_name(word, NAMED)
            raise _unfit(f"{word!r} is no name", f"--preprocess {close}" if close else "")
        found.setdefault(name, []).append(value if sep else word)
    return {key: _value(key, values) for key, values in found.items()}


def _value(key: str, values: list[str]) -> Any:
    if key in ("resize", "interpolation", "order"):
        return values[0]
    try:
        numbers = [int(v) if key in ("size", "label_offset") else float(v) for v in values]
    except ValueError as error:
        raise _unfit(f"{key}={','.join(values)}: {error}") from error
    return numbers[0] if len(numbers) == 1 and key not in ("mean", "std") else tuple(numbers)


def of_file(path: Path, shape: Shape) -> Preprocess:
    """Return the Preprocess that a TOML or JSON file says."""
    data = config(path)
    if data is None:
        raise _unfit(f"{path} says nothing of preprocessing")
    return of_config(data, shape)


def config(path: Path) -> Mapping[str, Any] | None:
    """Return the table of a file that says how pictures are prepared; None if it says nothing of it."""
    try:
        text = path.read_text()
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise _unfit(f"{path} cannot be read: {error}") from error
    if not isinstance(data, Mapping):
        return None
    data = data.get("pretrained_cfg", data)  # timm's config.json
    return data if set(data) & {"mean", "std", "image_mean", "rescale_factor", "resize"} else None


def of_config(data: Mapping[str, Any], shape: Shape) -> Preprocess:
    """Return the Preprocess of a config: keys of Preprocess, timm's default_cfg, or transformers' image processor."""
    if set(data) <= set(KEYS):
        return made(data, shape)
    known = {key: data[key] for key in ("mean", "std", "interpolation") if key in data}
    if "image_mean" in data or "rescale_factor" in data:
        return made(_of_transformers(data, shape), shape)
    if known.get("interpolation") not in FILTERS:
        known.pop("interpolation", None)  # timm's `random`
    if "crop_pct" in data:
        known["crop"] = float(data["crop_pct"])
    if data.get("crop_mode") == "squash":
        known["resize"] = "stretch"
    if "resize_size" in data and "crop_size" in data:  # torchvision's ImageClassification
        known["crop"] = _side(data["crop_size"]) / _side(data["resize_size"])
    return made(known, shape)


def _of_transformers(data: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the keys of Preprocess that a preprocessor_config.json says."""
    plain = data.get("do_normalize", True)
    known: dict[str, Any] = {
        "mean": data.get("image_mean", 0.0) if plain else 0.0,
        "std": data.get("image_std", 1.0) if plain else 1.0,
        "divide": 1 / data.get("rescale_factor", 1 / 255) if data.get("do_rescale", True) else 1.0,
    }
    if data.get("resample") in range(len(FILTERS)):
        known["interpolation"] = FILTERS[data["resample"]]
    cuts = data.get("do_center_crop", "crop_size" in data or "crop_pct" in data)
    if not cuts:
        return known | {"resize": "stretch"}
    size = data.get("size", 224)
    return known | {
        "crop": data.get("crop_pct") or min(1.0, _side(data.get("crop_size", size)) / _side(size))
    }


def _side(size: Any) -> float:
    """Return the short side of a size as configs write it: 224, [224, 224], {shortest_edge: 256}."""
    if isinstance(size, Mapping):
        return float(min(size.values()))
    return float(min(size)) if isinstance(size, Sequence) else float(size)


def _unfit(problem: str, fix: str = "") -> UsageError:
    return UsageError(
        "E-PREPROCESS-1",
        f"--preprocess cannot be used: {problem}",
        evidence=f"names: {', '.join(NAMED)}; keys: {', '.join(KEYS)}",
        effect="Nothing was measured",
        fix=fix or "--preprocess mean=0.5,0.5,0.5,std=0.5,0.5,0.5",
    )


ORIENTATION = 0x0112
"""The number of the EXIF field that says how a picture is to be turned."""
#: Orientation -> where a point (x, y) of a stored picture of width w and height h comes to lie.
TURNED_POINTS: Mapping[int, Callable[[Any, Any, int, int], tuple[Any, Any]]] = {
    2: lambda x, y, w, h: (w - x, y),
    3: lambda x, y, w, h: (w - x, h - y),
    4: lambda x, y, w, h: (x, h - y),
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (h - y, x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (y, w - x),
}


def orientation(image: Any) -> int:
    """Return how a PIL image is to be turned: 1 for not at all, else a key of TURNED_POINTS."""
    found = image.getexif().get(ORIENTATION, 1)
    return found if found in TURNED_POINTS else 1


def turned_size(image: Any) -> tuple[int, int]:
    """Return the width and height of a PIL image once it is turned."""
    wide, high = image.size
    return (high, wide) if orientation(image) >= 5 else (wide, high)


def turned_boxes(found: NDArray[np.float32], image: Any) -> NDArray[np.float32]:
    """Return boxes (k, 5 or 6) that were drawn on the stored picture as they lie on the turned one."""
    turned = TURNED_POINTS.get(orientation(image))
    if turned is None:
        return found
    out = found.copy()
    one, other = (turned(found[:, a], found[:, b], *image.size) for a, b in ((0, 1), (2, 3)))
    for column, (a, b) in enumerate(zip(one, other, strict=True)):
        out[:, column], out[:, column + 2] = np.minimum(a, b), np.maximum(a, b)
    return out


def turned_map(found: NDArray[Any], image: Any) -> NDArray[Any]:
    """Return a map (height, width) of the stored picture as it lies on the turned one."""
    turned = orientation(image)
    if turned == 1:
        return found
    wide, high = turned_size(image)
    rows, columns = np.indices((high, wide))
    back = {6: 8, 8: 6}.get(turned, turned)  # the others undo themselves
    x, y = TURNED_POINTS[back](columns + 0.5, rows + 0.5, wide, high)
    moved: NDArray[Any] = found[np.floor(y).astype(int), np.floor(x).astype(int)]
    return moved
