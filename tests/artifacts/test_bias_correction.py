"""What rounding the weights adds to each output on average is taken from the biases: sums done by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope.artifacts import bias_correction
from edgescope.models.base import Samples


def model(nodes: Sequence[Any], arrays: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> Any:
    """Return a network of these nodes and stored tensors; the last node's output is its own."""
    axes = [h.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in (given or {"x": None}).items()]
    out = h.make_empty_tensor_value_info(nodes[-1].output[0])
    stored = [nh.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = h.make_graph(list(nodes), "g", axes, [out], stored)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


def layer(kind: str, weight: str, bias: str | None = "b", name: str = "n", **keys: Any) -> Any:
    return h.make_node(kind, ["x", weight, *([bias] if bias else [])], ["y"], name=name, **keys)


def stored_values(found: Any, name: str = "b") -> list[float]:
    """Return the numbers of a stored tensor."""
    (tensor,) = (t for t in found.graph.initializer if t.name == name)
    values: list[float] = nh.to_array(tensor).tolist()
    return values


def corrected(kind: str, exact: Any, rounded: Any, mean: Any, *, zero: int = 0, **keys: Any) -> list[float]:
    """Correct one layer whose weights are integers of scale 1; return its biases, which were 10, 20 ..."""
    biases = floats(
        *(10 * (i + 1) for i in range(len(rounded) if kind == "Conv" else len(mean_out(keys, rounded))))
    )
    twin = model([layer(kind, "w", **keys)], {"w": exact, "b": biases})
    ours = model(
        [h.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"]), layer(kind, "dq", **keys)],
        {"q": np.asarray(rounded, np.int8), "s": floats(1)[0], "z": np.int8(zero), "b": biases},
    )
    assert bias_correction.correct(twin, ours, {"x": np.asarray(mean, float)}) == 1
    return stored_values(ours)


def mean_out(keys: Mapping[str, Any], weight: Any) -> Any:
    """Return one entry for each output of a matrix product."""
    return np.asarray(weight) if keys.get("transB") else np.asarray(weight).T


def test_each_output_of_a_convolution_loses_what_rounding_added():
    """Errors: of the first output 0.5 for the first input, of the second -0.25 and 1 for both."""
    exact = floats([[[0.5]], [[2]]], [[[3.25]], [[4]]])
    found = corrected("Conv", exact, [[[[1]], [[2]]], [[[3]], [[5]]]], [2, 3])
    assert found == [10 - 0.5 * 2, 20 - (-0.25 * 2 + 1 * 3)]


def test_every_position_of_a_filter_counts():
    exact = floats([[[0.5, 1], [1, 0]], [[2, 2], [2, 2]]])
    found = corrected("Conv", exact, [[[[1, 1], [1, 1]], [[2, 2], [2, 3]]]], [2, 3])
    assert found == [10 - (1.5 * 2 + 1 * 3)]


def test_a_group_sees_its_own_inputs():
    exact = floats([[[0.5]]], [[[1.5]]], [[[2.5]]], [[[3.5]]])
    found = corrected("Conv", exact, [[[[1]]], [[[2]]], [[[3]]], [[[4]]]], [2, 6], group=2)
    assert found == [10 - 1, 20 - 1, 30 - 3, 40 - 3]


def test_groups_of_several_inputs():
    exact = floats([[[1]], [[1]]], [[[1]], [[1]]])
    found = corrected("Conv", exact, [[[[2]], [[1]]], [[[1]], [[3]]]], [2, 3, 5, 7], group=2)
    assert found == [10 - 2, 20 - 2 * 7]


@pytest.mark.parametrize("turned", [0, 1])
def test_a_matrix_product_is_read_the_way_it_lies(turned):
    exact, rounded = np.array([[0.5, 2, 3], [4, 5.25, 6]], np.float32), np.array([[1, 2, 3], [4, 5, 7]])
    mean = [2, 3]
    if turned:
        exact, rounded = exact.T, rounded.T
    found = corrected("Gemm", exact, rounded, mean, transB=turned)
    assert found == [10 - 0.5 * 2, 20 + 0.25 * 3, 30 - 1 * 3]


def test_zero_points_are_taken_off():
    assert corrected("Conv", floats([[[2]]]), [[[[5]]]], [10], zero=2) == [10 - 10]


def dequantised(scale: Any, zero: Any, exact: Any, **keys: Any) -> list[Any]:
    """Return what a DequantizeLinear of the integers 2, 4, 6 ... in the shape of `exact` yields."""
    integers = (2 * np.arange(1, exact.size + 1)).reshape(exact.shape).astype(np.int8)
    node = h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **keys)
    arrays = {"q": integers, "s": np.asarray(scale, np.float32), "z": np.asarray(zero, np.int8)}
    values = {name: nh.from_array(array, name) for name, array in arrays.items()}
    found: list[Any] = bias_correction._dequantised(node, values, {}, exact).tolist()
    return found


def test_a_scale_lies_along_its_axis():
    square = np.zeros((2, 2))
    assert dequantised(0.5, 1, square) == dequantised([0.5], [1], square) == [[0.5, 1.5], [2.5, 3.5]]
    assert dequantised([0.5, 1], [0, 0], square, axis=0) == [[1, 2], [6, 8]]
    assert dequantised([0.5, 1], [0, 0], square, axis=1) == [[1, 4], [3, 8]]
    assert dequantised([0.5, 1], [0, 0], square) == [[1, 4], [3, 8]]  # axis 1 is ONNX's default
    assert dequantised([0.5, 1], [1, 2], square, axis=0) == [[0.5, 1.5], [4, 6]]
    assert dequantised([0.5, 1], 2, square, axis=0) == [[0, 1], [4, 6]]


def test_a_float_weight_behind_a_pair_is_rounded_as_the_pair_rounds():
    """Steps of 0.5 with zero point 1: at most 127, at least -128."""
    given = floats([0.3, -0.2, 100, -100])
    nodes = [
        h.make_node("QuantizeLinear", ["w", "s", "z"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"]),
    ]
    arrays = {"w": given, "s": floats(0.5)[0], "z": np.int8(1)}
    values = {name: nh.from_array(np.asarray(array), name) for name, array in arrays.items()}
    found = bias_correction._dequantised(nodes[1], values, {"q": nodes[0]}, given)
    assert found.tolist() == [[0.5, 0, 63, -64.5]]


def pair_and_layer(bias: Any, *more: Any, node: Any = None) -> Any:
    """Return a rounded network of one convolution, whose weight 0.5 has become 1."""
    arrays = {"q": np.ones((1, 1, 1, 1), np.int8), "s": floats(1)[0], "z": np.int8(0)} | bias
    dequantise = h.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"])
    return model([*more, dequantise, node or layer("Conv", "dq")], arrays)


EXACT = {"w": floats([[[0.5]]]), "b": floats(10)}
MEANS = {"x": np.array([4.0])}


def test_integer_biases_move_by_their_own_steps_and_stay_within_32_bits():
    least, most = -(2**31), 2**31 - 1
    for was, now in ((100, 92), (least + 3, least + 1), (most, most - 8)):
        arrays = {"bq": np.array([was], np.int32), "bs": floats(0.25), "bz": np.zeros(1, np.int32)}
        ours = pair_and_layer(arrays, h.make_node("DequantizeLinear", ["bq", "bs", "bz"], ["b"]))
        assert bias_correction.correct(model([layer("Conv", "w")], EXACT), ours, MEANS) == 1
        assert stored_values(ours, "bq") == [now]
    arrays["bq"] = np.array([100], np.int32)
    ours = pair_and_layer(arrays, h.make_node("DequantizeLinear", ["bq", "bs", "bz"], ["b"]))
    assert bias_correction.correct(model([layer("Conv", "w")], EXACT), ours, {"x": np.array([-1.2e9])}) == 1
    assert stored_values(ours, "bq") == [most]


@pytest.mark.parametrize(
    ("exact", "node", "more"),
    [
        (layer("Conv", "w", name="other"), None, ()),
        (layer("Conv", "w"), layer("Conv", "q"), ()),
        (layer("Conv", "w"), layer("Conv", "dq", bias=None), ()),
        (layer("Conv", "elsewhere"), None, ()),
        (layer("MatMul", "w"), None, ()),
    ],
    ids=["no twin", "weight not rounded", "no bias", "weight not stored", "no layer with a bias"],
)
def test_what_cannot_be_corrected_is_left(exact, node, more):
    ours = pair_and_layer({"b": floats(10)}, *more, node=node)
    assert bias_correction.correct(model([exact], EXACT), ours, MEANS) == 0
    assert stored_values(ours) == [10]


def test_a_bias_that_is_computed_is_left_and_the_next_layer_is_not():
    first = h.make_node("Relu", ["x"], ["b2"])
    second = h.make_node("Conv", ["x", "dq", "b2"], ["y2"], name="m")
    ours = pair_and_layer({"b": floats(10)}, first)
    ours.graph.node.insert(2, second)
    twin = model([layer("Conv", "w"), h.make_node("Conv", ["x", "w", "b"], ["y2"], name="m")], EXACT)
    assert bias_correction.correct(twin, ours, MEANS) == 1
    assert stored_values(ours) == [8]
    ours.graph.node[2].input[2] = "nobody makes this"
    assert bias_correction.correct(twin, ours, MEANS) == 1


def samples(*rows: Any) -> Samples:
    array = np.array(rows, np.float32)
    return Samples({"x": array}, tuple(map(str, range(len(array)))), "")


@pytest.fixture
def network(tmp_path):
    """x (2 channels) -> Conv of 1x1, doubled -> Relu r -> mean over positions m -> Gemm y."""
    nodes = [
        h.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        h.make_node("Relu", ["c"], ["r"], name="relu"),
        h.make_node("GlobalAveragePool", ["r"], ["p"]),
        h.make_node("Flatten", ["p"], ["m"]),
        h.make_node("Gemm", ["m", "g"], ["y"], name="gemm"),
    ]
    doubled = 2 * np.eye(2, dtype=np.float32)
    arrays = {"w": doubled[:, :, None, None], "g": np.eye(2, dtype=np.float32)}
    onnx.save(model(nodes, arrays, {"x": ["N", 2, 1, 2]}), str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


def test_mean_inputs_are_those_of_all_samples_and_positions_for_each_channel(network):
    given = samples([[[1, 3]], [[-5, 1]]], [[[4, 4]], [[0, 6]]])
    means = bias_correction.input_means(network, given)
    assert {name: found.tolist() for name, found in means.items()} == {
        "x": [(2 + 4) / 2, (-2 + 3) / 2],
        "m": [(4 + 8) / 2, (1 + 6) / 2],
    }
    assert [path.name for path in network.parent.iterdir()] == ["net.onnx"]


def test_tensors_are_shown_sample_by_sample(network):
    given = samples([[[1, 3]], [[-5, 1]]], [[[4, 4]], [[0, 6]]])
    names = ["r", "y", "x", "r", "c"]
    first, second = bias_correction.tapped(network, names, given)
    assert set(first) == {"r", "y", "x", "c"}
    assert first["r"].tolist() == [[[[2, 6]], [[0, 2]]]] and second["c"].tolist() == [[[[8, 8]], [[0, 12]]]]
    assert second["x"].tolist() == [[[[4, 4]], [[0, 6]]]] and second["y"].tolist() == [[8, 6]]


def test_a_network_that_has_nothing_but_its_inputs_to_show_shows_those(network):
    """ONNX Runtime, asked for no output, returns every one."""
    (found,) = bias_correction.tapped(network, ["x"], samples([[[1, 3]], [[-5, 1]]]))
    assert set(found) == {"x"}
    (nothing,) = bias_correction.tapped(network, [], samples([[[1, 3]], [[-5, 1]]]))
    assert set(nothing) == {"x"}


def test_layers_with_weights_are_known_by_name():
    nodes = [layer("Conv", "w", name="c"), layer("Gemm", "w", name="g"), layer("MatMul", "w", name="m")]
    assert list(bias_correction.weighted(model(nodes, {}))) == ["c", "g"]


def test_weights_beside_the_file_stay_there(network):
    large = onnx.load(str(network))
    onnx.save(large, str(network), save_as_external_data=True, location="w.bin", size_threshold=0)
    size = (network.parent / "w.bin").stat().st_size
    (found,) = bias_correction.tapped(network, ["c"], samples([[[1, 3]], [[-5, 1]]]))
    assert found["c"].tolist() == [[[[2, 6]], [[-10, 2]]]]
    assert (network.parent / "w.bin").stat().st_size == size
