"""Compute how busy the parts of a machine were during a run; limits are named from these figures.

Shares refer to the hardware that the run may use: its allowed cores and its GPU. A figure that was not read is absent
with the sensor's reason, and is evidence for nothing. `busy` of a GPU says that some kernel ran; `sm_active` and
`tensor_active` (GPM counters, Hopper and later) say how much of it was used.

HOST and GPU list the metrics that stand for `memory` and `gpu_memory`, the best first: the bytes of the processes with
shared pages counted once (PSS), else their resident sets, or, if the GPU shares the machine's memory, the drop of
available memory; and the processes' memory as the driver reports it, else all memory in use on the board.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgescope import cores
from edgescope.analysis.cells.replicates import spread
from edgescope.analysis.run import slowdowns
from edgescope.analysis.run.slowdowns import Hold
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Json, Measured, Readings, Result, Window

DECODERS = ("nvdec0_busy", "nvdec_busy", "gpu{0}_decoder_busy")
"""Channels that say how busy a video decoder was, on devices that publish it; `{0}` is the number of the run's GPU."""
CLOCKED = "nvdec0_clock_hz"
"""On a Jetson: the decoder's clock, 0 while it is suspended; no board publishes its load."""


@dataclass(frozen=True)
class Usage:
    """One run's use of its machine, each a mean over the window."""

    cpu: Field
    """Share of the allowed cores used by the run itself."""
    cpu_others: Field
    """Upper limit of the share of the allowed cores used by everything else."""
    cores: float
    gpu: Field
    """Share of time with any kernel running."""
    sm: Field
    """Share of the multiprocessors that had work."""
    decoder: Field
    memory_free: Field
    """Least memory that was left, in bytes."""
    power: Field
    holds: tuple[Hold, ...]
    """Guards that held the clocks down."""


def usage(result: Result) -> Usage:
    """Return the usage from a run's readings; every figure is Absent if there are none."""
    r, w = result.readings, result.window
    if r is None or w is None:
        none = Absent("no sensor was read during this run")
        return Usage(none, none, 0.0, none, none, none, none, none, ())
    cpu, others, usable = _cpu(r, w, result.machine.state)
    return Usage(
        cpu,
        others,
        usable,
        of_gpu(result, "busy"),
        of_gpu(result, "sm_active"),
        _decoder(r, w, result.machine.state),
        _least(r, w, "mem_available_bytes"),
        result.metrics.get("power_w", Absent("no power was measured")),
        tuple(h for h in slowdowns.holds(r, w.start_ns, w.stop_ns) if h.throttled),
    )


def mean(readings: Readings, window: Window, name: str) -> Field:
    """Return the mean of one channel over the window; an interval channel is weighted by time."""
    channel = next((c for c in readings.channels if c.name == name), None)
    if channel is None:
        return Absent(f"no channel {name} here")
    t_ns, value = readings.series(name)
    if channel.kind == "interval" and len(t_ns) > 1:
        weight = np.minimum(t_ns[1:], window.stop_ns) - np.maximum(t_ns[:-1], window.start_ns)
        inside, value = weight > 0, value[1:]
        weights = weight[inside].astype(np.float64)
    else:
        inside = (t_ns >= window.start_ns) & (t_ns <= window.stop_ns)
        weights = np.ones(int(inside.sum()))
    if not inside.any():
        return Absent(channel.reason or f"no reading of {name} fell into the window")
    return Measured(float(np.average(value[inside], weights=weights)), channel.unit, n=int(inside.sum()))


def _cpu(readings: Readings, window: Window, state: Mapping[str, Json]) -> tuple[Field, Field, float]:
    """Return (the run's share of the allowed cores, the share of all other programs, the allowed cores)."""
    mine = cores.judged({c.name for c in readings.channels})
    busy, others = mean(readings, window, f"{mine}_busy"), mean(readings, window, f"{mine}_others")
    facts = state.get("cpu")
    facts = facts if isinstance(facts, Mapping) else {}
    online, allowed = facts.get("online_cpus"), facts.get("affinity")
    if isinstance(busy, Absent) or isinstance(others, Absent):
        return busy, others, 0.0
    if not isinstance(online, list) or not isinstance(allowed, list):
        return Absent("which cores this run may use is not known"), others, 0.0
    limit = facts.get("cgroup_cpu_limit")
    usable = min(float(len(allowed)), float(limit) if isinstance(limit, int | float) else np.inf)
    scale = len(allowed if mine == cores.ALLOWED else online) / usable
    own = Measured(max(0.0, busy.value - others.value) * scale, "share", n=busy.n)
    return own, Measured(max(0.0, min(1.0, others.value * scale)), "share", n=others.n), usable


