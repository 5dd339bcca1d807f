"""The ONNX file an engine reads for a precision: one file serves every engine that can read it.

fp32 and tf32 read the file as exported, fp16 the same file with 16-bit weights and operators, int8 one of two QDQ
files: `u8s8` (uint8 activations, bias corrected), which CPUs run fastest, or `s8s8` (symmetric, zero point 0), the
only form TensorRT reads. The fp16 file keeps its inputs and outputs in fp32 and is made once; if it exists already,
nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models.base import Model, written
from edgescope.records import Json, Scalar, digest
from edgescope.registry import need

INT8_OPTIONS = {
    "qdq": "int8 file: u8s8 (CPUs) or s8s8 (TensorRT's form) (u8s8)",
    "calibration": "int8 ranges from these data, as --data takes them (the model's own calibration inputs)",
    "quantizer": "who makes the int8 file: onnxruntime or modelopt (onnxruntime)",
    "fallback": "true: leave the layers that break int8 in fp32 (false)",
}
"""Options of every engine that reads an int8 file, with their meanings (defaults)."""
DYNAMIC_OPTIONS = {
    **INT8_OPTIONS,
    "dynamic": "true: int8 weights of matrix products, ranges of activations at run time; for transformers (false)",
}
"""Options of an engine that also finds ranges at run time."""
TENSORRT_INT8_OPTIONS = {name: text for name, text in INT8_OPTIONS.items() if name != "qdq"}
"""Options of the engines that read only s8s8."""


def int8_options(options: Mapping[str, Scalar], precision: str) -> dict[str, Any]:
    """Return a trial's options for making its int8 file, as onnx_file() takes them; UsageError for another precision.

    `calibration` is not among them: the model that a trial opens has its inputs already (data/dataset_model.py).
    """
    chosen = {name: value for name, value in options.items() if name in DYNAMIC_OPTIONS}
    if chosen and precision != "int8":
        raise UsageError(
            "E-OPT-3",
            f"{', '.join(chosen)} is an option for making int8 files, but the precision is {precision}",
            fix="--precision int8",
        )
    for name in ("fallback", "dynamic"):
        if name in chosen and not isinstance(chosen[name], bool):
            raise UsageError("E-OPT-4", f"{name} is true or false, not {chosen[name]!r}")
    if chosen.get("dynamic") and len(chosen) > 1:
        others = ", ".join(name for name in chosen if name != "dynamic")
        raise UsageError("E-OPT-3", f"{others}: options of static int8, which dynamic=true is not")
    return {name: value for name, value in chosen.items() if name != "calibration"}


def onnx_file(
    model: Model,
    precision: str,
    folder: Path,
    *,
    opset: int | None = None,
    fallback: bool = False,
    dynamic: bool = False,
    **recipe: str,
) -> Path:
    """Return the ONNX file of `model` for `precision`, made once; fp32 also serves engines that lower it themselves.

    `opset` requests an older version of the fp32 file and of files made from it. For int8, `recipe` holds qdq and
    quantizer (see INT8_OPTIONS), `fallback` leaves the layers that break the answers in fp32, `dynamic` makes the form
    whose ranges are found at run time.
    """
    if written(model):
        return _unchanged(model, precision, folder, opset, options=fallback or dynamic or bool(recipe))
    if precision == "int8" and dynamic:
        from edgescope.artifacts import int8 as made

        return made.dynamic(model, folder, opset=opset)
    if precision == "int8" and fallback:
        from edgescope.artifacts.int8 import mixture

        return mixture(model, folder, opset=opset, **recipe)
    if precision == "int8":
        from edgescope.artifacts.int8 import int8

        return int8(model, folder, opset=opset, **recipe)
    if precision == "fp16":
        return fp16(model, folder, opset=opset)
    return model.onnx(folder, opset)


def as_written(model: Model, precision: str) -> str:
    """Return the precision to build an engine for, `as_is` resolved: what the file is written in, else fp32."""
    return (written(model) or "fp32") if precision == "as_is" else precision


def _unchanged(model: Model, precision: str, folder: Path, opset: int | None, *, options: bool) -> Path:
    """Return the model's own file, which is no fp32 network; an error for what would make another one of it."""
    own = written(model)
    if options and precision == "int8":
        raise UsageError(
            "E-OPT-3",
            f"options for making int8 files, and {model.info.name} is {own} already",
            effect="It is run as it is, never quantised again",
            fix="leave --option out",
        )
    if precision not in ("as_is", own, "fp32"):
        raise UnsupportedError(
            "E-PREC-4",
            f"{model.info.name} is {own} already and is not made into {precision}",
            effect="Only an fp32 network can be lowered without losing more than its precision",
            fix="leave --precision out: it is run as it is",
        )
    return model.onnx(folder, opset)


def unreadable(code: str, engine: str, path: Path | None, error: BaseException) -> ModelError:
    """Return the error for a file that `engine` cannot load: node, operator, domain, opset, and the engine's text."""
    said = " ".join(str(error).split())
    assert path is not None
    fix = "pip install 'edgescope[onnx]'"
    node = need("edgescope.models.user.onnx_reader:named_in", "the ONNX reader", fix)(path, said)
    opsets = need("edgescope.models.user.onnx_reader:opsets", "the ONNX reader", fix)(path)
    return ModelError(
        code,
        f"{engine} cannot load {path}",
        evidence=f"{node or f'the file is written in opset {opsets}'}: {said[:400]}",
        fix="another --backend, or export it again with operators and an opset that this engine supports",
    )


def refuse(
    name: str, precision: str, why: str, where: str = "this CPU", fix: str = "--precision fp32 or int8"
) -> UnsupportedError:
    """Return the error for a precision that this engine does not have on this machine."""
    return UnsupportedError(
        "E-PREC-1",
        f"{name} has no {precision} on {where}",
        evidence=why,
        effect="It would run in another precision under this label",
        fix=fix,
    )


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
        convert = need("edgescope.artifacts.onnx_write:convert", "the fp16 converter", fix)
        found: dict[str, Json] = convert(source, path)
        return found | origin | {"source_made": cache.notes(source)}

    return cache.made_once(cache.named(folder, model.info.name, "fp16", key, ".onnx"), make)
