"""Read a file of tegrastats lines, from any board and release, as rows of readings.

    log = read("run.log")                      # R35 and later print the date; many loggers put their own time first
    log = read("run.log.gz", interval_s=0.1)   # otherwise there is no time in a line: say the interval
    python -m edgescope.wings.jetson.tegrastats_log run.log > run.csv    # a column a channel; also a --meter log

A logger's time (tegrastats_line.py names the forms) counts for more than the board's, which is in whole seconds and of
no stated zone. Lines that share a whole second are spread over it, since ten lines are not one moment. Time never runs
backwards here: if the clock was set back, the next line follows one interval later; if it leaps ahead, the board may
have slept, so the gap stays. Both are reported.

Lines that another program printed (stderr, a shell) are counted and left out. In a line that was cut off, a possible
half number or half name is left out, because it would look like a whole one.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import TextIO

from edgescope.devices.base import ChannelSpec, Value
from edgescope.errors import DeviceError, EdgescopeError, UsageError
from edgescope.wings.jetson.tegrastats import spec_of
from edgescope.wings.jetson.tegrastats_line import Line, Stamp, parse

Row = tuple[str, int, Value]

_GZIP = b"\x1f\x8b"
_JUMP_S = 3.0
"""A gap between two dates is reported if it is longer than this and than ten intervals."""
_MAX_LINE = 20_000


@dataclass(frozen=True)
class Log:
    """The readings of a log; times in ns since its first line, on a clock that never runs backwards."""

    channels: tuple[ChannelSpec, ...]
    rows: tuple[Row, ...]
    clock: str
    """The source of the times, in words."""
    start: datetime | None
    """The first line's wall clock, without a zone unless it states one; None if the lines carry no date."""
    interval_s: float
    """Median time between two lines; 0 for a single line."""
    remarks: tuple[str, ...]
    """Steps of the clock, lines left out or cut off, items that could not be read."""


def read(
    path: Path | str,
    *,
    interval_s: float | None = None,
    scope_of: Callable[[str], str] = lambda label: "rail",
) -> Log:
    """Return the readings in the log at `path`, gzipped or not.

    `interval_s` is the time between two lines, needed if they carry no date. `scope_of` gives the scope of
    a rail from its label. Raises UsageError (E-TEGRA-1) without any time, DeviceError (E-TEGRA-2) where the
    file cannot be read or holds no line of tegrastats.
    """
    lines, remarks = _lines(Path(path))
    whole, cut = _mended(lines)
    if cut:
        remarks.append(f"{cut} lines were cut off: what may be cut in half is left out")
    if strange := [text for line in whole for text in line.unknown]:
        remarks.append(f"{len(strange)} items could not be read, such as {strange[0]!r}")
    times, clock, steps = _times([line.stamp for line in whole], interval_s)
    specs: dict[str, ChannelSpec] = {}
    rows: list[Row] = []
    for t_ns, line in zip(times, whole, strict=True):
        for f in line.fields:
            if f.channel not in specs:
                specs[f.channel] = spec_of(f, {f.label: scope_of(f.label)} if f.unit == "W" else {})
            rows.append((f.channel, t_ns, f.value))
    gaps = [(b - a) / 1e9 for a, b in pairwise(times)]
    pace = statistics.median(gaps) if gaps else 0.0
    start = next((line.when for line in whole if line.when), None)
    return Log(tuple(specs.values()), tuple(rows), clock, start, pace, tuple(steps + remarks))


def _lines(path: Path) -> tuple[list[Line], list[str]]:
    """Return the lines with readings, and remarks; an unfinished last line loses its possibly cut end."""
    texts = _texts(path)
    parsed = [parse(text) for text in texts]
    kept = [line for line in parsed if line.fields]
    if not kept:
        raise DeviceError(
            "E-TEGRA-2",
            "the file holds no line of tegrastats",
            evidence=f"{path}: {len(texts)} lines",
            fix="tegrastats --interval 1000 --logfile FILE",
        )
    if not texts[-1].endswith("\n") and parsed[-1].fields:
        kept[-1] = _without_cut_end(kept[-1])
    other = sum(1 for line in parsed if not line.fields and line.items)
    return kept, [f"{other} lines are not of tegrastats and were left out"] if other else []


