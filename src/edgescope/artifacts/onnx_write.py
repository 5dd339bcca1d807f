"""Writes an ONNX file, its weights inside or, where they are too large for one protobuf message, beside it.

Protobuf cannot write a message of 2 GiB. ONNX's answer is external data: the file keeps the graph and, per
tensor, the name of another file in the same folder, an offset and a length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from edgescope.cache import beside

LIMIT = 2**31 - 2**24
"""Bytes of weights that one file may hold: protobuf's 2 GiB, less 16 MiB for the graph itself."""
CPU = "CPUExecutionProvider"


def save(model: Any, path: Path) -> None:
    """Write `model` (onnx.ModelProto, its weights loaded) to `path`; `model` may refer to the written file after."""
    beside(path).unlink(missing_ok=True)  # onnx would append to it
    if sum(tensor.ByteSize() for tensor in model.graph.initializer) <= LIMIT:
        onnx.save(model, str(path))
        return
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=beside(path).name,
    )


def session(path: Path) -> Any:
    """Return an ONNX Runtime session that computes what `path` says by ONNX's own definition.

    Quantised tensors are brought back to fp32 and computed there. int8 kernels depend on the CPU (those for AVX2
    saturate); a file that is chosen or corrected by them would carry the CPU that wrote it to every other.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=[CPU])
