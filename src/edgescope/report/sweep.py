"""The documents of a sweep: the grid before it runs, one line for each cell, the summary, the next steps.

A cell's short name holds the values that differ between cells; those that all share are printed once.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from edgescope.errors import Message, is_wrong_request
from edgescope.records import TABLES, Result, Status, Trial, Trust, digest
from edgescope.report import document as doc
from edgescope.units import counted, lasting, show

GOOD = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED)
KINDS = {Status.OK: "good", Status.SKIPPED: "dim", Status.UNSUPPORTED: "dim", Status.UNSTABLE: "warn"}
LISTED = 40
"""Grids up to this size are listed cell by cell."""

# -- names of cells ------------------------------------------------------------------------------------------

#: Key of a trial -> the writer of its value in a cell's name, in the order of the name.
WRITTEN: Mapping[str, Callable[[Any], str]] = {
    "model": lambda v: str(v).partition("#")[0],
    "backend": str,
    "device": str,
    "precision": str,
    "batch": lambda v: f"b{v}",
    "processes": lambda v: f"P{v}",
    "in_flight": lambda v: f"T{v}",
    "sharing": str,
    "colocated": lambda v: f"beside {v}" if v else "alone",
    "scenario": str,
    "rate": lambda v: "no rate" if v is None else f"{v:g}/s",
    "mode": str,
    "workload": str,
    "io": lambda v: f"io={v}",
    "seed": lambda v: f"seed={v}",
    "min_s": lambda v: f"{v:g}s",
}
#: Default values, which are not printed.
USUAL = {
    "device": "cpu",
    "in_flight": 1,
    "processes": 1,
    "sharing": Trial.sharing,
    "colocated": "",
    "rate": None,
}
USUAL |= {"mode": "as_is", "workload": Trial.workload, "io": "host", "seed": 0}


def axes(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return key -> its different values in grid order, for every key and option whose value differs."""
    return {name: values for name, values in _values(trials).items() if len(values) > 1}


def shared(trials: Sequence[Trial]) -> str:
    """Return the values that all cells share and that are not defaults: `torch_eager cuda graph=true`."""
    same = {k: v[0] for k, v in _values(trials).items() if len(v) == 1}
    return " ".join(written(k, v) for k, v in same.items() if k not in USUAL or USUAL[k] != v)


