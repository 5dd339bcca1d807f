"""What other profilers wrote: each format of files is asked whether it knows the file by its content, and one reads it.

    knows(path, head) -> bool     True if the file is of this format; head is its first 4 kB
    read(path) -> Trace           every row that can be read; notes say what cannot

A row that cannot be used costs itself: it is counted in the fact `left_out` and named in a note with its place. Only a
file with nothing to read raises an error. What has no length is left out, never 0 long.

Programs that write JSON by hand leave the quote or the backslash of a name as it is, write nan, or are stopped in the
middle. Reading goes on at the next object that can be read and looks like a row of the file (`Salvage`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.errors import Message, UsageError
from edgescope.records import SPAN_KINDS, Spans, Trace
from edgescope.records.lazy import NDArray, np

#: A backslash with what it escapes, or one that escapes nothing.
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])|\\')
#: What C++ prints for numbers that are none.
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"')
_END = re.compile(r'\](?=\s*(?:,\s*"|\}|$))')
#: What lies between rows and says nothing.
_BETWEEN = " \t\r\n,[]}"


class Salvage:
    """Reads the rows of an array one by one; afterwards it knows what was lost.

    A row is an object that has one of `keys`; damaged ones are counted by `keys` and by what else all rows have,
    `others`. Numbers with a point stay text, so that no digit is lost.
    """

    def __init__(self, text: str, keys: Sequence[str], others: Sequence[str] = ()) -> None:
        text = _ESCAPE.sub(lambda m: m[0] if len(m[0]) > 1 else r"\\", text)
        self.text, self.keys, self.marks = _NO_NUMBER.sub("null", text), keys, (*keys, *others)
        self.lost = 0
        """Rows that could not be read."""
        self.first = ""
        """The place of the first: `line 12: {"ph": "X", ...`."""
        self.ended = False
        """Whether the end of the array was met; if not, what followed in it is not known."""
        self.runs = [0]
        """Number of the row with which each array begins, where several follow each other."""
        self._yielded = 0
        self._read = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str).raw_decode

    def rows(self, at: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of the array whose first element begins at `at`, and of arrays that follow it."""
        while (at := self._skipped(at)) < len(self.text):
            if self.text[at] == "]" and self._closes(at):
                self.ended = True
                return
            row, end = self._row(at)
            if row is None:
                end = self._next(at)
                self._lose(at, end)
            else:
                self._yielded += 1
                yield row
            at = end

    def _skipped(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in " \t\r\n,":
            at += 1
        return at

    def _closes(self, at: int) -> bool:
        """Return whether what follows a bracket is the rest of an object that holds the array, or nothing."""
        rest = self.text[at:]
        try:
            return not rest[1:].strip() or bool(json.loads('{"x":[' + rest))
        except (ValueError, RecursionError):
            return False

    def _row(self, at: int) -> tuple[dict[str, Any] | None, int]:
        """Return the row that begins at `at` and where it ends; None if there is none."""
        try:
            found, end = self._read(self.text, at)
        except (ValueError, RecursionError):
            return None, at
        is_row = isinstance(found, dict) and any(key in found for key in self.keys)
        return (found, end) if is_row else (None, at)

    def _next(self, at: int) -> int:
        """Return where the next row begins after `at`, else where the array ends, else the end of the text."""
        starts = (m.start() for m in _OBJECT.finditer(self.text, at + 1))
        found = next((i for i in starts if self._row(i)[0] is not None), None)
        if found is None:
            ends = (m.start() for m in _END.finditer(self.text, at + 1))
            found = next((i for i in ends if self._closes(i)), len(self.text))
        return found

    def _lose(self, at: int, end: int) -> None:
        """Count what lies between two rows: as many as have a key there, one if there is anything else."""
        piece = self.text[at:end]
        rows = max(piece.count(f'"{key}"') for key in self.marks)
        if not rows and piece[0] == "]":
            self.runs.append(self._yielded)
            return
        if not rows and not piece.strip(_BETWEEN):
            return
        if not self.lost:
            line = self.text.count("\n", 0, at) + 1
            self.first = f"the first in line {line}: {' '.join(piece[:60].split())}"
        self.lost += max(rows, 1)


#: Host calls that wait for the GPU, of CUDA and the interfaces made after it; and those of SYCL's two layers.
WAITS = re.compile(
    r"(cuda|cu|hip|musa)(Device|Stream|Event|Thread|Ctx)Synchronize"
    r"|(ur|pi)(QueueFinish|EventWait|EventsWait)|ze\w+Synchronize"
)
#: Copies without Async in their name wait until they are done.
BLOCKING_COPIES = ("cudaMemcpy", "cuMemcpy", "hipMemcpy", "musaMemcpy")
HEAD_BYTES = 4096
LONGEST_NS = 366 * 86_400 * 10**9
"""No recording lasts a year: a longer span is a difference of times that went wrong."""
EXAMPLES = 3
"""Names that a note gives as examples."""


@dataclass(frozen=True)
class Importer:
    """One format: how it is recognised and read. Those here lie in wings/trace/importers, a plug-in adds its own."""

    knows: Callable[[Path, bytes], bool]
    read: Callable[[Path], Trace]


def kind_of_call(name: str) -> str:
    """Return `sync` for a call that waits for the GPU, else `api`."""
    bare = name.partition("_v")[0].removesuffix("_ptsz").removesuffix("_ptds")
    waits = WAITS.fullmatch(bare) is not None or (bare.startswith(BLOCKING_COPIES) and "Async" not in bare)
    return "sync" if waits else "api"


@dataclass(frozen=True)
class Table:
    """Rows that an importer collects: columns of one length, an int where all rows are equal; names as indices."""

    kind: str | NDArray[Any]
    """The kind of all rows, or the number of the kind of each row."""
    columns: dict[str, NDArray[Any] | int]
    names: Sequence[str]

    def spans(self) -> Spans:
        """Return the rows as spans."""
        kind = SPAN_KINDS.index(self.kind) if isinstance(self.kind, str) else self.kind
        return Spans.from_columns(self.names, {**self.columns, "kind": kind})


@dataclass
class ImportedFile:
    """The tables and notes of one file."""

    source: str
    tables: list[Table] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, code: str, what: str, evidence: str = "", effect: str = "", fix: str = "") -> None:
        """Add a note, once."""
        message = Message(code, what, evidence, effect, fix)
        if message not in self.notes:
            self.notes.append(message)

    def lose(self, code: str, what: str, count: int, *, damage: bool = True, **words: str) -> None:
        """Note that rows are left out, and count them under `what` in the fact `left_out`; nothing if none are.

        The note says `COUNT WHAT`; `words` are its evidence, with the place of the first, its effect and its fix.
        Without `damage` it is what every sound recording lacks, such as the ends of ranges that were open at its stop.
        """
        if count and damage:
            self.facts["damaged"] = True
        if count:
            left = self.facts.setdefault("left_out", {})
            left[what] = left.get(what, 0) + count
            self.note(code, f"{count:,} {what}", **words)

    def salvaged(self, array: Salvage, path: Path, rows: str, fix: str = "", *, ended: bool) -> None:
        """Note what a damaged array of `rows` has lost, and that it was cut where it has not `ended`."""
        effect = "They are left out: the times and counts of their names are too low"
        self.lose("W-PROF-3", f"{rows} cannot be read", array.lost, evidence=array.first, effect=effect)
        if not ended:
            self.note(
                "W-PROF-3", f"{path.name} ends within its {rows}", effect="What followed is missing", fix=fix
            )
            self.facts["damaged"] = True

    def pass_over(self, what: str, count: int) -> None:
        """Count rows that are no part of an account, such as the arrows of a viewer: the fact `passed_over`."""
        if count:
            over = self.facts.setdefault("passed_over", {})
            over[what] = over.get(what, 0) + count

    def trace(self, path: Path, **rest: Any) -> Trace:
        """Return the trace without impossible rows; UsageError if there are neither rows nor samples.

        In a trace whose times mean nothing (`timed=False`) an end of -1 is a length that is not known.
        """
        spans = Spans.joined([t.spans() for t in self.tables if len(t.columns["start_ns"])])  # type: ignore[arg-type]
        spans = self._possible(spans, lengths=rest.get("timed", True))
        if not len(spans) and rest.get("samples") is None:
            raise empty(path, "; ".join(n.what for n in self.notes) or "it has no rows")
        return Trace(spans, self.source, facts=self.facts, notes=tuple(self.notes), **rest)

    def _possible(self, spans: Spans, *, lengths: bool) -> Spans:
        """Return the spans without those that end before they start or last longer than any recording."""
        start, end = spans.columns["start_ns"], spans.columns["end_ns"]
        unknown = (end < 0) & (not lengths)
        with np.errstate(over="ignore"):
            length = end - start
        backward = (end < start) & ~unknown
        endless = ~backward & ~unknown & ((length < 0) | (length > LONGEST_NS))
        gone = backward | endless
        if not gone.any():
            return spans
        self._lose_spans("W-PROF-2", "spans end before they begin", spans.where(backward))
        self._lose_spans("W-PROF-2", "spans last for years", spans.where(endless))
        return spans.where(~gone)

    def _lose_spans(self, code: str, what: str, spans: Spans) -> None:
        effect = "They are left out: how long they took is not known"
        self.lose(code, what, len(spans), evidence=examples(spans.named()), effect=effect)


