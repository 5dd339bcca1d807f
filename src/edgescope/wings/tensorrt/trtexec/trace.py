"""Convert trtexec's own times to queries on this process's clock, phases, and warnings about them.

trtexec counts milliseconds from the start of its loop, which it does not report in any clock of ours. It prints a
line just before the loop and one just after, and flushes both; so the start lies between the arrival of the first and
the arrival of the second minus the last query's end. The middle is taken, half the gap is the uncertainty. Durations
do not depend on it; only energy and telemetry do.

A query is issued when its input copy starts or it is enqueued, whichever is earlier, and done when its output copy
(or its compute, without transfers) ends. These are times of device events: the host's work before and after them
(enqueueing the copies, waking up when the device is done) is left out, so this latency is **not comparable** with the
latency of an engine in our process, which is timed from call to return. If queries follow each other one by one, the
time from one to the next, `query_period_s`, contains all of it. trtexec's own "Latency" is the sum of H2D, compute
and D2H: it also leaves out the time between them and behind other queries, and is stored separately as
`device_latency_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.run import summary
from edgescope.errors import DeviceError, Message
from edgescope.records import QUERY_DTYPES, Absent, Field, Queries, Window, mark_column
from edgescope.stats import quantile_metric
from edgescope.wings.tensorrt.trtexec import exports
from edgescope.wings.tensorrt.trtexec.log import ENDS, STARTS, Log
from edgescope.wings.tensorrt.trtexec.program import Ran

#: trtexec's thresholds (sampleReporting.cpp).
ENQUEUE_BOUND, UNSTABLE_SHARE = 0.8, 0.025
#: Largest rounding of the printed digits, as a share of the median latency, and largest difference from its throughput.
COARSE, DISAGREES = 0.01, 0.01

Times = Mapping[str, NDArray[np.float64]]
Columns = dict[str, NDArray[np.int64]]
COPIES = ("h2d", "d2h")


@dataclass(frozen=True)
class Trace:
    """One run's export, aligned with our clock."""

    queries: Queries
    window: Window
    measured: Times
    """The columns of the measured rows, in milliseconds."""
    offset_ns: int
    """Our clock at trtexec's zero."""
    uncertainty_ns: int
    resolution_ms: float


def aligned(ran: Ran, times: Times, *, warmup_ms: float, batch: int, transfers: bool = True) -> Trace:
    """Return the queries of a run on our clock; DeviceError E-TRTX-12 if the log cannot be aligned with them.

    `transfers`: whether it copied inputs and outputs.
    """
    offset_ns, uncertainty_ns = _offset(ran, float(times["end_d2h"].max()))
    issued_ms = np.minimum(times["start_enq"], times["start_h2d"])
    columns = {
        "issued_ns": offset_ns + np.rint(issued_ms * 1e6).astype(np.int64),
        "done_ns": offset_ns + np.rint(times["end_d2h"] * 1e6).astype(np.int64),
    }
    resolution = exports.resolution_ms(times["end_d2h"])
    first = _first_measured(times, warmup_ms - resolution)
    n = len(issued_ms)
    window = Window(first, n, int(columns["issued_ns"][first:].min()), int(columns["done_ns"][first:].max()))
    measured = {name: column[first:] for name, column in times.items()}
    columns |= _marks(times, offset_ns, transfers=transfers)
    return Trace(_queries(columns, n, batch), window, measured, offset_ns, uncertainty_ns, resolution)


def _marks(times: Times, offset_ns: int, *, transfers: bool) -> Columns:
    """Return when each phase of each query began and ended, in columns.

    A phase lasts as long as trtexec says of it: that has more digits than the difference of its moments.
    """
    phases = {
        "enqueue": (times["start_enq"], times["end_enq"] - times["start_enq"]),
        "gpu_compute": (times["start_compute"], times["compute"]),
        **{name: (times[f"start_{name}"], times[name]) for name in COPIES if transfers},
    }
    found = Columns()
    for name, (start_ms, length_ms) in phases.items():
        begin = offset_ns + np.rint(start_ms * 1e6).astype(np.int64)
        found[mark_column(f"{name}_begin")] = begin
        found[mark_column(f"{name}_end")] = begin + np.rint(length_ms * 1e6).astype(np.int64)
    return found


def _offset(ran: Ran, last_ms: float) -> tuple[int, int]:
    """Return (our clock at trtexec's zero, its uncertainty), in nanoseconds."""
    begins, ends = ran.arrival(STARTS), ran.arrival(ENDS)
    if begins is None or ends is None:
        raise DeviceError(
            "E-TRTX-12",
            "trtexec did not say when it started and ended its queries",
            evidence=f"no line {STARTS!r} or {ENDS!r} in {len(ran.lines)} lines",
            effect="Its queries cannot be aligned with the readings of power and clocks",
            fix=" ".join(ran.argv)[:300],
        )
    latest = ends - round(last_ms * 1e6)
    return (begins + latest) // 2, abs(latest - begins) // 2


def _first_measured(times: Times, warmup_ms: float) -> int:
    """Return the first row after the warm-up, by trtexec's rule: its compute starts when that time has passed."""
    after = np.flatnonzero(times["start_compute"] >= warmup_ms)
    if len(after) == 0:
        raise DeviceError(
            "E-TRTX-12",
            "trtexec made no query after its warm-up",
            evidence=f"{len(times['start_compute'])} queries, all within {warmup_ms:.0f} ms",
            fix="a longer --duration, or a shorter --warmup",
        )
    return int(after[0])


