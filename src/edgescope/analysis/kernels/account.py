"""The whole kernel-level account of a trace, or of a stored result that ran under a tracer, and what it says is slow.

A trace does not say what else its machine did, at which clocks and how hot, so the best that it can be called is
UNKNOWN. It is called DISTURBED where its inferences became clearly slower or faster within it.

Its causes are gaps that the host leaves, waits within a unit, copies, and other processes. They need no Result: a
program that nobody wrote for edgescope is diagnosed by these alone. Shares are of the time from the GPU's first
activity to its last; what was busy then is not explained by a trace, only named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import registry, units
from edgescope.analysis.finding import (
    Bound,
    Confidence,
    Diagnosis,
    Evidence,
    Finding,
    Remedy,
    between,
    judged,
)
from edgescope.analysis.kernels.gpu_time import (
    GpuTime,
    Launches,
    Named,
    Scheduled,
    Sharing,
    by_name,
    gpu_times,
    launches,
    scheduling,
    sharing,
)
from edgescope.analysis.kernels.inferences import Budget, Inferences, budget, inferences
from edgescope.analysis.kernels.rows import Cover, Rows, different
from edgescope.errors import Message
from edgescope.records import (
    SPAN_KINDS,
    Absent,
    Channel,
    Field,
    Measured,
    Readings,
    Result,
    Spans,
    Trace,
    Trial,
    Trust,
    Verdict,
)

LEAST = 0.8
"""A program that runs at less than this share of its speed under a profiler supports no conclusion about itself."""


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


COUNTERS = ("sm_active", "sm_issue", "tensor_active")
"""How the names of a GPU's own counters end whose distribution is drawn."""


def sampled(samples: Readings | None, rows: Rows) -> Iterator[tuple[Channel, NDArray[np.float64]]]:
    """Yield every channel and its samples from the first to the last work of the GPU, of all times without any."""
    busy = rows.gpu_cover()
    for channel in samples.channels if samples is not None else ():
        t, value = samples.series(channel.name) if samples is not None else (np.empty(0), np.empty(0))
        yield channel, value[(t >= busy.start[0]) & (t <= busy.end[-1])] if len(busy) else value


def _means(samples: Readings | None, rows: Rows) -> dict[str, Field]:
    none = Absent("no sample lies within the trace")
    return {
        channel.name: Measured(float(np.mean(value)), channel.unit, n=len(value)) if len(value) else none
        for channel, value in sampled(samples, rows)
    }


#: Inferences of a process from which two halves are compared.
HALVED_FROM = 8
#: Halves whose medians differ by more than this factor are not of one speed.
UNSTEADY = 1.2
MACHINE_UNTOLD = "a trace does not say what else its machine did"


def steadiness(found: Inferences) -> Verdict:
    """Return DISTURBED where the halves of its inferences differ by more than UNSTEADY, else UNKNOWN; with why."""
    if not len(found):
        return Verdict(Trust.UNKNOWN, ("the trace marks no inferences", MACHINE_UNTOLD))
    ratios = [r for p in different(found.process) if (r := _halves_ratio(found.of_process(p))) is not None]
    if not ratios:
        return Verdict(
            Trust.UNKNOWN,
            (f"{len(found):,} inferences are too few to tell whether they were steady", MACHINE_UNTOLD),
        )
    worst = max(ratios, key=lambda r: max(r, 1 / r))
    words = (
        f"the second half of {len(found):,} inferences took {worst:.2f} times as long as the first (medians)"
    )
    if max(worst, 1 / worst) > UNSTEADY:
        return Verdict(Trust.DISTURBED, (words,))
    return Verdict(Trust.UNKNOWN, (words, MACHINE_UNTOLD))


def _halves_ratio(found: Inferences) -> float | None:
    """Return the median of the second half over that of the first; None for few inferences, or without length."""
    length = (found.end - found.start)[np.argsort(found.start, kind="stable")]
    half = len(length) // 2
    if len(length) < HALVED_FROM:
        return None
    first, second = (float(np.median(part)) for part in (length[:half], length[-half:]))
    return second / first if first > 0 and second > 0 else None


AVERAGED = Message(
    "I-PROF-2",
    "the engine says how long its layers take, not when",
    effect="Each is one row, the mean over the inferences, from the first one on: starts and gaps mean nothing",
)
OWN_KINDS = tuple(SPAN_KINDS.index(kind) for kind in ("unit", "phase", "stage"))


