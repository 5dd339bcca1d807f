"""The concurrent sweep as page, Markdown, CSV and JSON, and its figures: the same numbers everywhere."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from crowds import cpu_trials, crowd, dead, gpu_trials
from edgescope.records import Absent, Measured
from edgescope.report import save, terminal
from edgescope.report import write as usual
from edgescope.report.document import Document, plain
from edgescope.wings.studies import sweep as report
from edgescope.wings.studies import sweep_plot as plots
from edgescope.wings.studies.page import document, of
from edgescope.wings.studies.paper import paper
from edgescope.wings.studies.sweep_table import SweepTable, sweep_table

PAPER = paper("concurrent_inference")
MODELS = ("resnet50", "yolov8n_class")
concurrent = partial(sweep_table, PAPER)


def shown(found: SweepTable, show: str = "", command: str = "") -> Document:
    return of(PAPER, report.told(found, show), command)


@pytest.fixture(scope="module")
def found() -> SweepTable:
    trials = gpu_trials(models=MODELS, batches=(1, 16))
    out = dead(replace(trials[-1], batch=64))
    return concurrent([*map(crowd, trials), out])


@pytest.fixture(scope="module")
def written(found: SweepTable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("out")
    kinds = ("html", "md", "csv", "json")
    page = shown(found, command="edgescope study concurrent")
    return {k: save(page, folder / f"c.{k}").read_text("utf-8") for k in kinds}


def said(page: Document, *, verbose: bool = False) -> str:
    """What a terminal prints."""
    every = ["".join(text for text, _ in line) for line in terminal.lines(page, verbose=verbose, limit=None)]
    assert all(
        len(line) <= 80 or line.startswith("edgescope ") for line in every
    )  # a command is pasted whole
    return "\n".join(every)


@pytest.mark.slow
def test_the_page_says_what_stands_out_first(written: dict[str, str]) -> None:
    page = written["html"]
    first = page.index("MPS gives 3.00x [2.96, 3.04] the total throughput of time slicing")
    assert first < page.index("Over batch size, one process") < page.index("The paper&#x27;s claims")
    assert "default-src &#x27;none&#x27;" in page and "<script src" not in page
    assert "edgescope study concurrent" in page and "E-OOM-1: CUDA out of memory" in page


@pytest.mark.slow
def test_the_pages_figures_hold_the_tables_numbers(found: SweepTable, written: dict[str, str]) -> None:
    islands = dict(
        re.findall(r'<script type="application/json" data-plot="([^"]+)">(.*?)</script>', written["html"])
    )
    assert list(islands) == ["batch", "precision", "processes-1", "processes-16", "power"]
    drawn = json.loads(islands["processes-1"])["data"]
    line = next(t for t in drawn if t["name"] == "fp16, MPS")
    cells = [
        c for c in found.cells if (c.trial.model, c.trial.precision, c.trial.batch) == ("resnet50", "fp16", 1)
    ]
    by = {c.trial.processes: c for c in cells if c.trial.sharing == "mps" or c.trial.processes == 1}
    assert line["x"] == [1.0, 2.0, 4.0, 8.0]
    assert line["y"] == [by[p].value("throughput_sps") for p in (1, 2, 4, 8)]
    assert line["error_y"]["array"][1] == pytest.approx(by[2].total.hi - by[2].total.value)  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_papers_numbers_are_apart_and_say_where_they_are_from(found: SweepTable) -> None:
    figure = plots.over_batch(found)
    theirs = {t.name: t for t in figure.data if "paper" in t.name}
    assert set(theirs) == {
        "paper: Orin Nano, int8 (other hardware; secondary)",
        "paper: A40 (other hardware; confirmed)",
    }
    nano = [t for t in figure.data if t.name.startswith("paper: Orin")]
    assert [list(t.y) for t in nano] == [[210.0, 320.0], [210.0]]
    assert all(t.mode == "markers" and t.marker.symbol.endswith("-open") for t in nano)
    assert "secondary notes that quote the paper" in nano[0].text[0] and "Other hardware" in nano[0].text[0]
    over_p = plots.over_processes(found, 1)
    shares = [t for t in over_p.data if t.name.startswith("paper: Orin") and len(t.y) == 2]
    assert [(t.x, t.y) for t in shares] == [((1.0, 8.0), (210.0, 10.0)), ((1.0, 16.0), (210.0, 10.0))]


def test_the_papers_numbers_far_beyond_ours_are_not_drawn() -> None:
    few = concurrent(map(crowd, gpu_trials(models=("yolov8n_class",), batches=(1,), processes=(1, 2))))
    theirs = [t for t in plots.over_processes(few, 1).data if t.name.startswith("paper: Orin")]
    assert [list(t.x) for t in theirs] == [[1.0], [1.0]]  # in all, and a process


@pytest.mark.slow
def test_a_panel_without_the_model_has_none_of_the_papers_numbers() -> None:
    cpu = concurrent(map(crowd, cpu_trials()))
    drawn = [plots.over_batch(cpu), plots.over_precision(cpu), plots.over_processes(cpu, 1)]
    assert all("paper" not in (t.name or "") for figure in drawn for t in figure.data)
    power = plots.power_over_throughput(cpu)
    assert isinstance(power, Absent) and "no power sensor" in str(power.reason)


@pytest.mark.slow
def test_memory_is_drawn_over_the_papers_rule(found: SweepTable) -> None:
    figure = plots.over_processes(found, 16)
    rule = next(t for t in figure.data if t.name == "fp16, P × (model + 2 × batch)")
    assert rule.mode == "lines" and list(rule.y) == pytest.approx([p * 0.2392 for p in (1, 2, 4, 8)])
    assert figure.layout.xaxis.tickvals == (1.0, 2.0, 4.0, 8.0)


@pytest.mark.slow
def test_bars_of_precision_begin_at_zero(found: SweepTable) -> None:
    figure = plots.over_precision(found)
    bars = [t for t in figure.data if t.type == "bar"]
    assert (
        len(bars) == 2 * 2 * 4 and figure.layout.yaxis.rangemode == "tozero"
    )  # models x precisions x quantities
    assert bars[0].x == ("fp16",) and "resnet50 fp16 batch 1, P = 1" in bars[0].text[0]


@pytest.mark.slow
def test_every_mark_is_finite_and_inside_its_axis(found: SweepTable) -> None:
    for figure in (
        plots.over_batch(found),
        plots.over_processes(found, 1),
        plots.power_over_throughput(found),
    ):
        for trace in figure.data:
            assert all(math.isfinite(v) for v in trace.y)
            axis = figure.layout[trace.yaxis.replace("y", "yaxis")]
            if axis.type == "log":
                low, high = (10**v for v in axis.range)
                assert low < min(trace.y) and max(trace.y) < high


@pytest.mark.slow
def test_markdown_holds_grids_claims_and_the_papers_figures(
    found: SweepTable, written: dict[str, str]
) -> None:
    text = written["md"]
    assert text.startswith("# Concurrent inference on NVIDIA H100 80GB HBM3\n\n56 cells of 2 models")
    assert "| Cell | P = 1 (samples/s) | P = 2 (samples/s) |" in text
    assert "| resnet50 fp32 batch 1, time slicing | 900 \\[891\u00a0–\u00a0909\\] | 1,080 \\[1,069" in text
    assert "| does not hold here |" in text and "| not measurable here |" in text
    assert "secondary notes that quote the paper" in text
    cells = text.partition("## Memory against processes")[0]
    widths = {
        line.count(" | ") for line in cells.splitlines() if line.startswith("| resnet50 fp32 batch 1, time")
    }
    assert len(widths) == 1
    assert "Made by `edgescope study concurrent`" in text


def test_a_terminal_answers_first_and_gives_each_claim_a_line(found: SweepTable) -> None:
    brief = said(shown(found)).splitlines()
    assert brief[0] == "Claims  6 of 17 claims hold here, 3 do not, 8 cannot be decided"
    lines = [line for line in brief if "✓ holds" in line or "✗ does not" in line or "? unmeasured" in line]
    assert len(lines) == 17 and len(brief) <= 28
    assert any(re.search(r"^Throughput per process falls with P +✓ holds +16 of 16$", line) for line in lines)
    full = said(shown(found), verbose=True)
    assert "T/P is 0.60x [0.59, 0.61] at P = 2" in " ".join(full.split())
    assert "Start skew between processes" in full and "E-OOM-1: CUDA out of memory" in full


def test_a_quantity_is_shown_on_a_terminal_where_it_is_asked_for(found: SweepTable) -> None:
    text = said(shown(found, "memory"))
    assert re.search(r"resnet50 fp32 batch 1, MPS +· +902 MB +1.7 GB +3.31 GB", text)
    assert "fp16 batch 64, MPS" in text and "oom" in text
    assert "resnet50 fp32" not in said(shown(found)).split("Claim  ")[1]


def test_csv_carries_each_value_with_its_interval_or_its_reason(
    found: SweepTable, written: dict[str, str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(written["csv"])))
    assert len(rows) == len(found.cells)
    for row, cell in zip(rows, found.cells, strict=True):
        if cell.ok:
            total = cell.total
            assert isinstance(total, Measured) and float(row["throughput_sps"]) == total.value
            assert float(row["throughput_sps_lo"]) == total.lo and row["interval"] == "within one run"
        else:
            assert row["status"] == "oom" and row["throughput_sps"] == ""
            assert row["throughput_sps_absent"] == "oom: E-OOM-1: CUDA out of memory."


def test_json_is_whole(found: SweepTable, written: dict[str, str]) -> None:
    page = json.loads(written["json"])
    assert len(page["cells"]) == len(found.cells) and len(page["claims"]) == 17
    assert page["claims"][2]["answer"] == "holds" and len(page["claims"][2]["evidence"]) == 16
    assert page["remarks"][0]["ratio"]["value"] == pytest.approx(3.0)
    assert page["cells"][0]["figures"]["sm_active"] == {"absent": "no raw readings in the store"}
    assert {n["known"] for n in page["paper"]["numbers"]} == {"confirmed", "secondary"}


def test_nothing_stored_is_a_page_that_says_how_to_measure(tmp_path: Path) -> None:
    empty = shown(concurrent([]))
    page = save(empty, tmp_path / "c.html").read_text("utf-8")
    assert (
        "No finished cell of concurrent inference" in page and PAPER.measure in page and "Plotly" not in page
    )
    assert " ".join(said(empty).split()).endswith(PAPER.measure)
    assert save(empty, tmp_path / "c.csv").read_text("utf-8").count("\n") == 1


def test_only_failed_cells_are_counted_and_explained(tmp_path: Path) -> None:
    bad = concurrent([dead(t) for t in gpu_trials(models=("resnet50",), precisions=("fp16",), batches=(1,))])
    assert "7 cells gave no figure (7 oom)" in report.summary(bad)
    (line,) = report.failures(bad)
    assert line.startswith("oom: E-OOM-1: CUDA out of memory (7 cells: ") and line.endswith("and 5 more)")
    assert "E-OOM-1" in save(shown(bad), tmp_path / "c.html").read_text("utf-8")
    assert "E-OOM-1" in said(shown(bad))


def test_one_process_only_says_what_cannot_be_seen() -> None:
    one = concurrent(map(crowd, gpu_trials(processes=(1,), batches=(1,))))
    assert any("Only one process was measured" in n for n in report.notes(one))
    assert isinstance(plots.over_processes(one, 1), Absent) and isinstance(plots.over_batch(one), Absent)
    shown = report.grid(one, "throughput")
    assert shown is not None and plain(shown.rows[0].cells[0]) == "fcn_resnet50 fp32 batch 1"


def test_other_setups_and_skew_are_in_the_notes() -> None:
    trials = gpu_trials(models=("resnet50",), precisions=("fp16",), batches=(1,), processes=(1, 8, 16))
    mixed = concurrent(map(crowd, [*trials, replace(trials[0], options={})]))
    noted = " ".join(report.notes(mixed))
    assert "Try: --setup 'torch_eager cuda'" in noted
    assert "Workers started within 4 ms of each other at worst (resnet50 fp16 batch 1, P = 16" in noted


def test_the_cells_of_a_study_that_are_missing_are_named() -> None:
    trials = gpu_trials(models=("resnet50",), precisions=("fp16",), batches=(1,))
    more = [*trials, replace(trials[0], batch=64), replace(trials[0], model="yolov8n_class")]
    page = document(PAPER, map(crowd, trials), models=("resnet50",), study=more, left_out=2)
    text = " ".join(said(page, verbose=True).split())
    assert "Coverage: 7 of the study's 8 cells; missing: resnet50 fp16 batch 64, P = 1." in text
    assert "2 results are left out: another scenario" in text


def test_our_figure_stands_beside_the_papers_and_is_never_divided_by_it() -> None:
    here = concurrent(
        map(crowd, gpu_trials(models=MODELS, precisions=("int8",), batches=(1, 16), processes=(1, 8, 16)))
    )
    beside = {n.text: report.beside(here, n) for n in here.paper.numbers}
    assert beside["about 210 images/s"].startswith("1,680 [1,663, 1,697] (int8 batch 1)")
    assert beside["about 320 images/s"] == "4,962 [4,913, 5,012] (int8 batch 16)"
    assert (
        beside["about 10 images/s a process"]
        == "126 [125, 127] (int8 batch 1, time slicing); 378 [374, 382] (int8 batch 1, MPS)"
    )
    assert beside["3.5x the GPU memory of one process"].startswith("9.51x (int8 batch 1")
    assert beside["execution context 30x as long as at P = 1 and 2"].startswith("no cell was traced. Try: ")


def test_a_hostile_reason_is_text(tmp_path: Path) -> None:
    bad = dead(gpu_trials(models=("resnet50",))[0], reason="<img src=x onerror=alert(1)>")
    page = save(shown(concurrent([bad])), tmp_path / "c.html").read_text("utf-8")
    assert "<img src=x" not in page and "&lt;img src=x" in page


@pytest.mark.slow
def test_the_usual_report_says_it_unasked_too(tmp_path: Path) -> None:
    runs = [crowd(t) for t in gpu_trials(models=("resnet50",), precisions=("fp16",), batches=(1,))]
    for name in ("r.html", "r.md"):
        text = usual(runs, tmp_path / name).read_text("utf-8").replace("\\", "")
        assert (
            "resnet50 fp16 batch 1, P = 2: MPS gives 3.00x [2.96, 3.04] the total throughput of time slicing"
            in text
        )
    assert "Concurrent runs" not in usual(runs[:1], tmp_path / "one.html").read_text("utf-8")
