"""torch.profiler's traces (Kineto JSON, also .gz), and edgescope's own Chrome traces.

The events lie in one array of a JSON object. DuckDB reads it an order of magnitude faster than Python's json, but
only if the array is a file of its own, so it is copied out first. A truncated file is read up to its last whole event.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, empty, gpu_facts, kind_of_call

GZIP = b"\x1f\x8b"
BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Category of an event -> kind of a span; what is not here is left out: flows, projections of ranges, counters.
KINDS = MappingProxyType(
    {
        **{"cpu_op": "op", "user_annotation": "range", "kernel": "kernel", "gpu_memcpy": "copy"},
        **{"gpu_memset": "copy", "cuda_runtime": "api", "cuda_driver": "api", "hip_runtime": "api"},
        **{"overhead": "overhead", "python_function": "call", "runtime": "api", "Runtime": "api"},
        **{kind: kind for kind in SPAN_KINDS},  # edgescope's own export
    }
)
TAIL, CHUNK = 1 << 20, 1 << 24
EVENT = """columns={ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
ts: 'DOUBLE', dur: 'DOUBLE', args: 'STRUCT("correlation" BIGINT, device BIGINT, "context" BIGINT,
stream BIGINT, bytes BIGINT, "graph node id" BIGINT, "graph id" BIGINT, "External id" BIGINT, process BIGINT,
query_id BIGINT)'}"""


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is an object with trace events."""
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            return False
    begins = head.lstrip()[:1] == b"{"
    return begins and any(w in head for w in (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"'))


def read(path: Path) -> Trace:
    """Return the spans of a Kineto trace; UsageError if there are none."""
    import duckdb

    found = Collected("torch.profiler (Kineto)")
    with _events(path, found) as events, duckdb.connect() as base:
        base.execute("SET enable_progress_bar = false")
        try:
            _load(base, events)
        except duckdb.Error as error:
            found.note(
                "W-PROF-3",
                f"{path.name} can be read in part only",
                evidence=str(error).splitlines()[0][:160],
                effect="What follows the damage is missing",
                fix="export_chrome_trace(...) again, after the profiler has stopped",
            )
            _load(base, _as_far_as(events))
        _tables(base, found)
    return found.trace(path)


def _load(base: Any, events: Path) -> None:
    whens = " ".join(f"WHEN '{cat}' THEN {SPAN_KINDS.index(kind)}" for cat, kind in KINDS.items())
    base.execute(
        f"""CREATE OR REPLACE TEMP TABLE e AS
        SELECT CASE cat {whens} ELSE -1 END::TINYINT AS kind, coalesce(name, '') AS name, pid, tid,
               (ts * 1000)::BIGINT AS start, start + (coalesce(dur, 0) * 1000)::BIGINT AS stop, args
        FROM read_json(?, format='array', maximum_object_size=268435456, {EVENT})
        WHERE ph = 'X' AND cat IS NOT NULL AND ts IS NOT NULL AND kind >= 0""",
        [str(events)],
    )


def _tables(base: Any, found: Collected) -> None:
    """Add the rows of the table `e`; of a kernel, `pid` is the GPU, and its process is the one that made the calls."""
    base.execute(
        "CREATE TEMP TABLE n AS SELECT name, row_number() OVER (ORDER BY min(rowid)) - 1 AS i FROM e GROUP BY name"
    )
    names = [row[0] for row in base.execute("SELECT name FROM n ORDER BY i").fetchall()]
    on_gpu = ", ".join(str(SPAN_KINDS.index(k)) for k in ("kernel", "copy", "graph"))
    main = base.execute(
        f"SELECT TRY_CAST(pid AS INTEGER) p FROM e WHERE kind NOT IN ({on_gpu}) AND p >= 0 "
        "GROUP BY p ORDER BY count(*) DESC LIMIT 1"
    ).fetchone()
    process = main[0] if main else -1
    c = base.execute(
        f"""SELECT kind, n.i::INTEGER AS name, start AS start_ns, stop AS end_ns,
          coalesce(args.process, CASE WHEN kind IN ({on_gpu}) THEN {process} ELSE TRY_CAST(pid AS INTEGER) END, -1)
            ::INTEGER AS process,
          coalesce(CASE WHEN kind NOT IN ({on_gpu}) THEN TRY_CAST(tid AS BIGINT) & 2147483647 END, -1)
            ::INTEGER AS thread,
          coalesce(args.device, CASE WHEN kind IN ({on_gpu}) THEN TRY_CAST(pid AS INTEGER) END, -1)::SMALLINT AS device,
          coalesce(args.context, -1)::INTEGER AS context,
          coalesce(CASE WHEN args.stream < 2147483648 THEN args.stream END, -1)::INTEGER AS stream,
          coalesce(args.correlation, -1)::BIGINT AS correlation,
          coalesce(nullif(args."graph node id", 0), nullif(args."graph id", 0), -1)::BIGINT AS graph,
          coalesce(args.query_id, -1)::BIGINT AS query_id, coalesce(args.bytes, -1)::BIGINT AS bytes
        FROM e JOIN n USING (name) ORDER BY e.rowid"""
    ).fetchnumpy()
    kind = np.asarray(c.pop("kind"), "int8")
    api, sync = SPAN_KINDS.index("api"), SPAN_KINDS.index("sync")
    waits = np.array([kind_of_call(name) == "sync" for name in names] or [False])
    kind = np.where((kind == api) & waits[np.asarray(c["name"])], sync, kind) if len(kind) else kind
    found.tables.append(Table(kind, {k: np.asarray(v) for k, v in c.items()}, names))


@contextmanager
def _events(path: Path, found: Collected) -> Iterator[Path]:
    """Yield a file that holds the array of events alone; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="edgescope-") as folder:
        plain, array = path, Path(folder) / "events.json"
        with path.open("rb") as file:
            if file.read(2) == GZIP:
                plain = Path(folder) / "plain.json"
                _unpack(path, plain, found)
        _copy_array(path, plain, array, found)
        yield array


