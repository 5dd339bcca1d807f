"""The table of metrics: what it may say, and that one more table is seen everywhere."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import Trial, metrics
from edgescope.analysis.cells.choices import belongs, choices, load
from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.concurrency import setup
from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.cells.question import in_words
from edgescope.analysis.cells.variants import table
from edgescope.errors import UsageError
from edgescope.metrics import METRICS, Metric, read
from edgescope.records import Measured
from edgescope.report import recommendation, write
from edgescope.report.chapter import chapter
from edgescope.report.render import json as as_json
from edgescope.report.render import terminal
from edgescope.report.result import listing
from edgescope.report.variants import document
from making import result

FETCH = """
[fetch_s]
title = "Fetching"
heading = "fetch"
unit = "s"
better = "lower"
bound = ["fetch"]
objective = "fetch"
best = "shortest fetching"
shown = ["list", "table", "compare", "pareto"]
workloads = ["training"]
meaning = "Seconds in which a step waits for its samples."
"""


@pytest.fixture
def fetch():
    """A metric that is added for one test."""
    before = dict(METRICS)
    metrics.add(FETCH)
    yield METRICS["fetch_s"]
    METRICS.clear()
    METRICS.update(before)


def steps(backend: str, seconds: float, workload: str = "training"):
    """Three replicates of one cell of another workload, a little apart."""
    trial = {"model": "null", "backend": backend, "workload": workload}
    return [
        result(Trial(**trial, replicate=n), metrics={"fetch_s": Measured(seconds * (1 + n / 1e4), "s")})
        for n in range(3)
    ]


def test_one_table_is_a_column_of_every_view(fetch, capsys, tmp_path):
    found = [*steps("torch_eager", 0.02), *steps("null", 0.01)]
    terminal.listing(listing(found))
    assert "  fetch" in capsys.readouterr().out.splitlines()[0]
    asked = wanted("fetch", ["fetch<=15ms"])
    page = document([chapter(found, asked)])
    terminal.show(page)
    out = capsys.readouterr().out
    assert "  fetch" in out and "10 ms" in out
    assert json.loads(as_json.text(page))["rows"][1]["fetch_s"]["value"] > 0
    ratio = next(r for r in compare(found[:3], found[3:]).rows if r.metric == "fetch_s")
    assert ratio.ratio.value == pytest.approx(0.5) and ratio.judgement.value == "FASTER"
    page = write(found, tmp_path / "page.html").read_text()
    assert 'href="#def-fetch_s"' in page and "waits for its samples" in page
    assert "fetch_s" in write(found, tmp_path / "page.csv").read_text().splitlines()[0]


def test_one_table_can_be_bounded_and_be_the_best_at(fetch):
    from edgescope.analysis.cells.recommend import recommend

    found = [*steps("torch_eager", 0.02), *steps("null", 0.01)]
    slow, fast = choices(found, wanted("fetch", ["fetch<=15ms"]))[0]
    assert slow.broken[0].startswith("fetch<=15ms broken: 20") and not fast.broken
    answer = recommend(found, wanted("fetch", ["fetch<=15ms"]))
    assert answer.pick.cell == fast.cell and "shortest fetching" in answer.reasons[0]
    assert "fetch_s" in recommend(found, wanted("fetch")).axes
    terminal.show(recommendation.document(answer))


def test_other_workloads_do_not_have_it(fetch):
    assert "fetch_s" not in table(steps("null", 0.01, "inference")).rows[0].metrics
    assert fetch in metrics.shown("table", "training") and fetch not in metrics.shown("table", "inference")


@given(st.from_regex(r"[a-z]{1,8}_x", fullmatch=True))
def test_a_key_that_no_metric_has_is_refused(key):
    with pytest.raises(UsageError, match="E-METRIC-1") as caught:
        read(f'[x]\ntitle = "X"\n{key} = 1\n')
    assert key in caught.value.evidence


@pytest.mark.parametrize(
    "text",
    ['unit = "s"', 'title = "X"\nshown = ["all"]', 'title = "X"\nbetter = "more"', "unit =", "title = 3"],
)
def test_what_no_table_could_show_is_refused(text):
    with pytest.raises(UsageError, match="E-METRIC-1"):
        read(f"[x]\n{text}")


def test_a_metric_answers_for_itself_unless_the_table_says_otherwise():
    assert read('[x]\ntitle = "X"')["x"] == Metric(name="x", title="X", of=("x",))
    assert read('[x]\ntitle = "X"\nof = ["a", "b"]')["x"].of == ("a", "b")


def test_every_word_of_a_constraint_and_an_objective_is_one_metrics_own():
    bounds = [word for m in METRICS.values() for word in m.bound]
    goals = [m.objective for m in METRICS.values() if m.objective]
    assert len(set(bounds)) == len(bounds) and len(set(goals)) == len(goals)
    assert all(m.better and m.unit for m in METRICS.values() if m.bound or m.objective)
    assert all(m.best for m in METRICS.values() if m.objective)


def test_cells_of_two_workloads_answer_two_questions():
    training, inference = (steps("null", 0.01, work)[0].trial for work in ("training", "inference"))
    assert belongs(training, load(training)) and not belongs(training, load(inference))
    assert in_words(training).startswith("training, ") and setup(training) != setup(inference)


def test_every_number_says_how_the_figures_of_several_workers_become_one():
    lacking = [m.name for m in METRICS.values() if m.unit and m.merge not in metrics.MERGED]
    assert not lacking
    with pytest.raises(UsageError, match="E-METRIC-1"):
        read('[x_s]\ntitle = "X"\nmerge = "guess"')
    page = (Path(__file__).parents[1] / "docs" / "add-a-metric.md").read_text(encoding="utf-8")
    assert all(f"`{rule}`" in page for rule in metrics.MERGED)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("frames", "frames"),
        ("latency_p50_s", "p50_s"),
        ("sobel_busy_s", "*_busy_s"),
        ("decode_device_s", "decode_device_s"),
        ("stall_handover_s", "stall_*_s"),
        ("what_is_this", None),
    ],
)
def test_a_figure_of_a_result_is_found_by_name_by_what_answers_for_it_or_by_pattern(name, known):
    found = metrics.find(name)
    assert (found and found.name) == known
