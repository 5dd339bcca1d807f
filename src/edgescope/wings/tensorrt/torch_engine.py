"""Torch-TensorRT, ahead of time: a PyTorch network whose subgraphs are TensorRT engines.

`prepare` exports the network, compiles it (ir="dynamo", fixed shapes) and saves the program with its engines; `load`
reads it back. Operators that TensorRT does not take stay in PyTorch, as modules that this file counts. Precision
follows the network's own types: releases with `use_explicit_typing` keep them, older ones get `enabled_precisions`,
under which TensorRT may choose another, so the precision is read from the engines' layers if they list it. tf32 is on
only on request. int8 needs a network quantised by NVIDIA Model Optimizer and is refused here.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch_tensorrt

from edgescope import cache
from edgescope.artifacts.for_precision import refuse
from edgescope.backends.base import Artifact, Session, Spec, checked, counted, precision_of
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.about import AboutTensorrt
from edgescope.backends.pytorch.backend import session_of
from edgescope.errors import ModelError, UnsupportedError
from edgescope.models.base import Model, Purpose
from edgescope.records import Effective, Json, digest
from edgescope.wings.tensorrt import about, layers

VERSION = 2  # raise this when the compilation changes
#: Convolutions and matrix products among PyTorch's operators, by the words of a name such as `aten.conv2d.default`.
HEAVY = re.compile(
    r"\b(?:\w*convolution|conv(?:_transpose|_depthwise)?[123]d|\w*linear|(?:add|b|addb|baddb|_scaled_)?mm|matmul)\b"
)
OPTIONS = {
    "workspace_mb": "scratch memory kernels may use (all)",
    "builder_level": "0 to 5, how long to look for kernels (TensorRT's own choice)",
    "min_block": "fewest operators that are worth an engine (5)",
    "whole": "refuse a network if any part of it stays in PyTorch (false)",
    "graph": "capture one CUDA graph and replay it (false)",
}


class TorchTensorrt(AboutTensorrt):
    """torch_tensorrt: fp32, tf32, fp16 and bf16 on a CUDA device."""

    OPTIONS: ClassVar[dict[str, str]] = OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the compiled program, made once for this batch, GPU and set of versions."""
        _check(checked("torch_tensorrt", spec, self.OPTIONS))
        shared.require(spec)
        made_with = cache.versions(self.PACKAGES)
        key = [
            VERSION,
            model.info.digest,
            spec.precision,
            spec.batch,
            _built_by(spec),
            made_with,
            _gpu(spec),
        ]
        origin = {"model": model.info.name, "model_digest": model.info.digest, "made_with": made_with}
        path = cache.made_once(
            cache.named(folder, model.info.name, spec.precision, digest(key), ".ep"),
            lambda new: _compiled(model, spec, new) | origin,
        )
        made = cache.notes(path)
        return Artifact(model, spec, path, cache.content(path), made.get("build_s"), {"made": made})

    def load(self, artifact: Artifact) -> Session:
        """Return a session over the saved program; operators left in PyTorch use the same switches as when compiled."""
        shared.settle(artifact.spec)
        program = torch_tensorrt.load(str(artifact.path)).module()
        return session_of(artifact)(program, artifact, Engines(artifact.notes["made"]))


class Engines:
    """Reports the precision of a program's engines, as found when they were built."""

    def __init__(self, made: dict[str, Json]) -> None:
        self.made = made

    def stop(self) -> None:
        """Nothing is hooked."""

    def effective(self, spec: Spec, prefix: str = "") -> Effective:
        """Return the precision of the engines' heavy layers and of the heavy modules left in PyTorch."""
        kinds: Counter[str] = Counter(self.made["kinds"])
        outside: Counter[str] = Counter(self.made["outside"])
        evidence = f"{prefix}{self.made['engines']} TensorRT engines; "
        if not kinds:
            precision = spec.precision if not outside else f"mixed ({counted(outside)} in PyTorch)"
            return Effective(
                spec.device, precision, None, f"{evidence}precision as requested: they list no layers"
            )
        evidence += f"engine inspector: {counted(kinds)} heavy layers"
        if outside:
            evidence += f"; heavy operators left in PyTorch: {counted(outside)}"
        ran = precision_of(kinds + outside)
        tf32 = ran == "fp32" and self.made["tf32"]
        return Effective(spec.device, "tf32" if tf32 else ran, None, evidence)


def _check(spec: Spec) -> None:
    if spec.precision not in shared.DTYPES:
        why = "it takes int8 from a network quantised by NVIDIA Model Optimizer, not from this one"
        raise refuse("torch_tensorrt", spec.precision, why, "a CUDA device")
    for name, least in (("workspace_mb", 1), ("builder_level", 0), ("min_block", 1)):
        about.whole(spec, name, least)
    for name in ("whole", "graph"):
        about.switch(spec, name)


