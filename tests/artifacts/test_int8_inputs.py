"""Which calibration inputs are taken, which recipe exists, and what the file's origin says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgescope import cache
from edgescope.artifacts import int8
from edgescope.errors import UnsupportedError, UsageError, WrongOutputError
from edgescope.models import zoo
from edgescope.models.base import Purpose, Samples, TensorSpec


def samples(n, first=0, *, noise=False, values=None):
    rows = np.arange(first, first + 2 * n, dtype=np.float32).reshape(n, 2) if values is None else values
    digests = tuple(f"d{i}" for i in range(first, first + n))
    return Samples({"x": rows}, digests, "here", noise=noise)


class Net:
    """A network of two numbers with these inputs for each purpose."""

    def __init__(self, calibration, gate=None, **facts):
        self.info = replace(zoo.get("null").info, **({"name": "net", "digest": "d1"} | facts))
        self.inputs = (TensorSpec("x", (2,), "float32"),)
        self.given = {Purpose.CALIBRATION: calibration, Purpose.GATE: gate or samples(8, 100)}
        self.asked = []

    def samples(self, purpose, n):
        self.asked.append((purpose, n))
        return self.given.get(purpose)

    def onnx(self, folder, opset=None):
        path = folder / "net.onnx"
        folder.mkdir(exist_ok=True)
        path.write_bytes(b"network")
        return path


def refused(model, kind=UnsupportedError):
    with pytest.raises(kind) as caught:
        int8.inputs(model, 64)
    return caught.value.code, caught.value.evidence


def test_inputs_that_vary_and_fit_are_taken():
    model = Net(samples(5))
    assert len(int8.inputs(model, 64)) == 5 and model.asked[0] == (Purpose.CALIBRATION, 64)


@pytest.mark.parametrize("given", [None, samples(0)])
def test_without_inputs_there_is_no_int8(given):
    assert refused(Net(given))[0] == "E-INT8-1"


@pytest.mark.parametrize(
    ("values", "digests", "evidence"),
    [
        (np.ones((3, 2)), None, "every value"),
        (None, ("d", "d", "d"), "SHA-256 d"),
        (None, ("d", "d", "e"), None),
        (np.array([[1, 1], [1, 1], [1, 2]]), None, None),
    ],
)
def test_inputs_that_do_not_vary_are_refused(values, digests, evidence):
    given = samples(3, values=values)
    given = replace(given, digests=digests) if digests else given
    if evidence:
        code, said = refused(Net(given))
        assert code == "E-INT8-4" and evidence in said
    else:
        assert int8.inputs(Net(given), 64) is given


def test_one_input_alone_may_be_all_there_is():
    assert len(int8.inputs(Net(samples(1)), 64)) == 1


def test_inputs_of_another_shape_are_refused_with_both():
    code, evidence = refused(Net(samples(3, values=np.zeros((3, 5)))))
    assert code == "E-INT8-7" and evidence == "they are {'x': (3, 5)}, it takes {'x': (3, 2)}"


@pytest.mark.parametrize(
    ("ranges", "gate", "facts", "taken"),
    [
        (True, False, {}, False),
        (False, True, {}, False),
        (False, False, {}, True),
        (True, True, {"task": "classify"}, True),
        (True, True, {"trained": True}, True),
    ],
)
def test_noise_says_nothing_of_a_network_of_which_nothing_is_known(ranges, gate, facts, taken):
    model = Net(samples(3, noise=ranges), samples(8, 100, noise=gate), **facts)
    if taken:
        assert len(int8.inputs(model, 64)) == 3
    else:
        assert refused(model)[0] == "E-INT8-13"


@pytest.mark.parametrize("shared", [0, 1, 4])
def test_no_input_sets_ranges_and_judges(shared):
    model = Net(samples(5), samples(8, 5 - shared))
    if not shared:
        assert len(int8.inputs(model, 64)) == 5
        return
    with pytest.raises(UsageError) as caught:
        int8.inputs(model, 64)
    named = [f"d{i}" for i in range(5 - shared, 5)][:3]
    assert caught.value.code == "E-LEAK-1" and caught.value.evidence == f"SHA-256 {', '.join(named)}"
    assert caught.value.what.startswith(f"{shared} calibration inputs")


@pytest.mark.parametrize(
    ("recipe", "code"),
    [
        ({}, None),
        ({"qdq": "s8s8", "opset": 13}, None),
        ({"qdq": "s8s8", "quantizer": "modelopt"}, None),
        ({"qdq": "u8s8", "opset": 11}, None),
        ({"qdq": "s8s8", "opset": 12}, "E-INT8-8"),
        ({"qdq": "s4s4"}, "E-INT8-2"),
        ({"quantizer": "magic"}, "E-INT8-2"),
        ({"quantizer": "modelopt"}, "E-INT8-2"),
    ],
)
def test_a_recipe_exists_or_not(recipe, code):
    if code is None:
        assert int8.Recipe(**recipe)
        return
    with pytest.raises((UsageError, UnsupportedError)) as caught:
        int8.Recipe(**recipe)
    assert caught.value.code == code


@pytest.fixture
def quantiser(monkeypatch):
    """Stand in for every quantiser: it writes a few bytes and notes what it was asked for."""
    asked = []

    def need(target, *_):
        def quantize(source, *given, **how):
            *rest, path = given
            asked.append((target.partition(":")[2], [len(x) for x in rest], how))
            path.write_bytes(b"int8")
            return {"opset": 13, "build_s": 1.0}

        return quantize

    monkeypatch.setattr(int8, "need", need)
    return asked


def test_a_file_says_how_it_was_made_and_is_made_once(tmp_path, quantiser):
    paths = [int8.int8(Net(samples(5)), tmp_path, qdq=qdq) for qdq in ("u8s8", "s8s8", "u8s8")]
    assert paths[0] == paths[2] != paths[1] and len(quantiser) == 2
    assert quantiser[0] == ("quantize", [5], {"keep_float": 2, "qdq": "u8s8"})
    about = cache.notes(paths[1])
    assert (about["qdq"], about["quantizer"], about["model_digest"]) == ("s8s8", "onnxruntime", "d1")
    assert about["calibration"] == {"n": 5, "origin": "here", "digests": [f"d{i}" for i in range(5)]}
    assert int8.int8(Net(samples(6)), tmp_path) != paths[0]


@pytest.mark.parametrize(("opset", "kept"), [(None, True), (13, True), (14, True), (12, False)])
def test_a_later_opset_than_asked_for_is_not_kept(tmp_path, quantiser, opset, kept):
    if kept:
        assert int8.int8(Net(samples(5)), tmp_path, opset=opset).exists()
        return
    with pytest.raises(UnsupportedError) as caught:
        int8.int8(Net(samples(5)), tmp_path, opset=opset)
    assert caught.value.code == "E-INT8-8" and "13 where 12" in caught.value.what
    int8._as_asked({}, 12, "a tool that says no opset")


def test_dynamic_int8_needs_no_inputs(tmp_path, quantiser):
    path = int8.dynamic(Net(None), tmp_path)
    about = cache.notes(path)
    assert quantiser == [("dynamic", [], {"share": 0.75})] and about["dynamic"] is True
    assert (about["model"], about["model_digest"]) == ("net", "d1")
    assert path == int8.dynamic(Net(None), tmp_path) and len(quantiser) == 1


# -- with layers in fp32 -----------------------------------------------------------------------------------------


FOUND = {
    "passed": True,
    "layers": [{"layer": f"l{i}", "added": 0.123 / (i + 1)} for i in range(5)],
    "heavy": 12,
    "allowed": 3,
    "would_need": 2,
}


@pytest.fixture
def chooser(monkeypatch):
    """Stand in for what chooses layers: it finds this, and writes the file if one passes."""
    asked, found = [], dict(FOUND)

    def choose(job, path):
        asked.append(job)
        if found["passed"]:
            path.write_bytes(b"mixture")
        return dict(found)

    monkeypatch.setattr(int8, "need", lambda *_: choose)
    return asked, found


def test_a_mixture_is_made_from_most_inputs_and_chosen_on_the_rest(tmp_path, chooser):
    asked, _ = chooser
    model = Net(samples(80))
    path = int8.mixture(model, tmp_path, qdq="s8s8")
    assert model.asked[0] == (Purpose.CALIBRATION, 80)
    (job,) = asked
    assert (len(job.ranges), len(job.held), job.qdq, job.keep_float) == (64, 16, "s8s8", 2)
    assert (job.trained, job.reduced_share, job.margin) == (False, 0.75, 0.8)
    about = cache.notes(path)
    assert about["held_back"] == {"n": 16, "digests": [f"d{i}" for i in range(64, 80)]}
    assert about["calibration"]["n"] == 64 and about["qdq"] == "s8s8"
    assert int8.mixture(model, tmp_path, qdq="s8s8") == path and len(asked) == 1
    assert int8.mixture(model, tmp_path) != path and len(asked) == 2
    trained = Net(samples(80), trained=True)
    assert int8.mixture(trained, tmp_path) != path and asked[-1].trained


@pytest.mark.parametrize(("needs", "said"), [(7, "7 of its 12"), (None, "no number of its 12")])
def test_a_network_that_needs_too_many_layers_is_refused_and_that_is_remembered(
    tmp_path, chooser, needs, said
):
    asked, found = chooser
    found.update(passed=False, would_need=needs)
    for _ in range(2):
        with pytest.raises(WrongOutputError) as caught:
            int8.mixture(Net(samples(80)), tmp_path)
        evidence = caught.value.evidence
        assert (
            caught.value.code == "E-INT8-10" and evidence.startswith(said) and "at most 3 may be" in evidence
        )
        assert evidence.endswith("adding most error: l0 (0.12), l1 (0.061), l2 (0.041)")
    assert len(asked) == 1 and not list(tmp_path.glob("*mixed*.onnx"))


def test_layers_are_chosen_with_one_quantiser_only(tmp_path, chooser):
    with pytest.raises(UsageError) as caught:
        int8.mixture(Net(samples(80)), tmp_path, qdq="s8s8", quantizer="modelopt")
    assert caught.value.code == "E-INT8-14" and not chooser[0]


@pytest.mark.parametrize(("n", "held"), [(16, 4), (19, 4), (20, 5), (63, 15), (64, 16), (80, 16), (200, 16)])
def test_a_quarter_is_held_back(n, held):
    labelled = replace(samples(n), labels=np.arange(n))
    ranges, rest = int8.split(Net(None), labelled)
    assert (len(ranges), len(rest)) == (n - held, held) and rest.digests[0] == f"d{n - held}"
    assert rest.arrays["x"][0, 0] == 2 * (n - held) and ranges.arrays["x"].shape == (n - held, 2)
    assert ranges.labels is None and rest.labels is None


@pytest.mark.parametrize("n", [1, 15])
def test_fewer_than_sixteen_are_too_few(n):
    with pytest.raises(UnsupportedError) as caught:
        int8.split(Net(None), samples(n))
    assert caught.value.code == "E-INT8-13" and caught.value.evidence.startswith(f"{n};")
