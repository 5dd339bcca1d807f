"""The time that a logger put before a line: journald, syslog, `ts`, `date`, Python's logging, docker, a CSV file.

    2026-11-23T03:08:01.123+00:00, 2026-11-23 03:08:01,123     a date, the year first
    Nov 23 03:08:01, Mon Nov 23 03:08:01 UTC 2026              syslog, ts, date
    1763867281.123456, 1763867281123                           seconds (milli, micro, nano) since 1970
    03:08:01, 00:00:01.5                                       time of day, or ts -s
    [ 1234.567890], 0.101                                      seconds since some start

The text around it (a host, a unit, a level) belongs to the logger. 11/23/2026 is not read: the order is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

DAY_S = 86_400.0
_EPOCH = datetime(1970, 1, 1)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LEAP_YEAR = 2000
"""Stands for a year that is not printed, so that 29 February is a date."""
_TIME = (
    r"(?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9})|,(?P<ms>[0-9]{3}))?(?![0-9]|:[0-9])"
)
"""After a comma, milliseconds only: in a CSV file it may end the field."""
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})(?![0-9A-Za-z]))?"
_DATED = re.compile(
    rf"(?<![0-9])(?P<year>[0-9]{{4}})[-/](?P<month>[0-9]{{2}})[-/](?P<day>[0-9]{{2}})[ T_]{_TIME}{_ZONE}"
)
_NAMED = re.compile(
    rf"(?<![A-Za-z])(?P<name>{'|'.join(_MONTHS)}) +(?P<day>[0-9]{{1,2}}) +{_TIME}{_ZONE}"
    r"(?: (?:[A-Z]{2,5} )?(?P<year>(?:19|20)[0-9]{2})(?![0-9]))?"
)
_OPEN = r"\s*(?:[0-9]{1,9}[,;\t])?[\s\"'(]*"
"""Text that may precede a bare number: the row's number, a quote."""
_CLOSED = r"(?=[\s\])\"',;:]|$)"
_SINCE_1970 = re.compile(
    _OPEN + r"\[?(?P<seconds>[0-9]{9,10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19})" + _CLOSED
)
_OF_DAY = re.compile(_OPEN + r"\[?" + _TIME)
_SINCE_START = re.compile(_OPEN + r"\[? *(?P<seconds>[0-9]{1,8}\.[0-9]{1,9})" + _CLOSED)


@dataclass(frozen=True, slots=True)
class Stamp:
    """One moment on a logger's clock."""

    seconds: float
    """Seconds since 1970 for a date (in UTC if it states its zone), else since midnight or an unknown start."""
    clock: str
    """The clock in words."""
    exact: bool
    """Whether it is finer than whole seconds."""
    when: datetime | None = None
    """The date as printed; None if there is no date, or no year in it."""
    period_s: float = 0.0
    """Period after which the clock restarts: a day without a date, a year without a year; 0: never."""


def stamp(text: str, year: int = 0) -> Stamp | None:
    """Return the time in a logger's text before a line, or None if its form is not known.

    `year` is the line's own, for a logger that prints none.
    """
    try:
        for form, read in ((_DATED, _dated), (_NAMED, _dated)):
            if found := form.search(text):
                return read(found, year)
        if found := _SINCE_1970.match(text):
            return _since_1970(found["seconds"])
        if found := _OF_DAY.match(text):
            seconds = int(found["h"]) * 3600 + int(found["m"]) * 60 + int(found["s"]) + _fraction(found)
            return Stamp(
                seconds,
                "the logger's time of day, or time since it began",
                _exact(found),
                None,
                DAY_S,
            )
        if found := _SINCE_START.match(text):
            return Stamp(float(found["seconds"]), "the logger's seconds since it began", True)
    except (ValueError, OverflowError):  # the 45th of the 13th month
        pass
    return None


def board(when: datetime) -> Stamp:
    """Return the stamp of a date that the board itself printed."""
    return Stamp((when - _EPOCH).total_seconds(), "the board's wall clock", False, when)


def _dated(found: re.Match[str], year: int) -> Stamp:
    parts = found.groupdict()
    month = int(parts["month"]) if parts.get("month") else _MONTHS.index(parts["name"]) + 1
    known = int(parts["year"] or year)
    hour, minute, second = (int(found[part]) for part in "hms")
    when = datetime(known or _LEAP_YEAR, month, int(found["day"]), hour, minute, second)
    when += timedelta(seconds=_fraction(found))
    got = Stamp((when - _EPOCH).total_seconds(), "the logger's wall clock", _exact(found), when)
    if not known:
        return replace(got, when=None, period_s=366 * DAY_S)
    if not found["zone"]:
        return got
    offset = _offset(found["zone"])
    aware = when.replace(tzinfo=timezone(offset))
    return replace(got, seconds=got.seconds - offset.total_seconds(), when=aware)


def _offset(zone: str) -> timedelta:
    if zone[0] not in "+-":
        return timedelta(0)
    away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -away if zone[0] == "-" else away


def _fraction(found: re.Match[str]) -> float:
    digits = found["fraction"] or found["ms"]
    return float(f"0.{digits}") if digits else 0.0


def _exact(found: re.Match[str]) -> bool:
    return bool(found["fraction"] or found["ms"])


def _since_1970(digits: str) -> Stamp:
    whole, _, rest = digits.partition(".")
    scale = 10 ** max(0, len(whole) - 10)  # 13 digits are ms, 16 us, 19 ns
    seconds = int(whole) / scale + (float(f"0.{rest}") if rest else 0.0)
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return Stamp(seconds, "the logger's wall clock", scale > 1 or bool(rest), when)
