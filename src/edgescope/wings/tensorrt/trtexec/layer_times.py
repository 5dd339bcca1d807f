"""The layers of a TensorRT engine from trtexec's files: --exportProfile has times, --exportLayerInfo has the work.

A fused layer is called after all its ONNX nodes (`/conv1/Conv + /relu/Relu`), and a copy that changes a layout after
the layer that it is for. An engine built without detailed verbosity tells names only: such layers have times, and no
FLOPs, bytes or precision. A profiled run waits for each layer, so the layers' sum is more than the engine's own time,
which --exportTimes has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from edgescope.analysis.layers import Exported, Layer, normal
from edgescope.artifacts.onnx_names import ModulePaths, NodeWork
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Json, Measured
from edgescope.wings.tensorrt import layers as inspector
from edgescope.wings.tensorrt.trtexec import exports

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
    _, rows = exports.profile(by["profile"])
    layers = [_layer(row, told.get(row.name, {}), paths) for row in rows]
    compute: Field = Absent("no file of trtexec --exportTimes was given")
    if "times" in by:
        every = exports.times(by["times"])["compute"] * 1e-3
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


def _layer(row: exports.LayerTime, told: Mapping[str, Json], paths: ModulePaths | None) -> Layer:
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
