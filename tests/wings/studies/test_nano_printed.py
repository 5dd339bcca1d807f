"""The study's figures as data: what is misprinted follows from them, and what they are held against is the zoo's."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.models import zoo
from edgescope.wings.studies.jetson_nano.table import MISPRINT, StudyRow, study

ROWS = {r.ours: r for r in study().rows}
CLASSIFIERS = [m for m, r in ROWS.items() if not r.rebuilt]


def wrong(model, column):
    return [(m.printed, m.correct) for m in ROWS[model].misprints if m.column == column]


def test_there_are_eleven_rows_and_their_means_are_the_papers():
    assert len(ROWS) == 11
    assert study().arithmetic_mean == pytest.approx(7.07, abs=0.005)
    assert study().geometric_mean == pytest.approx(6.04, abs=0.005)


def test_the_three_misprinted_ratios_are_marked_with_what_they_should_be():
    assert wrong("alexnet", "ratio") == [("2.09", "5.61")]
    assert wrong("densenet121", "ratio") == [("2.16", "2.75")]
    assert wrong("har_autoencoder", "ratio") == [("30.71", "3.07")]
    right = set(ROWS) - {"alexnet", "densenet121", "har_autoencoder"}
    assert not [m for m in right if wrong(m, "ratio")]


def test_two_speed_ups_and_one_parameter_count_contradict_the_study_itself():
    assert {m for m in ROWS if wrong(m, "speed-up")} == {"squeezenet1_1", "densenet121"}
    assert {m for m in ROWS if wrong(m, "parameters")} == {"alexnet"}
    assert "0.6638 s / 0.1184 s = 5.606" in str(ROWS["alexnet"].misprints[0])


@pytest.mark.parametrize("model", ROWS)
def test_what_the_rows_are_held_against_is_the_zoos_own_count(model):
    known, row = zoo.table()[model], ROWS[model]
    assert (row.counted_params, row.counted_macs) == (known["params"], known["macs"])
    values = 1
    for n in known["input"]:
        values *= n
    assert row.input == values
    assert row.outputs == known.get("classes", 1000)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_the_flops_column_mixes_two_units(model):
    twice = {"alexnet", "squeezenet1_1", "shufflenet_v2_x1_0"}
    row = ROWS[model]
    assert row.flops_count(row.counted_macs) == ("2 x MACs" if model in twice else "MACs")
    assert row.flops_count(None) == "unknown" and row.flops_count(row.flops * 3) == "unknown"


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(-0.5, 0.5))
@pytest.mark.slow
def test_a_quotient_is_a_misprint_exactly_beyond_one_per_cent(before, after, off):
    row = StudyRow("n", "n", before, after, "1", "1", 1, 1)
    printed = repr(row.recomputed * (1 + off))
    marked = [m for m in replace(row, ratio=printed).misprints if m.column == "ratio"]
    if abs(abs(off) - MISPRINT) > 1e-9:
        assert bool(marked) == (abs(off) > MISPRINT)


def test_a_two_class_twin_stands_for_its_original():
    assert study().row("resnet50_2class") is ROWS["resnet50"]
    assert study().row("resnet18") is None