def namer(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """Return a function from a trial of this grid to its short name."""
    keys = list(axes(trials)) or ["model"]

    def name(trial: Trial) -> str:
        parts = [written(key, value(trial, key)) for key in keys if value(trial, key) is not None]
        return " ".join(filter(None, [*parts, f"#{trial.replicate}" if trial.replicate else ""]))

    return name


def value(trial: Trial, key: str) -> Any:
    """Return the value of a key or an option, or None if the trial has no such option."""
    if key in WRITTEN:
        return getattr(trial, key)
    return next((table[key] for table in _tables(trial) if key in table), None)


def _tables(trial: Trial) -> list[Mapping[str, Any]]:
    return [getattr(trial, name) for name in TABLES]


def written(key: str, value: Any) -> str:
    """Return a value as it is written in a cell's name: b4, P2, graph=true."""
    if key in WRITTEN:
        return WRITTEN[key](value)
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def _values(trials: Iterable[Trial]) -> dict[str, list[Any]]:
    found: dict[str, dict[str, Any]] = {key: {} for key in WRITTEN}
    trials = list(trials)
    for trial in trials:
        for key in chain(*_tables(trial)):
            found.setdefault(key, {})
    for trial in trials:
        for key, seen in found.items():
            seen.setdefault(digest(value(trial, key)), value(trial, key))
    return {key: list(seen.values()) for key, seen in found.items()}


# -- before it runs ------------------------------------------------------------------------------------------


def grid(trials: Sequence[Trial], missing: Collection[str]) -> doc.Document:
    """Return the number of cells, the axes and the least time they take; a small grid also lists its cells.

    `missing` holds the ids of the trials that have no result yet.
    """
    cells = [t for t in trials if t.replicate == 0]
    more, todo = len(trials) - len(cells), [t for t in trials if t.id in missing]
    again = f" and {counted(more, 'further replicate')}" if more else ""
    still = "none is missing" if not todo else f"{len(todo)} missing" if len(todo) < len(trials) else ""
    lead = doc.Text(
        (doc.Mark(f"{counted(len(cells), 'cell')}{again}", "strong"), ", " if still else "", still)
    )
    rows: list[tuple[doc.Value, doc.Value]] = []
    for key, values in axes(cells).items():
        each = [f"{_bare(key, v)} {sum(value(t, key) == v for t in cells)}" for v in values]
        rows.append((key, "   ".join(each)))
    rows.append(("all", shared(cells)))
    if todo:
        seconds = sum(t.min_s + 2 * t.idle_s + (t.warmup or 0.0) for t in todo)
        rows.append(("windows", f"{lasting(seconds)} of measuring at the least"))
    return doc.Document("Grid", (lead, doc.Pairs(tuple(rows), kind="axes"), _cells(trials, missing)))


def _cells(trials: Sequence[Trial], missing: Collection[str]) -> doc.Table | doc.Text:
    if len(trials) > LISTED:
        return doc.Text("each cell: --dry-run --json", "dim")
    name = namer(trials)
    rows = (doc.Row((t.id, "to do" if t.id in missing else "finished", name(t))) for t in trials)
    return doc.Table((doc.Column("trial"), doc.Column("state"), doc.Column("cell")), tuple(rows))


def _bare(key: str, value: object) -> str:
    """Return a value as it is written after its key's name: `4`, not `b4`."""
    if key in ("model", "colocated"):
        return written(key, value)
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


# -- as it runs ----------------------------------------------------------------------------------------------


def line(result: Result, head: str) -> doc.Text:
    """Return one cell in one line: throughput, p99 and verdict if it was measured, else the reason."""
    m, status = result.metrics.get, doc.Mark(f"{result.status.value:<11} ", KINDS.get(result.status, "bad"))
    why = short_reason(result.reason)[1]
    if result.status not in (Status.OK, Status.UNSTABLE, Status.WRONG_OUTPUT):
        return doc.Text((head, status, why))
    rate = show(m("throughput_sps"), interval=False)
    tail = show(m("latency_p99_s"), interval=False)
    also = "" if result.status is Status.OK else f"  {why}"
    return doc.Text((head, status, f"{rate:>16}  p99 {tail:>8}  ", doc.badge(result.verdict.trust), also))


def short_reason(reason: Message | None) -> tuple[str, str]:
    """Return (code, what happened) of a message, without its evidence and advice."""
    return (reason.code, reason.what) if reason else ("", "")


# -- what became of it ---------------------------------------------------------------------------------------


def document(
    results: Sequence[Result], name: Callable[[Trial], str], following: Sequence[str], *, ran: str = ""
) -> doc.Document:
    """Return the summary of a grid: counts by status, grouped reasons, next steps."""
    lead = doc.Text((doc.Mark(ran, "strong"), doc.Mark(_counts(results), "strong")))
    groups = list(grouped(results, name))
    steps = tuple(("next", text) for text in following)
    return doc.Document("Sweep", (lead, *groups, doc.Pairs(steps, kind="steps") if steps else None))


def _counts(results: Sequence[Result]) -> str:
    """Return `120 ok (9 DISTURBED), 4 oom, 12 skipped`."""
    parts = []
    for status in Status:
        mine = [r for r in results if r.status is status]
        if mine:
            bad = [r.verdict.trust.value for r in mine if _doubtful(r)]
            trust = ", ".join(f"{bad.count(word)} {word}" for word in sorted(set(bad)))
            parts.append(f"{len(mine)} {status.value}{f' ({trust})' if trust else ''}")
    return ", ".join(parts) or "no cells"


def _doubtful(result: Result) -> bool:
    return result.status is Status.OK and result.verdict.trust is not Trust.CLEAN


def grouped(results: Iterable[Result], name: Callable[[Trial], str]) -> Iterator[doc.Text]:
    """Yield a line for each reason that cells did not end well, the most frequent first, with one of the cells."""
    groups: dict[tuple[Status, str], list[Result]] = {}
    for r in results:
        if r.status is not Status.OK:
            groups.setdefault((r.status, short_reason(r.reason)[0]), []).append(r)
    for (status, _), mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        code, what = short_reason(mine[0].reason)
        count = doc.Mark(f"  {len(mine):>3} {f'{status.value} ':<12}", KINDS.get(status, "bad"))
        example = doc.Mark(f"  e.g. {name(mine[0].trial)}", "dim")
        yield doc.Text((count, f"{code}{': ' if code else ''}{what}", example))


def following(results: Sequence[Result], study: str = "") -> list[str]:
    """Return the commands to type next, with their purposes."""
    statuses = {r.status for r in results if not is_wrong_request(r.reason)}
    fixes = dict.fromkeys(r.reason.fix for r in results if r.reason and is_wrong_request(r.reason))
    lines = [f"{fix}   for cells with a wrong request" for fix in fixes if fix]
    retried = (Status.UNSTABLE, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
    again = [s.value for s in retried if s in statuses]
    if again:
        longer = " --timeout 30min" if Status.TIMEOUT in statuses else ""
        lines.append(f"the same command with --retry {','.join(again)}{longer}   measures those again")
    if Status.SKIPPED in statuses:
        lines.append("the same command with --no-prune --retry skipped   runs the skipped cells")
    if Status.CANCELLED in statuses:
        lines.append("the same command   runs what was cancelled")
    if any(_doubtful(r) for r in results):
        lines.append("edgescope doctor   says what disturbs this machine")
    if any(r.status is Status.OK for r in results):
        asked = f" --study {shlex.quote(study)}" if study else ""
        lines.append(f"edgescope recommend{asked}   picks one under your constraints")
        lines.append("edgescope report -o report.html   shows every cell")
    return lines
