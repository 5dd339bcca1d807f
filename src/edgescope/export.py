"""From a PyTorch network to one ONNX file with an open batch axis, made once and proved equal.

The file is what every other engine reads. It is cached under the hash of the model and of the versions that
made it; beside it lies what was found while making it: seconds, opset, and the largest difference from
PyTorch on two inputs at batch 1 and 4. A file that does not compute the same function is never kept. Where
the file is already there, nothing heavy is imported.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope import cache
from edgescope.models.base import TensorSpec
from edgescope.models.synthetic import Range
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 2  # raise when the way of exporting changes
OPSET = 18  # torch's exporter is written in opset 18; a later one is converted from it
TOLERANCE = 1e-3
"""Largest difference from PyTorch, relative to the largest output; ten thousand roundings of fp32."""


def onnx_file(
    info: ModelInfo,
    inputs: Sequence[TensorSpec],
    module: Callable[[], torch.nn.Module],
    folder: Path,
    *,
    packages: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
) -> Path:
    """Return the fp32 ONNX file of `module()` under `folder`; `packages` are those that define the network,
    `ranges` the values that integer inputs may take.

    ModelError where it cannot be exported or does not agree with PyTorch, UnavailableError where a package
    is missing.
    """
    made_with = versions(("torch", "onnx", "onnxscript", *packages))
    key = digest([VERSION, OPSET, info.digest, made_with])
    path = cache.made(folder) / f"{safe(info.name)}-fp32-{key}.onnx"
    if not whole(path):
        origin = {"model": info.name, "model_digest": info.digest, "made_with": made_with}
        with cache.writing(path) as temporary:
            found = _made(module, inputs, temporary, ranges)
        cache.write_json(sidecar(path), found | origin)
    return path


def _made(
    module: Callable[[], torch.nn.Module],
    inputs: Sequence[TensorSpec],
    path: Path,
    ranges: Mapping[str, Range] | None,
) -> dict[str, Json]:
    """Export to `path`, its batch axis called "N"; return how it went."""
    fix = "pip install 'edgescope[torch,onnx]'"
    export = need("edgescope._exporter:export", "the ONNX exporter", fix)
    rename = need("edgescope._batch_axis:rename", "the ONNX exporter", fix)
    found: dict[str, Json] = export(module(), inputs, path, ranges)
    if old := rename(path):
        found |= {"bytes": path.stat().st_size, "sha256": cache.content(path), "batch_axis_was": old}
    return found


def sidecar(path: Path) -> Path:
    """Return the JSON file beside an artifact that says how it was made."""
    return path.with_suffix(".json")


def about(path: Path) -> dict[str, Json]:
    """Return what was written beside an artifact when it was made; {} for a file made elsewhere."""
    return cache.read_json(sidecar(path)) or {}


def whole(path: Path) -> bool:
    """Return whether an artifact is there, as long as it was when it was made."""
    known = about(path).get("bytes")
    return path.exists() and path.stat().st_size == known


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return package -> installed version, without importing any; 'absent' where it is not installed."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def safe(name: str) -> str:
    """Return `name` as part of a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-60:]
