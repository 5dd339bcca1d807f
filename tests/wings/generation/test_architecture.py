"""What a language model's shape costs, against sums done by hand; files that are no such model."""

from dataclasses import replace

import pytest

from edgescope.errors import ModelError, UnsupportedError
from edgescope.wings.generation import architecture, shapes

#: The published counts of weights, in millions (each model's card; Qwen3's counts the embedding once).
PUBLISHED = {
    "smollm2-135m": 134.515,
    "qwen2.5-0.5b": 494.033,
    "qwen3-0.6b": 596.050,
    "tinyllama-1.1b": 1100.048,
    "llama-3.2-1b": 1235.814,
    "llama-3.2-3b": 3212.750,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_has_the_weights_that_its_model_card_counts(name):
    assert shapes.find(name).architecture.params / 1e6 == pytest.approx(PUBLISHED[name], abs=0.001)


def test_cache_of_smollm2_is_23040_bytes_a_token_in_fp16():
    assert shapes.find("smollm2-135m").architecture.kv_values() * 2 == 23_040


def test_operations_of_a_block_by_hand():
    a = shapes.find("tiny-llama").architecture
    one = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 128  # q, k and v, output, three of feeding
    assert a.block_weights == 2 * one
    pairs = 1 + 2 + 3  # each of three tokens with itself and those before
    products, attention, output = 2 * 2 * one * 3, 4 * pairs * 2 * 4 * 16, 2 * 512 * 64
    assert a.flops(3) == products + attention + output
    later = 2 * 2 * one + 4 * 4 * 2 * 4 * 16 + output  # one token that looks at itself and three others
    assert a.flops(1, before=3) == later


def _file(**other):
    a = shapes.find("tiny-qwen3").architecture
    facts = {
        "general.architecture": "qwen3",
        "qwen3.block_count": a.layers,
        "qwen3.embedding_length": a.width,
        "qwen3.feed_forward_length": a.hidden,
        "qwen3.attention.head_count": a.heads,
        "qwen3.attention.head_count_kv": a.kv_heads,
        "qwen3.attention.key_length": a.head_size,
        "qwen3.context_length": a.context,
        "qwen3.rope.freq_base": a.rope_base,
        "qwen3.attention.layer_norm_rms_epsilon": a.epsilon,
        "vocabulary": a.vocabulary,
    }
    return a, facts | other, dict(a.tensors())


def test_a_file_is_read_as_what_it_was_made_of():
    a, facts, tensors = _file()
    assert architecture.read(facts, tensors, "f") == a
    own = tensors | {"output.weight": (a.vocabulary, a.width)}
    assert architecture.read(facts, own, "f") == replace(a, tied=False)


def test_another_architecture_a_missing_tensor_and_a_missing_fact_are_told():
    _, facts, tensors = _file()
    with pytest.raises(UnsupportedError) as other:
        architecture.read(facts | {"general.architecture": "mamba"}, tensors, "f")
    assert other.value.code == "E-LM-1" and "mamba" in other.value.what
    del tensors["blk.1.attn_q_norm.weight"]
    with pytest.raises(ModelError) as lacking:
        architecture.read(facts, tensors, "f")
    assert lacking.value.code == "E-LM-2" and lacking.value.evidence == "blk.1.attn_q_norm.weight"
    del facts["qwen3.block_count"]
    with pytest.raises(ModelError) as unstated:
        architecture.read(facts, tensors, "f")
    assert unstated.value.code == "E-LM-3"
