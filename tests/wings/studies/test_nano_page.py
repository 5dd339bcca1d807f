"""The study's table as page, Markdown and CSV, and its figure."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgescope.records import Measured
from edgescope.report import save, terminal
from edgescope.report.document import Document, Figure
from edgescope.wings.studies.jetson_nano import study as page_of
from edgescope.wings.studies.jetson_nano.table import NanoTable, nano_table
from edgescope.wings.studies.jetson_nano.table import study as printed
from edgescope.wings.studies.page import of
from edgescope.wings.studies.paper import paper
from made_results import KINDS, study


def shown(found: NanoTable, command: str = "") -> Document:
    nano = paper("jetson_nano")
    return of(nano, page_of.told(nano, found), command)


def beside_study(found: NanoTable) -> Any:
    return next(part for part in shown(found).parts if isinstance(part, Figure)).draw()


@pytest.fixture(scope="module")
def found() -> NanoTable:
    results = [r for m in ("alexnet", "mobilenet_v2") for r in study(KINDS, 3, m, trained=False)]
    return nano_table(results)


@pytest.fixture(scope="module")
def page(found: NanoTable, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "t.html"
    return save(shown(found, "edgescope study nano_table --store s"), path).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_holds_the_numbers_the_misprints_and_how_it_was_made(page: str) -> None:
    assert "edgescope study nano_table --store s" in page and "fp32, tf32 off" in page
    assert page.count("0.6638 s / 0.1184 s = 5.606") >= 2
    assert "<s>30.71</s> <b>3.07</b>" in page
    assert "default-src &#x27;none&#x27;" in page and "<script src" not in page
    assert "onnxruntime int8 b1" in page


@pytest.mark.slow
def test_markdown_strikes_misprints_out(found: NanoTable, tmp_path: Path) -> None:
    text = save(shown(found), tmp_path / "t.md").read_text(encoding="utf-8")
    assert "~~2.09~~ 5.61" in text and "~~2.16~~ 2.75" in text
    rows = [line for line in text.splitlines() if line.startswith("| alexnet |")]
    assert len(rows) == 2  # timed, and sized
    assert "cold before and warm after" in text and "fp32, tf32 off" in text
    assert "Made by ``" in text  # no command is made up


@pytest.mark.slow
def test_csv_carries_each_value_with_interval_or_reason(found: NanoTable, tmp_path: Path) -> None:
    text = save(shown(found), tmp_path / "t.csv").read_text(encoding="utf-8")
    rows = {r["model"]: r for r in csv.DictReader(io.StringIO(text))}
    assert len(rows) == 11
    speedup = next(r for r in found.rows if r.model == "alexnet").speedup
    assert isinstance(speedup, Measured)
    assert (
        float(rows["alexnet"]["speedup"]) == speedup.value
        and float(rows["alexnet"]["speedup_lo"]) == speedup.lo
    )
    assert rows["vgg19"]["speedup"] == "" and "vgg19" in rows["vgg19"]["speedup_absent"]
    assert rows["alexnet"]["study_flops_count"] == "2 x MACs" or rows["alexnet"]["macs"] != "714188480.0"
    assert "30.71 should be 3.07" in rows["har_autoencoder"]["study_misprints"]


def test_the_figure_shows_ours_the_studys_and_the_misprints_where_they_were_printed(found: NanoTable) -> None:
    traces = {t.name: t for t in beside_study(found).data if t.name}
    assert len(traces) == 4
    ours = traces["here, steady before / steady after"]
    assert list(ours.x) == [r.speedup.value for r in found.measured]  # type: ignore[union-attr]
    assert sorted(traces["the study, a misprinted ratio"].x) == [2.09, 2.16, 30.71]
    theirs = traces["the study, by its own seconds"]
    assert list(theirs.x) == [r.recomputed for r in printed().rows]


def test_all_marks_lie_inside_the_axis_and_one_wild_whisker_does_not_squash_them(found: NanoTable) -> None:
    wild = replace(found.rows[0], speedup=Measured(5.0, "1", 0.1, 5000.0, 2))
    figure = beside_study(replace(found, rows=(wild, *found.rows[1:])))
    low, high = (10**e for e in figure.layout.xaxis.range)
    marks = [x for t in figure.data for x in t.x]
    assert low < min(marks) and max(marks) < high <= 3 * max(marks) * 1.0001


def test_a_disturbed_machine_is_named_in_the_first_paragraph(found: NanoTable) -> None:
    assert page_of.disturbed(found) == []
    row = replace(found.rows[0], verdicts=("CLEAN", "DISTURBED"))
    page = shown(replace(found, rows=(row, *found.rows[1:])))
    for verbose in (False, True):
        first = "".join(t for line in terminal.lines(page, verbose=verbose) for t, _ in [*line, (" ", "")])
        assert "disturbed or throttled: alexnet." in first.partition("Network ")[0]


def test_an_empty_table_is_a_page_that_says_so(tmp_path: Path) -> None:
    text = save(shown(nano_table([])), tmp_path / "t.html").read_text(encoding="utf-8")
    assert "None of the 11 networks was measured" in text
    assert all(math.isfinite(x) for t in beside_study(nano_table([])).data for x in t.x)


def test_a_hostile_label_is_text(found: NanoTable, tmp_path: Path) -> None:
    bad = replace(found.rows[0], variant="<img src=x onerror=alert(1)>", notes=("<script>alert(2)</script>",))
    hostile = replace(found, rows=(bad, *found.rows[1:]))
    text = save(shown(hostile), tmp_path / "t.html").read_text(encoding="utf-8")
    assert "<img src=x" not in text and "<script>alert(2)" not in text
    assert "<script>" not in save(shown(hostile), tmp_path / "t.md").read_text(encoding="utf-8").replace(
        "\\<", ""
    )
