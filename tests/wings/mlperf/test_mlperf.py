"""MLPerf LoadGen itself drives, on an engine of known speed; its numbers must be ours of the same queries."""

import importlib.util
import json
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope import bench, registry
from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.models.base import Samples
from edgescope.models.synthetic import NullModel
from edgescope.records import QUERY_OK, Absent, ModelInfo, Status, Trial
from edgescope.report.document import plain
from edgescope.report.result import load
from edgescope.scenarios import Foreign
from edgescope.scenarios.stop_rule import Plan
from edgescope.stats import early_stopping_estimate
from edgescope.store import results
from edgescope.wings import mlperf
from edgescope.workloads.base import EndOfInput
from edgescope.workloads.inference import reference_set
from fake_time import MS, FakeClock, FakeWork

needs_loadgen = pytest.mark.skipif(
    importlib.util.find_spec("mlperf_loadgen") is None, reason="mlcommons-loadgen is not here"
)

RAN = (Status.OK, Status.UNSTABLE)
"""Unstable: other processes took the machine for a while."""


def run(scenario, **keys):
    base = {"model": "null", "backend": "null", "options": {"delay_us": 1500}, "warmup": 0.1}
    trial = Trial(**(base | {"scenario": scenario, "min_s": 0.6, "max_s": 0.6} | keys))
    return bench.run(trial, hz=0, devices={})


def in_window(result):
    return result.queries.rows(result.window)


@pytest.mark.process
@needs_loadgen
def test_single_stream_is_driven_by_loadgen_and_its_percentiles_are_ours():
    result = run("mlperf_single_stream")
    assert result.status in RAN and result.driver == "external", result.reason
    said = result.artifact["loadgen"]
    assert said["effective_scenario"] == "SingleStream"
    assert said["result_validity"] == "VALID"
    assert said["result_query_count"] == len(in_window(result)) > 64
    pair = said["percentiles"]["90.00"]
    assert pair["loadgen_ns"] == pytest.approx(pair["ours_ns"], rel=0.25) and pair["ours_ns"] > 1.5e6
    assert said["early_stopping_90.0_percentile_estimate_ns"] >= pair["loadgen_ns"]
    estimate = said["early_stopping"]["90.0"]
    assert estimate["loadgen_ns"] == pytest.approx(estimate["ours_ns"], rel=0.25)
    assert "Result is : VALID" in result.artifact["files"][mlperf.SUMMARY]
    shown = {key: plain(value) for key, value in load(result)}
    assert shown["loadgen"].startswith("VALID") and "drove" in shown["loadgen"]


@pytest.mark.process
@needs_loadgen
def test_multi_stream_queries_hold_in_flight_times_batch_samples():
    result = run("mlperf_multi_stream", batch=2, in_flight=2)
    assert result.status in RAN, result.reason
    said, rows = result.artifact["loadgen"], in_window(result)
    assert said["effective_samples_per_query"] == 4
    assert len(rows) == said["result_query_count"]  # each in two calls of two samples
    assert set(rows.columns["samples"]) == {4}
    pair = said["percentiles"]["90.00"]
    assert pair["loadgen_ns"] == pytest.approx(pair["ours_ns"], rel=0.25)
    length_s = (result.window.stop_ns - result.window.start_ns) / 1e9
    assert result.metrics["throughput_sps"].value == pytest.approx(4 * len(rows) / length_s)


@needs_loadgen
def test_multi_streams_percentiles_are_of_queries_until_their_last_sample_is_done(tmp_path):
    """An engine that answers the 8 samples of a query one after another: a sample's median is half the query's."""
    from edgescope.wings.mlperf import complete, run_test

    ours: list[int] = []

    def issue(query):
        start = time.monotonic_ns()
        for sample, _ in query:
            time.sleep(0.0005)
            complete([sample])
        ours.append(time.monotonic_ns() - start)

    scenario = loadgen("mlperf_multi_stream", batch=8, max_queries=60, min_s=0.1, max_s=0.1)
    run_test(issue, scenario._settings(0.004, "PerformanceOnly"), 64, tmp_path)
    scenario.reported = mlperf.values(tmp_path)
    assert scenario.reported["effective_samples_per_query"] == 8
    found = scenario._percentiles(np.sort(np.array(ours)))
    assert list(found) == ["50.00", "90.00", "99.00"]
    for p, pair in found.items():
        assert pair["loadgen_ns"] == pytest.approx(pair["ours_ns"], rel=0.1), p
    assert scenario.reported["result_50.00_percentile_latency_ns"] < 0.8 * found["50.00"]["loadgen_ns"]


