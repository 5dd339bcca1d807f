"""Raw rows as columns: queries, the readings of the sampler, and spans, which tell where time went."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from edgescope.errors import Message
from edgescope.records.answers import Json
from edgescope.records.lazy import NDArray, np

#: One row per query: all times in nanoseconds of the monotonic clock; -1 if there is no such time.
QUERY_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "query_id": "int64",
        "worker": "int16",
        "stream": "int16",
        "source_ns": "int64",
        "scheduled_ns": "int64",
        "issued_ns": "int64",
        "done_ns": "int64",
        "samples": "int32",
        "status": "int8",
    }
)
QUERY_OK, QUERY_ERROR, QUERY_DROPPED = 0, 1, 2
#: Status of a unit at the end of the input: the result has no row for it.
QUERY_END = 3
Marks = Mapping[str, int]
"""Moments that one query reached, by name: nanoseconds of the monotonic clock. A part has two: NAME_begin, NAME_end."""
MARK = re.compile(r"mark_(?P<name>.+)_ns", re.DOTALL)


def mark_column(name: str) -> str:
    """Return the name of the column that holds a mark: int64, -1 where a query did not reach it."""
    return f"mark_{name}_ns"


@dataclass(frozen=True)
class Queries:
    """The raw rows of a run as columns, warm-up first; nothing is ever dropped from them.

    They are those of QUERY_DTYPES, and one more for each mark that some query has (`mark_column`).
    """

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["query_id"])

    def rows(self, window: Window) -> Queries:
        """Return the rows that belong to the measured window."""
        return Queries({k: v[window.first : window.stop] for k, v in self.columns.items()})

    @property
    def marks(self) -> dict[str, NDArray[np.int64]]:
        """Return the column of each mark by the mark's name; {} where the work notes none."""
        return {found["name"]: v for k, v in self.columns.items() if (found := MARK.fullmatch(k))}

    def due_ns(self) -> NDArray[np.int64]:
        """Return when each query fell due: its scheduled time if it has one, else its issue."""
        c = self.columns
        return np.asarray(np.where(c["scheduled_ns"] >= 0, c["scheduled_ns"], c["issued_ns"]), dtype=np.int64)

    def latency_ns(self) -> NDArray[np.int64]:
        """Return the nanoseconds from scheduled (else issued) to done, for the rows that succeeded."""
        c = self.columns
        return np.asarray((c["done_ns"] - self.due_ns())[c["status"] == QUERY_OK], dtype=np.int64)


@dataclass(frozen=True)
class Window:
    """The measured part of a run: rows [first, stop) and the monotonic times that bound it."""

    first: int
    stop: int
    start_ns: int
    stop_ns: int


@dataclass(frozen=True)
class Idle:
    """A stretch in which the process had its model loaded and did nothing; monotonic times, as for the window."""

    when: str
    """before or after the load."""
    start_ns: int
    stop_ns: int


@dataclass(frozen=True)
class Channel:
    """One metric of one source: its unit, its scope, and whether it could be read."""

    name: str
    unit: str
    scope: str
    """rail, sum_of_rails, module, carrier, gpu_board, cpu_package, wall, system, process ..."""
    kind: str
    """gauge, average, counter or interval."""
    source: str
    """Where the value comes from: a file, a library call."""
    status: str = "measured"
    """measured, unsupported or failed; the last two with a reason."""
    reason: str = ""


