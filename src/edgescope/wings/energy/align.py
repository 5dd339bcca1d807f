"""Align a power log from another clock with a run's own time, by the edges of the load.

Two clocks that were never synchronised differ by minutes or years, but both see the step in power when the load
begins and ends. The log is correlated with the known load (idle, then busy, then idle again) at every offset at which
the log covers it. The best offset counts only if the step stands out (the load explains most of the log's
variance) and no other offset does nearly as well: a log of two equal runs cannot say which of them was ours. Then
each edge is placed separately by least squares; the difference between the two is the drift between the clocks.

`wall` gives a stored run's energy at the wall from an external meter's log: aligned, integrated, with its uncertainty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgescope.analysis.run.energy import A_SAMPLE, Consumption, consumption
from edgescope.analysis.run.energy_integral import Floats
from edgescope.analysis.run.energy_window import energies
from edgescope.errors import UsageError
from edgescope.records import Channel, Field, Idle, Measured, Queries, Readings, Result, Window
from edgescope.stats.intervals import t_quantile
from edgescope.wings.energy.meter_log import MeterLog

EXPLAINED = 0.5
"""Share of the log's variance that the load must explain at the best offset."""
RIVAL = 0.8
"""The answer is ambiguous if another offset explains at least this share of the best offset's variance."""
ROWS = 3
"""Least rows of the log in the shorter idle stretch: with fewer, no edge can be seen."""
MAX_DRIFT = 0.02
"""A log whose clock runs more than this faster or slower has lost rows or is not of this run."""
_BINS = 500
"""Least number of steps of the coarse search per run."""
_POINTS = 161
"""Offsets of each of the two fine searches at an edge."""


@dataclass(frozen=True)
class Load:
    """A run's load: idle in [start, rise] and [fall, stop], with the busy time up to any moment between."""

    start_s: float
    rise_s: float
    fall_s: float
    stop_s: float
    busy: Callable[[Floats], Floats]
    """Moments -> seconds for which at least one query had been in flight by then."""

    def level(self, t_s: Floats, width_s: float) -> Floats:
        """Return the share of the time around each moment for which the load was on."""
        return (self.busy(t_s + width_s / 2) - self.busy(t_s - width_s / 2)) / width_s


@dataclass(frozen=True)
class Alignment:
    """The meter's time is the run's plus `offset_s` at the rise; its clock runs faster by the share `drift`."""

    offset_s: float
    uncertainty_s: float
    drift: float
    drift_uncertainty: float
    explained: float
    """Share of the log's variance that the load explains."""
    step_w: float
    """Power under load minus power when idle."""
    rise_s: float
    """The run's time at which offset_s holds."""

    @property
    def drifts(self) -> bool:
        """Whether the drift is more than the uncertainty of the two edges."""
        return abs(self.drift) > self.drift_uncertainty

    def run_time(self, t_s: Floats) -> Floats:
        """Return the run's time for moments on the meter's clock; a drift within its uncertainty counts as none."""
        rate = self.drift if self.drifts else 0.0
        return self.rise_s + (t_s - self.offset_s - self.rise_s) / (1 + rate)


def load(queries: Queries, idle: tuple[Idle, ...], origin_ns: int) -> Load:
    """Return the load of a run in seconds since `origin_ns`; UsageError if idle stretches do not frame it."""
    at = {i.when: ((i.start_ns - origin_ns) / 1e9, (i.stop_ns - origin_ns) / 1e9) for i in idle}
    if {"before", "after"} - set(at):
        raise _no(
            "the run has no idle stretch before and after its load", fix="bench ... --idle 10s, metered"
        )
    issued, done = (queries.columns[name] for name in ("issued_ns", "done_ns"))
    ended = done >= 0
    busy = _busy((issued[ended] - origin_ns) / 1e9, (done[ended] - origin_ns) / 1e9)
    return Load(*at["before"], *at["after"], busy)


def _busy(begin: Floats, end: Floats) -> Callable[[Floats], Floats]:
    """Return the time covered by any of the intervals, as a function of the moment."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate(([True], begin[1:] > end[:-1]))
    first, last = begin[fresh], end[np.concatenate((fresh[1:], [True]))]
    by_then = np.cumsum(last - first)
    t = np.column_stack((first, last)).ravel()
    covered = np.column_stack((by_then - (last - first), by_then)).ravel()
    return lambda x: np.interp(x, t, covered)


def align(log: MeterLog, run: Load) -> Alignment:
    """Return the alignment of the log with the run's time; UsageError if no edge stands out."""
    shortest = min(run.rise_s - run.start_s, run.stop_s - run.fall_s, run.fall_s - run.rise_s)
    if log.period_s * ROWS > shortest:
        raise _no(
            f"the meter writes a row every {log.period_s:.3g} s, too slowly for a stretch of {shortest:.3g} s"
        )
    guess, explained = _coarse(log, run, shortest)
    reach = shortest / 2
    rise, rise_error, step = _edge(log, run, guess, run.rise_s, reach)
    fall, fall_error, _ = _edge(log, run, guess, run.fall_s, reach)
    span = run.fall_s - run.rise_s
    drift, error = (fall - rise) / span, (fall_error + rise_error) / span
    if abs(drift) > MAX_DRIFT and abs(drift) > error:
        raise _no(
            f"the meter's clock runs {drift:+.1%} off over this run: it has lost rows, or is of another run"
        )
    if abs(drift) > error:
        return Alignment(rise, max(rise_error, fall_error), drift, error, explained, step, run.rise_s)
    return Alignment(
        (rise + fall) / 2, max(rise_error, fall_error), drift, error, explained, step, run.rise_s
    )