@pytest.mark.process
@needs_loadgen
def test_server_arrivals_are_loadgens_and_the_bound_is_asked_for():
    result = run(
        "mlperf_server", rate=100.0, scenario_options={"target_latency_ms": 15.0}, in_flight=2, max_s=1.0
    )
    said = result.artifact["loadgen"]
    assert said["effective_target_qps"] == 100
    assert said["effective_target_latency_ns"] == 15_000_000
    assert said["result_validity"] == "INVALID"  # a second is too short for its early stopping
    assert any(w.code == "W-MLPERF-1" and "early_stopping_met" in str(w) for w in result.warnings)
    rows = in_window(result)
    assert len(rows) == said["result_query_count"]
    gaps = np.diff(np.sort(rows.columns["scheduled_ns"]))
    assert gaps.std() / gaps.mean() > 0.5  # at random
    offered = result.metrics["offered_rate_qps"].value
    assert offered == pytest.approx(said["result_scheduled_samples_per_sec"], rel=0.1)


@pytest.mark.process
@needs_loadgen
def test_offline_is_one_query_answered_in_batches():
    result = run("mlperf_offline", batch=8, in_flight=2)
    said, rows = result.artifact["loadgen"], in_window(result)
    assert said["result_query_count"] == 1
    assert rows.columns["samples"].sum() == said["effective_samples_per_query"]
    assert rows.columns["samples"][-1] <= 8
    assert isinstance(result.metrics["latency_p50_s"], Absent)
    theirs = said["result_samples_per_second"]
    assert result.metrics["throughput_sps"].value == pytest.approx(theirs, rel=0.1)


@pytest.mark.process
@needs_loadgen
def test_its_logs_stand_beside_the_result_and_its_numbers_within(tmp_path):
    result = run("mlperf_single_stream", max_s=0.2, min_s=0.2)
    folder = results.Store(tmp_path).save(result)
    assert "VALID" in (folder / "files" / mlperf.SUMMARY).read_text()
    plain = json.loads((folder / "result.json").read_text())
    assert plain["artifact"]["files"] == [mlperf.DETAIL, mlperf.SUMMARY]
    assert plain["artifact"]["loadgen"]["loadgen_version"]
    assert plain["driver"] == "external"
    assert results.read(folder).artifact["files"] == result.artifact["files"]


class Classifier:
    """Six inputs; stands for a model where accuracy mode asks for the gate's inputs."""

    def __init__(self):
        self.info = ModelInfo("six", "unknown", False, "a test", "d")
        self.inputs, self.reference = NullModel().inputs, "torch_eager"

    def samples(self, purpose, n):
        x = np.arange(6, dtype=np.float32).reshape(6, 1)
        return Samples({"input": x}, tuple(map(str, range(6))), "a test")


def twice(batch):
    """Outputs in two arrays of two types."""
    return [batch["input"] * 2, (batch["input"] > 2).astype(np.int64)]


def loadgen(scenario="mlperf_offline", **keys):
    trial = Trial(model="null", backend="null", scenario=scenario, **keys)
    return registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, Plan(trial))


@needs_loadgen
@pytest.mark.parametrize("batch", [1, 4])
def test_accuracy_mode_logs_the_answers_of_the_gate(batch):
    scenario = loadgen(batch=batch)
    assert isinstance(scenario, Foreign)
    scenario.accuracy(reference_set(Classifier(), batch, twice))
    found = scenario.notes()["loadgen"]["accuracy"]
    assert found == {"samples": 6, "in_log": 6, "identical": 6, "centred_l2": 0.0}
    assert scenario.warnings() == ()
    assert "accuracy_" + mlperf.ACCURACY in scenario.notes()["files"]


@needs_loadgen
def test_accuracy_mode_finds_an_engine_that_answers_loadgen_otherwise():
    calls = 0

    def fickle(batch):
        nonlocal calls
        calls += 1
        return [batch["input"] * (2 if calls <= 6 else 3)]

    scenario = loadgen()
    scenario.accuracy(reference_set(Classifier(), 1, fickle))
    assert scenario.notes()["loadgen"]["accuracy"]["identical"] == 1  # 0 x 3 is 0
    assert "W-MLPERF-3" in str(scenario.warnings()[0])


