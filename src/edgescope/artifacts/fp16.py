"""fp16: the fp32 ONNX file with 16-bit weights and operators, inputs and outputs left in fp32, made once.

If the file exists already, nothing heavy is imported.
"""

from __future__ import annotations

from pathlib import Path

from edgescope import cache
from edgescope.models.base import Model
from edgescope.records import Json, digest
from edgescope.registry import need

VERSION = 2  # raise this when the conversion changes


def fp16(model: Model, folder: Path, *, opset: int | None = None) -> Path:
    """Return the fp16 ONNX file of `model` under `folder`, with a sidecar JSON that says how it was made.

    UnsupportedError if the network cannot be lowered, UnavailableError if a package is missing.
    """
    source = model.onnx(folder, opset)
    made_with = cache.versions(("onnx", "onnxruntime"))
    key = digest([VERSION, cache.content(source), model.info.digest, made_with])
    origin = {"model": model.info.name, "model_digest": model.info.digest, "made_with": made_with}

    def make(path: Path) -> dict[str, Json]:
        fix = "pip install 'edgescope[onnx]'"
        convert = need("edgescope.artifacts.fp16_onnx:convert", "the fp16 converter", fix)
        found: dict[str, Json] = convert(source, path)
        return found | origin | {"source_made": cache.notes(source)}

    return cache.made_once(cache.named(folder, model.info.name, "fp16", key, ".onnx"), make)
