"""How busy a GPU and its parts were within the measured window: means of the channels that were read then.

`busy` says that some kernel ran; `sm_active` and `tensor_active` (GPM counters, Hopper and later) say how much of the
GPU it used. A GPU whose driver has no such counters, and a CPU, have none: Absent says which channel was missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgescope.analysis.cells.means import spread
from edgescope.analysis.run.usage import of_gpu
from edgescope.records import Absent, Field, Measured, Result

#: Figure -> the channel of the run's GPU that it is the mean of, without the GPU's name.
ACTIVITY: Mapping[str, str] = {"gpu_busy": "busy", "sm_active": "sm_active", "tensor_active": "tensor_active"}


def activity(runs: Sequence[Result], name: str) -> Field:
    """Return the mean share of one of ACTIVITY over the windows of these runs, or which channel was missing."""
    found = [_mean(r, ACTIVITY[name]) for r in runs]
    values = [f.value for f in found if isinstance(f, Measured)]
    if not values:
        return next((f for f in found if isinstance(f, Absent)), Absent("no run finished"))
    return spread(values, "share")


def _mean(result: Result, what: str) -> Field:
    if result.trial.device != "cuda":
        return Absent("measured on a CPU")
    if result.readings is None or result.window is None:
        return Absent("no raw readings in the store")
    return of_gpu(result, what)
