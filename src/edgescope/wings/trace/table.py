"""A trace as one table that DuckDB queries: names and kinds as text, a row per span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS, Trace

SQL = """CREATE VIEW spans AS SELECT names.text AS name, kinds.text AS kind, rows.* EXCLUDE (name, kind)
FROM rows JOIN names ON rows.name = names.id JOIN kinds ON rows.kind = kinds.id"""


def write(trace: Trace, path: Path) -> None:
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
