"""Where weights are written, and that a file is read without them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope import cache
from edgescope.artifacts import onnx_write

WEIGHTS = {"one": np.full(512, 2, np.float32), "other": np.full(512, 3, np.float32)}


def network():
    """x -> times 2 -> plus 3 -> y."""
    nodes = [h.make_node("Mul", ["x", "one"], ["m"]), h.make_node("Add", ["m", "other"], ["y"])]
    ends = [h.make_tensor_value_info(name, T.FLOAT, [512]) for name in "xy"]
    stored = [nh.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = h.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)


def files(path):
    return sorted(p.name for p in path.parent.iterdir())


@pytest.mark.parametrize(("more", "beside"), [(0, False), (-1, True)])
def test_weights_lie_beside_the_file_once_they_exceed_the_limit(tmp_path, monkeypatch, more, beside):
    made, path = network(), tmp_path / "net.onnx"
    size = sum(tensor.ByteSize() for tensor in made.graph.initializer)
    monkeypatch.setattr(onnx_write, "LIMIT", size + more)
    cache.external_data(path).write_bytes(b"of an earlier file")
    onnx_write.save(made, path)
    assert files(path) == ["net.onnx", "net.onnx.data"][: 1 + beside]
    assert cache.length(path) > size and (path.stat().st_size > size) is not beside
    if beside:
        assert cache.external_data(path).stat().st_size < size + 100
    (answer,) = onnx_write.session(path).run(None, {"x": np.ones(512, np.float32)})
    assert answer.tolist() == [5] * 512


def test_the_limit_leaves_room_in_two_gibibytes():
    assert 2**31 - 2**25 < onnx_write.LIMIT < 2**31 - 2**20


def test_nodes_are_read_where_the_weights_are_not(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(network(), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert [node.op_type for node in onnx_write.unweighted(path).graph.node] == ["Mul", "Add"]


def test_a_session_says_errors_only_and_lets_its_threads_sleep(tmp_path):
    onnx_write.save(network(), tmp_path / "net.onnx")
    session = onnx_write.session(tmp_path / "net.onnx")
    options = session.get_session_options()
    assert options.log_severity_level == 3
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert session.get_providers() == ["CPUExecutionProvider"]


# -- the name of the batch axis ----------------------------------------------------------------------------------


def labelled(path, *axes, sizes=(3, 5)):
    """x, x2 -> inner -> y, the batch axis under the given names."""
    info = lambda name, *dims: h.make_tensor_value_info(name, T.FLOAT, dims)  # noqa: E731
    nodes = [h.make_node("Relu", ["x"], ["inner"]), h.make_node("Exp", ["inner"], ["y"])]
    nodes.append(h.make_node("Neg", ["x2"], ["y2"]))
    graph = h.make_graph(
        nodes,
        "g",
        [info("x", axes[0], *sizes), info("x2", axes[-1], *sizes)],
        [info("y", axes[0], *sizes), info("y2", axes[-1], *sizes)],
        value_info=[info("inner", axes[0], *sizes)],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(path))
    return path


def labels(path):
    graph = onnx.load(str(path)).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]


@pytest.mark.parametrize("axes", [("s77",), ("batch", "s12")])
def test_a_batch_axis_of_another_name_is_called_n_everywhere(tmp_path, axes, open_onnx):
    path = labelled(tmp_path / "a.onnx", *axes)
    assert onnx_write.rename(path) == sorted(axes)
    assert labels(path) == [["N", 3, 5]] * 5
    x = np.ones((4, 3, 5), np.float32)
    assert np.allclose(open_onnx(path)({"x": x, "x2": x})[0], np.e)


def test_sums_and_products_of_the_batch_are_renamed_with_it_and_other_axes_are_not(tmp_path):
    path = labelled(tmp_path / "a.onnx", "s7", sizes=("4*s7", "s77"))
    assert onnx_write.rename(path) == ["s7"]
    assert labels(path) == [["N", "4*N", "s77"]] * 5


@pytest.mark.parametrize("axes", [("N",), (2,)], ids=["right already", "closed"])
def test_a_file_whose_batch_axis_needs_no_name_is_left_alone(tmp_path, axes):
    path = labelled(tmp_path / "a.onnx", *axes)
    before = path.read_bytes()
    assert onnx_write.rename(path) == []
    assert path.read_bytes() == before


def test_only_the_first_axis_of_an_input_is_the_batch(tmp_path):
    path = labelled(tmp_path / "a.onnx", "N", sizes=("rows", "s7"))
    assert onnx_write.rename(path) == [] and labels(path) == [["N", "rows", "s7"]] * 5


def test_what_is_stored_is_no_input(tmp_path):
    path = labelled(tmp_path / "a.onnx", "N")
    model = onnx.load(str(path))
    model.graph.input.append(h.make_tensor_value_info("w", T.FLOAT, ["other"]))
    model.graph.initializer.append(nh.from_array(np.ones(3, np.float32), "w"))
    onnx.save(model, str(path))
    assert onnx_write.rename(path) == []