def _built_by(spec: Spec) -> dict[str, Json]:
    """Return the options that change the build; the others only change how it is called."""
    return {key: value for key, value in spec.options.items() if key != "graph"}


def _gpu(spec: Spec) -> list[Json]:
    if not spec.place.cuda:
        return [spec.device]
    return [torch.cuda.get_device_name(), *torch.cuda.get_device_capability()]


def _compiled(model: Model, spec: Spec, path: Path) -> dict[str, Json]:
    """Compile for the spec's batch and save to `path`; return seconds and the facts about its engines."""
    module = shared.ready(Artifact(model, spec))
    inputs = _inputs(model, spec)
    start = time.perf_counter()
    try:
        program = torch_tensorrt.compile(module, ir="dynamo", inputs=inputs, **_settings(spec))
        found = _found(program)
        torch_tensorrt.save(program, str(path), output_format="exported_program", inputs=inputs)
    except (UnsupportedError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # exporter, converters and builder may raise anything
        raise ModelError(
            "E-TORCHTRT-1",
            f"Torch-TensorRT cannot compile {model.info.name}",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="--backend tensorrt, or torch_compile",
        ) from error
    _took_something(model, found)
    return found | {"build_s": round(time.perf_counter() - start, 3), "tf32": spec.precision == "tf32"}


def _inputs(model: Model, spec: Spec) -> list[torch.Tensor]:
    """Return one batch of the model's inputs on the device, in the network's types."""
    samples = model.samples(Purpose.BENCH, spec.batch)
    if samples is None:
        raise UnsupportedError(
            "E-TORCHTRT-3", f"{model.info.name} has no inputs to be traced with", fix="--backend torch_eager"
        )
    dtype = shared.require(spec)
    rows = [index % len(samples) for index in range(spec.batch)]
    return [shared.shaped(torch.from_numpy(samples.arrays[i.name][rows]), spec, dtype) for i in model.inputs]


def _settings(spec: Spec) -> dict[str, Any]:
    """Return the compiler's settings in the form of the installed release."""
    settings: dict[str, Any] = {
        "disable_tf32": spec.precision != "tf32",
        "require_full_compilation": bool(spec.options.get("whole", False)),
        "min_block_size": spec.options.get("min_block", 5),
    }
    if "use_explicit_typing" in inspect.signature(torch_tensorrt.dynamo.compile).parameters:
        settings["use_explicit_typing"] = True
    else:
        settings["enabled_precisions"] = {shared.DTYPES[spec.precision]}
    if "workspace_mb" in spec.options:
        settings["workspace_size"] = int(spec.options["workspace_mb"]) << 20
    if "builder_level" in spec.options:
        settings["optimization_level"] = spec.options["builder_level"]
    return settings


def _found(program: torch.nn.Module) -> dict[str, Json]:
    """Return {"engines": n, "kinds": {precision: heavy layers}, "outside": {precision: heavy operators in PyTorch}}."""
    parts: list[Any] = [m for m in program.modules() if _is_engine(m)]
    kinds: Counter[str] = Counter()
    for part in parts:
        told = part.get_layer_info() if hasattr(part, "get_layer_info") else ""
        kinds.update(layers.read(told if isinstance(told, str) else json.dumps(told)).kinds)
    return {"engines": len(parts), "kinds": dict(kinds), "outside": dict(_outside(program))}


def _is_engine(module: torch.nn.Module) -> bool:
    """Return whether a module holds an engine; in older releases such modules do not offer its layers."""
    return hasattr(module, "get_layer_info") or type(module).__name__.endswith("TorchTensorRTModule")


def _outside(program: torch.nn.Module) -> Counter[str]:
    """Return the convolutions and matrix products that stayed in PyTorch, counted by output type."""
    heavy: Counter[str] = Counter()
    for part in program.modules():
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            if node.op == "call_function" and HEAVY.search(str(node.target)):
                value = node.meta.get("val")
                dtype = getattr(value, "dtype", None)
                heavy[shared.NAMES.get(dtype, "unknown") if dtype else "unknown"] += 1
    return heavy


def _took_something(model: Model, found: dict[str, Json]) -> None:
    if not found["engines"]:
        raise UnsupportedError(
            "E-TORCHTRT-2",
            f"TensorRT takes no part of {model.info.name}",
            evidence=f"no block of operators became an engine; {counted(found['outside']) or 'none'} heavy in PyTorch",
            effect="All of it would run in PyTorch under TensorRT's name",
            fix="--option min_block=1, or --backend torch_compile",
        )
