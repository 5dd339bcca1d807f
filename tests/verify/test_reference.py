import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import Message, WrongOutputError
from edgescope.models import zoo
from edgescope.models.base import Samples
from edgescope.models.synthetic import NullModel
from edgescope.verify import judge, reference

FACTS = {"artifact": "abc", "backend": "onnxruntime"}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    return tmp_path


class Counting:
    """A right answer, or a changed one, and how many inputs it was asked for."""

    def __init__(self, shift=0.0):
        self.asked, self.shift = 0, shift

    def __call__(self, batch):
        self.asked += len(batch["input"])
        return [batch["input"] * 3 + self.shift * np.sign(batch["input"])]


def test_fp32_is_computed_once(own_cache):
    opened = []
    model = NullModel()
    assert not reference.known(model)
    truth = reference.reference(model, lambda: opened.append(1) or Counting())
    again = reference.reference(model, lambda: pytest.fail("computed twice"))
    assert reference.known(model)
    assert len(opened) == 1
    assert np.array_equal(truth.gate[0], again.gate[0])
    assert truth.tally is None


def test_outputs_that_another_computes_already_are_waited_for(own_cache):
    opened, begun = [], threading.Event()

    class Slow(Counting):
        def __call__(self, batch):
            begun.set()
            time.sleep(0.01)
            return super().__call__(batch)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(reference.reference, NullModel(), lambda: opened.append(1) or Slow())
        assert begun.wait(10)
        second = pool.submit(reference.reference, NullModel(), lambda: opened.append(2) or Slow())
        assert np.array_equal(first.result(30).gate[0], second.result(30).gate[0])
    assert opened == [1]


def test_a_damaged_reference_is_computed_again(own_cache):
    truth = reference.reference(NullModel(), Counting)
    (path,) = (own_cache / "references").iterdir()
    path.write_bytes(path.read_bytes()[:50])
    assert np.array_equal(reference.reference(NullModel(), Counting).gate[0], truth.gate[0])


def test_why_fp32_cannot_be_judged_is_kept(own_cache):
    said = reference.reference(NullModel(), lambda: lambda batch: [batch["input"] * np.nan])
    assert isinstance(said, Message) and said.code == "E-GATE-6" and "NaN" in said.what and said.fix
    assert reference.reference(NullModel(), lambda: pytest.fail("computed twice")) == said
    alone = reference.reference(NullModel(), Counting, alone=True)
    assert isinstance(alone, reference.Reference), "the answers to single inputs are others"


class Mates:
    """Answers shifted by something of the whole batch, or, where `calls`, of how often it was asked."""

    def __init__(self, share, calls=False):
        self.share, self.calls, self.asked = share, calls, 0

    def __call__(self, batch):
        given, self.asked = batch["input"], self.asked + 1
        spread = np.abs(given).mean(axis=0) * np.sign(given)
        return [given + self.share * spread * (self.asked if self.calls else 1)]


@pytest.mark.parametrize(
    ("run", "batch", "code"),
    [
        (Mates(0.5), 8, "depend on"),
        (Mates(0.5, calls=True), 8, "not deterministic"),
        (Mates(0.5, calls=True), 1, "not deterministic"),
        (Mates(0.5), 1, ""),
        (Mates(1e-4), 8, ""),
        (lambda b: [b["input"][:, :0]], 8, "empty for"),
        (lambda b: [b["input"][:1]], 8, "no row per sample"),
        (lambda b: [{"a": 1}], 8, "no tensor"),
    ],
)
def test_company_and_chance_are_told_apart(own_cache, run, batch, code):
    found = reference.reference(NullModel(), lambda: run, batch=batch)
    assert (code in found.what) if code else isinstance(found, reference.Reference)


def test_the_whole_gate_runs_once_and_then_four_inputs(own_cache):
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    first, second, other = Counting(), Counting(), Counting()
    answer = reference.verified(first, model, truth, precision="fp32", facts=FACTS)
    assert answer.passed
    assert first.asked == judge.UNTRAINED_INPUTS
    again = reference.verified(second, model, truth, precision="fp32", facts=FACTS)
    assert second.asked == reference.FEW
    assert "unchanged" in again.detail
    assert (again.passed, dict(again.fields), again.method) == (
        answer.passed,
        dict(answer.fields),
        answer.method,
    )
    reference.verified(other, model, truth, precision="fp32", facts=FACTS | {"artifact": "new"})
    assert other.asked == judge.UNTRAINED_INPUTS


def test_the_variant_that_computed_the_reference_is_not_run_over_every_input_again(own_cache):
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    own, whole = Counting(), Counting()
    answer = reference.verified(own, model, truth, precision="fp32", facts=FACTS, own=True)
    assert own.asked == reference.QUICK and "it computed the reference: 16 outputs" in answer.detail
    full = reference.verified(whole, model, truth, precision="fp32", facts=FACTS | {"artifact": "new"})
    assert (answer.passed, dict(answer.fields)) == (full.passed, dict(full.fields))
    changed = Counting(shift=2.0)
    facts = FACTS | {"artifact": "changed"}
    assert not reference.verified(changed, model, truth, precision="fp32", facts=facts, own=True).passed
    assert changed.asked == reference.QUICK + judge.UNTRAINED_INPUTS


