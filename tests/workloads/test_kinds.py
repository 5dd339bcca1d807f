"""One row a kind of work: each goes all the way from a trial to a page, and nothing else knows its name."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgescope
from edgescope import bench, registry
from edgescope.analysis.run import summary
from edgescope.cli.main import main
from edgescope.isolate import fresh
from edgescope.records import UNIT, Measured, Status, Trial
from edgescope.store.results import Store, read, write

SHORT = {"warmup": 0.1, "min_s": 0.3, "max_s": 0.3}
#: workload, its trial, the parts that its breakdown names, a metric of its own
ROWS = {
    "inference": (Trial(model="squeezenet1_1", backend="onnxruntime", **SHORT), (), "load_s"),
    "training": (
        Trial(model="lenet5", workload="training", batch=8, workload_options={"epoch_samples": 200}, **SHORT),
        ("fetch", "h2d", "forward", "backward", "optimizer"),
        "loss_last",
    ),
    "interleaved": (
        Trial(
            model="lenet5",
            workload="interleaved",
            scenario="fixed_rate",
            rate=5.0,
            warmup=0.1,
            min_s=1.0,
            max_s=1.0,
        ),
        (),
        "trained_sps",
    ),
    "video": (
        Trial(model="squeezenet1_1", backend="onnxruntime", workload="video", batch=2, **SHORT),
        ("decode", "preprocess", "infer", "postprocess"),
        "frames",
    ),
    "generate": (
        Trial(
            model="llm:tiny-llama",
            precision="as_is",
            workload="generate",
            workload_options={"output_tokens": 16},
            **SHORT,
        ),
        (),
        "decode_tps",
    ),
    "null": (Trial(model="null", backend="null", workload="null", **SHORT), (), "throughput_sps"),
}
KINDS = [
    pytest.param(
        name, marks=[pytest.mark.wings] if "edgescope.wings" in str(registry.WORKLOADS[name]) else []
    )
    for name in ROWS
]
GOOD = (Status.OK, Status.UNSTABLE)


def test_every_workload_has_its_row():
    assert set(ROWS) == set(registry.WORKLOADS)


@pytest.fixture(scope="session")
def measured(tmp_path_factory, answered_here):
    """Each row measured once, as `bench` does; kept in a store."""
    store, found = Store(tmp_path_factory.mktemp("kinds") / "store"), {}

    def of(name):
        if name not in found:
            trial = ROWS[name][0]
            with answered_here():
                assert fresh.prepare(trial) is None
                found[name] = read(store.save(fresh.run(trial)))
        return store, found[name]

    return of


@pytest.mark.process
@pytest.mark.parametrize("name", KINDS)
def test_a_trial_is_measured_and_stored(measured, name):
    _, result = measured(name)
    assert result.status in GOOD, result.reason
    assert result.trial == ROWS[name][0] and isinstance(result.metrics["throughput_sps"], Measured)
    assert isinstance(result.metrics[ROWS[name][2]], Measured)
    assert result.verification is not None and result.verification.passed


@pytest.mark.process
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[1]])
def test_the_parts_of_a_unit_lie_within_it_and_fill_it(measured, name):
    _, result = measured(name)
    assert result.spans is not None and set(result.spans.names) >= {UNIT, *ROWS[name][1]}
    # a fetch that found the epoch over is of no unit
    units = result.spans.where(result.spans.columns["query_id"] >= 0)
    whole = units.durations_ns(UNIT)
    parts = sum(units.durations_ns(part) for part in ROWS[name][1])
    assert np.all(parts <= whole) and np.median(parts / whole) >= 0.97
    assert all(isinstance(result.metrics[f"{part}_s"], Measured) for part in ROWS[name][1])


@pytest.mark.process
@pytest.mark.parametrize("name", ["training", "video"])
def test_each_unit_of_the_window_has_its_parts_as_marks(measured, name):
    _, result = measured(name)
    rows = result.queries.rows(result.window)
    assert set(rows.marks) == {f"{part}_{at}" for part in ROWS[name][1] for at in ("begin", "end")}
    for part in ROWS[name][1]:
        took = summary.took_ns(rows, f"{part}_end", f"{part}_begin")
        assert len(took) == len(rows.latency_ns()) and np.all(took >= 0)
        assert np.all(rows.marks[f"{part}_begin"] >= rows.columns["issued_ns"])
        assert np.all(rows.marks[f"{part}_end"] <= rows.columns["done_ns"])
        found = result.metrics[f"{part}_part_p50_s"]
        assert found.n == len(took) and found.value == pytest.approx(np.median(took) * 1e-9)
        assert took == pytest.approx(_told_before(result, rows, part, took), rel=1e-9)


def _told_before(result, rows, part, took):
    """The times of a part by its other account: a span of each step; a stage's sum over the window's units."""
    if result.trial.workload == "training":
        steps = result.spans.where(np.isin(result.spans.columns["query_id"], rows.columns["query_id"]))
        return steps.durations_ns(part)
    busy = result.metrics[f"{part}_busy_s"]
    assert busy.n == len(took)
    return took * (busy.value * 1e9 / took.mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_it_is_listed_compared_and_reported(measured, name, capsys, tmp_path):
    store, result = measured(name)
    again = replace(result, id=f"{result.id[:-6]}ffffff")
    write(again, _made(store.folder(again)))
    where = ["--store", str(store.root)]
    assert main(["list", *where]) == 0
    assert result.id[-6:] in capsys.readouterr().out
    assert main(["compare", result.id, again.id, *where]) in (0, 7)
    assert "Traceback" not in capsys.readouterr().err
    assert main(["report", "--model", result.trial.model, "-o", str(tmp_path / "r.html"), *where]) == 0
    assert result.trial.backend in (tmp_path / "r.html").read_text()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ROWS if name != "null"])
def test_two_workers_do_it_at_once(name):
    trial = replace(ROWS[name][0], processes=2, min_s=0.5, max_s=0.5)
    result = bench.run(trial, hz=0)
    assert result.status in GOOD, result.reason
    assert len(result.workers) == 2 and result.verification.passed
    done = len(result.queries.rows(result.window))  # none, where a busy machine takes longer for one
    assert isinstance(result.metrics[ROWS[name][2]], Measured) or not done


@pytest.mark.slow
@pytest.mark.wings
def test_another_kind_of_work_runs_beside_it():
    colocated = "lenet5 workload=training backend=torch_eager batch=4 optimizer=adam"
    result = bench.run(
        Trial(model="null", backend="null", options={"delay_us": 500}, colocated=colocated, **SHORT), hz=0
    )
    assert result.status in GOOD, result.reason
    assert [worker.model for worker in result.workers] == ["null", "lenet5"]
    assert result.workers[1].stop_ns > 0


@pytest.mark.process
@pytest.mark.parametrize("name", KINDS)
def test_a_sweep_runs_it_and_its_command_asks_it_again(name, capsys, tmp_path):
    trial = ROWS[name][0]
    options = "".join(f"{k} = {json.dumps(v)}\n" for k, v in trial.workload_options.items())
    (tmp_path / "study.toml").write_text(
        f'[store]\npath = "{tmp_path}/s"\n[trial]\nmodel = "{trial.model}"\nbackend = "{trial.backend}"\n'
        f'workload = "{trial.workload}"\nbatch = {trial.batch}\nwarmup = 0.0\nmin_s = 0.1\nmax_s = 0.1\n'
        f"[trial.workload_options]\n{options}"
    )
    assert main(["sweep", str(tmp_path / "study.toml"), "--dry-run"]) == 0
    assert "1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("workload", ["inference", "training", "interleaved", "video"]),
        ("scenario", sorted({*registry.SCENARIOS} - {"burst"})),  # also the name of a state of a long run
    ],
)
def test_no_module_compares_the_name_of_a_workload_or_scenario(field, names):
    """Each is one file and one line of the registry; other modules read its facts there."""
    source, name = Path(edgescope.__file__).parent, f'"({"|".join(names)})"'
    compared = re.compile(
        rf'\.{field}\s*(==|!=|(not )?in)\s*[("\[{{]|{name} *(==|!=|(not )?in\b)|[!=]= *(\([^)\n]*)?{name}'
        rf"|\bin [(\[{{][^)\]}}\n]*{name}"
    )
    assert {
        str(p.relative_to(source)) for p in source.rglob("*.py") if compared.search(p.read_text())
    } == set()
