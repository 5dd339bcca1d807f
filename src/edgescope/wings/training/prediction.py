"""How fast training would run with other settings of its loader: parts that were measured, put together anew.

Without workers a step loads and then computes. With workers it computes while they load, so it takes as long as the
slowest of three: the device, the loader divided among its workers, and the CPU time of both divided among the cores. A
disk serves one read at a time, so what comes from it is not divided among workers. Each epoch begins with a wait for
workers that start, unless they persist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from edgescope.records import UNIT, Measured, Result
from edgescope.wings.training import epochs

HANDOVER_S = 4e-4
"""Seconds for a minibatch to come from a worker; assumed, as no run measures it alone."""


@dataclass(frozen=True)
class Facts:
    """What was measured of a training run; seconds of a step unless said otherwise."""

    samples: float
    """Samples in a step."""
    device: float
    """Copy, forward, backward, optimizer, and what lies between steps."""
    device_cpu: float
    """CPU time of the training process without the loader's."""
    work: Mapping[str, float]
    """Time of each loader stage."""
    loader_cpu: float
    from_disk: float
    """Share of the read bytes that came from a disk."""
    workers: int
    persistent: bool
    prefetch: int
    cores: int
    step: float
    """The whole step as measured."""
    steps: int
    """Steps in an epoch; 0 if none ended."""
    start: float
    """Seconds at the edges of an epoch in which workers started and ended."""
    handover: float = HANDOVER_S
    notes: Mapping[str, float] = field(default_factory=dict)

    @property
    def load(self) -> float:
        """Return the loader's time for one minibatch."""
        return sum(self.work.values())

    def seconds(self) -> float:
        """Return how long a step takes by the parts alone."""
        if self.workers == 0:
            return self.load + self.device
        serial = self.work.get("read", 0.0) * self.from_disk
        loading = (self.load - serial) / self.workers + serial
        cores = (self.loader_cpu + self.device_cpu) / max(1, self.cores)
        edge = 0.0 if self.persistent or not self.steps else self.start / self.steps
        return max(self.device + self.handover, loading, cores) + edge


def rate(facts: Facts) -> float:
    """Return samples a second by the parts alone."""
    return facts.samples / facts.seconds()


def gain(before: Facts, after: Facts) -> float:
    """Return by how much training would be faster: a ratio of rates, corrected by how far the parts miss the run.

    What was measured beyond the parts (bursts, a neighbour) stays, unless the change is what removes it.
    """
    missed = max(0.0, before.step - before.seconds()) * after.samples / before.samples
    if after.notes.get("smooth"):
        missed = 0.0
    return (after.samples / (after.seconds() + missed)) / (before.samples / before.step)


def facts(result: Result, cores: int) -> Facts:
    """Return what a run of the training workload measured; ValueError if it has no steps."""
    spans, options = result.spans, result.artifact
    if spans is None or UNIT not in spans.names:
        raise ValueError("the run took no step")
    ended, stretches = epochs.bounds(spans), steady(result)
    every = [epochs.anatomy(spans, a, b) for a, b in stretches]
    steps = sum(each.steps for each in every)
    rows = [row for row in options["log"] if row["end_ns"]] or list(options["log"])
    workers, loader = workers_of(result), options.get("loader") or options
    parts = {name: sum(e.parts[name] for e in every) / steps for name in every[0].parts}
    names = dict.fromkeys(name for each in every for name in each.work)
    work = {name: sum(e.work.get(name, 0.0) for e in every) / steps for name in names}
    device = sum(parts[name] for name in ("h2d", "forward", "backward", "optimizer", "other"))
    loader_cpu, host_cpu = (value(result, name) for name in ("loader_cpu_s", "host_cpu_s"))
    size = sum(int(row["samples"]) for row in rows) / max(1, sum(int(row["batches"]) for row in rows))
    wall, edges = sum(e.wall for e in every), _edges(result, stretches)
    return Facts(
        samples=size,
        device=device,
        device_cpu=max(0.0, host_cpu - (loader_cpu if workers == 0 else 0.0)),
        work=work,
        loader_cpu=loader_cpu,
        from_disk=_from_disk(rows[1:] or rows),
        workers=workers,
        persistent=bool(loader["persistent_workers"]),
        prefetch=int(loader["prefetch_factor"]) or 2,
        cores=cores,
        step=wall / steps,
        steps=round(sum(int(row["batches"]) for row in rows) / len(rows)) if ended else 0,
        start=edges,
    )


