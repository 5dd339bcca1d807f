"""The moments that a meter writes: each way of writing them has one value in seconds, or none."""

from __future__ import annotations

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.wings.energy.meter_columns import Clock, clock
from edgescope.wings.energy.meter_table import Dialect, Table

DAY = 86_400.0


def table(cells: list[str], name: str = "time", below: str = "", delimiter: str = ",") -> Table:
    rows = [[cell, "5"] for cell in cells]
    return Table("m.csv", (name, "power_w"), (below, ""), rows, [*range(2, 2 + len(rows))], [], [], delimiter)


def read(*cells: str, dialect: Dialect | None = None, **kw: str) -> Clock:
    return clock(table([*cells], **kw), dialect or Dialect())


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("10:02:03.5", 36_123.5),
        ("10:02:03,25", 36_123.25),
        ("10:02:03:500", 36_123.5),
        ("12:00:01 AM", 1.0),
        ("12:00:00 PM", 43_200.0),
        ("1:00:00 p.m.", 46_800.0),
        ("10:00:01 am", 36_001.0),
        ("10:00.5 PM", 79_200.5),
        ("0:10:00 PM", np.nan),
        ("13:00:00 PM", np.nan),
        ("24:00:00", DAY),
        ("25:00:00", np.nan),
        ("10:59:60", 39_600.0),
        ("10:59:61", np.nan),
        ("10:60:00", np.nan),
        ("10:00", 36_000.0),
        ("10:00.5", 600.5),
        ("10:59.5", 659.5),
        ("10:60.5", np.nan),
        ("1 days 00:00:01.5", DAY + 1.5),
        ("2 day 01:00:00", 2 * DAY + 3600),
        ("2 days 25:00:00", np.nan),
        ("2 days x", np.nan),
    ],
)
def test_a_time_of_day_has_one_value(cell, seconds):
    found = read(cell)
    assert found.seconds.tolist() == pytest.approx([seconds], nan_ok=True) and found.kind == "day"


@pytest.mark.parametrize(
    ("cell", "seconds", "kind"),
    [
        ("1970-01-02T00:00:00Z", DAY, "absolute"),
        ("1970/01/01 01:00:00 GMT", 3600.0, "absolute"),
        ("1970-01-01T03:00:00+01:30", 5400.0, "absolute"),
        ("1970-01-01T01:00:00-0215", 11_700.0, "absolute"),
        ("1970-01-01 01:00:00 CET", 3600.0, "local"),
        ("1970-01-01", np.nan, "local"),
        ("1970-02-30 10:00:00", np.nan, "local"),
        ("19700102 00:00:01", DAY + 1, "local"),
        ("02.01.1970 00:00:00", DAY, "local"),
        ("31.02.1970 00:00:00", np.nan, "local"),
        ("2 Jan 1970 00:00:00", DAY, "local"),
        ("Jan 2, 1970 00:00:00", DAY, "local"),
        ("Fri Dec 4 1970 00:00:00", 337 * DAY, "local"),
        ("Friday, 4-dec-1970 00:00:00", 337 * DAY, "local"),
        ("02.01.00 00:00:00", 10_958 * DAY, "local"),
        ("02/01/2000 00:00:00", 10_958 * DAY, "local"),
        ("13/01/2000 00:00:00", 10_969 * DAY, "local"),
        ("01/13/2000 00:00:00", 10_969 * DAY, "local"),
    ],
)
def test_a_date_has_one_value(cell, seconds, kind):
    found = read(cell)
    assert found.seconds.tolist() == pytest.approx([seconds], nan_ok=True) and found.kind == kind


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (("01/02/2000", "02/02/2000"), (10_988, 10_989)),  # the next day, if the day is first
        (("01/02/2000", "01/03/2000"), (10_958, 10_959)),  # and the mirror case
        (("01/03/2000", "01/02/2000"), (10_959, 10_958)),
        (("13/01/2000", "15/02/2000"), (10_969, 11_002)),
        (("01/13/2000", "02/15/2000"), (10_969, 11_002)),
        (("31/01/2000", "01/02/2000"), (10_987, 10_988)),
    ],
)
def test_days_that_follow_each_other_tell_day_and_month_apart(cells, days):
    found = read(*(f"{cell} 00:00:00" for cell in cells))
    assert found.seconds.tolist() == [day * DAY for day in days]


@pytest.mark.parametrize(
    "cells",
    [("01/02/2000", "03/02/2000"), ("01/13/2000", "15/02/2000"), ("01/01/2000", "03/03/2000", "05/05/2000")],
)
def test_dates_that_fit_both_ways_or_neither_are_asked_about(cells):
    whole = [f"{cell} 00:00:00" for cell in cells]
    with pytest.raises(UsageError) as found:
        read(*whole)
    assert found.value.code == "E-METER-1" and found.value.fix == "--dates dmy"


def test_a_flag_says_which_of_day_and_month_is_first():
    cells = ("01/02/2000 00:00:00", "03/02/2000 00:00:00")
    assert read(*cells, dialect=Dialect(dates="mdy")).seconds.tolist() == [10_958 * DAY, 11_018 * DAY]
    assert read(*cells, dialect=Dialect(dates="dmy")).seconds.tolist() == [10_988 * DAY, 10_990 * DAY]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (("2000-01-01 10:00:00Z", "2000-01-01 10:00:00"), "local"),
        (("2000-01-01 10:00:00Z", "2000-01-01 10:00:01Z", "2000-01-01 10:00:00"), "absolute"),
        (("2000-01-01 10:00:00Z", "10:00:00Z"), "day"),
        (("2000-01-01 10:00:00", "2000-01-01 10:00:01", "10:00:00"), "local"),
        (("10:00:00Z", "10:00:01Z"), "day"),
        (("1", "10:00:01"), "day"),
        (("1", "2", "10:00:01"), "count"),
    ],
)
def test_more_than_half_of_the_cells_say_what_a_column_is(cells, kind):
    assert read(*cells).kind == kind


