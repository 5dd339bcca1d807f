"""Which columns of a meter's log are power, volts, amperes or joules, and in which units.

Words are matched whole: the `amp` of `sample` is none. A unit is read from the name, from a row of units or from the
cell itself, or it is named by a flag; a column without one is refused, because mW is written as often as W.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
