"""What the columns of a meter's log mean: the quantity and unit of each, and the moments that its clock writes.

Words are matched whole: the `amp` of `sample` is none. A unit is read from the name, from a row of units or from the
cell itself, or it is named by a flag; a column without one is refused, because mW is written as often as W.

    0.1 1.7e9 1777888800123          seconds since a start, or a count since 1970 in s, ms, us or ns
    10:00:00.5   23:59:59 PM         a time of day, which may pass midnight
    2026-05-04T10:00:00.5+02:00      a date and a time, also 2026/05/04, 04.05.2026 and 05/04/2026 10:00:00 PM

Only differences of time are used, because the meter's clock is not ours: align.py places it by the load's own edge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np

from edgescope.analysis.run.energy_integral import Floats
from edgescope.wings.energy.meter_table import SAMPLE, Dialect, Table, decimal, number, refused

WORDS = {
    "power": {"power", "watt", "watts", "wattage", "pwr", "leistung", "p"},
    "voltage": {"voltage", "volt", "volts", "spannung", "u"},
    "current": {"current", "amp", "amps", "ampere", "amperes", "strom", "i"},
    "energy": {"energy", "energie"},
    "time": {
        "time",
        "timestamp",
        "date",
        "datetime",
        "datum",
        "zeit",
        "zeitstempel",
        "uhrzeit",
        "elapsed",
        "t",
    }
    | {"ts", "epoch", "uptime"},
}
LETTERS = {"p", "u", "i", "t", "a"}
"""Words that count only as the whole name of a column: elsewhere they number phases and channels."""
_NEVER = {
    "factor",
    "apparent",
    "reactive",
    "limit",
    "cap",
    "budget",
    "rated",
    "max",
    "maximum",
    "min",
    "minimum",
}
_NEVER |= {"peak", "management", "average", "default", "state", "mode", "tdp", "status"}
"""Not the power that flows, though its name says power."""
_COUNTED = {"phase", "channel", "ch", "port", "line", "rail", "input", "output"}
"""Words before a letter that is a number, no unit."""
_BASES = {
    "power": {"w": 1.0, "watt": 1.0, "watts": 1.0},
    "voltage": {"v": 1.0, "volt": 1.0, "volts": 1.0},
    "current": {"a": 1.0, "amp": 1.0, "amps": 1.0, "ampere": 1.0, "amperes": 1.0},
    "energy": {"j": 1.0, "joule": 1.0, "joules": 1.0, "ws": 1.0, "wh": 3600.0, "watthours": 3600.0},
    "time": {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0},
}
_PREFIXES = {"": 1.0, "m": 1e-3, "milli": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "micro": 1e-6, "n": 1e-9}
_PREFIXES |= {"nano": 1e-9, "k": 1e3, "kilo": 1e3}
UNITS: dict[str, tuple[str, float]] = {
    prefix + base: (kind, scale * value)
    for kind, bases in _BASES.items()
    for base, value in bases.items()
    for prefix, scale in _PREFIXES.items()
    if not (kind == "time" and scale > 1)
}
UNITS |= {word: ("time", 60.0) for word in ("min", "mins", "minutes")}
UNITS |= {word: ("time", 3600.0) for word in ("h", "hr", "hours")}
"""A unit in small letters -> its quantity, and its size in SI."""
_OTHER = re.compile(r"(?i)[muµμnk]?(vah?|varh?|ah|as|hz|hp|ohms?)|dbm?[wm]?|%|°?c|pct")
_MEGA = re.compile(r"M(W|V|A|J|Wh)")
"""MW is as often milli in capitals as mega."""
_TIMES = re.compile(r"(?i)(?<![^\W_])[\d.]+ ?[muµμnk]?w(?![^\W_])|[(\[]\W*x?\W*[\d.]+\s*[^\W\d_]+")
"""A multiple of a unit, such as 0.1W; `5v` outside of brackets is the name of a rail."""
_BRACKET = re.compile(r"[(\[]\s*([^)\]]*?)\s*[)\]]")
_PLAIN = re.compile(r"(?i)[^\W\d_]{3,}.*|ch ?\d+|\d+|[ad]c|in|out|")
"""Text in brackets that is no unit."""
_CELL = re.compile(r"([-+]?(?:\d[\d.,]*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\W\d_]*)")
_LARGE = {"power": 1000.0, "voltage": 400.0, "current": 50.0}
"""A column whose middle is above this looks like one of thousandths."""
USUAL = {"power": "W", "voltage": "V", "current": "A", "energy": "J", "time": "s"}


def words(name: str) -> list[str]:
    """Return the words of a column's name, parted at signs, digits and capitals; letters behind a digit are none."""
    parts = re.sub(r"(?<=[a-z]{3})(?=[A-Z])", " ", name)
    return re.findall(r"(?<!\d)(?<!\d\.)[^\W\d_]+", re.sub(r"\d+[^\W\d_]+", " ", parts))


