"""Reads a trace: the seconds at which recorded queries arrived, in a text file.

0.000            one number a line, from 0 in the order of time; blank lines and lines that begin with # are
0.033            ignored. In a CSV, the first column, or the one that the first line calls arrival_s
0.070
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from edgescope import cache
from edgescope.errors import UsageError
from edgescope.records.lazy import NDArray, np

COLUMN = "arrival_s"
MOST_BYTES = 200_000_000
"""Ten million arrivals: more would be minutes of reading before anything is measured."""
MOST_S = 1e7
"""115 days; beyond that the column holds dates, not seconds from a start."""

Ints: TypeAlias = "NDArray[np.int64]"


def read(path: Path) -> Ints:
    """Return the arrivals in nanoseconds, in order; UsageError if the file is no trace."""
    return _parsed(path, _content(path))


@lru_cache(maxsize=4)
def _parsed(path: Path, content: str) -> Ints:
    """Return the arrivals of a file; a file is parsed once for each content."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, 0, "is not text", f"byte {error.start}: {error.reason}") from error
    return parse(text, path)


def parse(text: str, path: Path = Path("trace")) -> Ints:
    """Return the arrivals of a trace's text in nanoseconds; a UsageError names the first wrong line."""
    out: list[int] = []
    column, before, started = 0, 0.0, False
    for number, line in enumerate(text.split("\n"), 1):
        fields = [field.strip().strip('"').strip() for field in line.split(",")]
        if fields == [""] or fields[0].startswith("#"):
            continue
        if not started and COLUMN in fields:
            column, started = fields.index(COLUMN), True
            continue
        started = True
        value = _seconds(fields[column] if column < len(fields) else "", path, number)
        if value < before:
            raise _bad(
                path, number, "is not in the order of time", f"{value:g} s after {before:g} s", "sort -g"
            )
        out.append(round(value * 1e9))
        before = value
    if not out:
        raise _bad(path, 0, "holds no arrival", f"{len(text)} characters")
    return np.array(out, dtype=np.int64)


def period_ns(times: Ints) -> int:
    """Return the period of a looped trace in nanoseconds: its last arrival plus the mean gap.

    Raises UsageError if all arrivals are at one moment.
    """
    if times[-1] == times[0]:
        raise UsageError(
            "E-TRACE-3",
            "a trace whose arrivals are all at one moment cannot be looped",
            evidence=f"{len(times)} arrivals at {times[0] / 1e9:g} s",
            fix=f"--scenario burst --scenario-option burst_size={len(times)} --rate N",
        )
    return int(times[-1] + (times[-1] - times[0]) // (len(times) - 1))


def _seconds(text: str, path: Path, number: int) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        raise _bad(path, number, "is not a number of seconds", repr(text[:40])) from None
    if not math.isfinite(value):
        raise _bad(path, number, "is not a finite number of seconds", repr(text[:40]))
    if value < 0:
        raise _bad(path, number, "is negative", f"{value:g} s; the trace begins at 0")
    if value > MOST_S:
        fix = "subtract the first time from all of them"
        raise _bad(path, number, "is no time from the start of a trace", f"{value:g} s > {MOST_S:g} s", fix)
    return value


def _bad(path: Path, number: int, what: str, evidence: str, fix: str = "") -> UsageError:
    where = f"{path} line {number}" if number else str(path)
    return UsageError(
        "E-TRACE-1",
        f"{where} {what}",
        evidence=evidence,
        effect="Nothing was measured",
        fix=fix or "one arrival in seconds a line, from 0, in the order of time",
    )


def _content(path: Path) -> str:
    """Return the digest of the file's content; UsageError if it is too large or cannot be read."""
    try:
        size = path.stat().st_size
        problem = f"{size / 1e6:.0f} MB, at most {MOST_BYTES / 1e6:.0f}" if size > MOST_BYTES else ""
        content = "" if problem else cache.content(path)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise UsageError("E-TRACE-4", f"the trace {str(path)!r} cannot be read", evidence=problem)
    return content
