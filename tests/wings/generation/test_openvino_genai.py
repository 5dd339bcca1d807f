"""OpenVINO GenAI on a model of two blocks: what it was asked, what it did, and its answers alone and together."""

import threading

import pytest

from edgescope import registry
from edgescope.backends.base import Spec
from edgescope.errors import EdgescopeError, UnavailableError
from edgescope.models import zoo
from edgescope.wings.generation.engine import Generates, Request
from gguf_bytes import gguf

try:
    GENAI = registry.load(registry.BACKENDS, "openvino_genai", "backend")
except UnavailableError:
    pytest.skip("OpenVINO GenAI is not installed", allow_module_level=True)


def loaded(tmp_path, model="llm:tiny-llama", **options):
    backend = GENAI()
    spec = Spec("as_is", options={"threads": 1, **options})
    return backend.load(backend.prepare(zoo.get(model), spec, tmp_path))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = loaded(tmp_path_factory.mktemp("genai"))
    yield made
    made.close()


def request(first, length=20, output=8):
    return Request(tuple((first + 7 * k) % 400 for k in range(length)), "", output)


def test_it_answers_as_many_tokens_as_asked_each_with_its_moment(session):
    assert isinstance(session, Generates)
    got = session.generate(request(3))
    assert (got.output_tokens, got.prompt_tokens, len(got.tokens)) == (8, 20, 8)
    assert list(got.times_ns) == sorted(got.times_ns) and len(set(got.times_ns)) == 8
    assert list(got.counts) == [1] * 8


def test_requests_that_come_together_share_their_steps(session):
    found, start = {}, threading.Barrier(4)

    def ask(first):
        start.wait()
        found[first] = session.generate(request(first, output=60))

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [len(found[first].tokens) for first in range(4)] == [60] * 4
    assert len({found[first].tokens for first in range(4)}) == 4  # each its own answer
    assert len({t for each in found.values() for t in each.times_ns}) < 4 * 60
    assert not session.open


def test_the_same_request_has_the_same_answer(session):
    assert session.generate(request(5)).tokens == session.generate(request(5)).tokens


def test_it_tells_what_it_did(session):
    did = session.effective()
    assert (did.device, did.precision, did.threads) == ("cpu", "Q8_0", 1)
    assert "compiled model: arithmetic" in did.evidence and "cache" in did.evidence


def test_what_was_asked_is_read_back(tmp_path):
    asked = loaded(tmp_path, precision_hint="f32", kv_cache="f32", threads=2)
    told = asked.effective()
    assert "arithmetic fp32" in told.evidence and "cache f32" in told.evidence and told.threads == 2
    asked.close()


def test_text_and_tokens_are_each_others(session):
    tokens = session.encode(" Rivers begin as thin streams.")
    assert session.decode(tokens) == " Rivers begin as thin streams."
    assert all(0 <= t < 512 for t in tokens)


def code_of(do):
    with pytest.raises(EdgescopeError) as caught:
        do()
    return caught.value.message.code


def test_what_does_not_fit_the_context_is_refused_before_it_runs(session):
    assert session.context == 512
    assert code_of(lambda: session.generate(request(1, length=510, output=3))) == "E-GEN-1"
    assert session.generate(request(1, length=509, output=3)).output_tokens == 3


@pytest.mark.parametrize(
    ("precision", "options", "code"),
    [
        ("fp32", {}, "E-GEN-5"),
        ("as_is", {"kv_cache": "u2"}, "E-OPT-3"),
        ("as_is", {"precision_hint": "int8"}, "E-OPT-3"),
        ("as_is", {"threads": 0}, "E-OPT-2"),
        ("as_is", {"streams": 2}, "E-OPT-1"),
        ("as_is", {"prefix_cache": "maybe"}, "E-OPT-4"),
    ],
)
def test_what_there_is_not_is_refused(tmp_path, precision, options, code):
    spec, model = Spec(precision, options=options), zoo.get("llm:tiny-llama")
    assert code_of(lambda: GENAI().prepare(model, spec, tmp_path)) == code


def test_another_kind_of_model_is_refused(tmp_path):
    assert code_of(lambda: GENAI().prepare(zoo.get("null"), Spec("as_is"), tmp_path)) == "E-GEN-2"


def test_a_file_that_it_cannot_load_is_told_with_its_reason(tmp_path):
    file = tmp_path / "no_tokenizer.gguf"
    file.write_bytes(gguf())
    artifact = GENAI().prepare(zoo.get(str(file)), Spec("as_is"), tmp_path)
    assert code_of(lambda: GENAI().load(artifact)) == "E-GEN-3"
