"""Results made of chosen latencies."""

import functools

import numpy as np
import pytest

from edgescope.analysis.run.summary import metrics
from edgescope.records import (
    QUERY_DTYPES,
    Channel,
    Machine,
    Measured,
    ModelInfo,
    Queries,
    Readings,
    Result,
    Status,
    Trial,
    Trust,
    Verdict,
    Verification,
    Window,
)
from making import messages


def rows(latency_ns, *, status=None, samples=1, warmup=0):
    """A closed loop of these latencies; the first `warmup` rows lie before the window."""
    latency = np.asarray(latency_ns, dtype=np.int64)
    n, done = len(latency), np.cumsum(latency)
    columns = {name: np.full(n, -1, dtype=dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["query_id"] = np.arange(n)
    columns["issued_ns"], columns["done_ns"] = done - latency, done
    columns["samples"] = np.full(n, samples, dtype=np.int32)
    columns["status"] = np.zeros(n, dtype=np.int8) if status is None else np.asarray(status, dtype=np.int8)
    start = int(done[warmup] - latency[warmup]) if n else 0
    return Queries(columns), Window(warmup, n, start, int(done[-1]) if n else 0)


@functools.cache  # thousands of tests ask for the same few hundred series
def _run(latency: bytes):
    """Queries, window and metrics of a closed loop; many results share them, so nobody can change them."""
    queries, window = rows(np.frombuffer(latency, dtype=np.int64))
    for column in queries.columns.values():
        column.flags.writeable = False
    return queries, window, metrics(queries, window)


def gate(passed=True, detail="top-1 agreement 0.99 [0.97, 1.00] on 300 images"):
    fields = {
        "top1_agreement": Measured(0.99, "1", 0.97, 1.0, 300),
        "accuracy": Measured(0.9, "1", 0.8, 0.95, 20),
    }
    return Verification(passed, "top1_agreement", fields, 0.95, detail)


def result(latency_ns, *, trial=None, stable=None, state=None, scope=None, raw=True, **kw):
    """A finished, verified Result with these latencies."""
    trial = trial or Trial(model="m")
    queries, window, found = _run(np.asarray(latency_ns, dtype=np.int64).tobytes())
    readings = None
    if scope:
        channel = Channel("power", "W", scope, "gauge", "test")
        readings = Readings((channel,), np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros(0))
    base = dict(
        id=f"{trial.id}-{kw.get('started_at', '')}",
        trial=trial,
        machine=Machine(stable or {"cpu": "x"}, state or {}),
        status=Status.OK,
        verdict=Verdict(Trust.CLEAN),
        model=ModelInfo("m", "classify", True, "test", "0"),
        verification=gate(),
        window=window,
        started_at="2026-01-01T00:00:00.000+00:00",
        metrics=found | {"peak_rss_bytes": Measured(1e8 + trial.replicate, "bytes")},
        queries=queries if raw else None,
        readings=readings,
    )
    return Result(**messages(base | kw))


def cell(center_ns, *, replicates=5, n=500, seed=0, sd=0.005, raw=True, extra=None, **trial_kw):
    """Replicates of one cell: latencies around `center_ns`, processes `sd` apart."""
    out = []
    for i in range(replicates):
        rng = np.random.default_rng([seed, i])
        level = center_ns * np.exp(rng.normal(0, sd))
        trial = Trial(**({"model": "m", "replicate": i} | trial_kw))
        out.append(
            result(level * (1 + 0.05 * rng.exponential(size=n)), trial=trial, raw=raw, **(extra or {}))
        )
    return out


@pytest.fixture
def make():
    """The makers above, without an import between test files."""

    class Make:
        pass

    Make.rows, Make.gate, Make.result, Make.cell = map(staticmethod, (rows, gate, result, cell))
    return Make
