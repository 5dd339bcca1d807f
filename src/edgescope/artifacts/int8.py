"""int8: one ONNX file with quantise/dequantise (QDQ) pairs that every engine reads, made once.

Weights become int8 with one scale per output channel; activations become integers on a range found on calibration
inputs. Two measures keep the answers right at full speed: the first convolutions, which are few, cheap and by far
the most sensitive, stay in fp32; and the mean error that rounding the weights causes in each output channel is
subtracted from its bias (Nagel et al., ICCV 2019, arXiv 1906.04721). There are two forms, because no form is best
for all:

    u8s8  activations uint8 with a zero point: the CPUs' own, run by ONNX Runtime and OpenVINO in integer kernels
    s8s8  activations int8, every zero point 0, biases in float: the only one that TensorRT reads

Calibration inputs are the model's own, or the user's. They are never inputs of the accuracy gate,
which is checked by hash. If the file exists already, nothing heavy is imported.

`mixture` finds the layers in which int8 breaks the answers, and leaves them in fp32. A model's calibration inputs are
split. Ranges are found on the larger part. The rest is held back: on it, every layer of the int8 network (convolutions
as well as sums and pools) gets the fp32 network's tensors, and its output is compared with that network's. Layers are
ranked by the error that rounding their inputs and weights adds. Then bisection finds how many of the worst layers must
stay in fp32 for the outputs to pass an inner criterion: the gate's own measures, with a margin, on the held-back
inputs. The accuracy gate's inputs are never used, so its verdict on the mixture is as good as on any other file.

A mixture may be called int8 only while three in four heavy operators are (artifacts.REDUCED_SHARE); a network that
needs more layers in fp32 than that is refused, with the number it would need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgescope import cache
from edgescope.artifacts import REDUCED_SHARE
from edgescope.errors import UnsupportedError, UsageError, WrongOutputError
from edgescope.models.base import Model, Purpose, Samples
from edgescope.records import Json, digest
from edgescope.registry import need
from edgescope.verify import judge

VERSION = 2  # raise this when the quantisation changes
IMAGES = 64
"""Calibration inputs requested; a model may have fewer."""
KEEP_FLOAT = 2
"""Convolutions at the start that stay in fp32; `edgescope docs why-accuracy` has the reason."""
METHODS = {
    "u8s8": "static QDQ, weights int8 per channel, activations uint8, MinMax, bias corrected",
    "s8s8": "static QDQ, weights and activations symmetric int8 (zero point 0), MinMax, float biases corrected",
}
QUANTIZERS = {
    "onnxruntime": (
        "edgescope.artifacts.int8_onnxruntime:quantize",
        ("onnx", "onnxruntime"),
        "pip install 'edgescope[onnx]'",
    ),
    "modelopt": (
        "edgescope.artifacts.int8_modelopt:quantize",
        ("onnx", "onnxruntime", "nvidia-modelopt"),
        "pip install 'nvidia-modelopt[onnx]'",
    ),
}


@dataclass(frozen=True)
class Recipe:
    """How to make an int8 file: its form, and the tool."""

    qdq: str = "u8s8"
    opset: int | None = None
    quantizer: str = "onnxruntime"

    def __post_init__(self) -> None:
        """Raise UsageError for a combination that does not exist."""
        if self.qdq not in METHODS or self.quantizer not in QUANTIZERS:
            raise UsageError(
                "E-INT8-2",
                f"there is no int8 form {self.qdq!r} made by {self.quantizer!r}",
                evidence=f"qdq: {', '.join(METHODS)}; quantizer: {', '.join(QUANTIZERS)}",
            )
        if self.quantizer == "modelopt" and self.qdq != "s8s8":
            raise UsageError(
                "E-INT8-2", "NVIDIA Model Optimizer makes the symmetric form only", fix="--option qdq=s8s8"
            )
        if self.qdq == "s8s8" and self.opset is not None and self.opset < 13:
            raise UnsupportedError(
                "E-INT8-8",
                f"int8 with a scale per channel cannot be written in ONNX opset {self.opset}",
                evidence="QuantizeLinear has an axis from opset 13 on; TensorRT reads it from 8.0 on",
                fix="--precision fp16 or fp32",
            )


def int8(
    model: Model,
    folder: Path,
    *,
    qdq: str = "u8s8",
    opset: int | None = None,
    quantizer: str = "onnxruntime",
) -> Path:
    """Return the int8 ONNX file of `model` under `folder`, with a sidecar JSON that says how it was made.

    UsageError if calibration and gate share an input, UnsupportedError if the network cannot be quantised or the
    inputs are unusable, UnavailableError if a package is missing.
    """
    Recipe(qdq, opset, quantizer)
    source, given = model.onnx(folder, opset), inputs(model, IMAGES)
    target, packages, fix = QUANTIZERS[quantizer]
    made_with = cache.versions(packages)
    made_from = cache.content(source), model.info.digest  # only the model's digest covers external weights
    key = digest([VERSION, METHODS[qdq], quantizer, KEEP_FLOAT, made_from, given.digests, made_with])
    made = {"made_with": made_with, "method": METHODS[qdq], "qdq": qdq, "quantizer": quantizer}

    def make(path: Path) -> dict[str, Json]:
        quantize = need(target, f"the int8 quantiser {quantizer}", fix)
        found: dict[str, Json] = quantize(source, given, path, keep_float=KEEP_FLOAT, qdq=qdq)
        _as_asked(found, opset, quantizer)
        return made | found | origin(model, source, given)

    return cache.made_once(cache.named(folder, model.info.name, "int8", key, ".onnx"), make)


def dynamic(model: Model, folder: Path, *, opset: int | None = None) -> Path:
    """Return the ONNX file with int8 weights in its matrix products and ranges found at run time, made once.

    It needs no calibration inputs: what static ranges break in a transformer, a few large activations, it keeps.
    UnsupportedError if other operators do most of the work, or the quantiser fails.
    """
    source, (target, packages, fix) = model.onnx(folder, opset), QUANTIZERS["onnxruntime"]
    made_with, method = (
        cache.versions(packages),
        "dynamic, weights int8 per channel, activations uint8 at run time",
    )
    key = digest([VERSION, method, REDUCED_SHARE, cache.content(source), model.info.digest, made_with])

    def make(path: Path) -> dict[str, Json]:
        quantize = need(target.replace(":quantize", ":dynamic"), "the int8 quantiser onnxruntime", fix)
        found: dict[str, Json] = quantize(source, path, share=REDUCED_SHARE)
        about = {
            "model": model.info.name,
            "model_digest": model.info.digest,
            "source_made": cache.notes(source),
        }
        return found | about | {"made_with": made_with, "method": method, "dynamic": True}

    return cache.made_once(cache.named(folder, model.info.name, "dynamic", key, ".onnx"), make)


def _as_asked(found: dict[str, Json], opset: int | None, quantizer: str) -> None:
    """Raise UnsupportedError if the quantiser wrote a later opset than the engine reads."""
    if opset is not None and found.get("opset", opset) > opset:
        raise UnsupportedError(
            "E-INT8-8",
            f"{quantizer} wrote ONNX opset {found['opset']} where {opset} was asked for",
            effect="The engine it is for could not read the file, which was not kept",
            fix="--option quantizer=onnxruntime; or export the file you gave again in that opset",
        )


def origin(model: Model, source: Path, given: Samples) -> dict[str, Json]:
    """Return the origin of an int8 file, for its sidecar."""
    return {
        "model": model.info.name,
        "model_digest": model.info.digest,
        "source_sha256": cache.content(source),
        "source_made": cache.notes(source),
        "calibration": {"n": len(given), "origin": given.origin, "digests": list(given.digests)},
    }


def inputs(model: Model, n: int) -> Samples:
    """Return up to n calibration inputs, checked: some, of the right shape, not constant, none of them the gate's."""
    found = model.samples(Purpose.CALIBRATION, n)
    if found is None or not len(found):
        raise UnsupportedError(
            "E-INT8-1",
            f"{model.info.name} has no calibration inputs",
            effect="Its int8 ranges would be guesses",
            fix="--data DATA with inputs of yours; or let the model's samples() return inputs for Purpose.CALIBRATION",
        )
    _fitting(model, found)
    disjoint(found, judged(model, found))
    return found