@pytest.mark.parametrize(
    ("cell", "seconds", "supposed"),
    [
        ("0.5", 0.5, True),
        ("+1.5e1", 15.0, True),
        ("899999999", 899_999_999.0, True),
        ("9e8", 9e8, False),
        ("-9e8", -9e8, False),
        ("4139999999", 4_139_999_999.0, False),
        ("9e11", 9e8, False),
        ("9e14", 9e8, False),
        ("9e17", 9e8, False),
        ("4.139e18", 4.139e9, False),
        ("5 ms", 0.005, False),
        ("5us", 5e-6, False),
        ("3 V", np.nan, False),
    ],
)
def test_a_count_is_of_1970_or_supposed_to_be_of_seconds(cell, seconds, supposed):
    found = read(cell)
    assert found.seconds.tolist() == pytest.approx([seconds], nan_ok=True)
    assert (found.kind, found.supposed) == ("count", supposed)


def test_a_count_of_which_a_row_has_no_unit_is_supposed_to_be_of_seconds():
    assert read("5 ms", "6").supposed and read("5", "6 ms").seconds.tolist() == pytest.approx([5.0, 0.006])


@pytest.mark.parametrize("cell", ["4140000000", "8.9e11", "4.14e12", "4.15e18"])
def test_a_count_of_no_known_unit_is_asked_about(cell):
    with pytest.raises(UsageError) as found:
        read(cell)
    assert (found.value.code, found.value.fix) == ("E-METER-4", "--time-unit ns")


@pytest.mark.parametrize(
    ("name", "below", "flag", "seconds"),
    [
        ("time (ms)", "", {}, 0.005),
        ("time", "[ms]", {}, 0.005),
        ("time (ms)", "ms", {}, 0.005),
        ("time (ms)", "s", {"time": "us"}, 5e-6),
        ("time (h)", "", {}, 18_000.0),
        ("time (min)", "", {}, 300.0),
    ],
)
def test_the_unit_of_a_count_is_written_somewhere(name, below, flag, seconds):
    found = read("5", name=name, below=below, dialect=Dialect(units=flag))
    assert found.seconds.tolist() == pytest.approx([seconds]) and not found.supposed


def test_two_units_of_one_count_are_asked_about():
    with pytest.raises(UsageError) as found:
        read("5", name="time (ms)", below="s")
    assert (found.value.code, found.value.fix) == ("E-METER-4", "--time-unit ms")


def test_the_decimal_mark_of_a_count_is_found_or_asked_about():
    assert read("1,5", "2,25").seconds.tolist() == [1.5, 2.25]
    assert read("1,500", "2,250", delimiter=";").seconds.tolist() == [1.5, 2.25]
    assert read("1,500", "2,250", dialect=Dialect(decimal=".")).seconds.tolist() == [1500, 2250]
    with pytest.raises(UsageError) as found:
        read("1,500", "2,250")
    assert (found.value.code, found.value.fix) == ("E-METER-1", "--decimal ,")


def columns(head: tuple[str, ...], *rows: tuple[str, ...], dialect: Dialect | None = None) -> Clock:
    lines = [*range(2, 2 + len(rows))]
    made = Table("m.csv", head, ("",) * len(head), [list(row) for row in rows], lines, [], [], ",")
    return clock(made, dialect or Dialect())


def test_a_date_and_a_time_of_day_are_one_moment():
    head = ("Date", "Time", "power_w")
    found = columns(head, ("1970-01-02", "00:00:01", "5"), ("1970-01-02", "00:00:02", "5"))
    assert found.seconds.tolist() == [DAY + 1, DAY + 2] and found.words == "time from 'Date' and 'Time'"
    turned = columns(("Time", "Date", "power_w"), ("00:00:01", "1970-01-02", "5"))
    assert turned.seconds.tolist() == [DAY + 1] and turned.words == "time from 'Date' and 'Time'"
    one = columns(head, ("1970-01-02", "3", "5"), dialect=Dialect({"time": "Time"}))
    assert one.seconds.tolist() == [3.0]


def test_of_several_times_the_first_that_can_be_read_is_taken():
    head = ("elapsed", "time_s", "power_w")
    assert columns(head, ("7", "3", "5")).words == "time from 'elapsed'"
    assert columns(head, ("-", "3", "5")).words == "time from 'time_s'"
    assert columns(head, ("-", "-", "5")).words == "time from 'elapsed'"
    dated = ("Date", "elapsed", "power_w")
    assert columns(dated, ("1970-01-02", "3", "5")).words == "time from 'elapsed'"
    whole = ("uptime", "date", "power_w")
    assert columns(whole, ("x", "1970-01-02 00:00:05", "5")).seconds.tolist() == [DAY + 5]


def test_half_of_the_cells_make_a_column_usable_and_more_than_half_a_date():
    head = ("elapsed", "time", "power_w")
    assert columns(head, ("-", "3", "5"), ("1", "4", "5")).words == "time from 'elapsed'"
    assert columns(head, ("-", "3", "5"), ("-", "4", "5"), ("1", "5", "5")).words == "time from 'time'"
    day = ("Date", "Time", "power_w")
    rows = ("1970-01-02", "00:00:01", "5"), ("1970-01-02", "-", "5"), ("-", "00:00:02", "5")
    assert columns(day, *rows).words == "time from 'Date' and 'Time'"
    assert columns(day, *rows[1:]).words == "time from 'Date'", "half of the cells are no date"
