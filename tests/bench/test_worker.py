"""A worker's side of a run in this process: what it says to which order."""

import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from edgescope.bench import worker
from edgescope.errors import Message
from edgescope.isolate.worker import Counter
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.records import Measured, Trial

TRIAL = Trial(model="null", backend="null", warmup=0, batch=2, seed=5, options={"delay_us": 500})


class Script:
    """A leader that gives these orders and keeps what it is told; a start is named when it is asked for."""

    def __init__(self, *orders, window_s=0.1):
        self.orders, self.sent, self.window_s = list(orders), [], window_s

    def send(self, event, **what):
        self.sent.append((event, what))

    def receive(self):
        if not self.orders:
            raise EOFError("the leader has gone")
        order = self.orders.pop(0)
        if order.get("do") == "start":
            begin = time.monotonic_ns() + 10_000_000
            order = order | {"start_ns": begin, "stop_ns": begin + round(self.window_s * 1e9)}
        return order

    def __iter__(self):
        while self.orders:
            yield self.receive()

    def events(self, name):
        return [what for event, what in self.sent if event == name]


def order(folder, trial=TRIAL, **keys):
    base = {
        "do": "open",
        "trial": trial.to_json(),
        "number": 1,
        "workers": 2,
        "folder": str(folder),
        "again": True,
    }
    return base | keys


DRIVE = ({"do": "drive"}, {"do": "start"})
MACHINE = {"stable": {}, "state": {}}


def served(tmp_path, *orders, **keys):
    pipe = Script(*orders, **keys)
    with Counter(tmp_path / "counter", 2) as counter:
        worker.serve(pipe)
        return pipe, counter.look().counts


def test_a_whole_run_is_told_step_by_step(tmp_path):
    span = {"start_ns": 0, "stop_ns": 2**62}
    asked = (
        {"do": "metrics", **span},
        {"do": "answer"},
        {"do": "verify", "machine": MACHINE},
        {"do": "close"},
    )
    pipe, counts = served(tmp_path, order(tmp_path), *DRIVE, *asked)
    names = [name for name, _ in pipe.sent]
    assert names == ["here", "opened", "ready", "driven", "metrics", "answer", "verified", "closed"]
    (opened,), (driven,), (ready,) = (pipe.events(name) for name in ("opened", "driven", "ready"))
    assert opened["effective"]["precision"] == "fp32" and opened["model"]["name"] == "null"
    assert "load_s" in opened["facts"] and ready == {"settled": True}
    with np.load(driven["rows"]) as columns:
        rows = dict(columns)
    assert driven["first"] == 0 and driven["stop"] == len(rows["query_id"]) > 10
    assert driven["stopped_by"] == "the agreed stop" and driven["failure"] == ""
    assert set(rows["samples"]) == {2} and counts == (0, 2 * len(rows["query_id"]))
    (answer,) = pipe.events("answer")
    with np.load(answer["outputs"]) as outputs:
        assert answer["output_bytes"] == sum(outputs[name].nbytes for name in outputs.files)
    assert answer["input_bytes"] == 2 * zoo.get("null").samples(Purpose.BENCH, 1).arrays["input"].nbytes


def test_the_workload_is_asked_for_its_metrics_of_the_shared_window_alone(tmp_path, monkeypatch):
    asked = []
    opened = worker.open_work

    @contextmanager
    def open_work(trial):
        with opened(trial) as made:

            def told(rows, window):
                asked.append((rows, window))
                return {"own": Measured(3.0, "1")}

            yield replace(made, metrics=told)

    monkeypatch.setattr(worker, "open_work", open_work)

    class Half(Script):
        def receive(self):
            order = super().receive()
            if order["do"] == "metrics":
                with np.load(self.events("driven")[0]["rows"]) as columns:
                    self.done = columns["done_ns"].copy()
                order |= {"start_ns": int(self.done[3]), "stop_ns": int(self.done[7])}
            return order

    pipe = Half(order(tmp_path), *DRIVE, {"do": "metrics"}, {"do": "close"})
    with Counter(tmp_path / "counter", 2):
        worker.serve(pipe)
    (told,), ((rows, window),) = pipe.events("metrics"), asked
    assert told["metrics"]["own"]["value"] == 3.0
    assert rows.columns["done_ns"].tolist() == pipe.done[3:8].tolist()
    assert (window.start_ns, window.stop_ns) == (pipe.done[3], pipe.done[7])


