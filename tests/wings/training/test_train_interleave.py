"""`edgescope train interleave`: both sides are measured alone, the plan is measured, the rest is refused."""

import json
import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import edgescope
from edgescope.cli.main import main
from edgescope.errors import UnavailableError, UsageError
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.runner.setup import Setup
from making import result

SERVED_S = 0.01
BREAKS = 0.08


class Device:
    """Answers in 10 ms at 5 W, trains in 4 ms and 1 ms a sample at 10 W; a query that meets a step waits for it."""

    def __init__(self):
        self.asked: list[Trial] = []
        self.builds = SimpleNamespace(build=lambda trials: None)

    def stored(self, trial):
        return None

    def left(self, trials):
        return 5.0 * len(trials)

    def expect(self, trials):
        pass

    def run(self, trial, limit_s=None):
        self.asked.append(trial)
        if trial.workload == "training":
            if trial.batch == 256:
                return result(trial, status=Status.OOM, metrics={})
            return result(
                trial, metrics=figures(throughput_sps=trial.batch / step_s(trial.batch), power_w=10.0)
            )
        if trial.workload == "interleaved":
            step = step_s(trial.workload_options.get("train_batch", 16))
            return result(
                trial, metrics=figures(latency_p90_s=SERVED_S + step, trained_sps=630.0, power_w=9.0)
            )
        return result(
            trial, metrics=figures(latency_p90_s=SERVED_S, latency_mean_s=SERVED_S / 2, power_w=5.0)
        )


def step_s(batch):
    return 4e-3 + batch * 1e-3


def figures(**values):
    return {name: Measured(value, "1") for name, value in values.items()}


@dataclass(frozen=True)
class Here(Setup):
    device: Device = None

    def cells(self, store):
        return self.device


def planned(*constraints, **keys):
    device = Device()
    usual = {"train": "resnet18_cifar", "rate": 20, "train_batch": (4, 16, 64), "setup": Here(device=device)}
    return edgescope.train_interleave("lenet5", constraints=constraints, **usual | keys), device


def test_the_largest_step_within_the_latency_trains_and_is_measured(tmp_path):
    found, device = planned("p90<=31ms", store=tmp_path)
    assert found.pick.trained.batch == 16 and found.kept
    assert found.pick.latency_s == pytest.approx(0.03) and found.pick.trained_sps == pytest.approx(720)
    assert [t.workload for t in device.asked] == ["inference", *["training"] * 3, "interleaved"]
    assert found.trial == device.asked[-1] and found.trial.rate == 20
    assert "train_batch" not in found.trial.workload_options  # 16 is the default
    said = str(found)
    assert "minibatches of 16" in said and "p90 at most 30 ms: 10 ms of a query and 20 ms of a step" in said
    assert "measured 30 ms" in said and "trains 720 samples/s" in said and "measured 630" in said
    assert [row["train_batch"] for row in found.records() if row["pick"]] == [16] and len(
        found.records()
    ) == 3


def test_every_run_is_told_with_its_place_and_what_follows(tmp_path):
    told = []
    planned("p90<=31ms", store=tmp_path, setup=Here(tell=told.append, device=Device()))
    assert [(step.stage, step.position, step.total) for step in told] == [
        ("serving", 1, 5),
        *(("training", n, 5) for n in (2, 3, 4)),
        ("in turns", 5, 5),
    ]
    assert [step.eta_s for step in told] == [25.0, 20.0, 15.0, 10.0, 5.0]


def test_power_bounds_the_plan_too(tmp_path):
    found, device = planned("p90<=1s", "power<=8W", store=tmp_path)
    assert found.pick is None and not found.kept and len(device.asked) == 4
    assert "no minibatch keeps p90<=1s and power<=8W" in str(found)
    kept, _ = planned("p90<=1s", "power<=9.6W", store=tmp_path)
    assert kept.pick.watts == pytest.approx(9.5) and kept.kept


def test_a_pick_that_takes_more_power_when_measured_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Device, "run", slower(Device.run, latency_p90_s=0.02, power_w=12.0))
    broke, _ = planned("p90<=1s", "power<=9.6W", store=tmp_path)
    assert not broke.kept and [each.text for each in broke.broken] == ["power<=9.6W"]


def test_a_pick_that_breaks_the_latency_when_measured_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Device, "run", slower(Device.run, latency_p90_s=BREAKS))
    broke, _ = planned("p90<=31ms", store=tmp_path)
    assert not broke.kept and "p90<=31ms was not kept" in str(broke)
    unmeasured, device = planned("p90<=31ms", store=tmp_path, verify=False)
    assert unmeasured.kept and isinstance(unmeasured.measured, Absent) and len(device.asked) == 4


