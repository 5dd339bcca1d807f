"""Models of random weights: what is written is what was asked, whoever reads it."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.wings.generation import architecture, shapes, tokenizer

gguf = pytest.importorskip("gguf")


def _read(path):
    file = gguf.GGUFReader(path)
    facts = {name: field.contents() for name, field in file.fields.items()}
    return facts, {tensor.name: tensor for tensor in file.tensors}


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2:q4_0", "tiny-qwen3:f16"])
def test_a_file_holds_the_shape_and_states_the_kind_of_its_weights(tmp_path, name):
    shape = shapes.find(name)
    shapes.write(tmp_path / "m.gguf", shape, seed=3)
    facts, tensors = _read(tmp_path / "m.gguf")
    found = architecture.read(facts, tensors, "m")
    assert found.epsilon == pytest.approx(shape.architecture.epsilon)  # the file holds it in fp32
    assert replace(found, epsilon=shape.architecture.epsilon) == shape.architecture
    assert facts["general.file_type"] == shapes.FILE_TYPES[shape.stored]
    assert shapes.UNTRAINED in facts["general.name"]
    kinds = {t.tensor_type.name.lower() for n, t in tensors.items() if "ffn_up" in n}
    assert kinds == {shape.stored}
    assert sum(int(t.n_elements) for t in tensors.values()) == shape.architecture.params


@pytest.mark.parametrize("stored", shapes.STORED)
def test_every_kind_of_matrix_has_unit_gain_and_no_offset(tmp_path, stored):
    shapes.write(tmp_path / "m.gguf", shapes.find(f"tiny-llama:{stored}"))
    _, tensors = _read(tmp_path / "m.gguf")
    held = tensors["blk.0.ffn_down.weight"]
    values = gguf.dequantize(held.data, held.tensor_type)
    assert values.shape == (64, 128)
    assert values.std() * 128**0.5 == pytest.approx(1, abs=0.05)
    assert abs(values.mean()) * 128**0.5 < 0.05


def test_a_seed_names_the_weights(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shapes.write(tmp_path / name, shapes.find("tiny-llama"), seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b and a != c


def test_a_file_is_made_once_and_another_storage_is_another_file(tmp_path):
    first = shapes.file(shapes.find("tiny-llama"), tmp_path)
    made = first.stat().st_mtime_ns
    assert shapes.file(shapes.find("tiny-llama"), tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert shapes.file(shapes.find("tiny-llama:q4_0"), tmp_path) != first


@pytest.mark.parametrize("name", ["llama-3.2-2b", "tiny-llama:q3", ""])
def test_a_name_that_is_none_is_told_with_those_that_are(name):
    with pytest.raises(UsageError) as error:
        shapes.find(name)
    assert error.value.code == "E-LM-21" and "qwen3-0.6b" in error.value.evidence


def test_the_prompt_of_a_made_model_is_as_long_for_every_reader(tmp_path):
    shapes.write(tmp_path / "m.gguf", shapes.find("tiny-qwen2"))
    facts, _ = _read(tmp_path / "m.gguf")
    read = tokenizer.read(facts, "m")
    assert read.encode("the dog") == tokenizer.made(512, "qwen2").encode("the dog")
    assert np.array_equal(read.kinds, [1] * 509 + [3] * 3)