def _unpack(path: Path, to: Path, found: Collected) -> None:
    with gzip.open(path) as packed, to.open("wb") as file:
        try:
            shutil.copyfileobj(packed, file, CHUNK)
        except (EOFError, zlib.error, OSError) as error:
            found.note("W-PROF-3", f"{path.name} can be read in part only", evidence=str(error))


def _copy_array(path: Path, plain: Path, to: Path, found: Collected) -> None:
    """Copy the array of events into a file of its own; take the facts from what lies before it."""
    size = plain.stat().st_size
    with plain.open("rb") as file, to.open("wb") as out:
        head = file.read(TAIL)
        begin = BEGIN.search(head)
        if begin is None:
            raise empty(path, "it has no array traceEvents in its first megabyte")
        _facts(head[: begin.start()], found)
        first = begin.end() - 1
        stop = _array_end(file, first, size)
        file.seek(first)
        left = stop - first
        while left > 0 and (piece := file.read(min(CHUNK, left))):
            out.write(piece)
            left -= len(piece)


def _facts(head: bytes, found: Collected) -> None:
    """Read the GPUs from what lies before the events; a version of torch may write it so that it is no JSON."""
    gpus = {}
    devices = re.search(rb'"deviceProperties"\s*:\s*(\[.*?\])\s*,\s*\n?\s*"', head, re.DOTALL)
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
    """Return where the array ends: before the last keys of the object, or at the end of a truncated file."""
    begin = max(first, size - TAIL)
    file.seek(begin)
    tail = file.read()
    at = len(tail)
    for _ in range(1000):
        at = tail.rfind(b"]", 0, at)
        if at < 0:
            break
        try:
            json.loads(b'{"x":[' + tail[at:])
            return begin + at + 1
        except ValueError:
            continue
    return size


def _as_far_as(events: Path) -> Path:
    """Return a file with the whole events of a damaged array, found one by one."""
    text, decoder, kept = events.read_text(encoding="utf-8", errors="replace"), json.JSONDecoder(), []
    at = text.find("[") + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        if isinstance(event, dict) and event.get("ph") == "X":
            kept.append(_plain(event))
    whole = events.with_name("whole.json")
    whole.write_text(json.dumps(kept))
    return whole


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event with numbers where numbers belong, and without what is none."""
    times = {k: event[k] for k in ("ts", "dur") if isinstance(event.get(k), (int, float))}
    args = event.get("args")
    numbers = {k: v for k, v in args.items() if isinstance(v, int)} if isinstance(args, dict) else {}
    return {k: event.get(k) for k in ("ph", "cat", "name", "pid", "tid")} | times | {"args": numbers}


IMPORTER = Importer(knows, read)
