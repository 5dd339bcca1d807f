"""Layers beside the roofline, and the layers of several engines side by side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.roofline import Ceilings, Layer, joined, normal, placed
from edgescope.records import Absent, Measured

LIMITS = Ceilings("here", "cpu", {"fp32": Measured(1e9, "FLOP/s")}, [(1e6, 1e8)], 0.0, [], [])


def test_a_layer_is_bound_by_what_takes_it_longest_and_by_neither_if_it_is_far_from_both():
    compute = Layer("a", "conv", 2e-3, flops=1_000_000, bytes=1000)
    memory = Layer("b", "relu", 2e-3, flops=0, bytes=100_000)
    slow = Layer("c", "pool", 6e-3, flops=0, bytes=1000)
    rows = {p.layer.name: p for p in placed([compute, memory, slow], LIMITS, "cpu")}
    assert [rows[n].bound_by for n in "abc"] == ["compute", "memory", "neither"]
    assert rows["a"].of_limit.value == pytest.approx(0.5) and rows["c"].share == pytest.approx(0.6)
    assert next(iter(rows)) == "c"  # the longest first


def test_what_is_not_known_is_absent_with_its_reason():
    bare = Layer("a", "conv", 1e-3)
    (row,) = placed([bare], LIMITS, "cpu")
    assert isinstance(row.of_limit, Absent) and "shapes" in row.of_limit.reason
    (row,) = placed([Layer("a", "conv", 1e-3, 10, 10, "bf16")], LIMITS, "cpu")
    assert isinstance(row.of_limit, Absent) and "bf16" in row.of_limit.reason
    (row,) = placed([bare], None, "cpu")
    assert row.bound_by == "" and isinstance(row.of_limit, Absent)


def test_which_layers_miss_the_tensor_cores():
    layers = [
        Layer("a", "conv", 1.0, 10, 10, "fp32"),
        Layer("b", "conv", 0.9, 10, 10, "fp16"),
        Layer("c", "conv", 0.8, 10, 10, "fp16", grouped=True),
        Layer("d", "relu", 0.7, 0, 10, "fp32"),
    ]
    assert [p.tensor_cores for p in placed(layers, None, "cuda")] == ["no: fp32", "yes", "no: depthwise", ""]
    assert {p.tensor_cores for p in placed(layers, None, "cpu")} == {""}


def test_fused_layers_stand_under_their_first_name_in_whichever_engine_fused_them():
    torch = [
        Layer("features.0", "convolution", 3.0),
        Layer("features.1", "relu", 1.0),
        Layer("head", "addmm", 1.0),
    ]
    engine = [Layer("/features/0/Conv + features.1", "Convolution", 2.0), Layer("head", "Gemm", 0.5)]
    rows = {j.name: j.seconds for j in joined([torch, engine])}
    assert rows == {"features.0": (4.0, 2.0), "head": (1.0, 0.5)}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/features/0/Conv", "features.0"),
        ("features.0", "features.0"),
        ("node_conv", "node_conv"),
        ("a/Relu_3", "a"),
    ],
)
def test_names_without_what_exporters_put_around_them(name, path):
    assert normal(name) == path


some = st.lists(
    st.builds(Layer, st.sampled_from(["a", "b", "c", "a + b", "b,c"]), st.just("x"), st.floats(1e-6, 1.0)),
    max_size=6,
)


@given(st.lists(some, min_size=1, max_size=3))
@pytest.mark.slow
def test_joining_keeps_the_time_of_every_engine(engines):
    rows = joined(engines)
    assert len({r.name for r in rows}) == len(rows)
    for i, layers in enumerate(engines):
        total = sum(r.seconds[i] or 0.0 for r in rows)
        assert total == pytest.approx(sum(layer.seconds for layer in layers))


@given(some)
@pytest.mark.slow
def test_shares_sum_to_the_whole(layers):
    rows = placed(layers, LIMITS, "cpu")
    assert sum(r.share for r in rows) == pytest.approx(1.0 if rows else 0.0)
