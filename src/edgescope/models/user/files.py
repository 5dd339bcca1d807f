"""A user's own file as a model: what .onnx, .tflite and PyTorch's files share, and the .onnx file itself.

A file's facts (inputs, parameters) are read once by the half that needs its library, and kept in the cache under
the file's content, so that a process that only measures does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edgescope import cache
from edgescope.errors import EdgescopeError, UnsupportedError, UsageError, closest_name
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch


VERSION = 5  # raise this when the stored facts of a model change
PICTURE_AXES = 3
"""Axes of a sample that is a picture; with fewer, a first axis may well belong to the sample."""
Shapes = Mapping[str, tuple[int, ...]]


def facts_of(content: str, kept: str) -> Path:
    """Return where the facts of a file are kept."""
    return cache.folder("models") / f"{kept}-{content}.json"


class UserFile:
    """A user's own file, described once per content. Open axes other than the batch are fixed by `shapes`."""

    READER: ClassVar[tuple[str, str]]
    """The function that reads a file's facts, and the command that makes its library importable."""

    def __init__(self, name: str, content: str, kept: str, shapes: Shapes) -> None:
        self._path = Path(name)
        known = facts_of(content, kept)
        about: dict[str, Any] | None = cache.read_json(known)
        if about is None:
            about = self._read(shapes)
            cache.write_json(known, about)
        self.about: dict[str, Any] = about
        self.inputs = fixed(name, about["inputs"], shapes)
        self._batches = {given["name"]: given["dims"][0] for given in about["inputs"]}
        self._ranges = {i.name: synthetic.usual_range(i.dtype, i.shape, i.name) for i in self.inputs}
        self.info = ModelInfo(
            name=self._path.name,
            task="unknown",
            trained=False,
            source=f"{self._path.name}; its task is not known",
            digest=digest([content, [spec.shape for spec in self.inputs]]),
            params=about["params"],
        )

    def _read(self, shapes: Shapes) -> dict[str, Any]:
        target, fix = self.READER
        found: dict[str, Any] = need(target, self._path.name, fix)(self._path)
        return found

    @property
    def closed_batch(self) -> int | None:
        """Return the batch size that the file was made for, or None if its batch axis is open."""
        return next((size for size in self._batches.values() if isinstance(size, int)), None)

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded random inputs in the file's own layout, because the expected kind of input is not known."""
        return synthetic.samples(self.inputs, purpose, n, ranges=self._ranges)


class OnnxFile(UserFile):
    """An ONNX file; its reference is ONNX Runtime: in fp32, or of a quantised file as it is."""

    READER = "edgescope.models.user.onnx_reader:describe", zoo.ONNX_FIX
    reference = "onnxruntime"

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        self._content = zoo.onnx_digest(Path(name))
        super().__init__(name, self._content, f"onnx-{VERSION}", shapes or {})
        self.kinds: dict[str, int] = self.about["kinds"]
        what = "quantised" if self.written.startswith("int") else self.written
        lost = f"; it is {what} already ({counted(self.kinds)}) and holds no fp32 network" if what else ""
        fixed_at = ", ".join(f"{key} {value:g}" for key, value in sorted(self.about["constants"].items()))
        self._fixed = f"; inputs that are one number are fixed: {fixed_at}" if fixed_at else ""
        self.info = replace(self.info, source=f"ONNX file {self.info.source}{lost}{self._fixed}")

    @property
    def written(self) -> str:
        """Return the precision of most products that are not written in fp32, '' if all are."""
        return most_reduced(self.kinds)

    def check_batch(self, batch: int) -> None:
        """Raise UsageError if the file's first axis is closed at another size, which may be its batch or not."""
        closed = {name: size for name, size in self._batches.items() if isinstance(size, int)}
        other = next((name for name, size in closed.items() if size != batch), None)
        if other is None:
            return
        size, shape = closed[other], next(i.shape for i in self.inputs if i.name == other)
        whole = "x".join(map(str, (size, *shape)))
        sample = f"; if it is part of one sample, export it with a batch axis, Nx{whole}"
        sizes = ", ".join(f"{name} {n}" for name, n in closed.items())
        raise UsageError(
            "E-BATCH-1",
            f"{self.info.name} cannot run batch {batch}: axis 0 of input {other!r} is fixed at {size}",
            evidence=f"{other} is {whole}"
            if len(set(closed.values())) == 1
            else f"axis 0 of its inputs: {sizes}",
            fix=f"--batch {size} if that axis is the batch{sample if len(shape) < PICTURE_AXES else ''}",
        )

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: a file holds no PyTorch network."""
        raise only_onnx(self.info.name)

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the file itself, with any opset: an engine that cannot read it says so.

        A file that no engine can be fed as it is has a copy, made once in `folder`.
        """
        if not self.about["mended"]:
            return self._path.resolve()
        copied: Path = need("edgescope.models.user.onnx_reader:mended", self.info.name, zoo.ONNX_FIX)(
            self._path, self._content, folder
        )
        return copied


def counted(kinds: Mapping[str, int]) -> str:
    """Return `3 int8, 1 fp32`."""
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1]))


def most_reduced(kinds: Mapping[str, int]) -> str:
    """Return the precision, without what it is of, of most operators that are not fp32; '' if all are."""
    counts = {kind: n for kind, n in kinds.items() if kind != "fp32"}
    return max(counts, key=lambda kind: counts[kind]).partition(" ")[0] if counts else ""


