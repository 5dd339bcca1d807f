"""What slowed a machine down: guards that held the clocks, a hypervisor that put the CPUs apart, and warming up.

Every device reports into channels named `throttled_<what>_<cause>`, which read 1 while a guard is active. A
power cap and a clock below its request come and go on a healthy machine, so they count from a certain share on; heat,
over-current and under-voltage count from the first reading.

CPUs are apart if they are on two sockets. On a machine of one's own their latency is a fact of the board; a virtual
machine's CPUs are moved, so there it says what the machine is like now. The limit is above what the CPUs of one socket
need (up to 0.17 us of an Intel Xeon's 16) and below what those of two sockets do (0.2 us and more of an AMD EPYC's):
benchmarks/probes.py distance. Those of two groups of an EPYC's socket need as long as a Xeon's of one, so they pass.

A device that throttles after four minutes has two throughputs, and a benchmark of ten seconds shows one of them.
Burst is the first tenth of a long window, at most 10 s. The window is cut into 24 blocks; it has *settled* at the
first block from which on, to the end:

    temperature   has a slope of at most 1 degC a minute, and the means of eight equal parts lie within 2 degC
    latency       (offline: time between completions) neither drifts nor steps by 2 %. A step is a split of the
                  eight parts whose two sides differ by far more than the parts within each side

Sustained is everything from there to the end. A sawtooth of throttling settles by this rule, as it should: its mean
is the speed that the user gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run.summary import IDLING, OFFLINE, throughput
from edgescope.errors import Message
from edgescope.records import QUERY_OK, Absent, Field, Machine, Measured, Queries, Readings, Result, Window
from edgescope.stats import drift, quantile_metric

PREFIX = "throttled_"
POWER_CAP_LIMIT = 0.05
"""Share of the window in which a power cap may hold the clocks down; a thermal slowdown may never."""
CLOCK_LIMIT = 0.20
"""Share of the readings in which a clock may lag behind, because a governor needs some time to raise it."""
CAUSES = (
    ("_thermal", "thermal", 0.0),
    ("_power", "power cap", POWER_CAP_LIMIT),
    ("_over_current", "over-current", 0.0),
    ("_under_voltage", "under-voltage", 0.0),
    ("_clock", "clock below its request", CLOCK_LIMIT),
)
"""End of the channel's name, the cause in words, and the share of readings up to which it is not throttling."""
INPUTS = ("pom_5v_in", "vdd_in")
"""Rails that measure a module's input; fed with 5 V on some boards, with more on others."""
LOW_INPUT_V = 4.5
"""A 5-V module throttles below this (NVIDIA staff on Xavier NX and Nano: forum t/276251, t/307919)."""
_FIVE_VOLT_BOARD = 6.0
"""An input that never reads more than this is fed with 5 V."""
STRETCH_S = 10.0
"""A cause that may come and go counts once it is active for more than its share of this time."""
SILENCE = 0.2
"""A guard counts as lost if it is silent for more than this share of the window, at its end."""


@dataclass(frozen=True)
class Hold:
    """One guard in one window."""

    channel: str
    cause: str
    share: float
    """Share of the readings inside the window in which it was active."""
    n: int
    """Readings inside the window."""
    first_s: float | None
    """Seconds from the window's start to the first active reading, or (for a cause that may come and go) to the first
    stretch above its share; None if it was never active."""
    limit: float

    @property
    def throttled(self) -> bool:
        """Whether it held the clocks down more than on a healthy machine; some causes need two readings for that."""
        return self.share > self.limit and (self.limit == 0 or round(self.share * self.n) > 1)

    def __str__(self) -> str:
        text = f"{self.channel} in {self.share:.0%} of {self.n} readings"
        if self.first_s is None:
            return text
        return f"{self.cause} from second {self.first_s:.1f}: {text}"


def holds(readings: Readings, start_ns: int, stop_ns: int) -> list[Hold]:
    """Return every guard that was read inside the window."""
    out = []
    for channel in readings.channels:
        if not channel.name.startswith(PREFIX):
            continue
        t_ns, value = readings.series(channel.name)
        inside = (t_ns >= start_ns) & (t_ns <= stop_ns)
        if inside.any():
            at_s = (t_ns[inside] - start_ns) * 1e-9
            out.append(_hold(channel.name, at_s, value[inside] > 0))
    return out


def _hold(name: str, at_s: NDArray[np.floating[Any]], active: NDArray[np.bool_]) -> Hold:
    _, cause, limit = next((c for c in CAUSES if name.endswith(c[0])), ("", "some guard", 0.0))
    first = _first(at_s, active, limit) if active.any() else None
    return Hold(name, cause, float(active.mean()), len(active), first, limit)


