"""docs/studies.md is what tests/studies/rows.toml says, and what that names exists; the rows may only get better."""

import shlex
from collections import Counter

import pytest

import study_rows
from edgescope.cli.main import parser
from edgescope.wings.studies.paper import papers

ROWS = study_rows.rows()
AT_MOST = {"wrong": 0, "missing": 8, "partly": 19}
"""State -> how many rows may be in it: lowered as rows are mended, never raised."""

pytestmark = pytest.mark.wings


def test_the_page_is_what_the_table_says():
    assert (study_rows.ROOT / "docs/studies.md").read_text() == study_rows.page(), (
        "run: python tests/study_rows.py docs/studies.md"
    )


def test_what_shows_a_row_exists():
    assert not [(row.number, shown) for row in ROWS for shown in row.shows if not study_rows.exists(shown)]


def test_a_test_that_is_not_there_is_noticed():
    assert study_rows.exists("tests/project/test_study_rows.py::test_what_shows_a_row_exists")
    assert not study_rows.exists("tests/project/test_study_rows.py::test_what_shows_nothing")
    assert not study_rows.exists("tests/project/test_no_such_file.py::test_what_shows_a_row_exists")
    assert not study_rows.exists("published/no_such_run.json")


def test_a_command_that_shows_a_row_parses():
    for command in (shown for row in ROWS for shown in row.shows if shown.startswith("edgescope ")):
        parser().parse_args(shlex.split(command)[1:])


def test_rows_are_counted_through_and_belong_to_the_studies():
    assert [row.number for row in ROWS] == list(range(1, 137))
    assert {row.study for row in ROWS} == set(papers())
    assert {row.state for row in ROWS} <= set(study_rows.STATES)


def test_what_works_is_shown_and_what_does_not_says_what_lacks():
    assert not [row.number for row in ROWS if row.state != "missing" and not row.shows]
    assert not [row.number for row in ROWS if row.state != "works" and not row.lacks]
    lone = [row for row in ROWS if all(shown.startswith("edgescope ") for shown in row.shows)]
    assert not [row.number for row in lone if row.state == "works"], (
        "a command alone shows nothing to a reader"
    )


def test_no_row_is_wrong_and_none_gets_worse():
    found = Counter(row.state for row in ROWS)
    assert not {state: found[state] for state, most in AT_MOST.items() if found[state] > most}
