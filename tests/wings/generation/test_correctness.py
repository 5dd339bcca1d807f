"""The gate of generation: what computes as fp32 does passes, and what a fault made of it does not."""

from dataclasses import replace

import numpy as np
import pytest

from edgescope.backends.base import Spec
from edgescope.records import Trial
from edgescope.wings.generation import correctness, shapes
from edgescope.wings.generation.engine import BrokenAnswer, Generated

torch = pytest.importorskip("torch")
pytest.importorskip("gguf")
decoder = pytest.importorskip("edgescope.wings.generation.torch_decoder")
gguf_file = pytest.importorskip("edgescope.wings.generation.gguf_file")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("m") / "m.gguf"
    shapes.write(path, shapes.find("tiny-llama"))
    return gguf_file.GgufFile(str(path))


def _session(model, precision="fp32", shape=None, swap=()):
    """Return a session of a model, with another architecture or with tensors exchanged if a fault is asked for."""
    backend = decoder.TorchDecoder()
    faulty = gguf_file.GgufFile(str(model.path))
    faulty.architecture = shape or model.architecture
    faulty.tensors = dict(model.tensors)
    for one, two in swap:
        faulty.tensors[one], faulty.tensors[two] = model.tensors[two], model.tensors[one]
    return backend.load(backend.prepare(faulty, Spec(precision), model.path.parent))


@pytest.fixture(scope="module")
def said(model):
    return correctness.computed(_session(model))


def _judged(session, said, *, trained=True, precision="bf16"):
    return correctness.judge(session, said, precision=precision, trained=trained)


def test_fp32_agrees_with_itself_and_has_no_divergence(model, said):
    found = _judged(_session(model), said, precision="fp32")
    assert found.passed and found.threshold == 0.95
    assert found.fields["greedy_agreement"].value == 1 and found.fields["greedy_agreement"].n == 256
    assert found.fields["mean_kl"].value == pytest.approx(0, abs=1e-6)


def _layers(model):
    names = [n.removeprefix("blk.0.") for n in model.tensors if n.startswith("blk.0.")]
    return [(f"blk.0.{n}", f"blk.1.{n}") for n in names]