def _first(at_s: NDArray[np.floating[Any]], active: NDArray[np.bool_], limit: float) -> float:
    """Return the first active second; with a limit, the first from which its share of a stretch exceeds the limit."""
    moments = at_s[active]
    if limit:
        before, until = (
            np.searchsorted(at_s, moments),
            np.searchsorted(at_s, moments + STRETCH_S, side="right"),
        )
        total = np.concatenate(([0], np.cumsum(active)))
        held = total[until] - total[before]
        lasting = (held > limit * (until - before)) & (held > 1)
        moments = moments[lasting] if lasting.any() else moments
    return float(moments[0])


def low_input(readings: Readings, start_ns: int, stop_ns: int) -> list[tuple[bool, str]]:
    """Return (too low, sentence) for each 5-V input whose voltage was read inside the window.

    A monitor averages over its conversion time, so the real minimum may be lower, never higher.
    """
    out = []
    for rail in INPUTS:
        t_ns, volts = readings.series(f"{rail}_voltage_v")
        inside = (t_ns >= start_ns) & (t_ns <= stop_ns)
        if not inside.any() or volts[inside].max() > _FIVE_VOLT_BOARD:
            continue
        low, least = volts[inside] < LOW_INPUT_V, float(volts[inside].min())
        text = f"{rail} was at least {least:.2f} V (a 5-V input is low below {LOW_INPUT_V:.2f} V)"
        if low.any():
            first = float(t_ns[inside][low][0] - start_ns) * 1e-9
            share = f"below {LOW_INPUT_V:.2f} V in {low.mean():.0%} of {len(low)} readings"
            text = f"under-voltage from second {first:.1f}: {rail} fell to {least:.2f} V, {share}"
        out.append((bool(low.any()), text))
    return out


def lost(readings: Readings, start_ns: int, stop_ns: int) -> list[str]:
    """Return the guards whose readings stopped before the window's end (unplugged, or their driver removed).

    A sampler that is stopped normally reads everything once more, so a working sensor has a reading after the window.
    """
    out = []
    for channel in readings.channels:
        t_ns, value = readings.series(channel.name)
        if not len(t_ns) or t_ns[-1] >= stop_ns - SILENCE * (stop_ns - start_ns):
            continue
        if channel.name.startswith(PREFIX) or _is_low_voltage_guard(channel.name, value):
            last = (int(t_ns[-1]) - start_ns) * 1e-9
            when = f"after second {last:.1f}" if last >= 0 else f"{-last:.1f} s before the window"
            out.append(f"{channel.name} fell silent {when} ({channel.reason or 'no reason'})")
    return out


def _is_low_voltage_guard(name: str, volts: NDArray[np.floating[Any]]) -> bool:
    """Return whether this is the voltage of an input that was fed with 5 V and never with more."""
    return name.removesuffix("_voltage_v") in INPUTS and bool(volts.max() <= _FIVE_VOLT_BOARD)


CORE_TO_CORE = "core_to_core_s"
APART_FROM_S = 180e-9


def virtual(machine: Machine) -> bool:
    """Return whether the machine says that it is a virtual one."""
    facts = machine.stable.get("cpu")
    kind = facts.get("virtualised") if isinstance(facts, Mapping) else None
    return isinstance(kind, str) and kind != "no"


def apart(machine: Machine, core_to_core_s: float | None) -> bool:
    """Return whether a virtual machine's CPUs are further apart than those of one socket."""
    return core_to_core_s is not None and core_to_core_s > APART_FROM_S and virtual(machine)


def apart_s(result: Result) -> float | None:
    """Return the latency of a run on the CPU whose CPUs were apart at its beginning and its end, else None."""
    found = result.metrics.get(CORE_TO_CORE)
    if not result.trial.place.is_host or not isinstance(found, Measured):
        return None
    return found.value if apart(result.machine, found.value) else None


SUSTAINED_FROM_S = 60.0
"""Seconds; the time constant of a bare module's heat sink is minutes, so less says nothing about the long run."""
BURST_SHARE, BURST_S = 0.1, 10.0
BLOCKS = 24
MIN_REST = 8
"""Blocks that the settled part must span: a third of the window."""
WITHIN_C = 2.0
SLOPE_C_PER_MIN = 1.0
STEADY_WITHIN = 0.02
STEADY_ERROR = 0.05
"""Largest standard error of the mean (from the eight parts) that still counts as steady."""
STEP_T = 5.0
"""Student's t from which the two sides of a split are different levels: by chance under 2 % of the time."""
_POWERED_OFF_C = -200.0
SUSTAINED = (
    "burst_throughput_sps",
    "burst_latency_p50_s",
    "sustained_throughput_sps",
    "sustained_latency_p50_s",
    "settled_s",
    "time_to_throttle_s",
)

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Sustained:
    """The metrics by name, and the warnings about them."""

    fields: dict[str, Field]
    warnings: tuple[Message, ...] = ()