def slower(run, **values):
    def changed(self, trial, limit_s=None):
        if trial.workload == "interleaved":
            return result(trial, metrics=figures(trained_sps=790.0, **values))
        return run(self, trial)

    return changed


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"status": Status.OOM, "reason": "E-MEM-1: full", "metrics": {}}, "the run in turns is oom"),
        ({"metrics": figures(latency_p90_s=0.02)}, "trained_sps was not measured"),
        ({"metrics": figures(trained_sps=700.0)}, "latency_p90_s was not measured"),
    ],
)
def test_a_run_in_turns_that_tells_not_all_is_no_success(tmp_path, monkeypatch, found, says):
    run = Device.run

    def changed(self, trial, limit_s=None):
        return result(trial, **found) if trial.workload == "interleaved" else run(self, trial)

    monkeypatch.setattr(Device, "run", changed)
    said, _ = planned("p90<=31ms", store=tmp_path)
    assert not said.kept and said.broken == () and says in str(said)


def test_a_plan_without_figures_says_which_are_not_there(tmp_path):
    nothing, _ = planned("p90<=1s", train_batch=(256,), store=tmp_path)
    assert "no run of training was measured" in str(nothing) and not nothing.kept
    values = {"throughput_sps": 800.0, "latency_p90_s": 0.01, "latency_mean_s": 0.005}

    class Unmetered(Device):
        def run(self, trial, limit_s=None):
            return result(trial, metrics=figures(**values))

    unknown, _ = planned("p90<=1s", "power<=12W", setup=Here(device=Unmetered()), store=tmp_path)
    assert re.search("power<=12W cannot .*: power ", str(unknown))


def test_the_window_is_five_seconds_unless_one_is_asked_for(tmp_path):
    for given, window in (({}, (5.0, 5.0)), ({"max_s": 3.0, "warmup": None}, (Trial.min_s, 3.0))):
        _, device = planned("p90<=1s", store=tmp_path, **given)
        assert {(t.min_s, t.max_s) for t in device.asked} == {window}
        assert {t.warmup for t in device.asked} == {0.5}


def test_an_option_that_turns_have_not_is_refused_before_anything_is_measured(tmp_path):
    device = Device()
    with pytest.raises(UsageError, match=r"E-OPTION-1.*gaurd"):
        planned("p90<=1s", workload_options={"gaurd": 1}, setup=Here(device=device), store=tmp_path)
    assert device.asked == []


def test_a_minibatch_that_fails_is_left_out(tmp_path):
    told = []
    device = Device()
    setup = Here(tell=told.append, device=device)
    found, _ = planned("p90<=1s", train_batch=(16, 256), setup=setup, store=tmp_path)
    assert found.pick.trained.batch == 16 and len(found.slices) == 1
    assert any("left out: a minibatch of 256" in str(each) for each in told)


def test_a_serving_side_that_says_no_percentile_is_refused(tmp_path):
    with pytest.raises(UnavailableError, match="E-SLICE-3: "):
        planned("p99<=1s", store=tmp_path)


@pytest.mark.parametrize(
    ("constraints", "says"),
    [
        ((), "E-SLICE-2"),
        (("power<=5W",), "E-SLICE-2"),
        (("p90<=1s", "p99<=1s"), "E-SLICE-2"),
        (("p90<=1s", "memory<=2GB"), "E-CONS-1"),
        (("p99.9<=1s",), "E-CONS-1"),
    ],
)
def test_what_does_not_bound_turns_is_refused(constraints, says, tmp_path):
    with pytest.raises(UsageError, match=says):
        planned(*constraints, store=tmp_path)


def test_threads_of_a_torch_engine_are_those_of_the_training_too(tmp_path):
    _, device = planned("p90<=1s", options={"threads": 1}, store=tmp_path)
    assert all(dict(trial.options) == {"threads": 1} for trial in device.asked)
    _, device = planned("p90<=1s", backend="onnxruntime", options={"threads": 1}, store=tmp_path)
    assert [dict(t.options) for t in device.asked if t.workload == "training"] == [{}] * 3


@pytest.mark.slow
def test_the_verb_measures_plans_and_says_so(tmp_path, trials_here, capsys):
    words = [
        "lenet5",
        "--rate",
        "5",
        "--train-batch",
        "4",
        "--constraint",
        "p50<=20s",
        "--duration",
        "1s",
    ]
    assert main(["train", "interleave", *words, "--store", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["train_batch"] == 4 and row["pick"] and row["measured_trained_sps"] > 0
