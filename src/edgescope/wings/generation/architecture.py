"""The shape of a language model: what a GGUF file says of it, which tensors it must hold, and what its work costs.

Three architectures are known. They are one network: blocks of attention and a gated feed-forward layer, each behind
RMSNorm, with rotary positions. qwen2 adds biases to queries, keys and values, qwen3 normalises queries and keys. The
arithmetic here (weights, cache, operations) needs no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgescope.errors import ModelError, UnsupportedError

FAMILIES = ("llama", "qwen2", "qwen3")
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True)
class Architecture:
    """One shape; sizes are numbers of elements."""

    family: str
    layers: int
    width: int
    hidden: int
    """Width inside the feed-forward layers."""
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int
    """The longest prompt and answer together that it was made for, in tokens."""
    rope_base: float
    epsilon: float
    tied: bool = True
    """Whether the output layer is the embedding, so that its weights exist once."""

    @property
    def biased(self) -> bool:
        """Return whether queries, keys and values have biases."""
        return self.family == "qwen2"

    @property
    def normed(self) -> bool:
        """Return whether queries and keys are normalised."""
        return self.family == "qwen3"

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Return the matrices of one block, (outputs, inputs) by name."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        sizes = ((q, self.width), (kv, self.width), (kv, self.width), (self.width, q))
        feeding = ((self.hidden, self.width), (self.hidden, self.width), (self.width, self.hidden))
        return dict(zip(MATRICES, sizes + feeding, strict=True))

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield every tensor that a file must hold, (outputs, inputs) or (elements,) by GGUF's name."""
        yield "token_embd.weight", (self.vocabulary, self.width)
        for n in range(self.layers):
            yield from ((f"blk.{n}.{name}", shape) for name, shape in self._block())
        yield "output_norm.weight", (self.width,)
        if not self.tied:
            yield "output.weight", (self.vocabulary, self.width)

    def _block(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        sizes = self.matrices()
        yield "attn_norm.weight", (self.width,)
        for name in MATRICES:
            yield f"{name}.weight", sizes[name]
        if self.biased:
            yield from ((f"{name}.bias", sizes[name][:1]) for name in ("attn_q", "attn_k", "attn_v"))
        if self.normed:
            yield from ((f"{name}.weight", (self.head_size,)) for name in ("attn_q_norm", "attn_k_norm"))
        yield "ffn_norm.weight", (self.width,)

    @property
    def params(self) -> int:
        """Return the number of weights; a tied embedding counts once."""
        return sum(_product(shape) for _, shape in self.tensors())

    @property
    def block_weights(self) -> int:
        """Return the weights of the matrices of all blocks: what every token is multiplied with, but for the output."""
        return self.layers * sum(_product(shape) for shape in self.matrices().values())

    def kv_values(self, tokens: int = 1) -> int:
        """Return the numbers that the cache of keys and values holds for so many tokens."""
        return 2 * self.layers * self.kv_heads * self.head_size * tokens

    def flops(self, tokens: int, *, before: int = 0, outputs: int = 1) -> int:
        """Return the floating point operations of the products for `tokens` after `before` others in the cache.

        A multiplication and an addition are two. `outputs` tokens go through the output layer: of a prompt the last
        alone. Attention counts the pairs that a causal mask leaves. Norms, rotations and softmax are left out.
        """
        pairs = tokens * before + tokens * (tokens + 1) // 2
        attention = 4 * pairs * self.layers * self.heads * self.head_size
        return 2 * self.block_weights * tokens + attention + 2 * self.vocabulary * self.width * outputs


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def read(facts: Mapping[str, Any], tensors: Mapping[str, Any], name: str) -> Architecture:
    """Return the architecture that a GGUF file states; its tensors' names tell whether the output is the embedding.

    UnsupportedError for an architecture that is none of FAMILIES; ModelError if a fact or a tensor is missing.
    """
    family = str(facts.get("general.architecture", "none"))
    if family not in FAMILIES:
        raise UnsupportedError(
            "E-LM-1",
            f"{name} is a model of the architecture {family}",
            evidence=f"edgescope's decoder knows {', '.join(FAMILIES)}",
            effect="Its answers cannot be checked against fp32 here, and its cache and operations are not known",
            fix="an engine that knows it: --backend openvino_genai, or a server's URL",
        )
    found = _stated(facts, family, name)
    shape = Architecture(family, **found, tied="output.weight" not in tensors)
    lacking = [tensor for tensor, _ in shape.tensors() if tensor not in tensors]
    if lacking:
        raise ModelError(
            "E-LM-2",
            f"{name} lacks {len(lacking)} of the tensors that its architecture needs",
            evidence=", ".join(lacking[:4]) + (" ..." if len(lacking) > 4 else ""),
            fix="download or convert it again; it is cut short or one part of several",
        )
    return shape


def _stated(facts: Mapping[str, Any], family: str, name: str) -> dict[str, Any]:
    def fact(key: str, usual: Any = None) -> Any:
        value = facts.get(f"{family}.{key}", usual)
        if value is None:
            raise ModelError(
                "E-LM-3",
                f"{name} does not state {family}.{key}",
                fix="convert it again with a current converter",
            )
        return value

    width, heads = fact("embedding_length"), fact("attention.head_count")
    return {
        "layers": fact("block_count"),
        "width": width,
        "hidden": fact("feed_forward_length"),
        "heads": heads,
        "kv_heads": fact("attention.head_count_kv", heads),
        "head_size": fact("attention.key_length", width // heads),
        "vocabulary": fact("vocab_size", facts.get("vocabulary")),
        "context": fact("context_length"),
        "rope_base": float(fact("rope.freq_base", 10000.0)),
        "epsilon": float(fact("attention.layer_norm_rms_epsilon")),
    }
