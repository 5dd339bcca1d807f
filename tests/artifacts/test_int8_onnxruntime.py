"""The steps of quantisation on networks of a few nodes: what is folded, named, left out, rounded and removed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope import cache
from edgescope.artifacts import int8_onnxruntime as made
from edgescope.artifacts import onnx_write
from edgescope.errors import UnsupportedError
from edgescope.models.base import Samples
from told import Told

pytestmark = pytest.mark.network


def model(
    nodes: Sequence[Any], arrays: Mapping[str, Any] | None = None, given: Any = None, opset: int = 17
) -> Any:
    """Return a network of these nodes and stored tensors, from x to the last node's output."""
    ends = [h.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in (given or {"x": None}).items()]
    out = h.make_tensor_value_info(nodes[-1].output[0], T.FLOAT, None)
    stored = [nh.from_array(np.asarray(array), name) for name, array in (arrays or {}).items()]
    graph = h.make_graph(list(nodes), "g", ends, [out], stored)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9)


def node(kind: str, given: str, made_of: str, name: str = "", **keys: Any) -> Any:
    return h.make_node(kind, given.split(), made_of.split(), name=name, **keys)


def pair(given: str, out: str) -> list[Any]:
    """Return the two nodes that round `given` to `out`."""
    rounding = node("QuantizeLinear", f"{given} s z", f"{out}_q")
    return [rounding, node("DequantizeLinear", f"{out}_q s z", out)]


class Clock:
    """A clock that goes on by 2.3456 s at each look."""

    now = 0.0

    def __call__(self):
        self.now += 2.3456
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(made, "time", SimpleNamespace(perf_counter=Clock()))


def kinds(network):
    return [n.op_type for n in network.graph.node]


@pytest.mark.parametrize("first", [True, False])
def test_one_branch_of_a_sum_is_freed_for_its_convolution(first):
    branches = [[node("Conv", "x w", "c"), *pair("c", "cd")], pair("x", "xd")]
    add = "cd xd" if first else "xd cd"
    network = model([*branches[0], *branches[1], node("Add", add, "y")])
    made._free_residuals(network)
    assert kinds(network) == ["Conv", "QuantizeLinear", "DequantizeLinear", "Add"]
    assert list(network.graph.node[-1].input) == (["c", "xd"] if first else ["xd", "c"])


def test_of_two_convolutions_the_first_is_freed():
    nodes = [node("Conv", "x w", "c"), *pair("c", "cd"), node("Conv", "x w", "d"), *pair("d", "dd")]
    network = model([*nodes, node("Add", "cd dd", "y")])
    made._free_residuals(network)
    assert list(network.graph.node[-1].input) == ["c", "dd"]
    assert kinds(network) == ["Conv", "Conv", "QuantizeLinear", "DequantizeLinear", "Add"]


def test_every_sum_is_freed():
    nodes = [node("Conv", "x w", "c"), *pair("c", "cd"), *pair("x", "xd"), node("Add", "cd xd", "s")]
    more = [node("Conv", "s w", "e"), *pair("e", "ed"), *pair("s", "sd"), node("Add", "sd ed", "y")]
    network = model([*nodes, *more])
    made._free_residuals(network)
    assert [list(n.input) for n in network.graph.node if n.op_type == "Add"] == [["c", "xd"], ["sd", "e"]]


CONV = [node("Conv", "x w", "c"), *pair("c", "cd")]


@pytest.mark.parametrize(
    "nodes",
    [
        [*CONV, node("Add", "cd x", "y")],
        [*CONV, *pair("x", "xd"), node("Relu", "cd", "other"), node("Add", "cd xd", "y")],
        [*CONV, *pair("x", "xd"), node("Relu", "cd_q", "other"), node("Add", "cd xd", "y")],
        [*CONV, *pair("x", "xd"), node("Relu", "c", "other"), node("Add", "cd xd", "y")],
        [node("Relu", "x", "c"), *pair("c", "cd"), *pair("x", "xd"), node("Add", "cd xd", "y")],
        [*CONV, *pair("x", "xd"), node("Mul", "cd xd", "y")],
    ],
    ids=["one side exact", "read twice", "read rounded", "read exact", "no convolution", "no sum"],
)
def test_a_sum_that_would_not_fuse_keeps_its_pairs(nodes):
    network = model(nodes)
    before = network.SerializeToString()
    made._free_residuals(network)
    assert network.SerializeToString() == before


