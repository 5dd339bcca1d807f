"""Nsight Systems exports (`nsys export --type sqlite`), schemas of 2022 to 2026.

Tables and columns come and go between versions, so each table says which columns it wants and takes those that are
there. Every number is an integer and every string lies in StringIds. Rows are read with sqlite3 and go straight into
arrays, because an export of an hour has ten million of them.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.rows import different
from edgescope.records import SPAN_KINDS, Channel, Readings, Trace
from edgescope.wings.trace.imported import (
    ImportedFile,
    Importer,
    Table,
    empty,
    gpu_facts,
    indexed,
    kind_of_call,
)
from edgescope.wings.trace.importers.sqlite_pages import Pages, Unreadable

MAGIC = b"SQLite format 3\x00"
#: Schemas that were read while this was written; others are read as far as their columns are known.
KNOWN_SCHEMAS = (2, 3)
COPIES = MappingProxyType(
    {
        **{
            1: "H2D",
            2: "D2H",
            3: "H2A",
            4: "A2H",
            5: "A2A",
            6: "A2D",
            7: "D2A",
            8: "D2D",
            9: "H2H",
            10: "P2P",
        },
        **{11: "unified H2D", 12: "unified D2H", 13: "unified D2D"},
    }
)
RANGES, MARK = (59, 60, 70, 71), 34
NVTX, SCHEDULING, SYNCS, METRICS = (
    "NVTX_EVENTS",
    "SCHED_EVENTS",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "GPU_METRICS",
)
WHERE = ("deviceId", "contextId", "streamId", "correlationId", "globalPid")
Columns = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Wanted:
    """One table of an export: its columns by preference, and how a row is named."""

    table: str
    kind: str
    columns: Sequence[str]
    """Columns besides start and end."""
    names: Sequence[str] = ()
    """Columns that hold the name's id, the best first."""
    label: str = ""
    """The name of every row, where no column has one."""
    where: str = ""
    fixed: Mapping[str, int] = field(default_factory=dict)