def is_unit(cell: str) -> bool:
    """Return whether a cell of the row below the heading is a unit."""
    return cell.strip(" []()").lower() in UNITS


def units_in(name: str, kind: str) -> set[str]:
    """Return the units of a quantity that a column's name holds."""
    found = {word.lower() for word in words(name)}
    for stem in WORDS[kind]:
        found |= {w.removeprefix(stem) for w in found if len(stem) > 2 and w.startswith(stem)}
    return {word for word in found if UNITS.get(word, ("",))[0] == kind}


def rank(name: str, kind: str) -> int | None:
    """Return how clearly a name is of a quantity, 0 at best; None if it is not of it."""
    plain = [word.lower() for word in words(name)]
    if kind != "time" and (_NEVER & set(plain) or rank(name, "time") is not None):
        return None
    whole = len(plain) == 1
    named = any(word in WORDS[kind] and (whole or word not in LETTERS) for word in plain)
    unit = bool(plain) and UNITS.get(plain[-1], ("",))[0] == kind
    unit = unit and (whole or kind != "time") and not (len(plain[-1]) == 1 and _COUNTED & set(plain[:-1]))
    rival = plain and UNITS.get(plain[-1], (kind,))[0] not in (kind, "time")
    if rival or not (named or unit):
        return None
    return 0 if named and unit else 1


def columns(head: Sequence[str], kind: str) -> list[str]:
    """Return the columns that are most clearly of a quantity."""
    ranks = {name: found for name in head if (found := rank(name, kind)) is not None}
    return [name for name in head if name in ranks and ranks[name] == min(ranks.values())]


def heading(head: Sequence[str], dialect: Dialect) -> bool:
    """Return whether a row names a time and a power, volts and amperes, or joules."""
    given = set(dialect.columns)  # one that is misspelt is told with the heading beside it
    if "time" in given and dialect.columns["time"].lower() not in (cell.lower() for cell in head):
        return False
    has = given | {kind for kind in WORDS if columns(head, kind)}
    return "time" in has and bool(has & {"power", "energy"} or {"voltage", "current"}.issubset(has))


def place(table: Table, name: str, kind: str) -> int:
    """Return where a column is, by its name or its number; UsageError if that is not one column."""
    places = [i for i, cell in enumerate(table.head) if cell.lower() == name.lower()]
    if not places and name.isdecimal() and 1 <= int(name) <= len(table.head):
        return int(name) - 1
    if len(places) != 1:
        what = f"{table.name} has {'no column' if not places else 'several columns'} called {name!r}"
        raise refused(
            "E-METER-1", what, evidence=f"columns: {', '.join(table.head)}", fix=f"--{kind}-column NUMBER"
        )
    return places[0]


def only(table: Table, kind: str, dialect: Dialect) -> int | None:
    """Return where the column of a quantity is, None if there is none; UsageError if there are several."""
    if kind in dialect.columns:
        return place(table, dialect.columns[kind], kind)
    names = columns(table.head, kind)
    if len(names) > 1:
        what = f"{table.name} has several columns of {kind}"
        raise refused("E-METER-1", what, evidence=", ".join(names), fix=f"--{kind}-column NAME")
    return place(table, names[0], kind) if names else None


@dataclass(frozen=True)
class Column:
    """One quantity in SI, a value a row: nan where the cell is none."""

    words: str
    values: Floats


def column(table: Table, at: int, kind: str, dialect: Dialect) -> Column:
    """Return a column in SI; UsageError E-METER-4 if its unit is not written."""
    name, cells = table.head[at], table.column(at)
    mark = decimal_mark(table, at, cells, dialect)
    usual = _unit(table, at, kind, dialect)
    values, bare = np.full(len(cells), np.nan), 0
    for i, cell in enumerate(cells):
        found = _CELL.fullmatch(cell)
        value = number(found[1], mark) if found else None
        if found is None or value is None:
            continue
        of, size = UNITS.get(found[2].lower(), ("", 0.0)) if found[2] else (kind, usual)
        bare += size is None
        if of == kind and size is not None and not _MEGA.fullmatch(found[2]):
            values[i] = value * size
    if bare and not np.isfinite(values).any():
        raise _unknown(table, name, cells, kind, mark)
    return Column(name, values)


