"""The script behind `make test-rtx`: its published builds are those of today's code and of every network."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import facts  # noqa: E402
import rtx_builds  # noqa: E402

from edgescope.models import zoo  # noqa: E402

MADE = facts.published("rtx_builds")["figures"]
ROW = {"network": "a", "precision": "fp16", "built": True, "cpu_s": 1.5, "file_cpu_s": 9.0}


def test_the_published_builds_are_those_of_todays_code():
    changed = [name for name, digest in rtx_builds.build_code().items() if MADE["code"].get(name) != digest]
    assert not changed, f"{changed} changed since the builds of published/rtx_builds.json: run make test-rtx"
    assert set(MADE["code"]) == set(rtx_builds.CODE)


def test_every_network_was_built_in_every_precision_for_which_it_has_a_file():
    rows = {(row["network"], row["precision"]): row for row in MADE["rows"]}
    assert set(rows) == {(name, p) for name in zoo.names() for p in rtx_builds.PRECISIONS}
    assert all(row["built"] or "no_file" in row for row in rows.values())
    assert {row["precision"] for row in rows.values() if not row["built"]} <= {"int8"}


def test_what_was_built_is_what_was_asked_and_in_time():
    assert all(rtx_builds.as_asked(row) for row in MADE["rows"] if row["built"])
    assert MADE["cpu_s"] <= rtx_builds.CPU_GOAL_S and MADE["tests"]["failed"] == MADE["tests"]["skipped"] == 0


@pytest.mark.parametrize(
    ("heavy", "precision", "right"),
    [
        ({"fp16": 5}, "fp16", True),
        ({"fp16": 5, "fp32": 1}, "fp16", False),
        ({"fp32": 5}, "fp16", False),
        ({"int8": 51, "fp32": 2}, "int8", True),
        ({"int8": 51, "fp16": 2}, "int8", False),
        ({"fp32": 2}, "int8", False),
        ({}, "fp32", False),
    ],
)
def test_types_are_compared_with_the_question(heavy, precision, right):
    assert rtx_builds.as_asked({"heavy": heavy, "precision": precision}) is right


def test_failures_and_networks_without_a_file_are_told_apart():
    rows = [
        ROW | {"heavy": {"fp16": 1}},
        ROW | {"precision": "fp32", "heavy": {"fp16": 1}},
        {"network": "b", "precision": "int8", "built": False, "no_file": "E-INT8-1"},
        {"network": "b", "precision": "fp16", "built": False, "file_cpu_s": 1.0, "why": "E-TRT-4"},
    ]
    found = rtx_builds.summed(rows, {})
    assert (found["networks"], found["engines"], found["cpu_s"], found["file_cpu_s"]) == (2, 2, 3.0, 19.0)
    assert [row["why"] for row in found["failed"]] == ["E-TRT-4"]
    assert [row["network"] for row in found["without_a_file"]] == ["b"]
    assert [row["precision"] for row in found["other_types"]] == ["fp32"]


def test_only_statements_count_as_a_change():
    plain = "def f():\n    return 1\n"
    told = '"""A module."""\n\n\ndef f():\n    """Return 1."""\n    return 1  # a comment\n'
    assert (
        rtx_builds._digest(plain) == rtx_builds._digest(told) != rtx_builds._digest(plain.replace("1", "2"))
    )


@pytest.mark.parametrize("name", rtx_builds.CODE)
def test_the_files_that_count_are_there(name):
    assert ast.parse((ROOT / name).read_text()).body