def steady(result: Result) -> list[tuple[int, int]]:
    """Return the stretches that advice is about: the epochs after the first, or all after the first fetch.

    In the first epoch workers start that may persist, and files are read that memory may then hold.
    """
    spans = result.spans
    assert spans is not None
    later = [(a, b) for _, a, b in epochs.bounds(spans)][1:]
    fetch = spans.columns["name"] == spans.names.index("fetch")
    unit = spans.columns["name"] == spans.names.index(UNIT)
    first = int(spans.columns["end_ns"][fetch].min())
    return later or [(first, int(spans.columns["end_ns"][unit].max()))]


def workers_of(result: Result) -> int:
    """Return how many loader workers a run had, by the workers that its minibatches came from."""
    spans = result.spans
    if spans is None or "load" not in spans.names:
        return 0
    mine = spans.columns["stream"][spans.columns["name"] == spans.names.index("load")]
    return int(mine.max(initial=0))


def value(result: Result, name: str) -> float:
    """Return a metric's value, or 0 if it was not measured."""
    found = result.metrics.get(name)
    return found.value if isinstance(found, Measured) else 0.0


def _edges(result: Result, stretches: list[tuple[int, int]]) -> float:
    """Return the mean seconds by which fetches at an epoch's two edges exceed the usual fetch."""
    spans = result.spans
    assert spans is not None
    mine = spans.columns["name"] == spans.names.index("fetch")
    starts, ends = (spans.columns[name][mine] for name in ("start_ns", "end_ns"))
    usual = float(np.median(ends - starts))
    found = []
    for begin, end in stretches:
        inside = (starts >= begin) & (starts < end)
        lengths = (ends - starts)[inside][np.argsort(starts[inside])]
        if len(lengths) > 1:
            found.append(max(0.0, float(lengths[0]) - usual) + float(lengths[-1]))
    return float(np.mean(found)) * 1e-9 if found else 0.0


def _from_disk(rows: list[dict[str, float]]) -> float:
    """Return the share of the read time that waits for a medium: of the pages that the cache did not hold."""
    missing = [
        1 - float(row["page_cache_before"]) for row in rows if row.get("page_cache_before") is not None
    ]
    return float(np.mean(missing)) if missing else 0.0


def with_workers(before: Facts, workers: int) -> Facts:
    """Return the facts with so many workers; where there were none, they persist."""
    return replace(before, workers=workers, persistent=before.persistent or before.workers == 0)


def without(before: Facts, stage: str, share: float = 0.0) -> Facts:
    """Return the facts with a loader stage cut to a share of its time."""
    work = dict(before.work)
    saved = work.get(stage, 0.0) * (1 - share)
    work[stage] = work.get(stage, 0.0) - saved
    cpu = before.loader_cpu if stage == "read" else max(0.0, before.loader_cpu - saved)
    return replace(before, work=work, loader_cpu=cpu)


def on_device(before: Facts, held: float, now: float, samples: float) -> Facts:
    """Return the facts with a device that takes `now` seconds a step of `samples` where it took `held`.

    Both were measured with a minibatch that is there already, so their difference is the device's alone.
    """
    scale = samples / before.samples
    return replace(
        before,
        samples=samples,
        device=max(1e-9, before.device + now - held),
        device_cpu=before.device_cpu * now / held,
        work={name: spent * scale for name, spent in before.work.items()},
        loader_cpu=before.loader_cpu * scale,
        steps=round(before.steps / scale),
    )
