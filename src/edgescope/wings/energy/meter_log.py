"""Read the log of an external power meter (a table of any dialect) as watts over seconds of the meter's clock.

Meters differ in everything: a preamble before the heading, any delimiter, decimal points or commas, dates of any
order, power in W or mW, or only volts and amperes, or joules that add up, and a row for each of several devices. What
is clear is read; what is not is refused with the flag that says it (meter_table.py): no unit, no sum and no date is
guessed.

Rows stand in order of time, one a moment: those of several devices add up or are asked about, never averaged.
nvidia-smi writes a row a GPU, some milliseconds apart: a column such as `index` tells them apart, whatever their times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.run.energy_integral import Floats
from edgescope.errors import Message
from edgescope.wings.energy.meter_columns import (
    DAY_S,
    WORDS,
    Clock,
    clock,
    column,
    heading,
    is_unit,
    only,
    place,
    rank,
    words,
)
from edgescope.wings.energy.meter_table import Dialect, Table, refused
from edgescope.wings.energy.meter_table import read as read_table

DEVICES = {"index", "gpu", "uuid", "pci", "device", "serial", "card", "host", "node", "board"}
"""Words of columns whose values are devices beside each other: their power adds up."""
PARTS = DEVICES | {
    "id",
    "name",
    "channel",
    "ch",
    "rail",
    "sensor",
    "phase",
    "port",
    "socket",
    "plug",
    "outlet",
    "slot",
}
PARTS |= {"label", "domain", "meter"}
"""Words of columns whose values may also be parts of each other: whether their power adds up is asked."""
MOST = 64
"""Most devices of one log."""
CYCLE = 0.8
"""Share of rows that must be of the device that comes next in turn."""
STRAY = 0.02
"""Share of moments that may have several rows before they are taken for rows of several devices."""
BURST = 0.1
"""Rows closer than this share of the usual longest step are written in one go."""
LATE = 5
"""A row that comes this many usual steps late at most was only written late."""
HOUR_S = 3600.0


@dataclass(frozen=True)
class Rows:
    """Moments and watts, with the line of each row, and what was done to them."""

    t_s: Floats
    watts: Floats
    lines: NDArray[np.int64]
    notes: tuple[Message, ...] = ()
    lost: int = 0
    """Rows whose power is impossible."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.t_s)

    def where(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        return replace(self, t_s=self.t_s[keep], watts=self.watts[keep], lines=self.lines[keep])

    def noting(self, what: str, *, evidence: str = "", effect: str = "", fix: str = "") -> Rows:
        """Return the rows with one more note."""
        note = Message("W-METER-1", what, evidence=evidence, effect=effect, fix=fix)
        return replace(self, notes=(*self.notes, note))


def ordered(rows: Rows, kind: str, name: str) -> Rows:
    """Return the rows in order of time; UsageError if the clock was set back.

    A time of day passes midnight, and a date without a zone the hour at which summer time ends. A log with its newest
    row first is turned, rows that came late are put in their places.
    """
    step = np.diff(rows.t_s)
    if len(step) and np.mean(step <= 0) > 0.5 and (step < 0).any():
        rows = rows.where(np.arange(len(rows))[::-1]).noting(
            f"{name} has its newest row first: it was turned"
        )
    rows = _unwrapped(rows, kind, name)
    step = np.diff(rows.t_s)
    back = step < 0
    if not back.any():
        return rows
    usual = float(np.median(np.abs(step)))
    if back.mean() < 0.1 and -step.min() > LATE * usual:
        row = int(np.argmax(back)) + 1
        what = f"the clock of {name} goes back by {-step.min():.3f} s"
        raise refused("E-METER-1", what, evidence=f"at line {rows.lines[row]}", fix="cut it")
    what = f"{int(back.sum())} rows of {name} were not in order of time: they were put in their places"
    return rows.where(np.argsort(rows.t_s, kind="stable")).noting(what)


def _unwrapped(rows: Rows, kind: str, name: str) -> Rows:
    """Return the rows with midnight and summer time undone."""
    step = np.diff(rows.t_s)
    if kind == "day":
        days = np.concatenate(([0], np.cumsum(step < -DAY_S / 2)))
        return replace(rows, t_s=rows.t_s + DAY_S * days)
    usual = float(np.median(step)) if len(step) else 0.0
    if kind != "local" or usual <= 0:
        return rows
    for shift, why in (
        (HOUR_S, "the end of summer time"),
        (DAY_S, "midnight beside a date that stands still"),
    ):
        turned = np.abs(step + shift - usual) <= 2 * usual
        if turned.sum() == 1:
            at = int(np.argmax(turned)) + 1
            what = f"the clock of {name} goes back by {shift / HOUR_S:.0f} h at line {rows.lines[at]}: taken for {why}"
            return replace(rows, t_s=rows.t_s + shift * (np.arange(len(rows)) >= at)).noting(what)
    return rows


@dataclass(frozen=True)
class Devices:
    """Which device each row is of."""

    keep: NDArray[np.bool_]
    """The rows that are read."""
    which: NDArray[np.intp]
    notes: tuple[Message, ...] = ()


def devices(table: Table, times: Floats, dialect: Dialect) -> Devices:
    """Return the device of each row: all the same, or those whose power adds up.

    UsageError E-METER-5 if rows are of several parts of which it is not known whether they add up.
    """
    keep = np.ones(len(table.rows), bool)
    if dialect.only:
        column, _, value = dialect.only.partition("=")
        cells = table.column(place(table, column, "only"))
        keep = np.array([cell == value.strip() for cell in cells], bool)
        if not keep.any():
            evidence = f"it holds {', '.join(sorted(set(cells))[:8])}"
            raise refused(
                "E-METER-1",
                f"no row of {table.name} has {dialect.only}",
                evidence=evidence,
                fix=f"--only {column}=...",
            )
    one = Devices(keep, np.zeros(len(keep), np.intp))
    at = place(table, dialect.total, "sum") if dialect.total else _keyed(table, times, keep, dialect)
    if at is None:
        return one
    names, which = np.unique(np.array(table.column(at), str), return_inverse=True)
    names = names[np.unique(which[keep])]
    if len(names) < 2:
        return one
    column, values = table.head[at], ", ".join(names[:8])
    if not dialect.total and not DEVICES & {w.lower() for w in words(column)}:
        raise refused(
            "E-METER-5",
            f"{table.name} has rows of {len(names)} values of {column!r}",
            evidence=values,
            fix=f"--only {column}={names[0]}, or --sum {column} if their power adds up",
        )
    what = f"the power of {len(names)} values of {column!r} was added up"
    note = Message("W-METER-1", what, evidence=values, fix=f"--only {column}={names[0]} for one of them")
    return Devices(keep, which, (note,))


def _keyed(table: Table, times: Floats, keep: NDArray[np.bool_], dialect: Dialect) -> int | None:
    """Return the column whose values take turns from row to row, or whose rows cover the same time."""
    for at, name in enumerate(table.head):
        quantity = name in dialect.columns.values() or any(rank(name, kind) is not None for kind in WORDS)
        if quantity or not PARTS & {word.lower() for word in words(name)}:
            continue
        cells = np.array(table.column(at), str)[keep]
        names, which = np.unique(cells, return_inverse=True)
        if 1 < len(names) <= min(MOST, len(cells) // 2) and (
            _in_turn(which, len(names)) or _beside(which, len(names), times[keep])
        ):
            return at
    return None


def _in_turn(which: NDArray[np.intp], n: int) -> bool:
    again = which[n:] == which[:-n]
    same = which[1:] == which[:-1]
    return bool(len(again)) and again.mean() >= CYCLE and same.mean() <= 1 - CYCLE


def _beside(which: NDArray[np.intp], n: int, times: Floats) -> bool:
    """Return whether the rows of each value stand together and cover the time of the others."""
    if np.count_nonzero(np.diff(which)) != n - 1:
        return False
    spans = [times[which == k] for k in range(n)]
    spans = [span[np.isfinite(span)] for span in spans]
    if any(len(span) < 2 for span in spans):
        return False
    common = min(s.max() for s in spans) - max(s.min() for s in spans)
    return bool(common > 0.5 * max(np.ptp(s) for s in spans))


def added(parts: Sequence[Rows], name: str) -> Rows:
    """Return the sum of several devices at the moments of the one with the most rows.

    A device counts at a moment only if it wrote a row within two of its usual steps; moments without all are left out.
    """
    main = max(parts, key=len)
    total, whole = np.zeros(len(main)), np.ones(len(main), bool)
    for part in parts:
        total += np.interp(main.t_s, part.t_s, part.watts)
        reach = 2 * float(np.median(np.diff(part.t_s))) if len(part) > 1 else 0.0
        after = np.clip(np.searchsorted(part.t_s, main.t_s), 1, max(len(part) - 1, 1))
        near = [np.abs(part.t_s[np.clip(after - k, 0, len(part) - 1)] - main.t_s) for k in (0, 1)]
        whole &= np.minimum(*near) <= reach
    if not whole.any():
        raise refused(
            "E-METER-5", f"the devices of {name} have no moment in common", fix="--only COLUMN=VALUE"
        )
    lost = sum(part.lost for part in parts)
    out = replace(main, watts=total, lost=lost).where(whole)
    left = int((~whole).sum())
    return out.noting(f"{left} moments of {name} lack a device: they were left out") if left else out


def single(rows: Rows, dialect: Dialect, name: str) -> Rows:
    """Return one row a moment; UsageError E-METER-5 if rows come in groups and nothing says what they are of."""
    group = np.concatenate(([0], np.cumsum(np.diff(rows.t_s) > _together(rows.t_s))))
    count = np.bincount(group)
    several = int((count > 1).sum())
    if not several:
        return rows
    if not dialect.repeated and several > max(1, STRAY * len(count)):
        most, line = int(np.bincount(count).argmax()), rows.lines[int(np.argmax(np.diff(group) == 0)) + 1]
        raise refused(
            "E-METER-5",
            f"{name} has {most} rows at most of its times, and no column says of what",
            evidence=f"{several} of {len(count)} times, first at line {line}",
            fix="--repeated sum for a row a device, --repeated mean for one meter with a coarse clock",
        )
    watts: Floats = np.bincount(group, rows.watts).astype(np.float64)
    if dialect.repeated == "sum":
        watts = np.where(count == np.bincount(count).argmax(), watts, np.nan)
    else:
        watts = watts / count
    first = np.concatenate(([0], np.flatnonzero(np.diff(group)) + 1))
    out = replace(rows.where(first), watts=watts)
    how = "added up" if dialect.repeated == "sum" else "averaged"
    line = rows.lines[int(np.argmax(np.diff(group) == 0)) + 1]
    out = out.noting(
        f"{several} times of {name} have several rows: they were {how}", evidence=f"first at line {line}"
    )
    return out.where(np.isfinite(out.watts))


def _together(t: Floats) -> float:
    """Return the longest step between rows of one moment: 0, or a little more where rows come in bursts."""
    step = np.diff(t)
    if len(step) < 4:
        return 0.0
    long = float(np.quantile(step, 0.9))
    short = step < BURST * long
    return BURST * long if short.mean() > 0.4 else 0.0


def rising(rows: Rows, name: str) -> Rows:
    """Return the power between the rows of joules that add up, at the middle of each two; UsageError if they fall."""
    joules, seconds = np.diff(rows.watts), np.diff(rows.t_s)
    if (joules < 0).any():
        at = int(np.argmax(joules < 0)) + 1
        what = f"the energy in {name} falls, and a counter never does"
        raise refused(
            "E-METER-1", what, evidence=f"at line {rows.lines[at]}", fix="cut it, or --power-column NAME"
        )
    middle = replace(
        rows.where(np.arange(len(joules))), t_s=rows.t_s[:-1] + seconds / 2, watts=joules / seconds
    )
    return middle.noting(f"the power of {name} is the rise of a counter of energy")


# -- the log -------------------------------------------------------------------------------------------------


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
