"""The JSON files trtexec writes: times of every query, profile of every layer, output tensors.

Numbers are printed with six significant digits, so a time of 5 s after the start is known to 10 us only, one of 12 s to
100 us; durations in the same row were taken before printing and keep their digits. Until 8.2 the times of the warm-up
are in the file as well. Names changed once:

    until 8.2    startInMs endInMs startOutMs endOutMs inMs outMs          endToEndMs
    since        startH2dMs endH2dMs startD2hMs endD2hMs h2dMs d2hMs       (endToEndMs until 8.4)

`startEnqMs` is taken after the input copies were enqueued, just before the network is. If transfers are left out, the
H2D and D2H times are the begin and end of the compute. Source: samples/common/sampleReporting.cpp and
sampleInference.cpp of github.com/NVIDIA/TensorRT.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import DeviceError
from edgescope.foreign.trtexec import COLUMNS
from edgescope.records import Json

_BARE = re.compile(r"(?<=[\[,:\s])(-?)(?:nan|inf)(?=[,\]\s}])")
#: A file longer than this is not an export of a benchmark; reading it would only exhaust the memory.
LONGEST = 1 << 30


@dataclass(frozen=True)
class LayerTime:
    """Time of one layer in the profiled run: mean and median in seconds, and its share of the sum."""

    name: str
    mean_s: float
    median_s: float | None
    share: float


def times(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the columns of --exportTimes in milliseconds, one row per query in order of their start.

    DeviceError E-TRTX-4 if the file is missing, cut short, or holds anything but finite times.
    """
    rows = _list(path)
    if not rows:
        raise _damaged(path, "it holds no query")
    try:
        found = {name: _column(rows, names) for name, names in COLUMNS.items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not all(np.isfinite(column).all() for column in found.values()):
        raise _damaged(path, "a time is not finite")
    if (found["end_d2h"] < found["start_h2d"]).any() or found["start_h2d"].min() < -1e6:
        raise _damaged(path, "a query ends before it starts")
    order = np.argsort(found["start_h2d"], kind="stable")
    return {name: column[order] for name, column in found.items()}


def _column(rows: Sequence[Json], names: tuple[str, ...]) -> NDArray[np.float64]:
    name = next((n for n in names if n in rows[0]), names[0])
    values = [row[name] for row in rows]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise TypeError(f"{name} is not a number in every row")
    return np.array(values, dtype=np.float64)


def resolution_ms(column: NDArray[np.float64]) -> float:
    """Return the step of the last printed digit at the largest of these times (six significant digits)."""
    largest = float(np.abs(column).max(initial=0.0))
    return 1e-6 if largest < 1.0 else float(10.0 ** (math.floor(math.log10(largest)) - 5))


def profile(path: Path) -> tuple[int, tuple[LayerTime, ...]]:
    """Return (iterations, layers) of --exportProfile; DeviceError E-TRTX-4 if the file is not one."""
    rows = _list(path)
    try:
        count = int(rows[0]["count"])
        layers = tuple(_layer_time(row) for row in rows[1:])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    return count, layers


def _layer_time(row: Json) -> LayerTime:
    median = row.get("medianMs")  # since 8.4
    numbers = [
        float(row["averageMs"]),
        float(row["percentage"]),
        *([float(median)] if median is not None else []),
    ]
    if not all(math.isfinite(n) for n in numbers):
        raise ValueError("a layer's time is not finite")
    return LayerTime(
        str(row["name"]), numbers[0] / 1e3, None if median is None else numbers[2] / 1e3, numbers[1] / 100
    )


def outputs(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of --exportOutput by name, in their shapes; six significant digits.

    float32, or int64 if every value is a whole number. DeviceError E-TRTX-4 if the file is damaged.
    """
    found: dict[str, NDArray[Any]] = {}
    for entry in _list(path):
        try:
            shape = [int(n) for n in re.findall(r"\d+", entry["dimensions"])]
            values = entry["values"]
            whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
            flat = np.array(values, dtype=np.int64 if whole else np.float32)
            found[str(entry["name"])] = flat.reshape(shape)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not found:
        raise _damaged(path, "it holds no output")
    return found


def _list(path: Path) -> list[Json]:
    told = _json(path)
    if not isinstance(told, list) or not all(isinstance(row, dict) for row in told):
        raise _damaged(path, "it is not a list of objects")
    return told


def _json(path: Path) -> Json:
    """Return the file's content; nan and inf, which C++ prints bare, are read as such."""
    try:
        if path.stat().st_size > LONGEST:
            raise _damaged(path, f"{path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
        return json.loads(_BARE.sub(_spelt, text))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _spelt(found: re.Match[str]) -> str:
    return "NaN" if "nan" in found[0] else f"{found[1]}Infinity"


def _damaged(path: Path, why: str) -> DeviceError:
    return DeviceError(
        "E-TRTX-4",
        f"{path.name}, which trtexec wrote, cannot be read",
        evidence=" ".join(why.split())[:200],
        effect="There is no number for this cell",
        fix="run it again; if the disk is full, free space under TMPDIR",
    )
