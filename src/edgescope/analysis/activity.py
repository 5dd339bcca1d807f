"""How busy a GPU and its parts were within the measured window: means of the channels that were read then.

`busy` says that some kernel ran; `sm_active` and `tensor_active` (GPM counters, Hopper and later) say how much of the
GPU it used. A GPU whose driver has no such counters, and a CPU, have none: Absent says which channel was missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgescope.analysis.means import spread
from edgescope.records import Absent, Field, Measured, Readings, Result

#: Figure -> the ending of the channel that it is the mean of; a GPU's channels begin with `gpu`.
ACTIVITY: Mapping[str, str] = {
    "gpu_busy": "_busy",
    "sm_active": "_sm_active",
    "tensor_active": "_tensor_active",
}


def activity(runs: Sequence[Result], name: str) -> Field:
    """Return the mean share of one of ACTIVITY over the windows of these runs, or which channel was missing."""
    found = [_mean(r, ACTIVITY[name]) for r in runs]
    values = [f.value for f in found if isinstance(f, Measured)]
    if not values:
        return next((f for f in found if isinstance(f, Absent)), Absent("no run finished"))
    return spread(values, "share")


def _mean(result: Result, ending: str) -> Field:
    if result.trial.device != "cuda":
        return Absent("measured on a CPU")
    if result.readings is None or result.window is None:
        return Absent("no raw readings in the store")
    channel = _channel(result.readings, ending)
    if isinstance(channel, Absent):
        return channel
    t_ns, value = result.readings.series(channel)
    inside = value[(t_ns >= result.window.start_ns) & (t_ns <= result.window.stop_ns)]
    if not len(inside):
        return Absent(f"no reading of {channel} fell into the window")
    return Measured(float(np.mean(inside)), "share", n=len(inside))


def _channel(readings: Readings, ending: str) -> str | Absent:
    """Return the channel that was read most often, or why none was."""
    mine = [c for c in readings.channels if c.name.startswith("gpu") and c.name.endswith(ending)]
    read = [c.name for c in mine if c.status == "measured"]
    if read:
        return max(read, key=lambda name: len(readings.series(name)[0]))
    why = next((f"{c.name}: {c.reason}" for c in mine if c.reason), f"no channel gpu*{ending} was recorded")
    return Absent(why)
