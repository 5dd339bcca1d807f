"""int8: one ONNX file with quantise/dequantise (QDQ) pairs that every engine reads, made once.

Weights become int8 with one scale per output channel, activations uint8 with a scale and a zero point found
on calibration inputs. Two measures keep the answers right at full speed: the first convolutions, which are
few, cheap and by far the most sensitive, stay in fp32; and the mean error that rounding the weights causes in
each output channel is taken out of its bias (Nagel et al., ICCV 2019, arXiv 1906.04721). Calibration inputs
are never those that the accuracy gate judges with; that is checked, by hash. Where the file is there, nothing
heavy is imported.
"""

from __future__ import annotations

from pathlib import Path

from edgescope import cache, verify
from edgescope.errors import UnsupportedError, UsageError
from edgescope.export import about, safe, sidecar, versions, whole
from edgescope.models.base import Model, Purpose, Samples
from edgescope.records import digest
from edgescope.registry import need

VERSION = 1  # raise when the way of quantising changes
IMAGES = 64
"""Calibration inputs asked for; a model may have fewer."""
KEEP_FLOAT = 2
"""Convolutions at the start that stay in fp32; how it was chosen: docs/design.md."""
METHOD = "static QDQ, weights int8 per channel, activations uint8, MinMax, bias corrected"


def int8(model: Model, folder: Path) -> Path:
    """Return the int8 ONNX file of `model` under `folder`, with a sidecar JSON that says how it was made.

    UsageError where calibration and gate share an input, UnsupportedError where the network cannot be
    quantised, UnavailableError where a package is missing.
    """
    source = model.onnx(folder)
    calibration = model.samples(Purpose.CALIBRATION, IMAGES)
    if calibration is None or not len(calibration):
        raise UnsupportedError(
            "E-INT8-1",
            f"{model.info.name} has no calibration inputs",
            effect="Its int8 ranges would be guesses",
            fix="another precision, or let the model's samples() return inputs for Purpose.CALIBRATION",
        )
    disjoint(calibration, verify.gate_samples(model))
    made_with = versions(("onnx", "onnxruntime"))
    made_from = cache.content(source), model.info.digest  # a file's external weights are in the latter alone
    key = digest([VERSION, METHOD, KEEP_FLOAT, made_from, calibration.digests, made_with])
    path = cache.made(folder) / f"{safe(model.info.name)}-int8-{key}.onnx"
    if not whole(path):
        quantize = need(
            "edgescope._quantizer:quantize", "the int8 quantiser", "pip install 'edgescope[onnx]'"
        )
        found = quantize(source, calibration, path, keep_float=KEEP_FLOAT)
        cache.write_json(
            sidecar(path),
            found
            | {
                "model": model.info.name,
                "model_digest": model.info.digest,
                "source_sha256": cache.content(source),
                "source_made": about(source),
                "made_with": made_with,
                "method": METHOD,
                "calibration": {
                    "n": len(calibration),
                    "origin": calibration.origin,
                    "digests": list(calibration.digests),
                },
            },
        )
    return path


def disjoint(calibration: Samples, gate: Samples) -> None:
    """Raise UsageError where an input that ranges are found on is also one that accuracy is judged on."""
    shared = sorted(set(calibration.digests) & set(gate.digests))
    if shared:
        raise UsageError(
            "E-LEAK-1",
            f"{len(shared)} calibration inputs are also inputs of the accuracy gate",
            evidence=f"SHA-256 {', '.join(shared[:3])}",
            effect="The gate would judge int8 on what it was tuned on",
            fix="give calibration inputs of their own",
        )
