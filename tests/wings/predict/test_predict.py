"""`edgescope predict`: from a store, from a table of another device, and by measuring; what it prints and refuses."""

import json
from dataclasses import replace

import pytest

import edgescope
from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from making import MACHINE, result

MODES = [
    Trial(model="null", backend="null", batch=b, processes=p, warmup=0.0)
    for b in (1, 2, 4, 8, 16)
    for p in (1, 2, 4)
]


def speed(trial, slower=1.0):
    return 1 / max(0.004, 0.02 * slower / (trial.batch * trial.processes))


def figures(trial, slower=1.0, meter=True):
    watts = Measured(4 + 0.02 * speed(trial), "W") if meter else Absent("no sensor")
    return {"throughput_sps": Measured(speed(trial, slower), "samples/s"), "power_w": watts}


def stored(root, trials, **how):
    store = Store(root)
    for trial in trials:
        store.save(result(trial, metrics=figures(trial, **how)))
    return store


@pytest.mark.slow
def test_a_store_answers_for_every_combination_of_what_it_holds(tmp_path):
    some = [t for i, t in enumerate(MODES) if i % 2 == 0]
    (answer,) = edgescope.predict("null", store=stored(tmp_path, some))
    found = answer.prediction
    assert len(found.grid) == 15 and len(found.profile.seconds) == 8
    by_name = {r.name: r for r in found.rows}
    errors = [abs(by_name[t.label]["throughput_sps"].value / speed(t) - 1) for t in MODES]
    assert sum(errors) / len(errors) < 0.15
    assert isinstance(answer.confirmed, Absent) and "--run" in answer.confirmed.reason
    assert answer.pick is not None and "null: null" in str(edgescope.predict("null", store=tmp_path))


@pytest.mark.slow
def test_constraints_and_objectives_are_those_of_recommend(tmp_path):
    store = stored(tmp_path, MODES)
    low = {"objective": "energy", "constraints": ["epoch<=10s"], "epoch_samples": 1000}
    (cheap,), (fast,) = (
        edgescope.predict("null", store=store, **how) for how in (low, {"constraints": ["power<=7W"]})
    )
    assert cheap.pick is not None and cheap.pick["epoch_s"].hi <= 10
    assert fast.pick is not None and fast.pick["power_w"].hi <= 7


