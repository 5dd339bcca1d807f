"""The command that is printed for a Trial asks that Trial again, whatever its fields are."""

from __future__ import annotations

import dataclasses
import shlex

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from data_sets import picture
from edgescope import registry
from edgescope.cli.main import parser
from edgescope.command import WRITTEN, bench_command, flag, option_text, option_value
from edgescope.commandline import trial_flags
from edgescope.data import opening
from edgescope.models import zoo
from edgescope.records import Trial

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=8)
NAME = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
SCALARS = (
    st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)


def positive(high: float) -> st.SearchStrategy[float]:
    return st.floats(1e-6, high, allow_nan=False)


@st.composite
def loads(draw):
    """Return a scenario and what belongs to it."""
    name = draw(
        st.sampled_from(["single_stream", "offline", "fixed_rate", "burst", "idle_gap", "mlperf_server"])
    )
    rate = draw(positive(1e5)) if name in ("fixed_rate", "burst", "mlperf_server") else None
    given = {
        "burst": {"burst_size": 8},
        "idle_gap": {"gaps_ms": "0,10,33"},
        "mlperf_server": {"target_latency_ms": 15.0},
    }
    alone = name in ("idle_gap", "mlperf_server")
    return {
        "scenario": name,
        "rate": rate,
        "scenario_options": given.get(name, {}),
        "batch": 1 if alone else draw(st.integers(1, 64)),
        "in_flight": 1 if alone else draw(st.integers(1, 8)),
        "processes": 1 if alone else draw(st.integers(1, 8)),
        "sharing": "time_slicing"
        if alone
        else draw(st.sampled_from(["time_slicing", "pinned", "mps", "mps=50"])),
        "colocated": "" if alone else draw(st.sampled_from(["", "resnet50", "resnet50+mobilenet_v2"])),
    }


@st.composite
def trials(draw):
    """Return any Trial that the command line accepts."""
    backend = draw(st.sampled_from(sorted(registry.BACKENDS)))
    load = draw(loads())
    least, most = sorted((draw(positive(900)), draw(positive(900)) + 1e-3))
    tail = draw(st.lists(st.integers(1, 9), max_size=3))
    return Trial(
        model=draw(st.sampled_from(["resnet50", "squeezenet1_1", "null"])),
        backend=backend,
        device=draw(st.sampled_from(registry.BACKENDS[backend].devices)),
        precision=draw(st.sampled_from(["fp32", "fp16", "int8"])),
        shapes=draw(st.sampled_from([{}, {"input": (load["batch"], *tail)}])),
        workload=draw(st.sampled_from(sorted(registry.WORKLOADS))),
        mode=draw(st.sampled_from(["as_is", "15W", "MAXN+jetson_clocks", "gpu_power=200"])),
        options=draw(st.dictionaries(NAME.filter(lambda n: n != "calibration"), SCALARS, max_size=3)),
        io=draw(st.sampled_from(["host", "pinned", "device"])),
        warmup=draw(st.none() | positive(100)),
        idle_s=draw(st.just(0.0) | positive(100)),
        min_s=draw(st.sampled_from([least, most, min(1.0, most)])),
        max_s=most,
        rel_width=draw(st.floats(1e-9, 0.999)),
        max_queries=draw(st.none() | st.integers(1, 10**9)),
        metric=draw(st.sampled_from(["", "top5", "agreement"])),
        min_accuracy=draw(st.none() | st.floats(0.5, 1.0)),
        min_agreement=draw(st.none() | st.floats(0.999, 1.0)),
        deadline_s=draw(st.none() | positive(10)) if load.get("rate") else None,
        seed=draw(st.integers(-(10**12), 10**12)),
        replicate=draw(st.integers(0, 3)),
        **load,
    )