def examples(names: Iterable[str] | Mapping[str, int]) -> str:
    """Return the most frequent names (or of their counts), each with its count: `aten::linear (3), aten::add`."""
    found = Counter(names)
    told = [f"{name[:60]} ({n:,})" if n > 1 else name[:60] for name, n in found.most_common(EXAMPLES)]
    return ", ".join(told) + (f" and {len(found) - EXAMPLES:,} more names" if len(found) > EXAMPLES else "")


def empty(path: Path, evidence: str, fix: str = "export it again (edgescope docs profiling)") -> UsageError:
    """Return the error for a file with nothing to read."""
    return UsageError(
        "E-PROF-1",
        f"{path.name} holds nothing that can be read as a trace",
        evidence=evidence,
        effect="Nothing was imported",
        fix=fix,
    )


def indexed(values: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different names in order of appearance, and the index of each value among them."""
    index: dict[str, int] = {}
    rows = np.fromiter((index.setdefault(v, len(index)) for v in values), "int32", len(values))
    return list(index), rows


def exact_ns(value: object, unit_ns: int) -> int | None:
    """Return a time in nanoseconds, rounded from the decimal number that the file holds; None if it is no number."""
    from decimal import Decimal, InvalidOperation  # not in every process that is traced

    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        ns = Decimal(str(value).strip()) * unit_ns
        return round(ns) if abs(ns) < 2**62 else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


def clean(number: Any, default: int = -1) -> int:
    """Return a number that a file may hold as text, or `default` if it is none."""
    try:
        return int(number)
    except (TypeError, ValueError, OverflowError):
        return default


def gpu_facts(gpus: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fact `gpus`: number as text -> name, number of multiprocessors."""
    return {"gpus": {str(number): dict(facts) for number, facts in gpus.items()}} if gpus else {}


def read(path: Path | str, kind: str = "") -> Trace:
    """Return what a profiler's file holds; `kind` names its format if the content does not tell.

    Raises UsageError if no importer knows the file, or if there is nothing in it.
    """
    path = Path(path)
    try:
        head = _head(path)
    except OSError as error:
        raise UsageError(
            "E-PROF-2",
            f"{path} cannot be read",
            evidence=str(error),
            fix="edgescope trace FILE, the path of an export",
        ) from error
    for name in [kind] if kind else registry.IMPORTERS:
        importer: Importer = registry.load(registry.IMPORTERS, name, "importer")
        if kind or importer.knows(path, head):
            return importer.read(path)
    raise UsageError(
        "E-PROF-3",
        f"{path.name} is in no format that edgescope reads",
        evidence=f"it begins with {head[:40]!r}; known: {', '.join(registry.IMPORTERS)}",
        effect="Nothing was imported",
        fix=remedy(path, head),
    )


#: What begins a file, or ends its name, of a program that keeps a format of its own -> how it is made readable.
REMEDIES: tuple[tuple[str, tuple[bytes, ...], tuple[str, ...]], ...] = (
    ("nsys export --type sqlite {}", (b"QDSTRM",), (".nsys-rep", ".qdrep", ".qdstrm")),
    ("ncu --import {} --csv --page raw > kernels.csv", (b"NVR\0",), (".ncu-rep", ".nsight-cuprof-report")),
    ("nvprof -i {} --print-gpu-trace --csv 2> trace.csv", (), (".nvvp", ".nvprof")),
    (
        "nvprof --print-gpu-trace --print-api-trace --csv PROGRAM 2> trace.csv: this report of it has sums alone",
        (b'"Type","Time(%)"', b"NVPROF"),
        (),
    ),
    (
        "perf script -i {} -F comm,tid,pid,cpu,time,event,trace --ns > sched.txt",
        (b"PERFILE2",),
        (".perf.data",),
    ),
    (
        "benchmark_app -report_type detailed_counters: this report of it has no layers",
        (b'"cmd_options"', b"Command line parameters\n"),
        (),
    ),
)


def remedy(path: Path, head: bytes) -> str:
    """Return the command that makes a file readable that is in a profiler's own format."""
    for words, begins, ends in REMEDIES:
        if path.name.lower().endswith(ends) or any(begin in head for begin in begins):
            return words.format(path.name)
    return "an export that is read: nsys export --type sqlite, export_chrome_trace (edgescope docs profiling)"


def _head(path: Path) -> bytes:
    """Return how the file begins, below the lines that Nsight Compute writes of itself, one for each kernel."""
    with path.open("rb") as file:
        line = file.readline(HEAD_BYTES)
        while line.startswith(b"=="):
            line = file.readline(HEAD_BYTES)
        return line + file.read(HEAD_BYTES - len(line))
