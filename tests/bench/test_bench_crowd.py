"""What the leader of several workers works out from what they say: memory, slowest loads, equal answers."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.bench import workers
from edgescope.bench.watch import Watch
from edgescope.errors import RanElsewhereError, WrongOutputError
from edgescope.isolate.worker import LeaderRun
from edgescope.records import QUERY_DTYPES, Absent, Measured, ModelInfo, Trial, Worker
from making import result


def trial(**keys):
    return Trial(**({"model": "null", "backend": "null", "processes": 2} | keys))


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"min_s": 1.0, "max_s": 9.0}, 2.0),  # workers take a moment to settle among each other
        ({"min_s": 5.0, "max_s": 9.0}, 5.0),
        ({"min_s": 1.0, "max_s": 1.5}, 1.5),
        ({"min_s": 1.0, "max_s": 9.0, "scenario": "server", "rate": 5.0}, 9.0),
    ],
)
def test_how_long_workers_measure(keys, seconds):
    assert workers.seconds(trial(**keys)) == seconds


def test_the_memory_rule_is_processes_times_model_and_two_batches():
    answer = {"input_bytes": 600, "output_bytes": 40}
    info = ModelInfo("m", "classify", True, "t", "d", 1000, 1)
    assert workers._rule(trial(), info, {"bytes": 9000}, answer) == Measured(
        2 * (9000 + 1280.0), "bytes", n=2
    )
    for precision, size in (("fp32", 4), ("tf32", 4), ("fp16", 2), ("bf16", 2), ("int8", 1), ("as_is", 1)):
        found = workers._rule(trial(precision=precision, processes=3), info, {}, answer)
        assert found == Measured(3 * (1000 * size + 1280.0), "bytes", n=3)
    unknown = ModelInfo("m", "classify", True, "t", "d")
    assert isinstance(workers._rule(trial(), unknown, {"bytes": None}, answer), Absent)


def measured(value):
    return {"value": value, "unit": "s", "lo": None, "hi": None, "n": 1}


def test_of_what_opening_cost_the_slowest_worker_counts():
    opened = [
        {"facts": {"load_s": measured(1.0), "build_s": {"absent": "cached"}}},
        {"facts": {"load_s": measured(3.0), "build_s": {"absent": "cached, too"}}},
        {"facts": {"load_s": {"absent": "lost"}, "build_s": {"absent": "?"}}},
    ]
    found = workers.merged([workers.fields(each["facts"]) for each in opened])
    assert found["load_s"] == Measured(3.0, "s", n=2) and found["build_s"] == Absent("cached")


def test_the_boards_memory_is_not_told_where_kept_workers_hold_some_of_it():
    found = {"gpu_board_memory_bytes": Measured(5.0, "bytes")}
    assert workers._board_memory(found, 0) is found
    assert workers._board_memory(found, 2)["gpu_board_memory_bytes"].reason.startswith("2 kept workers")


def test_the_memory_of_the_crew_is_the_sum_of_its_workers():
    def worker(n):
        sizes = {"peak_rss_bytes": 100.0, "pss_bytes": 60.0, "gpu_memory_bytes": 30.0}
        return Worker(
            number=n, model="null", pid=n, **{k: Measured(v + n, "bytes") for k, v in sizes.items()}
        )

    found = workers._memory([worker(0), worker(1)])
    assert {name: field.value for name, field in found.items()} == {
        "peak_rss_bytes": 201.0,
        "processes_rss_bytes": 201.0,
        "processes_pss_bytes": 121.0,
        "gpu_processes_memory_bytes": 61.0,
    }


def answered(folder, name, *arrays):
    np.savez(folder / f"{name}.npz", *[np.asarray(a, dtype=np.float32) for a in arrays])
    return {"outputs": folder / f"{name}.npz"}


@pytest.mark.parametrize(
    ("precision", "apart", "alike"),
    [
        *(("fp32", 0.9e-3, True), ("fp32", 1.1e-3, False), ("tf32", 1.9e-2, True), ("tf32", 2.1e-2, False)),
        *(("fp16", 1.9e-2, True), ("fp16", 2.1e-2, False), ("bf16", 4.9e-2, True), ("bf16", 5.1e-2, False)),
        *(("int8", 4.9e-2, True), ("int8", 5.1e-2, False)),
        *(("as_is", 4.9e-2, True), ("as_is", 5.1e-2, False)),
    ],
)
def test_workers_must_answer_alike_within_their_precision(tmp_path, precision, apart, alike):
    first = answered(tmp_path, "a", [3.0, 4.0], [1.0])
    second = answered(tmp_path, "b", [3.0, 4.0 + 5 * apart], [1.0])
    asked = trial(precision=precision)
    if alike:
        workers._alike(asked, [first, second])
    else:
        with pytest.raises(WrongOutputError, match="E-WORKER-4: worker 1 ") as error:
            workers._alike(asked, [first, second])
        assert f"relative l2 {apart:.2g}" in error.value.evidence


@pytest.mark.parametrize(
    "other", [([3.0, 4.0, 0.0],), ([[3.0, 4.0]],), ([3.0, 4.0], [1.0]), ([np.nan, 4.0],), ()]
)
def test_other_shapes_other_outputs_or_no_numbers_are_not_alike(tmp_path, other):
    first = answered(tmp_path, "a", [3.0, 4.0])
    with pytest.raises(WrongOutputError):
        workers._alike(trial(), [first, answered(tmp_path, "b", *other)])


def test_the_worker_that_differs_is_named_and_zeros_are_compared_by_size(tmp_path):
    same = [answered(tmp_path, name, [0.0, 0.0]) for name in "ab"]
    workers._alike(trial(), same)
    with pytest.raises(WrongOutputError, match="E-WORKER-4: worker 2 "):
        workers._alike(trial(), [*same, answered(tmp_path, "c", [0.0, 0.01])])
    workers._alike(trial(), same[:1])
    workers._alike(trial(), [answered(tmp_path, name) for name in "de"])  # nothing is answered by either


def test_the_gap_between_two_accounts_is_the_largest_of_the_workers():
    def rows(n):
        done = (np.arange(n, dtype=np.int64) + 1) * 10
        columns = {"done_ns": done, "samples": np.ones(n, np.int32)}
        return SimpleNamespace(columns=columns, samples=1)

    first = SimpleNamespace(before_ns=0, after_ns=1, counts=[0, 0])
    last = SimpleNamespace(before_ns=1000, after_ns=1001, counts=[20, 17])
    driven = SimpleNamespace(looks=(first, last))
    assert workers._gap(driven, [rows(20), rows(20)]) == Measured(3.0, "queries", n=2)


def test_a_worker_is_told_with_what_it_counted_between_the_looks():
    columns = {"samples": np.full(5, 2, np.int32), "issued_ns": np.arange(5) * 10 + 100}
    columns["done_ns"] = columns["issued_ns"] + 5
    rows = workers.Rows(columns, 1, 5)
    process = SimpleNamespace(pid=77, placement=SimpleNamespace(cpus=(3, 4)))
    opened = [{"facts": {"load_s": measured(0.5)}}, {"facts": {}}, {"facts": {}}]
    run = SimpleNamespace(workers=[process] * 3, opened=opened)
    looks = (SimpleNamespace(counts=[4, 10, 0]), SimpleNamespace(counts=[12, 40, 6]))
    seen = {77: workers.Footprint(*(Measured(v, "bytes") for v in (1.0, 2.0, 3.0)))}
    driven = SimpleNamespace(looks=looks, seen=seen)
    asked = trial(colocated="other")
    one, two, third = (workers._worker(asked, run, driven, n, rows) for n in range(3))
    assert [w.counted for w in (one, two, third)] == [4, 15, 3]
    assert [w.model for w in (one, two, third)] == ["null", "null", "other"]
    assert (one.start_ns, one.stop_ns, one.pid, one.cpus, one.number) == (110, 145, 77, (3, 4), 0)
    assert one.load_s == Measured(0.5, "s", n=1) and two.load_s == Absent("nothing is loaded")
    sizes = (one.peak_rss_bytes.value, one.pss_bytes.value, one.gpu_memory_bytes.value)
    assert sizes == (1.0, 2.0, 3.0)


def test_the_rows_of_a_worker_say_whether_it_went_on_to_the_stop(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, query_id=np.arange(3))
    for stopped_by, ran_on in (("the agreed stop", True), ("all queries done", False)):
        found = workers._rows({"rows": path, "first": 1, "stop": 3, "stopped_by": stopped_by})
        assert (found.first, found.stop, found.ran_on) == (1, 3, ran_on)
        assert list(found.columns["query_id"]) == [0, 1, 2]


class Told:
    """Two workers and a colocated one that have run: what they say when they are asked."""

    def __init__(self, folder, **opened):
        self.folder, self.asked = folder, []
        self.workers = [SimpleNamespace(pid=70 + n, placement=SimpleNamespace(cpus=(n,))) for n in range(3)]
        usual = {"facts": {"load_s": measured(2.0)}, "artifact": {"bytes": 900}}
        usual["effective"] = {"device": "cpu", "precision": "fp32", "threads": 1, "evidence": ""}
        usual["model"] = {"name": "a", "task": "t", "trained": True, "source": "s", "digest": "d"}
        second = usual | {"artifact": {"bytes": 5}, "model": usual["model"] | {"name": "b"}} | opened
        self.opened = [usual, second, usual | {"effective": usual["effective"] | {"precision": "int8"}}]

    def ask(self, do, event, of, **what):
        self.asked.append((do, [worker.pid for worker in of], what))
        return [getattr(self, f"_{do}")(worker) for worker in of]

    def _metrics(self, worker):
        return {"metrics": {"own_s": measured(float(worker.pid))}}

    def _answer(self, worker):
        return answered(self.folder, str(worker.pid), [1.0]) | {"input_bytes": 6, "output_bytes": worker.pid}

    def _verify(self, worker):
        return {"verification": None}

    def rows(self, number):
        """Each worker answers a query of 2 samples every 10 ms, the second until 0.08 s only."""
        n = 8 if number == 1 else 10
        rows = {name: np.zeros(n, dtype) for name, dtype in QUERY_DTYPES.items()}
        rows["query_id"], rows["samples"][:], rows["scheduled_ns"][:] = np.arange(n), 2, -1
        rows["issued_ns"] = np.arange(n) * 10_000_000 + number
        rows["done_ns"] = rows["issued_ns"] + 10_000_000
        np.savez(self.folder / f"rows{number}.npz", **rows)
        ended = {"stopped_by": "all queries done" if number == 1 else "the agreed stop", "failure": ""}
        return {"rows": self.folder / f"rows{number}.npz", "first": 0, "stop": n} | ended

    def driven(self, settled=(True, True, True), failures=("", "", "")):
        done = [self.rows(n) | {"failure": failures[n]} for n in range(3)]
        looks = (
            SimpleNamespace(before_ns=0, after_ns=0, counts=[0, 0, 0]),
            SimpleNamespace(before_ns=10**9, after_ns=10**9, counts=[20, 16, 20]),
        )
        sizes = [Measured(v, "bytes") for v in (10.0, 20.0, 30.0)]
        return LeaderRun(
            span=SimpleNamespace(start_ns=0, stop_ns=10**9),
            looks=looks,
            ready=[{"settled": each} for each in settled],
            done=done,
            seen={70 + n: workers.Footprint(*sizes) for n in range(3)},
        )


class Pools:
    """No workers are kept but `kept` idle ones."""

    def __init__(self, kept=0):
        self.kept, self.free = kept, 7

    def idle(self, trial):
        return self.kept


def crowd(tmp_path, kept=0, opened=None, **driven):
    run, watch = Told(tmp_path, **(opened or {})), Watch({}, 0)
    watch.board_memory = lambda *asked: {"gpu_board_memory_bytes": Measured(float(asked[-1]), "bytes")}
    begun = result(trial(colocated="other", max_s=1.0))
    return workers._run(begun, watch, run, run.driven(**driven), Pools(kept)), run


def test_what_a_crowd_says_is_one_run(tmp_path):
    found, run = crowd(tmp_path)
    assert (found.model.name, found.artifact, found.effective.precision) == ("a", {"bytes": 900}, "fp32")
    assert (found.window.start_ns, found.window.stop_ns) == (1, 80_000_001)  # the first to end ends it
    ends = {"start_ns": 1, "stop_ns": 80_000_001}
    assert run.asked[:3] == [("metrics", [70 + n], ends) for n in range(3)]
    assert [(do, pids) for do, pids, _ in run.asked[3:]] == [("answer", [70, 71]), ("verify", [70])]
    assert set(run.asked[-1][2]["machine"]) == {"stable", "state"}
    metrics = found.metrics
    assert metrics["worker2_own_s"] == Measured(72.0, "s", n=1) and "worker1_own_s" not in metrics
    assert metrics["load_s"] == Measured(2.0, "s", n=2)
    assert metrics["memory_rule_bytes"] == Measured(2.0 * (900 + 2 * 76), "bytes", n=2)
    assert metrics["counter_gap_queries"] == Measured(0.0, "queries", n=3)
    assert metrics["processes_pss_bytes"] == Measured(40.0, "bytes", n=2)
    assert metrics["gpu_board_memory_bytes"] == Measured(7.0, "bytes")
    assert [w.counted for w in found.workers] == [10, 8, 10] and found.verification is None
    assert all(isinstance(w.counted, int) for w in found.workers)
    assert [w.model for w in found.workers] == ["null", "null", "other"]
    assert found.warmed and found.failure == ""


def test_the_first_failure_is_told_and_a_warm_up_is_that_of_all(tmp_path):
    found, _ = crowd(tmp_path, failures=("", "second", "third"), settled=(True, False, True))
    assert found.failure == "second" and not found.warmed


def test_memory_that_idle_workers_share_is_nobodys(tmp_path):
    found, _ = crowd(tmp_path, kept=2)
    assert all(isinstance(w.pss_bytes, Absent) and w.peak_rss_bytes.value == 10.0 for w in found.workers)
    assert isinstance(found.metrics["processes_pss_bytes"], Absent)
    assert isinstance(found.metrics["gpu_board_memory_bytes"], Absent)


@pytest.mark.parametrize(("cpus", "shared"), [(2, True), (3, False)])
def test_pinned_workers_that_share_cpus_are_warned_of(tmp_path, monkeypatch, cpus, shared):
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid: set(range(cpus)) if pid == 0 else set())
    run = Told(tmp_path)
    begun = result(trial(colocated="other", sharing="pinned", max_s=1.0))
    found = workers._run(begun, Watch({}, 0), run, run.driven(), Pools())
    assert ("W-WORKER-2" in [w.code for w in found.warnings]) is shared


@pytest.mark.parametrize("fault", [0, 1, 2, None])
@pytest.mark.parametrize(
    ("scenario", "patience_s", "lasts_s"), [("single_stream", 0.0, 2.0), ("fixed_rate", 1.0, 4.0)]
)
def test_workers_are_checked_and_driven(tmp_path, monkeypatch, fault, scenario, patience_s, lasts_s):
    """What the trial's own workers ran on must be what was asked; the colocated one is asked for nothing."""
    run, asked = Told(tmp_path), []
    for number, opened in enumerate(run.opened):
        run.opened[number] = opened | {"effective": opened["effective"] | {"precision": "fp32"}}
    if fault is not None:
        run.opened[fault] |= {"effective": run.opened[fault]["effective"] | {"precision": "bf16"}}
    run.drive = lambda seconds, look, **keys: asked.append((seconds, keys)) or run.driven()

    class Of(Pools):
        limit_s, prestart, launch = 9.0, "p", SimpleNamespace(env={})

        def of(self, trial):
            @contextmanager
            def opened(*given, prestart):
                asked.append((given, prestart))
                yield run

            return SimpleNamespace(run=opened)

        def placements(self, trial):
            return "places"

    @contextmanager
    def watching(self):
        yield

    monkeypatch.setattr(Watch, "watching", watching)
    rate = {"rate": 5.0} if scenario == "fixed_rate" else {}
    of, watch = trial(colocated="other", scenario=scenario, max_s=4.0, **rate), Watch({}, 0)
    if fault in (0, 1):
        with pytest.raises(RanElsewhereError, match="E-RAN-2"):
            workers.Workers(Of()).measure(result(of), watch)
        return
    assert workers.Workers(Of()).measure(result(of), watch).model.name == "a"
    ((trials, places, limit_s), prestart), (seconds, keys) = asked
    assert (len(trials), places, limit_s, prestart) == (3, "places", 9.0, "p")
    assert seconds == lasts_s and keys == {"patience_s": patience_s, "edge": watch.mark}


def test_what_is_exactly_as_far_apart_as_allowed_is_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "ALIKE", workers.ALIKE | {"fp32": 0.5})
    first, second = answered(tmp_path, "a", [2.0]), answered(tmp_path, "b", [3.0])
    workers._alike(trial(), [first, second])
    with pytest.raises(WrongOutputError):
        workers._alike(trial(), [first, answered(tmp_path, "c", [3.125])])
