"""Precisions and DLA share read from the inspector's JSON, real and made."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.tensorrt import layers as _trt_layers

REAL = Path(__file__).parent / "data" / "resnet18_fp16.graph.json"


def test_a_real_fp16_engine_has_its_21_heavy_layers_in_fp16():
    layers = _trt_layers.read(REAL.read_text())
    assert (layers.kinds, layers.total, layers.dla) == ({"fp16": 20}, 26, 0)
    assert layers.precision() == "fp16"
    assert layers.evidence() == "engine inspector: 20 fp16 heavy layers of 26"


def layer(told="", *, weights=None, tactic="", kind="CaskConvolution", key="Format/Datatype"):
    made = {"LayerType": kind, "Inputs": [{"Name": "x", key: told}], "TacticName": tactic}
    return made | ({"Weights": {"Type": weights}} if weights else {})


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (layer("Row major linear FP32"), "fp32"),
        (layer("Row major linear FP32", tactic="sm80_fprop_tf32f32_f32"), "tf32"),
        (layer("Channel major FP16 format where channel % 8 == 0", tactic="tf32"), "fp16"),
        (layer("Thirty-two wide channel vectorized row major Int8 format"), "int8"),
        (layer("Row major linear FP32", weights="Int8"), "int8"),
        (layer("Row major linear FP32", weights="Half"), "fp16"),
        (layer("Row major linear BFloat16", kind="gemm"), "bf16"),
        (layer("Float", kind="MatrixMultiply", key="DataType"), "fp32"),
        (layer("", kind="FullyConnected"), "unknown"),
    ],
)
def test_one_layer(one, name):
    assert _trt_layers.of([one]).kinds == {name: 1}


@pytest.mark.parametrize(
    "kind", ["Reformat", "NoOp", "Shuffle", "CaskPooling", "PointWiseV2", "Constant", "kgen"]
)
def test_light_layers_do_not_count(kind):
    assert _trt_layers.of([layer("FP32", kind=kind)]).kinds == {}


def test_a_mixture_is_called_one():
    mixed = [layer("FP16")] * 2 + [layer("Int8")] * 2
    assert _trt_layers.of(mixed).precision() == "mixed (2 fp16, 2 int8)"


def test_an_engine_of_names_only_tells_nothing():
    layers = _trt_layers.read('{"Layers": ["conv1", "conv2"]}')
    assert layers.precision() == "unknown"
    assert "2 layers tell no precision" in layers.evidence()


def test_dla_subgraphs_are_counted_with_their_nodes():
    dla = {
        "LayerType": "DLA",
        "Inputs": [{"Format/Datatype": "FP16"}],
        "Metadata": "[ONNX Layer: a]\x1e[ONNX Layer: b]",
    }
    gpu = layer("FP16") | {"Metadata": "[ONNX Layer: c]"}
    assert "1 subgraphs on the DLA, 2 of 3 ONNX nodes" in _trt_layers.of([dla, gpu]).evidence()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["LayerType", "Inputs", "Weights", "Type", "Metadata", "Layers"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON | st.builds(lambda layers: {"Layers": layers}, st.lists(JSON, max_size=4)))
@pytest.mark.slow
def test_no_json_breaks_it(told):
    assert isinstance(_trt_layers.read(json.dumps(told)).precision(), str)


@given(st.text(max_size=30))
@pytest.mark.slow
def test_no_text_breaks_it(text):
    assert _trt_layers.read(text).precision() in ("unknown",)
