"""Read the log of an external power meter (CSV of any dialect) as watts over seconds of the meter's clock.

Meters differ in everything: a preamble before the header, commas or semicolons, decimal points or commas, time as ISO
8601, as a count since 1970 in seconds to nanoseconds or as seconds since they were switched on, power in W or mW or
only as volts and amperes. Columns are recognised by their names; if a column is not clear, the user must name it:
nothing is guessed. Only differences of time are used, because the meter's clock is not ours: align.py places it by the
load's own edge.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from edgescope.analysis.energy.integral import Floats
from edgescope.errors import UsageError

MAX_BYTES = 200_000_000
"""A day at 20 Hz is 1.7 million rows, some 60 MB; more is cut to the run first."""
MAX_BAD = 0.2
"""Share of rows that may be unreadable; a log with more is not understood."""
_PREAMBLE = 50
"""Most lines before the header."""
_TIME = re.compile(r"(?i)^\W*(time|timestamp|date|date ?time|datum|zeit|elapsed|t|ts)\b|time|stamp")
_KINDS = {
    "power": re.compile(r"(?i)power|watt|^\W*p\W*$|^\W*[muµμk]?w\W*$|leistung"),
    "voltage": re.compile(r"(?i)volt|^\W*[muµμk]?v\W*$|^\W*u\W*$|spannung"),
    "current": re.compile(r"(?i)current|amp|^\W*[muµμ]?a\W*$|^\W*i\W*$|strom"),
}
_OTHER = re.compile(r"(?i)factor|apparent|reactive|limit|energy|average|since_start")
"""Not the power that flows, though its name says power."""
_PREFIX = r"(m|milli|u|µ|μ|micro|n|nano|k|kilo)?"
_UNITS = {
    kind: re.compile(rf"(?i)(?:power|leistung|voltage|spannung|current|strom)?{_PREFIX}({letters})")
    for kind, letters in (("power", "w|watts?"), ("voltage", "v|volts?"), ("current", "a|amps?|amperes?"))
}
_NEVER = re.compile(r"(?i)[muµμnk]?(vah?|varh?|[wa]h|ws|wsec|j|joules?)|dbm?[wm]?|energy")
"""Units that rule a column out as power, voltage or current, whatever else its name holds."""
_UNITLIKE = re.compile(
    rf"(?i){_PREFIX}(w|v|a|watts?|volts?|amps?|amperes?|ohms?|hz|hp)|(milli|micro|nano|kilo|mega).*"
)
_TIMES = re.compile(r"(?i)(?<![^\W_])[\d.]+ ?[muµμnk]?w(?![^\W_])|[(\[]\W*x?\W*[\d.]+\s*[^\W\d_]+")
"""A multiple of a unit, such as 0.1W; `5v` outside of brackets is the name of a rail."""
_BRACKET = re.compile(r"[(\[]\s*([^)\]]*?)\s*[)\]]")
_PLAIN = re.compile(r"(?i)[^\W\d_]{3,}.*|ch ?\d+|\d+|[ad]c|in|out|")
"""Text in brackets that is not a unit."""
_CELL = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*[WVA]?")
_SCALE = {"": 1.0, "m": 1e-3, "milli": 1e-3, "k": 1e3, "kilo": 1e3, "n": 1e-9, "nano": 1e-9}
_SCALE |= dict.fromkeys(("u", "µ", "μ", "micro"), 1e-6)
_EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
"""From these sizes on, a count since 1970 is in nano-, micro- and milliseconds."""
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2}(?:\.\d+)?)")
_DAY_S = 86_400.0


@dataclass(frozen=True)
class MeterLog:
    """A meter's log: moments in seconds since its first row, rising, and watts."""

    t_s: Floats
    watts: Floats
    columns: str
    """Which columns were read as time and power."""
    skipped: int = 0
    """Rows that could not be read."""

    @property
    def period_s(self) -> float:
        """Return the usual time between two rows."""
        return float(np.median(np.diff(self.t_s)))


