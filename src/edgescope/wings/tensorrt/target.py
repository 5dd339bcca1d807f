"""The GPU that an engine is built for: this machine's, or one that is named where the library builds without it.

What that GPU cannot do is refused here, before anything is exported or built: a GPU on which this TensorRT does not
run, a precision without kernels, a DLA core that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from edgescope import cache
from edgescope.artifacts.for_precision import refuse
from edgescope.backends import cudart
from edgescope.backends.base import Spec
from edgescope.errors import DeviceError, UnavailableError, UnsupportedError
from edgescope.records import Json
from edgescope.wings.tensorrt import about, build, engine_file, library
from edgescope.wings.tensorrt.library import FULL_VERSION


@dataclass(frozen=True, kw_only=True)
class Target:
    """The TensorRT and the GPU that decide whether an engine may run, as engine_file.check() takes them."""

    tensorrt: str
    compute_capability: str
    device: str
    """Name of the GPU and its board; '' of a named one, which need not be here."""


def here() -> Target:
    """Return this machine's; DeviceError or UnavailableError if there is no GPU that CUDA can use."""
    cuda = cudart.runtime()
    return Target(
        tensorrt=FULL_VERSION,
        compute_capability=cuda.compute_capability(),
        device=engine_file.gpu(cuda.device_name()),
    )


def of(named: str | None) -> Target:
    """Return the target of the option `compute_capability`, None where it is not given.

    UnsupportedError if this TensorRT does not build for it, or does not run on this machine's GPU.
    """
    if named is None:
        found = here()
        if library.RUNS_ON and found.compute_capability not in library.RUNS_ON:
            raise _refused(found)
        return found
    if named not in library.BUILDS_FOR:
        names = ", ".join(library.BUILDS_FOR)
        raise UnsupportedError(
            "E-TRT-18",
            f"TensorRT {FULL_VERSION} does not build for a GPU of compute capability {named}",
            evidence=f"it names {names}"
            if names
            else "it builds for the GPU that it finds, and for no other",
            effect="No engine was built",
            fix="one of those"
            if names
            else "leave --option compute_capability out, or pip install 'edgescope[rtx]'",
        )
    return Target(tensorrt=FULL_VERSION, compute_capability=named, device="")


def _refused(found: Target) -> UnsupportedError:
    return UnsupportedError(
        "E-TRT-17",
        f"TensorRT {FULL_VERSION} does not run on compute capability {found.compute_capability} ({found.device})",
        evidence=f"it names {', '.join(library.RUNS_ON)}",
        effect="An engine could be built, but this GPU would not load it",
        fix="--backend onnxruntime or torch_compile; or the full TensorRT, which runs there",
    )


def loads(named: str | None, path: str) -> Target:
    """Return this machine's, to load an engine; UnsupportedError where a named GPU's was built and there is none."""
    try:
        return here()
    except (DeviceError, UnavailableError) as error:
        if named is None:
            raise
        raise UnsupportedError(
            "E-TRT-19",
            f"the engine for compute capability {named} is built, and this machine has no GPU to run it",
            evidence=f"{path}; {error.what}",
            effect="Nothing was measured",
            fix="copy it and its .json into the same folder of that machine's cache, and run the same command there",
        ) from error


def require(spec: Spec, dla: int | None, target: Target) -> None:
    """Raise UnsupportedError for a precision or DLA core that the target's GPU does not have."""
    if spec.precision not in build.PRECISIONS:
        known = ", ".join(build.PRECISIONS)
        raise refuse("tensorrt", spec.precision, f"it is built for {known} here", where=target.device)
    about.require("tensorrt", spec.precision, target.compute_capability, target.device)
    able = _platform(target)
    if able.get(spec.precision) is False:
        why = (
            f"TensorRT {FULL_VERSION} finds no fast {spec.precision} kernels on compute capability "
            f"{target.compute_capability}"
        )
        raise refuse("tensorrt", spec.precision, why, where=f"this board ({target.device})")
    if dla is None:
        return
    if dla >= able["dla_cores"]:
        raise build.no_dla(dla, able["dla_cores"], target.device)
    if spec.precision not in ("fp16", "int8"):
        raise refuse(
            "tensorrt", spec.precision, "a DLA core computes in fp16 and int8 only", where="a DLA core"
        )


def _platform(target: Target) -> Mapping[str, Json]:
    """Return the GPU's features, queried from TensorRT once, because that costs seconds and a builder's memory."""
    name = f"platform-{cache.safe(FULL_VERSION)}-{target.compute_capability}-{cache.safe(target.device)}.json"
    note = cache.folder("tensorrt") / name
    if not note.is_file():
        cache.write_json(note, build.platform())
    found: Mapping[str, Json] = json.loads(note.read_text())
    return found
