"""Kernel-level figures of the concurrency study: traced runs whose EC is known, and a recorded trace beside a store."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crowds import crowd, gpu_trials
from edgescope.analysis.kernels.account import account
from edgescope.cli.main import main
from edgescope.records import SPAN_KINDS, Absent, Measured, Queries, Spans, Window
from edgescope.report import save
from edgescope.store.results import Store
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.page import of
from edgescope.wings.studies.paper import paper
from edgescope.wings.studies.sweep import beside, kernel_level, told
from edgescope.wings.studies.sweep_table import sweep_table
from edgescope.wings.trace.imported import read
from making import queries

RECORDED = Path(__file__).parents[2] / "recorded_traces" / "nsys_2025_resnet50_h200.sqlite"
PAPER = paper("concurrent_inference")
TRIALS = [t for t in gpu_trials(("resnet50",), ("int8",), (1,)) if t.sharing == "time_slicing"]
US, EVERY, CS = 1000, 100_000, 20 * 1000
NAMES = ("cudaLaunchKernel", "gemm", "cudaStreamSynchronize")


def traced(trial, ec_us, *, speed=0.9, count=80):
    """A run of the cell under CUPTI: each query launches for half of its EC and waits 20 us for its kernel."""
    spread = np.random.default_rng(1).uniform(0.95, 1.05, count)
    ec = (ec_us * US * spread / np.median(spread)).astype("int64")
    start = np.arange(1, count + 1) * EVERY * (1 + ec_us // 50)
    middle, end = start + ec // 2, start + ec + CS
    columns = {
        "kind": np.repeat([SPAN_KINDS.index(k) for k in ("api", "kernel", "sync")], count),
        "name": np.repeat([0, 1, 2], count),
        "start_ns": np.concatenate([middle, start + ec, start + ec]),
        "end_ns": np.concatenate([start + ec, end - US, end]),
        "correlation": np.concatenate([np.arange(count), np.arange(count), np.arange(count) + count]),
        "process": 0,
        "thread": np.repeat([1, -1, 1], count),
        "device": np.repeat([-1, 0, -1], count),
        "stream": np.repeat([-1, 7, -1], count),
    }
    own = {"issued_ns": start, "done_ns": end}
    rows = Queries({**queries(count).columns, **own})
    clean = crowd(trial)
    rate = clean.metrics["throughput_sps"].value * speed
    return replace(
        crowd(replace(trial, tracer="cupti", min_s=1.0, max_s=1.0)),
        metrics={"throughput_sps": Measured(rate, "samples/s")},
        spans=Spans.from_columns(NAMES, columns),
        queries=rows,
        window=Window(0, count, 0, int(end[-1]) + 1),
    )


def table(law, **keys):
    """The clean cells and, for each P of `law`, a traced run with that EC in microseconds."""
    runs = [traced(t, law[t.processes], **keys) for t in TRIALS if t.processes in law]
    return sweep_table(PAPER, [*map(crowd, TRIALS), *runs])


def answers(found):
    return {c.claim.key: c.found for c in found.claims}


def test_a_traced_cell_has_ec_cs_and_launching_and_the_clean_run_stays_clean():
    found = table({1: 40})
    alone = found.cells[0]
    assert (
        alone["ec_s"].value == pytest.approx(40e-6, rel=1e-3) and alone["ec_s"].lo < 40e-6 < alone["ec_s"].hi
    )
    assert alone["cs_s"].value == pytest.approx(20e-6) and alone["launching_s"].value == pytest.approx(
        20e-6, rel=1e-2
    )
    assert len(alone.runs) == 1 and alone["throughput_sps"] == crowd(TRIALS[0]).metrics["throughput_sps"]
    assert found.left_out == 0 and found.traced[0].perturbation.value == pytest.approx(0.9)
    assert found.cells[1]["ec_s"] == Absent("this cell was not traced")


def test_ec_decides_cores_where_cells_are_traced():
    stays = answers(table({1: 40, 2: 41, 4: 42, 8: 400}))
    assert stays["cores"].answer is Answer.HOLDS and stays["launch"].answer is Answer.HOLDS
    assert "EC at the largest P" in stays["cores"].found and "EC 1.03x" in stays["cores"].evidence[0]
    assert "a call takes" in stays["launch"].found
    early = answers(table({1: 40, 2: 200}))
    assert early["cores"].answer is Answer.FAILS and "EC 5.00x" in early["cores"].evidence[0]
    flat = answers(table({1: 40, 8: 40}))
    assert flat["cores"].answer is flat["launch"].answer is Answer.FAILS


def test_a_profiler_that_slows_the_cell_gives_no_conclusion():
    found = table({1: 40, 8: 400}, speed=0.5)
    assert (
        found.cells[0]["ec_s"].reason == "under the profiler this cell ran at 50% of its speed: no conclusion"
    )
    launch = answers(found)["launch"]
    assert launch.answer is Answer.UNKNOWN and launch.found.startswith("under the profiler")
    assert "latency" in answers(found)["cores"].evidence[0]
    assert [t.figures["ec_s"].value for t in found.traced] == pytest.approx([40e-6, 400e-6], rel=1e-3)


@pytest.mark.process
def test_without_traces_the_reason_and_one_command():
    found = table({})
    words = answers(found)["launch"].found
    assert words.startswith("no cell was traced. Try: edgescope sweep --model resnet50 --backend torch_eager")
    assert words.endswith("--tracer cupti --duration 1s --processes 1,2,4,8")
    flags = words.partition("edgescope ")[2].split()
    assert main([*flags, "--dry-run"]) == 0
    assert "Try: nsys profile" in answers(found)["issue"].found
    numbers = {n.figure: beside(found, n) for n in PAPER.numbers}
    assert numbers["ec_growth"].startswith("no cell was traced")


@pytest.mark.slow
def test_growth_stands_beside_the_papers_figure_and_the_page_has_the_cdfs(tmp_path):
    found = table({1: 40, 4: 80, 8: 400})
    numbers = {n.text[:21]: beside(found, n) for n in PAPER.numbers if n.figure == "ec_growth"}
    assert numbers["execution context 70x"].startswith("10.0x")
    assert numbers["execution context 30x"].startswith("2.00x")
    page = json.loads(save(of(PAPER, told(found)), tmp_path / "c.json").read_text())["kernel_level"]
    assert page["growth"][0].startswith("resnet50 int8 batch 1, time slicing: EC 2.00x")
    assert page["cells"][0]["cdf_s"]["ec"]["0.5"] == pytest.approx(40e-6, rel=1e-3) and page["absent"] is None
    text = save(of(PAPER, told(found)), tmp_path / "c.html").read_text()
    assert "EC and CS of a query" in text and "Launching" in text


@pytest.fixture
def recorded(tmp_path):
    """A store with two clean cells, and a folder in which both have the same recorded trace."""
    store, folder = Store(tmp_path / "store"), tmp_path / "traces"
    folder.mkdir()
    for trial in gpu_trials(("resnet50",), ("fp16",), (1,), (1, 2)):
        store.save(crowd(trial))
    for p in (1, 2):
        shutil.copy(RECORDED, folder / f"resnet50-fp16-b1-p{p}.sqlite")
    return ["study", "concurrent", "--store", str(store.root), "--traces", str(folder)], folder


@pytest.mark.slow
def test_a_recorded_trace_gives_its_cells_samples_and_budget(recorded, capsys):
    assert main([*recorded[0], "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    own = account(read(RECORDED))
    first = page["cells"][0]["figures"]
    assert first["ec_s"]["value"] == pytest.approx(float(np.median(own.budget.ec)) * 1e-9)
    for name in ("sm_active", "sm_issue", "tensor_active"):
        assert first[name]["value"] == own.samples[f"gpu0_{name}"].value
    claims = {c["key"]: c for c in page["claims"]}
    assert claims["issue"]["answer"] == "holds" and "SMs issue" in claims["issue"]["evidence"][0]
    assert main([*recorded[0], "-v"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Kernel level" in said and "EC 1.00x at P = 2, CS 1.00x at P = 2, over P = 1" in said


@pytest.mark.process
def test_a_file_that_names_no_cell_is_refused_with_the_cells(recorded, capsys):
    shutil.copy(RECORDED, recorded[1] / "resnet50-fp16-b1-p16.sqlite")
    assert main(recorded[0]) == 2
    said = capsys.readouterr().err
    assert "E-PAPER-3" in said and "resnet50-fp16-b1-p2-mps" in said
    assert main([*recorded[0][:-1], str(recorded[1] / "none")]) == 2
    assert "E-PAPER-4" in capsys.readouterr().err


def test_a_trace_in_which_nothing_calls_a_gpu_has_no_number_of_inferences():
    found = table({1: 40, 4: 80})
    silent = replace(found, traced=(replace(found.traced[0], budget=None),))
    (cell,) = kernel_level(silent)["cells"]
    assert cell["inferences"] is None and cell["cdf_s"] == {}