def read(command: str) -> tuple[Trial, ...]:
    return trial_flags.trials_of(parser().parse_args(shlex.split(command)[1:]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(trials())
@pytest.mark.wings
def test_the_printed_command_asks_the_same_trial(trial):
    asked = read(bench_command(trial))
    assert asked[-1].id == trial.id, (bench_command(trial), asked[-1], trial)
    assert [t.replicate for t in asked] == list(range(trial.replicate + 1))


#: A value other than the default for every field of a Trial: one that is forgotten in the command is seen here.
OTHER = {
    "model": "resnet50",
    "backend": "onnxruntime",
    "device": "cuda",
    "precision": "fp16",
    "batch": 4,
    "workload_options": {"optimizer": "adam", "learning_rate": 0.5},
    "shapes": {"input": (1, 3, 8, 8)},
    "data": "data_sets_here",
    "preprocess": "half,resize=stretch",
    "workload": "null",
    "scenario": "offline",
    "rate": 12.5,
    "scenario_options": {"burst_size": 8},
    "in_flight": 2,
    "processes": 4,
    "sharing": "mps=50",
    "colocated": "squeezenet1_1",
    "mode": "15W",
    "options": {"graph": True, "threads": 2, "level": "1", "scale": 1.0},
    "io": "pinned",
    "warmup": 0.5,
    "idle_s": 10.0,
    "min_s": 0.25,
    "max_s": 2.5,
    "rel_width": 0.02,
    "max_queries": 7,
    "metric": "top5",
    "min_accuracy": 0.98,
    "min_agreement": 0.9999,
    "deadline_s": 0.033,
    "tracer": "nsys",
    "seed": 3,
    "replicate": 2,
}
#: Fields that the checks allow only together with others.
WITH = {
    "workload_options": {"workload": "training"},
    "rate": {"scenario": "fixed_rate"},
    "deadline_s": {"scenario": "fixed_rate", "rate": 30.0},
    "scenario_options": {"scenario": "burst", "rate": 80.0},
}


#: bench measures a trial alone; turns are taken by the verbs that compare.
IN_TURNS = {"turn_s"}
FIELDS = {f.name for f in dataclasses.fields(Trial)} - IN_TURNS


def test_a_trial_that_took_turns_is_asked_alone():
    trial = Trial(model="resnet50", turn_s=0.1)
    assert read(bench_command(trial))[-1] == dataclasses.replace(trial, turn_s=None)


@pytest.mark.parametrize("name", sorted(FIELDS))
@pytest.mark.wings
def test_every_field_of_a_trial_is_in_the_command(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "data_sets_here" / "a.png", 9)
    trial = Trial(**{"model": "squeezenet1_1", name: OTHER[name], **WITH.get(name, {})})
    trial = dataclasses.replace(trial, data=opening.pin(trial.data))
    assert trial.id != Trial(**{"model": "squeezenet1_1", **WITH.get(name, {})}).id or name == "model"
    assert read(bench_command(trial))[-1].id == trial.id


def test_every_field_of_a_trial_has_a_flag_that_bench_knows():
    names = FIELDS
    assert set(WRITTEN) <= names | IN_TURNS
    known = {
        s for a in parser()._subparsers._group_actions[0].choices["bench"]._actions for s in a.option_strings
    }
    assert {flag(n) for n in names - {"model"}} <= known


def test_a_file_is_named_without_its_digest_and_pinned_again(tmp_path, monkeypatch):
    times = tmp_path / "day.csv"
    times.write_text("0\n0.01\n0.02\n")
    trial = read(f"edgescope bench null --backend null --scenario trace --scenario-option trace={times}")[0]
    assert trial.scenario_options["trace"].startswith(f"{times}#")
    assert f"--scenario-option trace={times} " in bench_command(trial) + " "
    assert read(bench_command(trial))[0].id == trial.id
    weights = tmp_path / "w.pth"
    weights.write_bytes(b"weights")
    model = zoo.pin(f"resnet50@{weights}")
    assert model != f"resnet50@{weights}"
    assert read(bench_command(Trial(model=model, colocated=model)))[0] == Trial(model=model, colocated=model)


@given(SCALARS)
def test_an_options_value_keeps_its_type(value):
    read_back = option_value(option_text(value))
    assert (type(read_back), read_back) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("3", 3),
        ("3.0", 3.0),
        ("1e-3", 1e-3),
        ("nhwc", "nhwc"),
        ('"1"', "1"),
        ('"half', '"half'),
    ],
)
def test_an_options_text(text, value):
    assert (type(option_value(text)), option_value(text)) == (type(value), value)


@pytest.mark.parametrize(
    ("keys", "has"),
    [
        ({"mode": "gpu_power=200"}, "--allow-power-limit"),  # refused without
        ({"min_s": 600.0, "max_s": 600.0}, "--soak 600s"),  # --duration would meet the trial's time limit
        ({"min_s": 5.0, "max_s": 5.0}, "--duration 5s"),
        ({"seed": -1}, "--seed=-1"),
    ],
)
def test_the_command_works_as_it_stands(keys, has):
    assert has in bench_command(Trial(model="resnet50", **keys))
