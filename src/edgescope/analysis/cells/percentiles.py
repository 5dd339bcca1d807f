"""The latency percentiles of a cell, one definition for every verb, page and plot (`edgescope docs metrics` says why).

A percentile of several fresh processes is the mean of their own percentiles. The process is the unit of repetition,
so each counts once however many queries it answered, and a ratio of two cells' medians is about what their pairs say.
Pooling the queries would weigh a fast process more, and would show only one of two modes. If a process has too few
queries for a percentile, the percentile of all processes' queries together is used, never below a lower percentile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgescope import metrics, registry
from edgescope.analysis.cells.replicates import MIN_REPLICATES, latencies_s
from edgescope.analysis.run.summary import OFFLINE
from edgescope.records import Absent, Field, Measured, Result
from edgescope.stats import quantile_metric
from edgescope.stats.special import t_quantile

QUANTILES: Mapping[str, float] = metrics.quantiles()
NOT_LOADED = "raw latencies are not loaded"


def percentiles(results: Sequence[Result]) -> dict[str, Field]:
    """Return the percentiles of one cell's replicates in seconds, in rising order; n counts the queries.

    Three processes or more have a Student's t interval on the logs of their percentiles, around the point. One process
    has its own order-statistic interval; two have none.
    """
    out, least = {}, 0.0
    for name, q in QUANTILES.items():
        field = _joined([percentile_of(r, name) for r in results], results, q)
        if isinstance(field, Measured):
            field = _at_least(field, least)
            least = field.value
        out[name] = field
    return out


def percentile_of(result: Result, name: str) -> Field:
    """Return one percentile of one process: as stored, else from its raw rows; Absent with the reason."""
    if not registry.scenario(result.trial.scenario).timed:
        return OFFLINE
    stored = result.metrics.get(f"latency_{name.removesuffix('_s')}_s")
    if stored is not None:
        return stored
    latency = latencies_s(result)
    return Absent(NOT_LOADED) if latency is None else quantile_metric(latency, QUANTILES[name])


def lacks_rows(results: Sequence[Result]) -> bool:
    """Return whether a percentile up to p99 of this cell needs raw rows that are not loaded."""
    found = [percentile_of(r, name) for r in results for name in ("p50_s", "p99_s")]
    return len(results) > 1 and any(isinstance(f, Absent) and f != OFFLINE for f in found)


def _joined(own: Sequence[Field], results: Sequence[Result], q: float) -> Field:
    """Return one percentile of the cell from those of its processes."""
    if len(own) < 2:
        return own[0] if own else Absent("no replicate finished")
    found = [f for f in own if isinstance(f, Measured)]
    if len(found) < len(own):
        return _together(own, results, q)
    values = np.array([f.value for f in found])
    mean = Measured(float(values.mean()), "s", n=sum(f.n for f in found))
    if len(values) < MIN_REPLICATES:
        return mean
    logs = np.log(np.maximum(values, 1e-12))
    spread = math.exp(t_quantile(0.975, len(values) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(values)))
    return replace(mean, lo=mean.value / spread, hi=mean.value * spread)


def _together(own: Sequence[Field], results: Sequence[Result], q: float) -> Field:
    """Return the percentile of all processes' queries together, without an interval."""
    parts = [x for x in (latencies_s(r) for r in results) if x is not None and len(x)]
    if not parts:
        return next(f for f in own if isinstance(f, Absent))
    field = quantile_metric(np.concatenate(parts), q)
    return replace(field, lo=None, hi=None) if isinstance(field, Measured) else field


def _at_least(field: Measured, least: float) -> Measured:
    if field.value >= least:
        return field
    return replace(field, value=least, hi=None if field.hi is None else max(field.hi, least))