def judged(model: Model, given: Samples) -> Samples:
    """Return the gate's inputs; UnsupportedError if they or `given` are noise, and the network may be trained."""
    gate = judge.gate_samples(model)
    if (given.noise or gate.noise) and not model.info.trained and model.info.task == "unknown":
        raise UnsupportedError(
            "E-INT8-13",
            f"int8 of {model.info.name} needs inputs of yours",
            evidence="what it was trained for is not known, and there are only random numbers here",
            effect="Ranges found on noise, and agreement on noise, say nothing of real inputs",
            fix=f"edgescope optimize {model.info.name} --data FOLDER",
        )
    return gate


def _fitting(model: Model, given: Samples) -> None:
    """Raise UnsupportedError if the inputs do not fit the network or do not vary."""
    wanted = {spec.name: (len(given), *spec.shape) for spec in model.inputs}
    found = {name: array.shape for name, array in given.arrays.items()}
    if found != wanted:
        raise UnsupportedError(
            "E-INT8-7",
            f"the calibration inputs do not fit {model.info.name}",
            evidence=f"they are {found}, it takes {wanted}",
            fix="give inputs of the shape that the network takes",
        )
    flat = all(float(np.ptp(array)) == 0.0 for array in given.arrays.values())
    if flat or (len(given) > 1 and len(set(given.digests)) == 1):
        raise UnsupportedError(
            "E-INT8-4",
            f"the {len(given)} calibration inputs are constant",
            evidence="every value is the same" if flat else f"all have the SHA-256 {given.digests[0]}",
            effect="The ranges found on them would cut off what real inputs do",
            fix="--data DATA with inputs as the network will see them",
        )


def disjoint(calibration: Samples, gate: Samples) -> None:
    """Raise UsageError if a calibration input is also an input of the accuracy gate."""
    shared = sorted(set(calibration.digests) & set(gate.digests))
    if shared:
        raise UsageError(
            "E-LEAK-1",
            f"{len(shared)} calibration inputs are also inputs of the accuracy gate",
            evidence=f"SHA-256 {', '.join(shared[:3])}",
            effect="The gate would judge int8 on what it was tuned on",
            fix="give other calibration inputs",
        )


MIXTURE_VERSION = 1  # raise this when the choice of layers changes
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
        MIXTURE_VERSION,
        VERSION,
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
