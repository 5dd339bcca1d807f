"""One load, one table: what answers different questions is neither compared nor chosen among on a page."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from edgescope.analysis.cells.row import in_words, of_harness, question_id
from edgescope.errors import Message
from edgescope.records import Result, Status, Trial
from edgescope.report import write
from edgescope.report.chapter import chapters
from made_results import KINDS, study

BASE = Trial(model="m", backend="onnxruntime")
#: What is offered, requested or counted: other figures.
OTHER_QUESTIONS = [
    {"scenario": "fixed_rate", "rate": 20.0},
    {"scenario": "server", "rate": 20.0},
    {"scenario": "mlperf_server", "rate": 20.0},
    {"scenario": "server", "rate": 30.0},
    {"scenario": "burst", "rate": 30.0, "scenario_options": {"burst_size": 8}},
    {"batch": 4},
    {"processes": 2},
    {"in_flight": 2},
    {"colocated": "resnet50"},
    {"io": "device"},
    {"workload": "null"},
    {"shapes": {"x": (1, 8)}},
    {"scenario": "offline"},
]
#: What a deployer chooses among.
CHOICES = [
    {"backend": "openvino"},
    {"precision": "int8"},
    {"device": "cuda"},
    {"options": {"threads": 1}},
    {"sharing": "pinned"},
    {"mode": "15W"},
    {"seed": 3},
    {"replicate": 2},
    {"max_s": 20.0},
]


def test_every_load_is_a_question_of_its_own():
    every = [BASE, *(replace(BASE, **keys) for keys in OTHER_QUESTIONS)]
    assert len({question_id(t) for t in every}) == len(every)
    assert len({in_words(t) for t in every}) == len(every)


@pytest.mark.parametrize("keys", CHOICES, ids=str)
def test_what_is_chosen_among_answers_the_same_question(keys):
    assert question_id(replace(BASE, **keys)) == question_id(BASE)


def test_offline_the_batch_and_the_processes_are_choices():
    offline = [replace(BASE, scenario="offline", batch=n, processes=p) for n in (1, 8) for p in (1, 2)]
    assert len({question_id(t) for t in offline}) == 1


def test_a_shape_is_compared_without_its_batch():
    trials = [replace(BASE, scenario="offline", batch=n, shapes={"x": (n, 8)}) for n in (1, 4)]
    assert question_id(trials[0]) == question_id(trials[1])


def loaded(results: list[Result], **keys: object) -> list[Result]:
    return [replace(r, id=f"{r.id}x", trial=replace(r.trial, **keys)) for r in results]


@pytest.fixture
def mixed() -> list[Result]:
    closed = study(KINDS[:4], 3)
    return [*closed, *loaded(closed[:3], scenario="server", rate=30.0)]


def test_one_load_one_table_one_pick(mixed):
    found = chapters(mixed)
    assert [c.load for c in found] == ["single_stream", "server 30/s"]
    for chapter in found:
        assert len({question_id(r.trial) for r in chapter.results}) == 1
        assert chapter.pick.row is None or chapter.pick.row.cell in chapter.groups
    assert sum(len(c.table.rows) for c in found) == len({r.trial.cell for r in mixed})


@pytest.mark.slow
def test_a_page_of_one_variant_says_what_was_measured(tmp_path):
    alone = study(KINDS[2:3], 3)
    chapter = chapters(alone)[0]
    assert chapter.pick.row is None and chapter.alone is chapter.table.rows[0]
    text = write(alone, tmp_path / "p.html").read_text()
    assert "Keep the baseline" not in text and "No recommendation" not in text and "Measured" in text
    assert (
        "Nothing else was measured under this load" in text and ">Speed-up<" not in text.split("glossary")[0]
    )
    assert "(pick)" not in write(alone, tmp_path / "p.md").read_text()
    row = next(csv.DictReader(write(alone, tmp_path / "p.csv").open()))
    assert row["pick"] == "" and row["load"] == "single_stream"


@pytest.mark.parametrize("keys", [{"model": "null"}, {"model": "null", "backend": "null"}])
def test_the_harness_is_never_recommended(keys):
    every = [
        replace(r, trial=replace(r.trial, **keys, options={"n": i // 3}))
        for i, r in enumerate(study(KINDS[:3], 3))
    ]
    assert of_harness(every[0].trial)
    chapter = chapters(every)[0]
    assert chapter.pick.row is None and "nothing to choose" in str(chapter.pick.reason)


def test_an_offline_load_is_judged_by_its_throughput():
    from edgescope.records import Absent, Measured

    rows = loaded(study(KINDS[:3], 3), scenario="offline")
    rows = [
        replace(r, metrics={**r.metrics, "latency_p50_s": Absent("offline"),
                            "throughput_sps": Measured(100.0 + i, "samples/s")})
        for i, r in enumerate(rows)
    ]  # fmt: skip
    chapter = chapters(rows)[0]
    assert chapter.pick.row is not None and "highest throughput" in str(chapter.pick.reason)


@pytest.mark.slow
def test_what_did_not_run_is_listed_apart(tmp_path):
    results = study(KINDS[:3], 3)
    failed = replace(
        results[0],
        id="f",
        trial=replace(results[0].trial, options={"nosuch": 1}),
        status=Status.FAILED,
        reason=Message("E-OPT-1", "no such option"),
        queries=None,
        window=None,
        verification=None,
    )
    text = write([*results, failed], tmp_path / "p.html").read_text()
    table, apart = text.index("Before and after"), text.index("Not measured")
    assert table < apart < text.index("E-OPT-1")
    assert "<tr data-cell" not in text[apart : apart + 200]
    words = write([*results, failed], tmp_path / "p.md").read_text()
    assert words.index("## Not measured") < words.index("failed: E-OPT-1")


@pytest.mark.slow
def test_a_page_of_several_loads_begins_with_one_line_each(mixed, tmp_path: Path):
    text = write(mixed, tmp_path / "p.html").read_text()
    nav = text[text.index("<nav") : text.index("</nav>")]
    assert nav.count("#c1") == nav.count("#c2") == 1 and "server 30/s" in nav
    assert text.count("What was measured where") == 1  # the machine is said once
    assert text.count("<details><summary>Plots") == 2


@pytest.mark.slow
def test_a_figure_too_small_for_its_column_is_not_printed_as_nothing(tmp_path):
    tiny = replace(KINDS[0], backend="null", ms=0.0005, passed=False)
    text = write([*study(KINDS[:2], 3), *study([tiny], 1)], tmp_path / "p.html").read_text()
    row = text[text.index("<s>null fp32 b1</s>") :]
    assert "µs" in row[:900] or "ns" in row[:900]
    assert ">0.00<" not in row[:900]
