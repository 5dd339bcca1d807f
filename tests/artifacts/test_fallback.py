"""Per-layer fallback on small networks whose faults are planted, and on a real one."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import data_sets
from edgescope import cache
from edgescope.artifacts import int8, mixed_precision_onnx
from edgescope.artifacts.for_precision import onnx_file
from edgescope.backends.base import REDUCED_SHARE
from edgescope.errors import UnsupportedError, WrongOutputError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.verify import judge, measures

pytestmark = pytest.mark.network


def network(path, *, bad=(), fault="weights", layers=12):
    """A chain of 1x1 convolutions and ReLUs; the bad ones cannot be rounded, in one of two ways.

    weights: one weight per output is 300 times the others' size and meets an input that is always 0; one scale a
    channel rounds all the other weights to nothing. activations: one input is 1000 times the others' size and meets
    weights that are 0; one scale a tensor rounds the other inputs to nothing. fp32 notices neither.
    """
    rng, nodes, stored, last = np.random.default_rng(1), [], [], "x"
    weights = [np.linalg.qr(rng.standard_normal((16, 16)))[0].astype(np.float32) for _ in range(layers)]
    biases = [
        2 - 2 * weight.sum(1) for weight in weights
    ]  # outputs 2 +- 1, so that few are cut off by a ReLU
    biases[0][:] = 2
    for index in bad:
        weights[index][:, 0] = 0
        biases[index] = 2 - 2 * weights[index].sum(1)
        weights[index][:, 0] = 300 if fault == "weights" else 0
        for part in (weights[index - 1], biases[index - 1]):
            part[0] *= 0 if fault == "weights" else 1000
    for index, weight in enumerate(weights):
        stored.append(onnx.numpy_helper.from_array(weight[:, :, None, None], f"w{index}"))
        stored.append(onnx.numpy_helper.from_array(biases[index], f"b{index}"))
        given = [last, f"w{index}", f"b{index}"]
        nodes.append(onnx.helper.make_node("Conv", given, [f"c{index}"], name=f"conv{index}"))
        last = f"c{index}"
        if index + 1 < layers:
            nodes.append(onnx.helper.make_node("Relu", [last], [f"r{index}"], name=f"relu{index}"))
            last = f"r{index}"
    axes = [onnx.helper.make_tensor_value_info(name, 1, ["N", 16, 4, 4]) for name in ("x", last)]
    graph = onnx.helper.make_graph(nodes, "g", axes[:1], axes[1:], stored)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path
    )
    return data_sets.untrained(zoo.get(str(path)))


def judged(path, model, open_onnx):
    """The gate's verdict on a file, on the gate's own inputs."""
    gate = judge.gate_samples(model)
    got, wanted = (judge.outputs(open_onnx(p), gate, 1) for p in (path, model.onnx(path.parent)))
    return judge.judge(got, judge.Reference(wanted, None, ""), precision="int8")


@pytest.mark.parametrize("fault", ["weights", "activations"])
@pytest.mark.parametrize("qdq", ["u8s8", "s8s8"])
def test_the_layers_that_break_it_are_found_and_the_mixture_passes_the_gate(tmp_path, qdq, fault, open_onnx):
    model = network(tmp_path / "net.onnx", bad=(7,), fault=fault)
    plain = int8.int8(model, tmp_path / "made", qdq=qdq)
    assert not judged(plain, model, open_onnx).passed
    path = onnx_file(model, "int8", tmp_path / "made", qdq=qdq, fallback=True)
    assert judged(path, model, open_onnx).passed
    about = cache.notes(path)
    assert "conv7" in about["kept_float"]
    assert about["layers"][0]["layer"] == "conv7"
    assert about["layers"][0]["added"] > 5 * about["layers"][1]["added"]
    heavy = [node for node in onnx.load(str(path)).graph.node if node.op_type == "Conv"]
    stored = {tensor.name for tensor in onnx.load(str(path)).graph.initializer}
    in_fp32 = {node.name for node in heavy if node.input[1] in stored}
    assert in_fp32 == set(about["kept_float"]) & {node.name for node in heavy}
    assert 1 - len(in_fp32) / len(heavy) >= REDUCED_SHARE
    assert len(about["tried"]) <= 12


@pytest.mark.slow
def test_where_int8_is_well_nothing_is_kept_but_the_first_layer(tmp_path):
    model = network(tmp_path / "net.onnx")
    about = cache.notes(int8.mixture(model, tmp_path / "made"))
    assert about["kept_float"] == []  # a quarter of 12 is 3: too few to give two to the first convolutions
    assert about["passed"]


@pytest.mark.slow
def test_too_many_bad_layers_are_refused_with_their_number_and_that_is_remembered(tmp_path, monkeypatch):
    model = network(tmp_path / "net.onnx", bad=(2, 4, 6, 8, 10))
    with pytest.raises(
        WrongOutputError, match=r"E-INT8-10.*([4-9]|1[0-2]) of its 12.*at most 3 may be.*Try: "
    ) as first:
        int8.mixture(model, tmp_path / "made")
    monkeypatch.setattr(mixed_precision_onnx, "choose", None)
    with pytest.raises(WrongOutputError) as second:
        int8.mixture(model, tmp_path / "made")
    assert str(first.value) == str(second.value)
    assert not list((tmp_path / "made").glob("*.onnx"))


@pytest.mark.slow
def test_ranges_choice_and_gate_share_no_input(tmp_path):
    model = network(tmp_path / "net.onnx", bad=(4,))
    about = cache.notes(int8.mixture(model, tmp_path / "made"))
    ranges, held = (set(about[key]["digests"]) for key in ("calibration", "held_back"))
    gate = set(judge.gate_samples(model).digests)
    assert not (ranges & held or ranges & gate or held & gate)
    assert (len(ranges), len(held)) == (64, 16)


@pytest.mark.parametrize(("n", "kept"), [(80, 16), (40, 10), (16, 4)])
def test_a_quarter_is_held_back_at_most_sixteen(tmp_path, n, kept):
    model = network(tmp_path / "net.onnx")
    ranges, held = int8.split(model, model.samples(Purpose.CALIBRATION, n))
    assert (len(ranges), len(held)) == (n - kept, kept)
    assert len(held.arrays["x"]) == kept


def test_too_few_inputs_to_hold_any_back(tmp_path):
    model = network(tmp_path / "net.onnx")
    with pytest.raises(UnsupportedError, match=r"E-INT8-13.*15;.*Try: "):
        int8.split(model, model.samples(Purpose.CALIBRATION, 15))


@given(
    heavy=st.lists(st.booleans(), min_size=1, max_size=30),
    needed=st.integers(0, 31),
    first=st.integers(0, 2),
    allowed=st.integers(0, 12),
)
@settings(deadline=None)
@pytest.mark.slow
def test_bisection_finds_the_fewest_in_few_tries(heavy, needed, first, allowed):
    """Whatever the layers, when passing is monotone."""
    tried = []

    class Search:
        def passes(self, kept):
            tried.append(len(kept))
            return len(kept) >= needed

        def may_keep(self, order, count):
            return first + sum(order[:count]) <= allowed

    found = mixed_precision_onnx.bisected(Search(), heavy)
    assert found == (needed if needed <= len(heavy) else None)
    assert len(tried) <= 9
    assert len(set(tried)) == len(tried)


@given(st.integers(1, 5), st.floats(0, 10), st.integers(0, 2**32 - 1))
def test_spread_is_verifys_centred_l2(n, size, seed):
    rng = np.random.default_rng(seed)
    wanted = rng.standard_normal((n, 7)) + 3
    got = wanted + size * rng.standard_normal((n, 7))
    spread = mixed_precision_onnx.Spread()
    for a, b in zip(got, wanted, strict=True):
        spread.add(a, b)
    assert spread.value == pytest.approx(measures.centred_l2((got,), (wanted,)), rel=1e-6)


@pytest.mark.slow
def test_a_real_network_says_what_it_would_need(untrained, artifacts):
    """squeezenet1_1 with random weights: rounding errors everywhere, no few layers to blame."""
    with pytest.raises(WrongOutputError, match=r"E-INT8-10.*of its 26.*at most 6 may be"):
        int8.mixture(untrained, artifacts)
    found = (json.loads(p.read_text()) for p in artifacts.glob("squeezenet1_1-mixed-*.json"))
    kept = next(f for f in found if f["qdq"] == "u8s8")  # other tests have made the other kind there
    assert kept["heavy"] == 26
    assert len(kept["tried"]) <= 9
    assert len({layer["added"] for layer in kept["layers"]}) > 20
    assert len(kept["layers"]) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("qdq", ["s8s8"])
@pytest.mark.wings
def test_a_real_network_that_fails_as_int8_passes_as_a_mixture(artifacts, qdq, open_onnx):
    """The small DenseNet for clips: one matrix product, the last, adds most of the error."""
    from edgescope.verify import reference

    model = zoo.get("har_densenet")
    truth = reference.reference(model, lambda: open_onnx(model.onnx(artifacts)))
    made = {
        "plain": int8.int8(model, artifacts, qdq=qdq),
        "mixture": int8.mixture(model, artifacts, qdq=qdq),
    }
    answers = {
        name: judge.verify(open_onnx(path), model, truth, precision="int8")[0] for name, path in made.items()
    }
    assert not answers["plain"].passed
    assert answers["mixture"].passed, answers["mixture"].detail
    about = cache.notes(made["mixture"])
    assert len(about["kept_float"]) <= about["allowed"]
    assert about["layers"][0]["layer"] in about["kept_float"]


@pytest.mark.slow
def test_fallback_imports_nothing_heavy():
    heavy = "{'onnx', 'torch', 'onnxruntime'} & set(sys.modules)"
    code = f"import sys, edgescope.artifacts.int8; assert not {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
