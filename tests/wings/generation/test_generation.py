"""The workload: what it asks of a session, what it keeps of the answers, and what it refuses."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from edgescope import registry
from edgescope.backends.base import Artifact
from edgescope.bench.parts import HERE, Here
from edgescope.errors import Message, UnavailableError, UnsupportedError, UsageError
from edgescope.records import (
    QUERY_ERROR,
    QUERY_OK,
    UNIT,
    Absent,
    Effective,
    Machine,
    Measured,
    Queries,
    Trial,
    Verification,
    Window,
)
from edgescope.records.rows import QUERY_DTYPES
from edgescope.wings.generation.correctness import UNTRAINED_FLOOR
from edgescope.wings.generation.engine import BrokenAnswer, Generated, Generates
from edgescope.wings.generation.figures import Answers
from edgescope.wings.generation.gguf_file import GgufFile
from edgescope.wings.generation.workload import Generation
from gguf_bytes import gguf


class Scripted:
    """A session that answers at once, with moments of its own making; a number in `broken` breaks that answer."""

    def __init__(self, *, broken=(), tokens=True):
        self.asked, self.broken, self.shows, self.closed = [], dict(broken), tokens, False
        self.lock = threading.Lock()

    def generate(self, request):
        with self.lock:
            number = len(self.asked)
            self.asked.append(request)
        if number in self.broken:
            raise BrokenAnswer(self.broken[number], "as the test wants it")
        now = time.monotonic_ns()
        times = [now + 1000 * k for k in range(request.output_tokens)]
        return Generated(times, [1] * len(times), len(times), len(request.tokens) or 99)

    def encode(self, text):
        return tuple(text.encode()) if self.shows else None

    def decode(self, tokens):
        return bytes(tokens).decode()

    context = 64

    def effective(self):
        return Effective("cpu", "Q4_1", 1, "scripted")

    def close(self):
        self.closed = True


class Backend:
    def __init__(self, session):
        self.session = session

    def prepare(self, model, spec, folder):
        return Artifact(model, spec, model.path, model.info.digest)

    def load(self, artifact):
        return self.session


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())

    @contextmanager
    def open_with(session, in_flight=1, **options):
        class Parts:
            folder = tmp_path

            def model(self, trial):
                return GgufFile(str(path))

            def backend(self, name):
                return Backend(session)

            def reference(self, name):
                assert name == "torch_decoder"
                raise UnavailableError("E-NAME-2", "torch is not there", fix="pip install torch")

        trial = Trial(
            model=str(path),
            workload="generate",
            workload_options=options,
            in_flight=in_flight,
            precision="as_is",
        )
        with Generation().open(trial, Parts()) as work:
            yield work

    return open_with


def run(work, count):
    """Issue so many units and wait for all; return their rows as (number, status, samples, marks)."""
    found, ended = [], threading.Semaphore(0)

    def done(number, status, samples=0, source_ns=-1, marks=None):
        found.append((number, status, samples, marks or {}))
        ended.release()

    for number in range(count):
        work.work.issue(number, 1, done)
    for _ in range(count):
        assert ended.acquire(timeout=10)
    return sorted(found, key=lambda row: row[0])


def test_a_session_of_the_seam_is_one():
    assert isinstance(Scripted(), Generates)


def test_each_unit_asks_one_prompt_of_the_lengths_and_keeps_its_moments(opened):
    session = Scripted()
    with opened(session, prompt_tokens=40, output_tokens=5) as work:
        rows = run(work, 4)
        assert isinstance(work.facts["first_s"], Measured)
        assert work.artifact["sampling"] == "greedy" and work.artifact["prompt_tokens"] == 40
        assert work.effective().precision == "Q4_1"
    assert session.closed
    assert [(number, status, samples) for number, status, samples, _ in rows] == [
        (n, QUERY_OK, 5) for n in range(4)
    ]
    assert all(m["second_token"] - m["first_token"] == 1000 for *_, m in rows)
    before = len(session.asked) - 4  # the warm-up, before anything is timed
    assert before >= 2 and {(len(r.tokens), r.output_tokens) for r in session.asked} == {(40, 5)}
    assert len({r.tokens[:1] for r in session.asked}) == before + 4


def test_shared_prompts_are_one_but_the_first(opened):
    session = Scripted()
    with opened(session, prompts="shared") as work:
        run(work, 3)
    assert len({r.tokens for r in session.asked}) == 1


def test_without_tokens_of_its_own_an_engine_is_asked_in_words(opened):
    session = Scripted(tokens=False)
    with opened(session, prompt_tokens=30) as work:
        run(work, 2)
    assert all(r.tokens == () and len(r.text.split()) == 20 for r in session.asked)


def test_a_broken_answer_is_a_failed_query_counted_by_kind(opened):
    session = Scripted()
    with opened(session, output_tokens=3) as work:
        first = len(session.asked)
        session.broken = {first + 1: "stalled", first + 2: "stalled", first + 3: "refused"}
        rows = run(work, 4)
        assert [status for _, status, *_ in rows] == [QUERY_OK, QUERY_ERROR, QUERY_ERROR, QUERY_ERROR]
        assert "stalled: as the test wants it" in work.failure()
        queries = _queries(rows)
        found = work.metrics(queries, Window(0, 4, 0, time.monotonic_ns()))
    assert (found["broken_stalled"].value, found["broken_refused"].value) == (2, 1)
    assert found["output_tokens"].n == 1


def test_what_is_not_known_of_another_process_is_absent(opened):
    class Elsewhere(Scripted):
        def unseen(self):
            return {"peak_rss_bytes": Absent("it is another process")}

    with opened(Elsewhere(), output_tokens=3) as work:
        found = work.metrics(_queries(run(work, 1)), Window(0, 1, 0, time.monotonic_ns()))
    assert found["peak_rss_bytes"] == Absent("it is another process")


def _queries(rows):
    known = {
        "query_id": [r[0] for r in rows],
        "status": [r[1] for r in rows],
        "samples": [r[2] for r in rows],
    }
    return Queries({k: np.array(known.get(k, [0] * len(rows)), dtype) for k, dtype in QUERY_DTYPES.items()})


def test_what_was_not_in_the_window_has_no_span(opened):
    with opened(Scripted(), output_tokens=3) as work:
        rows = run(work, 2)
        work.metrics(_queries(rows), Window(0, 2, 0, 1))
        assert len(work.breakdown()) == 0
        work.metrics(_queries(rows), Window(0, 2, 0, time.monotonic_ns() + 10**9))
        assert work.breakdown().named().count(UNIT) == 2


def test_several_requests_are_asked_at_once(opened):
    gate = threading.Barrier(3, timeout=10)

    class Meeting(Scripted):
        def generate(self, request):
            if gated:
                gate.wait()
            return super().generate(request)

    gated = []
    with opened(Meeting(), in_flight=3) as work:
        gated.append(True)
        assert len(run(work, 3)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [({"batch": 4}, "--in-flight 4"), ({"backend": "torch_eager"}, "--backend openai or openvino_genai")],
)
def test_what_cannot_be_asked_is_refused_with_a_flag(change, words):
    trial = Trial(**{"model": "llm:smollm2", "workload": "generate", **change})
    with pytest.raises(UnsupportedError) as caught:
        Generation().check(trial)
    assert caught.value.message.code == "E-GEN-4" and words in caught.value.message.fix


def test_without_the_reference_answers_are_not_judged_and_the_result_says_why(opened):
    with opened(Scripted()) as work:
        said = work.verify(Machine({}, {}))
    assert isinstance(said, Message) and (said.code, said.fix) == ("W-GEN-1", "pip install torch")
    assert "E-NAME-2" in said.evidence


class Turned:
    """The decoder of a model whose rotary positions are not the file's."""

    def prepare(self, model, spec, folder):
        faulty = GgufFile(str(model.path))
        faulty.architecture = replace(faulty.architecture, rope_base=100.0)
        return registry.load(registry.BACKENDS, "torch_decoder", "backend")().prepare(faulty, spec, folder)

    def load(self, artifact):
        return registry.load(registry.BACKENDS, "torch_decoder", "backend")().load(artifact)


