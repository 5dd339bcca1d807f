"""What a pipeline would gain if one stage were free, and what each stage could do alone: measured, by stubbing.

A stub gives back what the real stage made of earlier units and computes nothing. The pipeline runs with one stage
stubbed, then with all but that one, in turn with the whole pipeline, so that a machine that changes its speed changes
all of them. The first says what work on the stage can gain at most; the second is the stage's own ceiling.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from edgescope.frames import Item
from edgescope.stats import Interval
from edgescope.stats.pairs import paired_log_ratio
from edgescope.wings.video.flow import EndOfFilm, Flow, Stage
from edgescope.wings.video.stages import Stub

KEPT = 8
"""Units that stubs give back in turn."""
FEWEST, LONGEST_S = 3, 15.0
"""Rounds of a slow pipeline, and the time after which it gets no more."""
SLOW_S = 2.0
WARM = 4
"""Units before the clock starts: a thread's first call into cuDNN makes its handles."""
ROUNDS = 5
"""Rounds of all variants; their ratios are paired within a round."""

Build = Callable[[Sequence[Stage]], Flow]


@dataclass(frozen=True)
class Free:
    """What one stage costs the pipeline."""

    name: str
    gain: Interval
    """The pipeline's throughput with this stage free, over that of the whole pipeline."""
    ceiling: Interval
    """The throughput of this stage alone, over that of the whole pipeline."""
    alone_fps: float
    """Frames per second of this stage alone, all others being free."""


@dataclass(frozen=True)
class WhatIf:
    """The pipeline's throughput in frames per second, and what each stage costs it."""

    fps: float
    stages: tuple[Free, ...]


def measured(stages: Sequence[Stage], build: Build, in_flight: int, seconds: float) -> WhatIf:
    """Return what each stage costs; every variant runs for `seconds` in each round."""
    seen = _after_each(stages)
    variants: dict[tuple[str, str], Sequence[Stage]] = {("", ""): stages}
    for stage in stages:
        free = {stage.name}
        variants["free", stage.name] = _stubbed(stages, seen, free)
        variants["alone", stage.name] = _stubbed(stages, seen, {s.name for s in stages} - free)
    rates: dict[tuple[str, str], list[float]] = {key: [] for key in variants}
    start = time.monotonic()
    for number in range(ROUNDS):
        if number >= FEWEST and time.monotonic() - start > LONGEST_S:
            break
        for key in list(variants) if number % 2 else reversed(variants):
            with running(build(variants[key])) as flow:
                rates[key].append(throughput(flow, in_flight, seconds))
    whole = rates["", ""]
    found = [
        Free(
            stage.name,
            paired_log_ratio(rates["free", stage.name], whole),
            paired_log_ratio(rates["alone", stage.name], whole),
            sorted(rates["alone", stage.name])[len(whole) // 2],
        )
        for stage in stages
    ]
    return WhatIf(sorted(whole)[len(whole) // 2], tuple(found))


@contextmanager
def running(flow: Flow) -> Iterator[Flow]:
    """Hold a flow open; its threads end on leaving."""
    try:
        yield flow
    finally:
        flow.close()


def throughput(flow: Flow, in_flight: int, seconds: float) -> float:
    """Return frames per second of a closed loop of `in_flight` units; new threads first do a few that do not count."""
    start = time.monotonic()
    driven(flow, in_flight, lambda number: number < WARM + in_flight and time.monotonic() < start + seconds)
    start = time.monotonic()
    frames = driven(flow, in_flight, lambda number: number <= in_flight or time.monotonic() < start + seconds)
    return frames / (time.monotonic() - start)


def driven(flow: Flow, in_flight: int, more: Callable[[int], bool] | int) -> int:
    """Return the frames that came through a closed loop that goes on while `more(units so far)`, or for some units."""
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    goes_on = more if callable(more) else more.__gt__

    def done(query_id: int, status: int, samples: int = 0, *_: object) -> None:
        free.put(samples)

    for _ in range(in_flight):
        free.put(0)
    number, frames = 0, 0
    while goes_on(number):
        frames += free.get()
        try:
            flow.issue(number, 0, done)
        except EndOfFilm:
            break
        number += 1
    return frames + sum(free.get() for _ in range(in_flight))


def alone(stages: Sequence[Stage], name: str) -> list[Stage]:
    """Return the stages with all but the one called `name` stubbed."""
    return without(stages, {stage.name for stage in stages} - {name})


def without(stages: Sequence[Stage], names: set[str]) -> list[Stage]:
    """Return the stages with those called `names` stubbed."""
    return _stubbed(stages, _after_each(stages), names)


def _after_each(stages: Sequence[Stage]) -> dict[str, list[Item]]:
    """Return KEPT units as they are after each stage, fewer of a slow pipeline."""
    seen: dict[str, list[Item]] = {stage.name: [] for stage in stages}
    start = time.monotonic()
    for number in range(KEPT):
        if number >= FEWEST and time.monotonic() - start > SLOW_S:
            break
        item = Item(number)
        for stage in stages:
            stage.run(item)
            seen[stage.name].append(replace(item, outputs=list(item.outputs), notes=dict(item.notes)))
    return seen


def _stubbed(stages: Sequence[Stage], seen: dict[str, list[Item]], names: set[str]) -> list[Stage]:
    """Return the stages with those called `names` stubbed."""
    return [
        replace(stage, run=Stub(seen[stage.name]), wait=None, batch=0, device_ns=None)
        if stage.name in names
        else stage
        for stage in stages
    ]


Mark = tuple[str, int, int]


def timed(stages: Sequence[Stage], units: int) -> Iterator[tuple[int, list[Mark], list[Mark]]]:
    """Yield (number, (name, start, end) of each stage, the same on the device) of units that go through one by one.

    A stage on a device is waited for, so that its time is its own; its time on the device comes from doing it again,
    outside of the unit. The end of the film ends it, and a slow pipeline's units are fewer: at least FEWEST, then as
    many as fit into two seconds.
    """
    start = time.monotonic()
    for number in range(units):
        if number > FEWEST and time.monotonic() - start > SLOW_S:
            return
        item, marks = Item(number), []
        before = time.monotonic_ns()
        try:
            for stage in stages:
                stage.run(item)
                if stage.wait is not None:
                    stage.wait()
                now = time.monotonic_ns()
                marks.append((stage.name, before, now))
                before = now
        except EndOfFilm:
            return
        on_device = []
        for stage in stages:
            if stage.device_ns is not None:
                on_device.append((stage.name, before, before + stage.device_ns(item)))
        yield number, marks, on_device
