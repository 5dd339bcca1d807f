"""The table of published figures keeps its schema: a row that breaks it fails here, a contributor's too."""

import csv
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.metrics import find
from edgescope.wings.public import numbers

PERMISSIVE = {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "CC0-1.0"}
UNITS = {"s", "samples/s", "tokens/s", "requests/s", "images/s", "1"}


def test_every_row_has_a_value_a_unit_a_definition_a_source_and_a_licence():
    rows = numbers.every()
    assert len(rows) >= 900
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.value > 0 and math.isfinite(row.value), row.id
        assert row.unit in UNITS, row.id
        assert row.power_w is None or 0 < row.power_w < 1000, row.id
        assert row.licence in PERMISSIVE, row.id
        assert row.source and re.fullmatch(r"[0-9a-f]{7,40}", row.commit), row.id
        assert row.model and row.name, row.id
        assert re.fullmatch(r"(20\d\d(-(0[1-9]|1[0-2]))?)?", row.published), row.id
        assert row.processor in ("", "cpu"), row.id


def test_no_cell_breaks_a_line_or_has_spaces_around():
    with (numbers.HERE / "numbers.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert all(value == " ".join(value.split()) for value in row.values()), row["id"]


def test_every_definition_is_a_metric_of_ours_or_says_why_there_is_none():
    used = {row.definition.name for row in numbers.every()}
    assert used == set(numbers.definitions())
    for what in numbers.definitions().values():
        assert bool(what.ours) != bool(what.apart), what.name
        assert not what.ours or find(what.ours) is not None or what.ours.startswith("latency_"), what.name
        assert all(registry.scenario(name) for name in what.scenarios), what.name
        assert what.workload in registry.WORKLOADS, what.name


def test_milliseconds_are_seconds_and_a_known_figure_is_as_its_source_has_it():
    (found,) = (
        row
        for row in numbers.every()
        if (row.name, row.board, row.power_mode) == ("resnet50", "agx_orin_32", "MaxQ")
        and row.definition.name == "mlperf_single_stream"
        and "inference_results_v2.0" in row.source
    )
    assert found.value == pytest.approx(0.000920, rel=0.01) and found.power_w == pytest.approx(27.7, rel=0.01)
    assert all(row.value < 100 for row in numbers.every() if row.unit == "s")


def test_rows_are_chosen_by_what_they_have_and_a_near_name_is_offered():
    found = numbers.chosen(numbers.every(), board="agx_xavier", name="ResNet-50", precision="")
    assert (
        found
        and {row.board for row in found} == {"agx_xavier"}
        and {row.name for row in found} == {"resnet50"}
    )
    for column, wrong, flag in (
        ("board", "orin_nanu", "--system orin_nano"),
        ("name", "resnet5O", "--model resnet"),
    ):
        with pytest.raises(UsageError) as refused:
            numbers.chosen(numbers.every(), **{column: wrong})
        assert refused.value.message.code == "E-PUBLIC-1" and refused.value.message.fix.startswith(flag)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("MobileNet_V2_1.0_224_quantized", "mobilenet_v2"),
        ("mobilenet_v2_1.0_224_non_quantized", "mobilenet_v2"),
        ("ResNet-50", "resnet50"),
        ("efficientnet_lite0_quantized", "efficientnet_lite0"),
    ],
)
def test_spellings_of_one_model_are_one(one, other):
    assert numbers.plain(one) == numbers.plain(other)


def test_other_widths_and_versions_are_other_models():
    names = ["mobilenet_v2", "mobilenet_v2_1_4", "mobilenet_v1", "mobilenet_v3", "resnet50", "resnet_v1_50"]
    assert len({numbers.plain(name) for name in names}) == len(names)


@given(st.text(max_size=20))
def test_any_name_has_a_plain_form_that_stays(name):
    assert numbers.plain(numbers.plain(name)) == numbers.plain(name)
