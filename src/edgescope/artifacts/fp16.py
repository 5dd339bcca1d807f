"""fp16: the fp32 ONNX file with 16-bit weights and operators, inputs and outputs left in fp32, made once.

Where the file is there, nothing heavy is imported.
"""

from __future__ import annotations

from pathlib import Path

from edgescope import cache
from edgescope.artifacts.onnx_export import about, building, safe, sidecar, whole
from edgescope.models.base import Model
from edgescope.records import digest
from edgescope.registry import need

VERSION = 1  # raise when the way of lowering changes


def fp16(model: Model, folder: Path, *, opset: int | None = None) -> Path:
    """Return the fp16 ONNX file of `model` under `folder`, with a sidecar JSON that says how it was made.

    UnsupportedError where the network cannot be lowered, UnavailableError where a package is missing.
    """
    source = model.onnx(folder, opset)
    made_with = cache.versions(("onnx", "onnxruntime"))
    key = digest([VERSION, cache.content(source), model.info.digest, made_with])
    path = cache.made(folder) / f"{safe(model.info.name)}-fp16-{key}.onnx"
    if not whole(path):
        convert = need(
            "edgescope.artifacts.fp16_onnx:convert", "the fp16 converter", "pip install 'edgescope[onnx]'"
        )
        with building(path) as temporary:
            found = convert(source, temporary)
        origin = {"model": model.info.name, "model_digest": model.info.digest, "made_with": made_with}
        cache.write_json(sidecar(path), found | origin | {"source_made": about(source)})
    return path