def decimal_mark(table: Table, at: int, cells: Sequence[str], dialect: Dialect) -> str:
    """Return the decimal mark of a column's cells; UsageError E-METER-1 if it cannot be told."""
    mark = dialect.decimal or decimal(cells, [c for row in table.rows[:SAMPLE] for c in row], table.delimiter)
    if not mark:
        what = f"the decimal mark of {table.head[at]!r} of {table.name} cannot be told"
        evidence = f"such as {next((c for c in cells if ',' in c), cells[0])!r}"
        raise refused("E-METER-1", what, evidence=evidence, fix="--decimal ,")
    return mark


def _unknown(table: Table, name: str, cells: Sequence[str], kind: str, mark: str) -> Exception:
    """Return the refusal of a column without a unit, with the unit that its values look like."""
    values = [v for cell in cells if (v := number(cell, mark)) is not None]
    middle = float(np.median(np.abs(values))) if values else 0.0
    prefix = "m" if middle > _LARGE.get(kind, np.inf) else ""
    what = f"the unit of {name!r} of {table.name} is not written"
    evidence = f"its values are {min(values):g} to {max(values):g}" if values else ""
    fix = f"--{kind}-unit {prefix}{USUAL[kind]}, if that is what the meter writes"
    return refused("E-METER-4", what, evidence=evidence, fix=fix)


def _unit(table: Table, at: int, kind: str, dialect: Dialect) -> float | None:
    """Return the size of a column's unit in SI, None if none is written; UsageError for one that is not understood."""
    if kind in dialect.units:
        return unit(dialect.units[kind], kind)
    name, below = table.head[at], table.units[at].strip(" []()")
    units = units_in(name, kind) | ({below.lower()} if below else set())
    sizes = {UNITS[u][1] if UNITS.get(u, ("",))[0] == kind else None for u in units}
    doubtful = _doubtful(name, below, bool(units))
    if len(sizes) > 1 or None in sizes or doubtful:
        raise refused(
            "E-METER-4",
            f"the unit of {name!r} of {table.name} is not {USUAL[kind]} with a known prefix",
            evidence=", ".join(doubtful or sorted(units)),
            fix=f"--{kind}-unit m{USUAL[kind]}, if that is what the meter writes",
        )
    return next(iter(sizes), None)


def _doubtful(name: str, below: str, known: bool) -> list[str]:
    """Return what in a column's name may be a unit and is none that is understood."""
    found = [word for word in (*words(name), below) if _OTHER.fullmatch(word) or _MEGA.fullmatch(word)]
    found += _TIMES.findall(name)
    if not known:
        found += [text for text in _BRACKET.findall(name) if not _PLAIN.fullmatch(text)]
    return found


def unit(text: str, kind: str) -> float:
    """Return the size in SI of a unit that a flag names; UsageError E-METER-4 if it is none of the quantity."""
    of, size = UNITS.get(text.lower(), ("", 0.0))
    if of != kind or _MEGA.fullmatch(text):
        fix = f"--{kind}-unit {USUAL[kind]}"
        raise refused("E-METER-4", f"{text!r} is no unit of {kind}", fix=fix)
    return size


# -- its clock

DAY_S = 86_400.0
EPOCHS = ((9e17, 1e-9), (9e14, 1e-6), (9e11, 1e-3), (9e8, 1.0))
"""A count from the first number to 4.6 times it is one since 1970, of 1998 to 2100, with the unit beside it."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = re.compile(rf"(?i)\b({'|'.join(_MONTHS)})[a-z]*\b")
_MOMENT = re.compile(
    r"(?ix)(?:(?P<date>\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8})\.?(?:,?\s+|[T_]|$))?"
    r"(?:(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?(?:[.,:](?P<f>\d+))?\s*(?P<half>[ap]\.?m\.?)?)?"
    r"\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2}|[a-z]{3,4})?"
)
_DAYS = re.compile(r"(\d+) days? (.+)")


@dataclass(frozen=True)
class Clock:
    """The moments of a log's rows, from any origin."""

    words: str
    seconds: Floats
    """A value a row, nan where the cell is no time."""
    kind: str
    """day (a time of day), local (a date without a zone), absolute or count."""
    supposed: bool = False
    """Whether a count without a unit was taken for seconds."""


def clock(table: Table, dialect: Dialect) -> Clock:
    """Return the moments of a log's rows; UsageError E-METER-1 or E-METER-4 where they cannot be told."""
    places = _places(table, dialect)
    name = " and ".join(repr(table.head[at]) for at in places)
    cells = [" ".join(parts) for parts in zip(*(table.column(at) for at in places), strict=True)]
    words = f"time from {name}"
    if len(places) == 1 and sum(_is_count(cell) for cell in cells) * 2 > len(cells):
        return _count(table, places[0], cells, words, dialect)
    return _moments(table, cells, words, dialect)


