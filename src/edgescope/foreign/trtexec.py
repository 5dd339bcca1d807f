"""Names of the columns of trtexec's --exportTimes, which changed once; whoever reads such a file needs them."""

from __future__ import annotations

from collections.abc import Mapping

#: Column -> its names over the versions, newest first; all in milliseconds since the start of the loop.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "start_enq": ("startEnqMs",),
    "end_enq": ("endEnqMs",),
    "start_h2d": ("startH2dMs", "startInMs"),
    "end_h2d": ("endH2dMs", "endInMs"),
    "start_compute": ("startComputeMs",),
    "end_compute": ("endComputeMs",),
    "start_d2h": ("startD2hMs", "startOutMs"),
    "end_d2h": ("endD2hMs", "endOutMs"),
    "h2d": ("h2dMs", "inMs"),
    "compute": ("computeMs",),
    "d2h": ("d2hMs", "outMs"),
    "latency": ("latencyMs",),
}