@pytest.mark.parametrize(("there", "count", "kept"), [(5, 2, 2), (4, 2, 0), (3, 1, 1), (2, 1, 0), (3, 0, 0)])
def test_the_first_convolutions_are_left_where_more_than_as_many_follow(tmp_path, there, count, kept):
    convolutions = [node("Conv", "x w", f"c{i}", f"conv{i}") for i in range(there)]
    onnx.save(model([node("Relu", "x", "r", "relu"), *convolutions]), str(tmp_path / "net.onnx"))
    assert made.first_convolutions(tmp_path / "net.onnx", count) == [f"conv{i}" for i in range(kept)]


def test_the_opset_is_that_of_the_standard_operators():
    network = model([node("Relu", "x", "y")], opset=13)
    assert made.opset_of(network) == 13
    network.opset_import.extend([h.make_opsetid("com.microsoft", 20), h.make_opsetid("ai.onnx", 15)])
    assert made.opset_of(network) == 15
    del network.opset_import[:]
    assert made.opset_of(network) == 0


def test_operator_sets_that_no_node_needs_are_left_out():
    network = model([node("Relu", "x", "r"), h.make_node("Inverse", ["r"], ["y"], domain="com.microsoft")])
    network.opset_import.extend([h.make_opsetid("com.microsoft", 1), h.make_opsetid("ai.onnx.ml", 3)])
    made._drop_unused_domains(network)
    assert [(e.domain, e.version) for e in network.opset_import] == [("", 17), ("com.microsoft", 1)]
    del network.graph.node[0]
    made._drop_unused_domains(network)
    assert [e.domain for e in network.opset_import] == ["", "com.microsoft"]


def test_names_are_unique_and_good_ones_stay():
    names = ["one", "", "twice", "twice", ""]
    network = model([node("Relu", "x", f"y{i}", name) for i, name in enumerate(names)])
    made._name(network)
    found = [n.name for n in network.graph.node]
    assert found == ["one", *(f"Relu_{i}_of_5" for i in (1, 2, 3, 4))]


def test_a_convolution_without_a_bias_gets_one_of_zeros():
    weight = np.ones((3, 2, 1, 1), np.float32)
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x w b", "c"),
        node("Conv", "x computed", "d"),
        node("Gemm", "x w", "e"),
        node("Conv", "x w", "f"),
    ]
    network = model(nodes, {"w": weight, "b": np.ones(3, np.float32)})
    made._give_biases(network)
    assert [len(n.input) for n in network.graph.node] == [3, 3, 2, 2, 3]
    stored = {t.name: nh.to_array(t) for t in network.graph.initializer}
    own = [network.graph.node[i].input[2] for i in (0, 1, 4)]
    assert len(set(own)) == 3 and own[1] == "b"
    for name in (own[0], own[2]):
        assert stored[name].dtype == np.float32 and stored[name].tolist() == [0, 0, 0]


@pytest.mark.parametrize("error", [OSError(28, "full"), UnsupportedError("E-INT8-15", "no")])
def test_what_is_not_the_tools_failure_is_raised_as_it_is(error):
    with pytest.raises(type(error)) as caught, made.refusing():
        raise error
    assert caught.value is error


def test_a_failure_of_the_tool_is_told_in_one_short_line():
    with pytest.raises(UnsupportedError) as caught, made.refusing("onnx"):
        raise RuntimeError("a \n b" + "x" * 400)
    assert caught.value.code == "E-INT8-3"
    assert caught.value.what.startswith(f"the quantiser of onnx {onnx.__version__} ")
    assert caught.value.evidence == "RuntimeError: a b" + "x" * 297


def test_advice_stays_off_the_terminal_and_logging_is_as_it_was(capsys, monkeypatch):
    told = Told()
    monkeypatch.setattr(logging.getLogger(), "handlers", [told])
    logging.disable(logging.DEBUG)
    try:
        with pytest.raises(ValueError, match="x"), made.quiet():
            print("advice")
            logging.getLogger().warning("advice")
            logging.getLogger().error("told")
            raise ValueError("x")
        assert logging.root.manager.disable == logging.DEBUG
    finally:
        logging.disable(logging.NOTSET)
    assert capsys.readouterr().out == "" and told.messages == ["told"]


WIDE = 36
"""Channels; of 36 x 36 weights even the rounded ones are more than onnx leaves in a file."""