def _no(
    what: str,
    *,
    fix: str = "a longer --idle, a steadier load, a log cut to this run, or another --time-unit",
) -> UsageError:
    return UsageError("E-METER-2", what, effect="The log cannot be placed on the run's time", fix=fix)


def _coarse(log: MeterLog, run: Load, shortest: float) -> tuple[float, float]:
    """Return (offset, share of variance explained) of the one offset at which the load fits the log."""
    length = run.stop_s - run.start_s
    step = max(log.period_s / 2, length / _BINS)
    grid = np.arange(0.0, log.t_s[-1] + step / 2, step)
    watts = np.interp(grid, log.t_s, log.watts)
    level = run.level(run.start_s + np.arange(0.0, length, step), max(step, log.period_s))
    if len(grid) < len(level):
        raise _no(f"the log covers {log.t_s[-1]:.1f} s, the run and its idle stretches take {length:.1f} s")
    fit = _explained(watts, level)
    best = int(np.argmax(fit))
    if fit[best] < EXPLAINED:
        share = f"{fit[best]:.0%}"
        raise _no(f"no load edge stands out in the log: at best the load explains {share} of its variance")
    away = np.abs(np.arange(len(fit)) - best) * step > shortest / 2
    rivals = np.where(away, fit, 0.0)
    rival = int(np.argmax(rivals))
    if rivals[rival] > RIVAL * fit[best]:
        apart, both = abs(rival - best) * step, f"{fit[best]:.0%} and {rivals[rival]:.0%} explained"
        raise _no(
            f"the run fits the log at two places {apart:.1f} s apart ({both})", fix="a log cut to this run"
        )
    return best * step - run.start_s, float(fit[best])


def _explained(watts: Floats, level: Floats) -> Floats:
    """Return, at each shift, the squared correlation of the level with the log; 0 if it is not positive."""
    n = len(level)
    shape = level - level.mean()
    centred = watts - watts.mean()
    above = np.correlate(centred, shape, mode="valid")
    sums, squares = (np.concatenate(([0.0], np.cumsum(x))) for x in (centred, centred**2))
    spread = squares[n:] - squares[:-n] - (sums[n:] - sums[:-n]) ** 2 / n
    scale = float(shape @ shape) * np.maximum(spread, 1e-12 * max(float(squares[-1]), 1e-300))
    return np.where(above > 0, above**2 / scale, 0.0) if scale.any() else np.zeros_like(above)


def _edge(log: MeterLog, run: Load, guess: float, edge_s: float, reach: float) -> tuple[float, float, float]:
    """Return (offset, its uncertainty, step in W) by least squares over the rows around one edge.

    The uncertainty has three parts: the offset at which the sum of squares exceeds its least by F(1, n - 3) at 95 %;
    half a row (a meter does not say whether a row is the mean since the last one or the moment's), or half of the gap
    there; and half of the edge's own width, because no log can say whether a ramp is the machine's, which follows the
    load, or the meter's, which may be centred on it.
    """
    near = np.abs(log.t_s - guess - edge_s) <= reach
    t, watts = log.t_s[near], log.watts[near]
    if len(t) < 2 * ROWS - 1:
        raise _no(f"only {len(t)} rows of the log lie around an edge of the load")
    centre, width, period = guess, reach / 2, log.period_s
    critical = t_quantile(0.975, len(t) - 3) ** 2 / (len(t) - 3)
    for _ in range(2):
        offsets = centre + np.linspace(-width, width, _POINTS)
        squares, steps = _squares(watts, [run.level(t - o, period) for o in offsets])
        best = int(np.argmin(squares))
        limit = squares[best] * (1 + critical) + 1e-12 * float(np.sum(watts**2))
        pitch, half = float(offsets[1] - offsets[0]), float(np.ptp(offsets[squares <= limit])) / 2
        centre, width = float(offsets[best]), max(4 * half, 2 * pitch)
    widths = np.linspace(period, max(reach, period), _POINTS)
    squares, _ = _squares(watts, [run.level(t - centre, w) for w in widths])
    limit = float(squares.min()) * (1 + critical) + 1e-12 * float(np.sum(watts**2))
    ramp = float(widths[squares <= limit].max()) - period
    return centre, half + pitch + (_gap(t, centre + edge_s, period) + ramp) / 2, float(steps[best])


