"""Causes in a kernel-level account of a trace: gaps that the host leaves, waits within a unit, copies, other processes.

A trace needs no Result: a program that nobody wrote for edgescope is diagnosed by these alone. Shares are of the time
from the GPU's first activity to its last; what was busy then is not explained by a trace, only named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edgescope import units
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
from edgescope.analysis.kernels.account import Account
from edgescope.analysis.kernels.gpu_time import GpuTime
from edgescope.records import Measured

SMALL, MANY_SYNCS = 0.15, 8
"""Share of the time from which a gap matters; waits within one inference from which they are too many."""


def found(account: Account) -> Iterator[Finding]:
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
    return replace(judged(None, list(found(account))), trace=name)
