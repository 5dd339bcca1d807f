"""The whole kernel-level account of a trace: budget, launches, GPU time, blame, scheduling, samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgescope.analysis.kernels.budget import Budget, budget
from edgescope.analysis.kernels.cover import Cover
from edgescope.analysis.kernels.gpu_time import GpuTime, Named, by_name, gpu_times
from edgescope.analysis.kernels.inferences import Inferences, inferences
from edgescope.analysis.kernels.launches import Launches, launches
from edgescope.analysis.kernels.rows import Rows
from edgescope.analysis.kernels.scheduling import Scheduled, scheduling
from edgescope.analysis.kernels.sharing import Sharing, sharing
from edgescope.records import Absent, Field, Measured, Readings, Spans, Trace, Trust, Verdict


@dataclass(frozen=True)
class Account:
    """What a trace says; an empty part is one that the trace has no rows for."""

    trace: Trace
    inferences: Inferences
    budget: Budget | None
    launches: Launches | None
    gpus: tuple[GpuTime, ...]
    kernels: tuple[Named, ...]
    copies: tuple[Named, ...]
    calls: tuple[Named, ...]
    operators: tuple[Named, ...]
    functions: tuple[Named, ...]
    """Functions of the program, of the operating system and of libraries, each without what it called."""
    operating: float | None
    """Share of the inferences' time in which an operator ran; None without operators, their times, or inferences."""
    sharing: Sharing | None
    scheduled: tuple[Scheduled, ...]
    verdict: Verdict
    """Whether its times may be trusted, by the trace alone."""
    samples: Mapping[str, Field]
    """Mean of each sampled metric between the first and the last activity of the GPU, without a GPU over all."""


def account(trace: Trace, name: str = "") -> Account:
    """Return the account of a trace; `name` is the name of the ranges that are its inferences."""
    rows = Rows(trace.spans)
    timed = rows if trace.timed else Rows(Spans.none())
    found = inferences(timed, name)
    spent = budget(timed, found) if len(found) else None
    averaged = bool(trace.facts.get("averaged"))
    named = partial(by_name, rows, within=None if averaged else found, averaged=averaged)
    return Account(
        trace=trace,
        inferences=found,
        budget=spent if spent is not None and (spent.launches.any() or spent.syncs.any()) else None,
        launches=launches(timed),
        gpus=gpu_times(timed),
        kernels=named("kernel", "graph"),
        copies=named("copy"),
        calls=named("api", "sync"),
        operators=named("op"),
        functions=named("call"),
        operating=None if averaged else _operating(timed, found),
        sharing=sharing(timed),
        scheduled=scheduling(timed),
        verdict=steadiness(found),
        samples=_means(trace.samples, rows),
    )


def _operating(rows: Rows, found: Inferences) -> float | None:
    operators = rows.of("op")
    inside = Cover.of(found.start, found.end)
    if not len(operators["start_ns"]) or not inside.total:
        return None
    return (inside & Cover.of(operators["start_ns"], operators["end_ns"])).total / inside.total


def _means(samples: Readings | None, rows: Rows) -> dict[str, Field]:
    if samples is None:
        return {}
    busy = rows.gpu_cover()
    first, last = (int(busy.start[0]), int(busy.end[-1])) if len(busy) else (None, None)
    found: dict[str, Field] = {}
    for channel in samples.channels:
        t, value = samples.series(channel.name)
        if first is not None and last is not None:
            value = value[(t >= first) & (t <= last)]
        if len(value):
            found[channel.name] = Measured(float(np.mean(value)), channel.unit, n=len(value))
        else:
            found[channel.name] = Absent("no sample lies within the trace")
    return found


#: Inferences of a process from which two halves are compared.
FEWEST = 8
#: Halves whose medians differ by more than this factor are not of one speed.
APART = 1.2
WHY = "a trace does not say what else its machine did"


def steadiness(found: Inferences) -> Verdict:
    """Return DISTURBED where the halves of a process's inferences differ by more than APART, else UNKNOWN, with why."""
    if not len(found):
        return Verdict(Trust.UNKNOWN, ("the trace marks no inferences", WHY))
    ratios = [r for p in np.unique(found.process).tolist() if (r := _ratio(found.of_process(p))) is not None]
    if not ratios:
        return Verdict(
            Trust.UNKNOWN, (f"{len(found):,} inferences are too few to tell whether they were steady", WHY)
        )
    worst = max(ratios, key=lambda r: max(r, 1 / r))
    words = (
        f"the second half of {len(found):,} inferences took {worst:.2f} times as long as the first (medians)"
    )
    if max(worst, 1 / worst) > APART:
        return Verdict(Trust.DISTURBED, (words,))
    return Verdict(Trust.UNKNOWN, (words, WHY))


def _ratio(found: Inferences) -> float | None:
    """Return the median of the second half over that of the first; None for few inferences, or without length."""
    length = (found.end - found.start)[np.argsort(found.start, kind="stable")]
    half = len(length) // 2
    if len(length) < FEWEST:
        return None
    first, second = (float(np.median(part)) for part in (length[:half], length[-half:]))
    return second / first if first > 0 and second > 0 else None