def _places(table: Table, dialect: Dialect) -> list[int]:
    """Return where the time stands: one column, or a date and a time of day."""
    if "time" in dialect.columns:
        return [place(table, dialect.columns["time"], "time")]
    named = [name for name in table.head if rank(name, "time") is not None]
    found = [place(table, name, "time") for name in dict.fromkeys(named)]
    dated = [at for at in found if _share(table, at, lambda m: m["date"] and not m["h"])]
    daily = [at for at in found if _share(table, at, lambda m: m["h"] and not m["date"])]
    if dated and daily:
        return [dated[0], daily[0]]
    usable = [at for at in found if at not in dated and _usable(table, at)]
    return usable[:1] or found[:1]


def _share(table: Table, at: int, holds: object) -> bool:
    cells = table.column(at)[:SAMPLE]
    found = [m for cell in cells if not _is_count(cell) and (m := _MOMENT.fullmatch(_plain(cell)))]
    return bool(cells) and 2 * sum(bool(holds(m)) for m in found) > len(cells)  # type: ignore[operator]


def _usable(table: Table, at: int) -> bool:
    cells = table.column(at)[:SAMPLE]
    return 2 * sum(_is_count(c) or bool(c and _MOMENT.fullmatch(_plain(c))) for c in cells) >= len(cells)


def _is_count(cell: str) -> bool:
    return bool(re.fullmatch(r"[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?\s*[a-zµμ]{0,2}", cell, re.I)) and (
        not re.fullmatch(r"\d{1,4}\.\d{1,2}\.\d{1,4}", cell)
    )


# -- counts ------------------------------------------------------------------------------------------------------------


def _count(table: Table, at: int, cells: Sequence[str], words: str, dialect: Dialect) -> Clock:
    name = table.head[at]
    mark = decimal_mark(table, at, cells, dialect)
    values = np.array([_value(cell, mark) for cell in cells])
    finite = values[np.isfinite(values)]
    size = _count_unit(table, at, dialect)
    if size is not None or not len(finite):
        return Clock(words, values * (size or 1.0), "count")
    middle = float(np.median(np.abs(finite)))
    epoch = next((u for least, u in EPOCHS if least <= middle < 4.6 * least), None)
    if epoch is None and middle >= EPOCHS[-1][0]:
        what = f"the unit of {name!r} of {table.name} is not written"
        raise refused("E-METER-4", what, evidence=f"such as {middle:.0f}", fix="--time-unit ns")
    bare = any(cell[-1:].isdigit() for cell, value in zip(cells, values, strict=True) if np.isfinite(value))
    return Clock(words, values * (epoch or 1.0), "count", supposed=epoch is None and bare)


def _value(cell: str, mark: str) -> float:
    """Return a count; a unit behind the number gives seconds."""
    found = re.fullmatch(r"(.*?\d[.,]?)\s*([a-zµμ]*)", cell, re.I)
    value = number(found[1], mark) if found else None
    of, size = UNITS.get(found[2].lower(), ("", 1.0)) if found and found[2] else ("time", 1.0)
    return np.nan if value is None or of != "time" else value * size


def _count_unit(table: Table, at: int, dialect: Dialect) -> float | None:
    """Return the seconds of a count's unit by the flag, the name or the row of units; None if none is written."""
    if "time" in dialect.units:
        return unit(dialect.units["time"], "time")
    below = table.units[at].strip(" []()").lower()
    sizes = {UNITS[u][1] for u in units_in(table.head[at], "time") | ({below} & set(UNITS))}
    if len(sizes) > 1:
        what = f"the unit of {table.head[at]!r} of {table.name} cannot be told"
        raise refused("E-METER-4", what, fix="--time-unit ms")
    return next(iter(sizes), None)


# -- dates and times of day --------------------------------------------------------------------------------------------


def _plain(cell: str) -> str:
    """Return a moment with its month as a number and without the day of the week."""
    text = re.sub(r"(?i)^(mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+", "", cell.strip().strip("\"'"))
    month = _MONTH.search(text)
    if month is None:
        return text
    n = _MONTHS.index(month[1].lower()) + 1
    text = re.sub(rf"(\d{{1,2}})[-\s]+{month[0]}[-,\s]+(\d{{4}})", rf"\g<2>-{n}-\g<1>", text)
    return re.sub(rf"{month[0]}\s+(\d{{1,2}}),?\s+(\d{{4}})", rf"\g<2>-{n}-\g<1>", text)


