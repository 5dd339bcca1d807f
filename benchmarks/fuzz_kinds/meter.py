"""Logs of power meters: any dialect, damaged rows, odd cells; the watts that are left are those that were written."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from fuzz_foreign import Told

from edgescope.analysis.energy import meter_log
from edgescope.errors import UsageError

START = datetime(2026, 12, 31, 23, 59, 30)
UNITS = (("W", 1.0), ("mW", 1e3), ("µW", 1e6), ("kW", 1e-3))
TIMES = (
    lambda d, t: f"{t:.3f}",
    lambda d, t: f"{1.7e9 + t:.3f}",
    lambda d, t: f"{1.7e12 + t * 1e3:.0f}",
    lambda d, t: f"{d:%Y/%m/%d %H:%M:%S}.{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%d.%m.%Y %H:%M:%S},{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%m/%d/%Y %I:%M:%S}.{d.microsecond // 1000:03d} {d:%p}",
    lambda d, t: f"{d:%H:%M:%S}.{d.microsecond // 1000:03d}",
    lambda d, t: f"{d:%Y-%m-%dT%H:%M:%S}.{d.microsecond // 1000:03d}Z",
)
ODD = (
    "[N/A]",
    "ERR!",
    "[Not Supported]",
    "nan",
    "-",
    "OL",
    "1e999",
    "--",
    "0x10",
    "1_000",
    "inf",
    "-7",
    "9e9",
    "",
)


def attempt(rng: random.Random, folder: Path) -> Told:
    """Write a log, spoil some rows, read it; what was read must be what was written."""
    rows = rng.randrange(20, 200)
    unit, size = rng.choice(UNITS)
    mark = rng.choice(";\t,|")
    point = rng.choice(".,") if mark != "," else "."
    step, time, tail = rng.choice((0.1, 0.5, 1.0)), rng.choice(TIMES), rng.choice(("", f" {unit}"))
    watts = [round(rng.uniform(2, 60), 2) for _ in range(rows)]
    body, good = [], []
    for i, w in enumerate(watts):
        t = i * step
        cell = f"{w * size:.6f}".replace(".", point)
        moment = time(START + timedelta(seconds=t), t)
        if mark == ",":
            moment = moment.replace(",", ".")  # without quotes it would be two cells
        line = mark.join((moment, f"{cell}{tail}", "x"))
        damaged = _spoilt(rng, line, mark) if rng.random() < 0.08 else line
        body.append(damaged)
        good += [w] if damaged == line else []
    head = mark.join(("time", f"power [{unit}]", "note"))
    path = folder / "meter.csv"
    path.write_text("\n".join([*(["a meter", ""] * rng.randrange(2)), head, *body]) + "\n")
    try:
        log = meter_log.read(path)
    except UsageError:
        assert len(good) < rows, f"a faultless log was refused: {head}"
        raise
    left = [w for w in good if np.abs(log.watts - w).min() > 1e-4]
    # damage may move a row to the time of another: the log holds their mean, and counts such times
    assert len(left) <= _lines(log), f"{len(left)} good rows are not in the log: {left[:3]}, {log.columns}"
    assert len(log.watts) >= 2 and np.all(np.diff(log.t_s) > 0) and np.isfinite(log.watts).all()
    said = sum(int(n) for note in log.notes for n in re.findall(r"^(\d+) (?:of|rows|times)", note.what))
    assert said >= log.skipped, f"{log.skipped} rows skipped, {said} named: {[n.what for n in log.notes]}"
    return Told(rows, len(log.watts), log.skipped + _lines(log), len(good))


def _lines(log: meter_log.MeterLog) -> int:
    """Return the rows that are in the log as part of another: rows of one time, and repeated headings."""
    return sum(
        int(n)
        for note in log.notes
        for n in re.findall(r"^(\d+) times|heading (\d+)", note.what)
        for n in n
        if n
    )


def _spoilt(rng: random.Random, line: str, mark: str) -> str:
    cells = line.split(mark)
    how = rng.randrange(5)
    if how == 0:
        cells[rng.randrange(2)] = rng.choice(ODD)
        return mark.join(cells)
    if how == 1:
        return line[: rng.randrange(1, len(line))]  # an empty line is no row
    if how == 2:
        return line + mark + "7"
    if how == 3:
        at = rng.randrange(1, len(line))  # a sign in front makes a row a comment
        return line[:at] + chr(rng.randrange(33, 0x300)) + line[at + 1 :]
    return mark.join(["", cells[1], cells[2]])
