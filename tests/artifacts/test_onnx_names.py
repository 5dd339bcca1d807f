"""From an operator's name to its module and its work, in graphs of a few nodes made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope.artifacts.onnx_names import SCOPES, ModulePaths, NodeWork


def written(
    path: Path,
    nodes: Sequence[Any],
    given: Mapping[str, Sequence[Any]],
    stored: Mapping[str, Sequence[int]],
    kind: int = T.FLOAT,
) -> Path:
    """Write a file of these nodes, inputs and weights; the last node's first output is the file's."""
    axes = [h.make_tensor_value_info(name, kind, shape) for name, shape in given.items()]
    out = h.make_empty_tensor_value_info(nodes[-1].output[0])
    tensors = [nh.from_array(np.ones(shape, np.float32), name) for name, shape in stored.items()]
    opsets = [h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)]
    graph = h.make_graph(list(nodes), "g", axes, [out], tensors)
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def scoped(node: Any, scopes: Sequence[str]) -> Any:
    """Note where torch's exporter says that a node comes from, behind what else it notes."""
    for key, value in (("other", "['no.path', 'x']"), (SCOPES, repr(list(scopes)))):
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    return node


def conv(given: str, weight: str, out: str, name: str, **attributes: Any) -> Any:
    return h.make_node("Conv", [given, weight], [out], name=name, **attributes)


@pytest.fixture
def chain(tmp_path):
    """x -> Conv c1 -> Relu act -> Conv c1_quant -> y, 8x8 pixels, of any batch."""
    nodes = [
        conv("x", "body.c1.weight", "c", "c1", pads=[1] * 4),
        h.make_node("Relu", ["c"], ["r"], name="act"),
        conv("r", "body.c2.weight", "y", "c1_quant"),
    ]
    stored = {"body.c1.weight": (4, 3, 3, 3), "body.c2.weight": (5, 4, 1, 1)}
    return written(tmp_path / "net.onnx", nodes, {"x": ["N", 3, 8, 8]}, stored)


def test_an_operator_is_found_by_its_name_its_output_and_what_an_engine_makes_of_them(chain):
    paths = ModulePaths(chain)
    first, second = NodeWork("body.c1", 2 * 4 * 64 * 27, 108), NodeWork("body.c2", 2 * 5 * 64 * 4, 20)
    assert paths.known("c1") == paths.known("c") == first
    assert paths.of("c1_nchwc") == paths.of("fused c1/WithoutBiases") == paths.of("c1_token_12") == first
    assert paths.of("InsertedPrecisionFreeCast_c1_nchwc") == paths.of("c1_matmul_Q4") == first
    assert (
        paths.of("c1_quant") == paths.of("y") == second
    )  # a node's own name comes before what it would be bare
    assert paths.of("fused c1_quant") == second
    assert paths.of("act") == NodeWork("act")
    assert paths.known("c3") is None and paths.known("fused c3_quant") is None
    assert paths.of("c3_quant") == NodeWork("c3_quant")


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("act", "", "act"),
        ("act", "Relu", "act"),
        ("act", "Conv", "body.c1"),
        ("act", "FusedConv", "body.c1"),
        ("c1_quant", "Conv", "body.c2"),
        ("c1_quant", "Relu", "act"),
        ("c1_quant", "Softmax", "body.c2"),
    ],
)
def test_a_fused_operator_is_the_one_of_its_kind_before_it(chain, name, kind, path):
    assert ModulePaths(chain).of(name, kind).path == path


@pytest.mark.parametrize("batch", [1, 3])
def test_work_is_counted_for_the_batch(chain, batch):
    assert ModulePaths(chain, batch).of("c1").flops == batch * 2 * 4 * 64 * 27
    assert ModulePaths(chain).of("c1").flops == 2 * 4 * 64 * 27


def test_an_axis_that_is_closed_stays_as_it_is(tmp_path):
    nodes = [conv("x", "w.w", "y", "c")]
    path = written(tmp_path / "net.onnx", nodes, {"x": [2, 3, 4, 4]}, {"w.w": (1, 3, 1, 1)})
    assert ModulePaths(path, 7).of("c").flops == 2 * 2 * 16 * 3