def _moments(table: Table, cells: Sequence[str], words: str, dialect: Dialect) -> Clock:
    found = [_MOMENT.fullmatch(_plain(cell)) if cell else None for cell in cells]
    order = _day_order(table, [m for m in found if m], dialect)
    seconds = np.full(len(cells), np.nan)
    for i, (cell, m) in enumerate(zip(cells, found, strict=True)):
        seconds[i] = _seconds(m, order) if m else _lapse(cell)
    good = [m for m in found if m]
    zoned = sum(_offset(m["zone"]) is not None for m in good) * 2 > len(good)
    dated = sum(bool(m["date"]) for m in good) * 2 > len(good)
    return Clock(words, seconds, "absolute" if zoned and dated else "local" if dated else "day")


def _lapse(cell: str) -> float:
    """Return the seconds of `1 days 00:00:01.5`, else nan."""
    found = _DAYS.fullmatch(cell)
    m = _MOMENT.fullmatch(found[2]) if found else None
    return np.nan if found is None or m is None else int(found[1]) * DAY_S + _seconds(m, "dmy")


def _seconds(m: re.Match[str], order: str) -> float:
    """Return a moment in seconds, nan if its date or time does not exist."""
    day = 0.0
    if m["date"]:
        try:
            day = DAY_S * (_day(m["date"], order) - date(1970, 1, 1).toordinal())
        except ValueError:
            return np.nan
    if not m["h"]:
        return np.nan
    offset = _offset(m["zone"])
    return day + _time_of_day(m) - (offset or 0.0)


def _time_of_day(m: re.Match[str]) -> float:
    hour, minute, fraction = int(m["h"]), int(m["m"]), float(f"0.{m['f'] or 0}")
    if m["s"] is None and m["f"] and not m["half"]:  # minutes and seconds, as spreadsheets show them
        return hour * 60 + minute + fraction if minute < 60 else np.nan
    if m["half"]:
        if not 1 <= hour <= 12:
            return np.nan
        hour = hour % 12 + 12 * (m["half"][0] in "pP")
    second = int(m["s"] or 0)
    if hour > 24 or minute > 59 or second > 60:
        return np.nan
    return hour * 3600 + minute * 60 + second + fraction


def _offset(zone: str | None) -> float | None:
    """Return the seconds east of Greenwich; None for no zone and for CET and the like, which are not known."""
    if not zone:
        return None
    if zone.upper() in ("Z", "UTC", "GMT"):
        return 0.0
    found = re.fullmatch(r"([+-])(\d{2}):?(\d{2})", zone)
    return float(f"{found[1]}{int(found[2]) * 3600 + int(found[3]) * 60}") if found else None


def _date_parts(text: str) -> tuple[str, str, str]:
    if text.isdecimal():
        return text[:4], text[4:6], text[6:]
    a, b, c = re.split(r"[-/.]", text)
    return a, b, c


def _day(text: str, order: str) -> int:
    """Return the day's ordinal; ValueError if there is no such day."""
    a, b, c = _date_parts(text)
    if len(a) == 4:
        return date(int(a), int(b), int(c)).toordinal()
    year = int(c) + (2000 if len(c) == 2 else 0)
    day, month = (b, a) if order == "mdy" and "." not in text else (a, b)
    return date(year, int(month), int(day)).toordinal()


def _day_order(table: Table, found: Sequence[re.Match[str]], dialect: Dialect) -> str:
    """Return dmy or mdy, as the dates of the whole file say; UsageError if neither or both fit.

    On one single day the order changes no difference of time. Over several it is the one in which each is the next.
    """
    if dialect.dates:
        return dialect.dates
    texts = list(dict.fromkeys(m["date"] for m in found if m["date"]))
    texts = [text for text in texts if len(_date_parts(text)[0]) < 4 and "." not in text]
    if len(texts) < 2:
        return next((order for order in ("dmy", "mdy") if not texts or _exists(texts, order)), "dmy")
    fits = [order for order in ("dmy", "mdy") if _exists(texts, order)]
    near = [o for o in fits if all(abs(_day(b, o) - _day(a, o)) <= 1 for a, b in pairwise(texts))]
    if len(fits) == 1 or len(near) == 1:
        return (near if len(near) == 1 else fits)[0]
    evidence = f"{texts[0]} and {texts[-1]}"
    raise refused(
        "E-METER-1",
        f"day and month of {table.name} cannot be told apart",
        evidence=evidence,
        fix="--dates dmy",
    )


def _exists(texts: Sequence[str], order: str) -> bool:
    try:
        return all(_day(text, order) for text in texts)
    except ValueError:
        return False
