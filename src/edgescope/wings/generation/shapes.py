"""Language models with a published one's shape and random weights, written as GGUF: for speed and memory alone.

What a token costs depends on the shapes and the quantisation of the weights, not on their values. The file says that
nobody trained it. Quantised weights are drawn as they are stored, whole numbers with one scale for 32 of them, so that
a model of a billion weights is written in seconds; every product keeps the size of what goes in, as in a trained one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import UsageError, closest_name
from edgescope.records import Json, digest
from edgescope.records.lazy import NDArray, np
from edgescope.registry import need
from edgescope.wings.generation import tokenizer
from edgescope.wings.generation.architecture import Architecture

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERSION = 1  # raise this when other weights are written
UNTRAINED = "random weights: untrained"
BLOCK = 32
"""Weights that share a scale."""


@dataclass(frozen=True)
class Shape:
    """A model to be made: its architecture, how its weights are stored, and whose shape it is."""

    name: str
    architecture: Architecture
    stored: str
    """q8_0, q4_0 or f16: the matrices; q4_0 keeps the embedding in q8_0, as converters do. Vectors are fp32."""
    source: str


@lru_cache(maxsize=1)
def table() -> Mapping[str, Shape]:
    """Return the shapes of models.toml by name, stored as q8_0."""
    rows = tomllib.loads((Path(__file__).parent / "models.toml").read_text(encoding="utf-8"))
    return {name: _shape(name, dict(row)) for name, row in rows.items()}


def _shape(name: str, row: dict[str, Any]) -> Shape:
    source = row.pop("source")
    row.setdefault("head_size", row["width"] // row["heads"])
    return Shape(name, Architecture(**row), "q8_0", source)


def find(name: str) -> Shape:
    """Return the shape called NAME, or NAME:f16 and so on for other storage; UsageError if there is none."""
    base, _, stored = name.partition(":")
    found = table().get(base)
    if found is None or stored not in ("", *STORED):
        close = closest_name(base, table()) if found is None else ""
        raise UsageError(
            "E-LM-21",
            f"there is no language model llm:{name}",
            evidence=f"shapes: {', '.join(table())}; each also as :{', :'.join(STORED)}",
            fix=f"llm:{close or 'smollm2'}",
        )
    return Shape(name, found.architecture, stored or found.stored, found.source)


def file(shape: Shape, folder: Path, seed: int = 0) -> Path:
    """Return the GGUF file of a shape under `folder`, written once."""
    key = digest([VERSION, vars(shape.architecture), shape.stored, seed])
    path = cache.named(folder, cache.safe(shape.name), shape.stored, key, ".gguf")

    def make(new: Path) -> Mapping[str, Json]:
        write(new, shape, seed)
        return {"shape": shape.name, "source": shape.source, "seed": seed}

    return cache.made_once(path, make)


def write(path: Path, shape: Shape, seed: int = 0) -> None:
    """Write random weights of a shape as GGUF; UnavailableError without the package `gguf`."""
    gguf = need("gguf", "the package gguf, which writes models", "pip install 'edgescope[generate]'")
    writer = gguf.GGUFWriter(path, shape.architecture.family)
    _state(writer, shape)
    rows = [(name, size, _kind(name, size, shape.stored)) for name, size in shape.architecture.tensors()]
    for name, size, kind in rows:
        plain = np.dtype(np.float16 if kind == "f16" else np.float32)
        stored = np.dtype(np.uint8) if kind in BYTES else plain
        width = size[-1] // BLOCK * BYTES[kind] if kind in BYTES else size[-1]
        held = (*size[:-1], width)
        raw = gguf.GGMLQuantizationType[kind.upper()]
        writer.add_tensor_info(name, held, stored, math.prod(held) * stored.itemsize, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for number, (name, size, kind) in enumerate(rows):
        writer.write_tensor_data(_values(name, size, kind, np.random.default_rng([seed, number])))
    writer.close()


def _kind(name: str, size: tuple[int, ...], stored: str) -> str:
    if len(size) == 1:
        return "f32"
    return "q8_0" if stored == "q4_0" and name in ("token_embd.weight", "output.weight") else stored


def _state(writer: Any, shape: Shape) -> None:
    """State the architecture, the tokenizer and the origin."""
    a = shape.architecture
    writer.add_name(f"{shape.name} ({UNTRAINED})")
    writer.add_description(f"{UNTRAINED}; shape of {shape.source}")
    writer.add_file_type(FILE_TYPES[shape.stored])
    writer.add_quantization_version(2)
    writer.add_block_count(a.layers)
    writer.add_context_length(a.context)
    writer.add_embedding_length(a.width)
    writer.add_feed_forward_length(a.hidden)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_key_length(a.head_size)
    writer.add_value_length(a.head_size)
    writer.add_rope_dimension_count(a.head_size)
    writer.add_rope_freq_base(a.rope_base)
    writer.add_layer_norm_rms_eps(a.epsilon)
    writer.add_vocab_size(a.vocabulary)
    made = tokenizer.made(a.vocabulary, "smollm" if a.family == "llama" else "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(made.pre)
    writer.add_token_list(list(made.tokens))
    writer.add_token_types(list(made.kinds))
    writer.add_token_merges(list(made.merges))
    end = a.vocabulary - 1
    writer.add_bos_token_id(end - 1)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end - 2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)


CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _values(name: str, size: tuple[int, ...], kind: str, rng: np.random.Generator) -> NDArray[Any]:
    """Return the stored form of a tensor: ones for norms, small numbers for biases, unit gain for matrices."""
    if len(size) == 1:
        return np.ones(size, np.float32) if "norm" in name else _normal(size, 0.1, rng)
    return STORED[kind](size, size[-1] ** -0.5, rng)


def _normal(size: tuple[int, ...], spread: float, rng: np.random.Generator) -> NDArray[Any]:
    return rng.standard_normal(size, np.float32) * np.float32(spread)


def _f16(size: tuple[int, ...], spread: float, rng: np.random.Generator) -> NDArray[Any]:
    return _normal(size, spread, rng).astype(np.float16)


def _blocks(size: tuple[int, ...], most: int, spread: float, held: int) -> NDArray[Any]:
    """Return (rows, blocks, bytes) with the scale that gives whole numbers up to `most` the spread."""
    blocks = np.empty((size[0], size[1] // BLOCK, held), np.uint8)
    uniform = math.sqrt(most * (most + 1) / 3)  # the spread of whole numbers from -most to most
    blocks[..., :2] = np.frombuffer(np.float16(spread / uniform).tobytes(), np.uint8)
    return blocks


def _q8_0(size: tuple[int, ...], spread: float, rng: np.random.Generator) -> NDArray[Any]:
    blocks = _blocks(size, 127, spread, 34)
    blocks[..., 2:] = rng.integers(-127, 128, (*blocks.shape[:2], BLOCK), np.int8).view(np.uint8)
    return blocks.reshape(size[0], -1)


def _q4_0(size: tuple[int, ...], spread: float, rng: np.random.Generator) -> NDArray[Any]:
    blocks = _blocks(size, 7, spread, 18)
    half = (*blocks.shape[:2], BLOCK // 2)
    low, high = (rng.integers(1, 16, half, np.uint8) for _ in range(2))  # 8 stands for zero
    blocks[..., 2:] = low | high << 4
    return blocks.reshape(size[0], -1)


STORED: Mapping[str, Callable[[tuple[int, ...], float, np.random.Generator], NDArray[Any]]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "f16": _f16,
}
BYTES = {"q8_0": 34, "q4_0": 18}
"""Bytes of a block of 32 weights."""
FILE_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 7}
"""GGUF's number for a file of each kind; readers take it for granted."""
