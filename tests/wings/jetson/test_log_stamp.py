"""The time before a line, form by form."""

from datetime import datetime, timedelta, timezone

import pytest

from edgescope.wings.jetson.tegrastats_line import DAY_S, board_stamp, logger_stamp

DAY = datetime(2026, 11, 23, 3, 8, 1)
SINCE_1970 = DAY.replace(tzinfo=timezone.utc).timestamp()
OWN, BOARD, OF_DAY, START = (
    "the logger's wall clock",
    "the board's wall clock",
    "the logger's time of day, or time since it began",
    "the logger's seconds since it began",
)


@pytest.mark.parametrize(
    ("text", "seconds", "clock", "exact", "period_s"),
    [
        ("2026-11-23 03:08:01 ", 0, OWN, False, 0.0),
        ("2026/11/23_03:08:01.250 x: ", 0.25, OWN, True, 0.0),
        ("2026-11-23T03:08:01,125 ", 0.125, OWN, True, 0.0),
        ("2026-11-23T03:08:01,12", 0, OWN, False, 0.0),
        ("2026-11-23T03:08:01Z ", 0, OWN, False, 0.0),
        ("2026-11-23T03:08:01 UTC ", 0, OWN, False, 0.0),
        ("2026-11-23T03:08:01+01:30 ", -5400, OWN, False, 0.0),
        ("2026-11-23T03:08:01-0230 ", 9000, OWN, False, 0.0),
        ("Nov 23 03:08:01 2026 ", 0, OWN, False, 0.0),
        ("Mon Nov 23 03:08:01 UTC 2026 ", 0, OWN, False, 0.0),
        (f"{SINCE_1970:.0f} ", 0, OWN, False, 0.0),
        (f"[{SINCE_1970:.0f}.5] ", 0.5, OWN, True, 0.0),
        (f"{SINCE_1970:.0f}250 ", 0.25, OWN, True, 0.0),
        (f"{SINCE_1970:.0f}250000 ", 0.25, OWN, True, 0.0),
        (f"{SINCE_1970:.0f}250000000 ", 0.25, OWN, True, 0.0),
        (f'7,"{SINCE_1970:.0f}",', 0, OWN, False, 0.0),
    ],
)
def test_a_date_is_seconds_since_1970(text, seconds, clock, exact, period_s):
    found = logger_stamp(text)
    assert found.seconds == pytest.approx(SINCE_1970 + seconds, abs=1e-6)
    assert (found.clock, found.exact, found.period_s) == (clock, exact, period_s) and found.when is not None


@pytest.mark.parametrize(
    ("text", "seconds", "clock", "exact", "period_s"),
    [
        ("03:08:01 ", 11281, OF_DAY, False, DAY_S),
        ("[00:00:01.5] ", 1.5, OF_DAY, True, 86400.0),
        ("[ 1234.567890] ", 1234.56789, START, True, 0.0),
        ("0.101 ", 0.101, START, True, 0.0),
        ("Feb 29 00:00:00 ", 59 * 86400, OWN, False, 366 * 86400.0),
        ("Jan  1 00:00:01.5 host: ", 1.5, OWN, True, 366 * 86400.0),
    ],
)
def test_a_time_without_a_year_or_a_date_begins_anew(text, seconds, clock, exact, period_s):
    found = logger_stamp(text)
    begin = datetime(2000, 1, 1, tzinfo=timezone.utc).timestamp() if clock == OWN else 0.0
    assert found.seconds - begin == pytest.approx(seconds)
    assert (found.clock, found.exact, found.period_s, found.when) == (clock, exact, period_s, None)


def test_a_year_that_the_line_says_is_the_loggers_too():
    assert (
        logger_stamp("Nov 23 03:08:01 ", 2026).when == DAY
        and logger_stamp("Nov 23 03:08:01 2025 ", 2026).when.year == 2025
    )


def test_a_zone_is_kept_with_the_date():
    found = logger_stamp("2026-11-23T03:08:01+01:30 ").when
    assert found.utcoffset() == timedelta(minutes=90) and found.replace(tzinfo=None) == DAY
    assert logger_stamp("2026-11-23T03:08:01-01:30 ").when.utcoffset() == timedelta(minutes=-90)
    assert logger_stamp("2026-11-23T03:08:01 ").when.tzinfo is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host: ",
        "2026-13-45 03:08:01",
        "11/23/2026 03:08",
        "12345 ",
        "25:00 ",
        "Foo 23 03:08:01",
        "1.x ",
        "123456789012 ",
    ],
)
def test_what_is_no_time_has_none(text):
    assert logger_stamp(text) is None


def test_the_boards_own_date_is_whole_seconds():
    found = board_stamp(DAY)
    assert (found.seconds, found.clock, found.exact, found.when) == (SINCE_1970, BOARD, False, DAY)
