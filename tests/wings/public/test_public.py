"""A result beside published figures: a ratio where both are one quantity, else the reason and what would measure it."""

import json
from dataclasses import replace

import pytest

import edgescope
from edgescope.cli.main import main
from edgescope.devices import manifest
from edgescope.records import Absent, Machine, Measured, Trial
from edgescope.store.results import Store
from edgescope.wings.public import numbers
from edgescope.wings.public.page import document
from edgescope.wings.public.verb import beside, board_of, public
from making import result


def of(trial=None, machine=None, **metrics):
    made = result(trial or Trial(model="resnet50"))
    fields = {name: Measured(value, "s", 0.9 * value, 1.1 * value, 40) for name, value in metrics.items()}
    return replace(made, metrics=made.metrics | fields, **({"machine": machine} if machine else {}))


def number(**keys):
    row = next(
        n for n in numbers.every() if n.definition.name == "mlperf_single_stream" and n.name == "resnet50"
    )
    definition = numbers.definitions()[keys.pop("definition", "mlperf_single_stream")]
    return replace(row, definition=definition, **keys)


def test_the_same_quantity_has_a_ratio_with_our_interval():
    row = beside(number(value=0.002), [of(latency_p90_s=0.004)])
    assert row.comparable and row.ratio.value == pytest.approx(2.0)
    assert (row.ratio.lo, row.ratio.hi) == (pytest.approx(1.8), pytest.approx(2.2))


def test_what_differs_is_said_with_the_flag_that_can_be_tried_here():
    row = beside(
        number(precision="int8", batch="1", board="orin_nano", power_mode="MaxQ"), [of(latency_p90_s=0.004)]
    )
    assert "precision fp32 -> int8" in row.differs and row.tries == ("--precision int8",)
    assert any(text.startswith("board not stated -> orin_nano") for text in row.differs)
    assert any(text.startswith("mode") for text in row.differs)
    same = beside(number(precision="fp32", batch="1", board="", power_mode=""), [of(latency_p90_s=0.004)])
    assert not [text for text in same.differs if not text.startswith("software")] and not same.tries


@pytest.mark.parametrize(
    ("definition", "trial", "tries"),
    [
        ("mlperf_single_stream", Trial(model="resnet50", batch=8), ("--batch 1",)),
        ("mlperf_single_stream", Trial(model="resnet50", scenario="offline"), ("--scenario single_stream",)),
        ("mlperf_multi_stream", Trial(model="resnet50"), ("--scenario multi_stream", "--batch 8")),
        ("mlperf_offline", Trial(model="resnet50"), ("--scenario offline",)),
        ("edgellm_decode", Trial(model="resnet50"), ("--workload generate",)),
        ("hailo_fps", Trial(model="resnet50"), ()),
    ],
)
def test_another_quantity_has_no_ratio_and_says_what_would_measure_it(definition, trial, tries):
    row = beside(number(definition=definition), [of(trial, latency_p90_s=0.004)])
    assert not row.comparable and isinstance(row.ratio, Absent) and row.ratio.reason
    assert row.tries == tries


def test_a_quantity_that_the_run_lacks_is_absent_with_its_reason():
    row = beside(number(), [replace(of(), queries=None, window=None)])
    assert not row.comparable and isinstance(row.ours, Absent)


def test_the_nearest_settings_come_first():
    found = public([of(Trial(model="resnet50", precision="int8"), latency_p90_s=0.004)])
    counts = [len(row.differs) for row in found.rows if row.comparable]
    assert counts == sorted(counts) and counts
    kinds = [row.comparable for row in found.rows]
    assert kinds == sorted(kinds, reverse=True)


def test_a_board_is_known_by_its_name():
    jetson = Machine({"jetson": {"board": "Jetson Orin Nano"}}, {})
    assert board_of(of(machine=jetson)) == "orin_nano" and board_of(of()) == ""


@pytest.mark.parametrize("model", ["resnet50#12ab", "/models/resnet50.onnx#12ab", "resnet50@weights.pth"])
def test_files_and_pinned_names_are_known_by_their_model(model):
    assert {row.number.name for row in public([of(Trial(model=model))]).rows} == {"resnet50"}


@pytest.mark.process  # git, for the machine's description
def test_the_command_lists_and_compares(tmp_path, capsys):
    assert main(["public", "--system", "orin_nano", "--json", "--store", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    assert rows and {row["board"] for row in rows} == {"orin_nano"} and all(row["source"] for row in rows)
    store = Store(tmp_path)
    store.save(replace(of(latency_p90_s=0.004), machine=manifest.here()))
    assert main(["public", "latest", "--store", str(tmp_path), "-o", str(tmp_path / "p.md"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    same = [row for row in rows if "value" in row["ratio"] and row["definition"] == "mlperf_single_stream"]
    assert same and all(row["ratio"]["value"] == pytest.approx(0.004 / row["value"]) for row in same)
    assert "Apache-2.0" in (tmp_path / "p.md").read_text()
    assert main(["public", "--model", "nonsense", "--store", str(tmp_path)]) == 2


def test_python_has_it_and_its_rows_are_a_table():
    found = edgescope.public(model="resnet50", system="agx_xavier")
    assert len(found.records()) == len(found.rows) == len(document(found).data["figures"])
    assert "agx_xavier" in str(found)
