"""The command line: exit codes, one JSON object of the published schema, and errors that say what to do."""

import json
import platform
import re
import subprocess
import sys
import time

import jsonschema
import pytest

from edgescope import registry
from edgescope.cli.main import ENGINES, VERBS, installed, main, parser
from edgescope.commandline.trial_flags import option, seconds, shape
from edgescope.errors import ExitCode, Message
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.records.codec import result_schema
from edgescope.store.results import Store
from making import result, show_card

SCHEMA = result_schema()
MEASURED = {(0, "ok"), (1, "unstable")}  # exit code, status; a busy machine makes a trial unstable
QUICK = ["--duration", "200ms", "--warmup", "50ms"]


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_bench_json_is_one_object_of_the_schema(capsys, tmp_path, trials_here):
    flags = ["--option", "delay_us=500", *QUICK, "--duration", "500ms"]
    code = main(["bench", "null", "--backend", "null", *flags, "--json"])
    out = capsys.readouterr().out
    data = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert (code, data["status"]) in MEASURED, data["reason"]
    assert data["metrics"]["latency_p50_s"]["value"] > 0.0005
    kept = Store(tmp_path / "store")
    assert [r.id for r in kept.results()] == [data["id"]]
    assert len(kept.full(next(iter(kept.results()))).queries) > 20


@pytest.mark.slow
def test_a_failed_trial_also_prints_an_object_of_the_schema(capsys, trials_here):
    assert main(["bench", "squeezenet1_1", "--precision", "fp16", *QUICK, "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["status"] == "unsupported"
    assert data["metrics"] == {}


@pytest.mark.slow
def test_fixed_rate_and_offline_run(capsys, trials_here):
    load = ["--scenario", "fixed_rate", "--rate", "100", "--in-flight", "2", "--duration", "1s"]
    code = main(["bench", "null", "--backend", "null", *QUICK, *load, "--json"])
    fixed = json.loads(capsys.readouterr().out)
    assert (code, fixed["status"]) in MEASURED, fixed["reason"]
    assert fixed["metrics"]["throughput_sps"]["value"] == pytest.approx(100, rel=0.25)
    code = main(["bench", "null", "--backend", "null", "--scenario", "offline", *QUICK, "--json"])
    offline = json.loads(capsys.readouterr().out)
    assert (code, offline["status"]) in MEASURED, offline["reason"]
    assert "offline" in offline["metrics"]["latency_p50_s"]["absent"]
    assert offline["metrics"]["throughput_sps"]["value"] > 200


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["null", "--backend", "nul"], 2, "no backend is called 'nul'"),
        (["resnet5", "--backend", "null"], 2, "resnet50"),
        (["null", "--backend", "null", "--batch", "0"], 2, "batch must be"),
        (["null", "--backend", "null", "--precision", "fp33"], 2, "precision must be one of"),
        (["null", "--backend", "null", "--scenario", "fixed_rate"], 2, "--rate"),
        (["null", "--backend", "null", "--option", "delai=3"], 2, "has no option delai"),
        (["missing.onnx", "--backend", "onnxruntime"], 2, "E-MODEL-4: the file missing.onnx"),
        (["null", "--backend", "null", "--io", "device"], 3, "--io host"),
    ],
)
def test_bad_requests_say_what_to_do(arguments, code, says, capsys, trials_here):
    assert main(["bench", *arguments, *QUICK]) == code
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.onnx", b""), ("photo.onnx", b"\x89PNG\r\n\x1a\n" + b"x" * 500), ("text.onnx", b"hello" * 100)],
)
def test_a_file_that_is_not_onnx_is_named(name, content, tmp_path, capsys, trials_here):
    (tmp_path / name).write_bytes(content)
    assert main(["bench", name, "--backend", "onnxruntime", *QUICK]) == 1
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert name in said
    assert "Traceback" not in said


@pytest.mark.process
def test_a_store_that_cannot_be_written_stops_before_measuring(tmp_path, capsys):
    (tmp_path / "store").write_text("a file where the folder should be")
    assert main(["bench", "null", "--backend", "null", *QUICK]) == 1
    assert "E-STORE-1" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_in_bench_exits_130_without_a_trace(tmp_path):
    command = [sys.executable, "-m", "edgescope.cli.main", "bench", "null", "--backend", "null"]
    said = tmp_path / "stderr"
    with said.open("wb") as stderr:
        run = subprocess.Popen([*command, "--option", "delay_us=1000", "--duration", "60s"], stderr=stderr)
    deadline = time.monotonic() + 60
    while "measuring" not in said.read_text() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    assert run.poll() is None, said.read_text()
    run.send_signal(2)
    assert run.wait(timeout=30) == 130
    assert "measuring" in said.read_text()
    assert "Traceback" not in said.read_text()


@pytest.mark.slow
def test_sweep_by_flags_then_again_then_listed(capsys, trials_here):
    command = ["sweep", "--model", "null", "--backend", "null", "--batch", "1,2", *QUICK]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("to do") == 2
    assert main(command) in (0, 1)  # 1: a busy machine made a cell unstable
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("finished") == 2
    assert main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


