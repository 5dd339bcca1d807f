"""Seeded random inputs for networks without real inputs here: untrained networks, a user's own, and the null model.

Good for timing, since the time of a dense network does not depend on the values, and for checking that two
engines compute the same function; useless for accuracy. Every sample has its own generator, so the
first n are the same for any number requested, and no two purposes share a sample.

Integers are drawn from a range that type and shape suggest. Pictures and sound fill their type: zeros and ones of uint8
are a black picture. Numbers of words, positions and classes stay small, since an embedding has no row for a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.errors import UnsupportedError
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.photos import fingerprint
from edgescope.records import ModelInfo
from edgescope.records.lazy import np

if TYPE_CHECKING:
    import torch


Range = tuple[int, int]
BIT: Range = (0, 1)
"""What integers are drawn from where nothing is known of them."""


def samples(
    specs: Sequence[TensorSpec], purpose: Purpose, n: int, *, ranges: Mapping[str, Range] | None = None
) -> Samples | None:
    """Return n random samples: standard normal floats, uniform integers within `ranges` (inclusive).

    None for LABELLED: random inputs have no labels.
    """
    if purpose is Purpose.LABELLED:
        return None
    of = tuple(specs), list(Purpose).index(purpose), range(n), tuple((ranges or {}).items())
    return Samples(
        arrays=Drawn(*of),
        digests=_digests(*of),
        origin="synthetic: seeded random numbers, not real input" + _integers(specs, ranges or {}),
        noise=True,
    )


@dataclass(frozen=True)
class Drawn(Mapping[str, "np.ndarray"]):
    """Random inputs by name, drawn when they are asked for: a gate that asks for four of 32 holds no more."""

    specs: tuple[TensorSpec, ...]
    salt: int
    rows: range
    ranges: tuple[tuple[str, Range], ...]

    def row(self, index: int) -> dict[str, np.ndarray]:
        """Return one sample, arrays of one row."""
        rng, ranges = np.random.default_rng([self.salt, index]), dict(self.ranges)
        made = {spec.name: np.empty((1, *spec.shape), np.dtype(spec.dtype)) for spec in self.specs}
        for name, one in made.items():
            _fill(one, rng, ranges.get(name, BIT))
        return made

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        many = len(self.rows)
        arrays = {spec.name: np.empty((many, *spec.shape), np.dtype(spec.dtype)) for spec in self.specs}
        for place, index in enumerate(self.rows):
            for name, one in self.row(index).items():
                arrays[name][place] = one[0]
        return arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def where(self, rows: slice) -> Drawn:
        """Return some of the samples."""
        return replace(self, rows=self.rows[rows])


@lru_cache(4)
def _digests(
    specs: tuple[TensorSpec, ...], salt: int, rows: range, ranges: tuple[tuple[str, Range], ...]
) -> tuple[str, ...]:
    """Return each sample's hash; a gate asks for its inputs to find the reference, and again to judge."""
    drawn = Drawn(specs, salt, rows, ranges)
    return tuple(fingerprint(drawn.row(index)) for index in rows)


def _fill(one: np.ndarray, rng: np.random.Generator, ends: Range) -> None:
    if one.dtype.kind == "f":
        one[:] = rng.standard_normal(one.shape, dtype=np.float32)
    else:
        one[:] = rng.integers(*ends, one.shape, endpoint=True)


def _integers(specs: Sequence[TensorSpec], ranges: Mapping[str, Range]) -> str:
    """Return what is said of inputs that are integers: `; image 0 to 255`."""
    drawn = {spec.name: ranges.get(spec.name, BIT) for spec in specs if "int" in spec.dtype}
    return "".join(f"; {name} {low} to {high}" for name, (low, high) in drawn.items())


FILLED = ("uint8", "int8", "uint16", "int16")
"""Types in which pictures and sound come, so that all of their values occur."""
PICTURE: Range = (0, 255)
PICTURE_CHANNELS = (1, 3, 4)


def usual_range(dtype: str, shape: Sequence[object], name: str = "", *, full: bool = False) -> Range:
    """Return the least and the largest integer of an input; `shape` is without the batch, `full` fills the type.

    A mask of integers is 1 throughout: one that hides everything makes attention return NaN. What is no integer has
    two values (bool) or is not drawn from a range.
    """
    if not dtype.startswith(("int", "uint")):
        return BIT
    if full or dtype in FILLED:
        about = np.iinfo(dtype)
        return int(about.min), int(about.max)
    if _pictured(shape):
        return PICTURE
    return (1, 1) if "mask" in name.lower() else BIT


def seen_range(dtype: str, shape: Sequence[object], low: int, high: int, name: str = "") -> Range:
    """Return the range of an input whose example holds `low` to `high`; an example of one value shows no range."""
    if low < high:
        return low, high
    least, most = usual_range(dtype, shape, name)
    return (low, high) if (low, high) == (1, 1) else (min(least, low), max(most, high))


def _pictured(shape: Sequence[object]) -> bool:
    return len(shape) == 3 and (shape[0] in PICTURE_CHANNELS or shape[-1] in PICTURE_CHANNELS)


class NullModel:
    """A model that takes one number and does nothing with it."""

    def __init__(self, name: str = "null", shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self.info = ModelInfo(name, "unknown", False, "nothing", digest="null", params=0, macs=0)
        self.inputs = (TensorSpec("input", (1,), "float32"),)
        self.reference = "null"

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: there is no network."""
        raise UnsupportedError(
            "E-NULL-1", "the null model has no network", fix="--backend null, or name a real model"
        )

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Raise UnsupportedError: there is no file."""
        self.module()
        return folder

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return n single numbers."""
        return samples(self.inputs, purpose, n)