def written(path: Path) -> str:
    """Return the precision of an ONNX file that is run as it is, '' for a float file or one that cannot be read."""
    about = _facts(path)
    return most_reduced(about["kinds"]) if about else ""


def leaves_open(path: Path, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes without those that an ONNX file has itself, which make no other trial."""
    about = _facts(path) if shapes else None
    own = {entry["name"]: entry["dims"] for entry in about["inputs"]} if about else {}
    return {
        name: shape
        for name, shape in shapes.items()
        if name not in own or not _whole(own[name]) or not _fits(shape, own[name])
    }


def _facts(path: Path) -> dict[str, Any] | None:
    """Return the facts of an ONNX file, None for one that cannot be read: whoever opens it tells why."""
    try:
        known = facts_of(zoo.onnx_digest(path), f"onnx-{VERSION}")
        about: dict[str, Any] | None = cache.read_json(known)
        if about is None:
            about = need(*OnnxFile.READER[:1], path.name, OnnxFile.READER[1])(path)
            cache.write_json(known, about)
    except EdgescopeError:
        return None
    return about


def only_onnx(name: str) -> UnsupportedError:
    """Return the error for a model that is an ONNX file, where a PyTorch network is requested."""
    return UnsupportedError(
        "E-MODEL-5", f"{name} is an ONNX file, PyTorch cannot run it", fix="--backend onnxruntime or openvino"
    )


def fixed(name: str, given: list[dict[str, Json]], shapes: Shapes) -> tuple[TensorSpec, ...]:
    """Return the inputs with every axis but the batch closed; UsageError if `shapes` leaves one open.

    An axis that several inputs have by name is given once.
    """
    dims = {entry["name"]: entry["dims"] for entry in given}
    listing = ", ".join(f"{key}={'x'.join(map(str, value))}" for key, value in dims.items())
    sizes: dict[Json, int] = {}
    for key, shape in shapes.items():
        if not _fits(shape, dims.get(key)):
            near = closest_name(key, dims) or next(iter(dims))
            raise UsageError(
                "E-SHAPE-2",
                f"--shapes {key}={'x'.join(map(str, shape))} does not fit {name}",
                evidence=f"its inputs are {listing}; a letter is an open axis",
                fix=_example({near: dims[near]}),
            )
        sizes |= {d: n for d, n in zip(dims[key][1:], shape[1:], strict=True) if isinstance(d, str)}
    filled = {key: [axes[0], *(sizes.get(d, d) for d in axes[1:])] for key, axes in dims.items()}
    filled |= {key: [dims[key][0], *shape[1:]] for key, shape in shapes.items()}
    return tuple(_closed(name, entry, filled, listing) for entry in given)


def _fits(shape: tuple[int, ...], dims: list[Json] | None) -> bool:
    """Return whether a shape has the axes of an input and the sizes of those that are closed, but for the batch."""
    if dims is None or len(shape) != len(dims):
        return False
    return all(d == n for d, n in zip(dims[1:], shape[1:], strict=True) if isinstance(d, int))


def _closed(name: str, entry: dict[str, Json], dims: Mapping[str, list[Json]], listing: str) -> TensorSpec:
    axes = dims[entry["name"]]
    if not all(isinstance(size, int) for size in axes[1:]):
        is_open = [f"{i} ({d})" for i, d in enumerate(axes) if i and not isinstance(d, int)]
        raise UsageError(
            "E-SHAPE-3",
            f"input {entry['name']!r} of {name} has open axes: {', '.join(is_open)}",
            evidence=f"its inputs are {listing}",
            effect="Speed depends on them, so they are not guessed",
            fix=_example({key: value for key, value in dims.items() if not _whole(value)}),
        )
    return TensorSpec(entry["name"], tuple(axes[1:]), entry["dtype"])


def _whole(dims: list[Json]) -> bool:
    return all(isinstance(size, int) for size in dims[1:])


def _example(dims: Mapping[str, list[Json]]) -> str:
    """Return the flags that would fit: open axes get sizes that images or sentences usually have, N is the batch."""
    flags = []
    for name, axes in dims.items():
        usual = 224 if len(axes) == 4 else 128
        sizes = [d if isinstance(d, int) else "N" if i == 0 else usual for i, d in enumerate(axes)]
        flags.append(f"--shapes {name}={'x'.join(map(str, sizes))}")
    return " ".join(flags)


SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a zip archive, as PyTorch writes",
    b"%PDF": "a PDF",
    b"version https://git-lfs": "a Git LFS pointer, not the file: git lfs pull fetches it",
    b"<!doctype": "a web page, not the file behind its link",
    b"<html": "a web page, not the file behind its link",
    b"<?xml": "XML",
    b"\x1f\x8b": "a gzip archive",
    b"\x89hdf": "an HDF5 file, as Keras writes",
    b"{": "text, perhaps JSON: the answer of a server and not the file",
}
"""Each in lower case where it is text: how pages begin differs."""
AT_FOUR = {b"TFL3": "a TFLite file"}


def said(path: Path) -> str:
    """Return what the file is, as words: `a PNG image`, `a folder`, `empty`; '' if nothing is recognised."""
    if path.is_dir():
        return "a folder"
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return "empty: 0 bytes"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    named = (
        words for magic, words in SIGNATURES.items() if start.startswith(magic) or text.startswith(magic)
    )
    return next(named, AT_FOUR.get(start[4:8], ""))
