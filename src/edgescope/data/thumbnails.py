"""Leaves what a report shows of the user's data in the cache: facts, and the first inputs as the network sees them."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.data import opening
from edgescope.data.base import Found
from edgescope.data.preprocessing import Known
from edgescope.data.samples import sides
from edgescope.models.base import Samples
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import Json, Trial
from edgescope.report import inputs
from edgescope.units import counted

FIRST, MOST_PIXELS = 8, 160


def there(trial: Trial) -> bool:
    """Return whether a report finds the facts and pictures of a trial's data."""
    return inputs.place(trial).exists()


def leave(trial: Trial, found: Found, known: Known | None, given: Samples) -> None:
    """Write the facts and pictures of a trial's data."""
    path = inputs.place(trial)
    cache.made(path.parent)
    cache.write_json(path, {"facts": _facts(trial, found, given), "pictures": _pictures(found, known, given)})


def leave_unread(trial: Trial, names: Sequence[str]) -> None:
    """Add inputs that could not be read to the facts of a trial's data, once these are there."""
    path = inputs.place(trial)
    about: Any = cache.read_json(path) or {}
    known = about.get("unread", [])
    if about and not set(names) <= set(known):
        cache.write_json(path, about | {"unread": sorted({*known, *names})})


def _facts(trial: Trial, found: Found, given: Samples) -> list[list[str]]:
    parts = sides(found)
    labelled = sum(bool(r.truth) for r in (*parts.calibration, *parts.judged))
    total = len(parts.calibration) + len(parts.judged)
    ranges = opening.bare(str(trial.options.get("calibration", len(parts.calibration))))
    left_out = (
        counted(parts.copies, "copy") if parts.copies else "",
        f"{counted(parts.doubtful, 'input')} under two labels" if parts.doubtful else "",
    )
    facts = [
        ["data", f"{opening.bare(trial.data)} ({counted(len(found.records), 'record')})"],
        [
            "inputs",
            f"{total} different ones, {labelled} with labels; {ranges} set the ranges of int8",
        ],
        ["judged on", f"{len(given)}; {given.origin}"],
        ["left out", ", ".join(filter(None, left_out))],
        ["remarks", "; ".join(found.notes)],
    ]
    return [fact for fact in facts if fact[1]]


def _pictures(found: Found, known: Known | None, given: Samples) -> list[Json]:
    """Return the first inputs as PNGs with their labels; [] where they are no pictures."""
    if known is None:
        return []
    arrays = next(iter(given.arrays.values()))
    return [
        {"png": png(seen(np.asarray(array), known.preprocess)), "caption": _caption(found, given, i)}
        for i, array in enumerate(arrays[:FIRST])
    ]


def _caption(found: Found, given: Samples, i: int) -> str:
    if given.boxes is not None:
        return counted(len(given.boxes[i]), "box")
    if given.labels is None or given.labels.ndim != 1:
        return ""
    number = int(given.labels[i])
    return f"{number} {found.classes[number]}" if 0 <= number < len(found.classes) else str(number)


def seen(array: NDArray[Any], way: Preprocess) -> NDArray[np.uint8]:
    """Return an input as pixels (height, width, channels) again: the normalisation undone, made smaller."""
    plain = array.transpose(1, 2, 0) if array.shape[0] == len(way.mean) else array
    pixels = (plain * np.array(way.std) + np.array(way.mean)) * way.divide
    if way.order == "bgr":
        pixels = pixels[..., ::-1]
    step = -(-max(pixels.shape[:2]) // MOST_PIXELS)
    small: NDArray[np.uint8] = pixels[::step, ::step].round().clip(0, 255).astype(np.uint8)
    return small


def png(pixels: NDArray[np.uint8]) -> str:
    """Return pixels (height, width, 1 or 3) as a data URI of a PNG."""
    high, wide, channels = pixels.shape
    lines = b"".join(b"\0" + np.ascontiguousarray(line).tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", wide, high, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
