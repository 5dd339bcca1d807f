"""The table of metrics: what it may say, and that one more table is seen everywhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import Trial, metrics
from edgescope.analysis.cells.compare import compare
from edgescope.analysis.cells.concurrency import setup
from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.cells.row import in_words
from edgescope.analysis.cells.variants import table
from edgescope.errors import UsageError
from edgescope.metrics import METRICS, Metric, read
from edgescope.records import Measured
from edgescope.report import data, terminal, write
from edgescope.report.chapter import chapter
from edgescope.report.result import listing
from edgescope.report.variants import document
from edgescope.wings.recommend import recommendation
from edgescope.wings.recommend.candidates import choices, load
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


@pytest.mark.slow
def test_one_table_is_a_column_of_every_view(fetch, capsys, tmp_path):
    found = [*steps("torch_eager", 0.02), *steps("null", 0.01)]
    terminal.listing(listing(found))
    assert "  fetch" in capsys.readouterr().out.splitlines()[0]
    asked = wanted("fetch", ["fetch<=15ms"])
    page = document([chapter(found, asked)])
    terminal.show(page)
    out = capsys.readouterr().out
    assert "  fetch" in out and "10 ms" in out
    assert json.loads(data.json_text(page))["rows"][1]["fetch_s"]["value"] > 0
    ratio = next(r for r in compare(found[:3], found[3:]).rows if r.metric == "fetch_s")
    assert ratio.ratio.value == pytest.approx(0.5) and ratio.judgement.value == "FASTER"
    page = write(found, tmp_path / "page.html").read_text()
    assert 'href="#def-fetch_s"' in page and "waits for its samples" in page
    assert "fetch_s" in write(found, tmp_path / "page.csv").read_text().splitlines()[0]


def test_one_table_can_be_bounded_and_be_the_best_at(fetch):
    from edgescope.wings.recommend.recommendation import recommend

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
@pytest.mark.slow
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
    assert load(training) == load(replace(training, replicate=3)) != load(inference)
    assert in_words(training).startswith("training, ") and setup(training) != setup(inference)


def test_every_number_says_how_the_figures_of_several_workers_become_one():
    lacking = [m.name for m in METRICS.values() if m.unit and m.merge not in metrics.MERGED]
    assert not lacking
    with pytest.raises(UsageError, match="E-METRIC-1"):
        read('[x_s]\ntitle = "X"\nmerge = "guess"')
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "add-a-metric.md").read_text(encoding="utf-8")
    assert all(f"`{rule}`" in page for rule in metrics.MERGED)


MARK = 'title = "X"\nunit = "s"\nmerge = "rows"\nof_mark = '


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x_s", MARK + '"x"'),
        ("x_s", MARK + '"x"\nsince = "y"\nmark_quantile = 0.9'),
        ('"*_x_s"', MARK + '"*_end"'),
        ('"*_x_s"', MARK + '"*_end"\nsince = "*_begin"'),
    ],
)
def test_a_metric_may_be_of_a_mark(name, text):
    (found,) = read(f"[{name}]\n{text}").values()
    assert found.of_mark and found.quantile is None and found.mark_quantile in (0.5, 0.9)


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("x_s", 'title = "X"\nsince = "y"', "since"),
        ("x_s", 'title = "X"\nmark_quantile = 0.9', "mark_quantile"),
        ("x_s", MARK + '"*_end"', "of_mark"),
        ('"*_x_s"', MARK + '"end"', "of_mark"),
        ('"*_x_s"', MARK + '"*_end"\nsince = "begin"', "of_mark"),
        ("x_s", MARK + '"x"\nsince = "*_begin"', "of_mark"),
        ('"*_*_s"', MARK + '"*_*"', "of_mark"),
        ("x_s", MARK + '"x"\nmark_quantile = 1.0', "mark_quantile"),
        ("x_s", MARK + "7", "of_mark"),
        ("x_s", 'title = "X"\nunit = "s"\nmerge = "mean"\nof_mark = "x"', "merge"),
        ("x_s", 'title = "X"\nmerge = "rows"\nof_mark = "x"', "unit"),
    ],
)
def test_a_metric_that_is_not_clear_about_its_mark_is_refused(name, text, wrong):
    with pytest.raises(UsageError, match="E-METRIC-1") as caught:
        read(f"[{name}]\n{text}")
    assert wrong in caught.value.evidence


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("frames", "frames"),
        ("infer_part_p99_s", "*_part_p99_s"),
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


PLAIN = """
[x_s]
title = "X of it"
"""
FULL = """
[x_s]
title = "X of it"
heading = "x"
better = "higher"
of = ["x_s", "old_x_s"]
quantile = 0.25
bound = ["x", "ex"]
objective = "most"
scope = true
artifact = true
shown = ["list", "table"]
workloads = ["training"]
"""


def test_what_a_table_does_not_say_a_metric_is_not():
    plain = read(PLAIN)["x_s"]
    told = ("scope", "artifact", "measure", "largest", "optional", "higher")
    assert not any(getattr(plain, name) for name in told)
    assert (plain.quantile, plain.head, plain.bound, plain.shown) == (None, "X of it", (), ())
    assert plain.belongs("training") and plain.belongs("anything")
    full = read(FULL)["x_s"]
    assert full.higher and full.scope and full.artifact and not full.largest and full.head == "x"
    assert full.belongs("training") and not full.belongs("inference")


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("quantile = 1", "quantile"),
        ('quantile = "p50"', "quantile"),
        ('scope = "yes"', "scope"),
        ("artifact = 1", "artifact"),
        ("measure = 0", "measure"),
        ("largest = 1", "largest"),
        ("optional = 1", "optional"),
        ('of = "x"', "of"),
        ('bound = "x"', "bound"),
        ('workloads = "x"', "workloads"),
        ('shown = ["list", "all"]', "all"),
        ('merge = "guess"', "merge"),
        ('better = "more"', "better"),
        ("unit = 3", "unit"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(more, wrong):
    with pytest.raises(UsageError) as caught:
        read(PLAIN + more)
    assert (caught.value.code, caught.value.evidence) == ("E-METRIC-1", f"wrong or missing: {wrong}")
    assert "x_s" in caught.value.what


def test_a_title_is_needed_and_a_text_that_is_no_table_says_why():
    with pytest.raises(UsageError) as caught:
        read("[x_s]\n")
    assert caught.value.evidence == "wrong or missing: title"
    with pytest.raises(UsageError) as caught:
        read("[x_s\n")
    assert "line 1" in caught.value.evidence and caught.value.__cause__ is not None


@pytest.fixture
def only():
    """A table of two metrics in the place of all."""
    before = dict(METRICS)
    METRICS.clear()
    metrics.add(FULL)
    metrics.add(
        '["y_*"]\ntitle = "Y"\nshown = ["table"]\n[y_a]\ntitle = "Y A"\nquantile = 0.75\nbound = ["y"]'
    )
    yield METRICS
    METRICS.clear()
    METRICS.update(before)


def test_words_and_views_are_those_of_the_table(only):
    x, y, one = only.values()
    assert metrics.objectives() == {"most": x, "x": x, "ex": x} and next(iter(metrics.objectives())) == "most"
    assert metrics.bounded() == {"x": x, "ex": x, "y": one}
    assert metrics.quantiles() == {"x_s": 0.25, "y_a": 0.75}
    assert metrics.shown("table") == [x, y] and metrics.shown("list") == [x] and metrics.shown("pareto") == []
    assert metrics.shown("table", "inference") == [y] and metrics.shown("table", "training") == [x, y]
    assert [metrics.find(name) for name in ("x_s", "old_x_s", "y_a", "y_b", "z")] == [x, x, one, y, None]
    assert metrics.scoped("x_s") and not metrics.scoped("y_a") and not metrics.scoped("z")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("old_x_s", "x"),
        ("x_s", "x"),
        ("y_a", "Y A"),
        ("my.module:score#0123", "score"),
        ("score", "score"),
        ("a:b:c", "c"),
    ],
)
def test_a_method_of_the_gate_is_called_as_its_metric_or_as_the_users_function(only, method, words):
    assert metrics.judged_by(method) == words