@pytest.mark.process
@pytest.mark.parametrize(
    "how, code",
    [
        ({"objective": "latency"}, "E-PRED-6"),
        ({"constraints": ["p99<=1s"]}, "E-PRED-6"),
        ({"constraints": ["epoch<=1s"]}, "E-PRED-9"),
        ({"prior_model": "lenet5"}, "E-PRED-11"),
        ({"table": "x.csv"}, "E-PRED-8"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, how, code):
    with pytest.raises(UsageError, match=code):
        edgescope.predict("null", store=stored(tmp_path, MODES[:4]), **how)


@pytest.mark.process
def test_an_empty_store_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"E-PRED-5.*--run"):
        edgescope.predict("null", store=tmp_path)


@pytest.mark.slow
def test_the_results_of_another_model_are_a_start(tmp_path):
    others = [replace(t, model="lenet5") for t in MODES]
    store = stored(tmp_path / "other", others, slower=0.8)
    here = stored(tmp_path / "here", MODES[::4])
    (answer,) = edgescope.predict("null", store=here, prior_model="lenet5", other_store=store)
    assert "transfer" in answer.prediction.time.errors


TABLE = """cpu_cores,gpu_hz,batch,seconds,power_w
2,3e8,16,0.40,9.0
4,3e8,16,0.39,9.5
8,3e8,16,0.38,10.0
2,6e8,16,0.22,14.0
8,6e8,16,0.20,15.5
2,1.2e9,16,0.16,21.0
8,1.2e9,16,0.11,26.0
4,6e8,16,,
4,1.2e9,16,,
"""


@pytest.mark.slow
def test_a_table_of_any_device_is_predicted_from(tmp_path, capsys):
    path = tmp_path / "board.csv"
    path.write_text(TABLE)
    words = ["predict", "--table", str(path), "--constraint", "power<=20W", "--epoch-samples", "1600"]
    assert main([*words, "--json"]) == 0
    (page,) = json.loads(capsys.readouterr().out)["answers"]
    assert len(page["modes"]) == 9 and sum(m["profiled"] for m in page["modes"]) == 7
    missing = next(m for m in page["modes"] if m["knobs"] == {"cpu_cores": 4, "gpu_hz": 6e8, "batch": 16})
    assert missing["latency_mean_s"]["value"] == pytest.approx(0.21, rel=0.1)
    assert missing["power_w"]["lo"] < missing["power_w"]["value"] < missing["power_w"]["hi"]
    assert missing["epoch_s"]["value"] == pytest.approx(100 * missing["latency_mean_s"]["value"])
    assert "cannot be entered here" in page["measured"]["absent"]
    assert main([*words, "-v"]) == 0
    shown = capsys.readouterr().out
    assert "9 modes, 7 of them profiled" in shown and "left-out mode" in shown and "not confirmed" in shown
    page_file = tmp_path / "answer.html"
    assert main([*words, "--output", str(page_file)]) == 0 and "cpu_cores=4" in page_file.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch,seconds\n",
        "batch,seconds\n4,often\n",
        "{",
        "batch,seconds\n4,0\n",
        "batch,throughput_sps\n4,0\n",
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "board.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match="E-PRED"):
        edgescope.predict(table=path)


def test_a_table_may_be_json_and_hold_throughput(tmp_path):
    path = tmp_path / "board.json"
    rows = [
        {"batch": b, "precision": p, "throughput_sps": 10.0 * b} for b in (1, 2, 4) for p in ("fp32", "fp16")
    ]
    path.write_text(json.dumps([*rows, {"batch": 8, "precision": "fp32"}]))
    (answer,) = edgescope.predict(table=path)
    assert len(answer.prediction.grid) == 7 and isinstance(answer.prediction.power, Absent)
    assert answer.prediction.rows[0]["power_w"].reason.startswith("unsupported: ")


class Runner:
    """A runner that answers by formula."""

    def __init__(self):
        self.ran = []

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        self.ran.append(trial)
        if trial.batch == 16:
            return result(trial, id_=f"{trial.id}-{len(self.ran):06d}", status=Status.OOM, metrics={})
        return result(trial, id_=f"{trial.id}-{len(self.ran):06d}", metrics=figures(trial))


@pytest.fixture
def runner(monkeypatch):
    made = Runner()
    monkeypatch.setattr(
        Setup,
        "cells",
        lambda self, store: ExperimentRunner(
            store, self.limits, made, MACHINE, map(Status, self.retry), say=self.tell
        ),
    )
    for where in (
        "edgescope.devices.manifest.here",
        "edgescope.bench.here",
        "edgescope.wings.predict.verb.here",
    ):
        monkeypatch.setattr(where, lambda: MACHINE)
    return made


@pytest.mark.slow
def test_it_profiles_by_itself_confirms_and_goes_on_from_the_store(tmp_path, runner):
    keys = {"backend": ["null"], "batch": [1, 2, 4, 8, 16], "processes": [1, 2, 4], "mode": ["as_is"]}
    (answer,) = edgescope.predict("null", run=True, profiles=6, confirm_runs=2, store=tmp_path, **keys)
    known = [t for t in runner.ran if t.batch < 16]
    assert len({t.cell for t in known}) >= 6
    assert not isinstance(answer.confirmed, Absent) and answer.confirmed.figures["throughput_sps"].n == 2
    assert speed(Trial(**{"model": "null", "batch": 8})) <= answer.confirmed.figures["throughput_sps"].value
    count = len(runner.ran)
    again = edgescope.predict("null", run=True, profiles=6, confirm_runs=2, store=tmp_path, **keys)[0]
    assert not runner.ran[count:] and again.pick.name == answer.pick.name
    text = str(edgescope.predict("null", store=tmp_path))
    assert "throughput_sps" in text and edgescope.predict("null", store=tmp_path).records()[0]["mode"]


@pytest.mark.slow
def test_the_command_measures_in_real_processes(tmp_path, capsys):
    words = ["predict", "null", "--run", "--backend", "null", "--batch", "1,4", "--mode", "as_is cpus=0"]
    words += [
        "--profiles",
        "3",
        "--confirm-runs",
        "1",
        "--duration",
        "50ms",
        "--warmup",
        "0s",
        "--store",
        str(tmp_path),
    ]
    assert main([*words, "--json"]) in (0, 1)
    (page,) = json.loads(capsys.readouterr().out)["answers"]
    assert len(page["modes"]) == 4
    assert {m["knobs"].get("cpu_cores") is not None for m in page["modes"]} <= {True, False}
