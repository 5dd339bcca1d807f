"""Export a PyTorch network to one ONNX file with an open batch axis, made once and checked for equal outputs.

Every other engine reads this file. It is cached under the hash of the model and of the versions that made it. Its
sidecar holds the seconds it took, the opset, and the largest difference from PyTorch on two inputs at batch 1 and 4.
A file that does not compute the same function is never kept. If the file exists already, nothing heavy is imported.

Two exporters of torch are used. The default, built on torch.export, writes opset 18. Engines on older boards do not
read an opset that late (opset_for gives the opset of each TensorRT); for them the TorchScript exporter writes the
opset that they need. Weights of two gigabytes and more do not fit into one protobuf message: they are stored in
`file.onnx.data`, next to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope import cache
from edgescope.errors import UsageError
from edgescope.models.base import TensorSpec
from edgescope.models.synthetic import Range
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 2  # raise this when the export changes
OPSET = 18  # torch's exporter is written in opset 18; a later one is converted from it
OLDEST = 9  # the TorchScript exporter writes no earlier opset
TENSORRT_OPSETS = (((7, 0), 11), ((8, 0), 13), ((8, 4), 17), ((10, 0), None))
"""From this TensorRT on, the latest opset it reads; None if it reads the default one (10.0 reads 9 to 20).
Source: docs/operators.md of github.com/onnx/onnx-tensorrt, at its branches 7.0, 7.2, 8.0, 8.2, 8.4, 8.5, 8.6, 10.0."""
TOLERANCE = 1e-3
"""Largest allowed difference from PyTorch, relative to the largest output: ten thousand roundings of fp32."""


def onnx_file(
    info: ModelInfo,
    inputs: Sequence[TensorSpec],
    module: Callable[[], torch.nn.Module],
    folder: Path,
    *,
    packages: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
    opset: int | None = None,
    batch: int | None = None,
) -> Path:
    """Return the fp32 ONNX file of `module()` under `folder`; `packages` are those that define the network,
    `ranges` the values that integer inputs may take, `opset` the version wanted (None: OPSET), `batch` the only size
    of the batch axis (None: it is open).

    ModelError if it cannot be exported, has another opset or does not agree with PyTorch;
    UsageError for an opset that no exporter writes; UnavailableError if a package is missing.
    """
    opset = _known(OPSET if opset is None else opset)
    exporter = ("onnxscript",) if opset >= OPSET else ("onnxslim",)
    made_with = cache.versions(("torch", "onnx", *exporter, *packages))
    key = digest([VERSION, opset, info.digest, made_with, *([batch] if batch else [])])
    origin = {"model": info.name, "model_digest": info.digest, "made_with": made_with}
    return cache.made_once(
        cache.named(folder, info.name, "fp32", key, ".onnx"),
        lambda path: _made(module, inputs, path, ranges, opset=opset, batch=batch) | origin,
    )


def opset_for(tensorrt: str) -> int | None:
    """Return the opset to export for a TensorRT of this version ("8.2.1"), or None for the default.

    UsageError if the text is not a version, or a version before 7.
    """
    try:
        version = tuple(int(part) for part in tensorrt.split(".")[:2])
    except ValueError:
        version = ()
    fitting = [opset for since, opset in TENSORRT_OPSETS if (*version, 0)[:2] >= since]
    if not version or not fitting:
        raise UsageError(
            "E-EXPORT-5",
            f"no opset is known for TensorRT {tensorrt!r}",
            evidence="known: " + ", ".join(f"{a}.{b} on" for (a, b), _ in TENSORRT_OPSETS),
            fix="give its version as 8.2.1",
        )
    return fitting[-1]


def _known(opset: int) -> int:
    if opset < OLDEST:
        raise UsageError(
            "E-EXPORT-6", f"no exporter writes ONNX opset {opset}", fix=f"an opset from {OLDEST} on"
        )
    return opset


def _made(
    module: Callable[[], torch.nn.Module],
    inputs: Sequence[TensorSpec],
    path: Path,
    ranges: Mapping[str, Range] | None,
    *,
    opset: int,
    batch: int | None,
) -> dict[str, Json]:
    """Export to `path`, an open batch axis called "N"; return how it went."""
    fix = "pip install 'edgescope[torch,onnx]'"
    export = need("edgescope.artifacts.onnx_export_torch:export", "the ONNX exporter", fix)
    rename = need("edgescope.artifacts.onnx_write:rename", "the ONNX exporter", fix)
    found: dict[str, Json] = export(module(), inputs, path, ranges, opset=opset, batch=batch)
    if old := rename(path):
        found |= {"batch_axis_was": old}
    return found | size_of(path)


def size_of(path: Path) -> dict[str, Json]:
    """Return {"bytes", "sha256"} of an ONNX file; bytes include external weights, whose hash is "data_sha256"."""
    found: dict[str, Json] = {"bytes": cache.length(path), "sha256": cache.content(path)}
    return found | (
        {"data_sha256": cache.content(cache.external_data(path))}
        if cache.external_data(path).exists()
        else {}
    )
