"""What profilers print: the CSVs of `nsys stats`, Nsight Compute's CSV of metrics per kernel, text of `perf script`.

Numbers stand in the CSVs, which hold no times of day, as programs print them for a reader: `1,234.5`, `1.234,5`,
`1 234,5`, `1'234.5`; the whole file tells which. One text may be ambiguous (`1.234` is a thousand and some, or one and
some); a file of them seldom is. What stays ambiguous is refused, because a factor of a thousand is no small error.

`perf sched record`, as text of `perf script`, says when each thread was on a CPU, and how long it waited for one:

perf sched record -o sched.data -- PROGRAM
perf script -i sched.data -F comm,tid,pid,cpu,time,event,trace --ns > sched.txt
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS, Channel, Readings, Trace
from edgescope.wings.trace.imported import (
    ImportedFile,
    Importer,
    Table,
    empty,
    exact_ns,
    examples,
    indexed,
    kind_of_call,
)

#: Spaces and apostrophes only ever set thousands apart.
_GROUPS = re.compile(
    r"(?<=\d)[ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}'\N{RIGHT SINGLE QUOTATION MARK}](?=\d)"
)
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+(?:[eE][+-]?\d+)?")
#: A number whose only mark may set thousands apart or begin the decimals.
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def decimal_mark(texts: Iterable[str]) -> str:
    """Return the decimal mark of the numbers among some texts, `.` or `,`; '' if they contradict or do not tell.

    A comma alone before three digits sets thousands apart where nothing says otherwise: that is how the programs
    print without a locale.
    """
    marks: set[str] = set()
    either: set[str] = set()
    plain = False
    for text in texts:
        word = _GROUPS.sub("", text.strip())
        if not _NUMBER.fullmatch(word):
            continue
        plain |= bool(re.fullmatch(r"[+-]?\d{4,}(?:[.,]\d*)?", word)) and word == text.strip()
        if _EITHER.fullmatch(word) and word == text.strip():
            either.add("." if "." in word else ",")
        elif mark := _mark(word):
            marks.add(mark)
    if marks:
        return marks.pop() if len(marks) == 1 else ""
    if plain and len(either) == 1:
        return either.pop()  # thousands are not set apart in this file, so it begins decimals
    return "." if either <= {","} else ""


def _mark(word: str) -> str:
    """Return the decimal mark that one number proves, '' if it proves none."""
    points, commas = word.count("."), word.count(",")
    if points and commas:
        return max(".,", key=word.rfind)
    if points + commas == 1:
        return "." if points else ","
    return "," if points else "." if commas else ""


def number(text: str | None, mark: str) -> float | None:
    """Return the number that a text is with this decimal mark; None if it is none."""
    word = _GROUPS.sub("", (text or "").strip())
    if not _NUMBER.fullmatch(word):
        return None
    other = "," if mark == "." else "."
    whole, _, decimals = word.partition(mark)
    grouped = re.fullmatch(rf"[+-]?\d{{1,3}}(?:{re.escape(other)}\d{{2,3}})*{re.escape(other)}\d{{3}}", whole)
    if other in decimals or (other in whole and not grouped):
        return None
    try:
        return float(whole.replace(other, "") + ("." + decimals if decimals else ""))
    except ValueError:
        return None


# -- the files -----------------------------------------------------------------------------------------------


STATS = b"Total Time (ns)"
NCU, LAYOUTS = b'"Kernel Name"', (b'"Metric Name"', b"gpu__time_duration", b'"Grid Size"')
"""What is in every heading, and what tells its layout: a row a metric, a column a metric, the raw page."""
NAMES = ("Name", "Range", "Operation", "Style")
NO_COUNTERS = ("device__attribute_", "profiler__")
"""What `--page raw` writes about the device and about the tool itself, the same for every kernel."""
#: Most rows of one name that a summary is spread over.
MOST = 1_000_000
DURATIONS = ("gpu__time_duration.sum", "Duration", "gpu__time_duration.avg")
#: Unit, without the plural and in small letters -> nanoseconds.
UNITS = {
    **{"nsecond": 1, "ns": 1, "nsec": 1, "nanosecond": 1, "usecond": 10**3, "us": 10**3, "usec": 10**3},
    **{"microsecond": 10**3, "\N{MICRO SIGN}s": 10**3, "\N{GREEK SMALL LETTER MU}s": 10**3},
    **{"msecond": 10**6, "ms": 10**6, "msec": 10**6, "millisecond": 10**6, "second": 10**9, "sec": 10**9},
    **{"s": 10**9},
}
UNKNOWN = -1
"""The end of a kernel whose length is not known."""


def knows_summary(path: Path, head: bytes) -> bool:
    """Return whether the file is one of them; Nsight Compute writes lines of its own before the heading."""
    return STATS in head or (NCU in head and any(word in head for word in LAYOUTS))


def read_summary(path: Path) -> Trace:
    """Return what the file holds."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if _is_heading(line)), -1)
    rows = list(_rows(lines[head:])) if head >= 0 else []
    if not rows:
        raise empty(path, "no rows below its heading")
    mark = decimal_mark(t for row in rows for t in _numbers(row))
    if not mark:
        raise UsageError(
            "E-PROF-12",
            f"the numbers of {path.name} can be read in two ways",
            evidence=f"such as {next((t for row in rows for t in _numbers(row) if '.' in t or ',' in t), '')!r}",
            effect="Nothing was imported: one way is a thousand times the other",
            fix="export it again with LC_ALL=C",
        )
    return _ncu(path, rows, mark) if "Kernel Name" in rows[0] else _stats(path, rows, mark)


