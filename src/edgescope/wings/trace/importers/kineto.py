"""torch.profiler's traces (Kineto JSON, also .gz), other Chrome traces, and edgescope's own.

The events lie in one array, of a JSON object or alone. DuckDB reads it an order of magnitude faster than Python's json,
but only if the array is a file of its own and sound, so it is copied out first; a damaged one is read event by event
(salvage.py). Numbers are read as numbers first. Where one is none, or a start is so long that a double does not hold
its nanoseconds (those since 1970: to 256 ns), all are read again as the text that the file holds.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from edgescope.records import SPAN_DTYPES, SPAN_KINDS, Trace
from edgescope.wings.trace.imported import (
    ImportedFile,
    Importer,
    Salvage,
    Table,
    empty,
    examples,
    gpu_facts,
    kind_of_call,
)

KINETO, ALONE = "torch.profiler (Kineto)", "a Chrome trace"
"""The source of an object with events, and of an array of them alone, which needs no end."""
GZIP, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Keys of which an object of trace events has one near its beginning.
KEYS = (
    *(b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"displayTimeUnit"', b'"otherData"'),
    *(b'"baseTimeNanoseconds"', b'"distributedInfo"', b'"traceName"', b'"systemTraceEvents"'),
)
#: Category of an event in small letters -> kind of a span. Calls are `*_runtime` and `*_driver` of any accelerator.
KINDS = MappingProxyType(
    {
        **{"cpu_op": "op", "user_annotation": "range", "gpu_memcpy": "copy", "gpu_memset": "copy"},
        **{"python_function": "call", "runtime": "api"},
        **{"operator": "op", "memcpy": "copy", "memset": "copy"},  # until torch 1.10
        **{kind: kind for kind in SPAN_KINDS},  # kernel, overhead, and what edgescope itself exports
    }
)
#: Events that repeat what others say (projections of ranges, waits on the GPU's side, the recording as a whole), and
#: phases that are no span: arrows, names of processes, counters, instants, marks. They are counted, no more.
REPEATED = ("gpu_user_annotation", "cuda_sync", "external_correlation", "trace", "ac2g")
NO_SPAN = ("M", "s", "t", "f", "C", "i", "I", "R", "n")
BEGINS, ENDS = "B", "E"
TAIL, CHUNK = 1 << 20, 1 << 24
#: The end of an array of events: after an event, before another key of the object or its end.
END = re.compile(rb"\}\s*(\])(?=\s*(?:,\s*\"|\}))")
#: A start with more digits than a double holds; as text it keeps them.
LONG_START = re.compile(rb'"ts"\s*:\s*(\d{13,}\.\d+|\d\.\d{14,}[eE]\+?\d+)')
EXACT_US = 8e12
"""Below it a double holds microseconds to half a nanosecond."""
NUMBERS = (
    *("correlation", "device", "context", "stream", "bytes", "graph node id", "graph id", "process"),
    "query_id",
)
ON_GPU = ", ".join(str(SPAN_KINDS.index(k)) for k in ("kernel", "copy", "graph"))


@dataclass(frozen=True)
class Reading:
    """How DuckDB is to read the events."""

    time: str
    number: str
    ns: str
    """How microseconds become nanoseconds."""
    longest: int
    """Bytes of the longest event; several times as many are in memory."""


FIGURES = Reading("DOUBLE", "BIGINT", "TRY_CAST(round({} * 1000) AS BIGINT)", 1 << 20)
TEXTS = Reading("VARCHAR", "VARCHAR", "TRY_CAST(TRY_CAST({} AS DECIMAL(24, 3)) * 1000 AS BIGINT)", 1 << 28)


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is an object with trace events, or an array of them that is not ONNX Runtime's."""
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            return False
    first = head.removeprefix(BOM).lstrip()[:1]
    if first == b"[":
        return b'"ph"' in head and b'"ts"' in head and b'"Session"' not in head
    return first == b"{" and any(word in head for word in KEYS)


def read(path: Path) -> Trace:
    """Return the spans of a trace; UsageError if there are none."""
    import duckdb

    found = ImportedFile(KINETO)
    with _events(path, found) as events, duckdb.connect() as base:
        base.execute("SET enable_progress_bar = false")
        if not _loaded_as_figures(base, events):
            texts = _long_starts_as_text(events)
            try:
                _load(base, texts, TEXTS)
            except duckdb.Error:
                _load(base, _salvaged(path, texts, found), TEXTS)
        _pairs(base, found)
        _left(base, found)
        _tables(base, found)
    return found.trace(path)


def _loaded_as_figures(base: Any, events: Path) -> bool:
    """Return whether the events could be read with their numbers as numbers, which takes half the time."""
    import duckdb

    with events.open("rb") as file:
        if LONG_START.search(file.read(TAIL)):
            return False
    try:
        _load(base, events, FIGURES)
    except duckdb.Error:
        return False
    (latest,) = base.execute("SELECT max(abs(start)) FROM e").fetchone()
    return latest is None or latest < EXACT_US * 1000


