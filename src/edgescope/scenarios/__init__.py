"""Arrival patterns: when each query is offered, and how many may be outstanding.

A scenario knows nothing of models or accuracy; it offers queries to a Work and records four times for each.
Closed loops (single_stream, multi_stream, offline) wait for a free slot before the next query; open loops (fixed_rate,
server, burst, trace) have a schedule, and latency then runs from the *scheduled* time. Names and meanings follow
MLPerf LoadGen, which itself drives the scenarios called mlperf_*. `edgescope docs load` has them in one table.
"""

from edgescope.scenarios.base import Foreign, Scenario
from edgescope.scenarios.closed import IdleGap, MultiStream, Offline, SingleStream
from edgescope.scenarios.open_loop import Burst, FixedRate, Server, Trace

__all__ = [
    "Burst",
    "FixedRate",
    "Foreign",
    "IdleGap",
    "MultiStream",
    "Offline",
    "Scenario",
    "Server",
    "SingleStream",
    "Trace",
]
