"""Find which nodes of a file ONNX Runtime's TensorRT provider took, and in which precision they run.

The provider cuts the graph: what TensorRT can build becomes one node per engine, the rest goes to other providers.
By default neither is reported. A profiled run names the provider of every node that ran; TensorRT's own build log,
enabled with `trt_detailed_build_log`, ends in one line per layer of the engine with the types it reads and writes:

    Layer(CaskConvolution): conv1 + relu1, Tactic: 0x4727, input[Half(1,3,224,224)] -> output[Half(1,64,112,112)]

Both come from the session that builds the engines, and are stored with them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgescope.onnx_operators import HEAVY, KINDS
from edgescope.records import Json
from edgescope.wings.tensorrt import layers as _trt_layers

PROVIDER = "TensorrtExecutionProvider"
LAYER = re.compile(r"Layer\((?P<kind>[^)]+)\): (?P<name>.*?), Tactic: \S*,(?P<flow>.*)$")
TENSOR = re.compile(r"\[(?P<type>[A-Za-z0-9]+)\([-\d, :]*\)\]")
#: TensorRT's name for a type in that log -> the engine inspector's name, which wings/tensorrt/layers.py reads.
TYPES = {"Half": "FP16", "Float": "FP32", "Int8": "INT8", "BFloat16": "BF16", "FP8": "FP8"}


def layers(log: str) -> list[dict[str, Json]]:
    """Return the engine's layers in a build log, in the form of the engine inspector; [] if it lists none."""
    found = [match for line in log.splitlines() if (match := LAYER.search(line))]
    return [
        {"LayerType": m["kind"], "Name": m["name"], "Inputs": _tensors(m["flow"].partition("->")[0])}
        for m in found
    ]


def _tensors(text: str) -> list[dict[str, Json]]:
    return [{"Format/Datatype": TYPES.get(m["type"], m["type"])} for m in TENSOR.finditer(text)]


def kinds(log: str) -> dict[str, int]:
    """Return {precision: heavy layers of the engine}, or {} if the log does not list them."""
    return dict(_trt_layers.of(layers(log)).kinds)


def nodes(events: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Return the counts of a profile: {"providers": {provider: nodes that ran}, "outside": {"Conv fp32 CUDA...": n}}.

    `outside` are the heavy operators that TensorRT did not take, with their type and provider.
    """
    ran = [e["args"] for e in events if e.get("cat") == "Node" and "provider" in e.get("args", {})]
    ran = [args for args in ran if "output_type_shape" in args]
    outside = [a for a in ran if a["provider"] != PROVIDER and a.get("op_name") in HEAVY]
    return {
        "providers": dict(Counter(a["provider"] for a in ran)),
        "outside": dict(Counter(f"{a['op_name']} {_type(a)} {a['provider']}" for a in outside)),
    }


def _type(arguments: Mapping[str, Any]) -> str:
    outputs = arguments["output_type_shape"]
    kind = next(iter(outputs[0]), "?") if outputs else "?"
    return KINDS.get(kind, kind)


def profiled(session: Any, feeds: Mapping[str, Any]) -> dict[str, Json]:
    """Return `nodes` of one run of a session that was opened with profiling on; its file is removed."""
    session.run(None, dict(feeds))
    path = Path(session.end_profiling())
    try:
        return nodes(json.loads(path.read_text()))
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def log_of(taken: list[str]) -> Iterator[None]:
    """Append to `taken`, as one text, everything written to standard error within the block, also by C++.

    The build log is some tens of megabytes; if the block raises, the log's end is written to standard error.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            os.dup2(kept, 2)
            file.seek(max(0, file.tell() - 4000))
            sys.stderr.write(file.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            taken.append(file.read().decode(errors="replace"))
