"""Servers with OpenAI's interface, good ones and bad ones, each a process: what is measured, and what is refused."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgescope import registry
from edgescope.analysis.run.energy_window import SCOPES
from edgescope.backends.base import Spec
from edgescope.errors import SettingError, UnavailableError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Absent, Trial
from edgescope.wings.generation.endpoint import Endpoint
from edgescope.wings.generation.engine import Apart, BrokenAnswer, Generates, Request
from edgescope.wings.generation.openai import OpenAi

pytestmark = pytest.mark.process
PROGRAM = Path(__file__).parents[2] / "llm_server.py"
ASKED = Request((), "hello there you", 12)


def serve(*behaviours, more=()):
    named = [word for name in behaviours for word in ("--behaviour", name)]
    process = subprocess.Popen([sys.executable, PROGRAM, *named, *more], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().split()[-1])
    return process, f"http://127.0.0.1:{port}/v1"


def ended(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def every():
    from llm_server import BEHAVIOURS

    process, url = serve(*BEHAVIOURS, more=("--tokenizes",))
    yield url
    ended(process)


@pytest.fixture(scope="module")
def plain():
    process, url = serve("fast", "no_usage")
    yield url
    ended(process)


def opened(url, name, **options):
    spec = Spec("as_is", options={"model": name, "quiet": 0.3, **options}, device="server")
    return OpenAi().load(OpenAi().prepare(Endpoint(url), spec, Path()))


def answered(url, name, request=ASKED, **options):
    session = opened(url, name, **options)
    try:
        return session.generate(request)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("name", "tokens", "counts"),
    [
        ("fast", 12, [1] * 12),
        ("two_a_chunk", 12, [0] * 6),
        ("each_counted", 12, [2, 1] * 4),
        ("empty_chunks", 12, [1] * 12),
        ("unchunked", 12, [1] * 12),
        ("strict", 12, [1] * 12),
        ("stops", 10, [1] * 10),
    ],
)
def test_tokens_are_counted_by_usage(every, name, tokens, counts):
    found = answered(every, name)
    assert (found.output_tokens, list(found.counts)) == (tokens, counts)
    assert len(found.times_ns) == len(counts) and list(found.times_ns) == sorted(found.times_ns)
    assert found.prompt_tokens == 7 and found.text.startswith("one two three")
    assert found.finish == ("stop" if name == "stops" else "length")


@pytest.mark.parametrize(
    ("name", "kind", "evidence"),
    [
        ("stalls", "stalled", "after 3 pieces"),
        ("closes", "closed_early", "after 3 pieces"),
        ("ends_early", "closed_early", "after 3 pieces"),
        ("too_few_counted", "wrong_usage", "6 tokens, and 12 pieces"),
        ("too_many_counted", "wrong_usage", "36 tokens"),
        ("busy", "refused", "429 said, Retry-After 0"),
        ("broken", "failed", "500"),
        ("garbled", "malformed", "choices"),
        ("stalls_talking", "stalled", "empty pieces"),
        ("error_inside", "failed", "out of memory"),
        ("endless", "endless", "112 pieces"),
    ],
)
def test_what_is_no_measurement(every, name, kind, evidence):
    session = opened(every, name)
    for _ in range(2):  # the next one is asked on a connection of its own
        with pytest.raises(BrokenAnswer) as broken:
            session.generate(ASKED)
        assert broken.value.kind == kind and evidence in broken.value.evidence
    session.close()


@pytest.mark.parametrize("name", ["only_empty", "counts_no_number", "not_streamed"])
def test_a_server_that_cannot_be_measured(every, name):
    with pytest.raises(UnsupportedError) as refused:
        opened(every, name)
    assert refused.value.code == "E-URL-7"


def test_without_usage_the_servers_tokenizer_counts(every, plain):
    assert answered(every, "no_usage").output_tokens == 12
    with pytest.raises(UnsupportedError) as refused:
        opened(plain, "no_usage")
    assert refused.value.code == "E-URL-7"


def test_thoughts_are_tokens_and_have_their_end(every):
    found = answered(every, "thinks")
    assert found.output_tokens == 12
    assert found.times_ns[2] < found.marks["first_spoken"] == found.times_ns[3]


def test_cached_tokens_are_told(every):
    assert answered(every, "cached").cached_tokens == 7
    assert answered(every, "fast").cached_tokens is None


def test_an_answer_ends_though_its_connection_does_not(every):
    begun = time.monotonic()
    assert answered(every, "late_done", quiet=60).output_tokens == 12
    assert time.monotonic() - begun < 5


def test_a_connection_that_is_kept_waits_as_long_as_a_new_one(every):
    session = opened(every, "slow_start", quiet=10)
    assert [session.generate(ASKED).output_tokens for _ in range(2)] == [12, 12]
    session.close()


def test_the_session_says_what_it_knows(every):
    session = opened(every, "strict", system="be brief")
    assert isinstance(session, Generates) and session.context == 4096 and session.elsewhere == ""
    assert session.encode("a b") is not None and session.decode([0, 1]) == "one two"
    assert session.generate(ASKED).prompt_tokens == 9  # the system prompt and its template
    said = session.effective()
    assert said.device == "server" and "step 2" in said.evidence and "this machine" in said.evidence
    session.close()
    assert "lengths are not forced" in opened(every, "stops").effective().evidence


def test_prompts_as_tokens_and_with_pictures(every):
    tokens = Request((5, 6, 7), "", 4)
    assert answered(every, "fast", tokens, api="completions").prompt_tokens == 3
    seen = Request((), "what is this", 4, (b"\x89PNG....", b"\xff\xd8.."))
    assert answered(every, "fast", seen).prompt_tokens == 7


def test_the_model_is_one_that_the_server_has(every, plain):
    for url, name in ((every, "other"), (plain, None)):
        spec = Spec(options={"model": name} if name else {})
        with pytest.raises(UsageError) as refused:
            OpenAi().prepare(Endpoint(url), spec, Path())
        assert refused.value.code == "E-URL-4"


def test_no_server_answers():
    with pytest.raises(UnavailableError) as refused:
        OpenAi().prepare(Endpoint("http://127.0.0.1:9/v1"), Spec(), Path())
    assert refused.value.code == "E-URL-5"


@pytest.mark.parametrize(("options", "code"), [({"quiet": "no"}, "E-OPT-2"), ({"threads": 2}, "E-OPT-1")])
def test_options_that_are_none(options, code):
    with pytest.raises(UsageError) as refused:
        OpenAi().prepare(Endpoint("http://127.0.0.1:9/v1"), Spec(options=options), Path())
    assert refused.value.code == code


KEY = "sk-do-not-tell-4711"


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "EDGESCOPE_API_KEY"])
def test_a_key_is_sent_and_never_told(every, monkeypatch, variable):
    monkeypatch.setenv(variable, KEY)
    with pytest.raises(UnsupportedError) as refused:
        opened(every, "echoes")
    assert "wrong key: Bearer (the key)" in str(refused.value) and KEY not in str(refused.value)


@pytest.mark.parametrize("here", [True, False])
def test_the_usual_key_does_not_leave_this_machine_unencrypted(every, monkeypatch, here):
    from edgescope.wings.generation import endpoint

    monkeypatch.setattr(endpoint.Connection, "same_machine", here)
    for variable, sent in (("OPENAI_API_KEY", here), ("EDGESCOPE_API_KEY", True)):
        monkeypatch.setenv(variable, KEY)
        server = endpoint.Server(endpoint.Address.of(every), 10.0)
        assert server.authorized is sent
        server.close()
        monkeypatch.delenv(variable)


def test_a_key_that_would_split_the_request(every, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\r\nX: y")
    with pytest.raises(SettingError) as refused:
        opened(every, "fast")
    assert KEY not in str(refused.value)


def test_a_server_elsewhere_is_not_watched(every, monkeypatch):
    from edgescope.wings.generation import endpoint

    session = opened(every, "fast")
    assert session.effective().unwatched == "" and isinstance(session, Apart)
    assert isinstance(session.unseen()["peak_rss_bytes"], Absent)
    session.close()
    monkeypatch.setattr(endpoint.Connection, "same_machine", False)
    session = opened(every, "fast")
    assert "another machine" in session.effective().unwatched
    session.close()
    for device in ("cpu", "cuda"):
        spec = Spec("as_is", options={"model": "fast"}, device=device)
        with pytest.raises(UsageError) as refused:
            OpenAi().prepare(Endpoint(every), spec, Path())
        assert refused.value.code == "E-URL-8"


def test_a_server_here_computes_on_what_its_owner_says(every):
    spec = Spec("as_is", options={"model": "fast", "quiet": 2}, device="cpu")
    session = OpenAi().load(OpenAi().prepare(Endpoint(every), spec, Path()))
    assert session.effective().device == "cpu"
    session.close()


def test_no_meter_of_this_machine_sees_a_server():
    assert set(SCOPES) <= set(registry.place("server").unseen_by)


def test_a_reference_needs_prompts_without_a_template(every):
    with pytest.raises(UsageError) as refused:
        opened(every, "fast", reference="llm:smollm2")
    assert refused.value.code == "E-URL-9"
    opened(every, "fast", reference="llm:smollm2", api="completions").close()


def test_a_url_is_a_model():
    model = zoo.get("http://127.0.0.1:9/v1")
    assert model.info.weights == "weights not known" and model.samples(Purpose.BENCH, 1) is None
    with pytest.raises(UnsupportedError):
        model.onnx(Path())
    trial = Trial(model="http://127.0.0.1:9/v1", workload="generate", device="server", precision="as_is")
    assert trial.backend == "openai" and registry.home("openai") == "server"
