"""Read the log of an external power meter (a table of any dialect) as watts over seconds of the meter's clock.

Meters differ in everything: a preamble before the heading, any delimiter, decimal points or commas, dates of any
order, power in W or mW, or only volts and amperes, or joules that add up, and a row for each of several devices. What
is clear is read; what is not is refused with the flag that says it (meter_dialect.py): no unit, no sum and no date is
guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.energy.integral import Floats
from edgescope.errors import Message
from edgescope.wings.energy.meter_dialect import Dialect, refused
from edgescope.wings.energy.meter_rows import Rows, added, devices, ordered, rising, single
from edgescope.wings.energy.meter_table import Table
from edgescope.wings.energy.meter_table import read as read_table
from edgescope.wings.energy.meter_time import Clock, clock
from edgescope.wings.energy.meter_units import column, heading, is_unit, only

MAX_BAD = 0.2
"""Share of rows that may be unreadable; a log with more is not understood."""
MAX_W = 20_000.0
"""No device at the edge or in a rack draws more: such a row is a fault of the meter, such a log one of units."""
MIN_W = 1e-3
"""Nor less than this while it computes."""
MAINS_V = 60.0
"""Above the safe voltage of direct current it is the mains, where volts times amperes are not the watts."""


@dataclass(frozen=True)
class MeterLog:
    """A meter's log: moments in seconds since its first row, rising, and watts."""

    t_s: Floats
    watts: Floats
    columns: str
    """Which columns were read as time and power."""
    skipped: int = 0
    """Rows that could not be read, or whose power is impossible."""
    notes: tuple[Message, ...] = ()
    """What was left out, added up or supposed, with its place and count."""

    @property
    def period_s(self) -> float:
        """Return the usual time between two rows."""
        return float(np.median(np.diff(self.t_s)))


def read(path: Path, dialect: Dialect | None = None) -> MeterLog:
    """Return the readings in a meter's log; UsageError names the problem, and the flag that settles it."""
    dialect = dialect or Dialect()
    headless = bool(dialect.columns) and all(name.isdecimal() for name in dialect.columns.values())
    table = read_table(path, lambda head: heading(head, dialect), is_unit, headless)
    when = clock(table, dialect)
    words, values, counts = _power(table, dialect)
    words = f"{when.words}, {words}"
    good = np.isfinite(when.seconds) & np.isfinite(values)
    of = devices(table, when.seconds, dialect)
    notes = (*_left_out(table, good, when, words), *of.notes, *_supposed(when))
    rows = Rows(when.seconds, values, np.array(table.lines, np.int64), notes)
    parts = [rows.where(good & of.keep & (of.which == k)) for k in np.unique(of.which[of.keep])]
    alone = [_alone(part, when, table.name, dialect, counts) for part in parts if len(part) > 1]
    if not alone:
        raise refused(
            "E-METER-1", f"every row of {table.name} is of another device", fix="--only COLUMN=VALUE"
        )
    whole = added(_each_noted(alone), table.name) if len(alone) > 1 else alone[0]
    if len(whole) < 2:
        raise refused("E-METER-1", f"every row of {table.name} has the same time")
    skipped = int((~good).sum()) + len(table.ragged) + whole.lost
    return MeterLog(whole.t_s - whole.t_s[0], whole.watts, words, skipped, whole.notes)


def _alone(rows: Rows, when: Clock, name: str, dialect: Dialect, counts: bool) -> Rows:
    """Return the power of one device, a row a moment, in order of time."""
    rows = ordered(rows, when.kind, name)
    if not counts:
        return single(_possible(rows, name), dialect, name)
    rows = single(rows, dialect, name)
    return _possible(rising(rows, name), name) if len(rows) > 2 else rows


def _each_noted(parts: Sequence[Rows]) -> list[Rows]:
    """Return the parts, each with the notes of all, said once."""
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return [replace(part, notes=notes) for part in parts]


def _supposed(when: Clock) -> tuple[Message, ...]:
    if not when.supposed:
        return ()
    what, effect = f"{when.words} has no unit: taken for seconds", "The load's edges refuse any other"
    return (Message("W-METER-1", what, effect=effect, fix="--time-unit s"),)