@pytest.mark.parametrize(
    ("weight", "channels", "depthwise"),
    [
        ((4, 1, 3, 3), 4, True),
        ((2, 1, 3, 3), 2, True),
        ((1, 1, 3, 3), 1, False),
        ((4, 2, 3, 3), 4, False),
        ((4, 4, 3, 3), 4, False),
    ],
)
def test_a_convolution_of_single_channels_is_depthwise(tmp_path, weight, channels, depthwise):
    node = conv("x", "w", "y", "c", group=channels // weight[1], pads=[1] * 4)
    path = written(tmp_path / "net.onnx", [node], {"x": [1, channels, 5, 5]}, {"w": weight})
    flops = 2 * weight[0] * 25 * weight[1] * 9
    assert ModulePaths(path).of("c") == NodeWork("c", flops, int(np.prod(weight)), depthwise)


def test_a_product_counts_by_the_length_of_its_rows(tmp_path):
    nodes = [
        h.make_node("MatMul", ["x", "fc.w"], ["m"], name="fc"),
        h.make_node("Gemm", ["m", "g.w", "g.b"], ["y"], name="g"),
    ]
    stored = {"fc.w": (6, 5), "g.w": (5, 1), "g.b": (1,)}
    paths = ModulePaths(written(tmp_path / "net.onnx", nodes, {"x": ["N", 6]}, stored), 2)
    assert paths.of("fc") == NodeWork("fc", 2 * 2 * 5 * 6, 30)
    assert paths.of("g") == NodeWork("g", 2 * 2 * 1 * 5, 6)
    paths = ModulePaths(written(tmp_path / "rows.onnx", nodes[:1], {"x": ["N", 7, 6]}, {"fc.w": (6, 5)}), 2)
    assert paths.of("fc").flops == 2 * 2 * 7 * 5 * 6


def test_a_convolution_without_positions_is_counted_as_well(tmp_path):
    path = written(tmp_path / "net.onnx", [conv("x", "w", "y", "c")], {"x": [2, 3]}, {"w": (4, 3)})
    model = onnx.load(str(path))
    model.graph.output[0].CopyFrom(h.make_tensor_value_info("y", T.FLOAT, [2, 4]))
    onnx.save(model, str(path))
    assert ModulePaths(path).of("c").flops == 2 * 2 * 4 * 3


def test_weights_that_are_rounded_on_their_way_are_the_operators_own(tmp_path):
    nodes = [
        h.make_node("Cast", ["fc.w"], ["cast"], to=T.FLOAT16),
        h.make_node("Transpose", ["cast"], ["turned"]),
        h.make_node("Relu", ["other.w"], ["no_rounding"]),
        h.make_node("MatMul", ["x", "turned"], ["m"], name="product"),
        h.make_node("Add", ["m", "no_rounding"], ["y"], name="sum"),
    ]
    given, stored = {"x": [2, 6]}, {"fc.w": (5, 6), "other.w": (5,)}
    paths = ModulePaths(written(tmp_path / "net.onnx", nodes, given, stored, T.FLOAT16))
    assert paths.of("product") == NodeWork("fc", 2 * 2 * 5 * 6, 30)
    assert paths.of("sum") == NodeWork("sum")  # a rectified tensor is no stored one


def test_a_rounded_input_of_the_file_is_not_stored(tmp_path):
    nodes = [
        h.make_node("Identity", ["x.x"], ["same"]),
        h.make_node("MatMul", ["x.x", "fc.w"], ["z"], name="bare"),
        h.make_node("MatMul", ["same", "fc.w"], ["y"], name="product"),
    ]
    paths = ModulePaths(written(tmp_path / "net.onnx", nodes, {"x.x": [2, 6]}, {"fc.w": (6, 1)}))
    assert paths.of("product") == paths.of("bare") == NodeWork("fc", 2 * 2 * 6, 6)


def test_scales_before_the_weight_are_no_weight_of_a_convolution(tmp_path):
    named = ["x", "s", "z", "w", "ws", "wz", "ys", "yz"]
    node = h.make_node("QLinearConv", named, ["y"], name="q")
    axes = [h.make_tensor_value_info("x", T.UINT8, [1, 2, 4, 4])]
    arrays = {
        "s": np.ones(1, np.float32),
        "z": np.zeros(1, np.uint8),
        "w": np.ones((3, 2, 1, 1), np.int8),
        "ws": np.ones(3, np.float32),
        "wz": np.zeros(3, np.int8),
        "ys": np.ones((), np.float32),
        "yz": np.zeros((), np.uint8),
    }
    graph = h.make_graph(
        [node],
        "g",
        axes,
        [h.make_tensor_value_info("y", T.UINT8, [1, 3, 4, 4])],
        [nh.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), str(tmp_path / "q.onnx"))
    found = ModulePaths(tmp_path / "q.onnx").of("q")
    assert found == NodeWork("q", 2 * 3 * 16 * 2, 1 + 1 + 6 + 3 + 3 + 1 + 1)


def test_an_operator_that_unpacks_its_weights_says_of_how_many_bits(tmp_path):
    keys = {"K": 32, "N": 8, "block_size": 32, "bits": 4}
    node = h.make_node("MatMulNBits", ["x", "w", "s"], ["y"], name="n", domain="com.microsoft", **keys)
    path = written(tmp_path / "net.onnx", [node], {"x": [1, 32]}, {"w": (8, 1, 16), "s": (8,)})
    assert ModulePaths(path).of("n") == NodeWork("n", 0, 136, bits=4)


def test_work_on_shapes_that_nobody_knows_is_not_counted(tmp_path):
    """The first operator is unknown, so no shape after it can be inferred."""
    nodes = [
        h.make_node("Unknown", ["x"], ["u"], domain="com.microsoft"),
        conv("u", "c.w", "v", "c"),
        h.make_node("MatMul", ["v", "fc.w"], ["y"], name="fc"),
    ]
    stored = {"c.w": (4, 3, 1, 1), "fc.w": (6, 5)}
    paths = ModulePaths(written(tmp_path / "net.onnx", nodes, {"x": ["N", 3, 8, 8]}, stored))
    assert paths.of("c") == NodeWork("c", 0, 12)
    assert paths.of("fc") == NodeWork("fc", 0, 30)


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        (["", "body", "body.c1", "conv2d"], "body.c1"),
        (["", "conv2d"], "conv2d"),
        (["conv2d"], "conv2d"),
        (["body", "conv2d"], "body"),
    ],
)
def test_the_exporters_note_comes_before_the_weights_name(tmp_path, scopes, path):
    node = scoped(conv("x", "w.w", "y", "c"), scopes)
    found = written(tmp_path / "net.onnx", [node], {"x": [1, 3, 2, 2]}, {"w.w": (1, 3, 1, 1)})
    assert ModulePaths(found).of("c").path == path