def of_gpu(result: Result, what: str) -> Field:
    """Return the mean over the window of one channel (`busy`, `sm_active` ...) of the GPU that a run used."""
    channels = result.trial.place.channels
    if not channels:
        return Absent("this run used no GPU")
    if result.readings is None or result.window is None:
        return Absent("no sensor was read during this run")
    number = gpu_number(result.machine.state)
    if number is None:
        return Absent(
            "CUDA_VISIBLE_DEVICES names no GPU by its number: which board is this run's is not known"
        )
    refused = {c.name: c.reason for c in result.readings.channels if c.status != "measured"}
    known = {c.name for c in result.readings.channels} - set(refused)
    only = f"{channels}{number}_busy" not in known and f"{channels}_busy" in known  # as on a Jetson
    name = f"{channels}{'' if only else number}_{what}"
    if name in refused:
        return Absent(f"{name}: {refused[name] or 'it could not be read'}")
    return mean(result.readings, result.window, name)


def gpu_number(state: Mapping[str, Json]) -> int | None:
    """Return NVML's number of CUDA's GPU 0 from a machine's facts, or None if CUDA_VISIBLE_DEVICES is not a number."""
    environment = state.get("environment")
    chosen = environment.get("CUDA_VISIBLE_DEVICES", "") if isinstance(environment, Mapping) else ""
    first = str(chosen).split(",")[0].strip()
    return int(first or 0) if first.isdigit() or not first else None


def _decoder(readings: Readings, window: Window, state: Mapping[str, Json]) -> Field:
    names = [name.format(gpu_number(state) or 0) for name in DECODERS]
    found = [mean(readings, window, name) for name in names]
    if known := next((f for f in found if isinstance(f, Measured)), None):
        return known
    t_ns, clock = readings.series(CLOCKED)
    inside = clock[(t_ns >= window.start_ns) & (t_ns <= window.stop_ns)]
    if not len(inside):
        return Absent("no decoder in this path")
    return Absent(f"NVDEC was on {np.mean(inside > 0):.0%} of the time, its load is not published")


def _least(readings: Readings, window: Window, name: str) -> Field:
    t_ns, value = readings.series(name)
    inside = value[(t_ns >= window.start_ns) & (t_ns <= window.stop_ns)]
    if not len(inside):
        return Absent(f"no reading of {name} fell into the window")
    return Measured(float(inside.min()), "bytes", n=len(inside))


#: Figure -> the channel of the run's GPU that it is the mean of, without the GPU's name.
ACTIVITY: Mapping[str, str] = {"gpu_busy": "busy", "sm_active": "sm_active", "tensor_active": "tensor_active"}


def activity(runs: Sequence[Result], name: str) -> Field:
    """Return the mean share of one of ACTIVITY over the windows of these runs, or Absent with the missing channel."""
    found = [_mean(r, ACTIVITY[name]) for r in runs]
    values = [f.value for f in found if isinstance(f, Measured)]
    if not values:
        return next((f for f in found if isinstance(f, Absent)), Absent("no run finished"))
    return spread(values, "share")


def _mean(result: Result, what: str) -> Field:
    place = result.trial.place
    if not place.channels:
        return Absent("measured on a CPU" if place.is_host else f"nothing here senses the {place.word}")
    if result.readings is None or result.window is None:
        return Absent("no raw readings in the store")
    return of_gpu(result, what)


HOST = METRICS["peak_rss_bytes"].of[1:]
"""Of the processes; with several, peak_rss_bytes is their sum."""
UNIFIED = METRICS["peak_rss_bytes"].of[:1]
"""For a board whose GPU shares the machine's memory."""
GPU = METRICS["gpu_memory_bytes"].of


def first(result: Result, names: Iterable[str]) -> Field:
    """Return the first of these figures that was measured; Absent with the reason of the first that was not."""
    found = [f for f in (result.metrics.get(name) for name in names) if f is not None]
    measured = [f for f in found if isinstance(f, Measured)]
    return next(iter([*measured, *found]), Absent("nothing measures it here"))
