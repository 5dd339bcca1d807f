"""Choosing layers, on graphs of a few nodes: what is compared, fed and counted, and where bisection ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope.artifacts import mixed_precision_onnx as mixed
from edgescope.artifacts.int8 import Job
from edgescope.models.base import Samples
from edgescope.verify import judge

pytestmark = pytest.mark.network


def layer(name, added=0.0):
    spread = mixed.Spread()
    spread.n, spread.error, spread.square, spread.total = 2, added**2, 1.0, np.zeros(1)
    return mixed.Layer(name, (name, name), spread)


def test_a_spread_is_the_error_over_how_far_inputs_differ():
    """Wanted 1 and 3 lie 1 each from their mean 2; the errors are 0.5 and 1."""
    spread = mixed.Spread()
    assert spread.value == 0
    spread.add(np.array([1.5], np.float32), np.array([1.0], np.float32))
    assert spread.value == float("inf")  # one input differs from nothing
    spread.add(np.array([2.0], np.float32), np.array([3.0], np.float32))
    assert spread.n == 2 and spread.value == pytest.approx(np.sqrt(1.25 / 2))
    same = mixed.Spread()
    for value in (1.0, 3.0):
        same.add(np.array([value]), np.array([value]))
    assert same.value == 0
    flat = mixed.Spread()
    for _ in range(3):
        flat.add(np.array([2.5]), np.array([2.0]))
    assert flat.value == float("inf")


def test_a_spread_that_is_all_rounding_is_none():
    spread = mixed.Spread(n=1, error=1.0, square=1.0, total=np.sqrt(1 - 0.9e-12))
    assert spread.value == float("inf")
    spread.total = np.sqrt(1 - 1e-9)
    assert spread.value == pytest.approx(1e4**1.125, rel=0.1)


@pytest.mark.parametrize(
    ("least", "layers", "allowed", "count"),
    [
        (0, 8, 3, 0),
        (1, 8, 3, 1),
        (2, 8, 3, 2),
        (3, 8, 3, 3),
        (5, 8, 3, 5),
        (8, 8, 3, 8),
        (9, 8, 3, None),
        (1, 1, 0, 1),
    ],
)
def test_the_fewest_layers_that_pass_are_kept(least, layers, allowed, count):
    tried = []

    class Search:
        def passes(self, kept):
            tried.append(len(kept))
            return len(kept) >= least

        def may_keep(self, order, number):
            return number <= allowed

    order = [layer(f"l{i}") for i in range(layers)]
    assert mixed.bisected(Search(), order) == count
    assert tried[0] == min(allowed, layers)
    del tried[:]
    found = mixed.bisected(Search(), order, beyond=False)
    assert found == (count if count is not None and count <= allowed else None)
    assert max(tried) <= allowed


def test_where_all_layers_may_stay_nothing_beyond_them_is_tried():
    tried = []
    search = SimpleNamespace(passes=lambda kept: tried.append(len(kept)), may_keep=lambda order, n: True)
    assert mixed.bisected(search, [layer("a"), layer("b")]) is None and tried == [2]
    search.may_keep = lambda order, n: False
    assert mixed.bisected(search, [layer("a"), layer("b")], beyond=False) is None and tried == [2, 0]


def graph(path, nodes, stored, out, given=("x", [1, 2, 2, 2])):
    """Write a network of these nodes and stored tensors."""
    ends = [h.make_tensor_value_info(given[0], T.FLOAT, given[1])]
    tensors = [nh.from_array(np.asarray(array), name) for name, array in stored.items()]
    outs = [h.make_tensor_value_info(out, T.FLOAT, None)]
    made = h.make_graph(list(nodes), "g", ends, outs, tensors)
    onnx.save(h.make_model(made, opset_imports=[h.make_opsetid("", 13)], ir_version=8), str(path))
    return Path(path)


def node(kind, given, made, name, **keys):
    return h.make_node(kind, given.split(), made.split(), name=name, **keys)


def pair(given, out, scale="s"):
    return [
        node("QuantizeLinear", f"{given} {scale} z", f"{out}_q", f"q_{out}"),
        node("DequantizeLinear", f"{out}_q {scale} z", out, f"dq_{out}"),
    ]


EYE = np.eye(2, dtype=np.float32)[:, :, None, None]
STEPS = {"s": np.float32(0.5), "z": np.int8(0)}


@pytest.fixture
def twins(tmp_path):
    """x -> Conv a -> Relu r -> Conv b -> y; rounded to steps of 0.5, the first doubling what it gets."""
    exact = graph(
        tmp_path / "exact.onnx",
        [node("Conv", "x wa", "ca", "a"), node("Relu", "ca", "ra", "r"), node("Conv", "ra wb", "y", "b")],
        {"wa": 2 * EYE, "wb": EYE},
        "y",
    )
    rounded = graph(
        tmp_path / "rounded.onnx",
        [
            *pair("x", "xd"),
            *pair("wa", "wad"),
            node("Conv", "xd wad", "r_renamed", "a"),
            *pair("r_renamed", "rd"),
            *pair("wb", "wbd"),
            node("Conv", "rd wbd", "y", "b"),
        ],
        {"wa": 2 * EYE, "wb": EYE, **STEPS},
        "y",
    )
    return exact, rounded


def test_the_rounded_graph_is_cut_before_every_layer(twins):
    layers, feeds, path = mixed.cut(*twins)
    assert [(found.name, found.output) for found in layers] == [("a", ("ca", "r_renamed")), ("b", ("y", "y"))]
    assert feeds == ["ca"] and path.name == "cut-rounded.onnx"
    model = onnx.load(str(path))
    assert [value.name for value in model.graph.input] == ["x", "fp32:ca"]
    assert [value.name for value in model.graph.output] == ["r_renamed", "y"]
    readers = {n.name: list(n.input) for n in model.graph.node}
    assert readers["q_rd"][0] == "fp32:ca" and readers["q_xd"][0] == "x"


def test_an_activation_is_the_exact_one_where_both_have_it(tmp_path):
    exact = graph(
        tmp_path / "exact.onnx",
        [node("Conv", "x wa", "ca", "a"), node("Relu", "ca", "ra", "r"), node("Add", "ra x", "y", "sum")],
        {"wa": EYE},
        "y",
    )
    rounded = graph(
        tmp_path / "rounded.onnx",
        [
            node("Conv", "x wa", "ca", "a"),
            node("Relu", "ca", "ra2", "r"),
            *pair("ra2", "rd"),
            node("Add", "rd x", "y2", "sum"),
        ],
        {"wa": EYE, **STEPS},
        "y2",
    )
    layers, feeds, path = mixed.cut(exact, rounded)
    assert [found.output for found in layers] == [("y", "y2")] and feeds == ["ra"]
    assert {n.name: list(n.input) for n in onnx.load(str(path)).graph.node}["q_rd"][0] == "fp32:ra"


def test_weights_that_are_rounded_make_no_layer(tmp_path):
    nodes = [node("Conv", "x wa", "y", "a")]
    exact = graph(tmp_path / "exact.onnx", nodes, {"wa": EYE}, "y")
    weights = [*pair("wa", "wd"), node("Conv", "x wd", "y", "a")]
    rounded = graph(tmp_path / "rounded.onnx", weights, {"wa": EYE, **STEPS}, "y")
    assert mixed.cut(exact, rounded)[:2] == ([], [])
    stored = [node("DequantizeLinear", "wq s z", "wd", "dq"), node("Conv", "x wd", "y", "a")]
    whole = graph(tmp_path / "whole.onnx", stored, {"wq": EYE.astype(np.int8), **STEPS}, "y")
    assert mixed.cut(exact, whole)[0] == []
    strange = [*pair("x", "xd"), node("Conv", "xd wa", "y", "no twin")]
    other = graph(tmp_path / "other.onnx", strange, {"wa": EYE, **STEPS}, "y")
    assert mixed.cut(exact, other)[0] == []


def test_shapes_are_fed_as_the_integers_that_they_are(tmp_path):
    """Reshape reads a shape that another node computes."""
    front = [node("Shape", "x", "shape", "shape"), node("Relu", "x", "r", "relu")]
    exact = graph(tmp_path / "exact.onnx", [*front, node("Reshape", "r shape", "y", "form")], {}, "y")
    rounded = graph(
        tmp_path / "rounded.onnx",
        [*front, *pair("r", "rd"), node("Reshape", "rd shape", "y", "form")],
        STEPS,
        "y",
    )
    layers, feeds, path = mixed.cut(exact, rounded)
    assert [found.name for found in layers] == ["form"] and sorted(feeds) == ["r", "shape"]
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.load(str(path)).graph.input}
    assert types == {"x": T.FLOAT, "fp32:r": T.FLOAT, "fp32:shape": T.INT64}


def samples(*values):
    rows = np.array(values, np.float32).reshape(-1, 2, 2, 2)
    return Samples({"x": rows}, tuple(map(str, range(len(rows)))), "")


def test_each_layer_shows_its_own_error(twins):
    """0.7 is rounded to 0.5 and doubled: 1.0 for 1.4; 1.2 gives 2.0 for 2.4. The second layer gets 1.4, as 1.5."""
    given = samples(np.full(8, 0.7), np.full(8, 1.2))
    first, second = mixed.compared(*twins, given)
    assert first.spread.n == second.spread.n == 2
    assert first.added == pytest.approx(0.4 / 0.5) and second.added == pytest.approx(0.1 / 0.5, rel=1e-5)


def wide(i):
    return np.linalg.qr(np.random.default_rng(i).standard_normal((4, 4)))[0].astype(np.float32)[
        :, :, None, None
    ]


def chain(path, count, bad=()):
    """Write a chain of convolutions with ReLUs; of a bad one a weight of 3000 meets an input that is always 0."""
    nodes, stored, last = [], {}, "x"
    for i in range(count):
        weight = wide(i)
        if i in bad:
            weight[:, 0] = 0
        bias = 2 - 2 * weight.sum((1, 2, 3))  # outputs 2 +- 1, so that few are cut off by a ReLU
        if i in bad:
            weight[:, 0] = 3000
        if i + 1 in bad:
            weight[0], bias[0] = 0, 0
        stored |= {f"w{i}": weight, f"b{i}": bias}
        nodes.append(node("Conv", f"{last} w{i} b{i}", f"c{i}", f"conv{i}"))
        last = f"c{i}"
        if i + 1 < count:
            nodes.append(node("Relu", last, f"r{i}", f"relu{i}"))
            last = f"r{i}"
    return graph(path, nodes, stored, last, ("x", ["N", 4, 2, 2]))


def normal(n, seed):
    rows = np.random.default_rng(seed).standard_normal((n, 4, 2, 2)).astype(np.float32)
    return Samples({"x": rows}, tuple(map(str, range(n))), "")


def job(path, **keys):
    return Job(path, normal(16, 0), normal(4, 1), **({"qdq": "s8s8", "trained": False} | keys))


@pytest.mark.parametrize("trained", [False, True])
def test_the_criterion_is_the_gates_with_a_margin(tmp_path, trained):
    search = mixed.Search(job(chain(tmp_path / "net.onnx", 2), trained=trained), tmp_path)
    on = {"on": "4 held-back inputs"}
    if trained:
        assert search.criterion == on | {"top1_agreement": pytest.approx(1 - 0.2 * 0.8)}
    else:
        limits = {"centred_l2": pytest.approx(0.08), "rank_agreement": pytest.approx(1 - 0.1 * 0.8)}
        assert search.criterion == on | limits
    assert judge.L2_CEILING == 0.1 and judge.RANK_FLOOR == 0.9 and judge.REDUCED_FLOOR == 0.8


@pytest.mark.parametrize(
    ("count", "keep", "share", "allowed", "first"),
    [
        (5, 2, 0.75, 1, []),
        (8, 2, 0.5, 4, ["conv0", "conv1"]),
        (8, 2, 0.75, 2, []),
        (8, 1, 0.75, 2, ["conv0"]),
        (6, 2, 0.5, 3, []),
        (4, 2, 0.0, 4, []),
    ],
)
def test_a_small_network_keeps_fewer_first_convolutions(tmp_path, count, keep, share, allowed, first):
    path = chain(tmp_path / "net.onnx", count)
    search = mixed.Search(job(path, keep_float=keep, reduced_share=share), tmp_path)
    assert (len(search.heavy), search.allowed, search.first) == (count, allowed, first)
    assert not search.with_makers and search.tried == []
    assert search.names([layer("conv3"), layer("relu1")]) == [
        *first,
        *(n for n in ("conv3", "relu1") if n not in first),
    ]
    assert search.count([layer("conv3"), layer("relu1")]) == len({*first, "conv3"})
    order = [layer(f"conv{i}") for i in range(count)]
    assert [search.may_keep(order, n) for n in (None, 0, allowed, allowed + 1)] == [
        False,
        True,
        True,
        allowed >= count,
    ]


def test_the_makers_of_a_layers_inputs_are_kept_with_it(tmp_path):
    search = mixed.Search(job(chain(tmp_path / "net.onnx", 5)), tmp_path)
    search.with_makers = True
    assert search.names([layer("conv3")]) == ["conv3", "relu2", "conv2"]
    assert search.count([layer("conv3")]) == 2 and search.names([layer("conv0")]) == ["conv0"]


def test_what_was_tried_is_noted_with_its_figures(tmp_path, monkeypatch):
    search = mixed.Search(job(chain(tmp_path / "net.onnx", 4), trained=True), tmp_path)
    truth = search.truth[0]
    assert truth.shape == (4, 4, 2, 2)
    monkeypatch.setattr(search, "file", lambda kept: None)
    exact = np.eye(4, dtype=np.float32)
    search.truth = (exact,)
    one_wrong = exact[[0, 1, 2, 2]]
    monkeypatch.setattr(search, "_outputs", lambda path: (one_wrong,))
    assert not search.passes([layer("conv2")])
    assert search.tried == [
        {"kept": 1, "centred_l2": 0.8165, "rank_agreement": 0.6667, "top1_agreement": 0.75}
    ]
    search.floors = {"top1_agreement": 0.75}
    assert search.passes([]) and search.tried[1]["kept"] == 0
    search.floors = {"top1_agreement": 0.76}
    assert not search.passes([])


@pytest.mark.parametrize(
    ("l2", "rank", "passes"),
    [(0.08, 0.92, True), (0.081, 0.92, False), (0.08, 0.919, False), (0.0, 1.0, True)],
)
def test_an_untrained_network_has_to_be_close_and_keep_the_order(tmp_path, monkeypatch, l2, rank, passes):
    search = mixed.Search(job(chain(tmp_path / "net.onnx", 2)), tmp_path)
    search.floors = {"centred_l2": 0.08, "rank_agreement": 0.92}
    closeness = SimpleNamespace(centred_l2=lambda *_: l2, rank_agreement=lambda *_: rank)
    monkeypatch.setattr(mixed, "measures", closeness)
    assert search.passes([]) is passes
    assert search.tried == [{"kept": 0, "centred_l2": l2, "rank_agreement": rank}]


def test_a_layer_that_breaks_it_is_chosen(tmp_path, monkeypatch):
    clock = iter(2.3456 * n for n in range(10))
    monkeypatch.setattr(mixed, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    path = tmp_path / "mixture.onnx"
    found = mixed.choose(job(chain(tmp_path / "net.onnx", 8, bad=(3,)), keep_float=0), path)
    assert found["passed"] and found["kept_float"] == ["conv3"] and found["would_need"] == 1
    assert (found["heavy"], found["allowed"], found["build_s"]) == (8, 2, 2.346)
    assert found["bytes"] == path.stat().st_size and len(found["tried"]) in (3, 4)
    added = [row["added"] for row in found["layers"]]
    assert found["layers"][0]["layer"] == "conv3" and added == sorted(added, reverse=True)
    assert all(value == float(f"{value:.4g}") for value in added)
    stored = {t.name for t in onnx.load(str(path)).graph.initializer}
    exact = [n.name for n in onnx.load(str(path)).graph.node if n.op_type == "Conv" and n.input[1] in stored]
    assert exact == ["conv3"]


@pytest.mark.parametrize("qdq", ["u8s8", "s8s8"])
@pytest.mark.slow
def test_too_many_bad_layers_leave_no_file(tmp_path, qdq):
    path = tmp_path / "mixture.onnx"
    found = mixed.choose(job(chain(tmp_path / "net.onnx", 8, bad=(1, 3, 5)), keep_float=0, qdq=qdq), path)
    assert not found["passed"] and found["kept_float"] == [] and not path.exists() and "bytes" not in found
    assert found["would_need"] >= 3 and {row["layer"] for row in found["layers"][:3]} == {
        "conv1",
        "conv3",
        "conv5",
    }


class Tried(mixed.Search):
    """A search in which chosen mixtures pass, by (layers kept, with their makers)."""

    passing: frozenset = frozenset()

    def __init__(self, job, folder):
        super().__init__(job, folder)
        Tried.asked = []

    def passes(self, kept):
        Tried.asked.append((len(kept), self.with_makers))
        return (len(kept), self.with_makers) in self.passing


@pytest.mark.parametrize(
    ("passing", "qdq", "passed", "needs", "kept"),
    [
        ({(n, False) for n in (3, 4, 5, 6, 7, 8)}, "u8s8", False, 3, 0),
        ({(2, False), *((n, False) for n in range(3, 20))}, "u8s8", True, 2, 2),
        ({(1, True), *((n, False) for n in range(3, 20))}, "u8s8", True, 2, 3),
        ({(1, True), *((n, False) for n in range(3, 20))}, "s8s8", False, 3, 0),
        (set(), "u8s8", False, None, 0),
    ],
)
def test_makers_are_kept_with_their_layers_where_nothing_else_passes(
    tmp_path, monkeypatch, passing, qdq, passed, needs, kept
):
    """Of eight convolutions two may be in fp32; with its makers, one layer takes two."""
    monkeypatch.setattr(mixed, "Search", Tried)
    monkeypatch.setattr(Tried, "passing", frozenset(passing))
    monkeypatch.setattr(mixed, "compared", lambda *given: [layer(f"conv{7 - i}", 8.0 - i) for i in range(8)])
    found = mixed.choose(job(chain(tmp_path / "net.onnx", 8), keep_float=0, qdq=qdq), tmp_path / "m.onnx")
    assert (found["passed"], found["would_need"], len(found["kept_float"])) == (passed, needs, kept)
    assert [row["layer"] for row in found["layers"]] == [f"conv{7 - i}" for i in range(8)]
    assert any(makers for _, makers in Tried.asked) == (qdq == "u8s8" and (2, False) not in passing)