def _load(base: Any, events: Path, read: Reading) -> None:
    """Make the table `e` of all events; `kind` is -1 for a category that is not read, -2 for one that repeats.

    Its columns are as narrow as those of the spans: a million of them are in memory at once.
    """
    whens = " ".join(f"WHEN '{cat}' THEN {SPAN_KINDS.index(kind)}" for cat, kind in KINDS.items())
    again = ", ".join(f"'{cat}'" for cat in REPEATED)
    api = SPAN_KINDS.index("api")
    args = ", ".join(f'"{name}" {read.number}' for name in NUMBERS)
    types = {k: "VARCHAR" for k in ("ph", "cat", "name", "pid", "tid")} | {"ts": read.time, "dur": read.time}
    columns = ", ".join(f"{k}: '{kind}'" for k, kind in {**types, "args": f"STRUCT({args})"}.items())
    number = {n: f'TRY_CAST(args."{n}" AS BIGINT)' for n in NUMBERS}
    base.execute(
        f"""CREATE OR REPLACE TEMP TABLE e AS
        SELECT ph, CASE WHEN kind < 0 THEN cat END AS cat, name, start, length, kind::TINYINT AS kind,
          CASE WHEN ph IN ('B', 'E') THEN coalesce(pid, '') || ' ' || coalesce(tid, '') END AS lane,
          coalesce(TRY_CAST(args.process AS INTEGER), CASE WHEN NOT on_gpu THEN TRY_CAST(pid AS INTEGER) END)
            AS process,
          (CASE WHEN NOT on_gpu THEN TRY_CAST(tid AS BIGINT) & 2147483647 END)::INTEGER AS thread,
          coalesce(TRY_CAST(args.device AS SMALLINT), CASE WHEN on_gpu THEN TRY_CAST(pid AS SMALLINT) END) AS device,
          TRY_CAST(args.context AS INTEGER) AS context, TRY_CAST(args.stream AS INTEGER) AS stream,
          {number["correlation"]} AS correlation,
          coalesce(nullif({number["graph node id"]}, 0), nullif({number["graph id"]}, 0)) AS graph,
          {number["query_id"]} AS query_id, {number["bytes"]} AS bytes
        FROM (SELECT *, kind IN ({ON_GPU}) AS on_gpu FROM (
          SELECT coalesce(ph, '') AS ph, coalesce(cat, '') AS cat, coalesce(name, '') AS name, pid, tid, args,
               {read.ns.format("ts")} AS start, {read.ns.format("dur")} AS length,
               CASE WHEN lower(cat) IN ({again}) THEN -2
                    WHEN suffix(lower(cat), '_runtime') OR suffix(lower(cat), '_driver') THEN {api}
                    ELSE CASE lower(cat) {whens} ELSE -1 END END AS kind
          FROM read_json(?, format='array', maximum_object_size={read.longest}, columns={{{columns}}})))""",
        [str(events)],
    )


def _pairs(base: Any, found: ImportedFile) -> None:
    """Add what begins in one event and ends in another as one span each; those without a partner are said."""
    rows = base.execute(
        "SELECT rowid, ph, lane, start FROM e WHERE ph IN ('B', 'E') AND start IS NOT NULL ORDER BY start, rowid"
    ).fetchall()
    open_: dict[str, list[tuple[int, int]]] = {}
    ended, lone = [], 0
    for row, phase, lane, start in rows:
        stack = open_.setdefault(lane, [])
        if phase == BEGINS:
            stack.append((row, start))
        elif stack:
            first, since = stack.pop()
            ended.append((first, start - since))
        else:
            lone += 1
    lone += sum(map(len, open_.values()))
    found.lose(
        "W-PROF-5",
        "events begin or end a span without a partner",
        lone,
        damage=False,
        evidence=f"{len(ended):,} have one",
        effect="How long it took is not known, and it is left out",
    )
    if ended:
        firsts, lengths = zip(*ended, strict=True)
        base.register("ended", {"r": np.array(firsts, "int64"), "length": np.array(lengths, "int64")})
        base.execute("UPDATE e SET ph = 'X', length = ended.length FROM ended WHERE e.rowid = ended.r")


