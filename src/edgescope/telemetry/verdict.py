"""The verdict: whether a number may be trusted, as a pure function of the readings, with figures as evidence.

The order is: what certainly went wrong (THROTTLED, then DISTURBED), then what cannot be known (UNKNOWN), then
CLEAN. Idle down-clocking is not throttling: a low clock counts only while busy, or together with a counter or a slower
spin probe. analysis.run.throttling says what each guard means.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgescope import cores
from edgescope.analysis.run import slowdowns
from edgescope.analysis.run.slowdowns import APART_FROM_S
from edgescope.devices.base import Throttle
from edgescope.records import Json, Readings, Trust, Verdict
from edgescope.telemetry.watcher import COST_CHANNEL

STEAL_LIMIT = 0.02
"""Share of CPU time that a hypervisor may take away."""
OTHERS_LIMIT = 0.10
"""Share of the cores that other processes may use: of all online cores, or of those that the run was allowed."""
LIMITS = {"spin": 1.10, "memory": 1.5}
"""Largest ratio of the seconds for the same work before and after, either way: speeding up is unsteady, too."""
PROBES = {"spin": "a fixed loop", "memory": "a fixed walk through memory"}
MEMORY_PRESSURE_LIMIT = 0.05
"""Share of time in which some task may wait for memory; more means that the page cache is evicted, or worse."""
MIN_TICKS = 3
MIN_COVERAGE = 0.8
"""Share of the scheduled ticks that must have happened inside the window."""


def judge(
    readings: Readings,
    start_ns: int,
    stop_ns: int,
    *,
    cost: Mapping[str, Json],
    throttle: Throttle | None = None,
    slowdown: float | None = None,
    memory: float | None = None,
    speeds: str = "",
    core_to_core: float | None = None,
    apart: bool = False,
    away: str = "",
) -> Verdict:
    """Return the verdict on the window [start_ns, stop_ns], each sentence of evidence with its figure.

    `cost` is the sampler's cost(), `throttle` the change of the devices' counters, `slowdown` the spin probe's
    seconds after divided by before (devices.clocks), `memory` the memory probe's (devices.probes); None if not
    taken. `speeds` names the speeds of the window's own queries if there were several (analysis.run.summary).
    `core_to_core`: the seconds of a cache line from CPU to CPU (devices.probes), `apart`: whether a hypervisor
    has the CPUs apart (analysis.run.apart). `away`: why the machine that computed is not this one.

    THROTTLED   a throttling counter moved; a `throttled_*` channel was set at any reading of the window (thermal,
                over-current, under-voltage) or in more than its share of the readings (power cap 5 %, clock 20 %); or
                a 5-V input read less than 4.5 V. Each with the cause, the first second and the share
    DISTURBED   steal > 2 %, or other processes > 10 % of all cores (both of the cores that the run was allowed,
                if those are fewer), or memory pressure > 5 %, or the same work took > 10 % longer afterwards or
                before, or the queries themselves ran at two speeds, 10 % apart or more, or a virtual machine's CPUs
                were apart
    UNKNOWN     another machine computed, or the sampler died, or fewer than 3 ticks or 80 % of the scheduled ones
                fall inside the window, or a guard's sensor fell silent in it or before it, or the CPU shares were not
                measured, or there is neither a throttling counter nor a spin probe, or a device says that nothing may
                be certified
    CLEAN       none of these; if clocks or counters are unreadable the evidence says so
    """
    span = (start_ns, stop_ns)
    throttled, held = _throttled(readings, span, throttle)
    disturbed, quiet = _disturbed(readings, span, {"spin": slowdown, "memory": memory}, speeds)
    if core_to_core is not None:
        (disturbed if apart else quiet).append(_distance(core_to_core, apart=apart))
    unknown = [away] * bool(away) + _unknown(readings, span, cost)
    unknown += _unwatched(readings, throttle, slowdown)
    for trust, evidence in (
        (Trust.THROTTLED, throttled),
        (Trust.DISTURBED, disturbed),
        (Trust.UNKNOWN, unknown),
    ):
        if evidence:
            rest = throttled + disturbed + unknown
            return Verdict(trust, tuple(evidence + [e for e in rest if e not in evidence]))
    return Verdict(Trust.CLEAN, tuple(held + quiet))


def _throttled(
    readings: Readings, span: tuple[int, int], throttle: Throttle | None
) -> tuple[list[str], list[str]]:
    """Return (evidence of throttling, evidence that there was none)."""
    bad = list(throttle.events) if throttle else []
    good = []
    if throttle and throttle.looked_at:
        good.append(f"no throttling event in {', '.join(throttle.looked_at)}")
    elif throttle:
        good.append(f"no clock or thermal counter is readable here ({'; '.join(throttle.absent)})")
    holds = slowdowns.holds(readings, *span)
    bad += [str(h) for h in sorted(holds, key=lambda h: h.first_s or 0.0) if h.throttled]  # causes come first
    good += [str(h) for h in holds if not h.throttled and h.first_s is not None]
    if at_rest := [h for h in holds if h.first_s is None]:
        causes = ", ".join(dict.fromkeys(h.cause for h in at_rest))
        good.append(f"{len(at_rest)} guards at rest in up to {max(h.n for h in at_rest)} readings ({causes})")
    for low, text in slowdowns.low_input(readings, *span):
        (bad if low else good).append(text)
    return bad, good


def _disturbed(
    readings: Readings, span: tuple[int, int], probes: Mapping[str, float | None], speeds: str
) -> tuple[list[str], list[str]]:
    """Return (evidence of disturbance, evidence of quiet)."""
    bad: list[str] = [speeds] if speeds else []
    good: list[str] = []
    mine = cores.judged({c.name for c in readings.channels})
    for name, limit, text in (
        (f"{mine}_steal", STEAL_LIMIT, f"the hypervisor took {{:.1%}} of {cores.WORDS[mine]}"),
        (f"{mine}_others", OTHERS_LIMIT, f"other processes used {{:.1%}} of {cores.WORDS[mine]}"),
        ("psi_memory_some", MEMORY_PRESSURE_LIMIT, "tasks waited for memory {:.1%} of the time"),
    ):
        share = mean_share(readings, name, *span)
        if share is not None:
            over = share > limit
            (bad if over else good).append(text.format(max(share, 0.0)) + f" (limit {limit:.0%})")
    for name, ratio in probes.items():
        if ratio is not None:
            steady = max(ratio, 1 / ratio) <= LIMITS[name]
            (good if steady else bad).append(f"{PROBES[name]} took {_change(ratio, LIMITS[name])}")
    return bad, good


def _change(ratio: float, limit: float) -> str:
    if ratio >= 1:
        return f"{ratio - 1:.1%} more time after the run than before (limit {limit - 1:.1%})"
    return f"{1 - ratio:.1%} less time after the run than before (limit {1 - 1 / limit:.1%})"


def _distance(core_to_core: float, *, apart: bool) -> str:
    if not apart:
        return f"the CPUs are {1e9 * core_to_core:.0f} ns apart"
    return (
        f"the hypervisor has the CPUs {1e9 * core_to_core:.0f} ns apart (limit {1e9 * APART_FROM_S:.0f} ns)"
    )


def _unknown(readings: Readings, span: tuple[int, int], cost: Mapping[str, Json]) -> list[str]:
    if not cost.get("alive"):
        return [f"the sampler did not watch to the end: {cost.get('end', 'no reason is known')}"]
    ticks = len(_inside(readings, COST_CHANNEL, span))
    expected = (span[1] - span[0]) / 1e9 * float(cost["hz"])
    if ticks < MIN_TICKS:
        return [f"only {ticks} of the sampler's readings fall inside the window (need {MIN_TICKS})"]
    if ticks < MIN_COVERAGE * expected - 1:  # a window starts anywhere between two ticks
        return [f"only {ticks} of {expected:.0f} scheduled readings fall inside the window"]
    mine = cores.judged({c.name for c in readings.channels})
    missing = [n for n in (f"{mine}_steal", f"{mine}_others") if mean_share(readings, n, *span) is None]
    return slowdowns.lost(readings, *span) + ([f"not measured: {', '.join(missing)}"] if missing else [])


def _unwatched(readings: Readings, throttle: Throttle | None, slowdown: float | None) -> list[str]:
    flags = any(c.name.startswith(slowdowns.PREFIX) and c.status == "measured" for c in readings.channels)
    uncertain = list(throttle.unknown) if throttle else []
    if (throttle and throttle.looked_at) or flags or slowdown is not None:
        return uncertain
    why = "; ".join(throttle.absent) if throttle and throttle.absent else "none was checked"
    return [*uncertain, f"nothing shows whether clocks held: no throttling counter ({why}) and no spin probe"]


def mean_share(readings: Readings, name: str, start_ns: int, stop_ns: int) -> float | None:
    """Return the time-weighted mean of an interval channel over the window, or None if it was not read."""
    t_ns, value = readings.series(name)
    weight = np.minimum(t_ns[1:], stop_ns) - np.maximum(t_ns[:-1], start_ns)
    inside = weight > 0
    if not inside.any():
        return None
    return float(np.average(value[1:][inside], weights=weight[inside]))


def _inside(
    readings: Readings, name: str, span: tuple[int, int]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    t_ns, value = readings.series(name)
    return value[(t_ns >= span[0]) & (t_ns <= span[1])]
