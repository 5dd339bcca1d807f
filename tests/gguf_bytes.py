"""Writes the header of a GGUF file, byte by byte, for tests of what reads it."""

import struct

LLAMA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 16,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}
#: name -> (axes as GGUF has them, the fastest first; ggml's number of the type; bytes)
TENSORS = {
    "token_embd.weight": ((8, 3), 0, 96),
    "output_norm.weight": ((8,), 0, 32),
    "blk.0.attn_norm.weight": ((8,), 0, 32),
    "blk.0.ffn_norm.weight": ((8,), 0, 32),
    "blk.0.attn_q.weight": ((8, 8), 0, 256),
    "blk.0.attn_k.weight": ((8, 4), 0, 128),
    "blk.0.attn_v.weight": ((8, 4), 0, 128),
    "blk.0.attn_output.weight": ((8, 8), 1, 128),
    "blk.0.ffn_gate.weight": ((8, 16), 0, 512),
    "blk.0.ffn_up.weight": ((8, 16), 0, 512),
    "blk.0.ffn_down.weight": ((16, 8), 0, 512),
}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def fact(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def gguf(facts=LLAMA, tensors=TENSORS, version=3, alignment=32):
    """Return the whole file; its weights are zeros."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(facts))
    head += b"".join(text(name) + fact(value) for name, value in facts.items())
    at = 0
    for name, (axes, kind, size) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, at)
        at += -(-size // alignment) * alignment
    return head.ljust(-(-len(head) // alignment) * alignment, b"\0") + bytes(at)
