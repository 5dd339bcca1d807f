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
