"""The half of fp16.py that needs onnx: convert weights and operators to fp16, keep inputs and outputs."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from edgescope.artifacts import onnx_write
from edgescope.artifacts.onnx_export import size_of
from edgescope.errors import UnsupportedError
from edgescope.records import Json


def convert(source: Path, path: Path) -> dict[str, Json]:
    """Write the fp16 file to `path` and return how it was made; UnsupportedError if it cannot be made."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one line per weight below fp16's smallest number
            lowered = convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)
        OnnxModel.graph_topological_sort(lowered.graph)  # it appends the casts of the inputs at the end
        _forget_types(lowered.graph)
        onnx_write.save(lowered, path)
        onnx.checker.check_model(str(path), full_check=True)
    except OSError:  # a full disk says nothing about the network
        raise
    except Exception as error:
        raise UnsupportedError(
            "E-FP16-1",
            "this network cannot be lowered to fp16",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="--precision fp32",
        ) from error
    return {"build_s": round(time.perf_counter() - begin, 3), **size_of(path)}


def _forget_types(graph: Any) -> None:
    """Drop the noted types of what lies between the nodes: the converter leaves some at what they were before.

    Every engine infers them anew; a wrong note makes the checker refuse a good file.
    """
    del graph.value_info[:]
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            _forget_types(inner)
