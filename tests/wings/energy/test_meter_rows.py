"""Rows of a meter in order of time, one a moment: every limit, on both sides of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.wings.energy.meter_log import Devices, Rows, added, devices, ordered, rising, single
from edgescope.wings.energy.meter_table import Dialect, Table

DAY, HOUR = 86_400.0, 3600.0


def rows(t: object, watts: object = None, first: int = 2, lost: int = 0) -> Rows:
    """Rows of 1 W, or of `watts`, whose first stands at line `first`."""
    moments = np.asarray(t, float)
    level = np.ones(len(moments)) if watts is None else np.asarray(watts, float)
    return Rows(moments, level, np.arange(len(moments), dtype=np.int64) + first, lost=lost)


def refusal(call: object, *args: object) -> UsageError:
    with pytest.raises(UsageError) as found:
        call(*args)  # type: ignore[operator]
    return found.value


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t", "lines", "notes"),
    [
        ([0, 1, 1, 2], [2, 3, 4, 5], 0),
        ([2, 1, 1, 0], [5, 4, 3, 2], 1),  # the newest first
        ([2, 1, 1, 1], [5, 4, 3, 2], 1),
        ([1, 1, 1], [2, 3, 4], 0),
        ([0, 2, 1], [2, 4, 3], 1),  # half of the steps go back: rows that came late
        ([3, 1, 0, 2], [4, 3, 5, 2], 2),  # turned, and one row put in its place
        ([7], [2], 0),
        ([], [], 0),
    ],
)
def test_rows_are_turned_or_put_in_their_places(t, lines, notes):
    found = ordered(rows(t), "count", "m.csv")
    assert found.t_s.tolist() == sorted(t)
    assert (found.lines.tolist(), len(found.notes)) == (lines, notes)


def back(by: float, steps: int) -> list[float]:
    """Steps of 1 s, of which the sixth goes back."""
    step = np.ones(steps)
    step[5] = -by
    return [0.0, *np.cumsum(step)]


@pytest.mark.parametrize(("by", "steps", "refused"), [(5, 11, 0), (5.5, 11, 1), (5.5, 10, 0), (-1, 11, 0)])
def test_a_clock_that_was_set_back_once_is_refused_and_a_row_that_came_late_is_not(by, steps, refused):
    t = back(by, steps)
    if refused:
        error = refusal(ordered, rows(t), "count", "m.csv")
        assert (error.code, error.evidence, error.fix) == ("E-METER-1", "at line 8", "cut it")
        return
    assert ordered(rows(t), "count", "m.csv").t_s.tolist() == sorted(t)


def test_a_time_of_day_passes_midnight_more_than_once():
    t = [DAY - 2, DAY - 1, 0, DAY / 2, DAY - 1, 1]
    found = ordered(rows(t), "day", "m.csv").t_s
    assert found.tolist() == [DAY - 2, DAY - 1, DAY, 1.5 * DAY, 2 * DAY - 1, 2 * DAY + 1]
    half = ordered(rows([DAY / 2, 0.0, 1.0]), "day", "m.csv")
    assert half.t_s.tolist() == [0, 1, DAY / 2], "half a day back is no midnight"


@pytest.mark.parametrize("shift", [HOUR, DAY])
@pytest.mark.parametrize(("late", "taken"), [(0, True), (2, True), (-2, True), (2.5, False), (-2.5, False)])
def test_an_hour_or_a_day_back_is_undone_once_if_the_next_row_follows(shift, late, taken):
    t = np.arange(20.0)
    t[9:] += late - shift
    if not taken:
        assert refusal(ordered, rows(t), "local", "m.csv").evidence == "at line 11"
        return
    found = ordered(rows(t), "local", "m.csv")
    assert found.t_s[8:11].tolist() == sorted([8, 9 + late, 10 + late]) and len(found.t_s) == 20
    assert str(found.notes[0]).count(f"by {shift / HOUR:.0f} h at line 11") == 1


def test_an_hour_back_is_undone_for_local_time_alone_and_once_alone():
    t = np.arange(30.0)
    t[9:] -= HOUR
    for kind in ("count", "absolute"):
        assert refusal(ordered, rows(t), kind, "m.csv").code == "E-METER-1"
    t[20:] -= HOUR
    assert refusal(ordered, rows(t), "local", "m.csv").evidence == "at line 11"
    still = ordered(rows([0, 0, HOUR, 0, 0, 0]), "local", "m.csv")  # no usual step to follow by
    assert still.t_s.tolist() == [0, 0, 0, 0, 0, HOUR]


# -- several devices ---------------------------------------------------------------------------------------------------


def table(name: str, cells: list[str]) -> Table:
    body = [[str(i), cell, "5"] for i, cell in enumerate(cells)]
    lines = [*range(2, 2 + len(body))]
    return Table("m.csv", ("time", name, "power_w"), ("", "", ""), body, lines, [], [], ",")


def told(name: str, cells: list[str], times: object = None, dialect: Dialect | None = None) -> Devices:
    t = np.arange(len(cells), dtype=float) if times is None else np.asarray(times, float)
    return devices(table(name, cells), t, dialect or Dialect())


def in_turn(n: int, rounds: int) -> list[str]:
    return [f"d{k:02}" for _ in range(rounds) for k in range(n)]


@pytest.mark.parametrize(
    ("cells", "n"),
    [
        (in_turn(2, 2), 2),
        (in_turn(3, 2), 3),
        (in_turn(64, 2), 64),
        (in_turn(65, 2), 1),  # more than any log has devices
        (in_turn(3, 2)[:5], 1),  # no device has two rows
        (in_turn(1, 6), 1),
        (["a", "b"] * 4 + ["b"] + ["a", "b"] * 2, 2),  # one row that is out of turn
        (["a", "b", "b", "a"] * 4, 1),
        (["a", "b", "b"] * 6, 1),
        (["a", "a", "b", "b"] * 4, 1),
    ],
)
def test_devices_are_told_apart_where_they_take_turns(cells, n):
    found = told("index", cells)
    assert len(set(found.which)) == n and found.keep.all() and len(found.notes) == (n > 1)
    if n > 1:
        assert [sorted(set(cells))[k] for k in found.which] == cells
        assert found.notes[0].fix.startswith(f"--only index={sorted(set(cells))[0]} ")


@pytest.mark.parametrize(("odd", "n"), [(0, 2), (1, 2), (2, 1)])
def test_four_fifths_of_the_rows_must_be_of_the_device_that_is_next(odd, n):
    """Of 10 pairs that are two apart, each place where a device repeats itself breaks two."""
    cells = ["a", "b"] * 6
    for at in range(odd):
        cells[11 - 4 * at] = "a"
    assert len(set(told("index", cells).which)) == n


@pytest.mark.parametrize(
    ("t", "n"),
    [
        ([0, 1, 2, 3, 0, 1, 2, 3], 2),
        ([0, 1, 2, 4, 2, 3, 4, 6], 1),  # half of the time in common is not enough
        ([0, 1, 2, 4, 1.9, 3, 4, 5.9], 2),
        ([0, 1, 2, 3, 4, 5, 6, 7], 1),
        ([0, 1, 2, 3, 0, np.nan, np.nan, 3], 2),
        ([0, 1, 2, 3, np.nan, np.nan, np.nan, 3], 1),
        ([0, 1, 2, 10, 0, 1, 2, 3], 1),
    ],
)
def test_devices_are_told_apart_where_one_stands_below_the_other(t, n):
    assert len(set(told("gpu", ["a"] * 4 + ["b"] * 4, t).which)) == n
    assert len(set(told("gpu", ["a", "a", "b", "b", "a", "b", "b", "b"], t).which)) == 1


def test_rows_of_one_device_alone_can_be_asked_for():
    found = told("index", in_turn(3, 4), dialect=Dialect(only="index= d01 "))
    assert np.flatnonzero(found.keep).tolist() == [1, 4, 7, 10] and not found.notes
    assert len(set(found.which)) == 1
    error = refusal(told, "index", in_turn(9, 4), None, Dialect(only="index=x"))
    assert error.evidence == "it holds d00, d01, d02, d03, d04, d05, d06, d07"
    assert (error.code, error.fix) == ("E-METER-1", "--only index=...")


def test_parts_of_which_nobody_knows_whether_they_add_up_are_asked_about():
    error = refusal(told, "rail", in_turn(2, 4))
    assert (error.code, error.evidence) == ("E-METER-5", "d00, d01")
    assert re.match(r"--only rail=d00, or --sum rail\b", error.fix)
    many = told("index", in_turn(9, 4)).notes[0]
    assert many.evidence == "d00, d01, d02, d03, d04, d05, d06, d07"
    found = told("rail", in_turn(2, 4), dialect=Dialect(total="rail"))
    assert found.which.tolist() == [0, 1] * 4 and len(found.notes) == 1
    assert set(told("colour", in_turn(2, 4)).which) == {0}, "no word of a part"
    assert set(told("power channel (W)", ["5", "6"] * 4).which) == {0}, "a quantity"


# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t", "watts", "moments"),
    [
        ([0, 1, 2, 3], [10, 20, 30, 40], [0, 1, 2, 3, 4, 5]),
        ([4, 5, 6], [10, 20, 30], [2, 3, 4, 5, 6, 7, 8]),
        ([0, 1, 2, 8, 9, 10], [10, 10, 10, 10, 10, 10], [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]),
        ([3], [7], [3]),
        ([3, 4], [7, 8], [1, 2, 3, 4, 5, 6]),
        ([0.5, 3.5, 6.5, 9.5], [1, 4, 7, 10], [*range(11)]),
    ],
)
def test_devices_add_up_where_each_wrote_a_row_within_two_steps(t, watts, moments):
    main, part = rows(np.arange(11), np.arange(11) * 100, lost=2), rows(t, watts, first=90, lost=3)
    for parts in ((main, part), (part, main)):
        found = added(parts, "m.csv")
        assert found.t_s.tolist() == moments
        wanted = np.array(moments) * 100 + np.interp(moments, t, watts)
        assert found.watts == pytest.approx(wanted)
        assert found.lost == 5 and found.lines.tolist() == [m + 2 for m in moments]
        assert len(found.notes) == (len(moments) < 11)


def test_three_devices_add_up_and_those_without_a_common_moment_do_not():
    three = added([rows(range(4), [k] * 4) for k in (1, 20, 300)], "m.csv")
    assert three.watts.tolist() == [321] * 4
    error = refusal(added, [rows([0, 1, 2]), rows([10, 11])], "m.csv")
    assert (error.code, error.fix) == ("E-METER-5", "--only COLUMN=VALUE")


# -- one row a moment --------------------------------------------------------------------------------------------------


def twice(moments: int, several: int, times: int = 2) -> np.ndarray:
    """So many moments a second apart, the second and those after it written more than once."""
    return np.repeat(np.arange(moments), [times if 1 <= k <= several else 1 for k in range(moments)])


@pytest.mark.parametrize(
    ("moments", "several", "refused"),
    [(9, 0, 0), (9, 1, 0), (9, 2, 1), (99, 2, 1), (100, 2, 0), (149, 3, 1), (150, 3, 0)],
)
def test_a_few_moments_may_have_several_rows_without_being_of_several_devices(moments, several, refused):
    t = twice(moments, several)
    watts = np.arange(len(t), dtype=float)
    if refused:
        error = refusal(single, rows(t, watts), Dialect(), "m.csv")
        assert error.code == "E-METER-5"
        assert re.fullmatch(rf"{several} of {moments} times, .* line 4", error.evidence)
        return
    found = single(rows(t, watts), Dialect(), "m.csv")
    assert found.t_s.tolist() == list(range(moments)) and len(found.notes) == (several > 0)
    if several:
        assert found.watts[:2].tolist() == [0, 1.5] and found.lines[:3].tolist() == [2, 3, 5]
        assert found.notes[0].evidence == "first at line 4"


def test_rows_of_one_moment_are_averaged_or_added_up_as_a_flag_says():
    t, watts = [0, 0, 1, 1, 2, 3, 3], [1, 2, 3, 4, 5, 6, 7]
    mean = single(rows(t, watts), Dialect(repeated="mean"), "m.csv")
    assert (mean.t_s.tolist(), mean.watts.tolist()) == ([0, 1, 2, 3], [1.5, 3.5, 5, 6.5])
    total = single(rows(t, watts), Dialect(repeated="sum"), "m.csv")
    assert (total.t_s.tolist(), total.watts.tolist()) == ([0, 1, 3], [3, 7, 13]), "2 s lacks a device"
    assert total.lines.tolist() == [2, 4, 7]
    error = refusal(single, rows(t, watts), Dialect(), "m.csv")
    assert error.code == "E-METER-5" and re.match(r"m\.csv has 2 rows ", error.what)


@pytest.mark.parametrize(
    ("t", "moments"),
    [
        ([0, 0.05, 1, 1.05, 2, 2.05], [0, 1, 2]),  # bursts: less than a tenth of the longest step
        ([0, 0.2, 1, 1.2, 2, 2.2], [0, 0.2, 1, 1.2, 2, 2.2]),
        ([0, 0.05, 1, 1.05], [0, 0.05, 1, 1.05]),  # too few to tell
        ([0, 0.05, 1, 1.05, 2], [0, 1, 2]),
        ([0, 0.05, 1, 1.05, 2, 3], [0, 0.05, 1, 1.05, 2, 3]),  # two of five steps are no bursts
        ([0, 0.05, 1, 1.05, 2, 2.05, 3, 4], [0, 1, 2, 3, 4]),
    ],
)
def test_rows_written_in_one_go_are_of_one_moment(t, moments):
    assert single(rows(t), Dialect(repeated="mean"), "m.csv").t_s.tolist() == moments


def test_the_step_of_a_burst_is_a_tenth_of_the_longest_of_nine_in_ten():
    t = np.array([0, 1, 11, 12, 22, 23, 33, 34])  # steps of 1 and 10 s: 1 is not less than a tenth
    assert len(single(rows(t), Dialect(repeated="mean"), "m.csv")) == 8
    assert len(single(rows(t * 1.0 - (np.arange(8) % 2) * 0.01), Dialect(repeated="mean"), "m.csv")) == 4


# -- counters ----------------------------------------------------------------------------------------------------------


def test_joules_that_add_up_are_power_between_the_rows():
    found = rising(rows([0, 2, 3, 7], [1, 5, 5, 13]), "m.csv")
    assert found.t_s.tolist() == [1, 2.5, 5] and found.watts.tolist() == [2, 0, 2]
    assert found.lines.tolist() == [2, 3, 4] and len(found.notes) == 1
    slow = refusal(rising, rows([0, 1, 2, 3], [1, 1.5, 2, 0]), "m.csv")
    assert slow.evidence == "at line 5"
    error = refusal(rising, rows([0, 1, 2, 3], [1, 2, 1, 0]), "m.csv")
    assert (error.code, error.evidence) == ("E-METER-1", "at line 4")