@pytest.mark.slow
def test_compare_prints_the_settings_first_and_a_judgement(tmp_path, capsys):
    store = Store(tmp_path / "store")
    trials = {p: Trial(model="null", backend="null", precision=p) for p in ("fp32", "int8")}
    for replicate in range(3):
        for trial in trials.values():
            store.save(result(Trial.from_json(trial.to_json() | {"replicate": replicate})))
    assert main(["compare", trials["fp32"].cell, trials["int8"].cell]) == 0
    out = capsys.readouterr().out
    assert "differs: trial.precision fp32 -> int8" in out and "latency_p50_s" in out
    assert "is SAME against" in out
    assert main(["compare", trials["fp32"].cell, trials["int8"].cell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judgement"] == "SAME"
    assert main(["compare", "zzzz", trials["int8"].cell]) == 2


@pytest.mark.slow
def test_reports_of_every_kind(tmp_path, capsys):
    assert main(["report"]) == 2
    Store(tmp_path / "store").save(result())
    for suffix in ("html", "md", "csv"):
        assert main(["report", "-o", f"r.{suffix}"]) == 0
        assert (tmp_path / f"r.{suffix}").stat().st_size > 100
    assert main(["report", "-o", "r.docx"]) == 2
    capsys.readouterr()
    assert main(["report", "-o", "r.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": "r.csv", "results": [result().id]}


@pytest.mark.slow
@pytest.mark.wings
def test_doctor_models_and_backends(capsys):
    for verb in ("doctor", "models", "backends"):
        assert main([verb]) == 0
        assert capsys.readouterr().out
        assert main([verb, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def test_models_keep_macs_and_flops_apart(capsys):
    main(["models", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["resnet50"]["flops"] == 2 * rows["resnet50"]["macs"]
    assert rows["resnet50"]["params"] == 25_557_032
    assert not rows["resnet50"]["trained"]
    assert rows["efficientnet_lite0"]["trained"]
    assert len(rows) >= 9


@pytest.mark.wings
def test_every_verb_has_a_help_text_and_a_docstring():
    for name, verb in VERBS.items():
        module = registry.verb(name)
        assert verb.summary, name
        assert module.__doc__, name
    parser().parse_args(["doctor"])


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("5s", 5), ("500ms", 0.5), ("2min", 120), ("1.5m", 90)]
)
def test_times(text, value):
    assert seconds(text) == value


def test_shapes_and_options():
    assert shape("input=1x3x224x224") == ("input", (1, 3, 224, 224))
    assert [option(t) for t in ("a=1", "b=0.5", "c=true", "d=x=y")] == [
        ("a", 1),
        ("b", 0.5),
        ("c", True),
        ("d", "x=y"),
    ]


@pytest.mark.slow
def test_replicates_end_with_what_they_say_together(capsys, monkeypatch):
    from edgescope.runner import run as sweep

    done = iter([result(Trial(model="null", backend="null", replicate=n)) for n in range(3)])
    monkeypatch.setattr(sweep.ExperimentRunner, "run", lambda self, trial: next(done))
    assert main(["bench", "null", "--backend", "null", "--replicates", "3"]) == 0
    said = capsys.readouterr()
    assert [line for line in said.err.splitlines() if "measuring [2/3] null" in line]
    out = said.out.splitlines()
    assert out[1] == "3 of 3 processes measured" and out[2].startswith("p50 ") and len(out) <= 12
    assert sum(line.startswith("#") for line in out) == 3 and "throughput" in " ".join(out)


def test_what_keeps_power_and_energy_from_being_measured_is_said_once(capsys):
    reason = Absent("no power sensor: none at all")
    trial = Trial(model="null", backend="null")
    show_card(result(trial, metrics={"power_w": reason, "energy_per_sample_j": reason}))
    said = capsys.readouterr().out
    assert said.count("no power sensor") == 1 and "power          and energy: no power sensor" in said


@pytest.mark.slow
def test_two_results_of_one_cell_are_compared_with_each_other(tmp_path, capsys):
    store = Store(tmp_path / "store")
    trial = Trial(model="null", backend="null")
    for tail, ms in (("aaaaaa", 6.51), ("bbbbbb", 10.5), ("cccccc", 5.96)):
        median = {"latency_p50_s": Measured(ms * 1e-3, "s", n=50)}
        store.save(result(trial, id_=f"{trial.id}-20260101T000000-{tail}", metrics=median))
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "aaaaaa",
        "bbbbbb",
        "cccccc",
    ]
    assert main(["compare", "aaaaaa", "bbbbbb"]) == ExitCode.UNDECIDED
    out = capsys.readouterr().out
    assert "6.51 ms" in out and "10.5 ms" in out and "5.96" not in out
    assert main(["compare", trial.id[:12], "bbbbbb"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "E-CMP-2" in told and "aaaaaa: null" in told and "cccccc: null" in told


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "stored"), [("E-OPT-1", False), ("E-MODEL-5", False), ("E-PREC-1", True), ("E-EXPORT-1", True)]
)
def test_a_mistake_is_a_message_and_no_result(tmp_path, capsys, monkeypatch, code, stored):
    from edgescope.runner.isolated import Isolated

    def prepare(self, trial, limits):
        return result(
            trial, status=Status.UNSUPPORTED, reason=Message(code, "it cannot be"), verification=None
        )

    monkeypatch.setattr(Isolated, "prepare", prepare)
    ended = main(["bench", "null", "--backend", "null"])
    said = capsys.readouterr()
    assert f"{code}: it cannot be" in said.out + said.err
    assert (ended, bool(list(Store(tmp_path / "store").results()))) == ((3, True) if stored else (2, False))
    assert stored or not said.out


@pytest.mark.process
def test_the_package_is_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "edgescope", "--version"], capture_output=True, text=True, check=True
    )
    first, python, *engines = done.stdout.splitlines()
    assert re.fullmatch(r"edgescope \d+\.\d+\.\d+", first) and python.split() == [
        "Python",
        platform.python_version(),
    ]
    assert {line.split()[0] for line in engines} >= set(installed())


@pytest.mark.wings
def test_the_engines_whose_versions_are_told_are_those_of_the_backends():
    named = {package for name in registry.BACKENDS for package in registry.about(name).PACKAGES}
    assert set(ENGINES) == named
