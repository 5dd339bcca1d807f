"""The text of a log as a table: delimiter, heading, units, decimal marks, and the line of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgescope.errors import UsageError
from edgescope.wings.energy import meter_table
from edgescope.wings.energy.meter_table import Table, decimal, number


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Table]:
    def table(text: str | bytes, heading: object = None, headless: bool = False) -> Table:
        path = tmp_path / "m.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

        def named(head: Sequence[str]) -> bool:
            return heading is None or heading in head

        return meter_table.read(path, named, lambda cell: cell in ("s", "W"), headless)

    return table


@pytest.mark.parametrize(
    ("text", "head", "rows"),
    [
        ("t,p\n1,2\n", ("t", "p"), [["1", "2"]]),
        ("t;p\n1;2,5\n", ("t", "p"), [["1", "2,5"]]),
        ("t\tp\n1\t 2 \n", ("t", "p"), [["1", "2"]]),
        ("t|p\n1|2\n", ("t", "p"), [["1", "2"]]),
        ("t p\n1 2\n", ("t", "p"), [["1", "2"]]),
        (" t  a b\n 1   2 3\n", ("t", "a b"), [["1", "2 3"]]),
        ('t,"a,b"\n1,"2,5"\n', ("t", "a,b"), [["1", "2,5"]]),
        ("t p\n2026-01-02 10:00:00 5 W\n", ("t", "p"), [["2026-01-02 10:00:00", "5 W"]]),
        ("t p\n10:00:00 PM 5 mW\n", ("t", "p"), [["10:00:00 PM", "5 mW"]]),
        ("t p\n10:00:00.123 p.m 5\n", ("t", "p"), [["10:00:00.123 p.m", "5"]]),
        ("t p q\n1 5 mWh\n", ("t", "p", "q"), [["1", "5", "mWh"]]),
    ],
)
def test_the_delimiter_is_found(read, text, head, rows):
    found = read(text)
    assert (found.head, found.rows, found.name) == (head, rows, "m.csv")


@pytest.mark.parametrize(("odd", "mark"), [(1, ","), (200, ","), (201, ";")])
def test_the_delimiter_is_that_of_which_most_of_two_hundred_rows_are_as_wide_as_the_heading(read, odd, mark):
    """Both part the heading in two; a row without a semicolon tells, if it is one of those looked at."""
    rows = ["1,2" if n == odd else "1;2,3" for n in range(1, 220)]
    assert read("\n".join(["a;b,c", *rows])).delimiter == mark


def test_lines_are_counted_from_one_whatever_is_left_out(read):
    text = "a meter\n\nt,p\ns,W\n1,5\n# a remark\n1,5,\n\n,\n2\nt,p\n2,6,7\n3,7\n-,-\n"
    found = read(text, "p")
    assert found.head == ("t", "p") and found.units == ("s", "W")
    assert found.rows == [["1", "5"], ["1", "5"], ["3", "7"], ["-", "-"]]
    assert found.lines == [5, 7, 13, 14]
    assert (found.ragged, found.headings) == ([10, 12], [11])
    assert found.column(1) == ["5", "5", "7", "-"]


def test_units_stand_right_below_the_heading_alone(read):
    assert read("t,p\n1,5\ns,W\n").rows == [["1", "5"], ["s", "W"]]
    assert read("t,p\ns,W2\n").units == ("", "")
    assert read("t,p\nx,y\n").units == ("", "")
    assert read("t,p\ns,y\n").units == ("s", "y")
    twice = read("t,p\ns,W\ns,W\n1,5\n")
    assert (twice.units, twice.rows) == (("s", "W"), [["1", "5"]])


def test_a_heading_may_be_a_comment_and_a_table_without_one_has_numbers(read):
    assert read("# t,p\n1,5\n", "p").rows == [["1", "5"]]
    assert read("# x\n// t,p\n% t\n1,5\n", "p").lines == [4]
    bare = read("7,5\n8,6\n", headless=True)
    assert (bare.head, bare.rows, bare.lines) == (("1", "2"), [["7", "5"], ["8", "6"]], [1, 2])


@pytest.mark.parametrize(("before", "found"), [(0, True), (49, True), (50, False)])
def test_a_heading_is_one_of_the_first_fifty_lines(read, before, found):
    text = "x,y\n" * before + "t,p\n1,5\n"
    if found:
        assert read(text, "p").lines == [before + 2]
        return
    with pytest.raises(UsageError) as refused:
        read(text, "p")
    assert (refused.value.code, refused.value.evidence) == ("E-METER-1", "it begins: x | y")


@pytest.mark.parametrize("text", ["", "# remark\n", "t\n1\n"])
def test_what_has_no_heading_of_two_cells_is_refused(read, text):
    with pytest.raises(UsageError) as refused:
        read(text)
    assert refused.value.code == "E-METER-1"


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"])
def test_every_encoding_gives_the_same_cells(read, code):
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(code, b"")
    assert read(mark + "t,p,Gerät\n1,5,ä\n".encode(code)).rows == [["1", "5", "ä"]]


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.csv"
    path.write_text("t,p\n1,5\n")
    monkeypatch.setattr(meter_table, "MAX_BYTES", 8)
    assert meter_table.text(path) == "t,p\n1,5\n"
    monkeypatch.setattr(meter_table, "MAX_BYTES", 7)
    with pytest.raises(UsageError) as refused:
        meter_table.text(path)
    assert (refused.value.code, refused.value.fix) == ("E-METER-1", "cut it to the run")


@pytest.mark.parametrize(
    ("cell", "mark"),
    [
        *(("1,5", ","), ("1.5", "."), ("1.234", "."), ("1,5 W", ","), ("-0,25", ","), ("5,", ",")),
        *(("1.234,5", ","), ("1,234.5", "."), ("1.234.567", ","), ("1,234,567", ".")),
        *(("0,234", ","), ("1,2345", ","), ("1234,567", ",")),
        *(("12", "none"), ("x", "none"), ("", "none"), ("04.05.2026", "none"), ("1,23,4", "none")),
        *(("1,5:3", "none"), ("1.5/2", "none"), ("1,5-3", "none"), ("0.123.456", "none")),
        *(("1,234", "either"), ("-1,234", "either"), ("999,000", "either")),
    ],
)
def test_a_cell_shows_its_decimal_mark_or_none(cell, mark):
    alone, beside = decimal([cell], [], ","), decimal([cell], ["2,5"], ",")
    wanted = {"none": (".", "."), "either": ("", ",")}.get(mark, (mark, mark))
    assert (alone, beside) == wanted


@pytest.mark.parametrize(
    ("cells", "others", "delimiter", "mark"),
    [
        (["1,5", "1.5"], [], ",", ""),
        (["1,234", "1,5"], [], ",", ","),
        (["1,234", "1.5"], [], ",", "."),
        (["1,234"], ["2,5"], ",", ","),
        (["1,234"], ["2.5"], ";", "."),
        (["1,234"], ["2,5", "2.5"], ",", ""),
        (["1,234"], ["2,5", "2.5"], ";", ","),
        (["1,234"], ["7,891"], ";", ","),
        (["1,234"], [], ",", ""),
        ([], ["2,5"], ";", "."),
    ],
)
def test_the_rest_of_a_column_and_then_of_a_file_tells_the_decimal_mark(cells, others, delimiter, mark):
    assert decimal(cells, others, delimiter) == mark


@pytest.mark.parametrize(
    ("cell", "mark", "value"),
    [
        *(("1,234", ",", 1.234), ("1,234", ".", 1234.0), ("1,23", ".", None), ("1.234,5", ",", 1234.5)),
        *(("1,234.5", ".", 1234.5), ("1.234.567", ",", 1_234_567.0), ("0,234.5", ".", None)),
        *(("12.34,5", ",", None), ("1e3", ".", 1000.0), ("-2,5", ",", -2.5)),
        *(("1_0", ".", None), ("٣", ".", None), ("x", ".", None), ("", ".", None)),
    ],
)
def test_a_cell_is_a_number_or_none(cell, mark, value):
    assert number(cell, mark) == value
