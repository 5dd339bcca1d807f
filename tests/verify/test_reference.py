import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import Message
from edgescope.models import zoo
from edgescope.models.null import NullModel
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
        (Mates(0.5), 8, "depend on the other inputs"),
        (Mates(0.5, calls=True), 8, "not deterministic"),
        (Mates(0.5, calls=True), 1, "not deterministic"),
        (Mates(0.5), 1, ""),
        (Mates(1e-4), 8, ""),
        (lambda b: [b["input"][:, :0]], 8, "empty for every input"),
        (lambda b: [b["input"][:1]], 8, "no row per sample"),
        (lambda b: [{"a": 1}], 8, "no tensor of numbers"),
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


def test_user_weights_are_judged_on_photographs(tmp_path, untrained):
    """A network with weights of the user's is fed photographs; whether it knows anything is found out."""
    import torch

    torch.save(untrained.module().state_dict(), tmp_path / "w.pth")
    model = zoo.get(f"squeezenet1_1@{tmp_path / 'w.pth'}")
    assert len(judge.gate_samples(model)) >= 300