def sustained(
    queries: Queries, readings: Readings, window: Window, scenario: str = "single_stream"
) -> Sustained:
    """Return burst and sustained throughput (samples/s) and median latency (s), settling and throttling time (s)."""
    if registry.scenario(scenario).idles:
        return Sustained(dict.fromkeys(SUSTAINED, IDLING))
    length_s = (window.stop_ns - window.start_ns) * 1e-9
    if length_s < SUSTAINED_FROM_S:
        reason = f"a window of {length_s:.1f} s is too short to settle: need {SUSTAINED_FROM_S:.0f} s (--soak 10min)"
        return Sustained(dict.fromkeys(SUSTAINED, Absent(reason)))
    rows = queries.rows(window)
    heat = temperatures(readings, window)
    burst = _part(rows, window, 0.0, min(BURST_S, BURST_SHARE * length_s))
    fields: dict[str, Field] = {
        "burst_throughput_sps": burst[0],
        "burst_latency_p50_s": burst[1],
        **_rest(rows, window, settled_block(*_pace(rows, window, scenario), heat, length_s)),
        "time_to_throttle_s": time_to_throttle(readings, window),
    }
    if not registry.scenario(scenario).timed:
        fields |= {"burst_latency_p50_s": OFFLINE, "sustained_latency_p50_s": OFFLINE}
    return Sustained(fields, _warnings(fields, readings, window, warm=bool(heat)))


def _rest(rows: Queries, window: Window, at: int | Absent) -> dict[str, Field]:
    """Return the moment of settling and the performance after it."""
    if isinstance(at, Absent):
        return dict.fromkeys(("sustained_throughput_sps", "sustained_latency_p50_s", "settled_s"), at)
    length_s = (window.stop_ns - window.start_ns) * 1e-9
    start_s = at * length_s / BLOCKS
    rate, latency = _part(rows, window, start_s, length_s)
    settled = Measured(start_s, "s", max(0.0, start_s - length_s / BLOCKS), start_s, BLOCKS)
    return {"sustained_throughput_sps": rate, "sustained_latency_p50_s": latency, "settled_s": settled}


def _part(rows: Queries, window: Window, start_s: float, stop_s: float) -> tuple[Field, Field]:
    """Return throughput and median latency of the queries done in a part of the window."""
    start, stop = (window.start_ns + round(s * 1e9) for s in (start_s, stop_s))
    done = rows.columns["done_ns"]
    inside = (done > start) & (done <= stop)
    part = Queries({name: column[inside] for name, column in rows.columns.items()})
    return throughput(part, Window(0, len(part), start, stop)), quantile_metric(
        np.asarray(part.latency_ns() * 1e-9, np.float64), 0.5
    )


def temperatures(readings: Readings, window: Window) -> dict[str, tuple[Floats, Floats]]:
    """Return channel -> (seconds since the window began, degrees Celsius), without powered-off sensors.

    A sensor counts as powered off if its last reading says so: a part that was switched off heats nothing.
    """
    out: dict[str, tuple[Floats, Floats]] = {}
    for channel in readings.channels:
        if channel.unit != "degC":
            continue
        t_ns, celsius = readings.series(channel.name)
        inside = (t_ns >= window.start_ns) & (t_ns <= window.stop_ns)
        good = inside & (celsius > _POWERED_OFF_C)
        if np.count_nonzero(good) >= BLOCKS and good[inside][-1]:
            out[channel.name] = ((t_ns[good] - window.start_ns) * 1e-9, celsius[good])
    return out


def _pace(rows: Queries, window: Window, scenario: str) -> tuple[Floats, Floats]:
    """Return (seconds since the window began, latency or time between completions) of each query that succeeded."""
    done = (rows.columns["done_ns"][rows.columns["status"] == QUERY_OK] - window.start_ns) * 1e-9
    if not registry.scenario(scenario).timed:
        done = np.sort(done)
        return done[1:], np.diff(done)
    return done, rows.latency_ns() * 1e-9


def settled_block(
    at_s: Floats, pace_s: Floats, heat: dict[str, tuple[Floats, Floats]], length_s: float
) -> int | Absent:
    """Return the first block from which everything is steady, or Absent with the unsteady figure."""
    why = ""
    for block in range(BLOCKS - MIN_REST + 1):
        start_s = block * length_s / BLOCKS
        why = _unsteady_heat(heat, start_s, length_s) or _unsteady_pace(at_s, pace_s, start_s, length_s)
        if not why:
            return block
    return Absent(f"not settled within {length_s:.0f} s: {why}")


