"""Sensors with a known truth behind them: whatever they do to the readings, the truth lies within the bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.run.energy_integral import updates
from edgescope.analysis.run.energy_window import energy
from edgescope.records import Absent, Channel, Measured, Readings

S = 1_000_000_000
FINE = 0.001
MARGIN = 4.0


class Truth:
    """Watts on a millisecond grid, from -MARGIN on, and their integral."""

    def __init__(self, watts):
        self.watts = watts
        self.grid = np.arange(len(watts) + 1) * FINE - MARGIN
        self.used = np.concatenate(([0.0], np.cumsum(watts) * FINE))

    def at(self, t):
        return self.watts[np.clip(((np.asarray(t) + MARGIN) / FINE).astype(int), 0, len(self.watts) - 1)]

    def joules(self, a, b):
        return float(np.interp(b, self.grid, self.used) - np.interp(a, self.grid, self.used))

    @property
    def end(self):
        return self.grid[-1]


def steps(rng, seconds, dwell):
    """Power that jumps to another level and stays there for `dwell` to three times as long."""
    parts = []
    while sum(map(len, parts)) * FINE < seconds + 2 * MARGIN:
        parts.append(np.full(int(rng.uniform(1, 3) * dwell / FINE), rng.uniform(2, 30)))
    return Truth(np.concatenate(parts))


def wander(rng, seconds):
    """Power that rises and falls smoothly, and never turns within 1.5 s."""
    knots = np.cumsum(rng.uniform(1.5, 4, 40)) - MARGIN
    n = int((seconds + 2 * MARGIN) / FINE)
    return Truth(np.interp(np.arange(n) * FINE - MARGIN, knots, rng.uniform(2, 30, 40)))


def polls(rng, truth, hz, jitter, missing, twice):
    """Moments at which a sampler looked: late, sometimes not at all, sometimes twice."""
    t = np.arange(-MARGIN, truth.end, 1 / hz)
    t = np.sort(t + rng.uniform(0, jitter / hz, len(t)))
    t = t[rng.uniform(size=len(t)) >= missing]
    return np.sort(np.concatenate((t, t[rng.uniform(size=len(t)) < twice])))


def show(rng, truth, t, period, kind):
    """What the sensor shows at these moments: each update is as old as the sensor's delay when it appears."""
    ends = np.arange(-MARGIN + period * (1 + rng.uniform()), truth.end, period)
    value = (
        truth.at(ends) if kind == "gauge" else np.array([truth.joules(e - period, e) for e in ends]) / period
    )
    shown = np.searchsorted(ends + rng.uniform(0, period), t, side="right") - 1
    return t[shown >= 0], value[shown[shown >= 0]].round(3)  # sensors have digits: repeats are equal


def measured(t, watts, kind, stop):
    name = Channel("vdd_in_power_w", "W", "module", kind, "synthetic")
    readings = Readings((name,), (t * S).round().astype(np.int64), np.zeros(len(t), np.int16), watts)
    return energy(readings, 0, round(stop * S), 10)


def assert_holds(got, truth, stop):
    field, real = got.energy_j, truth.joules(0, stop)
    assert isinstance(field, Measured), field
    assert field.lo - 1e-6 * real <= real <= field.hi + 1e-6 * real


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(["gauge", "average"]),
    period=st.floats(0.05, 0.6),
    hz=st.floats(5, 30),
    stop=st.floats(4, 12),
    missing=st.sampled_from([0.0, 0.1]),
    smooth=st.booleans(),
    seed=st.integers(0, 10_000),
)
@pytest.mark.slow
def test_irregular_duplicated_and_delayed_readings_stay_within_the_bounds(
    kind, period, hz, stop, missing, smooth, seed
):
    rng = np.random.default_rng(seed)
    truth = wander(rng, stop) if smooth else steps(rng, stop, 3 * max(period, 1 / hz) + 0.4)
    t = polls(rng, truth, hz, 0.2, missing, 0.2)
    got = measured(*show(rng, truth, t, period, kind), kind, stop)
    if missing and isinstance(got.energy_j, Absent):  # several looks in a row may be among the missing ones
        assert "silent" in got.energy_j.reason
        return
    assert_holds(got, truth, stop)