@needs_loadgen
def test_an_engine_that_raises_in_accuracy_mode_does_not_end_the_process():
    calls = 0

    def breaks(batch):
        nonlocal calls
        calls += 1
        if calls > 8:
            raise RuntimeError("out of luck")
        return [batch["input"]]

    with pytest.raises(RuntimeError, match="out of luck"):
        loadgen().accuracy(reference_set(Classifier(), 1, breaks))


@needs_loadgen
def test_queries_that_fail_are_rows_that_failed():
    from edgescope.clock import MonotonicClock
    from edgescope.workloads.blocking import Failures, Inline

    def call(query_id):
        if query_id % 10 == 3:
            raise ValueError("no")

    trial = Trial(
        model="null", backend="null", scenario="mlperf_single_stream", max_queries=30, max_s=1.0, warmup=0.05
    )
    scenario = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, Plan(trial))
    queries = scenario.drive(Inline(call, Failures()), MonotonicClock())
    assert 0 < np.count_nonzero(queries.columns["status"] != QUERY_OK) < len(queries)


@needs_loadgen
@pytest.mark.parametrize("scenario", ["mlperf_single_stream", "mlperf_offline"])
def test_an_input_that_ends_is_told_and_does_not_end_the_process(scenario):
    from edgescope.clock import MonotonicClock
    from edgescope.workloads.blocking import Failures, Inline

    def call(query_id):
        if query_id >= 20:
            raise EndOfInput

    trial = Trial(
        model="null", backend="null", scenario=scenario, max_queries=30, min_s=0.1, max_s=0.3, warmup=0.0
    )
    drive = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, Plan(trial)).drive
    with pytest.raises(UsageError, match=r"E-MLPERF-2: .* inference .*LoadGen"):
        drive(Inline(call, Failures()), MonotonicClock())


def test_a_damaged_accuracy_log_is_told_not_guessed(tmp_path):
    like = [np.zeros((2, 3), np.float32)]
    for text in (
        '[{"seq_id": 0, "qsl_idx": 0, "data": "00"}]',
        "[{",
        '[{"data": "zz", "qsl_idx": 0}]',
        "[1]",
    ):
        (tmp_path / mlperf.ACCURACY).write_text(text)
        with pytest.raises(DeviceError, match="E-MLPERF-1"):
            mlperf.answers(tmp_path, like)
    (tmp_path / mlperf.ACCURACY).write_text("")
    assert mlperf.answers(tmp_path, like) == {}
    (tmp_path / mlperf.DETAIL).write_text(':::MLLOG {"key": "result_x", "value": 3}\n:::MLLOG {"key": "res')
    assert mlperf.values(tmp_path) == {"result_x": 3}


@pytest.mark.slow
def test_without_the_package_it_says_how_to_install_it():
    code = """
import sys
sys.modules["mlperf_loadgen"] = None
from edgescope import registry
from edgescope.records import Trial
from edgescope.scenarios.stop_rule import Plan
trial = Trial(model="null", scenario="mlperf_server", rate=5.0)
registry.load(registry.SCENARIOS, "mlperf_server", "scenario")(trial, Plan(trial)).drive(None, None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install mlcommons-loadgen" in done.stderr
    assert UnavailableError.__name__ in done.stderr


def told(trial=None, **fields):
    """A LoadGen that has driven already, with what it reported."""
    from edgescope.wings.mlperf import SingleStream

    made = SingleStream(trial or Trial(model="null", backend="null", scenario="mlperf_single_stream"), None)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@needs_loadgen
@pytest.mark.parametrize(
    ("percent", "theirs", "ours", "apart"),
    [
        ("50.00", 10_000_000, 10_499_000, False),  # within 5 %
        ("50.00", 10_000_000, 10_501_000, True),
        ("90.00", 10_000_000, 9_499_000, True),
        ("50.00", 1_000_000, 1_099_000, False),  # or within 0.1 ms, the callback into Python and back
        ("50.00", 1_000_000, 1_101_000, True),
        ("99.00", 10_000_000, 30_000_000, False),  # the tail is a handful of queries
    ],
)
def test_percentiles_that_differ_are_warned_of(percent, theirs, ours, apart):
    made = told(checked={"percentiles": {percent: {"loadgen_ns": theirs, "ours_ns": ours}}})
    assert [w.code for w in made.warnings()] == (["W-MLPERF-2"] if apart else [])
    if apart:
        assert f"{theirs / 1e6:.3f} ms and {ours / 1e6:.3f} ms" in str(made.warnings()[0])


@needs_loadgen
def test_an_invalid_run_says_what_was_not_met():
    assert told(reported={"result_validity": "VALID", "early_stopping_met": False}).warnings() == ()
    unmet = {"result_validity": "INVALID", "early_stopping_met": False, "min_duration_met": True}
    (text,) = map(str, told(reported=unmet).warnings())
    assert "(early_stopping_met)" in text and "lower --rate" not in text
    rated = Trial(model="null", backend="null", scenario="mlperf_server", rate=5.0)
    assert "or a lower --rate" in str(told(rated, reported=unmet).warnings()[0])


@needs_loadgen
@pytest.mark.parametrize(
    ("found", "warned"), [((6, 6, 0.0), False), ((5, 6, 0.0), True), ((6, 6, 0.5), True)]
)
def test_answers_that_are_missing_or_others_are_warned_of(found, warned):
    in_log, samples, apart = found
    made = told(checked={"accuracy": {"in_log": in_log, "samples": samples, "centred_l2": apart}})
    assert [w.code for w in made.warnings()] == (["W-MLPERF-3"] if warned else [])


class Settings:
    """Stands for LoadGen's own, which does not tell what it was not asked."""

    def __init__(self, name, mode):
        self.name, self.mode = name, mode


