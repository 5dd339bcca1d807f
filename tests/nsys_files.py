"""Small exports of Nsight Systems, made row by row with the columns that a test needs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

RUNTIME = "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
KERNEL = (
    "start INTEGER NOT NULL, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, graphNodeId INTEGER"
)
NAMES = {
    1: "cudaLaunchKernel_v7000",
    2: "cudaStreamSynchronize_v3020",
    3: "void gemm<half>(int)",
    4: "cudaGraphLaunch_v10000",
    5: "名前 kernel é\U0001f600",
}


def tid(pid: int, thread: int = 0) -> int:
    """Return a globalTid."""
    return (1 << 48) | (pid << 24) | (thread or pid)


class Export:
    """An export that is being written."""

    def __init__(self, path: Path, schema: str = "3.20.3", meta: str = "META_DATA_EXPORT") -> None:
        self.path, self.base = path, sqlite3.connect(path)
        self.table("StringIds", "id INTEGER PRIMARY KEY, value TEXT", *NAMES.items())
        if meta:
            self.table(meta, "name TEXT, value TEXT", ("EXPORT_SCHEMA_VERSION", schema))

    def table(self, name: str, columns: str, *rows: tuple[object, ...]) -> Export:
        """Add a table with its rows."""
        self.base.execute(f"CREATE TABLE {name} ({columns})")
        if rows:
            self.base.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows)
        return self

    def runtime(self, *rows: tuple[object, ...]) -> Export:
        """Add calls: start, end, globalTid, correlation, name."""
        return self.table("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, *rows)

    def kernels(self, *rows: tuple[object, ...]) -> Export:
        """Add kernels: start, end, device, context, stream, correlation, globalPid, name, graph node."""
        return self.table("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, *rows)

    def ranges(self, *rows: tuple[object, ...]) -> Export:
        """Add NVTX ranges: start, end, type, text, globalTid, textId."""
        columns = (
            "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER"
        )
        return self.table("NVTX_EVENTS", columns, *rows)

    def done(self) -> Path:
        """Close it; return its path."""
        self.base.commit()
        self.base.close()
        return self.path
