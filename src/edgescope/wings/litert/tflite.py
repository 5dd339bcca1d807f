"""Convert a PyTorch network to a .tflite, made once per batch size and checked for equal outputs.

litert-torch converts for fixed shapes and keeps the network's own layout (NCHW in, transposes inside). int8 is made
from that file by ai-edge-quantizer: weights int8 per channel, activations int8, ranges from the same calibration
inputs as every other int8 file here, never those of the accuracy gate. If the file exists already, nothing heavy
is imported.
"""

from __future__ import annotations

from pathlib import Path

from edgescope import cache
from edgescope.artifacts import int8 as quantize
from edgescope.errors import UnsupportedError
from edgescope.models.base import Model, Purpose, Samples
from edgescope.records import Json, digest
from edgescope.registry import need

VERSION = 2  # raise this when the conversion changes
MADE_WITH = ("torch", "litert-torch", "ai-edge-quantizer")
FIX = "pip install litert-torch (1.2 GB), or convert elsewhere and give the .tflite as the model"


def tflite(model: Model, folder: Path, *, batch: int, int8: bool = False) -> Path:
    """Return the .tflite of `model` for this batch under `folder`, with a sidecar JSON that says how it was made.

    The sidecar's `names` maps each input of the file to the model's. ModelError if it cannot be converted or does not
    agree with PyTorch, UnsupportedError if there are no inputs for int8 ranges, UnavailableError if the converter
    is missing.
    """
    calibration = quantize.inputs(model, quantize.IMAGES) if int8 else None
    made_with = cache.versions(MADE_WITH)
    key = digest(
        [
            VERSION,
            model.info.digest,
            batch,
            calibration.digests if calibration else (),
            made_with,
        ]
    )
    kind = "int8" if int8 else "fp32"
    path = cache.named(folder, model.info.name, f"{kind}-b{batch}", key, ".tflite")
    origin = {"model": model.info.name, "model_digest": model.info.digest, "made_with": made_with}
    if calibration:
        return cache.made_once(path, lambda new: _quantised(model, folder, batch, calibration, new) | origin)
    return cache.made_once(path, lambda new: _made(model, batch, new) | origin)


def _made(model: Model, batch: int, path: Path) -> dict[str, Json]:
    convert = need("edgescope.wings.litert.litert_torch:convert", "the LiteRT converter", FIX)
    samples = model.samples(Purpose.BENCH, batch)
    if samples is None:
        raise UnsupportedError(
            "E-TFL-6", f"{model.info.name} has no inputs to be traced with", fix="--backend torch_eager"
        )
    found: dict[str, Json] = convert(model.module(), model.inputs, samples, path, batch=batch)
    return found


def _quantised(model: Model, folder: Path, batch: int, calibration: Samples, path: Path) -> dict[str, Json]:
    quantise = need("edgescope.wings.litert.litert_torch:quantise", "the LiteRT quantiser", FIX)
    source = tflite(model, folder, batch=batch)
    names = cache.notes(source)["names"]
    found: dict[str, Json] = quantise(source, names, calibration, path, batch=batch)
    origin = {"n": len(calibration), "origin": calibration.origin, "digests": list(calibration.digests)}
    return found | {"names": names, "source_made": cache.notes(source), "calibration": origin}