@pytest.mark.parametrize("faulty", [False, True])
def test_the_gate_strikes_out_what_answers_otherwise_than_the_files_weights(monkeypatch, faulty):
    pytest.importorskip("torch")
    trial = Trial(
        model="llm:tiny-llama",
        backend="torch_decoder",
        workload="generate",
        workload_options={"prompt_tokens": 8, "output_tokens": 2},
        precision="as_is",
    )
    with monkeypatch.context() as patched:
        if faulty:
            patched.setattr(Here, "backend", lambda self, name: Turned())
        Generation().prepare(trial, HERE)
        with Generation().open(trial, HERE) as work:
            said = work.verify(Machine({}, {}))
            assert work.effective().precision == "fp32"
    assert isinstance(said, Verification) and said.method == "greedy_agreement"
    assert said.passed is not faulty and said.threshold == UNTRAINED_FLOOR


def test_options_are_checked_before_anything_is_loaded(opened):
    session = Scripted()
    with pytest.raises(UsageError), opened(session, prompt_tokens=0):
        pass
    assert not session.asked


def test_no_answer_means_no_answers():
    assert Answers().of(_queries([(0, QUERY_ERROR, 0)])) == []


def test_the_engine_is_registered_with_what_installs_it():
    entry = registry.BACKENDS["openvino_genai"]
    assert "edgescope[generate]" in entry.fix and {"gguf"} == registry.facts("openvino_genai").READS
