"""A network in an engine: its inputs, its phases, its sample output and its reference set."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.run import summary
from edgescope.backends.base import Artifact, Phases
from edgescope.errors import UnavailableError, UnsupportedError, UsageError, WrongOutputError
from edgescope.models import zoo
from edgescope.models.base import Samples
from edgescope.models.synthetic import NullModel
from edgescope.records import UNIT, Absent, Effective, Measured, Trial
from edgescope.workloads import inference
from edgescope.workloads.base import SampleOutput
from edgescope.workloads.inference import (
    POOL,
    Inference,
    Loaded,
    batches_of,
    loaded,
    phase_spans,
    sample_output,
)

NULL = Trial(model="null", backend="null")
NOW_S = 1_700_000_000.0


class Timed:
    """A session whose queries tell their phases, and take `each_s` of a clock that stands still otherwise."""

    def __init__(self, now, each_s):
        self.now, self.each_s, self.rows = (
            now,
            each_s,
            iter(Phases(1000 + k, 10, None, 500, 70) for k in range(999)),
        )

    def phases(self, batch):
        self.now[0] += self.each_s
        return next(self.rows)


def ready(session):
    return Loaded(session, [{}], len, {}, {})


@pytest.mark.parametrize(("each_s", "n"), [(1e-4, 199), (0.042, 23), (0.5, 9), (5.0, 9)])
def test_phases_come_from_as_many_queries_as_a_second_has_10_to_200(monkeypatch, each_s, n):
    now = [50.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=lambda: round(now[0] * 1e9))
    monkeypatch.setattr(inference, "time", clock)
    spans = inference._breakdown(ready(Timed(now, each_s)))
    found = summary.of_spans(spans)
    assert found["phased_latency_s"].n == n  # the first query warms the events up
    assert found["phased_latency_s"].value == pytest.approx((1000 + (n + 1) / 2) * 1e-9)
    assert found["enqueue_s"].value == pytest.approx(10e-9)
    assert found["h2d_s"] == Absent(summary.UNTOLD)
    assert (found["gpu_compute_s"].value, found["d2h_s"].value) == (pytest.approx(5e-7), pytest.approx(7e-8))


def test_on_the_device_there_are_no_copies_and_without_events_no_phases():
    session = Timed([0.0], 1.0)
    assert inference._absent_copies(ready(session), "device") == dict.fromkeys(
        ("h2d_s", "d2h_s"), Absent("io device leaves the copies out")
    )
    assert inference._absent_copies(ready(session), "host") == {}
    assert inference._absent_copies(ready(len), "device") == {}
    assert (
        len(inference._breakdown(ready(len))) == 0
        and summary.of_spans(inference._breakdown(ready(len))) == {}
    )


def test_phases_are_spans_of_one_query_after_another():
    spans = phase_spans([Phases(1000, 10, 20, 500, 70), Phases(2000, None, 20, 600, 80)])
    assert spans.durations_ns(UNIT).tolist() == [1000, 2000] and spans.durations_ns("enqueue").tolist() == [
        10
    ]
    start = spans.columns["start_ns"]
    assert start[spans.columns["query_id"] == 1].min() == start.min() + 1000


@pytest.mark.parametrize(("reference", "asked"), [("onnxruntime", True), ("null", False), ("none", False)])
def test_there_is_an_exam_only_where_something_is_computed(monkeypatch, reference, asked):
    arrays = {"x": np.arange(3.0)[:, None]}
    monkeypatch.setattr(inference.judge, "gate_samples", lambda model: SimpleNamespace(arrays=arrays))
    monkeypatch.setattr(inference.judge, "outputs", lambda answer, samples, rows: answer(samples.arrays))
    found = inference.reference_set(SimpleNamespace(reference=reference), 2, lambda batch: [batch["x"] * 2])
    assert (found is not None) is asked
    if asked:
        assert found.size == 3
        assert [array.tolist() for (array,) in found.answers([2, 0])] == [[4.0], [0.0]]


def test_a_glimpse_is_the_first_input_as_often_as_the_batch_is_large():
    class Two:
        def samples(self, purpose, n):
            return Samples({"x": np.arange(6.0).reshape(2, 3)}, ("a", "b"), "a test")

    class Empty:
        def samples(self, purpose, n):
            return None

    given = []
    found = sample_output(Two(), 3, lambda batch: given.append(batch["x"]) or [batch["x"][:, :1]])
    assert np.array_equal(given[0], np.tile(np.arange(3.0), (3, 1))) and given[0].flags["C_CONTIGUOUS"]
    assert found.input_bytes == 9 * 8 and found.outputs[0].tolist() == [[0.0]] * 3
    assert sample_output(Empty(), 3, len) == SampleOutput()


def test_batches_wrap_round_the_pool_and_are_contiguous():
    batches = batches_of(zoo.get("null"), Trial(model="null", backend="null", batch=3))
    assert len(batches) == POOL == 8
    assert all(a.shape[0] == 3 and a.flags["C_CONTIGUOUS"] for b in batches for a in b.values())


class Session:
    """Doubles what it is given; notes what it was asked."""

    def __init__(self):
        self.log, self.closed = [], 0

    def __call__(self, batch):
        self.log.append(("call", batch))
        return [batch["input"] * 2]

    def effective(self):
        return Effective("cpu", "fp32")

    def close(self):
        self.closed += 1


class Staged(Session):
    """One on a device with memory of its own."""

    def stage(self, batch):
        self.log.append(("stage",))
        return {"input": batch["input"] + 1000}

    def fetch(self, outputs):
        return [output - 5 for output in outputs]


class Laned(Session):
    """One that answers several queries at once."""

    def lanes(self, n, batch, *, owned=False):
        self.log.append(("lanes", n, batch, owned))


class Engine:
    """Loads this session, in 3 ms of a clock of its own; a call takes 1 ms."""

    OPTIONS = {}  # noqa: RUF012

    def __init__(self, session, build_s=None, path=None):
        self.session, self.build_s, self.path = session, build_s, path

    def prepare(self, model, spec, folder):
        return Artifact(model, spec, self.path, "d1", self.build_s, {"built": "so"})

    def load(self, artifact):
        return self.session


PARTS = SimpleNamespace(folder=None)


def held(session, monkeypatch, inputs=None, engine=None, **keys):
    times = iter([5_000_000, 8_000_000, 10_000_000, 11_000_000])
    monkeypatch.setattr(
        inference, "time", SimpleNamespace(monotonic_ns=lambda: next(times), time=lambda: NOW_S)
    )
    trial = Trial(model="null", backend="null", **keys)
    return loaded(trial, NullModel(), engine or Engine(session), PARTS, inputs)


def test_a_session_is_loaded_and_answers_once_before_it_is_given_out(monkeypatch, tmp_path):
    (tmp_path / "net").write_bytes(b"12345")
    os.utime(tmp_path / "net", (NOW_S - 90, NOW_S - 90))
    session = Session()
    engine = Engine(session, 1.5, tmp_path / "net")
    with held(session, monkeypatch, batch=2, engine=engine) as ready:
        assert ready.facts == {
            "build_s": Measured(1.5, "s"),
            "load_s": Measured(0.003, "s"),
            "first_s": Measured(0.001, "s"),
        }
        assert ready.about == {"path": str(tmp_path / "net"), "bytes": 5, "age_s": 90.0} | {
            "digest": "d1",
            "built": "so",
        }
        assert len(session.log) == 1 and session.log[0][1] is ready.batches[0]
        assert len(ready.batches) == 8 and not session.closed
    assert session.closed == 1


def test_what_is_not_built_or_has_no_file_says_so(monkeypatch):
    given = [{"input": np.ones((1, 1))}]
    with held(Session(), monkeypatch, given) as ready:
        assert ready.facts["build_s"] == Absent("nothing is built beforehand") and ready.batches == given
        assert (ready.about["path"], ready.about["bytes"]) == (None, None)


def test_a_session_is_closed_where_its_first_answer_fails(monkeypatch):
    session = Session()
    with pytest.raises(KeyError), held(session, monkeypatch, [{}]):
        pass
    assert session.closed == 1


@pytest.mark.parametrize(
    ("kind", "io", "staged", "answered"),
    [
        (Session, "host", 0, 14),
        (Staged, "host", 0, 14),
        (Staged, "pinned", 8, 2009),
        (Staged, "device", 8, 2009),
    ],
)
def test_inputs_are_staged_once_where_the_device_has_memory_of_its_own(
    monkeypatch, kind, io, staged, answered
):
    session = kind()
    with held(session, monkeypatch, io=io, device="cuda") as ready:
        assert session.log[:-1] == [("stage",)] * staged
        assert (ready.batches[0]["input"] >= 900).all() == bool(staged)
        assert ready.answer({"input": np.array([7])})[0].tolist() == [answered]


@pytest.mark.parametrize("io", ["pinned", "device"])
def test_a_session_without_memory_of_its_own_takes_inputs_from_the_host_alone(monkeypatch, io):
    with pytest.raises(UnsupportedError, match="E-IO-1"), held(Session(), monkeypatch, io=io, device="cuda"):
        pass


@pytest.mark.parametrize(
    ("in_flight", "device", "kind", "lanes"),
    [(1, "cuda", Laned, 0), (3, "cpu", Laned, 0), (3, "cuda", Laned, 1), (1, "cuda", Session, 0)],
)
def test_a_gpu_has_a_lane_for_each_query_in_flight(monkeypatch, in_flight, device, kind, lanes):
    session = kind()
    with held(session, monkeypatch, in_flight=in_flight, device=device) as ready:
        assert session.log[1:] == [("lanes", 3, ready.batches[0], False)] * lanes


def test_a_gpu_session_without_lanes_answers_one_query_at_a_time(monkeypatch):
    with (
        pytest.raises(UnsupportedError, match="E-LANE-1"),
        held(Session(), monkeypatch, in_flight=2, device="cuda"),
    ):
        pass


def shown(arrays):
    """A model that has these inputs."""
    samples = Samples({"x": np.asarray(arrays, dtype=float)}, tuple(map(str, arrays)), "a test")
    return SimpleNamespace(samples=lambda purpose, n: samples)


@pytest.mark.parametrize(
    ("batch", "rows"),
    [(1, [[0], [1], [2]]), (2, [[0, 1], [1, 2], [2, 0]]), (4, [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])],
)
def test_each_batch_begins_one_input_later_and_goes_round(batch, rows):
    trial = Trial(model="m", backend="b", batch=batch)
    assert [b["x"].tolist() for b in batches_of(shown([0, 1, 2]), trial)] == rows


def test_one_input_makes_one_batch():
    assert [b["x"].tolist() for b in batches_of(shown([5]), Trial(model="m", backend="b", batch=2))] == [
        [5, 5]
    ]


def test_a_model_without_inputs_cannot_be_run_and_has_no_glimpse():
    with pytest.raises(UnavailableError, match="E-DATA-1"):
        batches_of(SimpleNamespace(samples=lambda purpose, n: None), NULL)
    assert sample_output(shown([]), 1, len) == SampleOutput()


def test_a_glimpse_holds_the_outputs_that_are_numbers():
    found = sample_output(shown([5, 6]), 2, lambda batch: [batch["x"], ["words"], batch["x"] + 1])
    assert [output.tolist() for output in found.outputs] == [[5, 5], [6, 6]] and found.input_bytes == 16


def test_an_exam_asks_rows_by_their_numbers_in_batches_of_one_size(monkeypatch):
    sizes = []

    def answer(batch):
        sizes.append(len(batch["x"]))
        assert batch["x"].flags["C_CONTIGUOUS"]
        return [batch["x"] * 2, batch["x"] + 1]

    arrays = {"x": np.arange(5.0)}
    monkeypatch.setattr(inference.judge, "gate_samples", lambda model: SimpleNamespace(arrays=arrays))
    monkeypatch.setattr(inference.judge, "outputs", lambda answer, samples, rows: (np.zeros(5), np.ones(5)))
    found = inference.reference_set(SimpleNamespace(reference="engine"), 3, answer)
    assert found.size == 5 and found.expected[1].tolist() == [1] * 5
    assert found.answers([4, 0]) == [(8.0, 5.0), (0.0, 1.0)]
    assert found.answers([1, 2, 3])[2] == (6.0, 4.0) and sizes == [3, 3]


def test_outputs_that_cannot_be_told_apart_by_row_have_no_exam(monkeypatch):
    def outputs(answer, samples, rows):
        raise WrongOutputError("E-X-1", "no rows")

    monkeypatch.setattr(inference.judge, "gate_samples", lambda model: None)
    monkeypatch.setattr(inference.judge, "outputs", outputs)
    assert inference.reference_set(SimpleNamespace(reference="engine"), 3, len) is None


def parts(engine):
    return SimpleNamespace(folder=None, model=lambda trial: NullModel(), backend=lambda name: engine)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_queries_go_through_the_inputs_in_turn(in_flight):
    session, done = Session(), []
    trial = Trial(model="null", backend="null", in_flight=in_flight)
    with Inference().open(trial, parts(Engine(session))) as opened:
        threads = getattr(opened.work, "threads", [])
        for query in range(10):
            opened.work.issue(query, 1, lambda query, status, *_: done.append((query, status)))
        if threads:
            opened.work.close()
        given = [batch["input"][0, 0] for _, batch in session.log]
        assert sorted(given[1:]) == sorted([*given[1:9], given[1], given[2]]) and given[0] in given[1:9]
        assert sorted(done) == [(query, 0) for query in range(10)]
        assert opened.model.name == "null" and opened.failure() == "" and len(threads) in (0, 2)
        assert opened.sample_output().input_bytes == 4 and opened.reference_set() is None
        assert opened.verify(None).passed and len(opened.breakdown()) == 0
        assert opened.metrics(None, None) == {}
    assert not any(thread.is_alive() for thread in threads) and session.closed == 1


class Owner(Engine):
    """An engine that owns its loop."""

    def drive(self, artifact, trial):
        return [(artifact.digest, trial.batch)]


@pytest.mark.parametrize(("answer_rows", "batch"), [(None, 3), (8, 8)])
def test_a_program_is_driven_and_checked_in_the_batch_that_it_answers(monkeypatch, answer_rows, batch):
    asked = []
    monkeypatch.setattr(
        inference.gate,
        "check",
        lambda trial, model, answer, about, **_: asked.append((trial.batch, answer, about)),
    )
    trial = Trial(model="null", backend="trtexec", batch=3)
    made = Inference().program(trial, parts(Owner(Session())))
    assert made.drive() == [("d1", 3)] and made.artifact["digest"] == "d1" and made.model.name == "null"
    made.verify(SimpleNamespace(answer_rows=answer_rows, answer="a"), None)
    assert asked == [(batch, "a", made.artifact)]


def test_an_engine_that_is_driven_is_no_program_and_a_program_drives_what_it_can():
    assert Inference().program(NULL, parts(Engine(Session()))) is None
    with pytest.raises(UsageError, match="E-SCEN-9"):
        Inference().program(
            Trial(model="null", backend="trtexec", scenario="multi_stream"), parts(Owner(Session()))
        )


def test_what_opening_needs_is_prepared(monkeypatch):
    asked = []
    monkeypatch.setattr(inference.gate, "prepare", lambda model, parts, *given: asked.append(given))
    Inference().prepare(Trial(model="null", backend="null", batch=2, metric="top1"), parts(Engine(None)))
    assert asked == [("top1", 2)]