@dataclass(frozen=True)
class Readings:
    """The sampler's raw rows: t_ns (same clock as the queries), channel (index into channels), value."""

    channels: tuple[Channel, ...]
    t_ns: NDArray[np.int64]
    channel: NDArray[np.int16]
    value: NDArray[np.float64]

    def series(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return (t_ns, value) of one channel, in time order; empty if it was not read."""
        index = next((i for i, c in enumerate(self.channels) if c.name == name), -1)
        mine = self.channel == index
        return self.t_ns[mine], self.value[mine]

    def beside(self, other: Readings | None) -> Readings:
        """Return these rows and those of others, in time order; of a channel that both have, these."""
        if other is None:
            return self
        own = {channel.name for channel in self.channels}
        kept = [i for i, channel in enumerate(other.channels) if channel.name not in own]
        place = np.full(len(other.channels), -1, np.int16)
        place[kept] = np.arange(len(kept)) + len(self.channels)
        others = np.isin(other.channel, kept)
        t_ns = np.concatenate([self.t_ns, other.t_ns[others]])
        order = np.argsort(t_ns, kind="stable")
        return Readings(
            (*self.channels, *(other.channels[i] for i in kept)),
            t_ns[order],
            np.concatenate([self.channel, place[other.channel[others]]])[order],
            np.concatenate([self.value, other.value[others]])[order],
        )


# -- where time went -------------------------------------------------------------------------------------------

#: What a span may be; edgescope docs profiling says what each kind is. New kinds go to the end: files hold the numbers.
SPAN_KINDS = (
    *("unit", "phase", "stage", "api", "kernel", "copy", "sync", "range", "sched"),
    *("graph", "op", "call", "ready", "overhead"),
)
#: One row per span: times in nanoseconds of the monotonic clock; -1 if there is no such number.
SPAN_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "name": "int32",
        "kind": "int8",
        "start_ns": "int64",
        "end_ns": "int64",
        "process": "int32",
        "thread": "int32",
        "device": "int16",
        "context": "int32",
        "stream": "int32",
        "correlation": "int64",
        "graph": "int64",
        "query_id": "int64",
        "bytes": "int64",
    }
)
#: Columns that files written by the first versions do not have.
SPAN_LATER = ("thread", "device", "context", "graph")
#: Name of the span of a whole unit of work; its phases or stages lie within it.
UNIT = "unit"
#: How the name of a range begins that holds the queries' clock at its start; it is no work of the program.
CLOCK_MARK = "edgescope clock "


@dataclass(frozen=True)
class Spans:
    """Where time went, from any source: one row per span (SPAN_DTYPES); `name` is an index into `names`.

    `process` is a process's number (in a stored Result that of the worker), `device` the GPU, for `sched` and `ready`
    the CPU; `correlation` joins what ran on the GPU to the call that launched it, within one process.
    """

    names: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def none(cls) -> Spans:
        """Return no spans."""
        return cls((), {name: np.empty(0, dtype) for name, dtype in SPAN_DTYPES.items()})

    @classmethod
    def of(
        cls, kind: str, rows: Sequence[tuple[str, int, int, int]], expected: Collection[str] = ()
    ) -> Spans:
        """Return (name, query_id, start_ns, end_ns) rows of one kind as spans of no process, stream or bytes.

        An `expected` name without a row stays in `names`.
        """
        names = tuple(dict.fromkeys([*expected, *(row[0] for row in rows)]))
        index = {name: i for i, name in enumerate(names)}
        known = {
            "name": [index[row[0]] for row in rows],
            "kind": [SPAN_KINDS.index("unit" if row[0] == UNIT else kind) for row in rows],
            "query_id": [row[1] for row in rows],
            "start_ns": [row[2] for row in rows],
            "end_ns": [row[3] for row in rows],
        }
        return cls.from_columns(names, {k: np.array(v, "int64") for k, v in known.items()})

    @classmethod
    def from_columns(cls, names: Sequence[str], columns: Mapping[str, NDArray[Any] | int]) -> Spans:
        """Return spans of columns of one length; one number stands for a column of it, a column left out is -1.

        A constant column takes no memory.
        """
        count = len(columns["start_ns"])  # type: ignore[arg-type]
        made = {}
        for name, dtype in SPAN_DTYPES.items():
            column = columns.get(name, -1)
            made[name] = (
                np.broadcast_to(np.array(column, dtype), count)
                if isinstance(column, int)
                else np.asarray(column, dtype)
            )
        return cls(tuple(names), made)

    @classmethod
    def joined(cls, parts: Sequence[Spans]) -> Spans:
        """Return the rows of several tables as one table with one list of names."""
        if not parts:
            return cls.none()
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        index = {name: i for i, name in enumerate(names)}
        columns = {k: _joined([part.columns[k] for part in parts]) for k in SPAN_DTYPES if k != "name"}
        renamed = [np.array([index[n] for n in p.names], "int32")[p.columns["name"]] for p in parts]
        return cls(names, {"name": _joined(renamed), **columns})

    def of_process(self, number: int) -> Spans:
        """Return the same rows as those of worker `number`."""
        return Spans(self.names, {**self.columns, "process": np.full(len(self), number, "int32")})

    def of_kind(self, *kinds: str) -> Spans:
        """Return the rows of these kinds, in their order."""
        wanted = [SPAN_KINDS.index(kind) for kind in kinds]
        return self.where(np.isin(self.columns["kind"], wanted))

    def where(self, rows: NDArray[Any]) -> Spans:
        """Return the rows that a mask or an array of indices chooses."""
        return Spans(self.names, {k: v[rows] for k, v in self.columns.items()})

    def between(self, start_ns: int, stop_ns: int) -> Spans:
        """Return the rows that began and ended between two moments."""
        return self.where((self.columns["start_ns"] >= start_ns) & (self.columns["end_ns"] <= stop_ns))

    def moved(self, ns: int) -> Spans:
        """Return the same spans with `ns` added to every time."""
        times = {k: self.columns[k] + ns for k in ("start_ns", "end_ns")}
        return Spans(self.names, {**self.columns, **times})

    def __len__(self) -> int:
        return len(self.columns["name"])

    def durations_ns(self, name: str) -> NDArray[np.int64]:
        """Return how long each span of this name took, in the order of the rows."""
        mine = self.columns["name"] == (self.names.index(name) if name in self.names else -1)
        return np.asarray((self.columns["end_ns"] - self.columns["start_ns"])[mine], dtype=np.int64)

    def named(self) -> list[str]:
        """Return the name of each row."""
        return [self.names[i] for i in self.columns["name"].tolist()]


def _joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the columns in one; if all rows of all are equal by construction, still a constant."""
    constants = {int(c[0]) for c in columns if len(c) and c.strides == (0,)}
    if len(constants) == 1 and all(c.strides == (0,) for c in columns if len(c)):
        return np.broadcast_to(np.array(constants.pop(), columns[0].dtype), sum(map(len, columns)))
    return np.concatenate(columns)


@dataclass(frozen=True)
class Trace:
    """Spans of any profiler's file, and the GPU's metric samples beside them."""

    spans: Spans
    source: str
    """The program and the format that it comes from: `Nsight Systems 2025.3.2, schema 3.20.3`."""
    samples: Readings | None = None
    """Samples over time (SM active, tensor active ...), on the clock of the spans."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """What the file says of the machine: `gpus`, `processes`, `cpu_cores`."""
    clock: str = "its own"
    """`monotonic` if the times are those of the queries; `its own` if they only compare within this trace."""
    timed: bool = True
    """Whether starts mean anything; False for a summary, whose rows are laid end to end."""
    notes: tuple[Message, ...] = ()
    """What is missing, repaired or unknown in the file."""

    def on_monotonic(self, ns: int) -> Trace:
        """Return the trace with `ns` added to every time, which makes its clock that of the queries."""
        samples = self.samples
        if samples is not None:
            samples = replace(samples, t_ns=samples.t_ns + ns)
        return replace(self, spans=self.spans.moved(ns), samples=samples, clock="monotonic")
