"""The decoder as an engine: what it holds is what was asked for, and on a GPU it answers as on the CPU."""

import pytest

from edgescope import registry
from edgescope.backends.base import Spec
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.wings.generation import correctness
from edgescope.wings.generation.engine import Generates, Request, Scores

pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("torch")
    return zoo.get("llm:tiny-llama")


def opened(model, **keys):
    backend = registry.load(registry.BACKENDS, "torch_decoder", "backend")()
    return backend.load(backend.prepare(model, Spec(**keys), model.path.parent))


def test_an_answer_has_its_length_and_a_moment_for_each_token(model):
    session = opened(model)
    assert isinstance(session, Generates) and isinstance(session, Scores)
    got = session.generate(Request((1, 2, 3), "", 5))
    assert (got.output_tokens, got.prompt_tokens, got.counts) == (5, 3, [1] * 5)
    assert got.times_ns == sorted(set(got.times_ns)) and len(got.tokens) == 5
    again = session.generate(Request((1, 2, 3), "", 5))
    assert again.tokens == got.tokens  # in a cache that an earlier answer left
    assert session.scores([1, 2, 3])[-1].argmax() == got.tokens[0]


def test_what_it_holds_is_read_back(model):
    assert opened(model, precision="as_is").effective().precision == "fp32"
    with pytest.raises(UnsupportedError) as caught:
        opened(model, precision="int8")
    assert caught.value.message.code == "E-PREC-1"


@pytest.mark.parametrize(("prompt", "output"), [(512, 1), (1, 512), (0, 1)])
def test_what_does_not_fit_into_the_context_is_refused(model, prompt, output):
    with pytest.raises(UsageError) as caught:
        opened(model).generate(Request((1,) * prompt, "", output))
    assert caught.value.message.code == "E-GEN-1"


@pytest.mark.gpu("torch_decoder")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_on_a_gpu_it_answers_as_in_fp32_on_the_cpu(model, precision):
    said = correctness.computed(opened(model))
    session = opened(model, precision=precision, device="cuda")
    found = correctness.judge(session, said, precision=precision, trained=False)
    assert found.passed, found.detail
    assert (session.effective().device, session.effective().precision) == ("cuda", precision)
    assert found.fields["greedy_agreement"].value > (0.95 if precision == "fp32" else 0.7)