TABLES = (
    Wanted("CUPTI_ACTIVITY_KIND_RUNTIME", "api", ("globalTid", "correlationId"), ("nameId",)),
    Wanted("CUPTI_ACTIVITY_KIND_DRIVER", "api", ("globalTid", "correlationId"), ("nameId",)),
    Wanted("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", (*WHERE, "graphNodeId"), ("demangledName", "shortName")),
    Wanted("CUPTI_ACTIVITY_KIND_MEMCPY", "copy", (*WHERE, "graphNodeId", "bytes", "copyKind")),
    Wanted("CUPTI_ACTIVITY_KIND_MEMSET", "copy", (*WHERE, "graphNodeId", "bytes"), label="memset"),
    Wanted("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph", (*WHERE, "graphId"), label="CUDA graph"),
    Wanted("OSRT_API", "call", ("globalTid",), ("nameId",)),
    Wanted("CUDNN_EVENTS", "call", ("globalTid",), ("nameId",)),
    Wanted("CUBLAS_EVENTS", "call", ("globalTid",), ("nameId",)),
    Wanted("PROFILER_OVERHEAD", "overhead", ("globalTid",), ("nameId",)),
)
READ = (*(wanted.table for wanted in TABLES), NVTX, SCHEDULING, SYNCS, METRICS)
SAMPLES = MappingProxyType(
    {
        "sms active": "sm_active",
        "sm active": "sm_active",
        "sm issue": "sm_issue",
        "tensor active": "tensor_active",
        "gr active": "gr_active",
        "dram read bandwidth": "dram_read",
        "dram write bandwidth": "dram_write",
        "gpc clock frequency": "gpc_clock",
        "sys clock frequency": "sys_clock",
    }
)


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is an SQLite database."""
    return head.startswith(MAGIC)


def read(path: Path) -> Trace:
    """Return the spans and GPU metric samples of an export; UsageError if there are none."""
    try:
        with closing(_opened(path)) as base:
            return _Export(base, path).trace()
    except sqlite3.Error as error:
        raise empty(path, f"SQLite: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    """Return the database, opened so that neither a lock nor a missing journal of another program matters."""
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    base = sqlite3.connect(f"file:{quoted}?mode=ro&immutable=1", uri=True)
    base.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return base


class _Export:
    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path
        self.collected = ImportedFile("Nsight Systems")
        self.tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        self.has: dict[str, set[str]] = {}
        self.strings: dict[int, str] = {}
        self.pages: Pages | None = None

    def trace(self) -> Trace:
        """Return everything in the export."""
        self._about()
        self.strings = dict(self._rows("SELECT id, value FROM StringIds", "StringIds"))
        for wanted in TABLES:
            self._table(wanted)
        self._ranges()
        self._scheduling()
        self._syncs()
        self._unread()
        self._facts()
        return self.collected.trace(self.path, samples=self._samples())

    def _rows(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows until the end or until the file is damaged, which is noted; nothing if there is no table."""
        if table not in self.tables:
            return
        try:
            yield from self.base.execute(query)
        except sqlite3.Error as error:
            self._damaged(table, str(error))

    def _damaged(self, table: str, why: str) -> None:
        self.collected.facts["damaged"] = True
        self.collected.note(
            "W-PROF-3",
            f"table {table} can be read in part only",
            evidence=why,
            effect="What follows in it is missing",
            fix="nsys export --type sqlite --force-overwrite=true FILE.nsys-rep",
        )

    def _columns_of(self, table: str) -> set[str]:
        if table not in self.has:
            self.has[table] = {row[1] for row in self.base.execute(f'PRAGMA table_info("{table}")')}
        return self.has[table]

    def _about(self) -> None:
        """Read the version, from either name of the table that holds it, and say if it is not a known one."""
        meta: dict[str, str] = {}
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            meta |= dict(self._rows(f"SELECT name, value FROM {table}", table))
        schema = meta.get("EXPORT_SCHEMA_VERSION", "")
        version = meta.get("EXPORT_PRODUCT_VERSION", "")
        self.collected.source = (
            f"Nsight Systems {version or 'of unknown version'}, schema {schema or 'unknown'}"
        )
        major = schema.partition(".")[0]
        if not major.isdigit() or int(major) not in KNOWN_SCHEMAS:
            self.collected.note(
                "W-PROF-4",
                f"the export has schema version {schema or 'unknown'}",
                evidence=f"versions {KNOWN_SCHEMAS[0]} to {KNOWN_SCHEMAS[-1]} are known",
                effect="Tables and columns of known names are read, others are not",
            )

    def _numbers(self, table: str, columns: Sequence[str], where: str = "") -> Columns:
        """Return columns of integers; NULL is -1, and a column that the table lacks is left out."""
        if table not in self.tables:
            return {}
        here = [c for c in columns if c in self._columns_of(table)]
        if not where and (read := self._from_pages(table, here)) is not None:
            return read
        words = ", ".join(f'COALESCE("{c}", -1)' for c in here)
        clause = f" WHERE {where}" if where else ""
        query = f'SELECT {words} FROM "{table}"{clause}'
        flat: NDArray[np.int64]
        try:
            cells = itertools.chain.from_iterable(self.base.execute(query))
            flat = np.fromiter(cells, "int64")
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            flat = self._as_far_as(query, len(here), table, error)
        whole = flat[: len(flat) // len(here) * len(here)].reshape(-1, len(here))
        return {c: np.ascontiguousarray(whole[:, i]) for i, c in enumerate(here)}

    def _from_pages(self, table: str, columns: Sequence[str]) -> Columns | None:
        """Return columns of integers from the file's pages; None where only SQLite can read them."""
        about = self.base.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        if any(pk or hidden for *_, pk, hidden in about):  # a row's number, or a value that is not in the row
            return None
        number = {name: index for index, name, *_ in about}
        query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
        try:
            self.pages = self.pages or Pages(self.path)
            (root,) = self.base.execute(query, (table,)).fetchone()
            found = self.pages.integers(root, [number[c] for c in columns])
        except (Unreadable, ValueError, OSError, IndexError, OverflowError):
            return None
        return dict(zip(columns, found, strict=True))

    def _as_far_as(self, query: str, width: int, table: str, why: Exception) -> NDArray[np.int64]:
        """Return the cells before the damage; a row with a cell that is no integer is left out."""
        kept: list[int] = []
        odd: list[tuple[Any, ...]] = []
        try:
            for row in self.base.execute(query):
                if all(isinstance(cell, int) and -(2**63) <= cell < 2**63 for cell in row):
                    kept.extend(row)
                else:
                    odd.append(row)
        except sqlite3.Error as error:
            self._damaged(table, str(error))
        if odd:
            self.collected.lose(
                "W-PROF-16",
                f"rows of {table} hold something else than numbers",
                len(odd),
                evidence=f"{why}; the first is {str(odd[0])[:80]}",
                effect="They are left out: the times and counts of their names are too low",
            )
        return np.array(kept, "int64")

    def _whole(self, table: str, found: Columns) -> Columns:
        """Return the rows that have a start and an end, and say how many have not."""
        whole = (found["start"] != -1) & (found["end"] != -1)
        self.collected.lose(
            "W-PROF-16",
            f"rows of {table} have no start or no end",
            int((~whole).sum()),
            effect="They are left out: how long they took is not known",
        )
        return found if whole.all() else {name: column[whole] for name, column in found.items()}

    def _unread(self) -> None:
        """Say which tables of spans are not read: another version of one that is read, or of something else."""
        for table in sorted(self.tables.difference(READ)):
            variant = next((known for known in READ if table.startswith(known)), "")
            if not variant and not {"start", "end"} <= self._columns_of(table):
                continue
            count = next(iter(self._rows(f'SELECT count(*) FROM "{table}"', table)), (0,))[0]
            self.collected.lose(
                "W-PROF-15",
                f"rows are in the table {table}, which is not read",
                count,
                damage=bool(variant),
                evidence=f"its name is that of another version of {variant}" if variant else "",
                effect=f"The account lacks what it says{' and may lack all of ' + variant if variant else ''}",
            )

    def _table(self, wanted: Wanted) -> None:
        """Add the rows of one table, if it is there."""
        found = self._numbers(wanted.table, ("start", "end", *wanted.columns, *wanted.names), wanted.where)
        if "start" not in found or "end" not in found:
            return
        found = self._whole(wanted.table, found)
        if not len(found["start"]):
            return
        columns: dict[str, NDArray[Any] | int] = {"start_ns": found.pop("start"), "end_ns": found.pop("end")}
        columns |= _placed(found)
        names, index = self._named(wanted, found, len(columns["start_ns"]))  # type: ignore[arg-type]
        columns["name"] = index
        kind: str | NDArray[Any] = wanted.kind
        if wanted.kind == "api":
            kind = np.array([SPAN_KINDS.index(kind_of_call(n)) for n in names], "int8")[index]
        self.collected.tables.append(Table(kind, columns, names))

    def _named(self, wanted: Wanted, found: Columns, rows: int) -> tuple[list[str], NDArray[np.int32]]:
        """Return the different names of the rows, and each row's index among them."""
        if "copyKind" in found:
            kinds, index = _unique(found["copyKind"])
            return [COPIES.get(int(k), f"copy of kind {k}") for k in kinds], index
        column = next((found[c] for c in wanted.names if c in found), None)
        if column is None:
            return [wanted.label or "(without a name)"], np.broadcast_to(np.int32(0), rows)
        ids, index = _unique(column)
        return [self.strings.get(int(i), f"(string {i})") for i in ids], index

    def _ranges(self) -> None:
        """Add the NVTX ranges; a range whose end is missing was open when the recording stopped."""
        has = self._has(NVTX)
        if not has:
            return
        text = "text" if "text" in has else "NULL"
        ident = "textId" if "textId" in has else "NULL"
        query = f"SELECT start, end, globalTid, {text}, {ident} FROM {NVTX} WHERE eventType IN {RANGES}"
        rows = [r for r in self._rows(query, NVTX) if isinstance(r[0], int)]
        ended = [r for r in rows if isinstance(r[1], int)]
        self.collected.lose(
            "W-PROF-5",
            "ranges have no end",
            len(rows) - len(ended),
            damage=False,
            effect="They are left out: they were open when the recording stopped",
        )
        marks = next(iter(self._rows(f"SELECT count(*) FROM {NVTX} WHERE eventType = {MARK}", NVTX)), (0,))
        self.collected.pass_over("NVTX marks, which have no length", marks[0])
        names, index = indexed([r[3] if r[3] is not None else self.strings.get(r[4], "") for r in ended])
        columns: dict[str, NDArray[Any] | int] = {
            "start_ns": np.array([r[0] for r in ended], "int64"),
            "end_ns": np.array([r[1] for r in ended], "int64"),
            "name": index,
            **_placed({"globalTid": np.array([-1 if r[2] is None else r[2] for r in ended], "int64")}),
        }
        self.collected.tables.append(Table("range", columns, names))

    def _scheduling(self) -> None:
        """Add a span for each time a thread was on a CPU: from being scheduled in to being scheduled out."""
        found = self._numbers(SCHEDULING, ("start", "cpu", "isSchedIn", "globalTid"))
        if len(found) < 4 or not len(found["start"]):
            return
        order = np.lexsort((1 - found["isSchedIn"], found["start"], found["globalTid"]))
        start, cpu, inward, thread = (found[c][order] for c in ("start", "cpu", "isSchedIn", "globalTid"))
        paired = (inward[:-1] == 1) & (inward[1:] == 0) & (thread[:-1] == thread[1:])
        first = np.flatnonzero(paired)
        lone = int((inward == 1).sum() - len(first)) + int((inward == 0).sum() - len(first))
        self.collected.lose(
            "W-PROF-6",
            "scheduling events have no partner",
            lone,
            damage=False,
            evidence=f"of {len(start):,}",
            effect="The time on a CPU that they begin or end is not counted",
        )
        self.collected.facts["scheduling"] = {
            "switches_in": int((inward == 1).sum()),
            "switches_out": int((inward == 0).sum()),
        }
        columns: dict[str, NDArray[Any] | int] = {
            "start_ns": start[first],
            "end_ns": start[first + 1],
            "device": cpu[first],
            "name": 0,
            **_placed({"globalTid": thread[first]}),
        }
        self.collected.tables.append(Table("sched", columns, ["on a CPU"]))

    def _syncs(self) -> None:
        """Add CUPTI's records of waiting where the calls themselves were not recorded."""
        if any(len(t.columns["start_ns"]) for t in self.collected.tables if not isinstance(t.kind, str)):  # type: ignore[arg-type]
            return
        self._table(Wanted(SYNCS, "sync", WHERE, label="synchronisation"))

    def _facts(self) -> None:
        gpus = {}
        wanted = [c for c in ("id", "name", "smCount") if c in self._has("TARGET_INFO_GPU")]
        for row in self._rows(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU", "TARGET_INFO_GPU"):
            facts = dict(zip(wanted, row, strict=True))
            gpus[int(facts.pop("id", 0))] = {
                "name": facts.get("name", ""),
                "multiprocessors": facts.get("smCount"),
            }
        self.collected.facts |= gpu_facts(gpus)
        running = self._running() if "PROCESSES" in self.tables else set()
        names = {
            str(pid): name
            for pid, name in self._rows("SELECT pid, name FROM PROCESSES", "PROCESSES")
            if pid in running and name
        }
        self.collected.facts |= {"processes": names} if names else {}
        begun = next(
            iter(
                self._rows(
                    "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SESSION_START_TIME"
                )
            ),
            None,
        )
        self.collected.facts |= {"utc_start_ns": begun[0]} if begun else {}

    def _running(self) -> set[int]:
        """Return the processes that the spans are of."""
        columns = (np.atleast_1d(t.columns.get("process", -1)) for t in self.collected.tables)
        return set(itertools.chain.from_iterable(map(different, columns)))

    def _has(self, table: str) -> set[str]:
        return self._columns_of(table) if table in self.tables else set()

    def _samples(self) -> Readings | None:
        """Return the samples of GPU metrics, or None if none were taken."""
        found = self._numbers(METRICS, ("timestamp", "typeId", "metricId", "value"))
        if len(found) < 4 or not len(found["timestamp"]):
            return None
        names = {
            (kind, metric): name
            for kind, metric, name in self._rows(
                "SELECT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS", "TARGET_INFO_GPU_METRICS"
            )
        }
        pairs, index = np.unique(np.stack([found["typeId"], found["metricId"]]), axis=1, return_inverse=True)
        channels = tuple(
            _channel(str(names.get((int(k), int(m)), f"metric {m}")), int(k) & 0xFF) for k, m in pairs.T
        )
        order = np.argsort(found["timestamp"], kind="stable")
        factors = np.where([c.unit == "share" for c in channels], 0.01, 1.0)
        return Readings(
            channels,
            found["timestamp"][order],
            index.ravel()[order].astype("int16"),
            np.asarray(found["value"] * factors[index.ravel()], "float64")[order],
        )


def _channel(text: str, gpu: int) -> Channel:
    """Return the channel of `SMs Active [Throughput %]`: gpu0_sm_active, a share."""
    label, _, unit = text.partition(" [")
    unit = unit.rstrip("]")
    name = SAMPLES.get(label.lower(), re.sub(r"\W+", "_", label.lower()).strip("_"))
    if "%" not in unit and unit and "Hz" not in unit:
        name += "_" + re.sub(r"\W+", "_", unit.lower()).strip("_")
    unit = "share" if "%" in unit else "Hz" if "Hz" in unit else unit
    return Channel(f"gpu{gpu}_{name}", unit, "gpu_board", "average", f"nsys: {text}")


def _placed(found: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any] | int]:
    """Return process, thread, device, context, stream, correlation, graph and bytes from columns of an export.

    A globalTid holds the process in bits 24 to 47 and the thread in the bits below.
    """
    placed: dict[str, NDArray[Any] | int] = {}
    for column, name in (
        ("deviceId", "device"),
        ("contextId", "context"),
        ("streamId", "stream"),
        ("correlationId", "correlation"),
        ("graphNodeId", "graph"),
        ("graphId", "graph"),
        ("bytes", "bytes"),
    ):
        if column in found:
            values = found[column]
            placed[name] = _small(
                np.where(values >= 2**31, -1, values) if name in ("context", "stream") else values
            )
    ids = found.get("globalTid", found.get("globalPid"))
    if ids is not None:
        placed["process"] = _small(np.where(ids < 0, -1, (ids >> 24) & 0xFFFFFF).astype("int32"))
        if "globalTid" in found:
            placed["thread"] = _small(np.where(ids < 0, -1, ids & 0xFFFFFF).astype("int32"))
    return placed


def _small(column: NDArray[Any]) -> NDArray[Any] | int:
    """Return a column, or the number itself if all of its rows are equal."""
    return (
        int(column[0]) if len(column) and column[0] == column[-1] and (column == column[0]).all() else column
    )


def _unique(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the different ids and the index of each row's among them, without sorting where ids are small."""
    if len(ids) and ids.min() >= 0 and ids.max() < 1 << 22:
        present = np.flatnonzero(np.bincount(ids))
        index = np.zeros(int(ids.max()) + 1, "int32")
        index[present] = np.arange(len(present), dtype="int32")
        return present, index[ids]
    different, inverse = np.unique(ids, return_inverse=True)
    return different, inverse.astype("int32")


IMPORTER = Importer(knows, read)
