"""int8 by NVIDIA Model Optimizer through a stand-in that writes a file by hand: what it is asked for, what is kept."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope import cache
from edgescope.errors import UnsupportedError
from edgescope.models.base import Samples

SAMPLES = Samples({"x": np.ones((3, 2), np.float32)}, ("a", "b", "c"), "")


def written(path, pairs=0, point=0, stored=True):
    """Write x, rounded `pairs` times, to y; opset 15."""
    nodes, last = [], "x"
    for i in range(pairs):
        nodes.append(h.make_node("QuantizeLinear", [last, "s", *(["z"] if stored else [])], [f"q{i}"]))
        nodes.append(h.make_node("DequantizeLinear", [f"q{i}", "s", *(["z"] if stored else [])], [f"d{i}"]))
        last = f"d{i}"
    nodes.append(h.make_node("Relu", [last], ["y"]))
    ends = [h.make_tensor_value_info(name, T.FLOAT, [1, 2]) for name in "xy"]
    arrays = {"s": np.float32(0.5), "z": np.int8(point)} if stored else {"s": np.float32(0.5)}
    graph = h.make_graph(
        nodes, "g", ends[:1], ends[1:], [nh.from_array(np.asarray(a), n) for n, a in arrays.items()]
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 15)], ir_version=8), str(path))
    return path


@pytest.fixture
def tool(monkeypatch):
    """The module, with this stand-in for modelopt and a clock that goes on by 2.3456 s at each look."""
    state = SimpleNamespace(asked={}, how={"pairs": 2}, error=None)

    def quantize(**given):
        state.asked = given
        if state.error:
            raise state.error
        written(given["output_path"], **state.how)

    package = ModuleType("modelopt.onnx")
    package.quantization = SimpleNamespace(quantize=quantize)
    monkeypatch.setitem(sys.modules, "modelopt", ModuleType("modelopt"))
    monkeypatch.setitem(sys.modules, "modelopt.onnx", package)
    name = "edgescope.artifacts.int8_modelopt"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    ticks = iter(2.3456 * n for n in range(100))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    state.quantize = module.quantize
    yield state
    sys.modules.pop(name, None)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_it_is_asked_for_what_tensorrt_reads_and_its_file_described(tmp_path, tool, beside, stored):
    source, path = written(tmp_path / "a.onnx"), tmp_path / "b.onnx"
    tool.how = {"pairs": 2, "stored": stored}
    if beside:
        cache.external_data(source).write_bytes(b"weights")
    found = tool.quantize(source, SAMPLES, path, keep_float=2)
    assert (found["build_s"], found["pairs"], found["opset"]) == (2.346, 2, 15)
    assert found["bytes"] == path.stat().st_size and "Model Optimizer" in found["method"]
    asked = tool.asked
    assert (asked["onnx_path"], asked["output_path"], asked["opset"]) == (str(source), str(path), 15)
    assert (asked["quantize_mode"], asked["calibration_method"]) == ("int8", "max")
    assert asked["use_external_data_format"] is beside
    assert asked["calibration_data"]["x"].tolist() == [[1, 1]] * 3


@pytest.mark.parametrize(
    ("how", "evidence"),
    [
        ({"pairs": 0}, "no QuantizeLinear in it"),
        ({"pairs": 1, "point": 3}, "a zero point is not 0"),
    ],
)
def test_a_file_that_tensorrt_does_not_read_is_refused(tmp_path, tool, how, evidence):
    tool.how = how
    with pytest.raises(UnsupportedError) as caught:
        tool.quantize(written(tmp_path / "a.onnx"), SAMPLES, tmp_path / "b.onnx", keep_float=2)
    assert (caught.value.code, caught.value.evidence) == ("E-INT8-3", evidence)


def test_a_failure_is_told_as_the_tools(tmp_path, tool):
    tool.error = KeyError("gone")
    with pytest.raises(UnsupportedError) as caught:
        tool.quantize(written(tmp_path / "a.onnx"), SAMPLES, tmp_path / "b.onnx", keep_float=2)
    assert caught.value.code == "E-INT8-3" and "nvidia-modelopt" in caught.value.what
    assert caught.value.evidence == "KeyError: 'gone'"
