"""Merge the figures that several workers report, each for its own part of the shared window, as metrics.toml says.

Figures that are computed from the rows of all workers (latency, throughput) or read from the machine (power) are one
from the start; see analysis/run/workers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgescope import metrics
from edgescope.records import Absent, Field, Measured

UNREPORTED = Absent("not reported")


def merged(workers: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    """Return one figure for each name that a worker reports; a single worker's are its own."""
    if len(workers) == 1:
        return dict(workers[0])
    names = dict.fromkeys(name for worker in workers for name in worker)
    return {name: merge(name, [worker.get(name, UNREPORTED) for worker in workers]) for name in names}


def merge(name: str, each: Sequence[Field]) -> Field:
    """Return the workers' figures of one metric as one.

    A sum needs all of them. The mean weighs each with its count (units, steps ...) and is over the workers that have
    one; so is the largest, whose count is that of these workers.
    """
    known = [field for field in each if isinstance(field, Measured)]
    if not known:
        return each[0]
    known_metric = metrics.find(name)
    rule = RULES.get(known_metric.merge if known_metric else "")
    if rule is None:
        return Absent(
            f"of {len(each)} workers: nothing says how to merge {name} (edgescope docs add-a-metric)"
        )
    return rule(each, known)


def _sum(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    for number, field in enumerate(each):
        if isinstance(field, Absent):
            return Absent(f"worker {number}: {field.reason}")
    return _weighted(known, [1.0] * len(known))


def _mean(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    whole = sum(field.n for field in known)
    shares = [field.n / whole if whole else 1 / len(known) for field in known]
    return _weighted(known, shares)


def _largest(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    return replace(max(known, key=lambda field: field.value), n=len(known))


def _weighted(known: Sequence[Measured], weights: Sequence[float]) -> Measured:
    """Return a weighted sum; its ends are those of the workers' intervals, at least as wide as the joint one."""

    def total(values: Sequence[float | None]) -> float | None:
        found = [w * v for w, v in zip(weights, values, strict=True) if v is not None]
        return sum(found) if len(found) == len(values) else None

    value, count = total([f.value for f in known]), sum(f.n for f in known)
    assert value is not None
    return Measured(value, known[0].unit, total([f.lo for f in known]), total([f.hi for f in known]), count)


RULES: Mapping[str, Callable[[Sequence[Field], Sequence[Measured]], Field]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _largest,
}