def test_a_second_trial_follows_the_first_and_the_end_of_the_leader_ends_it(tmp_path):
    close = {"do": "close"}
    pipe, _ = served(tmp_path, order(tmp_path), *DRIVE, close, order(tmp_path, again=False), *DRIVE, close)
    assert len(pipe.events("driven")) == 2 == len(pipe.events("closed"))
    pipe, _ = served(tmp_path, order(tmp_path), *DRIVE)
    assert [name for name, _ in pipe.sent][-1] == "driven"


@pytest.mark.parametrize(
    "orders", [[{"do": "abandon"}], [{"do": "drive"}, {"do": "abandon"}], [*DRIVE, {"do": "abandon"}]]
)
def test_a_trial_that_is_given_up_is_closed_without_a_word_more(tmp_path, orders):
    pipe, _ = served(tmp_path, order(tmp_path), *orders)
    assert pipe.sent[-1] == ("closed", {}) and not pipe.events("failed")


def test_what_fails_is_told_with_its_status_and_closed(tmp_path, capfd):
    bad = Trial(model="no_such_model", backend="null")
    pipe, _ = served(tmp_path, order(tmp_path, bad), {"do": "verify"})
    assert [name for name, _ in pipe.sent] == ["here", "failed", "closed"]
    (failed,) = pipe.events("failed")
    assert failed["status"] == "failed" and "no_such_model" in failed["reason"]["what"]


def test_workers_are_cameras_with_phases_of_their_own_and_one_alone_has_none(tmp_path):
    def phase(**keys):
        return worker.WorkerRun(Script(), order(tmp_path, **keys)).plan.phase

    first, again = phase(), phase()
    other = phase(trial=Trial(model="null", backend="null", seed=6))
    assert first == again != other and 0 < first < 1 and 0 < other < 1
    assert phase(workers=1) == 0.0
    assert phase(trial=Trial(model="null", backend="null", seed=-5)) == first


@pytest.mark.parametrize(
    ("scenario", "drivable"), [("idle_gap", False), ("single_stream", True), ("mlperf_offline", False)]
)
def test_what_owns_its_loop_cannot_agree_on_a_start(tmp_path, monkeypatch, scenario, drivable):
    class Loadgen:
        def accuracy(self, reference_set):
            pass

        notes = warnings = accuracy

    if scenario.startswith("mlperf"):
        monkeypatch.setattr(worker, "scenario_of", lambda trial, plan: Loadgen())
    if not drivable:
        monkeypatch.delattr(worker, "open_work")  # it is refused before anything is opened
    pipe, _ = served(tmp_path, order(tmp_path, replace(TRIAL, scenario=scenario)), *DRIVE, {"do": "close"})
    if drivable:
        assert len(pipe.events("driven")) == 1
    else:
        (failed,) = pipe.events("failed")
        assert failed["status"] == "unsupported"
        assert failed["reason"]["code"] == "E-WORKER-1"
        assert failed["reason"]["what"].startswith(f"{scenario} owns its loop")


def test_a_program_of_its_own_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "program_of", lambda trial: object())
    pipe, _ = served(tmp_path, order(tmp_path, Trial(model="null", backend="trtexec")))
    reason = Message(**pipe.events("failed")[0]["reason"])
    assert reason.code == "E-WORKER-1" and reason.what.startswith("trtexec ")


def test_loading_ahead_says_what_it_took_and_swallows_what_is_wrong(tmp_path):
    pipe, _ = served(tmp_path, {"do": "load", "trial": TRIAL.to_json()})
    assert pipe.events("loaded")[0]["peak_bytes"] > 1e6
    broken = Trial(model="no_such_model", backend="null")
    pipe, _ = served(tmp_path, {"do": "load", "trial": broken.to_json()}, {"do": "other"})
    assert [name for name, _ in pipe.sent] == ["here", "loaded"]


@pytest.mark.parametrize(("program", "opens"), [(None, ["opened", "closed"]), ("trtexec", [])])
def test_loading_ahead_opens_what_edgescope_drives_alone(monkeypatch, program, opens):
    did = []

    @contextmanager
    def open_work(trial):
        did.append("opened")
        yield
        did.append("closed")

    monkeypatch.setattr(worker, "program_of", lambda trial: program)
    monkeypatch.setattr(worker, "open_work", open_work)
    monkeypatch.setattr(worker, "give_back", lambda: did.append("gave back"))
    worker.load(TRIAL)
    assert did == [*opens, "gave back"]