@pytest.mark.parametrize("differs", [{"precision": "int8"}, {"batch": 4}, {"min_agreement": 0.99}])
def test_anything_that_matters_asks_for_the_whole_gate(own_cache, differs):
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    reference.verified(Counting(), model, truth, precision="fp32", facts=FACTS)
    counting = Counting()
    reference.verified(counting, model, truth, **({"precision": "fp32"} | differs), facts=FACTS)
    assert counting.asked >= judge.UNTRAINED_INPUTS


def test_a_replicate_that_answers_differently_is_judged_anew(own_cache):
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    reference.verified(Counting(), model, truth, precision="fp32", facts=FACTS)
    changed = Counting(shift=2.0)
    answer = reference.verified(changed, model, truth, precision="fp32", facts=FACTS)
    assert changed.asked == reference.FEW + judge.UNTRAINED_INPUTS
    assert not answer.passed
    broken = reference.verified(lambda b: [b["input"] * np.nan], model, truth, precision="fp32", facts=FACTS)
    assert not broken.passed


@pytest.mark.parametrize("wrong", [0, 6, 15])
def test_four_replicates_check_all_outputs_that_are_kept(own_cache, wrong):
    """What answers one input of 16 otherwise goes through the whole gate in the replicate that asks for it."""
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    reference.verified(Counting(), model, truth, precision="fp32", facts=FACTS)
    odd = judge.gate_samples(model).arrays["input"][wrong]

    def run(batch):
        asked.append(len(batch["input"]))
        return [
            np.stack([-3 * row if np.array_equal(row, odd) else 3 * row for row in batch["input"]]),
        ]

    found = []
    for number in range(4):
        asked = []
        reference.verified(run, model, truth, precision="fp32", facts=FACTS, replicate=number)
        found.append(sum(asked) > reference.FEW)
    assert found == [number == wrong // reference.FEW for number in range(4)]


def test_a_batch_is_checked_whole(own_cache):
    model, truth = NullModel(), reference.reference(NullModel(), Counting)
    for _ in range(2):
        answer = reference.verified(Counting(), model, truth, precision="fp32", batch=8, facts=FACTS)
    assert "8 outputs checked again, unchanged" in answer.detail


@given(st.integers(2, 64), st.integers(2, 64), st.integers(0, 99))
def test_a_replicate_is_checked_for_as_many_outputs_as_there_are(n, few, number):
    rows = reference._some(n, few, number)
    assert rows.start >= 0 and rows.stop <= n and rows.stop - rows.start == min(n, few)


@pytest.mark.slow
def test_verifying_imports_no_engine(trained, trained_truth, artifacts):
    """What a measuring process needs, once everything is cached, holds neither torch nor onnx."""
    path = trained.onnx(artifacts)
    code = f"""
import sys
for name in ("torch", "onnx", "openvino", "PIL", "av", "timm"):
    sys.modules[name] = None
import onnxruntime
from pathlib import Path
from edgescope.verify import reference
from edgescope.models import zoo
model = zoo.get("efficientnet_lite0")
session = onnxruntime.InferenceSession(str(model.onnx(Path({str(artifacts)!r}))))
truth = reference.reference(model, lambda: 1 / 0)
run = lambda batch: session.run(None, dict(batch))
answer = reference.verified(run, model, truth, precision="fp32", facts={{}}, own=True)
assert answer.passed and "18/20" in answer.detail, answer
"""
    assert path.exists()
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_user_weights_are_judged_on_photographs(tmp_path, untrained):
    """A network with weights of the user's is fed photographs; whether it knows anything is found out."""
    import torch

    torch.save(untrained.module().state_dict(), tmp_path / "w.pth")
    model = zoo.get(f"squeezenet1_1@{tmp_path / 'w.pth'}")
    assert len(judge.gate_samples(model)) >= 300


def test_what_is_empty_says_its_shape_and_on_how_many_inputs():
    reference._something((np.zeros((5, 1)), np.zeros((5, 2, 3))))
    with pytest.raises(WrongOutputError) as raised:
        reference._something((np.zeros((5, 1)), np.zeros((5, 0, 4))))
    error = raised.value
    assert (error.code, error.evidence) == (
        "E-GATE-10",
        "shape 0x4 on 5 inputs",
    ) and "output 1 " in error.what


@pytest.mark.parametrize(
    ("values", "rows"),
    [((1,), 16), ((2**17,), 16), ((2**17 + 1,), 15), ((2**20,), 2), ((2**22,), 2), ((2**16, 2**17), 10)],
)
def test_sixteen_outputs_are_kept_or_as_many_as_two_million_values_hold(values, rows):
    outputs = tuple(np.broadcast_to(np.float32(0), (20, n)) for n in values)
    assert [len(part) for part in reference._first(outputs)] == [rows] * len(values)
    assert len(reference._first((np.zeros((20, 0)),))[0]) == 16


@pytest.mark.parametrize(
    ("n", "few", "number", "rows"),
    [
        *((16, 4, k, (4 * k % 16, 4 * k % 16 + 4)) for k in range(6)),
        *((10, 4, 2, (6, 10)), (3, 4, 0, (0, 3)), (3, 4, 5, (0, 3)), (16, 8, 1, (8, 16)), (2, 2, 1, (0, 2))),
    ],
)
def test_each_replicate_is_checked_for_the_next_four(n, few, number, rows):
    found = reference._some(n, few, number)
    assert (found.start, found.stop) == rows


def numbers(n):
    return Samples({"input": np.arange(1.0, n + 1)[:, None]}, tuple(map(str, range(n))), "made up")


@pytest.mark.parametrize(("off", "same"), [(0.0, True), (0.0199, True), (0.0201, False)])
def test_outputs_are_unchanged_within_two_per_cent_of_what_inputs_change(off, same):
    inputs = numbers(8)
    first = (inputs.arrays["input"][:6],)
    spread = first[0] - first[0].mean()
    assert (
        reference.unchanged(lambda b: [b["input"] * (1 + off) - off * first[0].mean()], inputs, first, 2)
        is same
    )
    later = slice(4, 6)
    assert reference.unchanged(lambda b: [b["input"]], inputs, first, 2, later)
    assert not reference.unchanged(lambda b: [b["input"] + spread.max()], inputs, first, 2, later)
    assert not reference.unchanged(lambda b: [np.hstack([b["input"]] * 2)], inputs, first, 2)
    assert not reference.unchanged(lambda b: [b["input"] * np.nan], inputs, first, 2)


@pytest.mark.parametrize(
    ("share", "batch", "code"),
    [
        (0.0199, 1, ""),
        (0.0201, 1, "E-GATE-8"),
        (0.0145, 6, ""),
        (0.0155, 6, "E-GATE-11"),
        (0.0201, 6, "E-GATE-8"),
    ],
)
def test_a_second_call_may_differ_by_two_per_cent(share, batch, code):
    inputs = numbers(6)
    first = inputs.arrays["input"][:4]
    mean = first.mean() if batch == 1 else inputs.arrays["input"].mean()
    again = lambda b: [b["input"] + share * (b["input"] - mean)]  # noqa: E731
    try:
        reference._steady(again, inputs, (inputs.arrays["input"],) if batch > 1 else (first,), batch)
        assert not code
    except WrongOutputError as error:
        assert error.code == code and "at most 0.02 is allowed" in error.evidence


def test_inputs_are_asked_again_in_other_company_only_where_a_batch_holds_more_than_four():
    asked = []

    def run(given):
        asked.append(given["input"][:, 0].tolist())
        return [given["input"]]

    inputs = numbers(9)
    for batch, calls in (
        (1, [[1], [2], [3], [4]]),
        (4, [[1, 2, 3, 4]]),
        (6, [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 4, 4]]),
        (12, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9], [1, 2, 3, 4, *[4] * 8]]),
    ):
        asked.clear()
        reference._steady(run, inputs, (inputs.arrays["input"],), batch)
        assert asked == calls


