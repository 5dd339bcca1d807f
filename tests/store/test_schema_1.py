"""A store that an earlier edgescope wrote (schema 1): it reads, lists, compares and reports with the same numbers.

The results in schema_1/ were measured by commit 3c5b1da, the report and the comparison made of them by 21dcb19, the
last before schema 2. Paths and the kernel's name were made neutral, and LoadGen's long log was dropped.
"""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgescope.cli.main import main
from edgescope.errors import ExitCode, Message
from edgescope.records import Status, Trial, codec
from edgescope.records.codec import field_to_json
from edgescope.store.results import Store
from edgescope.study import grid

HERE = Path(__file__).parent / "schema_1"
NULL = {"model": "null", "backend": "null", "warmup": 0.1, "min_s": 0.3, "max_s": 0.3}
SLOW = NULL | {"options": {"delay_us": 700}}


@pytest.fixture(scope="module")
def found():
    store = Store(HERE / "results")
    results = list(store.results())
    assert not store.problems
    return {r.id[:4]: store.full(r) for r in results}


def test_every_result_is_read_with_its_figures(found):
    assert len(found) == 13
    for result in found.values():
        folder = Store(HERE / "results").folder(result)
        data = json.loads((folder / "result.json").read_text())
        assert data["schema_version"] == 1
        stored = {codec.RENAMED_METRICS.get(name, name): field for name, field in data["metrics"].items()}
        assert {name: field_to_json(field) for name, field in result.metrics.items()} == stored
        assert (
            result.status is Status(data["status"]) and result.verdict.trust.value == data["verdict"]["trust"]
        )
        assert (result.queries is not None) == (folder / "queries.parquet").exists()


@pytest.mark.parametrize(
    ("prefix", "asked"),
    [
        ("4a26", NULL | {"options": {"delay_us": 800}}),
        ("fe9d", NULL | {"options": {"delay_us": 900}, "batch": 4, "scenario": "offline"}),
        ("4ccb", SLOW | {"scenario": "burst", "rate": 200, "scenario_options": {"burst_size": 4}}),
        (
            "b4eb",
            SLOW
            | {"scenario": "idle_gap", "scenario_options": {"gaps_ms": "0,5"}, "min_s": 1.0, "max_s": 10.0},
        ),
        ("a384", SLOW | {"processes": 2, "colocated": "null"}),
        ("e46c", SLOW | {"processes": 2, "sharing": "pinned"}),
        (
            "d6a4",
            SLOW | {"scenario": "mlperf_server", "rate": 50, "scenario_options": {"target_latency_ms": 15}},
        ),
    ],
)
@pytest.mark.wings
def test_a_sweep_of_the_same_cells_goes_on_from_it(found, prefix, asked):
    (trial,) = grid.grid(asked)
    assert trial.id == found[prefix].trial.id


def test_what_arrivals_meant_is_said_by_name(found):
    assert dict(found["abcf"].trial.scenario_options) == {
        "trace": "/home/user/cams.txt#c8b149e186ba",
        "loop": True,
    }
    assert found["31ba"].trial.min_agreement == 0.97 and found["31ba"].trial.sharing == Trial.sharing
    assert found["a384"].metrics["colocated_throughput_sps"].value > 0
    assert codec._OPTIONS["idle_gap"](codec.USUAL_GAPS) == {}


ADVICE = {
    "1 pair cannot bound a ratio": "1 pair gives no interval",
    "use --rounds 5": "use more pairs (optimize --budget, sweep --replicates)",
}
"""What helps an absent figure, in the words of then and of today."""
FIGURES = ("speedup", "p50", "p99", "throughput", "peak", "power", "energy", "accuracy")


@pytest.mark.slow
def test_the_report_has_the_same_numbers(tmp_path):
    """Each figure of each cell, with its ends, its n and why it is absent; labels have today's words."""

    def rows(path):
        for row in csv.DictReader(io.StringIO(path.read_text())):
            figures = {k: v for k, v in row.items() if k.partition("_")[0] in FIGURES}
            yield {k: row[k] for k in ("model", "status", "verdict", "pick")} | figures

    page = tmp_path / "report.csv"
    assert main(["report", "--store", str(HERE / "results"), "-o", str(page)]) == 0
    new, old = list(rows(page)), list(rows(HERE / "report.csv"))
    for row in old:
        for then, today in ADVICE.items():
            row["speedup_absent"] = row["speedup_absent"].replace(then, today)
    assert len(old) == 12 and len(old[0]) > 30
    assert sorted(map(str, new)) == sorted(map(str, old))


@pytest.mark.slow
def test_the_comparison_has_the_same_numbers(capsys):
    assert main(["compare", "4a26", "e093", "--store", str(HERE / "results"), "--json"]) == ExitCode.UNDECIDED
    new, old = json.loads(capsys.readouterr().out), json.loads((HERE / "compare.json").read_text())
    for row, before in zip(new["rows"], old["rows"], strict=True):
        if "1 pair cannot bound a ratio" in before["ratio"].get("absent", ""):  # today it is shown as a point
            assert row["ratio"]["lo"] is None and row["ratio"]["value"] > 0
            row["ratio"] = before["ratio"]
    assert new["rows"] == old["rows"] and new["blockers"] == old["blockers"]


@pytest.mark.process
def test_the_list_names_every_result(capsys):
    assert main(["list", "--store", str(HERE / "results"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed["results"] if isinstance(listed, dict) else listed) == 13


def test_a_message_is_a_record_that_reads_as_the_line_did(found):
    assert re.match(r"E-PREC-1: onnxruntime .* bf16 ", str(found["4841"].reason))
    assert found["4841"].reason.code == "E-PREC-1" and found["4841"].reason.fix == "--precision fp32 or int8"
    for result in found.values():
        folder = Store(HERE / "results").folder(result)
        data = json.loads((folder / "result.json").read_text())
        assert list(map(str, result.warnings)) == data["warnings"]
        assert str(result.reason or "") == data["reason"]


WORDS = st.text(st.characters(blacklist_characters="().:"), max_size=20).map(str.strip)
ONE = st.builds(
    Message,
    st.sampled_from(["E-A-1", "W-THR-12", "I-RST"]),
    WORDS.filter(bool),
    evidence=WORDS | st.just("a (b). c"),
    effect=WORDS,
    fix=WORDS,
)


@given(ONE)
def test_any_line_is_read_as_the_message_that_said_it(message):
    assume(" Try: " not in str(message).replace(f" Try: {message.fix}", ""))
    assert str(codec.message(str(message))) == str(message)


@given(st.text())
def test_any_text_is_some_message_that_holds_it(text):
    read = codec.message(text)
    assert (read.code == "E-OLD-1" and read.what == text) or str(read) == text.replace("-CREW-", "-WORKER-")


def test_codes_of_workers_are_called_as_today():
    assert codec.message("E-CREW-2: worker 1 died (x). No number.").code == "E-WORKER-2"


def test_a_result_that_is_not_whole_is_still_refused():
    with pytest.raises(KeyError):
        codec.migrated({"schema_version": 1, "id": "odd"})