def read(path: Path, *, time_column: str = "", power_column: str = "") -> MeterLog:
    """Return the readings in a meter's CSV; UsageError names the problem."""
    rows = _rows(_text(path))
    at, head = _header(rows, time_column, power_column, path)
    when, watts = _time_column(head, time_column, path), _watts(head, power_column, path)
    body = [row for row in rows[at + 1 :] if any(cell.strip() for cell in row)]
    found = [(t, w) for row in body if _good(t := when.read(row)) and _good(w := watts.read(row))]
    skipped = len(body) - len(found)
    if len(found) < 2 or skipped > MAX_BAD * len(body):
        what = f"{skipped} of {len(body)} rows of {path.name} are no time and power"
        raise _bad(what, evidence=f"read as {when.words}, {watts.words}")
    return _log(np.array(found, dtype=np.float64), f"{when.words}, {watts.words}", skipped, path)


def _good(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _bad(what: str, *, evidence: str = "", fix: str = "--time-column NAME --power-column NAME") -> UsageError:
    return UsageError("E-METER-1", what, evidence=evidence, effect="The log was not used", fix=fix)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _bad(f"{path.name} is larger than {MAX_BYTES / 1e6:.0f} MB", fix="cut it to the run")
        data = path.read_bytes()
    except OSError as error:
        raise _bad(f"{path} cannot be read", evidence=error.strerror or "", fix="check the path") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode(
            "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1", errors="replace"
        )


def _rows(text: str) -> list[list[str]]:
    """Return the cells, split at the delimiter on which most lines agree."""
    lines = [line for line in text.replace("\0", "").splitlines() if not line.startswith("#")]
    sample = lines[: 4 * _PREAMBLE]

    def agreed(mark: str) -> tuple[int, int]:
        counts = [line.count(mark) for line in sample if mark in line]
        usual = max(set(counts), key=counts.count) if counts else 0
        return (counts.count(usual), usual) if usual else (0, 0)

    delimiter = max(";\t,|", key=agreed)  # the first of equals: a comma next to semicolons is a decimal comma
    try:
        rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise _bad("the log is not a table", evidence=str(error)) from error
    decimal = delimiter != ","
    return [[c.replace(",", ".") if decimal and "." not in c else c for c in row] for row in rows]


def _header(
    rows: Sequence[Sequence[str]], time_column: str, power_column: str, path: Path
) -> tuple[int, list[str]]:
    """Return (index, cells) of the first row that names a time and a power, or volts and amperes."""
    for index, row in enumerate(rows[:_PREAMBLE]):
        head = [cell.strip() for cell in row]
        timed = time_column.lower() in map(str.lower, head) if time_column else any(map(_TIME.search, head))
        if timed and (power_column or _named(head, "power") or _volts(head)):
            return index, head
    first = " | ".join(rows[0])[:120] if rows else "nothing"
    raise _bad(f"no row of {path.name} names a time and a power column", evidence=f"it begins: {first}")


def _named(head: Sequence[str], kind: str) -> list[str]:
    mine = (cell for cell in head if _KINDS[kind].search(cell))
    return [cell for cell in mine if not _TIME.search(cell) and not _OTHER.search(cell)]


def _only(head: Sequence[str], kind: str, path: Path) -> str:
    """Return the column of a kind, or '' if there is none; UsageError if there are several."""
    names = _named(head, kind)
    if len(names) > 1:
        what = f"{path.name} has several columns of {kind}"
        raise _bad(what, evidence=", ".join(names)[:200], fix="--power-column NAME")
    return names[0] if names else ""


def _volts(head: Sequence[str]) -> bool:
    return bool(_named(head, "voltage") and _named(head, "current"))


def _place(head: Sequence[str], name: str, path: Path) -> int:
    places = [i for i, cell in enumerate(head) if cell.lower() == name.lower()]
    if len(places) != 1:
        what = f"{path.name} has {'no column' if not places else 'several columns'} called {name!r}"
        raise _bad(what, evidence=f"columns: {', '.join(head)}"[:200])
    return places[0]


@dataclass(frozen=True)
class _Column:
    """A reader of one quantity in a row; it returns None if the row does not hold it."""

    words: str
    read: Callable[[Sequence[str]], float | None]


def _time_column(head: Sequence[str], name: str, path: Path) -> _Column:
    named = [cell for cell in head if _TIME.search(cell)]
    # a date next to a time of day changes once a day
    name = name or min(named, key=lambda cell: bool(re.fullmatch(r"(?i)\W*(date|datum)\W*", cell)))
    place = _place(head, name, path)
    unit = re.search(r"(?i)(?:^|[\W_])(n|u|m|nano|micro|milli)(?:s|secs?|seconds?)\W*$", name)
    factor = _SCALE[unit[1].lower()] if unit else 1.0
    return _Column(
        f"time from {name!r}", lambda row: _moment(row[place], factor) if place < len(row) else None
    )


def _moment(cell: str, factor: float) -> float | None:
    """Return seconds on the meter's clock, from any origin."""
    text = cell.strip().strip('"')
    value = _number(text)
    if value is not None:
        return value * next((f for least, f in _EPOCHS if abs(value) >= least), factor)
    clock = _CLOCK.fullmatch(text)
    if clock:
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
    try:  # Python 3.10 reads neither Z nor a fraction of one digit
        short = re.sub(r"([.]\d+)", lambda m: (m[1] + "000000")[:7], text.replace("Z", "+00:00"))
        return datetime.fromisoformat(short).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _watts(head: Sequence[str], name: str, path: Path) -> _Column:
    name = name or _only(head, "power", path)
    if name:
        place, factor = _place(head, name, path), _factor(name, "power", path)
        return _Column(f"power from {name!r}", lambda row: _scaled(row, place, factor))
    volts, amps = _only(head, "voltage", path), _only(head, "current", path)
    v, a = _place(head, volts, path), _place(head, amps, path)
    fv, fa = _factor(volts, "voltage", path), _factor(amps, "current", path)

    def product(row: Sequence[str]) -> float | None:
        voltage, current = _scaled(row, v, fv), _scaled(row, a, fa)
        return None if voltage is None or current is None else voltage * current

    return _Column(f"power from {volts!r} times {amps!r}", product)


def _factor(name: str, kind: str, path: Path) -> float:
    """Return the factor from a column's unit to SI, with the prefix anywhere in the name; 1 if no unit is written.

    UsageError for an ambiguous unit: MW is as often milli in capitals as mega.
    """
    words = re.findall(r"[^\W\d_]+", name)
    units = {(found[1] or "").lower() for word in words if (found := _UNITS[kind].fullmatch(word))}
    doubtful = [w for w in words if _NEVER.fullmatch(w) or re.fullmatch("M[WVA]", w)]
    doubtful += _TIMES.findall(name)
    if not units:
        doubtful += [w for w in words if _UNITLIKE.fullmatch(w)]
        doubtful += [w for w in _BRACKET.findall(name) if not _PLAIN.fullmatch(w)]
    if len(units) > 1 or doubtful:
        raise _bad(
            f"the unit of {name!r} of {path.name} is not W, V or A with a known prefix",
            evidence=", ".join(doubtful)[:200],
            fix="a column of W or mW, named as power_w or power_mw",
        )
    return _SCALE[next(iter(units), "")]


def _scaled(row: Sequence[str], place: int, factor: float) -> float | None:
    """Return one cell in SI; a W, V or A after the number is dropped, another unit makes the cell unreadable."""
    found = _CELL.fullmatch(row[place].strip()) if place < len(row) else None
    return None if found is None else float(found[1]) * factor


def _log(rows: Floats, columns: str, skipped: int, path: Path) -> MeterLog:
    """Return the log; rows with one time stamp are averaged. Only a time of day may go back, at midnight."""
    t, watts = rows[:, 0], rows[:, 1]
    back = np.diff(t)
    if t.max() < _DAY_S and (back < -_DAY_S / 2).any():
        t = t + _DAY_S * np.concatenate(([0], np.cumsum(back < -_DAY_S / 2)))
        back = np.diff(t)
    if (back < 0).any():
        row = int(np.argmax(back < 0)) + 2
        raise _bad(
            f"the clock of {path.name} goes back by {-back.min():.3f} s",
            evidence=f"at row {row}",
            fix="cut it",
        )
    moments, which = np.unique(t, return_inverse=True)
    if len(moments) < 2:
        raise _bad(f"every row of {path.name} has the same time")
    mean = np.bincount(which, watts) / np.bincount(which)
    return MeterLog(moments - moments[0], mean, columns, skipped)
