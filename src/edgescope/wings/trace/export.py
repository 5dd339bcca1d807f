"""A trace for other programs: Chrome trace JSON for Perfetto (ui.perfetto.dev) or chrome://tracing, and a table.

The JSON's categories are those of torch.profiler where it has one, so its readers (HolisticTraceAnalysis) open the file
too. The table has names and kinds as text, a row per span: DuckDB queries it, and writes it as Parquet.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS, Trace

ON_GPU = [SPAN_KINDS.index(kind) for kind in ("kernel", "copy", "graph")]
ON_CPU = [SPAN_KINDS.index(kind) for kind in ("sched", "ready")]
CATEGORIES = {"op": "cpu_op", "range": "user_annotation", "copy": "gpu_memcpy", "api": "cuda_runtime"}
CATEGORIES |= {"sync": "cuda_runtime", "call": "python_function"}
#: Process numbers of the tracks of GPUs and CPUs: beyond what Linux gives to processes.
GPU_TRACKS, CPU_TRACKS = 1 << 23, 1 << 24


def write_json(trace: Trace, path: Path) -> None:
    """Write the trace; .gz packs it. Times are microseconds with three decimals, so nanoseconds are kept.

    They are written as text: a double holds the microseconds since 1970 to 256 ns. A span whose length is not known
    has no `dur`.
    """
    with (
        gzip.open(path, "wt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open("w", encoding="utf-8") as file
    ):
        _write(trace, file)


def _write(trace: Trace, file: IO[str]) -> None:
    file.write('{"schemaVersion": 1, "deviceProperties": ' + json.dumps(_gpus(trace)) + ",\n")
    file.write(
        '"displayTimeUnit": "ns", "edgescope": ' + json.dumps({"source": trace.source, "clock": trace.clock})
    )
    file.write(',\n"traceEvents": [\n')
    for i, event in enumerate(_events(trace)):
        file.write((",\n" if i else "") + event)
    file.write("\n]}\n")


def _gpus(trace: Trace) -> list[dict[str, Any]]:
    found = trace.facts.get("gpus", {})
    return [
        {"id": int(i), "name": g.get("name"), "numSms": g.get("multiprocessors")} for i, g in found.items()
    ]


def _events(trace: Trace) -> Iterator[str]:
    yield from map(_text, _tracks(trace))
    columns = {k: v.tolist() for k, v in trace.spans.columns.items()}
    for row in zip(*columns.values(), strict=True):
        yield _event(trace, dict(zip(columns, row, strict=True)))
    samples = trace.samples
    if samples is not None:
        for t, channel, value in zip(
            samples.t_ns.tolist(), samples.channel.tolist(), samples.value.tolist(), strict=True
        ):
            name = samples.channels[channel].name
            yield _text({"ph": "C", "name": name, "pid": GPU_TRACKS, "args": {name: value}}, ts=t)


def _text(event: dict[str, Any], **ns: int) -> str:
    """Return an event with its times, which json would round."""
    times = "".join(f', "{k}": {"-" * (v < 0)}{abs(v) // 1000}.{abs(v) % 1000:03d}' for k, v in ns.items())
    return json.dumps(event, ensure_ascii=False)[:-1] + times + "}"


def _tracks(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the names of processes, and of the tracks of GPUs and CPUs."""
    for pid, name in trace.facts.get("processes", {}).items():
        yield {"ph": "M", "name": "process_name", "pid": int(pid), "args": {"name": name}}
    for gpu, facts in trace.facts.get("gpus", {"0": {}}).items():
        label = f"GPU {gpu} {facts.get('name', '')}".strip()
        yield {"ph": "M", "name": "process_name", "pid": GPU_TRACKS + int(gpu), "args": {"name": label}}
    yield {"ph": "M", "name": "process_name", "pid": CPU_TRACKS, "args": {"name": "CPUs"}}


def _event(trace: Trace, row: dict[str, int]) -> str:
    kind, start = row["kind"], row["start_ns"]
    track = (row["process"], row["thread"])
    if kind in ON_GPU:
        track = (GPU_TRACKS + max(row["device"], 0), row["stream"])
    elif kind in ON_CPU:
        track = (CPU_TRACKS, row["device"])
    kept = ("correlation", "device", "context", "stream", "bytes", "process", "query_id")
    args = {k: row[k] for k in kept if row[k] >= 0}
    if row["graph"] >= 0:
        args["graph id"] = row["graph"]
    event = {
        "ph": "X",
        "cat": CATEGORIES.get(SPAN_KINDS[kind], SPAN_KINDS[kind]),
        "name": trace.spans.names[row["name"]],
        "pid": track[0],
        "tid": track[1],
        "args": args,
    }
    length = row["end_ns"] - start
    return _text(event, ts=start, **({"dur": length} if length >= 0 else {}))


SQL = """CREATE VIEW spans AS SELECT names.text AS name, kinds.text AS kind, rows.* EXCLUDE (name, kind)
FROM rows JOIN names ON rows.name = names.id JOIN kinds ON rows.kind = kinds.id"""


def write_parquet(trace: Trace, path: Path) -> None:
    """Write the table as Parquet."""
    connection = _connected(trace)
    connection.execute("COPY (SELECT * FROM spans) TO ? (FORMAT parquet, COMPRESSION zstd)", [str(path)])
    connection.close()


def query(trace: Trace, sql: str) -> str:
    """Return the answer to a query over `spans` and `samples` as text; UsageError if it is wrong."""
    import duckdb

    try:
        with _connected(trace) as connection:
            return str(connection.sql(sql))
    except duckdb.Error as error:
        raise UsageError(
            "E-PROF-10", "the query cannot be answered", evidence=str(error).splitlines()[0]
        ) from error


def _connected(trace: Trace) -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.register("rows", {k: np.ascontiguousarray(v) for k, v in trace.spans.columns.items()})
    for table, texts in (("names", trace.spans.names), ("kinds", SPAN_KINDS)):
        ids = np.arange(len(texts))
        connection.register(table, {"id": ids, "text": np.array(texts or ("",), dtype=object)[: len(ids)]})
    connection.execute(SQL)
    if trace.samples is not None:
        s = trace.samples
        names = np.array([c.name for c in s.channels], dtype=object)[s.channel]
        connection.register("samples", {"t_ns": s.t_ns, "channel": names, "value": s.value})
    return connection
