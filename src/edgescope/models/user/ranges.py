"""Which integers a random input of a user's network is drawn from, where nothing but its type and shape is known.

Pictures and sound fill their type: zeros and ones of uint8 are a black picture. Numbers of words, positions and
classes stay small, since an embedding has no row for a large one.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.records.lazy import np

Range = tuple[int, int]
SAMPLED = ("uint8", "int8", "uint16", "int16")
"""Types in which pictures and sound come, so that all of their values occur."""
PICTURE: Range = (0, 255)
SMALL: Range = (0, 1)
CHANNELS = (1, 3, 4)


def usual(dtype: str, shape: Sequence[object], name: str = "", *, full: bool = False) -> Range:
    """Return the least and the largest integer of an input; `shape` is without the batch, `full` fills the type.

    A mask of integers is 1 throughout: one that hides everything makes attention return NaN. What is no integer has
    two values (bool) or is not drawn from a range.
    """
    if not dtype.startswith(("int", "uint")):
        return SMALL
    if full or dtype in SAMPLED:
        about = np.iinfo(dtype)
        return int(about.min), int(about.max)
    if _pictured(shape):
        return PICTURE
    return (1, 1) if "mask" in name.lower() else SMALL


def seen(dtype: str, shape: Sequence[object], low: int, high: int, name: str = "") -> Range:
    """Return the range of an input whose example holds `low` to `high`; an example of one value shows no range."""
    if low < high:
        return low, high
    least, most = usual(dtype, shape, name)
    return (low, high) if (low, high) == (1, 1) else (min(least, low), max(most, high))


def _pictured(shape: Sequence[object]) -> bool:
    return len(shape) == 3 and (shape[0] in CHANNELS or shape[-1] in CHANNELS)
