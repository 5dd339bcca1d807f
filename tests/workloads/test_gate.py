"""When the gate of a network is asked, with which truth, and what it says where there is none."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.errors import Message, ModelError, UnavailableError
from edgescope.records import Absent, Measured, Trial, Verification
from edgescope.workloads import gate
from making import result


@pytest.mark.parametrize(
    ("reference", "answer", "found"),
    [
        ("none", len, "W-GATE-1"),
        ("null", len, "nothing"),
        ("onnxruntime", None, "W-GATE-2"),
        ("onnxruntime", len, "asked"),
    ],
)
def test_the_gate_is_asked_where_there_is_an_answer_and_a_truth(monkeypatch, reference, answer, found):
    facts, judged = {}, Verification(True, "asked", {}, 0.0, "")

    def verified(answer, model, truth, **keys):
        facts.update(keys["facts"], own=keys["own"], replicate=keys["replicate"])
        return judged

    def reference_of(model, open_run, *, batch, metric, alone):
        assert not alone
        return f"truth of {batch} by {metric or 'its labels'}"

    monkeypatch.setattr(gate.reference, "reference", reference_of)
    monkeypatch.setattr(gate.reference, "verified", verified)
    monkeypatch.setattr(gate, "_without_numbers", lambda *asked: None)
    model = SimpleNamespace(reference=reference, closed_batch=None)
    trial = Trial(model="null", backend="null", options={"threads": 2}, shapes={"x": (1, 2)}, replicate=3)
    parts = SimpleNamespace(backend=len, reference=len)
    said = gate.check(trial, model, answer, {"digest": "d"}, machine=result().machine, parts=parts)
    answers = {"nothing": gate.NOTHING, "asked": judged}
    assert answers.get(found, found) in (said, getattr(said, "code", None))
    if found == "asked":
        assert (
            facts["options"] == {"threads": 2}
            and facts["shapes"] == {"x": [1, 2]}
            and facts["artifact"] == "d"
            and not facts["own"]
            and facts["replicate"] == 3
        )
        for change, own in (({}, True), ({"batch": 4}, True), ({"precision": "int8"}, False)):
            asked = replace(Trial(model="null", backend="onnxruntime"), **change)
            gate.check(asked, model, answer, {}, machine=result().machine, parts=parts)
            assert facts["own"] is own, "fp32 of the reference engine as it comes, in any batch"
        elsewhere = SimpleNamespace(backend=str, reference=len)  # the same engine's name, on a board
        gate.check(
            replace(trial, backend="onnxruntime", options={}),
            model,
            answer,
            {},
            machine=result().machine,
            parts=elsewhere,
        )
        assert not facts["own"]
        assert gate.prepare(model, parts) == "truth of 8 by its labels"
        assert (
            gate.prepare(SimpleNamespace(reference="onnxruntime", closed_batch=3, check_batch=len), parts)
            == "truth of 3 by its labels"
        )


def gate_with(monkeypatch, together, alone):
    """The gate of a model whose fp32 answers in a batch of 8, and one by one, are these."""
    asked = []

    def reference_of(model, open_run, *, batch, metric, alone):
        asked.append((batch, alone))
        return single if alone else together

    single = alone
    monkeypatch.setattr(gate.reference, "reference", reference_of)
    model = SimpleNamespace(reference="onnxruntime", closed_batch=None, info=SimpleNamespace(name="m.onnx"))
    return gate, model, asked


@pytest.mark.parametrize(
    ("batch", "alone", "found", "asked"),
    [
        (1, "single answers", "single answers", [(8, False), (1, True)]),
        (1, Message("E-GATE-6", "alone"), Message("E-GATE-6", "together"), [(8, False), (1, True)]),
        (4, "single answers", Message("E-GATE-6", "together"), [(8, False)]),
    ],
)
def test_a_trial_of_single_inputs_is_compared_with_single_answers_where_a_batch_cannot_be(
    monkeypatch, batch, alone, found, asked
):
    gate, model, seen = gate_with(monkeypatch, Message("E-GATE-6", "together"), alone)
    assert gate.prepare(model, None, "", batch) == found and seen == asked


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("E-ONNX-1", "it lacks Frobnicate", fix="do"), "E-ONNX-1: it lacks Frobnicate"),
        (RuntimeError("bad graph"), "RuntimeError: bad graph"),
    ],
)
def test_an_engine_that_cannot_compute_the_reference_keeps_no_other_one_from_being_timed(
    monkeypatch, error, said
):
    def fails(*args):
        raise error

    gate, model, _ = gate_with(monkeypatch, None, None)
    monkeypatch.setattr(gate.reference, "reference", lambda model, open_run, **keys: open_run())
    parts = SimpleNamespace(reference=lambda name: SimpleNamespace(prepare=fails, load=fails), folder=None)
    found = gate.prepare(model, parts)
    assert found.code == "E-GATE-12" and found.evidence == said
    error = UnavailableError("E-CUDA-2", "no onnxruntime", fix="pip install onnxruntime")
    with pytest.raises(UnavailableError):
        gate.prepare(model, parts)


@pytest.mark.parametrize("error", [MemoryError(), UnavailableError("E-X-1", "no package")])
def test_what_is_the_users_to_mend_is_raised(error):
    def fails():
        raise error

    with pytest.raises(type(error)):
        gate._or_no_reference(fails)


def test_the_reference_runs_in_fp32_or_a_file_as_it_is():
    prepared = []

    class Engine:
        def prepare(self, model, spec, folder):
            prepared.append((spec.precision, spec.batch, folder))

        def load(self, artifact):
            return lambda inputs: inputs * 2

    parts = SimpleNamespace(reference={"engine": Engine()}.get, folder="f")
    for written, precision in (("", "fp32"), ("int8", "as_is")):
        model = SimpleNamespace(reference="engine", written=written)
        assert gate._run_of(model, parts, 3)(4) == 8
        assert prepared.pop() == (precision, 3, "f")
    assert gate._plain(SimpleNamespace(written="")).batch == 1


@pytest.fixture
def outputs(monkeypatch):
    """What the engine and its reference answer: two outputs each, of which some hold no number."""

    def asked(ours, theirs, *, noise=True, reference="engine", written=""):
        nan, one = np.array([np.nan, np.inf]), np.array([np.nan, 1.0])
        ours, theirs = (
            None if mute is None else [nan if m else one for m in mute] for mute in (ours, theirs)
        )
        samples = SimpleNamespace(noise=noise, arrays={"x": np.zeros((2, 1))})
        monkeypatch.setattr(gate.judge, "gate_samples", lambda model: samples)
        monkeypatch.setattr(gate, "silent", lambda answer, samples, batch: tuple(map(_mute, answer())))

        def run_of(model, parts, batch):
            if theirs is None:
                raise gate._NoReferenceError
            return lambda: theirs

        monkeypatch.setattr(gate, "_run_of", run_of)
        model = SimpleNamespace(reference=reference, written=written, closed_batch=None)
        return gate._without_numbers(Trial(model="m", backend="b"), model, lambda: ours, None)

    return asked


def _mute(array):
    return not np.isfinite(array).any()


@pytest.mark.parametrize(
    ("ours", "theirs", "keys", "says"),
    [
        ((0, 0), (0, 0), {}, None),
        ((1, 0), (0, 0), {}, "output 0 .*NaN"),
        ((0, 1), (0, 0), {}, "output 1 .*NaN"),
        ((1, 1), (1, 0), {}, "output 1 .*NaN"),
        ((0, 1), (0, 1), {}, None),  # the network has no answer to random numbers
        ((0, 1), (1, 1), {}, None),
        ((1, 1), (1, 1), {}, None),
        ((1, 1), (1, 1), {"noise": False}, "no output holds a finite number on real inputs"),
        ((1, 0), (0, 0), {"noise": False}, "output 0 .*NaN"),
        ((1, 0), None, {}, None),  # nobody knows
        ((1, 0, 1), (0, 0), {}, "output 0 .*NaN"),  # the reference has fewer
        ((1, 0), (0, 0), {"reference": "none"}, None),
    ],
)
def test_outputs_without_a_number_are_wrong_where_the_reference_has_some(outputs, ours, theirs, keys, says):
    found = outputs(ours, theirs, **keys)
    assert (found is None) is (says is None)
    if says:
        assert re.search(says, found.detail) and not found.passed and found.reference == "engine fp32"
        assert outputs(ours, theirs, **keys, written="int8").reference == "engine int8"


@pytest.mark.parametrize(
    ("written", "passed", "apart", "noise", "told"),
    [
        ("int8", False, Measured(0.99, "1"), True, False),
        ("int8", False, Measured(1.0, "1"), True, True),  # as far apart as the outputs of another input
        ("int8", False, Absent("no number"), True, True),
        ("int8", True, Measured(0.5, "1"), True, True),
        ("int8", False, Measured(0.5, "1"), False, True),
        ("", False, Measured(0.5, "1"), True, True),
    ],
)
def test_roundings_of_a_quantised_file_are_not_told_from_a_fault_on_noise(
    monkeypatch, written, passed, apart, noise, told
):
    monkeypatch.setattr(gate.judge, "gate_samples", lambda model: SimpleNamespace(noise=noise))
    found = Verification(passed, "m", {"centred_l2": apart}, 0.1, "")
    monkeypatch.setattr(gate, "prepare", lambda *asked: "truth")
    monkeypatch.setattr(gate.reference, "verified", lambda *asked, **keys: found)
    model = SimpleNamespace(reference="engine", written=written)
    asked = Trial(model="m", backend="b")
    said = gate.check(asked, model, len, {}, machine=result().machine, parts=None)
    assert said is (found if told else gate._ROUNDED)


def test_nothing_to_verify_is_verified():
    assert gate.NOTHING.passed and gate.NOTHING.threshold == 0.0


def test_what_an_engine_raised_is_told_shortened():
    model = SimpleNamespace(reference="engine", info=SimpleNamespace(name="m"))
    found = gate._none_of(model, ValueError("a\n" + "x" * 400))
    assert found.evidence == "ValueError: a " + "x" * 286 and found.fix == ""


def test_a_network_of_one_input_at_a_time_has_been_asked_for_single_answers(monkeypatch):
    gate, model, seen = gate_with(monkeypatch, Message("E-GATE-6", "together"), "single answers")
    assert gate.prepare(model, None) == "single answers" and seen == [(8, False), (1, True)]
    seen.clear()
    model.closed_batch, model.check_batch = 1, len
    assert gate.prepare(model, None).what == "together" and seen == [(1, False)]