@settings(max_examples=40, deadline=None)
@given(period=st.floats(0.1, 0.5), seed=st.integers(0, 10_000))
def test_an_averaging_sensor_misses_nothing_between_its_updates(period, seed):
    """Bursts far shorter than a refresh, which a gauge would see by luck only; quiet around the edges."""
    rng = np.random.default_rng(seed)
    n = int((10 + 2 * MARGIN) / FINE)
    watts = np.where(rng.uniform(size=n // 20 + 1) < 0.3, 40.0, 3.0).repeat(20)[:n]
    grid = np.arange(n) * FINE - MARGIN
    watts[(np.abs(grid) < 1.5) | (np.abs(grid - 10) < 1.5)] = 3.0
    truth = Truth(watts)
    t = polls(rng, truth, 20, 0.2, 0.0, 0.1)
    got = measured(*show(rng, truth, t, period, "average"), "average", 10)
    assert_holds(got, truth, 10)
    # two looks a refresh cannot tell two equal means from one that came late: half as sure
    assert got.energy_j.value == pytest.approx(truth.joules(0, 10), rel=0.03 if period >= 0.2 else 0.06)


def test_repeats_of_a_slow_sensor_collapse_to_their_first_appearance():
    rng = np.random.default_rng(1)
    truth = Truth(10 + np.sin(np.arange(18_000) * FINE))
    t, watts = show(rng, truth, polls(rng, truth, 10, 0.2, 0.0, 0.0), 0.43, "average")
    seen = updates((t * S).astype(np.int64), watts, 0)
    assert len(seen) == pytest.approx(len(t) / 4.3, rel=0.05)
    assert seen.refresh_s == pytest.approx(0.43, rel=0.05)
    assert 3.5 < len(seen.polls_s) / len(seen) < 5
    assert np.all(np.diff(seen.value) != 0)
    got = measured(t, watts, "average", 10)
    assert got.energy_j.n == seen.inside(10) + 1 == pytest.approx(10 / 0.43, abs=2)


def test_the_bound_of_a_slow_sensor_is_useful():
    """A load that steps inside the window, read by a 430 ms average: known to two per cent."""
    rng = np.random.default_rng(2)
    fine = np.arange(28_000) * FINE - MARGIN
    truth = Truth(np.where(fine > 7.0, 12.0, 8.0) + 0.05 * np.sin(3 * fine))
    t, watts = show(rng, truth, polls(rng, truth, 10, 0.2, 0.0, 0.0), 0.43, "average")
    got = measured(t, watts, "average", 20)
    assert_holds(got, truth, 20)
    assert (got.energy_j.hi - got.energy_j.lo) / got.energy_j.value < 0.04


def test_a_step_at_the_edge_of_the_window_widens_the_bounds():
    rng = np.random.default_rng(3)
    truth = Truth(np.where(np.arange(18_000) * FINE - MARGIN > 0.0, 12.0, 3.0))
    t, watts = show(rng, truth, polls(rng, truth, 10, 0.2, 0.0, 0.0), 0.43, "average")
    got = measured(t, watts, "average", 10)
    assert_holds(got, truth, 10)
    assert got.energy_j.hi - got.energy_j.lo > 9.0 * 0.43


def test_a_value_that_lasts_is_held_and_not_joined_by_a_ramp():
    t = np.arange(-2, 12, 0.1)
    watts = np.where(t < 5.95, 5.0 + 0.01 * (np.arange(len(t)) % 2) * (t < 2), 10.0)
    got = measured(t, watts, "gauge", 10)
    assert got.energy_j.value == pytest.approx(5 * 5.9 + 10 * 4.1, rel=0.01)


def test_readings_that_are_no_numbers_are_no_readings():
    t = np.arange(-1, 11, 0.1)
    watts = np.where(np.arange(len(t)) % 7 == 3, np.nan, 5.0 + t)
    got = measured(t, watts, "gauge", 10)
    assert got.energy_j.value == pytest.approx(100, rel=1e-3)


def test_a_wall_clock_is_not_in_it_a_row_out_of_order_is_put_in_its_place():
    t = np.arange(-1, 11, 0.1)
    shuffled = np.random.default_rng(0).permutation(len(t))
    got = measured(t[shuffled], (5.0 + t)[shuffled], "gauge", 10)
    assert got.energy_j.value == pytest.approx(100)


def smeared(rng, truth, t, period, window):
    """What a sensor shows that means over a window longer than its refresh."""
    ends = np.arange(-MARGIN + window + period * rng.uniform(), truth.end, period)
    value = np.array([truth.joules(e - window, e) for e in ends]) / window
    shown = np.searchsorted(ends, t, side="right") - 1
    return t[shown >= 0], value[shown[shown >= 0]].round(3)


@pytest.mark.parametrize("warmup", [0.1, 0.5])
def test_an_average_that_is_declared_a_gauge_stays_within_the_bounds(warmup):
    """The mean of a second, shown ten times in it, lags behind a short warm-up; as a gauge it would be trusted."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        grid = np.arange(int((2 + 2 * MARGIN) / FINE)) * FINE - MARGIN
        truth = Truth(np.where((grid > -warmup) & (grid < 2), 30.0, 5.0))
        t, watts = smeared(rng, truth, polls(rng, truth, 10, 0.2, 0.0, 0.0), 0.1, 1.0)
        assert_holds(measured(t, watts, "gauge", 2), truth, 2)


def test_a_gauge_that_is_known_to_show_the_moment_has_the_narrower_bounds():
    rng = np.random.default_rng(1)
    truth = wander(rng, 4)
    t, watts = show(rng, truth, polls(rng, truth, 20, 0.2, 0.0, 0.0), 0.1, "gauge")
    widths = []
    for source in (
        "somebody's meter",
        "NVML_FI_DEV_POWER_INSTANT",
        "power1; refresh 35 ms",
        "tegrastats VDD_IN",
    ):
        channel = Channel("vdd_in_power_w", "W", "module", "gauge", source)
        readings = Readings((channel,), (t * S).round().astype(np.int64), np.zeros(len(t), np.int16), watts)
        got = energy(readings, 0, 4 * S, 10)
        assert_holds(got, truth, 4)
        widths.append(got.energy_j.hi - got.energy_j.lo)
    assert widths[0] > 1.2 * widths[1] and len(set(widths[1:])) == 1


def test_equal_means_of_a_regular_sensor_are_repeats_and_not_late():
    """Bursts make equal means in a row: a value that lasts two refreshes to the poll was measured twice."""
    t = np.arange(0, 10, 0.05)
    value = np.array([5, 7, 7, 6, 9, 9, 8, 5, 6, 6, 7, 8, 5, 5, 9, 7, 6, 8, 9, 5])[(t / 0.5).astype(int)]
    seen = updates((t * S).astype(np.int64), value.astype(float), 0)
    assert seen.refresh_s == pytest.approx(0.5, abs=0.01) and seen.slowest_s < 0.6


def test_two_updates_of_which_the_first_came_unseen_may_be_further_apart():
    t = np.array([0.0, 0.2, 0.8, 1.0, 4.0, 4.2])
    seen = updates((t * S).astype(np.int64), np.array([1.0, 1.0, 2.0, 3.0, 3.0, 3.0]), 0)
    assert seen.slowest_s == pytest.approx(0.8), "0.2 s between the looks, and 0.6 s in which nobody looked"


def test_bounds_at_two_seconds_are_a_few_errors_wide():
    """A steady load behind a slow average: what the delay may move is read off the curve, not off its extremes."""
    ratios = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        truth = wander(rng, 2)
        t = polls(rng, truth, 10, 0.2, 0.0, 0.0)
        got = measured(*show(rng, truth, t, 0.43, "average"), "average", 2)
        assert_holds(got, truth, 2)
        ratios.append((got.energy_j.hi - got.energy_j.lo) / 2 / got.energy_j.value)
    assert np.median(ratios) < 0.18  # 0.21 by the extremes of power around the edges