def _left(base: Any, found: ImportedFile) -> None:
    """Say which events are not read: of unknown categories and phases, and without a start or a length."""
    spans = ", ".join(f"'{p}'" for p in ("X", BEGINS, ENDS))
    for cat, count in base.execute(
        "SELECT cat, count(*) FROM e WHERE ph = 'X' AND kind = -2 GROUP BY cat ORDER BY cat"
    ).fetchall():
        found.pass_over(f"events of category {cat}", count)
    for phase, count in base.execute(
        f"SELECT ph, count(*) FROM e WHERE ph NOT IN ({spans}) GROUP BY ph ORDER BY ph"
    ).fetchall():
        if phase in NO_SPAN:
            found.pass_over(f"events of phase {phase}", count)
        else:
            found.lose(
                "W-PROF-15",
                f"events have the phase {phase!r}, which is not read",
                count,
                effect="What they say is in no table",
            )
    for cat, count, names in base.execute(
        "SELECT cat, count(*), histogram(name) FROM e WHERE ph = 'X' AND kind = -1 GROUP BY cat ORDER BY cat"
    ).fetchall():
        found.lose(
            "W-PROF-15",
            f"events have the category {cat[:60]!r}, which is not read",
            count,
            evidence=examples(names),
            effect="What they say is in no table",
        )
    _without(base, found, "start IS NULL", "have no start that can be read")
    _without(base, found, "start IS NOT NULL AND length IS NULL", "have no duration that can be read")


def _without(base: Any, found: ImportedFile, where: str, what: str) -> None:
    count, first = base.execute(
        f"SELECT count(*), min(rowid) + 1 FROM e WHERE ph IN ('X', 'B', 'E') AND kind >= 0 AND {where} "
        f"AND (ph = 'X' OR start IS NULL)"
    ).fetchone()
    if count:
        names = base.execute(
            f"SELECT name FROM e WHERE ph = 'X' AND kind >= 0 AND {where} ORDER BY rowid LIMIT 1000"
        ).fetchall()
        found.lose(
            "W-PROF-16",
            f"events {what}",
            count,
            evidence=f"the first is event {first:,}; {examples(n for (n,) in names)}",
            effect="They are left out: the times and counts of these names are too low",
        )


def _tables(base: Any, found: ImportedFile) -> None:
    """Add the rows of the table `e`; of a kernel, the process is the one that made the calls."""
    base.execute("DELETE FROM e WHERE ph != 'X' OR kind < 0 OR start IS NULL OR length IS NULL")
    named = "SELECT name FROM e GROUP BY name ORDER BY min(rowid)"
    names = [row[0] for row in base.execute(named).fetchall()]
    base.execute(f"CREATE TEMP TYPE names AS ENUM ({named})")
    main = base.execute(
        f"SELECT process FROM e WHERE kind NOT IN ({ON_GPU}) AND process >= 0 "
        "GROUP BY process ORDER BY count(*) DESC, process"
    ).fetchone()
    process = main[0] if main else -1
    what = {
        "start_ns": "start",
        "end_ns": "start + length",
        "process": f"coalesce(process, CASE WHEN kind IN ({ON_GPU}) THEN {process} END)",
    }
    rest = ("kind", "thread", "device", "context", "stream", "correlation", "graph", "query_id", "bytes")
    found.tables.append(_table(base, {**what, **{name: name for name in rest}}, names))


def _table(base: Any, what: Mapping[str, str], names: Sequence[str]) -> Table:
    """Return the columns; one that holds one value is that value, and takes no memory."""
    ends = [f"min(coalesce({value}, -1)), max(coalesce({value}, -1))" for value in what.values()]
    found = iter(base.execute(f"SELECT {', '.join(ends)} FROM e").fetchone())
    columns = {"name": _column(base, "name", "enum_code(name::names)")}
    fixed: dict[str, NDArray[Any] | int] = {}
    for (name, value), least, most in zip(what.items(), found, found, strict=True):
        if least == most and name not in ("kind", "start_ns"):
            fixed[name] = least
        else:
            columns[name] = _column(base, name, f"coalesce({value}, -1)")
    kind = columns.pop("kind")
    api, sync = SPAN_KINDS.index("api"), SPAN_KINDS.index("sync")
    waits = np.array([kind_of_call(name) == "sync" for name in names] or [False])
    kind = np.where((kind == api) & waits[columns["name"]], sync, kind) if len(kind) else kind
    return Table(kind, {**columns, **fixed}, names)


def _column(base: Any, name: str, value: str) -> NDArray[Any]:
    """Return one column: all at once would be in memory twice."""
    column: NDArray[Any] = np.asarray(base.execute(f"SELECT {value} AS v FROM e").fetchnumpy()["v"])
    return column.astype(SPAN_DTYPES[name], copy=False)