def trace_of(result: Result) -> Trace | None:
    """Return the spans of a result's window, each of its queries a unit of work; None if there are none."""
    spans, queries, window = result.spans, result.queries, result.window
    if spans is None or queries is None or window is None:
        return None
    rows = queries.rows(window).columns
    spans, averaged = _laid_out(spans, window.start_ns)
    inside = (spans.columns["end_ns"] > window.start_ns) & (spans.columns["start_ns"] < window.stop_ns)
    profiled = inside & ~np.isin(spans.columns["kind"], OWN_KINDS)
    kept = spans.where(profiled if profiled.any() else np.isin(spans.columns["kind"], OWN_KINDS))
    units: dict[str, Any] = {"name": 0, "kind": 0, "start_ns": rows["issued_ns"], "end_ns": rows["done_ns"]}
    units |= {"process": rows["worker"] if result.workers else _process(kept), "query_id": rows["query_id"]}
    cores = result.machine.stable.get("cpu", {}).get("cores")
    return Trace(
        Spans.joined([kept, Spans.from_columns(("query",), units)]),
        registry.TRACERS[result.trial.tracer].summary if result.trial.tracer in registry.TRACERS else "",
        samples=result.readings,
        facts={
            **({"cpu_cores": cores} if isinstance(cores, int) else {}),
            **({"averaged": True} if averaged else {}),
        },
        clock="monotonic",
        notes=(AVERAGED,) if averaged else (),
    )


def _laid_out(spans: Spans, at_ns: int) -> tuple[Spans, bool]:
    """Return the spans, and whether some are means of an inference: where an engine says no times, they lie from 0 on.

    No query is that old; here they lie end to end from `at_ns` on.
    """
    operators, process = spans.columns["kind"] == SPAN_KINDS.index("op"), spans.columns["process"]
    means = operators & np.isin(process, process[operators & (spans.columns["start_ns"] == 0)])
    if not means.any():
        return spans, False
    return Spans.joined([spans.where(~means), spans.where(means).moved(at_ns)]), True


def _process(spans: Spans) -> int:
    """Return the process that the spans of a trial in one process carry."""
    return max(different(spans.columns["process"]), default=-1)


def metrics(result: Result) -> dict[str, Field]:
    """Return the kernel-level metrics of a result that ran under a tracer; {} of any other."""
    trace = trace_of(result) if result.trial.tracer != Trial.tracer else None
    if trace is None:
        return {}
    found = account(trace)
    none = Absent("nothing in the trace calls a GPU")
    figures: dict[str, Field] = {"ec_s": none, "cs_s": none, "launch_s": none, "gpu_time_busy": none}
    if found.budget is not None:
        figures |= {f"{name}_s": found.budget.distribution(name).median_s for name in ("ec", "cs")}
    if found.launches is not None:
        names = {
            "launch_s": found.launches.api,
            "queue_s": found.launches.queue,
            "kernel_s": found.launches.kernel,
        }
        figures |= {name: d.median_s for name, d in names.items()}
    if found.gpus:
        figures["gpu_time_busy"] = Measured(float(np.mean([g.busy for g in found.gpus])), "share")
    return figures


SMALL, MANY_SYNCS = 0.15, 8
"""Share of the time from which a gap matters; waits within one inference from which they are too many."""


def causes(account: Account) -> Iterator[Finding]:
    """Yield the causes that a trace speaks for."""
    gpu = max(account.gpus, key=lambda g: g.span_ns, default=None)
    if gpu is None or gpu.span_ns <= 0:
        return
    for look in (_syncs, _launches, _copies, _others):
        if (finding := look(account, gpu)) is not None:
            yield finding


def _launches(account: Account, gpu: GpuTime) -> Finding | None:
    late = gpu.idle_host_ns / gpu.span_ns
    if late < SMALL or _many_syncs(account) >= MANY_SYNCS:
        return None
    evidence = [
        Evidence(f"the GPU waited for the host's next launch {late:.0%} of the time", account.trace.source)
    ]
    kernels = sum(k.count for k in account.kernels)
    if kernels:
        mean = sum(k.total_ns or 0 for k in account.kernels) / kernels * 1e-9
        evidence.append(
            Evidence(f"{kernels:,} kernels of {units.text(mean, 's')} on average", account.trace.source)
        )
    if account.budget is not None and len(account.budget.launches):
        each = float(np.median(account.budget.launches))
        evidence.append(Evidence(f"{each:,.0f} launches an inference", account.trace.source))
    gain, bound = between(1 / (1 - late), gpu.span_ns / max(1, gpu.busy_ns))
    remedy = Remedy(
        "one launch for many kernels: a CUDA graph (--option graph=true), a compiled engine, or a larger batch",
        {},
        gain,
        "the same kernels without the gaps that the host left, and without any gap",
        bound,
    )
    return Finding("launch-bound", late, Confidence.LIKELY, tuple(evidence), (remedy,), "", 1)