def _gap(t: Floats, edge_s: float, period: float) -> float:
    """Return the longest time without a row within two rows of an edge, at least the usual time between rows."""
    near = np.abs(t[1:] - edge_s) <= np.diff(t) + 2 * period
    return float(max(period, np.diff(t)[near].max(initial=0.0)))


def _squares(watts: Floats, of: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return (residual sum of squares, step in W) of watts = a + step x level for each level."""
    levels = np.array(of)
    shape, centred = levels - levels.mean(axis=1, keepdims=True), watts - watts.mean()
    power = np.maximum(np.einsum("ij,ij->i", shape, shape), 1e-12)
    step = shape @ centred / power
    return np.asarray(centred @ centred - step**2 * power), np.asarray(step)


METER = "meter"
_RAIL = re.compile(r"(?i)power from '(vdd|vin|pom|sys|gpu|cpu|soc)")


@dataclass(frozen=True)
class Wall:
    """The alignment of the log, and the energy that the run used by it."""

    alignment: Alignment
    consumption: Consumption
    scope: str = "wall"


def wall(result: Result, log: MeterLog, scope: str = "") -> Wall:
    """Return the run's energy by the meter's log; UsageError if the two cannot be aligned.

    The default scope is the wall; a column named like a board's rail needs a scope given.

    The ends of every figure are moved outwards by the effect of the offset's uncertainty.
    """
    if result.queries is None or result.window is None:
        raise UsageError("E-METER-3", f"the result {result.id} holds no queries to place the log by")
    if not scope and _RAIL.search(log.columns):
        what = f"the log is of a rail, not of the wall: {log.columns}"
        raise UsageError("E-METER-1", what, effect="The log was not used", fix="--scope module")
    window = result.window
    placed = align(log, load(result.queries, result.idle, window.start_ns))
    readings = _readings(log, placed, window, scope or "wall")
    spent = consumption(
        readings, result.queries, window, idle=result.idle, meter=METER, colocated=result.trial.colocated
    )
    error = _unsure(readings, window, placed)
    metrics, warnings = _widened(spent.metrics, error, window), (*log.notes, *spent.warnings)
    return Wall(placed, replace(spent, metrics=metrics, warnings=warnings), scope or "wall")


def _readings(log: MeterLog, placed: Alignment, window: Window, scope: str) -> Readings:
    """Return the log as readings on the run's clock: a gauge, since no log says over which time its rows are means."""
    t_ns = window.start_ns + (placed.run_time(log.t_s) * 1e9).round().astype(np.int64)
    channel = Channel(f"{METER}_power_w", "W", scope, "gauge", log.columns)
    return Readings((channel,), t_ns, np.zeros(len(t_ns), np.int16), log.watts)


def _unsure(readings: Readings, window: Window, placed: Alignment) -> float:
    """Return how many joules the window's energy may be off because of the uncertain offset."""
    found = energies(readings, window.start_ns, window.stop_ns, 0)
    total = found[0].total if found else None
    if total is None:
        return 0.0
    stop = (window.stop_ns - window.start_ns) / 1e9
    shifts = np.linspace(-placed.uncertainty_s, placed.uncertainty_s, 21)
    moved = total.curve.at(stop + shifts) - total.curve.at(shifts)
    rate = placed.drift_uncertainty * total.joules if placed.drifts else 0.0
    return (
        float(np.abs(moved - total.curve.at(np.array([stop])) + total.curve.at(np.array([0.0]))).max()) + rate
    )


def _widened(metrics: Mapping[str, Field], error_j: float, window: Window) -> dict[str, Field]:
    """Return the metrics with the ends of power and energy moved outwards."""
    seconds = (window.stop_ns - window.start_ns) / 1e9
    whole, per = metrics["energy_j"], metrics["energy_per_sample_j"]
    a_sample = per.value / whole.value if isinstance(per, Measured) and isinstance(whole, Measured) else 0.0
    share = {"power_w": 1 / seconds, "energy_j": 1.0, "energy_dynamic_j": 1.0}
    share |= dict.fromkeys(A_SAMPLE, a_sample)
    return {name: _outwards(field, error_j * share.get(name, 0.0)) for name, field in metrics.items()}


def _outwards(field: Field, by: float) -> Field:
    if not isinstance(field, Measured) or by == 0:
        return field
    return replace(
        field,
        lo=None if field.lo is None else field.lo - by,
        hi=None if field.hi is None else field.hi + by,
    )
