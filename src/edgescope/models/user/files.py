"""A user's own network: any .onnx file, or any Python callable that returns (nn.Module, example inputs).

Its facts (inputs, parameters) are read once by the half that needs onnx or torch, and kept in the cache under
the content of the files they came from, so that a process that only measures imports neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

TORCH = "pip install 'edgescope[torch]'"
VERSION = 2  # raise this when the stored facts of a model change
Shapes = Mapping[str, tuple[int, ...]]


class UserFile:
    """A user's own file, described once per content. Open axes other than the batch are fixed by `shapes`."""

    def __init__(self, name: str, content: str, kept: str, describe: tuple[str, str], shapes: Shapes) -> None:
        self._path = Path(name)
        known = cache.folder("models") / f"{kept}-{content}.json"
        about: dict[str, Any] | None = cache.read_json(known)
        if about is None:
            reader, fix = describe
            about = need(reader, name, fix)(self._path)
            cache.write_json(known, about)
        self.about: dict[str, Any] = about
        self.inputs = fixed(name, about["inputs"], shapes)
        self._batches = {given["name"]: given["dims"][0] for given in about["inputs"]}
        self._ranges = {given["name"]: (0, 1) for given in about["inputs"]}
        self.info = ModelInfo(
            name=self._path.name,
            task="unknown",
            trained=False,
            source=f"{self._path.name}; its task is not known",
            digest=digest([content, [spec.shape for spec in self.inputs]]),
            params=about["params"],
        )

    @property
    def closed_batch(self) -> int | None:
        """Return the batch size that the file was made for, or None if its batch axis is open."""
        return next((size for size in self._batches.values() if isinstance(size, int)), None)

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded random inputs in the file's own layout, because the expected kind of input is not known."""
        return synthetic.samples(self.inputs, purpose, n, ranges=self._ranges)


class OnnxFile(UserFile):
    """An ONNX file; its fp32 reference is ONNX Runtime."""

    reference = "onnxruntime"

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        describe = "edgescope.models.user.onnx_reader:describe", zoo.ONNX_FIX
        super().__init__(name, zoo.onnx_digest(Path(name)), f"onnx-{VERSION}", describe, shapes or {})
        self.info = replace(self.info, source=f"ONNX file {self.info.source}")

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if the file's batch axis is closed at another size."""
        for name, size in self._batches.items():
            if isinstance(size, int) and size != batch:
                raise UsageError(
                    "E-BATCH-1",
                    f"{self.info.name} was exported for batch {size} and cannot run batch {batch}",
                    evidence=f"axis 0 of input {name!r} is {size}",
                    fix=f"--batch {size}, or export it again with an open batch axis",
                )

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: a file holds no PyTorch network."""
        raise UnsupportedError(
            "E-MODEL-5",
            f"{self.info.name} is an ONNX file, PyTorch cannot run it",
            fix="--backend onnxruntime or openvino",
        )

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the file itself, with any opset: an engine that cannot read it says so."""
        return self._path.resolve()


def fixed(name: str, given: list[dict[str, Json]], shapes: Shapes) -> tuple[TensorSpec, ...]:
    """Return the inputs with every axis but the batch closed; UsageError if `shapes` leaves one open."""
    dims = {entry["name"]: entry["dims"] for entry in given}
    listing = ", ".join(f"{key}={'x'.join(map(str, value))}" for key, value in dims.items())
    for key, shape in shapes.items():
        fits = key in dims and len(shape) == len(dims[key])
        if not fits or any(
            isinstance(d, int) and d != n for d, n in zip(dims[key][1:], shape[1:], strict=True)
        ):
            raise UsageError(
                "E-SHAPE-2",
                f"--shapes {key}={'x'.join(map(str, shape))} does not fit {name}",
                evidence=f"its inputs are {listing}; a letter is an open axis",
                fix=f"--shapes {_example(dims)}",
            )
    return tuple(_closed(name, entry, shapes, listing) for entry in given)


def _closed(name: str, entry: dict[str, Json], shapes: Shapes, listing: str) -> TensorSpec:
    dims = shapes.get(entry["name"], tuple(entry["dims"]))
    if not all(isinstance(size, int) for size in dims[1:]):
        axes = [f"{i} ({d})" for i, d in enumerate(dims) if i and not isinstance(d, int)]
        raise UsageError(
            "E-SHAPE-3",
            f"input {entry['name']!r} of {name} has open axes: {', '.join(axes)}",
            evidence=f"its inputs are {listing}",
            effect="Speed depends on them, so they are not guessed",
            fix=f"--shapes {_example({entry['name']: entry['dims']})}",
        )
    return TensorSpec(entry["name"], tuple(dims[1:]), entry["dtype"])


def _example(dims: Mapping[str, list[Json]]) -> str:
    """Return a --shapes value that would fit: open axes get sizes that images or sentences usually have."""
    name, axes = next(iter(dims.items()))
    usual = 224 if len(axes) == 4 else 128
    sizes = [1 if i == 0 else d if isinstance(d, int) else usual for i, d in enumerate(axes)]
    return f"{name}={'x'.join(map(str, sizes))}"


class Custom:
    """`module:callable`, a zero-argument factory importable from the current folder."""

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        self._name = name
        self.reference = "torch_eager"
        about = self._known() or self._describe()
        self._state: str = about["state"]
        self.inputs = tuple(TensorSpec(i["name"], tuple(i["shape"]), i["dtype"]) for i in about["inputs"])
        zoo.check_shapes(name, self.inputs, shapes or {})
        self._ranges = {i["name"]: tuple(i["range"]) for i in about["inputs"] if i["range"]}
        self.info = ModelInfo(
            name=name,
            task="unknown",
            trained=False,
            source=f"made by {name}(); its task is not known",
            digest=about["digest"],
            params=about["params"],
        )

    def module(self) -> torch.nn.Module:
        """Return the factory's network in eval mode; ModelError if the factory raises or its weights differ."""
        make = need("edgescope.models.user.factory:make", self._name, TORCH)
        module: torch.nn.Module = make(self._name, self._state)[0]
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once per content of its files."""
        return onnx_export.onnx_file(
            self.info, self.inputs, self.module, folder, ranges=self._ranges, opset=opset
        )

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded random inputs; integers lie within the range of the example inputs."""
        return synthetic.samples(self.inputs, purpose, n, ranges=self._ranges)

    def _path(self) -> Path:
        return cache.folder("models") / f"callable-{digest([VERSION, self._name, str(Path.cwd())])}.json"

    def _known(self) -> dict[str, Any] | None:
        """Return the stored facts of this factory if no file that it read has changed."""
        about: dict[str, Any] | None = cache.read_json(self._path())
        if about is None:
            return None
        same = all(Path(p).exists() and cache.content(Path(p)) == sha for p, sha in about["files"].items())
        return about if same and about["made_with"] == cache.versions(["torch"]) else None

    def _describe(self) -> dict[str, Any]:
        describe = need("edgescope.models.user.factory:describe", self._name, TORCH)
        about: dict[str, Any] = describe(self._name) | {"made_with": cache.versions(["torch"])}
        cache.write_json(self._path(), about)
        return about
