"""The layers of a real small network in three engines: the same work under the same names."""

from __future__ import annotations

import json

import pytest

from edgescope import bench
from edgescope.bench.layers import layers
from edgescope.cli.main import main
from edgescope.errors import UnsupportedError
from edgescope.records import Trial
from edgescope.wings.doctor import ceilings

ENGINES = ("torch_eager", "onnxruntime", "openvino")


@pytest.fixture(scope="module")
def found():
    return {e: layers(Trial(model="lenet5", backend=e, options={"threads": 1})) for e in ENGINES}


@pytest.mark.slow
def test_every_engine_counts_the_same_work(found):
    from edgescope.models import zoo

    macs = zoo.get("lenet5").info.macs
    for engine, each in found.items():
        assert sum(layer.flops for layer in each) == pytest.approx(2 * macs, rel=0.02), engine
        assert all(layer.seconds >= 0 for layer in each) and sum(layer.seconds for layer in each) > 0


@pytest.mark.slow
def test_heavy_layers_have_the_paths_of_their_modules_in_every_engine(found):
    heavy = {engine: {layer.name for layer in each if layer.flops} for engine, each in found.items()}
    assert heavy["torch_eager"] == heavy["onnxruntime"] and len(heavy["torch_eager"]) == 5
    assert heavy["openvino"] <= heavy["torch_eager"]  # which may fuse the last products into one


@pytest.mark.slow
def test_bytes_hold_the_weights(found):
    for each in found.values():
        assert sum(layer.bytes for layer in each) > 4 * 60_000


def test_an_engine_that_tells_nothing_says_so():
    with pytest.raises(UnsupportedError, match="E-LAYER-1"):
        layers(Trial(model="null", backend="null"))


@pytest.mark.slow
def test_the_verb_shows_engines_side_by_side_and_the_roofline(tmp_path, capsys):
    store = ["--store", str(tmp_path)]
    figures = {
        "device": "cpu",
        "flops": {"fp32": {"value": 1e11}},
        "bandwidth": [{"bytes": 1e6, "value": 1e10}],
        "launch_s": 1e-7,
        "h2d": [],
        "d2h": [],
    }
    command = ["layers", "lenet5", "--threads", "1", *store]
    assert main([*command, "--json"]) == 0
    captured = capsys.readouterr()
    (engine,) = json.loads(captured.out)["engines"]
    assert engine["layers"] and engine["layers"][0]["of_limit"]["absent"]
    ceilings.keep(figures, tmp_path, bench.here())
    assert main([*command, "--backend", "torch_eager,onnxruntime", "--json"]) == 0
    engines = json.loads(capsys.readouterr().out)["engines"]
    assert [e["trial"]["backend"] for e in engines] == ["torch_eager", "onnxruntime"]
    assert any("value" in layer["of_limit"] for layer in engines[0]["layers"])
    assert main([*command, "--backend", "torch_eager,onnxruntime"]) == 0
    assert "onnxruntime fp32 b1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "given", "made", "flops"),
    [
        ("MatMulNBits", [{"float": [4, 256]}, {"float": [256, 8]}], [{"float": [4, 16]}], 2 * 4 * 16 * 256),
        ("MatMul", [{"float": [2, 3, 5]}, {"float": [5, 7]}], [{"float": [2, 3, 7]}], 2 * 2 * 3 * 7 * 5),
        ("Relu", [{"float": [4, 256]}], [{"float": [4, 256]}], 0),
        ("MatMul", [], [], 0),
    ],
)
def test_a_product_whose_shapes_the_file_does_not_tell_counts_by_those_that_ran(kind, given, made, flops):
    from edgescope.backends.ort import layers

    assert layers._product(kind, {"input_type_shape": given, "output_type_shape": made}) == flops
