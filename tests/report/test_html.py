"""The page says what the table says, can be trusted with any text, and needs nothing outside itself."""

from __future__ import annotations

import csv
import fnmatch
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import browser
from edgescope.analysis.cells.variants import pick, table
from edgescope.errors import Message, UsageError
from edgescope.metrics import METRICS
from edgescope.records import Absent, Json, Machine, Measured, Result, Status, Trust, Verdict
from edgescope.report import write
from edgescope.report.chapter import chapters
from edgescope.report.html import island
from edgescope.report.variants import comparison
from made_results import KINDS, NO_RAPL, Kind, failed, study

VOID = {"meta", "br", "hr", "col", "link", "img", "input"}
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """What a browser would see: tags, attributes and text outside scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.rows: list[tuple[dict[str, str | None], str]] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif self.open and self.open[-1] != "style":
            self.text.append(data)
            if "tr" in self.open:
                self.rows[-1] = (self.rows[-1][0], f"{self.rows[-1][1]} {data}")

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def row(self, cell: str) -> str:
        """Text of the before/after row of a cell."""
        return next(" ".join(text.split()) for attrs, text in self.rows if attrs.get("data-cell") == cell)


def page(results: list[Result], folder: Path, **more: str) -> Page:
    return Page(write(results, folder / "page.html", **more).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [*study(replicates=3), failed()]


@pytest.fixture(scope="module")
def written(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(results, tmp_path_factory.mktemp("report") / "page.html")


@pytest.fixture(scope="module")
def shown_page(written: Path) -> Page:
    return Page(written.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_answer_comes_first_and_is_the_tables_pick(results: list[Result], shown_page: Page) -> None:
    best = pick(table(results))
    assert best.row is not None
    text = shown_page.words
    assert best.reason in text
    assert (
        text.index(best.reason) < text.index("Before and after") < text.index("How the outputs were verified")
    )
    picked = [a["data-cell"] for tag, a in shown_page.tags if tag == "tr" and a.get("class") == "picked"]
    assert picked == [best.row.cell]


@pytest.mark.slow
def test_the_fastest_variant_is_not_picked_when_its_answers_are_wrong(tmp_path: Path) -> None:
    wrong = Kind("openvino", "int8", 0.2, 10, 0.5, 0.4, passed=False)
    results = [replace(r, status=Status.OK) for r in study([*KINDS[:3], wrong], 3)]
    found = page(results, tmp_path)
    cell = next(r.trial.cell for r in results if r.trial.precision == "int8")
    classes = {a["data-cell"]: a.get("class") for tag, a in found.tags if tag == "tr" and "data-cell" in a}
    assert classes[cell] == "rejected" and "picked" in classes.values()
    assert "rejected: wrong outputs: top-1 agreement 50.0%" in found.row(cell)
    chosen = found.words.index("Use ")
    assert found.words[chosen + 4 :].startswith("onnxruntime fp32 b1")
    html = (tmp_path / "page.html").read_text()
    assert "<s>openvino int8 b1</s>" in html


@pytest.mark.slow
def test_every_measured_value_of_the_table_is_on_the_page(results: list[Result], shown_page: Page) -> None:
    chapter = chapters(results)[0]
    look = comparison(chapter)
    checked = 0
    for row in look.rows:
        text, figures = shown_page.row(row.key), chapter.table.row(row.key)
        for i, column in enumerate(look.columns):
            form, field = look.form(i), figures[column.key]
            if isinstance(field, Measured):
                assert form is not None and form.number(field.value) in text
                checked += 1
    assert checked > 40


@pytest.mark.slow
def test_a_value_that_is_absent_is_its_reason_and_never_zero(shown_page: Page) -> None:
    assert f"Power, Energy per sample: {NO_RAPL}" in shown_page.words
    values = re.findall(
        r"(?<![\d.,])0(?:\.0+)?(?![\d.,])", " ".join(shown_page.row(c) for c in cells(shown_page))
    )
    assert values == []


def cells(found: Page) -> list[str]:
    return [str(a["data-cell"]) for tag, a in found.tags if tag == "tr" and "data-cell" in a]


@pytest.mark.slow
def test_a_gap_in_one_row_has_its_own_reason(tmp_path: Path) -> None:
    results = study(KINDS[:2], 2)
    results = [
        replace(r, metrics={**r.metrics, "peak_rss_bytes": Absent("unsupported: no VmHWM")})
        if r.trial.backend == "torch_compile"
        else r
        for r in results
    ]
    found = page(results, tmp_path)
    assert "unsupported: no VmHWM" in found.row(results[1].trial.cell)
    assert "612" in found.row(results[0].trial.cell)


@pytest.mark.parametrize("suffix", [".html", ".md"])
@pytest.mark.slow
def test_hostile_text_stays_text(tmp_path: Path, suffix: str) -> None:
    results = study(KINDS[:3], 2, HOSTILE)
    bad = Machine({"cpu": {"model": HOSTILE}}, {"environment": {HOSTILE: HOSTILE}, "command": ["x", HOSTILE]})
    results = [
        replace(
            r,
            machine=bad,
            warnings=(Message(*[HOSTILE] * 5),),
            verdict=Verdict(Trust.DISTURBED, (HOSTILE,)),
            verification=replace(r.verification, detail=HOSTILE, reference=HOSTILE)
            if r.verification
            else None,
            artifact={"digest": HOSTILE, "bytes": 5},
        )
        for r in results
    ] + [replace(failed(model=HOSTILE), reason=Message(*[HOSTILE] * 5), machine=bad)]
    path = write(results, tmp_path / f"page{suffix}", title=HOSTILE, command=HOSTILE)
    text = path.read_text(encoding="utf-8")
    if suffix == ".md":
        assert "<script>" not in text.replace("\\<", "").replace(f"`{HOSTILE}`", "")
        return
    found = Page(text)
    assert not [t for t, _ in found.tags if t == "img"]
    assert not [a for _, a in found.tags if any(name.startswith("on") for name in a)]
    assert found.words.count('alert("x")') > 8
    kinds = Counter(attrs.get("type") or "code" for attrs, _ in found.scripts)
    assert kinds["code"] == 2 and set(kinds) == {"code", "application/json"}


def test_islands_are_json_that_cannot_close_their_element(written: Path, shown_page: Page) -> None:
    islands = [text for attrs, text in shown_page.scripts if attrs.get("type") == "application/json"]
    assert len(islands) == 5
    for text in islands:
        assert json.loads(text)["data"]
        assert "<" not in text


def test_an_island_is_safe_whatever_wrote_its_json() -> None:
    text = island(json.dumps({"name": HOSTILE}))
    assert "<" not in text and json.loads(text) == {"name": HOSTILE}


def test_the_page_loads_nothing_from_anywhere(written: Path, shown_page: Page) -> None:
    for tag, attrs in shown_page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert "src" not in attrs and "srcset" not in attrs
        assert str(attrs.get("href", "#")).startswith("#")
    policies = [a["content"] for _, a in shown_page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies and str(policies[0]).startswith("default-src 'none'")
    style = written.read_text().split("<style>")[1].split("</style>")[0]
    assert "url(" not in style and "@import" not in style


def test_plotly_is_inside_once_and_the_page_stays_small(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert text.count("plotly.js v") == 1
    assert written.stat().st_size < 8_000_000


def test_ids_are_unique_and_every_link_arrives(shown_page: Page) -> None:
    ids = Counter(a["id"] for _, a in shown_page.tags if "id" in a)
    assert max(ids.values()) == 1
    targets = {str(a["href"])[1:] for tag, a in shown_page.tags if tag == "a"}
    assert targets and targets <= set(ids)


def test_every_metric_of_the_table_links_to_its_definition(results: list[Result], shown_page: Page) -> None:
    links = {str(a["href"]) for tag, a in shown_page.tags if tag == "a"}
    for column in comparison(chapters(results)[0]).columns[1:]:
        assert f"#def-{column.key}" in links
        assert METRICS[column.key].meaning.split(".")[0].split("\n")[0] in shown_page.words


def test_verdicts_show_their_evidence_with_and_without_hovering(shown_page: Page) -> None:
    hovers = [a for tag, a in shown_page.tags if tag == "span" and "badge disturbed" in str(a.get("class"))]
    assert hovers and all("steal 9.1 % > 2 % of CPU time" in str(a["title"]) for a in hovers)
    assert shown_page.words.count("steal 9.1 % > 2 % of CPU time") >= 2
    assert "other processes 1.1 % of the CPU <= 5 %" in shown_page.words


def test_the_four_numbers_warnings_cost_ids_and_command_are_there(
    results: list[Result], shown_page: Page
) -> None:
    text = shown_page.words
    for word in (
        "Build, load, first, steady",
        "W-WARM-1",
        "0.31 % of one core",
        "edgescope report --output page.html",
    ):
        assert word in text
    assert "edgescope bench mobilenet_v2 --backend openvino --precision bf16 --batch 1" in text
    for r in results:
        assert r.id in text and r.trial.id in text


@pytest.mark.slow
def test_an_untrained_model_claims_no_accuracy(tmp_path: Path) -> None:
    found = page(study(KINDS[:3], 2, trained=False), tmp_path)
    assert "untrained: no task accuracy" in found.words
    assert "Centred L2" in found.words and "78.2" not in found.words


def test_failures_alone_give_a_page_that_says_what_happened(tmp_path: Path) -> None:
    both = [failed(), failed(Status.TIMEOUT, "E-TIME-1: still running after 900 s")]
    found = page(both, tmp_path)
    assert "No recommendation" in found.words
    assert all(len(str(one.reason)) > 20 and str(one.reason) in found.words for one in both)
    assert not [t for t in found.tags if t[0] == "figure"]


def test_results_without_raw_rows_give_a_page_that_says_so(tmp_path: Path) -> None:
    bare = [replace(r, queries=None, readings=None) for r in study(KINDS[:2], 2)]
    found = page(bare, tmp_path)
    assert "no variant has raw latencies" in found.words


@pytest.mark.slow
def test_a_run_whose_every_query_failed_gives_a_page(tmp_path: Path) -> None:
    results = study(KINDS[:2], 2)
    for r in results[:2]:
        assert r.queries is not None
        r.queries.columns["status"][:] = 1
    found = page([replace(r, metrics={}) for r in results], tmp_path)
    assert "Before and after" in found.words


@pytest.mark.parametrize("scenario", ["offline", "fixed_rate"])
@pytest.mark.slow
def test_another_scenario_gives_a_page(tmp_path: Path, scenario: str) -> None:
    results = [replace(r, trial=replace(r.trial, scenario=scenario), metrics={}) for r in study(KINDS[:2], 3)]
    found = page(results, tmp_path)
    figures = {str(a["id"]) for tag, a in found.tags if tag == "figure"}
    assert ("c1-over_time-figure" in figures) == (scenario != "offline")
    assert f"--scenario {scenario}" in found.words


@pytest.mark.slow
def test_a_variant_that_answers_in_no_time_gives_a_page(tmp_path: Path) -> None:
    results = study([Kind("null", "fp32", 20, 5)], 2)
    for r in results:
        assert r.queries is not None
        r.queries.columns["done_ns"][:] = r.queries.columns["issued_ns"]
    assert "null fp32 b1" in page(results, tmp_path).words


def test_no_results_give_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    found = page([], tmp_path)
    assert "nothing can be recommended" in found.words and "edgescope optimize MODEL" in found.words


@pytest.mark.slow
def test_models_and_machines_get_a_chapter_each(tmp_path: Path) -> None:
    other = Machine({"cpu": {"cpu": "Cortex-A78AE"}}, {})
    elsewhere = [replace(r, machine=other) for r in study(KINDS[:2], 2)]
    found = page([*study(KINDS[:2], 2), *study(KINDS[:2], 2, "resnet50"), *elsewhere], tmp_path)
    for title in (
        "mobilenet_v2 on AMD EPYC 9R14",
        "resnet50 on AMD EPYC 9R14",
        "mobilenet_v2 on Cortex-A78AE",
    ):
        assert title in found.words
    assert len([1 for tag, _ in found.tags if tag == "article"]) == 3
    assert max(Counter(a["id"] for _, a in found.tags if "id" in a).values()) == 1


def test_a_recordings_run_is_not_called_a_run_of_its_board(results: list[Result], tmp_path: Path) -> None:
    mark: Json = {"board": "Jetson Orin Nano", "made": "constructed"}
    stable: dict[str, Json] = {"cpu": {"cpu": "Cortex-A78AE"}}
    played = [
        replace(r, machine=replace(r.machine, stable=stable, state={"replayed": mark})) for r in results
    ]
    (found,) = chapters(played)
    assert found.title == f"{results[0].trial.model} on a recording of Jetson Orin Nano"
    write(played, tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text()
    assert "on a recording of Jetson Orin Nano" in text and "on Cortex-A78AE" not in text


def test_a_table_in_csv_holds_the_exact_numbers(results: list[Result], tmp_path: Path) -> None:
    path = write(results, tmp_path / "table.csv")
    with path.open(newline="") as handle:
        lines = {line["cell"]: line for line in csv.DictReader(handle)}
    found = table(results)
    assert set(lines) == {row.cell for row in found.rows}
    for row in found.rows:
        line = lines[row.cell]
        if isinstance(row["p50_s"], Measured):
            assert float(line["p50_s"]) == row["p50_s"].value and float(line["p50_s_lo"]) == row["p50_s"].lo
        assert (line["energy_per_sample_j"], line["energy_per_sample_j_absent"] != "") == ("", True)
    assert [line["variant"] for line in lines.values() if line["pick"]] == ["onnxruntime int8 b1"]


def test_a_csv_cell_cannot_start_a_formula(tmp_path: Path) -> None:
    path = write(study(KINDS[:1], 1, "=cmd|' /C calc'!A0"), tmp_path / "table.csv")
    assert "\n'=cmd" in path.read_text()


def test_markdown_holds_the_same_table(results: list[Result], tmp_path: Path) -> None:
    text = write(results, tmp_path / "table.md").read_text()
    look = comparison(chapters(results)[0])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == len(look.rows) + 2
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "| **onnxruntime int8 b1** (pick) |" in text and "~~openvino int8 b1~~" in text
    assert f"Power, Energy per sample: {NO_RAPL.replace('_', chr(92) + '_')}" in text
    assert "may be the meter's bounds" in text


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"E-REPORT-1.*\.pdf"):
        write([], tmp_path / "page.pdf")


def test_every_defined_metric_is_in_the_metrics_page() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-") for line in text.splitlines()
    }
    named = re.findall(r"`(\w+)`", text)
    told = [m for m in METRICS.values() if m.unit and m.of and m.name != "reference_accuracy"]
    for metric in told:
        words = [w for name in (metric.name, *metric.of) for w in (name, re.sub(r"_p\d+_", "_pXX_", name))]
        assert any(fnmatch.filter(named, word) for word in words), metric.name
        assert metric.anchor in anchors, metric.name


@pytest.mark.page
def test_a_browser_draws_every_plot_without_an_error_or_a_barrier(written: Path) -> None:
    with browser.opened(written) as (page, said):
        assert page.locator(".plot.js-plotly-plot").count() == 5
        buttons = {b.get_attribute("data-title").lower() for b in page.locator("[data-title]").all()}
        local = {"download plot as a png", "pan", "zoom", "zoom in", "zoom out", "reset axes"}
        assert buttons <= local, "a button that sends the data elsewhere?"
        assert not said
        assert not browser.barriers(page)