def test_without_a_note_the_first_weight_with_a_module_names_the_node(tmp_path):
    nodes = [
        h.make_node("Clip", ["x", "low", "clip.high"], ["c"], name="clip"),
        h.make_node("Add", ["c", "plain"], ["y"], name="sum"),
        h.make_node("Neg", ["y"], ["z"]),
    ]
    stored = {"low": (), "clip.high": (), "plain": (3,)}
    paths = ModulePaths(written(tmp_path / "net.onnx", nodes, {"x": [1, 3]}, stored))
    assert [paths.of(name).path for name in ("clip", "sum", "z")] == ["clip", "sum", ""]


def test_nodes_within_branches_are_known_with_their_weights(tmp_path):
    def branch(name: str, channels: int) -> Any:
        tensor = nh.from_array(np.ones((channels, 3, 1, 1), np.float32), f"{name}.w")
        node = conv("x", f"{name}.w", f"y_{name}", f"conv_{name}")
        out = h.make_tensor_value_info(f"y_{name}", T.FLOAT, ["N", channels, 4, 4])
        return h.make_graph([node], name, [], [out], [tensor])

    test = h.make_node(
        "If", ["t"], ["y"], name="if", then_branch=branch("yes", 4), else_branch=branch("no", 6)
    )
    path = written(tmp_path / "net.onnx", [test], {"x": ["N", 3, 4, 4]}, {})
    model = onnx.load(str(path))
    model.graph.initializer.append(nh.from_array(np.array(True), "t"))
    onnx.save(model, str(path))
    paths = ModulePaths(path)
    assert (paths.of("conv_yes").path, paths.of("conv_yes").weights) == ("yes", 12)
    assert (paths.of("conv_no").path, paths.of("conv_no").weights) == ("no", 18)
    assert paths.known("if") is not None


def test_weights_beside_the_file_need_not_be_there(tmp_path):
    nodes = [conv("x", "c.w", "y", "c")]
    path = written(tmp_path / "net.onnx", nodes, {"x": [1, 3, 2, 2]}, {"c.w": (4, 3, 1, 1)})
    model = onnx.load(str(path))
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert ModulePaths(path).of("c") == NodeWork("c", 2 * 4 * 4 * 3, 12)