def weight(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def samples(n: int = 8, *shape: int) -> Samples:
    rows = np.random.default_rng(1).standard_normal((n, *(shape or (WIDE, 2, 2)))).astype(np.float32)
    return Samples({"x": rows}, tuple(map(str, range(n))), "")


@pytest.fixture
def network(tmp_path):
    """x -> five convolutions, the third and fourth behind ReLUs, the fifth added to the fourth -> mean -> Gemm y."""
    nodes = [
        node("Conv", "x w1 b1", "c1", "one"),
        node("Conv", "c1 w2", "c2", "two"),
        node("Relu", "c2", "r2", "relu2"),
        node("Conv", "r2 w3", "c3", "three"),
        node("Relu", "c3", "r3", "relu3"),
        node("Conv", "r3 w4", "c4", "four"),
        node("Conv", "r3 w5", "c5", "five"),
        node("Add", "c4 c5", "sum", "add"),
        node("GlobalAveragePool", "sum", "p", "pool"),
        node("Flatten", "p", "f", "flat"),
        node("Gemm", "f g gb", "y", "gemm", transB=1),
    ]
    arrays = {f"w{i}": weight(WIDE, WIDE, 1, 1, seed=i) for i in range(1, 6)} | {"b1": weight(WIDE)}
    arrays |= {"g": weight(3, WIDE), "gb": weight(3)}
    found = model(nodes, arrays, {"x": ["N", WIDE, 2, 2]}, opset=12)
    onnx.save(found, str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


def parts(path):
    """Return the nodes by name, the node that makes each tensor, and the stored arrays."""
    graph = onnx.load(str(path)).graph
    makers = {name: n for n in graph.node for name in n.output}
    return {n.name: n for n in graph.node}, makers, {t.name: nh.to_array(t) for t in graph.initializer}


@pytest.mark.parametrize("qdq", ["u8s8", "s8s8"])
def test_the_file_has_the_form_that_was_asked_for(network, tmp_path, qdq, open_onnx):
    path, given = tmp_path / "int8.onnx", samples()
    found = made.quantize(network, given, path, keep_float=2, qdq=qdq)
    assert found["build_s"] == 2.346 and found["kept_float"] == ["one", "two"]
    assert (found["opset"], found["bytes"], found["biases_corrected"]) == (13, path.stat().st_size, 4)
    nodes, makers, stored = parts(path)
    for name in ("one", "two"):
        assert nodes[name].input[1] in stored
    for name in ("three", "four", "five", "gemm"):
        weights = makers[nodes[name].input[1]]
        scale, zero = (stored[weights.input[i]] for i in (1, 2))
        assert len(scale) == len(zero) == (3 if name == "gemm" else WIDE) and not zero.any()
        if qdq == "u8s8":
            rounded = stored[weights.input[0]]
            assert rounded.dtype == np.int8 and np.abs(rounded).max() == 127
            assert makers[nodes[name].input[2]].op_type == "DequantizeLinear"
        else:
            assert makers[weights.input[0]].op_type == "QuantizeLinear"
            assert stored[nodes[name].input[2]].dtype == np.float32
        activation = makers[nodes[name].input[0]]
        assert stored[activation.input[2]].dtype == (np.uint8 if qdq == "u8s8" else np.int8)
        assert qdq == "u8s8" or not stored[activation.input[2]].any()
    ends = [makers[name].op_type for name in nodes["add"].input]
    assert ends == (["DequantizeLinear"] * 2 if qdq == "u8s8" else ["Conv", "DequantizeLinear"])
    flat = makers[nodes["gemm"].input[0]]
    assert qdq == "u8s8" or makers[makers[flat.input[0]].input[0]].op_type == "Flatten"
    end = makers["y"].op_type
    assert end == ("DequantizeLinear" if qdq == "u8s8" else "Gemm")
    exact, ours = (open_onnx(p)({"x": given.arrays["x"]})[0] for p in (network, path))
    assert np.abs(ours - exact).max() < 0.1 * np.abs(exact).max()
    assert onnx.load(str(path)).ir_version == 9


def test_an_older_file_gets_the_version_that_rounding_needs(network, tmp_path):
    old = onnx.load(str(network))
    old.ir_version = 6
    onnx.save(old, str(network))
    made.quantize(network, samples(), tmp_path / "int8.onnx", keep_float=0)
    assert onnx.load(str(tmp_path / "int8.onnx")).ir_version == 7


def test_ranges_are_those_of_the_calibration_inputs(network, tmp_path):
    given = samples()
    prepared = made.prepare(network, given, tmp_path)
    low, high = (v.item() for v in prepared.ranges["x"].range_value)
    assert (low, high) == (given.arrays["x"].min(), given.arrays["x"].max())
    assert prepared.means["x"] == pytest.approx(given.arrays["x"].mean(axis=(0, 2, 3)), abs=1e-6)
    assert prepared.path.parent == tmp_path and prepared.ir_version == 9
    biases = [len(n.input) for n in onnx.load(str(prepared.path)).graph.node if n.op_type == "Conv"]
    assert biases == [3] * 5


def test_large_weights_lie_beside_every_file_on_the_way(network, tmp_path, monkeypatch, open_onnx):
    given, (inside, beside) = samples(), (tmp_path / name for name in ("inside.onnx", "beside.onnx"))
    made.quantize(network, given, inside, keep_float=0)
    monkeypatch.setattr(onnx_write, "LIMIT", 100)
    network.with_name("whole").mkdir()
    made.quantize(network, given, beside, keep_float=0)
    assert cache.external_data(beside).exists() and not cache.external_data(inside).exists()
    one, other = (open_onnx(p)({"x": given.arrays["x"]})[0] for p in (inside, beside))
    assert one == pytest.approx(other)
    folded = made._folded(network, network.with_name("whole"))
    assert [n.op_type for n in folded.graph.node].count("Conv") == 5
    names = sorted(p.name for p in network.with_name("whole").iterdir())
    assert names == ["folded.onnx", "folded.onnx.data", "whole.onnx", "whole.onnx.data"]


def products(path, count, *, convolutions=1, more=()):
    """Write a network of `count` matrix products with weights, convolutions, and what else is given."""
    nodes, last, arrays = [], "x", {"w": weight(WIDE, WIDE, 1), "one": weight(1)}
    for i in range(convolutions):
        nodes.append(node("Conv", f"{last} w", f"c{i}", f"conv{i}"))
        last = f"c{i}"
    for i in range(count):
        arrays[f"m{i}"] = weight(WIDE, WIDE, seed=i)
        nodes.append(node("MatMul", f"{last} m{i}", f"p{i}", f"product{i}"))
        last = f"p{i}"
    nodes += [node("MatMul", f"{last} x", "a", "attention"), *more, node("Add", "a one", "y", "end")]
    onnx.save(model(nodes, arrays, {"x": [1, WIDE, WIDE]}), str(path))
    return path


@pytest.mark.parametrize("limit", [None, 100])
def test_weights_of_products_become_int8_for_ranges_at_run_time(tmp_path, monkeypatch, limit):
    if limit:
        monkeypatch.setattr(onnx_write, "LIMIT", limit)
    source, path = products(tmp_path / "net.onnx", 3), tmp_path / "int8.onnx"
    found = made.dynamic(source, path, share=0.75)
    assert (found["build_s"], found["products"], found["opset"]) == (2.346, 3, 17)
    graph = onnx.load(str(path)).graph
    whole = [t for t in graph.initializer if t.data_type == T.INT8 and len(t.dims) == 2]
    assert len(whole) == 3
    assert [n.name for n in graph.node if n.op_type == "MatMul"] == ["attention"]
    assert len([t for t in graph.initializer if list(t.dims) == [WIDE] and t.data_type == T.FLOAT]) == 3
    assert found["bytes"] == cache.length(path) and cache.external_data(path).exists() == bool(limit)


@pytest.mark.parametrize(
    ("count", "convolutions", "more", "said"),
    [
        (2, 1, (), "2 of 3 "),
        (0, 0, (), "0 of 0 "),
        (0, 0, (node("MatMul", "one x", "z", "first"),), "0 of 0 "),
        (0, 0, (node("Gemm", "x x one", "z", "bias"),), "0 of 0 "),
    ],
    ids=["too few", "none", "stored on the left", "bias alone"],
)
def test_a_network_whose_work_is_elsewhere_is_not_called_int8(
    tmp_path, monkeypatch, count, convolutions, more, said
):
    source = products(tmp_path / "net.onnx", count, convolutions=convolutions, more=more)
    monkeypatch.setattr(made, "_folded", lambda path, folder: onnx.load(str(path)))
    with pytest.raises(UnsupportedError) as caught:
        made.dynamic(source, tmp_path / "int8.onnx", share=0.75)
    assert caught.value.code == "E-INT8-15" and caught.value.evidence.startswith(said)


def test_an_operator_of_the_engines_own_does_not_stop_it(tmp_path):
    nodes = [h.make_node("Inverse", ["x"], ["i"], domain="com.microsoft"), node("MatMul", "i w", "y")]
    network = model(nodes, {"w": weight(4, 4)}, {"x": [1, 4, 4]})
    network.opset_import.append(h.make_opsetid("com.microsoft", 1))
    onnx.save(network, str(tmp_path / "net.onnx"))
    assert [n.op_type for n in made._folded(tmp_path / "net.onnx", tmp_path).graph.node] == [
        "Inverse",
        "MatMul",
    ]
