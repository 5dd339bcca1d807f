"""Which trials reused workers serve, and what becomes of them and of the daemon after a failure."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.errors import Message, SettingError
from edgescope.isolate.fresh import Limits
from edgescope.process import Launch
from edgescope.records import Status, Trial
from edgescope.runner import isolated
from edgescope.runner.isolated import ReusingRunner
from making import result

LIMITS = Limits(timeout_s=7.0)
ONE = Trial(model="null", backend="null")
TWO, THREE = replace(ONE, processes=2), replace(ONE, processes=3)
MPS = Trial(model="null", device="cuda", sharing="mps=40", processes=2)


class Child:
    """A persistent process that answers with these statuses, or results, and notes what happened."""

    def __init__(self):
        self.did, self.answers = [], []

    def close(self):
        self.did.append("closed")

    def stop(self):
        self.did.append("stopped")

    def answer(self, verb, trial, limits, *how):
        self.did.append((verb, trial, limits, *how))
        found = self.answers.pop(0)
        return result(trial, status=found) if isinstance(found, Status) else found


class Daemon:
    """An MPS daemon that is dead where it says so; `quits` is what ending it raises."""

    made, says, quits = 0, "", None

    def __init__(self):
        type(self).made += 1
        self.did = []

    def begin(self):
        self.did.append("begin")

    def launch(self):
        return Launch(env={"PIPE": "here"})

    def dead(self):
        return self.says


@pytest.fixture
def made(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path))
    monkeypatch.setattr(isolated, "PersistentChild", Child)
    kind = type("One", (Daemon,), {})
    monkeypatch.setattr(isolated, "Mps", kind)
    monkeypatch.setattr(isolated, "present", dict)
    ended = []

    class Held:
        def __init__(self, daemon):
            self.daemon = daemon

        def __enter__(self):
            return self.daemon

        def __exit__(self, *exc):
            ended.append(self.daemon)
            if self.daemon.quits:
                raise self.daemon.quits

    entered = isolated.entered  # modes are entered as ever
    monkeypatch.setattr(isolated, "entered", lambda one: Held(one) if isinstance(one, kind) else entered(one))
    fresh = SimpleNamespace(
        ran=[], run=lambda trial, limits: fresh.ran.append((trial, limits)) or result(trial)
    )
    runner = ReusingRunner(fresh)
    runner.daemon, runner.ended = kind, ended
    return runner


def test_a_trial_is_answered_by_workers_that_say_so(made):
    assert made.one_by_one is True
    made._leader.answers = [Status.OK, Status.WRONG_OUTPUT]
    assert [made.run(t, LIMITS).process for t in (ONE, TWO)] == ["reused"] * 2
    assert made._leader.did == [("run", ONE, LIMITS, {}, 0), ("run", TWO, LIMITS, {}, 0)]
    assert made._preparer.did == ["closed", "closed"] and not made.fresh.ran
    assert made._started == {"time_slicing": 2}


@pytest.mark.parametrize(
    "keys", [{"replicate": 1}, {"tracer": "perf"}, {"mode": "cpus=0"}], ids=lambda keys: next(iter(keys))
)
def test_what_reused_workers_cannot_run_runs_in_fresh_ones_after_they_have_ended(made, monkeypatch, keys):
    trial = replace(ONE, **keys)
    if "mode" in keys:
        launched = SimpleNamespace(
            launch=lambda: Launch(("taskset",)), enter=lambda j: None, leave=lambda j: None
        )
        monkeypatch.setattr(isolated.catalog, "find", lambda name, devices: launched)
    made._started["time_slicing"] = 4
    assert made.run(trial, LIMITS).process == "fresh"
    assert made.fresh.ran == [(trial, LIMITS)] and made._leader.did == ["closed"] and made._started == {}


def test_one_process_that_its_worker_refuses_runs_fresh_and_several_do_not(made):
    refused = {"status": Status.UNSUPPORTED, "reason": "E-WORKER-1: no."}
    made._leader.answers = [
        result(ONE, **refused),
        result(TWO, **refused),
        result(ONE, **{**refused, "reason": "E-X-1: no."}),
    ]
    assert [made.run(t, LIMITS).process for t in (ONE, TWO, ONE)] == ["fresh", "reused", "reused"]
    assert made.fresh.ran == [(ONE, LIMITS)]


def test_workers_start_as_many_as_the_largest_coming_trial_needs(made):
    made.expect([TWO, THREE, ONE, replace(THREE, processes=9, replicate=1), MPS])
    made._leader.answers = [Status.OK] * 2
    made.run(ONE, LIMITS)
    made.run(replace(ONE, processes=5), LIMITS)
    assert [did[4] for did in made._leader.did] == [3, 3] and made._started == {"time_slicing": 5}


@pytest.mark.parametrize(
    ("coming", "trial", "again"), [([THREE], TWO, True), ([TWO], TWO, False), ([THREE], THREE, False)]
)
def test_memory_that_ran_out_beside_idle_workers_is_asked_for_once_more(made, coming, trial, again):
    made.expect(coming)
    made._leader.answers = [Status.OOM, Status.OK]
    found = made.run(trial, LIMITS)
    runs = [did for did in made._leader.did if did != "closed"]
    assert found.status is (Status.OK if again else Status.OOM)
    assert [did[4] for did in runs] == ([3, 0] if again else [coming[0].processes])
    assert made._leader.did.count("closed") == again and made._started == {"time_slicing": trial.processes}


def test_one_daemon_serves_all_trials_and_each_has_its_share(made):
    made._leader.answers = [Status.OK] * 2
    made.run(MPS, LIMITS)
    found = made.run(replace(MPS, sharing="mps"), LIMITS)
    assert made.daemon.made == 1 and made._mps.did == ["begin"] * 2 and found.process == "reused"
    assert [did[3] for did in made._leader.did] == [
        {"PIPE": "here", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40"},
        {"PIPE": "here"},
    ]
    assert not made.ended
    made.close()
    assert len(made.ended) == 1 and made._mps is None


@pytest.mark.parametrize("status", list(Status))
def test_a_daemon_is_started_anew_after_a_cell_that_may_have_harmed_it(made, status):
    harmless = {Status.OK, Status.UNSTABLE, Status.UNSUPPORTED, Status.WRONG_OUTPUT}
    made._leader.answers = [status] * 2
    made.run(MPS, LIMITS)
    assert (len(made.ended), made._leader.did.count("stopped")) == ((0, 0) if status in harmless else (1, 1))
    if status is not Status.OOM:
        made.run(MPS, LIMITS)
        assert made.daemon.made == (1 if status in harmless else 2)


def test_a_daemon_that_does_not_end_is_a_warning_and_a_dead_one_a_failure(made):
    made.daemon.quits, made.daemon.says = SettingError("E-MODE-5", "not stopped"), "gone"
    made._leader.answers = [Status.OK]
    found = made.run(MPS, LIMITS)
    assert found.status is Status.FAILED and found.reason.code == "E-MPS-2"
    assert [w.code for w in found.warnings] == ["W-TEST-1", "E-MODE-5"]


def test_a_build_is_answered_by_a_process_of_its_own(made):
    failed = result(ONE, status=Status.UNSUPPORTED, reason=Message("E-X-1", "no"))
    made._preparer.answers = [Status.OK, failed]
    assert made.prepare(ONE, LIMITS) is None and made.prepare(ONE, LIMITS) is failed
    assert made._preparer.did == [("prepare", ONE, LIMITS)] * 2


def test_leaving_ends_every_process(made):
    with made as same:
        assert same is made
    assert made._preparer.did == made._leader.did == ["closed"]