def _without(share: float) -> Measured:
    """Return the gain if a share of the time went; 50 times if all of it would go."""
    return Measured(1 / max(0.02, 1 - share), "ratio")


def _many_syncs(account: Account) -> float:
    """Return the waits for the device in a typical inference; 0 if the trace has no inferences."""
    budget = account.budget
    return float(np.median(budget.syncs)) if budget is not None and len(budget.syncs) else 0.0


def _syncs(account: Account, gpu: GpuTime) -> Finding | None:
    syncs, idle = _many_syncs(account), gpu.idle_ns / gpu.span_ns
    if syncs < MANY_SYNCS or idle < SMALL:
        return None
    evidence = (
        Evidence(f"the host waits for the device {syncs:,.0f} times an inference", account.trace.source),
        Evidence(f"the GPU is idle for {idle:.0%} of the time between them", account.trace.source),
    )
    remedy = Remedy(
        "read results once: one copy to the host instead of one value after another (.item(), float(), if on a tensor)",
        {},
        _without(idle),
        "the same kernels and copies without the waits between them",
        Bound.MOST,
    )
    return Finding("sync-bound", idle, Confidence.LIKELY, evidence, (remedy,), "", 1)


def _copies(account: Account, gpu: GpuTime) -> Finding | None:
    share = gpu.copy_ns / gpu.span_ns
    if share < SMALL:
        return None
    evidence = [Evidence(f"copies ran and no kernel did for {share:.0%} of the time", account.trace.source)]
    largest = max(account.copies, key=lambda c: c.total_ns or 0, default=None)
    if largest is not None and largest.bytes and largest.total_ns:
        rate = largest.bytes / largest.total_ns
        evidence.append(
            Evidence(f"{largest.name}: {largest.count:,} copies at {rate:,.1f} GB/s", account.trace.source)
        )
    remedy = Remedy(
        "pinned memory, smaller types, or copies on a stream of their own",
        {},
        _without(share),
        "all copies behind kernels",
        Bound.MOST,
    )
    return Finding("transfer-bound", share, Confidence.LIKELY, tuple(evidence), (remedy,), "", 1)


def _others(account: Account, gpu: GpuTime) -> Finding | None:
    """Return other processes on the GPU as the cause, by the time in which only their work ran."""
    budget = account.budget
    if budget is None or not budget.total.sum():
        return None
    blocked = sum(float(budget.parts[name].sum()) for name in ("blocked", "wait_blocked")) / float(
        budget.total.sum()
    )
    if blocked < SMALL:
        return None
    evidence = (
        Evidence(
            f"only other processes' work ran on the GPU for {blocked:.0%} of the inferences' time",
            account.trace.source,
        ),
    )
    remedy = Remedy(
        "fewer processes on the GPU, or MPS (--sharing mps)",
        {},
        _without(blocked),
        "none of that time",
        Bound.MOST,
    )
    return Finding("contention", blocked, Confidence.LIKELY, evidence, (remedy,), "", 1)


def of_trace(account: Account, name: str) -> Diagnosis:
    """Return what limits a program, by the account of its trace alone; `name` is the trace's file."""
    if not account.gpus:
        return Diagnosis(None, (), "the trace holds no activity of a GPU", trace=name)
    return replace(judged(None, list(causes(account))), trace=name)


def perturbation(clean: Field | None, profiled: Field | None) -> Field:
    """Return the throughput under a profiler over the clean one's, or Absent if a phase has none."""
    rates = [f.value for f in (clean, profiled) if isinstance(f, Measured) and f.value > 0]
    if len(rates) < 2:
        return Absent("a phase has no throughput")
    return Measured(rates[1] / rates[0], "ratio")


def conclusive(share: Field) -> bool:
    """Return whether the profiler left the program's speed alone, as far as that is known."""
    return not isinstance(share, Measured) or LEAST <= share.value <= 1 / LEAST
