"""The decoder's network against the same weights computed by loops in numpy's fp64."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.wings.generation import shapes
from edgescope.wings.generation.architecture import Architecture

torch = pytest.importorskip("torch")
transformer = pytest.importorskip("edgescope.wings.generation.transformer")

FAMILIES = ("tiny-llama", "tiny-qwen2", "tiny-qwen3")
PROMPT = [3, 141, 59, 26, 53, 5, 89, 79]


def _weights(a: Architecture, seed=5):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(size) * (0.3 if len(size) == 1 else size[-1] ** -0.5)).astype(np.float32)
        + np.float32(len(size) == 1 and "norm" in name)
        for name, size in a.tensors()
    }


def _norm(x, weight, eps):
    return x / np.sqrt((x * x).mean() + eps) * weight


def _turn(head, place, a):
    """Turn one head's pairs: neighbours in llama's files, half a head apart in qwen's."""
    half, out = a.head_size // 2, head.copy()
    for i in range(half):
        one, two = (2 * i, 2 * i + 1) if a.family == "llama" else (i, i + half)
        angle = place * a.rope_base ** (-i / half)
        out[one] = head[one] * np.cos(angle) - head[two] * np.sin(angle)
        out[two] = head[one] * np.sin(angle) + head[two] * np.cos(angle)
    return out


def _by_hand(a: Architecture, weights, tokens, places=None):
    """Return the logits after each token, computed for one token and one head at a time."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    held = [([], []) for _ in range(a.layers)]
    found = []
    for place, token in zip(places or range(len(tokens)), tokens, strict=True):
        x = w["token_embd.weight"][token]
        for n, (keys, values) in enumerate(held):
            at = f"blk.{n}."
            mine = {name.removeprefix(at): value for name, value in w.items() if name.startswith(at)}
            x = _block(a, mine, x, place, keys, values)
        found.append(
            w.get("output.weight", w["token_embd.weight"]) @ _norm(x, w["output_norm.weight"], a.epsilon)
        )
    return np.array(found)


def _block(a, w, x, place, keys, values):
    y = _norm(x, w["attn_norm.weight"], a.epsilon)
    q, k, v = (
        (w[f"attn_{p}.weight"] @ y + w.get(f"attn_{p}.bias", 0.0)).reshape(-1, a.head_size) for p in "qkv"
    )
    if a.normed:
        q = [_norm(head, w["attn_q_norm.weight"], a.epsilon) for head in q]
        k = [_norm(head, w["attn_k_norm.weight"], a.epsilon) for head in k]
    keys.append([_turn(head, place, a) for head in k])
    values.append(v)
    mixed = []
    for h, head in enumerate(q):
        shared = h * a.kv_heads // a.heads
        scores = np.array([_turn(head, place, a) @ key[shared] for key in keys]) / np.sqrt(a.head_size)
        share = np.exp(scores - scores.max())
        mixed.append(sum(s * value[shared] for s, value in zip(share / share.sum(), values, strict=True)))
    x = x + w["attn_output.weight"] @ np.concatenate(mixed)
    y = _norm(x, w["ffn_norm.weight"], a.epsilon)
    gate = w["ffn_gate.weight"] @ y
    return x + w["ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (w["ffn_up.weight"] @ y))


def _network(a, weights, dtype=torch.float32):
    return transformer.Transformer(a, weights.get, dtype, "cpu")


def _scores(network, tokens, steps):
    """Return the logits after each token, fed in pieces of these lengths."""
    cache, found, at = network.cache(len(tokens)), [], 0
    with torch.inference_mode():
        for step in steps:
            piece = torch.tensor(tokens[at : at + step])
            found.append(network.logits(network.hidden(network.embed(piece), cache)))
            at += step
    return torch.cat(found).float().numpy()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("steps", [(8,), (1,) * 8, (3, 4, 1)], ids=["at once", "one by one", "in pieces"])
def test_scores_are_those_of_loops_in_fp64(name, steps):
    a = shapes.find(name).architecture
    weights = _weights(a)
    found = _scores(_network(a, weights), PROMPT, steps)
    assert found == pytest.approx(_by_hand(a, weights, PROMPT), abs=2e-5)


def test_an_output_layer_of_its_own_is_used():
    a = replace(shapes.find("tiny-llama").architecture, tied=False)
    weights = _weights(a)
    assert _scores(_network(a, weights), PROMPT, (8,)) == pytest.approx(
        _by_hand(a, weights, PROMPT), abs=2e-5
    )


def test_factors_of_a_longer_context_slow_the_turns():
    a = shapes.find("tiny-llama").architecture
    weights = _weights(a)
    plain = _scores(_network(a, weights), PROMPT, (8,))
    same = _scores(_network(a, weights | {"rope_freqs.weight": np.ones(8, np.float32)}), PROMPT, (8,))
    slow = _scores(_network(a, weights | {"rope_freqs.weight": np.full(8, 1e9, np.float32)}), PROMPT, (8,))
    assert np.array_equal(plain, same)
    assert slow == pytest.approx(_still(a, weights), abs=2e-5)


def _still(a, weights):
    """Return the scores without any turn: as if every token stood at place 0."""
    return _by_hand(a, weights, PROMPT, places=[0] * len(PROMPT))


def test_bf16_differs_from_fp32_by_rounding_alone():
    a = shapes.find("tiny-qwen3").architecture
    weights = _weights(a)
    exact = _scores(_network(a, weights), PROMPT, (8,))
    rounded = _scores(_network(a, weights, torch.bfloat16), PROMPT, (8,))
    apart = np.linalg.norm(exact - rounded) / np.linalg.norm(exact)
    assert 1e-4 < apart < 0.03