def _queries(known: Mapping[str, NDArray[np.int64]], n: int, batch: int) -> Queries:
    columns: dict[str, NDArray[np.generic]] = {
        "query_id": np.arange(n, dtype=np.int64),
        "worker": np.zeros(n, dtype=np.int16),
        "stream": np.zeros(n, dtype=np.int16),  # the export does not say on which stream a query ran
        "source_ns": np.full(n, -1, dtype=np.int64),
        "scheduled_ns": np.full(n, -1, dtype=np.int64),
        "samples": np.full(n, batch, dtype=np.int32),
        "status": np.zeros(n, dtype=np.int8),
        **known,
    }
    return Queries({name: columns[name] for name in dict.fromkeys((*QUERY_DTYPES, *columns))})


def phases(trace: Trace, *, serial: bool) -> dict[str, Field]:
    """Return the median of each phase in seconds, with its interval; transfers that were left out are Absent.

    `serial`: each query was enqueued when the last one had ended, so that their distance is one query's time.
    """
    rows = trace.queries.rows(trace.window)
    none: dict[str, Field] = {
        f"{name}_s": Absent("the transfers were left out (io device)") for name in COPIES
    }
    timed = [mark.removesuffix("_end") for mark in rows.marks if mark.endswith("_end")]
    return {
        **none,
        **{f"{name}_s": summary.figure(rows, f"{name}_end", f"{name}_begin") for name in timed},
        "device_latency_s": _median(trace.measured["latency"]),
        "phased_latency_s": Absent("trtexec gives device times only, no host time from call to return"),
        "query_period_s": _median(np.diff(_starts(trace))) if serial else Absent("its queries overlapped"),
    }


def _median(milliseconds: NDArray[np.float64]) -> Field:
    return quantile_metric(milliseconds / 1e3, 0.5)


def warnings(trace: Trace, log: Log, *, transfers: bool, graph: bool) -> tuple[Message, ...]:
    """Return the warnings of trtexec's three self-checks at its thresholds, and of ours on the export itself."""
    m = {name: float(np.median(column)) for name, column in trace.measured.items()}
    enqueue = float(np.median(trace.measured["end_enq"] - trace.measured["start_enq"]))
    compute = trace.measured["compute"]
    variation = float(compute.std() / compute.mean()) if compute.mean() > 0 else 0.0
    latency = float(np.median(trace.measured["end_d2h"] - _starts(trace)))
    checks = (
        (enqueue > ENQUEUE_BOUND * m["compute"], _enqueue_bound(enqueue, m["compute"], graph)),
        (transfers and m["h2d"] >= m["compute"], _transfer_bound("inputs", m["h2d"], m["compute"])),
        (transfers and m["d2h"] >= m["compute"], _transfer_bound("outputs", m["d2h"], m["compute"])),
        (variation > UNSTABLE_SHARE, _unstable(variation)),
        (trace.resolution_ms > COARSE * latency, _coarse(trace.resolution_ms, latency)),
        *_throughput(trace, log),
    )
    return tuple(text for applies, text in checks if applies)


def _starts(trace: Trace) -> NDArray[np.float64]:
    return np.minimum(trace.measured["start_enq"], trace.measured["start_h2d"])


def _enqueue_bound(enqueue: float, compute: float, graph: bool) -> Message:
    return Message(
        "W-TRTX-1",
        "throughput may be bound by enqueuing, not by the GPU",
        evidence=f"median enqueue {enqueue:.3g} ms > {ENQUEUE_BOUND} x median GPU compute {compute:.3g} ms",
        effect="The GPU waits for the host",
        fix="" if graph else "--option graph=true",
    )


def _transfer_bound(what: str, transfer: float, compute: float) -> Message:
    return Message(
        "W-TRTX-2",
        f"throughput may be bound by copying the {what}",
        evidence=f"median copy {transfer:.3g} ms >= median GPU compute {compute:.3g} ms",
        effect="The GPU waits for data",
        fix="--io device measures the network alone",
    )


def _unstable(variation: float) -> Message:
    return Message(
        "W-TRTX-3",
        "GPU compute time is unstable",
        evidence=f"coefficient of variation {variation:.1%} > {UNSTABLE_SHARE:.1%}",
        effect="The clock most likely changed while it was measured",
        fix="lock the clocks (jetson_clocks, nvidia-smi -lgc), or --option spin=true",
    )


def _coarse(resolution: float, latency: float) -> Message:
    return Message(
        "W-TRTX-4",
        f"trtexec printed its times to {resolution:g} ms only",
        evidence=f"six digits since its start; median latency {latency:.3g} ms",
        effect="Single latencies are rounded to that; device_latency_s is not",
        fix="a shorter --warmup and --duration (below 10 s in all: 0.01 ms, below 1 s: 0.001 ms)",
    )


def _throughput(trace: Trace, log: Log) -> tuple[tuple[bool, Message], ...]:
    """Compare the throughput that trtexec printed with its exported times: both come from the same rows."""
    theirs = log.totals.get("throughput_qps")
    m = trace.measured
    lasted_ms = float(m["end_d2h"].max() - m["start_h2d"][0])
    if not theirs or lasted_ms <= 0:
        return ((True, Message("W-TRTX-5", "trtexec printed no throughput to compare with")),)
    ours = len(m["compute"]) / lasted_ms * 1e3
    allowed = DISAGREES + 2 * trace.resolution_ms / lasted_ms
    text = Message(
        "W-TRTX-5",
        f"trtexec printed {theirs:g} queries/s, its exported times give {ours:g}",
        effect="The reported number comes from the exported times",
        fix="a longer --duration",
    )
    return ((abs(ours / theirs - 1) > allowed, text),)
