"""A page from data: what a [[part]] of a paper.toml becomes, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from edgescope.records import Absent, Measured
from edgescope.report import document as doc
from edgescope.wings.studies import page
from edgescope.wings.studies.page import Content, of
from edgescope.wings.studies.paper import Paper, papers

TABLE = {"kind": "table", "rows": "cells"}
ROWS = [
    {"name": "a", "x_s": Measured(1.0, "s", 0.5, 2.0), "y_s": Absent("not measured"), "look": "dim"},
    {"name": "b", "x_s": Measured(2.0, "s"), "y_s": Absent("not measured")},
]


def made(
    part: dict[str, Any], *, kind: str = "", rows: Any = ROWS, lines: Any = None, **more: Any
) -> doc.Part | None:
    """The one part of a page of these rows."""
    paper = Paper(
        "folder", "name", "", "Its title", "its source", "a board", "", page={"part": [part], **more}
    )
    answer = doc.Answer("word", "pick", kind=kind)
    content = Content("Title", answer, rows={"cells": rows}, lines=lines or {}, words={"scale": "seconds"})
    (found,) = of(paper, content).parts or (None,)
    return found


def test_a_column_reads_its_value_and_is_repeated_for_each_of_a_list() -> None:
    columns = [
        {"title": "Name", "of": "name"},
        {"each": "letters", "title": "{Each}, alone", "unit": "s", "key": "{each}_s", "rank": 1},
    ]
    table = made({**TABLE, "columns": columns}, letters=["x", "y"])
    assert isinstance(table, doc.Table)
    assert [(c.title, c.unit, c.key, c.rank) for c in table.columns] == [
        ("Name", None, "", 0),
        ("X, alone", "s", "x_s", 1),
        ("Y, alone", "s", "y_s", 1),
    ]
    assert [row.cells for row in table.rows] == [(r["name"], r["x_s"], r["y_s"]) for r in ROWS]
    assert [row.kind for row in table.rows] == ["dim", ""]
    listed = made({**TABLE, "columns": [{"use": "both"}]}, lines={"letters": ["y"]}, both=columns)
    assert isinstance(listed, doc.Table) and [c.title for c in listed.columns] == ["Name", "Y, alone"]


def test_a_column_that_no_reading_has_is_left_out_where_it_says_so() -> None:
    columns = [{"key": "name"}, {"key": "x_s", "known": True}, {"key": "y_s", "known": True}]
    table = made({**TABLE, "columns": columns})
    assert isinstance(table, doc.Table) and [c.key for c in table.columns] == ["name", "x_s"]


def test_words_are_those_of_the_paper_and_of_the_module_and_plotlys_stay() -> None:
    spec = {
        **TABLE,
        "title": "{title} in {scale}",
        "lead": "{source}, {unknown}",
        "columns": [{"key": "name"}],
    }
    table = made(spec)
    assert isinstance(table, doc.Table)
    assert (table.title, table.lead) == ("Its title in seconds", "its source, {unknown}")
    assert page.WORD.findall("{each} %{x:.3g} ms<extra>%{y}</extra>") == ["each"]


@pytest.mark.parametrize("always", [True, False])
def test_where_nothing_was_measured_only_what_is_always_there_stays(always: bool) -> None:
    part = {"kind": "text", "text": "words", "always": always}
    assert made(part) == doc.Text("words")
    assert made(part, kind="none") == (doc.Text("words") if always else None)


def test_what_has_nothing_in_it_is_left_out_but_for_a_table_of_data() -> None:
    table = {**TABLE, "columns": [{"key": "name"}]}
    items = {"kind": "items", "lines": "notes"}
    assert made(table, rows=[]) is None and made(items, lines={"notes": []}) is None
    assert (
        made({"kind": "section", "title": "t", "parts": [table, items]}, rows=[], lines={"notes": []}) is None
    )
    data = made({**table, "level": "data"}, rows=[])
    assert isinstance(data, doc.Table) and data.columns and not data.rows
    section = made({"kind": "section", "title": "of {source}", "parts": [items]}, lines={"notes": ["n"]})
    assert section == doc.Section("of its source", (doc.Items(("n",)),))


def drawn(spec: dict[str, Any], rows: Any = ROWS) -> Any:
    part = made({"name": "f", "title": "t", "caption": "c", "rows": "cells", "of": "name", **spec}, rows=rows)
    assert isinstance(part, doc.Figure)
    return part.draw()


def test_bars_have_every_reading_and_whiskers_where_asked() -> None:
    series = [{"name": "x", "of": "x_s", "whiskers": True}, {"name": "y", "of": "y_s"}]
    marks = [{"name": "none", "of": "z"}]
    figure = drawn({"kind": "bars", "axis": "{scale}", "series": series, "marks": marks})
    x, y = figure.data
    assert (list(x.y), list(x.x), list(y.x)) == (["a", "b"], [1.0, 2.0], [None, None])
    assert (list(x.error_x.array), list(x.error_x.arrayminus)) == ([1.0, 0.0], [0.5, 0.0])
    assert figure.layout.xaxis.title.text == "seconds" and figure.layout.barmode == "group"
    assert drawn({"kind": "bars", "axis": "", "series": series, "stack": True}).layout.barmode == "stack"


def test_marks_leave_out_what_was_not_measured_and_names_are_text() -> None:
    rows = [{**ROWS[0], "name": "<b>"}, {"name": "c", "x_s": None}]
    series = [{"name": "x", "of": "x_s", "joined": True}, {"name": "y", "of": "y_s"}]
    (mark,) = drawn({"kind": "marks", "axis": "", "upright": True, "series": series}, rows).data
    assert (list(mark.x), list(mark.y), mark.mode) == (["&lt;b&gt;"], [1.0], "lines+markers")


@pytest.mark.parametrize("name", list(papers()))
def test_every_part_of_every_paper_is_of_a_kind_that_there_is(name: str) -> None:
    def kinds(specs: list[dict[str, Any]]) -> list[str]:
        return [kind for s in specs for kind in (s["kind"], *kinds(s.get("parts", [])))]

    found = kinds(papers()[name].page["part"])
    assert found[0] == "answer" and all(hasattr(page._Page, f"_{kind}") for kind in found)
