"""The trace of a stored result that ran under a tracer, and the metrics that come of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgescope import registry
from edgescope.analysis.kernels.account import account
from edgescope.errors import Message
from edgescope.records import SPAN_KINDS, Absent, Field, Measured, Result, Spans, Trace, Trial

AVERAGED = Message(
    "I-PROF-2",
    "the engine says how long its layers take, not when",
    effect="Each is one row, the mean over the inferences, from the first one on: starts and gaps mean nothing",
)
OWN = tuple(SPAN_KINDS.index(kind) for kind in ("unit", "phase", "stage"))


def trace_of(result: Result) -> Trace | None:
    """Return the spans of a result's window, each of its queries a unit of work; None if there are none."""
    spans, queries, window = result.spans, result.queries, result.window
    if spans is None or queries is None or window is None:
        return None
    rows = queries.rows(window).columns
    spans, averaged = _laid_out(spans, window.start_ns)
    inside = (spans.columns["end_ns"] > window.start_ns) & (spans.columns["start_ns"] < window.stop_ns)
    profiled = inside & ~np.isin(spans.columns["kind"], OWN)
    kept = spans.where(profiled if profiled.any() else np.isin(spans.columns["kind"], OWN))
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
    found = np.unique(spans.columns["process"])
    return int(found[-1]) if len(found) else -1


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