@pytest.fixture
def bare(monkeypatch):
    """Make a scenario that asks no LoadGen: its settings are noted."""
    monkeypatch.setattr(mlperf, "settings", Settings)

    def made(kind, **keys):
        asked = Trial(**{"model": "null", "backend": "null", "scenario": "mlperf_offline"} | keys)
        return getattr(mlperf, kind)(asked, Plan(asked))

    return made


@pytest.mark.parametrize(
    ("service_s", "expected_ns", "qps"),
    [
        (0.004, 2_000_000, 8 / 0.004),
        (1e-5, 10_000, 1e5),
        (8e-5, 40_000, 1e5),
        (2e-5, 10_000, 1e5),
        (0.0, 10_000, 1e5),
    ],
)
def test_loadgen_is_told_what_to_expect(bare, service_s, expected_ns, qps):
    s = bare("Offline", batch=4, in_flight=2, min_s=0.5, max_s=2.5, seed=-9)._settings(
        service_s, "PerformanceOnly"
    )
    assert (s.name, s.mode, s.min_duration_ms) == ("Offline", "PerformanceOnly", 2500)
    assert (s.min_query_count, s.max_query_count) == (1, 0)
    assert s.single_stream_expected_latency_ns == s.multi_stream_expected_latency_ns == expected_ns
    assert s.multi_stream_samples_per_query == 8 and s.offline_expected_qps == pytest.approx(qps)
    assert {s.schedule_rng_seed, s.sample_index_rng_seed, s.qsl_rng_seed} == {9}
    s = bare("MultiStream", max_queries=30)._settings(0.1, "AccuracyOnly")
    assert (s.min_query_count, s.max_query_count) == (30, 30)


def test_a_server_is_told_its_rate_and_its_bound(bare):
    options = {"target_latency_ms": 12.5}
    s = bare("Server", scenario="mlperf_server", rate=7.0, scenario_options=options)._settings(0.01, "x")
    assert (s.server_target_qps, s.server_target_latency_ns, s.min_query_count) == (7.0, 12_500_000, 1)


@pytest.mark.parametrize(("kind", "of"), [("SingleStream", "latency"), ("MultiStream", "per_query_latency")])
def test_percentiles_are_those_of_loadgens_rule(bare, kind, of):
    """sorted[floor(n p)], the last where that is n."""
    made = bare(kind)
    made.reported = {f"result_{p}_percentile_{of}_ns": 5 for p in ("50.00", "90.00", "99.00")}
    made.reported["result_50.00_percentile_other_ns"] = 6
    for n, ranks in ((10, (5, 9, 9)), (100, (50, 90, 99)), (1, (0, 0, 0)), (3, (1, 2, 2))):
        found = made._percentiles(np.arange(n) * 10)
        assert [pair["ours_ns"] for pair in found.values()] == [10 * rank for rank in ranks]
        assert {pair["loadgen_ns"] for pair in found.values()} == {5}
    del made.reported[f"result_90.00_percentile_{of}_ns"]
    assert list(made._percentiles(np.arange(9))) == ["50.00", "99.00"]


