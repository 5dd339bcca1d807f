"""A file whose exporter notes the types of its weights, as torch's does from opset 18 on, is lowered to fp16."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope.artifacts import onnx_write
from edgescope.errors import UnsupportedError


def value(name, *shape):
    return h.make_tensor_value_info(name, T.FLOAT, list(shape))


def upsampler(path, branch=False):
    """Write Conv -> Resize, whose scales the converter leaves in fp32 and their note turns into fp16."""
    stored = {"w": np.ones((4, 3, 3, 3), np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    resize = h.make_node("Resize", ["c", "", "s"], ["r"], name="up", mode="nearest")
    end = h.make_node("Identity", ["r"], ["y"], name="end")
    if branch:
        inner = h.make_graph([resize], "b", [], [value("r", 1, 4, 16, 16)], value_info=[value("s", 4)])
        resize = h.make_node("If", ["t"], ["r"], name="if", then_branch=inner, else_branch=inner)
    nodes = [h.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4), resize, end]
    noted = [value(name, *array.shape) for name, array in stored.items()]
    tensors = [nh.from_array(array, name) for name, array in stored.items()]
    tensors.append(nh.from_array(np.array(True), "t"))
    graph = h.make_graph(
        nodes, "g", [value("x", 1, 3, 8, 8)], [value("y", 1, 4, 16, 16)], tensors, value_info=noted
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)


def test_noted_types_of_weights_do_not_stop_it(tmp_path):
    import onnxruntime

    upsampler(tmp_path / "in.onnx")
    onnx.checker.check_model(str(tmp_path / "in.onnx"), full_check=True)  # the file itself is good
    onnx_write.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    old, new = (
        onnxruntime.InferenceSession(str(tmp_path / name)).run(None, {"x": x})[0]
        for name in ("in.onnx", "out.onnx")
    )
    assert new == pytest.approx(old, rel=1e-2)
    graph = onnx.load(str(tmp_path / "out.onnx")).graph
    assert {t.name: t.data_type for t in graph.initializer}["w"] == T.FLOAT16 and not graph.value_info


def test_the_notes_within_a_branch_go_as_well(tmp_path):
    upsampler(tmp_path / "in.onnx", branch=True)
    graph = onnx.load(str(tmp_path / "in.onnx")).graph
    onnx_write._forget_types(graph)
    branches = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    assert len(branches) == 2 and not any(branch.value_info for branch in branches)


def test_it_says_how_long_it_took_and_how_large_it_is(tmp_path, monkeypatch):
    ticks = iter([1.0, 3.3456])
    monkeypatch.setattr(onnx_write, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    upsampler(tmp_path / "in.onnx")
    found = onnx_write.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert (found["build_s"], found["bytes"]) == (2.346, (tmp_path / "out.onnx").stat().st_size)
    graph = onnx.load(str(tmp_path / "out.onnx")).graph
    ends = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)]
    assert ends == [T.FLOAT, T.FLOAT]


@pytest.mark.parametrize("error", [OSError(28, "full"), RuntimeError("a \n b" + "x" * 400)])
def test_a_full_disk_is_no_fault_of_the_network(tmp_path, monkeypatch, error):
    def fails(*given, **how):
        raise error

    monkeypatch.setattr(onnx_write, "convert_float_to_float16", fails)
    upsampler(tmp_path / "in.onnx")
    if isinstance(error, OSError):
        with pytest.raises(OSError, match="full"):
            onnx_write.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
        return
    with pytest.raises(UnsupportedError) as caught:
        onnx_write.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert (caught.value.code, caught.value.evidence) == ("E-FP16-1", "RuntimeError: a b" + "x" * 297)