FAULTS = {
    "another base of the turns": lambda m: {"shape": replace(m.architecture, rope_base=100.0)},
    "two layers exchanged": lambda m: {"swap": _layers(m)},
    "gate and up exchanged": lambda m: {"swap": [("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")]},
    "pairs of the other family": lambda m: {"shape": replace(m.architecture, family="qwen3")},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("trained", [True, False], ids=["trained", "untrained"])
def test_a_faulty_network_fails(model, said, fault, trained):
    found = _judged(_session(model, **FAULTS[fault](model)), said, trained=trained)
    assert not found.passed
    assert found.fields["greedy_agreement"].value < 0.5 and found.fields["mean_kl"].value > 0.01


class _Text:
    """An engine that shows no scores and answers what it is told to."""

    context = 512

    def __init__(self, answers):
        self.answers = iter(answers)

    def generate(self, request):
        found = next(self.answers)
        if isinstance(found, Exception):
            raise found
        return Generated([0], [1], 16, 16, None if found is None else tuple(found))

    def encode(self, text):
        return None

    def decode(self, tokens):
        return ""


def test_an_engine_without_scores_is_judged_by_its_answers(said):
    found = _judged(_Text(said.answers.tolist()), said)
    assert found.passed and "scores" in found.fields["mean_kl"].reason


def test_tokens_after_the_first_other_one_count_for_nothing(said):
    answers = said.answers.copy()
    answers[0, 3:] += 1
    answers[1, 0] += 1
    found = correctness.agreement(_Text(answers.tolist()), said)
    assert found.n == 14 * 16 + 4 + 1
    assert found.value == pytest.approx((14 * 16 + 3) / found.n)


def _written(tokens):
    return "".join(f"<{token}>" for token in tokens)


def test_text_alone_agrees_as_far_as_it_is_that_of_the_reference(said):
    answers = said.answers.copy()
    answers[0, 3:] += 1
    answers[1, 0] += 1
    asked = []

    class Writes(_Text):
        def generate(self, request):
            asked.append(request)
            return replace(super().generate(request), text=_written(next(texts)), tokens=None)

    texts = iter(answers.tolist())
    found = correctness.agreement(Writes(answers.tolist()), said, _written)
    assert found.value == pytest.approx((14 * 16 + 3) / found.n) and found.n == 14 * 16 + 4 + 1
    assert [request.text for request in asked] == [_written(given) for given in said.given.tolist()]


def test_a_reference_is_another_model_than_what_is_measured(tmp_path):
    class Parts:
        folder = tmp_path

        def model(self, trial):
            return trial.model

    trial = Trial(model="http://127.0.0.1:9/v1", workload="generate", options={"reference": "llm:smollm2"})
    assert correctness.source(trial, Parts()) == "llm:smollm2"
    assert correctness.source(replace(trial, options={}), Parts()) == trial.model


def test_a_file_makes_text_of_its_tokens(model):
    decode = correctness.decoder(model)
    assert decode(_session(model).encode("hello there")) == "hello there"
    assert correctness.decoder(None) is None


def test_what_agrees_by_its_value_and_not_by_its_lower_bound_fails(said):
    answers = said.answers.copy()
    answers[:, 5] += 1  # five of six tokens count as agreeing
    found = _judged(_Text(answers.tolist()), said)
    share = found.fields["greedy_agreement"]
    assert share.lo < found.threshold < share.value and not found.passed


@pytest.mark.parametrize("answer", [None, BrokenAnswer("stalled", "10 s")], ids=["no tokens", "broken"])
def test_an_engine_whose_answers_break_off_fails(said, answer):
    found = _judged(_Text([answer]), said)
    assert not found.passed and found.method == "none"


def test_scores_that_are_no_numbers_fail(model, said):
    session = _session(model)
    session.scores = lambda tokens: np.full((len(tokens), 512), np.nan, np.float32)
    assert not _judged(session, said).passed


def test_divergence_of_two_coins_by_hand():
    logs = np.log(np.array([[0.5, 0.25]], np.float32))
    said = correctness.Truth(*np.zeros((2, 1, 1), np.int64), np.zeros(1, np.int64), np.array([[2, 0]]), logs)
    scores = np.log(np.array([[0.5, 0.25, 0.25]]))  # token 2 a quarter, token 0 a half, the rest a quarter
    by_hand = 0.5 * np.log(2) + 0.25 * np.log(0.5)
    assert correctness.divergence(scores, said).value == pytest.approx(by_hand, rel=1e-6)


def test_fp32_is_asked_once_for_a_file(model, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path))
    asked = []
    found = [correctness.truth("one", lambda: asked.append(1) or _session(model)) for _ in range(2)]
    assert len(asked) == 1
    assert all(np.array_equal(getattr(found[0], n), getattr(found[1], n)) for n in vars(found[0]))
    next(tmp_path.rglob("*.npz")).write_bytes(b"cut")
    correctness.truth("one", lambda: asked.append(1) or _session(model))
    assert len(asked) == 2


def _expecting(hits, tokens=40, vocabulary=4000):
    """What a model says that has the text's next token among its likeliest so many times."""
    text = np.arange(tokens)
    ids = np.full((tokens, 8), vocabulary - 1)
    ids[:hits, 0] = text[1 : hits + 1]
    none = np.zeros((1, 1), np.int64)
    return correctness.Truth(none, none, text, ids, np.zeros((tokens, 8), np.float32))


def test_weights_are_trained_if_they_expect_the_text(said):
    assert not said.trained
    assert _expecting(20).trained and not _expecting(5).trained
    assert not _expecting(12, vocabulary=41).trained  # of forty tokens eight are a fifth by chance


@pytest.mark.slow
def test_the_trained_model_passes_in_bf16_and_fails_with_another_base_of_its_turns():
    from edgescope.models import zoo

    real = zoo.get("llm:smollm2")
    fp32 = correctness.computed(_session(real))
    assert fp32.trained
    assert _judged(_session(real, "bf16"), fp32, trained=True).passed
    turned = _session(real, shape=replace(real.architecture, rope_base=500.0))
    assert not _judged(turned, fp32, trained=True).passed