@contextmanager
def _events(path: Path, found: ImportedFile) -> Iterator[Path]:
    """Yield a file that holds the array of events alone; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="edgescope-") as folder:
        plain, array = path, Path(folder) / "events.json"
        with path.open("rb") as file:
            if file.read(2) == GZIP:
                plain = Path(folder) / "plain.json"
                _unpack(path, plain, found)
        _copy_array(path, plain, array, found)
        yield array


def _unpack(path: Path, to: Path, found: ImportedFile) -> None:
    with gzip.open(path) as packed, to.open("wb") as file:
        try:
            while piece := packed.read1(CHUNK):  # read() would keep back what lies before the damage
                file.write(piece)
        except (EOFError, zlib.error, OSError) as error:
            found.note(
                "W-PROF-3",
                f"{path.name} can be unpacked in part only",
                evidence=str(error),
                effect="What follows the damage is missing",
            )
            found.facts["damaged"] = True


def _copy_array(path: Path, plain: Path, to: Path, found: ImportedFile) -> None:
    """Copy the array of events into a file of its own; take the facts from what lies before and after it."""
    size = plain.stat().st_size
    with plain.open("rb") as file, to.open("wb") as out:
        first = _array_begin(path, file, found)
        stop = _array_end(file, first, size)
        file.seek(stop)
        _facts(file.read(TAIL), found)
        _copy(file, first, stop, out)


def _copy(file: IO[bytes], first: int, stop: int, out: IO[bytes]) -> None:
    """Copy the bytes first to stop; within the kernel, or through this process where two file systems cannot."""
    try:
        while first < stop and (
            count := os.copy_file_range(file.fileno(), out.fileno(), stop - first, first)
        ):
            first += count
    except OSError:
        file.seek(first)
        while first < stop and (piece := file.read(min(CHUNK, stop - first))):
            first += out.write(piece)


def _long_starts_as_text(events: Path) -> Path:
    """Return a copy of the array whose long starts are texts."""
    texts = events.with_name("texts.json")
    with events.open("rb") as file, texts.open("wb") as out:
        rest = b""
        while piece := file.read(CHUNK):
            piece = rest + piece
            cut = piece.rfind(b"}") + 1  # between two events, never within a number
            out.write(LONG_START.sub(rb'"ts":"\1"', piece[:cut]))
            rest = piece[cut:]
        out.write(rest)
    return texts


def _array_begin(path: Path, file: IO[bytes], found: ImportedFile) -> int:
    """Return where the array begins; what lies before it may be of any length."""
    head = file.read(TAIL)
    bare = head.removeprefix(BOM).lstrip()
    if bare[:1] == b"[":
        found.source = ALONE
        return len(head) - len(bare)
    while (begin := BEGIN.search(head)) is None:
        if not (more := file.read(TAIL)):
            raise empty(path, "it has no array traceEvents")
        head += more
    _facts(head[: begin.end()], found)
    return begin.end() - 1


def _facts(text: bytes, found: ImportedFile) -> None:
    """Read the GPUs from what lies around the events; a version of torch may write it so that it is no JSON."""
    gpus = {}
    devices = re.search(rb'"deviceProperties"\s*:\s*(\[.*?\])\s*(?:,\s*"|\})', text, re.DOTALL)
    try:
        for one in json.loads(devices[1]) if devices else []:
            gpus[int(one.get("id", 0))] = {
                "name": str(one.get("name", "")),
                "multiprocessors": one.get("numSms", one.get("multiProcessorCount")),
            }
    except (ValueError, AttributeError, TypeError):
        pass
    found.facts |= gpu_facts(gpus)


def _array_end(file: IO[bytes], first: int, size: int) -> int:
    """Return where the array ends: at the earliest bracket whose rest is the rest of the object; else at the end.

    Arrays may follow the events (INFO, ERROR), so the last bracket may be that of another.
    """
    begin = max(first, size - TAIL)
    file.seek(begin)
    tail = file.read()
    for end in END.finditer(tail):
        try:
            json.loads(b'{"x":[' + tail[end.start(1) :])
            return begin + end.end(1)
        except (ValueError, RecursionError):
            continue
    return size


def _salvaged(path: Path, events: Path, found: ImportedFile) -> Path:
    """Return a file with the sound events of a damaged array; say what is missing."""
    array = Salvage(events.read_text(encoding="utf-8", errors="replace"), ("ph",), ("cat", "name", "ts"))
    whole = events.with_name("whole.json")
    with whole.open("wb") as file:
        for i, event in enumerate(array.rows(array.text.find("[") + 1)):
            text = json.dumps(_plain(event), ensure_ascii=False)
            file.write((b",\n" if i else b"[\n") + text.encode("utf-8", "replace"))
        file.write(b"]" if file.tell() else b"[]")
    whole_end = array.ended or not (
        array.lost or found.source == KINETO
    )  # other tools may leave the bracket out
    fix = "export_chrome_trace(...) again, after the profiler has stopped"
    found.salvaged(array, path, "events", fix, ended=whole_end)
    return whole


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event with what is read of it; arguments that are no object are none."""
    args = event.get("args")
    numbers = {k: args[k] for k in NUMBERS if k in args} if isinstance(args, dict) else {}
    return {k: event.get(k) for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")} | {"args": numbers}


IMPORTER = Importer(knows, read)
