"""When each GPU was busy, why it was idle, and which kernels and copies took the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.cover import Cover
from edgescope.analysis.kernels.launches import join
from edgescope.analysis.kernels.nesting import own_ns
from edgescope.analysis.kernels.rows import ON_GPU, Rows
from edgescope.records import SPAN_KINDS


@dataclass(frozen=True)
class GpuTime:
    """The time of one GPU from its first to its last activity, in nanoseconds."""

    device: int
    span_ns: int
    busy_ns: int
    """Something ran: the union over streams and processes. It is occupancy in time, not use of the multiprocessors."""
    kernel_ns: int
    """A kernel ran (union)."""
    copy_ns: int
    """A copy ran and no kernel did."""
    idle_host_ns: int
    """Nothing ran, and the call that launches the next work had not begun: the host was late."""
    idle_launch_ns: int
    """Nothing ran although the next work had been launched: latency of the launch, or a dependency."""
    idle_unknown_ns: int
    """Nothing ran, and the call of the next work is not in the trace."""

    @property
    def idle_ns(self) -> int:
        """Return the time in which nothing ran."""
        return self.span_ns - self.busy_ns

    @property
    def busy(self) -> float:
        """Return the share of the time in which something ran."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True)
class Named:
    """All rows of one name: a kernel, a kind of copy, a call."""

    name: str
    count: int
    total_ns: int
    longest_ns: int
    bytes: int | None = None
    """Bytes that its rows moved; None if none of them tells."""


def gpu_times(rows: Rows) -> tuple[GpuTime, ...]:
    """Return the time of each GPU on which something ran."""
    return tuple(_gpu_time(rows, device) for device in rows.devices)


def _gpu_time(rows: Rows, device: int) -> GpuTime:
    work = rows.of(*ON_GPU)
    here = np.flatnonzero(work["device"] == device)
    busy = rows.gpu_cover(device=device)
    kernel = work["kind"][here] != SPAN_KINDS.index("copy")
    kernels = Cover.of(work["start_ns"][here][kernel], work["end_ns"][here][kernel])
    idle = _idle(rows, work, here, busy)
    span = int(busy.end[-1] - busy.start[0]) if len(busy) else 0
    return GpuTime(device, span, busy.total, kernels.total, busy.total - kernels.total, *idle)


def _idle(
    rows: Rows, work: Mapping[str, NDArray[Any]], here: NDArray[np.intp], busy: Cover
) -> tuple[int, int, int]:
    """Return the idle time by what the next work's launching call was doing: not begun, begun, unknown."""
    begins, ends = busy.start[1:], busy.end[:-1]
    first = np.searchsorted(work["start_ns"][here], begins)
    index, _ = join(rows, {k: work[k][here[first]] for k in ("start_ns", "process", "correlation")})
    known = index >= 0
    calls = rows.of("api", "sync")["start_ns"]
    called = calls[np.maximum(index, 0)] if len(calls) else begins
    host = np.clip(called - ends, 0, begins - ends)
    gaps = begins - ends
    return (
        int(host[known].sum()),
        int((gaps - host)[known].sum()),
        int(gaps[~known].sum()),
    )


def by_name(rows: Rows, *kinds: str) -> tuple[Named, ...]:
    """Return count and time of the rows of some kinds by name, the longest total first.

    The time of an operator or a function is its own, without that of those within it.
    """
    c = rows.of(*kinds)
    if not len(c["start_ns"]):
        return ()
    names = c["name"]
    length = own_ns(c) if kinds in (("op",), ("call",)) else c["end_ns"] - c["start_ns"]
    size = len(rows.spans.names)
    count = np.bincount(names, minlength=size)
    total = np.bincount(names, weights=length, minlength=size)
    longest = np.zeros(size, "int64")
    np.maximum.at(longest, names, length)
    moved = np.bincount(names, weights=np.maximum(c["bytes"], 0), minlength=size)
    has_bytes = np.bincount(names, weights=c["bytes"] >= 0, minlength=size) > 0
    order = [i for i in np.argsort(-total, kind="stable").tolist() if count[i]]
    return tuple(
        Named(
            rows.spans.names[i],
            int(count[i]),
            int(total[i]),
            int(longest[i]),
            int(moved[i]) if has_bytes[i] else None,
        )
        for i in order
    )