def _texts(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
        if data[:2] == _GZIP:
            data = _unzipped(data)
    except (OSError, ValueError, zlib.error) as error:
        raise DeviceError("E-TEGRA-2", f"the log cannot be read: {error}", evidence=str(path)) from error
    return [text[:_MAX_LINE] for text in data.decode(errors="replace").splitlines(keepends=True)]


def _unzipped(data: bytes) -> bytes:
    """Return the bytes that can be unpacked: the file of a killed logger has no end marker."""
    out = b""
    while data[:2] == _GZIP:
        unpack = zlib.decompressobj(wbits=31)
        out += unpack.decompress(data)
        data = unpack.unused_data
    return out


def _mended(lines: list[Line]) -> tuple[list[Line], int]:
    """Return the lines without half items, and how many were cut; the commonest layout is that of a whole line."""
    layouts = [tuple(f.channel for f in line.fields) for line in lines]
    whole = Counter(layouts).most_common(1)[0][0]
    out, whole_lines = [], 0
    for line, layout in zip(lines, layouts, strict=True):
        short = len(layout) < len(whole)
        if short and layout == whole[: len(layout)]:
            out.append(_without_cut_end(line))
        elif short and layout and layout[0] != whole[0]:
            out.append(Line(line.items[1:], line.stamp))
        else:
            out.append(line)
            whole_lines += 1
    return out, len(out) - whole_lines


def _without_cut_end(line: Line) -> Line:
    items = list(line.items)
    while items and not items[-1].fields:
        items.pop()
    if (
        items and len(items) == len(line.items) and items[-1].text[-1].isdigit()
    ):  # more digits may have followed
        items.pop()
    return Line(tuple(items), line.stamp)


def _times(stamps: Sequence[Stamp | None], interval_s: float | None) -> tuple[list[int], str, list[str]]:
    """Return (ns since the first line for each line, the clock in words, its steps in words)."""
    clocks = Counter(s.clock for s in stamps if s)
    if not clocks:
        if interval_s is None or not 0 < interval_s < 1e6:
            raise UsageError(
                "E-TEGRA-1",
                "the log has no dates (L4T before R35, no logger's either), and no interval was given",
                fix="--interval 1 (seconds: what tegrastats was started with)",
            )
        step = interval_s * 1e9
        return (
            [round(i * step) for i in range(len(stamps))],
            f"line number times {interval_s:g} s, as given",
            [],
        )
    chosen = clocks.most_common(1)[0][0]
    mine = [s if s and s.clock == chosen else None for s in stamps]
    seconds, exact = _seconds(mine), any(s.exact for s in mine if s)
    times, steps = _spread(seconds, interval_s or _pace(seconds), exact)
    zero = times[0]
    return [round((t - zero) * 1e9) for t in times], _words(chosen, mine, exact), steps


def _words(clock: str, stamps: Sequence[Stamp | None], exact: bool) -> str:
    """Return the clock in words: its source, zone, resolution and start."""
    first = next(s for s in stamps if s)
    zone = (
        []
        if first.period_s or not first.when
        else ["no zone stated" if not first.when.tzinfo else "zone stated"]
    )
    fine = "fractions of a second" if exact else "whole seconds"
    since = f", from {first.when}" if first.when else ""
    return f"{clock} ({', '.join([*zone, fine])}){since}"


def _seconds(stamps: Sequence[Stamp | None]) -> list[float]:
    """Return each time in seconds; a line without one (its beginning was cut off) shares its neighbour's.

    A clock that begins anew, at midnight or at the turn of a year that is not printed, goes on.
    """
    known = next(s for s in stamps if s)
    out: list[float] = []
    turns = 0.0
    for one in stamps:
        if one and one.period_s and one.seconds < known.seconds - one.period_s / 2:
            turns += one.period_s
        known = one or known
        out.append(known.seconds + turns)
    return out


def _pace(seconds: Sequence[float]) -> float:
    """Return the mean time between lines, without leaps."""
    gaps = [b - a for a, b in pairwise(seconds)]
    if not gaps:
        return 1.0
    usual = 3 * max(statistics.median(gaps), 1.0)
    steady = [g for g in gaps if 0 <= g <= usual]
    return max(sum(steady) / max(len(steady), 1), 1 / len(seconds))


def _spread(seconds: Sequence[float], pace: float, exact: bool) -> tuple[list[float], list[str]]:
    """Return (times that never fall, the clock's steps in words); `exact` times are finer than seconds."""
    out: list[float] = []
    steps: list[str] = []
    runs = [(s, len(list(group))) for s, group in groupby(seconds)]
    offset = 0.0
    leap = max(_JUMP_S, 10 * pace)
    for i, (second, count) in enumerate(runs):
        after = runs[i + 1][0] - second if i + 1 < len(runs) else 0.0
        near = 0 < after <= leap
        start, step = second, after / count if near else pace
        if exact:
            step = min(step, pace)
        elif i == 0 and near:  # the log began somewhere in this second: its lines end where the next begins
            step = min(step, pace)
            start = second + after - count * step
        if out and start + offset < out[-1]:
            if second < (before := runs[i - 1][0]):
                steps.append(f"line {len(out) + 1}: the clock was set back by {before - second:.0f} s")
            offset = out[-1] + pace - start
        elif out and start + offset - out[-1] > leap:
            steps.append(
                f"line {len(out) + 1}: nothing for {start + offset - out[-1]:.0f} s, or the clock was set ahead"
            )
        out += [start + offset + k * step for k in range(count)]
    return out, steps


def write_csv(log: Log, file: TextIO) -> None:
    """Write one row per line of the log: time_s since the first, then one column per channel, empty if absent."""
    names = [c.name for c in log.channels]
    table = csv.DictWriter(file, ["time_s", *names], lineterminator="\n")
    table.writeheader()
    for t_ns, rows in groupby(log.rows, key=lambda row: row[1]):
        values = {name: f"{value:.9g}" for name, _, value in rows if isinstance(value, float)}
        table.writerow({"time_s": f"{t_ns / 1e9:.3f}"} | values)


def main() -> int:
    """Print a log as CSV, and the remarks about it on stderr."""
    parser = argparse.ArgumentParser(description="tegrastats log to CSV")
    parser.add_argument("log", type=Path)
    parser.add_argument(
        "--interval", type=float, metavar="SECONDS", help="time between lines, if they have no date"
    )
    args = parser.parse_args()
    try:
        log = read(args.log, interval_s=args.interval)
    except EdgescopeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_csv(log, sys.stdout)
    for text in (f"time: {log.clock}", *log.remarks):
        print(text, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
