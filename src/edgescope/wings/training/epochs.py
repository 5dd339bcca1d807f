"""Where the time of training epochs went: the parts of the steps, and what of the loader's work held them up.

Parts of the steps follow one another, so with `other` they add up to the epoch. The loader's stages run beside them in
other processes: what of them the device waited for is its stall, the rest was hidden behind the steps. A stall in which
several workers loaded is divided among the stages of all of them; one in which none loaded is the `handover`: workers
that start, and minibatches on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.replicates import spread
from edgescope.records import UNIT, Absent, Field, Measured, Spans

PARTS = ("fetch", "h2d", "forward", "backward", "optimizer")
"""The parts of a step that the device sees."""
STAGES = ("read", "decode", "augment", "item", "collate")
"""The stages of the loader."""
NO_COSTS = "the task's loader is no DataLoader, and does not say what it does"
Times = NDArray[np.int64]


@dataclass(frozen=True)
class Anatomy:
    """Where a stretch of training went; all in seconds."""

    wall: float
    steps: int
    parts: Mapping[str, float]
    """Each of PARTS, and `other`."""
    work: Mapping[str, float]
    """Each stage that the loader reported: its time, summed over all workers."""
    stall: Mapping[str, float]
    """What the device waited for: stage -> seconds, and `handover`. They add up to parts["fetch"]."""

    @property
    def hidden(self) -> float | None:
        """Return the share of the loader's work that was hidden behind the steps; None if nothing is known of it."""
        whole = sum(self.work.values())
        return 1 - min(1.0, (self.parts["fetch"] - self.stall["handover"]) / whole) if whole else None


def bounds(spans: Spans) -> list[tuple[int, int, int]]:
    """Return number, start and end of each epoch that ended."""
    starts, ends, numbers = _of(spans, "epoch", "start_ns", "end_ns", "query_id")
    return [(int(n), int(a), int(b)) for n, a, b in zip(numbers, starts, ends, strict=True)]


def anatomy(spans: Spans, start_ns: int, end_ns: int) -> Anatomy:
    """Return where the time between two moments went."""
    parts, fetches = {}, np.empty((0, 2), np.int64)
    for name in PARTS:
        starts, ends = _within(spans, name, start_ns, end_ns)
        parts[name] = float((ends - starts).sum()) * 1e-9
        if name == "fetch":
            fetches = np.stack([starts, ends], axis=1)[np.argsort(starts)]
    wall = (end_ns - start_ns) * 1e-9
    parts["other"] = wall - sum(parts.values())
    work, stall = _loader(spans, fetches, start_ns, end_ns)
    stall["handover"] = parts["fetch"] - sum(stall.values())
    return Anatomy(wall, len(_within(spans, UNIT, start_ns, end_ns)[0]), parts, work, stall)


def _loader(
    spans: Spans, fetches: NDArray[np.int64], start_ns: int, end_ns: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the loader's work by stage, and the stall that each stage caused."""
    work: dict[str, float] = {}
    exposed: dict[str, float] = {}
    for name in STAGES:
        starts, ends = _within(spans, name, start_ns, end_ns)
        if len(starts):
            work[name] = float((ends - starts).sum()) * 1e-9
            exposed[name] = _overlap(starts, ends, fetches) * 1e-9
    loads = np.stack(_within(spans, "load", start_ns, end_ns), axis=1)
    merged = _merged(loads)
    covered = _overlap(merged[:, 0], merged[:, 1], fetches) * 1e-9
    whole = sum(exposed.values())
    return work, {name: covered * value / whole if whole else 0.0 for name, value in exposed.items()}


def _overlap(starts: Times, ends: Times, fetches: NDArray[np.int64]) -> float:
    """Return the nanoseconds of some intervals that lie within the fetches, which are sorted and disjoint."""
    if not len(fetches) or not len(starts):
        return 0.0
    origin = int(fetches[0, 0])  # differences stay exact in floats
    edges = (fetches - origin).ravel().astype(np.float64)
    lengths = np.zeros(len(edges))
    lengths[1::2] = fetches[:, 1] - fetches[:, 0]
    waited = np.cumsum(lengths)
    both = [np.interp(at - origin, edges, waited) for at in (starts, ends)]
    return float((both[1] - both[0]).sum())


def _merged(intervals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the union of intervals as disjoint ones."""
    if not len(intervals):
        return intervals.reshape(0, 2)
    rows = intervals[np.argsort(intervals[:, 0])]
    reach = np.maximum.accumulate(rows[:, 1])
    first = np.concatenate([[True], rows[1:, 0] > reach[:-1]])
    begins = np.flatnonzero(first)
    return np.stack([rows[begins, 0], reach[np.append(begins[1:] - 1, len(rows) - 1)]], axis=1)


def _within(spans: Spans, name: str, start_ns: int, end_ns: int) -> tuple[Times, Times]:
    starts, ends = _of(spans, name, "start_ns", "end_ns")
    inside = (starts >= start_ns) & (starts < end_ns)
    return starts[inside], np.minimum(ends[inside], end_ns)


def _of(spans: Spans, name: str, *columns: str) -> tuple[Times, ...]:
    number = spans.names.index(name) if name in spans.names else -2
    mine = spans.columns["name"] == number
    return tuple(np.asarray(spans.columns[column][mine], dtype=np.int64) for column in columns)


def metrics(spans: Spans) -> dict[str, Field]:
    """Return the figures of a stretch of training: parts and stalls a step, and the times of its epochs.

    They cover the epochs that began and ended in it, or, if none did, everything.
    """
    ended = bounds(spans)
    units = _of(spans, UNIT, "start_ns", "end_ns")
    if not len(units[0]):
        return {}
    stretches = [(a, b) for _, a, b in ended] or [(int(units[0].min()), int(units[1].max()))]
    every = [anatomy(spans, a, b) for a, b in stretches]
    steps = max(1, sum(each.steps for each in every))

    def a_step(values: Sequence[float]) -> Measured:
        return Measured(sum(values) / steps, "s", n=steps)

    found: dict[str, Field] = {
        f"{part}_s": a_step([each.parts[part] for each in every]) for part in (*PARTS, "other")
    }
    for name in STAGES:
        if any(name in each.work for each in every):
            found[f"{name}_s"] = a_step([each.work.get(name, 0.0) for each in every])
            found[f"stall_{name}_s"] = a_step([each.stall.get(name, 0.0) for each in every])
    found["stall_handover_s"] = a_step([each.stall["handover"] for each in every])
    wall = sum(each.wall for each in every)
    found["stall_share"] = Measured(sum(each.parts["fetch"] for each in every) / wall, "1", n=steps)
    hidden = [h for each in every if (h := each.hidden) is not None]
    found["loader_hidden_share"] = (
        Measured(float(np.mean(hidden)), "1", n=len(hidden)) if hidden else Absent(NO_COSTS)
    )
    return found | _epochs(ended)


def _epochs(ended: Sequence[tuple[int, int, int]]) -> dict[str, Field]:
    none = Absent(
        "no epoch ended in the window: --workload-option epochs=2, --warmup 0, and a longer --duration"
    )
    first = [(end - start) * 1e-9 for number, start, end in ended if number == 0]
    later = [(end - start) * 1e-9 for number, start, end in ended if number > 0]
    gone = Absent("the first epoch of the run is not in the window: --warmup 0") if later else none
    one = Absent("one epoch ended in the window") if first else none
    return {
        "epoch_first_s": Measured(first[0], "s") if first else gone,
        "epoch_later_s": spread(later, "s") if later else one,
    }
