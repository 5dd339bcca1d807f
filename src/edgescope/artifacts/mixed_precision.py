"""Per-layer fallback: find the layers in which int8 breaks the answers, and make a file that leaves them in fp32.

A model's calibration inputs are split. Ranges are found on the larger part. The rest is held back: on it, every layer
of the int8 network (convolutions as well as sums and pools) gets the fp32 network's tensors, and its output is
compared with that network's. Layers are ranked by the error that rounding their inputs and weights adds. Then
bisection finds how many of the worst layers must stay in fp32 for the outputs to pass an inner criterion: the gate's
own measures, with a margin, on the held-back inputs. The accuracy gate's inputs are never used, so its verdict on the
mixture is as good as on any other file.

A mixture may be called int8 only while three in four heavy operators are (artifacts.REDUCED_SHARE); a network
that needs more layers in fp32 than that is refused, with the number it would need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgescope import cache
from edgescope.artifacts import REDUCED_SHARE, int8
from edgescope.artifacts.int8 import IMAGES, KEEP_FLOAT, METHODS, QUANTIZERS, Recipe, inputs, origin
from edgescope.errors import UnsupportedError, UsageError, WrongOutputError
from edgescope.models.base import Model, Samples
from edgescope.records import Json, digest
from edgescope.registry import need
from edgescope.verify import judge

VERSION = 1  # raise this when the choice of layers changes
HELD = 16
"""Most inputs held back; a quarter of all inputs if there are few."""
MARGIN = 0.8
"""Share of the gate's limit (of centred L2, of the missing agreement) that the inner criterion allows."""


@dataclass(frozen=True)
class Job:
    """The job of the half that needs onnx."""

    source: Path
    ranges: Samples
    held: Samples
    qdq: str
    trained: bool
    keep_float: int = KEEP_FLOAT
    reduced_share: float = REDUCED_SHARE
    margin: float = MARGIN


def mixture(
    model: Model,
    folder: Path,
    *,
    qdq: str = "u8s8",
    opset: int | None = None,
    quantizer: str = "onnxruntime",
) -> Path:
    """Return an int8 ONNX file of `model` with the breaking layers in fp32; its sidecar lists them with their errors.

    WrongOutputError if no mixture that may be called int8 passes (cached, so the next call fails at once),
    UnsupportedError if there are too few calibration inputs to hold any back.
    """
    Recipe(qdq, opset, quantizer)
    source = model.onnx(folder, opset)
    ranges, held = split(model, inputs(model, IMAGES + HELD))
    job = Job(source, ranges, held, qdq, model.info.trained)
    made_with = cache.versions(QUANTIZERS["onnxruntime"][1])
    made_from = cache.content(source), model.info.digest
    if quantizer != "onnxruntime":
        raise UsageError(
            "E-INT8-14",
            f"layers are chosen with onnxruntime's quantiser, not with {quantizer}",
            effect="The file would be another than its label says",
            fix="leave --option quantizer out, or --option fallback",
        )
    bounds = [judge.L2_CEILING, judge.RANK_FLOOR, judge.REDUCED_FLOOR]
    settings = [
        VERSION,
        int8.VERSION,
        bounds,
        METHODS[qdq],
        job.keep_float,
        job.reduced_share,
        job.margin,
        job.trained,
    ]
    key = digest([settings, made_from, ranges.digests, held.digests, made_with])
    path = cache.named(folder, model.info.name, "mixed", key, ".onnx")
    if cache.notes(path).get("passed", True):  # no record yet, or one of a file that exists or existed
        made = origin(model, source, ranges) | {"made_with": made_with}
        cache.made_once(path, lambda temporary: _made(job, temporary, made))
    if not (found := cache.notes(path))["passed"]:
        raise _refused(model, found)
    return path


def split(model: Model, given: Samples) -> tuple[Samples, Samples]:
    """Return the inputs for finding ranges, and those held back for choosing layers."""
    count = min(HELD, len(given) // 4)
    if count < 4:
        raise UnsupportedError(
            "E-INT8-13",
            f"{model.info.name} has too few calibration inputs to choose layers with",
            evidence=f"{len(given)}; a quarter is held back, and that must be at least 4",
            fix="give 16 or more, e.g. --data DATA",
        )
    return _part(given, slice(0, len(given) - count)), _part(given, slice(len(given) - count, None))


def _part(given: Samples, rows: slice) -> Samples:
    arrays = {name: array[rows] for name, array in given.arrays.items()}
    return replace(given, arrays=arrays, digests=given.digests[rows], labels=None)


def _made(job: Job, path: Path, made: dict[str, Json]) -> dict[str, Json]:
    """Choose the layers, write the file and return how it went; no file is written if no mixture passes."""
    choose = need(
        "edgescope.artifacts.mixed_precision_onnx:choose", "the int8 quantiser", QUANTIZERS["onnxruntime"][2]
    )
    found: dict[str, Json] = choose(job, path)
    found |= {"method": f"{METHODS[job.qdq]}; layers that break it in fp32", "qdq": job.qdq} | made
    found["held_back"] = {"n": len(job.held), "digests": list(job.held.digests)}
    return found


def _refused(model: Model, found: dict[str, Json]) -> WrongOutputError:
    worst = ", ".join(f"{layer['layer']} ({layer['added']:.2g})" for layer in found["layers"][:3])
    needs = "no number" if found["would_need"] is None else found["would_need"]
    return WrongOutputError(
        "E-INT8-10",
        f"no mixture of int8 and fp32 of {model.info.name} gives the answers of fp32",
        evidence=f"{needs} of its {found['heavy']} convolutions and matrix products in fp32 would do, at most"
        f" {found['allowed']} may be; adding most error: {worst}",
        effect="With fewer int8 layers it would not be int8",
        fix="--precision fp16 or bf16 where the device has it, else fp32",
    )
