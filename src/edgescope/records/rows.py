"""Raw rows as columns: queries and the sampler's readings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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