def _is_heading(line: str) -> bool:
    return STATS.decode() in line or "Kernel Name" in line


def _rows(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the rows below each heading: reports that were appended to each other have one each."""
    heads = [i for i, line in enumerate(lines) if _is_heading(line)]
    for first, last in zip(heads, [*heads[1:], len(lines)], strict=True):
        yield from csv.DictReader(line for line in lines[first:last] if line.strip())


def _numbers(row: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of a row that are measured: versions, sizes and names look like numbers, too."""
    told = {k: v for k, v in row.items() if k and isinstance(v, str)}
    if "Kernel Name" in told:
        yield from (
            v for k, v in told.items() if k == "Metric Value" or ("__" in k and not k.startswith(NO_COUNTERS))
        )
    else:
        yield from (v for k, v in told.items() if k not in NAMES)


def _stats(path: Path, rows: Sequence[Mapping[str, str]], mark: str) -> Trace:
    """Return as many equal spans of a name as the summary counts, laid end to end: mean and total hold."""
    column = next((c for c in ("Name", "Range", "Operation") if c in rows[0]), "")
    kind = "range" if column == "Range" else "copy" if column == "Operation" else ""
    found = ImportedFile("nsys stats summary")
    told = [(row, _count(row, mark), number(row.get("Total Time (ns)"), mark)) for row in rows]
    read = [
        (row, min(count, MOST), total)
        for row, count, total in told
        if count and total is not None and total >= 0
    ]
    found.lose(
        "W-PROF-16",
        "rows have no count or no time that can be read",
        len(told) - len(read),
        effect="They are left out: shares of the others are too high",
    )
    rows = [row for row, *_ in read]
    if not rows:
        raise empty(path, "no row has a count and a time")
    names, index = indexed([str(r.get(column, "")).removeprefix(":") for r in rows])
    counts = np.array([count for _, count, _ in read])
    totals = np.array([total for *_, total in read])
    kinds = [kind or _kind(name, rows[0]) for name in names]
    length = np.repeat(totals / np.maximum(counts, 1), counts.astype("int64"))
    end = np.rint(np.cumsum(length)).astype("int64")
    start = np.concatenate((np.zeros(1, "int64"), end[:-1])) if len(end) else end
    name = np.repeat(index, counts.astype("int64"))
    kind_numbers = np.array([SPAN_KINDS.index(k) for k in kinds], "int8")[name]
    gpu = np.isin(kind_numbers, [SPAN_KINDS.index(k) for k in ("kernel", "copy")])
    columns: dict[str, NDArray[Any] | int] = {"name": name, "start_ns": start, "end_ns": end}
    found.tables.append(Table(kind_numbers, {**columns, "device": np.where(gpu, 0, -1)}, names))
    found.facts["averaged"] = True
    found.note(
        "I-PROF-2",
        "a summary says how often and how long, not when",
        effect="Each name has its mean length; totals hold, order, gaps and quantiles mean nothing",
        fix="nsys export --type sqlite FILE.nsys-rep",
    )
    return found.trace(path, timed=False)


def _count(row: Mapping[str, str], mark: str) -> int:
    """Return how many calls a row sums up; 0 if it does not tell."""
    told = number(row.get("Instances") or row.get("Num Calls") or row.get("Count"), mark)
    return int(told) if told is not None and told >= 1 else 0


def _kind(name: str, row: Mapping[str, str]) -> str:
    if "Instances" in row:
        return "kernel"
    return kind_of_call(name) if re.match(r"(cuda|cu|hip)[A-Z]", name) else "call"


def _ncu(path: Path, rows: Sequence[Mapping[str, str]], mark: str) -> Trace:
    """Return one kernel per launch, end to end, and its metrics as samples at its start."""
    wide = "Metric Name" not in rows[0]
    units: Mapping[str, str] = rows[0] if wide and not rows[0].get("Kernel Name") else {}
    launches: dict[str, dict[str, tuple[float, str]]] = {}
    names: dict[str, str] = {}
    odd: list[str] = []
    for i, row in enumerate(rows):
        ident = row.get("ID") or str(i)
        if not row.get("Kernel Name"):
            continue
        names[ident] = str(row["Kernel Name"])
        metrics = launches.setdefault(ident, {})
        if wide:
            counters = [k for k in row if k and "__" in k and not k.startswith(NO_COUNTERS)]
            pairs = [(k, row[k], units.get(k, "")) for k in counters]
        else:
            pairs = [(row["Metric Name"], row["Metric Value"], row.get("Metric Unit", ""))]
        metrics |= {k: (value, u) for k, v, u in pairs if (value := number(v, mark)) is not None}
        odd += [
            f"{k} = {v}" for k, v, _ in pairs if re.match(r"\s*[+-]?\d", v or "") and number(v, mark) is None
        ]
    found = ImportedFile("Nsight Compute")
    lengths = [_duration(m) for m in launches.values()]
    known = np.array([length or 0 for length in lengths], "int64")
    start = np.cumsum(known) - known
    end = np.where([length is None for length in lengths], UNKNOWN, start + known)
    _missing(found, [names[i] for i, length in zip(launches, lengths, strict=True) if length is None], odd)
    different, index = indexed([names[i] for i in launches])
    found.tables.append(
        Table("kernel", {"name": index, "start_ns": start, "end_ns": end, "device": 0}, different)
    )
    found.note(
        "I-PROF-4",
        "Nsight Compute runs each kernel alone and several times",
        effect="Its counters are exact, its times are not those of the program; kernels are laid end to end",
    )
    return found.trace(path, timed=False, samples=_samples(list(launches.values()), start))


def _missing(found: ImportedFile, without: Sequence[str], odd: Sequence[str]) -> None:
    """Say which kernels have no duration, and which values cannot be read."""
    if without:
        found.note(
            "W-PROF-17",
            f"{len(without):,} kernels have no duration",
            evidence=examples(without),
            effect="How long they took is not known, and neither is any share of the time",
            fix="ncu --csv --metrics gpu__time_duration.sum PROGRAM, beside the other metrics",
        )
    found.lose(
        "W-PROF-16",
        "values of metrics are no numbers that can be read",
        len(odd),
        evidence=examples(odd),
        effect="They are left out of the samples",
    )


def _duration(metrics: Mapping[str, tuple[float, str]]) -> int | None:
    """Return a kernel's nanoseconds; None without a duration, and where its unit is none of time."""
    value, unit = next((metrics[k] for k in DURATIONS if k in metrics), (-1.0, ""))
    factor = UNITS.get(unit.strip().lower()) or UNITS.get(unit.strip().lower().removesuffix("s"))
    return exact_ns(value, factor) if factor and value >= 0 else None


def _samples(
    launches: Sequence[Mapping[str, tuple[float, str]]], start: NDArray[np.int64]
) -> Readings | None:
    known = list(dict.fromkeys(k for m in launches for k in m))
    if not known:
        return None
    channels = tuple(
        Channel(k, next(m[k][1] for m in launches if k in m), "gpu_board", "gauge", "ncu") for k in known
    )
    rows = [(i, known.index(k), m[k][0]) for i, m in enumerate(launches) for k in m]
    at, channel, value = zip(*rows, strict=True)
    return Readings(channels, start[list(at)], np.array(channel, "int16"), np.array(value, "float64"))


SUMMARIES = Importer(knows_summary, read_summary)


SCHED_LINE = re.compile(
    r"^\s*(?P<comm>.{1,16}?)\s+(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+"
    r"(?P<s>\d+)\.(?P<frac>\d+):\s+sched:(?P<event>sched_\w+):\s+(?P<rest>.*)$"
)
SWITCH = re.compile(
    r"(?:prev_comm=)?(?P<comm>.*?)[: ](?:prev_pid=)?(?P<prev>\d+) .*?(?:prev_state=(?P<state>\S+)|\[\d+\] (?P<s2>\S+)) "
    r"==> (?:next_comm=)?(?P<next_comm>.*?)[: ](?:next_pid=)?(?P<next>\d+)(?: .*|$)"
)
WAKE = re.compile(r"(?:comm=)?.*?[: ](?:pid=)?(?P<tid>\d+) .*")


def knows_sched(path: Path, head: bytes) -> bool:
    """Return whether the file is text of scheduling events."""
    return b"sched:sched_" in head


def read_sched(path: Path) -> Trace:
    """Return the time on CPUs as `sched`, the time between a wake-up (or a preemption) and running as `ready`."""
    found = ImportedFile("perf sched")
    with path.open(encoding="utf-8", errors="replace") as lines:
        on, ready, odd, process, switches = _scheduled(lines)
    found.lose(
        "W-PROF-6",
        "lines of scheduling events cannot be read",
        odd,
        effect="They are left out: the time on a CPU is too short, or too long where a thread left it",
    )
    for kind, rows in (("sched", on), ("ready", ready)):
        if rows:
            comm, tid, cpu, start, end = zip(*rows, strict=True)
            names, index = indexed(comm)
            columns: dict[str, Any] = {"name": index, "device": np.array(cpu), "thread": np.array(tid)}
            columns |= {"start_ns": np.array(start), "end_ns": np.array(end)}
            columns["process"] = np.array([process.get(t, t) for t in tid])
            found.tables.append(Table(kind, columns, names))
    found.facts["scheduling"] = {"switches": switches}
    return found.trace(path)


Runs = list[tuple[str, int, int, int, int]]


def _scheduled(lines: Iterable[str]) -> tuple[Runs, Runs, int, dict[int, int], int]:
    """Return spans on a CPU, spans of waiting for one, lines not understood, thread -> process, and switches."""
    on: Runs = []
    ready: Runs = []
    running: dict[int, tuple[int, int]] = {}  # cpu -> thread, since
    runnable: dict[int, int] = {}  # thread -> since
    process: dict[int, int] = {}
    odd = switches = 0
    for line in lines:
        if not (m := SCHED_LINE.match(line)):
            odd += bool(line.strip()) and "sched:sched_" in line
            continue
        t = int(m["s"]) * 10**9 + int(m["frac"].ljust(9, "0")[:9])
        if m["pid"]:
            process[int(m["tid"])] = int(m["pid"])
        if m["event"] in ("sched_wakeup", "sched_wakeup_new"):
            if w := WAKE.match(m["rest"]):
                runnable.setdefault(int(w["tid"]), t)
        elif m["event"] == "sched_switch":
            s = SWITCH.match(m["rest"])
            if s is None:
                odd += 1
                continue
            switches += 1
            cpu, prev, following = int(m["cpu"]), int(s["prev"]), int(s["next"])
            if prev and cpu in running and running[cpu][0] == prev:
                on.append((s["comm"].strip(), prev, cpu, running[cpu][1], t))
            if prev and (s["state"] or s["s2"] or "").startswith("R"):
                runnable[prev] = t  # preempted: it could go on
            running[cpu] = (following, t)
            if following in runnable:
                ready.append((s["next_comm"].strip(), following, cpu, runnable.pop(following), t))
    return on, ready, odd, process, switches


PERF_SCHED = Importer(knows_sched, read_sched)
