"""Write an ONNX file: with its weights inside, as external data if they exceed a protobuf message, or in fp16.

A protobuf message holds 2 GiB. `rename` gives the batch axis of an exported file the one name by which engines find it.
torch's exporter is told to call it "N", but some versions write another name ("s77", "batch"); ONNX Runtime closes an
axis by its name, so it would silently stay open and run slower. `convert` lowers weights and operators to fp16 and
keeps inputs and outputs. This is the half of onnx_export.py and for_precision.py that needs no torch.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from edgescope.artifacts.onnx_export import size_of
from edgescope.cache import external_data
from edgescope.errors import UnsupportedError
from edgescope.records import Json

LIMIT = 2**31 - 2**24
"""Most bytes of weights in one file: protobuf's 2 GiB, minus 16 MiB for the graph itself."""
CPU = "CPUExecutionProvider"


def save(model: Any, path: Path) -> None:
    """Write `model` (onnx.ModelProto with its weights) to `path`; afterwards `model` may refer to the written file."""
    external_data(path).unlink(missing_ok=True)  # onnx would append to it
    if sum(tensor.ByteSize() for tensor in model.graph.initializer) <= LIMIT:
        onnx.save(model, str(path))
        return
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=external_data(path).name,
    )


def unweighted(path: Path) -> Any:
    """Return the network of a file for its nodes; external weights stay where they are, unread."""
    return onnx.load(str(path), load_external_data=False)


def session(path: Path) -> Any:
    """Return an ONNX Runtime session that computes `path` by ONNX's own definition.

    Quantised tensors are dequantised and computed in fp32. int8 kernels depend on the CPU (those for AVX2 saturate),
    so a file that is chosen or corrected with them would depend on the CPU that wrote it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # other files are made beside this one
    return onnxruntime.InferenceSession(str(path), options, providers=[CPU])


NAME = "N"


def rename(path: Path) -> list[str]:
    """Call axis 0 of every input "N" throughout the file; return its old names, [] if nothing changed.

    The file is written again only if a name changed. A closed axis stays closed.
    """
    model = unweighted(path)
    stored = {tensor.name for tensor in model.graph.initializer}
    given = (value for value in model.graph.input if value.name not in stored)
    old = sorted({name for value in given for name in _names(value)[:1]} - {NAME, ""})
    if not old:
        return []
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, old))})(?!\w)")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in _dims(value):
            if dim.dim_param:
                dim.dim_param = pattern.sub(NAME, dim.dim_param)  # "4*s77" becomes "4*N"
    onnx.save(model, str(path))
    onnx.checker.check_model(str(path), full_check=True)
    return old


def _names(value: Any) -> list[str]:
    return [dim.dim_param for dim in _dims(value)]


def _dims(value: Any) -> Iterator[Any]:
    yield from value.type.tensor_type.shape.dim


def convert(source: Path, path: Path) -> dict[str, Json]:
    """Write the fp16 file to `path` and return how it was made; UnsupportedError if it cannot be made."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one line per weight below fp16's smallest number
            lowered = convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)
        OnnxModel.graph_topological_sort(lowered.graph)  # it appends the casts of the inputs at the end
        _forget_types(lowered.graph)
        save(lowered, path)
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
