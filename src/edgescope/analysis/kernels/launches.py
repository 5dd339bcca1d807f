"""Each kernel beside the call that launched it: launch, queue, blocked, kernel, gap.

API time is the call's length. Queue time runs from the call's end to the kernel's start; where the kernel began before
the call returned there is none (as `nsys stats -r cuda_kern_exec_trace` says; tools that put a 0 there lower the mean).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.rows import Distribution, Rows
from edgescope.records import SPAN_KINDS

#: A table from correlation to row is made if ids are at most this many times as large as there are rows.
DENSE = 8


@dataclass(frozen=True)
class Launches:
    """The joined kernels: times in nanoseconds."""

    api: Distribution
    """Length of launching calls, each once."""
    queue: Distribution
    blocked: Distribution
    """The part of the queue time in which another process's or context's work ran, of kernels that had any."""
    kernel: Distribution
    gap: Distribution
    """From the end of the kernel before to this one's start, on one stream, where that is more than 0."""
    total: Distribution
    """From the call's start to the kernel's end."""
    began_early: int
    """Kernels that began before their call returned: they have no queue time."""
    short: int
    """Kernels that ran shorter than their own launching call."""
    lone: int
    """Kernels without a call: it was made before the recording began, or was not recorded."""
    repeated: int
    """Calls whose correlation id an earlier call of the same process had."""
    graph_launches: int
    """Calls that launched a whole CUDA graph."""
    graph_kernels: int
    """Kernels that ran within CUDA graphs; queue and API time of single ones are not separable."""

    @property
    def separable(self) -> bool:
        """Return whether each kernel has a launch of its own."""
        return not self.graph_launches


def join(rows: Rows, work: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], int]:
    """Return for each row on the GPU the index of its call among `rows.of("api", "sync")`, -1 if none; and repeats.

    Where ids repeat within a process, the last call that began before the work did is taken.
    """
    calls = rows.of("api", "sync")
    found = np.full(len(work["start_ns"]), -1, "int64")
    repeats = 0
    for process in rows.processes:
        mine = np.flatnonzero((work["process"] == process) & (work["correlation"] >= 0))
        theirs = np.flatnonzero((calls["process"] == process) & (calls["correlation"] >= 0))
        if len(mine) and len(theirs):
            ids, wanted = calls["correlation"][theirs], work["correlation"][mine]
            index, repeated = _lookup(ids, wanted)
            if repeated:
                index = _latest(ids, calls["start_ns"][theirs], wanted, work["start_ns"][mine])
            found[mine] = np.where(index >= 0, theirs[np.maximum(index, 0)], -1)
            repeats += repeated
    return found, repeats


def _lookup(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the position of each wanted id, -1 if it is not there, and how many ids are there more than once."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > DENSE * len(ids) + 1024:
        different, first = np.unique(ids, return_index=True)
        at = np.minimum(np.searchsorted(different, wanted), len(different) - 1)
        return np.where(different[at] == wanted, first[at], -1), len(ids) - len(different)
    table = np.full(high - low + 2, -1, "int32")
    table[ids - low] = np.arange(len(ids), dtype="int32")
    repeated = len(ids) - int((table >= 0).sum())
    inside = (wanted >= low) & (wanted <= high)
    return np.where(inside, table[np.where(inside, wanted - low, 0)], -1).astype("int64"), repeated


def _latest(
    ids: NDArray[np.int64], starts: NDArray[np.int64], wanted: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each wanted id the last of its calls that began before `at`; -1 if there is none."""
    order = np.lexsort((starts, ids))
    both_ids = np.concatenate((ids[order], wanted))
    both_times = np.concatenate((starts[order], at))
    is_work = np.repeat([0, 1], [len(ids), len(wanted)])
    merged = np.lexsort((is_work, both_times, both_ids))
    call = np.where(is_work[merged] == 0, merged, -1)
    latest = np.maximum.accumulate(call)
    rows = merged[is_work[merged] == 1] - len(ids)
    index = np.full(len(wanted), -1, "int64")
    chosen = latest[is_work[merged] == 1]
    good = (chosen >= 0) & (ids[order][np.maximum(chosen, 0)] == wanted[rows])
    index[rows[good]] = order[chosen[good]]
    return index


def launches(rows: Rows) -> Launches | None:
    """Return how kernels and whole graphs were launched, or None if the trace has none of them or no call.

    A graph that was recorded as a whole has one launch and one queue time, as a kernel has.
    """
    work, calls, kernels = rows.of("kernel", "graph"), rows.of("api", "sync"), rows.of("kernel")
    if not len(work["start_ns"]) or not len(calls["start_ns"]):
        return None
    index, repeats = join(rows, work)
    known = np.flatnonzero(index >= 0)
    chosen = index[known]
    api_start, api_end = calls["start_ns"][chosen], calls["end_ns"][chosen]
    start, end = work["start_ns"][known], work["end_ns"][known]
    kernels_of = (
        np.bincount(chosen, minlength=len(calls["start_ns"])) if len(chosen) else np.zeros(1, "int64")
    )
    in_graph = kernels_of[chosen] > 1
    lengths = end - start
    waits = start - api_end
    queued = (waits >= 0) & ~in_graph
    api_lengths = (calls["end_ns"] - calls["start_ns"])[np.flatnonzero(kernels_of)]
    whole = work["kind"] == SPAN_KINDS.index("graph")
    return Launches(
        api=Distribution.of(api_lengths),
        queue=Distribution.of(waits[queued]),
        blocked=Distribution.of(
            _blocked(rows, work["process"][known][queued], api_end[queued], start[queued])
        ),
        kernel=Distribution.of(kernels["end_ns"] - kernels["start_ns"]),
        gap=Distribution.of(_gaps(kernels)),
        total=Distribution.of((np.maximum(end, api_end) - api_start)[~in_graph]),
        began_early=int(((waits < 0) & ~in_graph).sum()),
        short=int(((lengths < api_end - api_start) & ~in_graph & ~whole[known]).sum()),
        lone=len(index) - len(known),
        repeated=repeats,
        graph_launches=int((kernels_of > 1).sum()) + int(whole.sum()),
        graph_kernels=int(in_graph.sum()),
    )


def _blocked(
    rows: Rows, process: NDArray[Any], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how long other processes' work ran in each interval, without those in which none did."""
    if len(rows.processes) < 2:
        return np.empty(0, "int64")
    found = np.zeros(len(start), "int64")
    for one in rows.processes:
        mine = process == one
        found[mine] = rows.others_cover(one).within(start[mine], end[mine])
    return found[found > 0]


def _gaps(work: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the gaps between kernels that follow each other on one stream of one process."""
    place = [work[k] for k in ("stream", "device", "process")]
    start, end = work["start_ns"], work["end_ns"]
    if not all(len(c) < 2 or (c == c[0]).all() for c in place):
        order = np.lexsort((start, *place))
        start, end = start[order], end[order]
        same = np.logical_and.reduce([c[order][1:] == c[order][:-1] for c in place])
    else:
        same = np.ones(max(len(start) - 1, 0), bool)
    gaps = start[1:] - end[:-1]
    return np.asarray(gaps[same & (gaps > 0)])