def _unsteady_heat(heat: dict[str, tuple[Floats, Floats]], start_s: float, stop_s: float) -> str:
    """Return a sentence on the temperature that still moves from `start_s` on, or ''."""
    for name, (at, celsius) in heat.items():
        late = at >= start_s
        if at[-1] < stop_s * (1 - 1 / MIN_REST):
            return f"{name} fell silent after second {at[-1]:.0f}, so whether it still moved is not known"
        if np.count_nonzero(late) < 2 * MIN_REST:
            return (
                f"{name} has {np.count_nonzero(late)} readings from second {start_s:.0f} on: too few to tell"
            )
        t, c = at[late], celsius[late]
        slope = float(np.polyfit(t - t.mean(), c, 1)[0]) * 60
        means = _block_means(t, c, start_s, stop_s)
        if abs(slope) > SLOPE_C_PER_MIN:
            return f"{name} still moves by {slope:+.1f} degC a minute"
        if np.ptp(means) > WITHIN_C:
            return f"{name} still moves by {np.ptp(means):.1f} degC between blocks"
    return ""


def _block_means(t: Floats, values: Floats, start_s: float, stop_s: float) -> Floats:
    """Return the means of the eight equal parts of [start_s, stop_s] that hold any value."""
    part = np.minimum(((t - start_s) / (stop_s - start_s) * MIN_REST).astype(np.int64), MIN_REST - 1)
    count = np.bincount(part, minlength=MIN_REST)
    total = np.bincount(part, weights=values, minlength=MIN_REST)
    return np.asarray(total[count > 0] / count[count > 0], dtype=np.float64)


def _unsteady_pace(at_s: Floats, pace_s: Floats, start_s: float, stop_s: float) -> str:
    """Return a sentence on how much the latency drifts or steps from `start_s` on, or ''."""
    late = at_s >= start_s
    found = drift(pace_s[late])
    if found.significant and abs(found.share) >= STEADY_WITHIN:
        return f"the latency still drifts by {found.share:+.1%} to the end"
    means = _block_means(at_s[late], pace_s[late], start_s, stop_s)
    share = _step(means)
    if abs(share) >= STEADY_WITHIN:
        return f"the latency still steps by {share:+.1%}"
    error = float(means.std(ddof=1) / means.mean()) / len(means) ** 0.5 if len(means) > 1 else 1.0
    return (
        f"its mean is known to +-{error:.0%} only, parts of the run differ so much"
        if error > STEADY_ERROR
        else ""
    )


def _step(means: Floats) -> float:
    """Return the largest step in a row of means as a share of their mean, or 0 if chance explains every split."""
    n, largest = len(means), 0.0
    for k in range(1, n):
        left, right = means[:k], means[k:]
        rest = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
        error = (rest / max(n - 2, 1) * (1 / k + 1 / (n - k))) ** 0.5
        change = float(right.mean() - left.mean())
        if abs(change) > STEP_T * error and abs(change) > abs(largest):
            largest = change
    return largest / float(means.mean()) if n else 0.0


def time_to_throttle(readings: Readings, window: Window) -> Field:
    """Return the second at which the first guard began to throttle."""
    watched = holds(readings, window.start_ns, window.stop_ns)
    moments = [h.first_s for h in watched if h.throttled and h.first_s is not None]
    if moments:
        return Measured(min(moments), "s", n=len(moments))
    length_s = (window.stop_ns - window.start_ns) * 1e-9
    if watched:
        return Absent(f"no throttling in {length_s:.0f} s ({len(watched)} guards watched)")
    return Absent(f"no sign of throttling is readable here: no {PREFIX}* channel")


def _warnings(
    fields: dict[str, Field], readings: Readings, window: Window, *, warm: bool
) -> tuple[Message, ...]:
    out = []
    if not warm and isinstance(fields["settled_s"], Measured):
        what = "settled by its latencies only: no temperature could be read"
        out.append(
            Message("W-SUS-1", what, effect="A device that heats up more slowly than that would not show")
        )
    burst, rest = fields["burst_throughput_sps"], fields["sustained_throughput_sps"]
    held = [
        h for h in holds(readings, window.start_ns, window.stop_ns) if h.throttled and h.first_s is not None
    ]
    if held and isinstance(burst, Measured) and isinstance(rest, Measured):
        first = min(held, key=lambda h: h.first_s or 0.0)
        what = f"THROTTLED: {first}; burst {burst.value:.1f} samples/s, sustained {rest.value:.1f} samples/s"
        out.append(Message("W-THR-1", what, fix="better cooling or supply, or a lower --mode"))
    return tuple(out)
