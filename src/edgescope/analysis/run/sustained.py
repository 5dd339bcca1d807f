"""Burst and sustained performance: the performance of a device at first, and once it is warm.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run.slowdowns import PREFIX, holds
from edgescope.analysis.run.summary import IDLING, OFFLINE, throughput
from edgescope.errors import Message
from edgescope.records import QUERY_OK, Absent, Field, Measured, Queries, Readings, Window
from edgescope.stats import drift, quantile_metric

MIN_S = 60.0
"""Seconds; the time constant of a bare module's heat sink is minutes, so less says nothing about the long run."""
BURST_SHARE, BURST_S = 0.1, 10.0
BLOCKS = 24
MIN_REST = 8
"""Blocks that the settled part must span: a third of the window."""
WITHIN_C = 2.0
SLOPE_C_PER_MIN = 1.0
DRIFT = 0.02
NOISE = 0.05
"""Largest standard error of the mean (from the eight parts) that still counts as steady."""
STEP_T = 5.0
"""Student's t from which the two sides of a split are different levels: by chance under 2 % of the time."""
_POWERED_OFF_C = -200.0
NAMES = (
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
        return Sustained(dict.fromkeys(NAMES, IDLING))
    length_s = (window.stop_ns - window.start_ns) * 1e-9
    if length_s < MIN_S:
        reason = f"a window of {length_s:.1f} s is too short to settle: need {MIN_S:.0f} s (--soak 10min)"
        return Sustained(dict.fromkeys(NAMES, Absent(reason)))
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
    if found.significant and abs(found.share) >= DRIFT:
        return f"the latency still drifts by {found.share:+.1%} to the end"
    means = _block_means(at_s[late], pace_s[late], start_s, stop_s)
    share = _step(means)
    if abs(share) >= DRIFT:
        return f"the latency still steps by {share:+.1%}"
    error = float(means.std(ddof=1) / means.mean()) / len(means) ** 0.5 if len(means) > 1 else 1.0
    return (
        f"its mean is known to +-{error:.0%} only, parts of the run differ so much" if error > NOISE else ""
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
