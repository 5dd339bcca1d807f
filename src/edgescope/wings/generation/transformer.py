"""The network of llama, qwen2 and qwen3 in plain PyTorch, one sequence at a time, with its cache of keys and values.

Rotary positions turn pairs of a head's numbers. Files of llama keep the two of a pair side by side, those of qwen half
a head apart; rows are put into the second order when they are loaded. Queries, keys and values are one product, and so
are the two that feed a gate: a small model on a fast device is bound by the launches of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from edgescope.records.lazy import NDArray
from edgescope.wings.generation.architecture import Architecture

Read = Callable[[str], "NDArray[np.float32] | None"]
"""A tensor by GGUF's name; None if the file has none of that name."""


@dataclass(frozen=True)
class Block:
    """One block's weights."""

    attn_norm: torch.Tensor
    qkv: torch.Tensor
    bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    ffn_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Cache:
    """Keys and values of one sequence, room for `tokens` of them."""

    def __init__(self, a: Architecture, tokens: int, dtype: torch.dtype, device: str) -> None:
        self.room, self.filled = tokens, 0
        self.held = torch.zeros(a.layers, 2, a.kv_heads, tokens, a.head_size, dtype=dtype, device=device)


class Transformer:
    """The weights on a device in a dtype; every call adds tokens to a cache."""

    def __init__(self, a: Architecture, read: Read, dtype: torch.dtype, device: str) -> None:
        self.a, self.dtype, self.device = a, dtype, device
        self._read = read
        self.embedding = self._tensor("token_embd.weight")
        self.output = self.embedding if a.tied else self._tensor("output.weight")
        self.norm = self._tensor("output_norm.weight")
        self.blocks = [self._block(f"blk.{n}.") for n in range(a.layers)]
        self.cos, self.sin = self._turns()

    def _tensor(self, *names: str) -> torch.Tensor:
        """Return tensors, one below the other."""
        parts = [torch.from_numpy(np.ascontiguousarray(self._sorted(name))).to(self.dtype) for name in names]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(self.device)

    def _optional(self, *names: str) -> torch.Tensor | None:
        return None if self._read(names[0]) is None else self._tensor(*names)

    def _sorted(self, name: str) -> NDArray[np.float32]:
        """Return a tensor; the rows of llama's queries and keys in the order of halves."""
        values = self._read(name)
        if values is None:
            raise KeyError(name)
        if self.a.family != "llama" or not name.endswith(("attn_q.weight", "attn_k.weight")):
            return values
        pairs = values.reshape(-1, self.a.head_size // 2, 2, values.shape[-1])
        return np.swapaxes(pairs, 1, 2).reshape(values.shape)

    def _block(self, at: str) -> Block:
        qkv = [f"{at}attn_{part}" for part in "qkv"]
        return Block(
            attn_norm=self._tensor(f"{at}attn_norm.weight"),
            qkv=self._tensor(*(f"{name}.weight" for name in qkv)),
            bias=self._optional(*(f"{name}.bias" for name in qkv)) if self.a.biased else None,
            q_norm=self._optional(f"{at}attn_q_norm.weight"),
            k_norm=self._optional(f"{at}attn_k_norm.weight"),
            out=self._tensor(f"{at}attn_output.weight"),
            ffn_norm=self._tensor(f"{at}ffn_norm.weight"),
            gate_up=self._tensor(f"{at}ffn_gate.weight", f"{at}ffn_up.weight"),
            down=self._tensor(f"{at}ffn_down.weight"),
        )

    def _turns(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cosine and sine of every position's turns, (context, head size), computed in fp64."""
        half = self.a.head_size // 2
        steps = self.a.rope_base ** (-np.arange(half) / half)
        stretched = self._read("rope_freqs.weight")  # llama 3's longer context
        if stretched is not None:
            steps = steps / stretched
        angles = torch.from_numpy(np.outer(np.arange(self.a.context), np.concatenate([steps, steps])))
        sign = torch.ones(self.a.head_size, dtype=torch.float64)
        sign[:half] = -1
        kept = angles.cos(), angles.sin() * sign
        return kept[0].to(self.device, self.dtype), kept[1].to(self.device, self.dtype)

    def cache(self, tokens: int) -> Cache:
        """Return an empty cache with room for `tokens`."""
        return Cache(self.a, tokens, self.dtype, self.device)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the vectors of tokens, (tokens, width)."""
        return functional.embedding(tokens, self.embedding)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token after each vector, (tokens, vocabulary)."""
        return functional.linear(self._normed(hidden, self.norm), self.output)

    def hidden(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Add vectors (tokens, width) to the cache; return what the last block makes of each."""
        start, end = cache.filled, cache.filled + len(x)
        cos, sin = self.cos[start:end], self.sin[start:end]
        for block, held in zip(self.blocks, cache.held, strict=True):
            q, k, v = self._projected(block, x, cos, sin)
            held[0, :, start:end], held[1, :, start:end] = k, v
            found = self._attended(q, held[0, :, :end], held[1, :, :end], start)
            x = x + functional.linear(found, block.out)
            x = x + self._fed(block, x)
        cache.filled = end
        return x

    def _projected(
        self, block: Block, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values, (heads, tokens, head size), the first two normalised and turned."""
        a = self.a
        both = functional.linear(self._normed(x, block.attn_norm), block.qkv, block.bias)
        rows = both.view(len(x), -1, a.head_size).transpose(0, 1)
        q, k, v = torch.split(rows, [a.heads, a.kv_heads, a.kv_heads])
        if block.q_norm is not None and block.k_norm is not None:
            q, k = self._normed(q, block.q_norm), self._normed(k, block.k_norm)
        return turned(q, cos, sin), turned(k, cos, sin), v

    def _attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
        """Return each token's mixture of the values, (tokens, heads * head size)."""
        count = q.shape[1]
        if (
            count == 1
        ):  # the queries that share keys are one product: the cache is read once, not copied per head
            grouped = q.view(self.a.kv_heads, -1, self.a.head_size)
            scores = torch.bmm(grouped, k.transpose(1, 2)) * self.a.head_size**-0.5
            return torch.bmm(scores.softmax(-1), v).view(1, -1)
        mask = None
        if start:
            places = torch.arange(start + count, device=q.device)
            mask = places <= places[start:, None]
        found = functional.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=mask, is_causal=not start, enable_gqa=True
        )
        return found[0].transpose(0, 1).reshape(count, -1)

    def _fed(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        gate, up = functional.linear(self._normed(x, block.ffn_norm), block.gate_up).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, block.down)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.a.epsilon)

    def next(self, tokens: Sequence[int] | torch.Tensor, cache: Cache) -> torch.Tensor:
        """Add tokens to the cache; return the likeliest next one, a tensor of one number on the device."""
        given = torch.as_tensor(tokens, device=self.device)
        return self.logits(self.hidden(self.embed(given), cache)[-1:]).argmax(-1)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return (heads, tokens, size) with the pairs (i, i + size / 2) turned; `sin` is negative in its first half."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
