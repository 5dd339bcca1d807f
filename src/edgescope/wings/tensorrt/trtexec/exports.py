"""The JSON files trtexec writes: times of every query, output tensors, and the layers of the engine with time and work.

Numbers are printed with six significant digits, so a time of 5 s after the start is known to 10 us only, one of 12 s to
100 us; durations in the same row were taken before printing and keep their digits. Until 8.2 the times of the warm-up
are in the file as well. Names changed once:

    until 8.2    startInMs endInMs startOutMs endOutMs inMs outMs          endToEndMs
    since        startH2dMs endH2dMs startD2hMs endD2hMs h2dMs d2hMs       (endToEndMs until 8.4)

`startEnqMs` is taken after the input copies were enqueued, just before the network is. If transfers are left out, the
H2D and D2H times are the begin and end of the compute. Source: samples/common/sampleReporting.cpp and
sampleInference.cpp of github.com/NVIDIA/TensorRT.

Of layers, --exportProfile has times and --exportLayerInfo the work. A fused layer is called after all its ONNX nodes
(`/conv1/Conv + /relu/Relu`), and a copy that changes a layout after the layer that it is for. An engine built without
detailed verbosity tells names only: such layers have times, and no FLOPs, bytes or precision. A profiled run waits for
each layer, so the layers' sum is more than the engine's own time, which --exportTimes has.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.roofline import Exported, Layer, normal
from edgescope.artifacts.onnx_names import ModulePaths, NodeWork
from edgescope.errors import DeviceError, UsageError
from edgescope.foreign import TRTEXEC_COLUMNS
from edgescope.records import Absent, Field, Json, Measured
from edgescope.wings.tensorrt import layers as inspector

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
        found = {name: _column(rows, names) for name, names in TRTEXEC_COLUMNS.items()}
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


WIDTHS: Mapping[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
#: A copy between layouts, which TensorRT calls after the layer that it is for.
REFORMAT = re.compile(r"Reformatting CopyNode for (?:Input|Output) Tensor \d+ to (.*)")
#: What TensorRT puts around the names of nodes: PWN(...) for pointwise ones, {ForeignNode[...]} for Myelin's.
AROUND = re.compile(r"PWN\(|\{ForeignNode\[|\]\}|[()]")
NODE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


def read(files: Sequence[Path], paths: ModulePaths | None = None) -> Exported:
    """Return what the files tell, in any order; UsageError E-LAYER-2 if none is a profile or one is something else.

    `paths` are the nodes of the ONNX file that the engine was built from: they name modules and add FLOPs.
    """
    by: dict[str, Path] = {_kind(path): path for path in files}
    if "profile" not in by:
        known = ", ".join(f"{path.name}: {kind}" for kind, path in by.items())
        what = "no file has the layers' times"
        fix = "trtexec --loadEngine=ENGINE --exportProfile=FILE --dumpProfile"
        raise UsageError("E-LAYER-2", what, evidence=known, effect="There are no layers to show", fix=fix)
    info = by["layers"].read_text(encoding="utf-8", errors="replace") if "layers" in by else ""
    told = {str(e["Name"]): e for e in _entries(info)}
    _, rows = profile(by["profile"])
    layers = [_layer(row, told.get(row.name, {}), paths) for row in rows]
    compute: Field = Absent("no file of trtexec --exportTimes was given")
    if "times" in by:
        every = times(by["times"])["compute"] * 1e-3
        compute = Measured(float(np.median(every)), "s", n=len(every))
    precision = inspector.read(info).precision() if info else "unknown"
    return Exported(tuple(layers), precision, compute, tuple(p.name for p in by.values()))


def _kind(path: Path) -> str:
    """Return profile, layers or times by a file's content; UsageError if it is none of them."""
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError("E-LAYER-2", f"{path} cannot be read", evidence=why[:200]) from error
    rows = told if isinstance(told, list) else []
    keys = {key for row in rows[:2] if isinstance(row, dict) for key in row}
    if isinstance(told, dict) and isinstance(told.get("Layers"), list):
        return "layers"
    if "startEnqMs" in keys:
        return "times"
    if "count" in keys or "averageMs" in keys:
        return "profile"
    what = f"{path} is no file of trtexec's --exportProfile, --exportLayerInfo or --exportTimes"
    raise UsageError("E-LAYER-2", what, effect="Nothing was read")


def _entries(info: str) -> list[Mapping[str, Json]]:
    """Return the layers of --exportLayerInfo that are more than a name."""
    told = json.loads(info)["Layers"] if info else []
    return [e for e in told if isinstance(e, dict) and "Name" in e]


def _layer(row: LayerTime, told: Mapping[str, Json], paths: ModulePaths | None) -> Layer:
    reformat = REFORMAT.fullmatch(row.name)
    works = [
        paths.of(n) if paths else NodeWork(n) for n in _nodes(reformat[1] if reformat else row.name, told)
    ]
    name = " + ".join(dict.fromkeys(work.path for work in works))
    if reformat:
        name, works = f"reformat before {normal(works[0].path)}", []
    kind = str(told.get("ParameterType") or told.get("LayerType") or ("Reformat" if reformat else ""))
    flops = sum(work.flops for work in works) or _flops(told)
    grouped = any(work.depthwise for work in works) or 1 < told.get("Groups", 1) == told.get("OutMaps")
    precision = inspector.precision(told) if told else "unknown"
    seconds = row.mean_s if row.median_s is None else row.median_s
    return Layer(name, kind, seconds, flops, _bytes(told), precision, grouped)


def _nodes(name: str, told: Mapping[str, Json]) -> list[str]:
    """Return the ONNX nodes of a layer: as its metadata list them, else as its name does."""
    listed = NODE.findall(str(told.get("Metadata", "")))
    return listed or [n.strip() for n in AROUND.sub("", name).split(" + ") if n.strip()] or [name]


def _flops(told: Mapping[str, Json]) -> int:
    """Return twice the multiply-accumulates of a convolution: each weight once for each place of the output."""
    weights, maps = told.get("Weights"), told.get("OutMaps")
    outputs = _shapes(told, "Outputs")
    if not isinstance(weights, dict) or not isinstance(maps, int) or maps < 1 or not outputs:
        return 0
    return 2 * int(weights.get("Count", 0)) * (prod(outputs[0][0]) // maps)


def _bytes(told: Mapping[str, Json]) -> int:
    """Return the bytes of inputs, weights and outputs, each once; 0 if their shapes are not told."""
    tensors = [*_shapes(told, "Inputs"), *_shapes(told, "Outputs")]
    weights = told.get("Weights")
    own = (
        int(weights.get("Count", 0)) * WIDTHS.get(inspector.precision(told), 4)
        if isinstance(weights, dict)
        else 0
    )
    return sum(prod(shape) * width for shape, width in tensors) + own if tensors else 0


def _shapes(told: Mapping[str, Json], key: str) -> list[tuple[list[int], int]]:
    """Return the shape and the width in bytes of each input or output."""
    found = []
    tensors = told.get(key)
    for tensor in tensors if isinstance(tensors, list) else ():
        shape = tensor.get("Dimensions") if isinstance(tensor, dict) else None
        if isinstance(shape, list) and shape and all(isinstance(n, int) and n > 0 for n in shape):
            found.append((shape, WIDTHS.get(inspector.precision({"Inputs": [tensor]}), 4)))
    return found