def test_estimates_stand_beside_ours_where_both_are_known(bare):
    made = bare("SingleStream")
    ours = np.arange(100) * 1000
    made.reported = {mlperf.ESTIMATED.format(p): 7 for p in ("90.0", "99.0")}
    estimate = int(early_stopping_estimate(ours, 0.9))
    assert made._estimates(ours) == {
        "90.0": {"loadgen_ns": 7, "ours_ns": estimate}
    }  # 100 are too few for p99
    assert list(made._estimates(np.arange(1000))) == ["90.0", "99.0"]
    made.reported = {}
    assert made._estimates(ours) == {}


@needs_loadgen
@pytest.mark.parametrize(("scenario", "slots", "samples"), [("SingleStream", 2, 3), ("MultiStream", 1, 6)])
def test_what_loadgen_drove_is_told_by_our_rows(monkeypatch, scenario, slots, samples):
    """Two queries of fake time: the first begins the window, and the last one to be done ends it."""
    monkeypatch.setattr(mlperf, "complete", lambda ids: done.append(list(ids)))
    clock, done = FakeClock(), []

    def run_test(issue, settings, library, folder):
        assert library == 1024 and settings == ("PerformanceOnly", 0.01)
        for at_ms, query in ((100, [(1, 11), (2, 12), (3, 13)]), (150, [(4, 14), (5, 15)])):
            clock.t = max(clock.t, at_ms * MS)
            issue(query)

    monkeypatch.setattr(mlperf, "run_test", run_test)
    asked = Trial(
        model="null", backend="null", scenario="mlperf_multi_stream", batch=3, in_flight=2, warmup=0.02
    )
    made = getattr(mlperf, scenario)(asked, Plan(asked))
    monkeypatch.setattr(made, "_settings", lambda service_s, mode: (mode, service_s / slots_of(scenario)))
    queries = made.drive(FakeWork(clock, lambda query: 10 * MS), clock)
    rows = queries.rows(made.plan.window).columns
    assert done == [[1, 2, 3], [4, 5]] and rows["samples"].tolist() == [3, 2]
    assert rows["scheduled_ns"].tolist() == [100 * MS, 150 * MS]
    took = 10 * MS * slots_of(scenario)
    assert (made.plan.window.start_ns, made.plan.window.stop_ns) == (100 * MS, 150 * MS + took)
    assert set(queries.columns["samples"][: made.plan.window.first]) == {samples}


def slots_of(scenario):
    """Parts of a query, one after another in fake time."""
    return 2 if scenario == "MultiStream" else 1


@needs_loadgen
@pytest.mark.parametrize("queued", [False, True])
def test_batches_of_a_query_are_rows_and_the_last_one_is_smaller(monkeypatch, queued):
    from edgescope.scenarios.query_log import Log

    completed, began = [], []
    monkeypatch.setattr(mlperf, "complete", completed.append)
    clock = FakeClock()
    log = Log(1, clock)
    work = FakeWork(clock, lambda query: MS)
    sut = mlperf.System(2, log, work, clock, on_first_query=began.append)
    if queued:
        sut.open()
    clock.t = 5 * MS
    sut.issue([(n, n + 50) for n in range(5)])
    sut.close()
    assert began == [5 * MS] and completed == [[0, 1], [2, 3], [4]] and not sut.ended
    clock.t = 9 * MS
    sut.thread = None
    sut.issue([(9, 59)])
    assert began == [5 * MS] and sut.sizes == [2, 2, 1, 1] and sut.arrived == [5 * MS] * 3 + [9 * MS]
    assert sut.counted(log.queries(2), 0).columns["samples"].tolist() == [2, 2, 1, 1]
    sut.sizes = [1, 1]
    assert sut.counted(log.queries(2), 2).columns["samples"].tolist() == [
        2,
        2,
        1,
        1,
    ]  # after two of a warm-up


@needs_loadgen
@pytest.mark.parametrize("data", [(), (b"ab", b"cde")])
def test_samples_are_reported_with_their_bytes(monkeypatch, data):
    told = []
    lg = SimpleNamespace(QuerySamplesComplete=told.extend, QuerySampleResponse=lambda *what: what)
    monkeypatch.setattr(mlperf, "_loadgen", lambda: lg)
    mlperf.complete([7, 8], data)
    assert [sample for sample, *_ in told] == [7, 8]
    assert [size for *_, size in told] == ([2, 3] if data else [0, 0])
    assert all((where > 0) == bool(data) for _, where, _ in told)