def _power(table: Table, dialect: Dialect) -> tuple[str, Floats, bool]:
    """Return (words, a value a row, whether it counts joules) of power, of volts times amperes, or of joules."""
    named = {"voltage", "current", "energy"} & set(dialect.columns)
    if not named and (at := only(table, "power", dialect)) is not None:
        power = column(table, at, "power", dialect)
        return f"power from {power.words!r}", power.values, False
    volts, amps = (only(table, kind, dialect) for kind in ("voltage", "current"))
    if volts is not None and amps is not None:
        return *_product(table, volts, amps, dialect), False
    if (at := only(table, "energy", dialect)) is not None:
        energy = column(table, at, "energy", dialect)
        return f"power from {energy.words!r}", energy.values, True
    raise refused(
        "E-METER-1",
        f"no column of {table.name} is power",
        evidence=f"columns: {', '.join(table.head)}",
        fix="--power-column NAME, or --voltage-column NAME --current-column NAME",
    )


def _product(table: Table, volts: int, amps: int, dialect: Dialect) -> tuple[str, Floats]:
    u, i = column(table, volts, "voltage", dialect), column(table, amps, "current", dialect)
    middle = float(np.nanmedian(np.abs(u.values))) if np.isfinite(u.values).any() else 0.0
    if middle > MAINS_V and not {"voltage", "current"} <= set(dialect.columns):
        raise refused(
            "E-METER-1",
            f"{u.words!r} times {i.words!r} of {table.name} is apparent power at {middle:.0f} V, not watts",
            fix="--power-column NAME, or name both columns if it is direct current: --voltage-column NAME",
        )
    return f"power from {u.words!r} times {i.words!r}", u.values * i.values


def _left_out(table: Table, good: NDArray[np.bool_], when: Clock, words: str) -> tuple[Message, ...]:
    """Return the notes about rows that hold no time and power; UsageError if they are too many."""
    bad, of = int((~good).sum()) + len(table.ragged), len(good) + len(table.ragged)
    if good.sum() < 2 or bad > MAX_BAD * of:
        what = f"{bad} of {of} rows of {table.name} are no time and power"
        raise refused(
            "E-METER-1",
            what,
            evidence=f"{_why(table, good, when)}; read as {words}" if bad else f"read as {words}",
        )
    notes = []
    if bad:
        what = f"{bad} of {of} rows of {table.name} are no time and power: they were left out"
        evidence = _why(table, good, when)
        notes.append(Message("W-METER-1", what, evidence=evidence, effect="The log has a gap at each"))
    if table.headings:
        notes.append(
            Message(
                "W-METER-1",
                f"{table.name} repeats its heading {len(table.headings)} times",
                evidence=f"first at line {table.headings[0]}",
            )
        )
    return tuple(notes)


def _why(table: Table, good: NDArray[np.bool_], when: Clock) -> str:
    """Return what stands in the rows that could not be read, with counts and the first line of each."""
    texts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for row, line, fine, t in zip(table.rows, table.lines, good, when.seconds, strict=True):
        if not fine:
            odd = next((c for c in row if c and not any(s.isdigit() for s in c)), "")
            text = repr(odd) if odd else "no time" if not np.isfinite(t) else "no number"
            texts[text] += 1
            first.setdefault(text, line)
    if table.ragged:
        texts["another number of cells"] = len(table.ragged)
        first["another number of cells"] = table.ragged[0]
    return ", ".join(f"{n} of {text}, first at line {first[text]}" for text, n in texts.most_common(4))


def _possible(rows: Rows, name: str) -> Rows:
    """Return the rows whose power is possible; UsageError E-METER-6 if the whole log is not."""
    watts = rows.watts
    if not len(watts):
        return rows
    middle, most = float(np.median(watts)), float(np.quantile(watts, 0.9))
    if middle < 0 or middle > MAX_W or most < MIN_W:
        sign, unit = "turn the sensor, or change the sign", "mW" if middle > MAX_W else "W"
        raise refused(
            "E-METER-6",
            f"the power in {name} is outside of {MIN_W:g} to {MAX_W:g} W",
            evidence=f"{middle:g} W in the middle",
            fix=sign if middle < 0 else f"--power-unit {unit}, if that is what the meter writes",
        )
    keep = (watts >= 0) & (watts <= MAX_W)
    if keep.all():
        return rows
    at, lost = int(np.argmin(keep)), int((~keep).sum())
    what = f"{lost} rows of {name} are below 0 or above {MAX_W:g} W: they were left out"
    evidence = f"first {watts[at]:g} W at line {rows.lines[at]}"
    rows = rows.noting(what, evidence=evidence, effect="The log has a gap at each")
    return replace(rows.where(keep), lost=rows.lost + lost)