def test_labels_are_held_to_64_answers_unless_a_function_of_the_users_reads_them(monkeypatch):
    seen = []
    monkeypatch.setattr(
        reference, "check_labels", lambda answer, labels, name: seen.append((len(answer), name))
    )
    many = Samples({"input": np.zeros((70, 3))}, tuple(map(str, range(70))), "", labels=np.zeros(70, int))
    for labelled, metric in (
        (many, ""),
        (many, "top1"),
        (many, "m:f"),
        (None, ""),
        (replace(many, labels=None), ""),
        (replace(many, labels=np.zeros((70, 2), int)), ""),
    ):
        of = judge.Basis(many, labelled, None, metric, False)
        reference._labels_fit(lambda b: [b["input"]], of, 8, "net")
    assert seen == [(64, "net")] * 2


def test_arrays_are_read_in_the_order_in_which_they_were_written(tmp_path):
    parts = [np.full(2, float(i)) for i in range(12)]
    reference._write(tmp_path / "a.npz", {"gate": parts, "tally": parts[:1]}, {"x": 1})
    found = reference._read(tmp_path / "a.npz")
    assert [a[0] for a in found["gate"]] == list(range(12)) and [
        len(found[k]) for k in ("tally", "about")
    ] == [1, 1]
    assert reference._read(tmp_path / "absent.npz") is None
