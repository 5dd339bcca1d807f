from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgescope.analysis.run import energy_window
from edgescope.analysis.run.energy_window import MIN_UPDATES, energies, energy
from edgescope.records import Absent, Channel, Measured, Readings

S = 1_000_000_000


def make(*series, absent=()):
    """(name, scope, t_s, values) -> Readings; `absent` are (name, reason)."""
    channels = [
        Channel(n, "J" if "energy" in n else "W", scope, kind(n), "test") for n, scope, _, _ in series
    ]
    channels += [Channel(n, "W", "gpu_board", "gauge", "test", "unsupported", why) for n, why in absent]
    t = [np.asarray(t, float) for _, _, t, _ in series]
    return Readings(
        tuple(channels),
        np.concatenate([(x * S).round().astype(np.int64) for x in t] or [np.empty(0, np.int64)]),
        np.concatenate([np.full(len(x), i, np.int16) for i, x in enumerate(t)] or [np.empty(0, np.int16)]),
        np.concatenate([np.asarray(v, float) for *_, v in series] or [np.empty(0)]),
    )


def kind(name):
    return "counter" if "energy" in name else "average" if "average" in name else "gauge"


def joules(readings, start, stop, samples=10, **kw):
    return energy(readings, int(start * S), int(stop * S), samples, **kw)


T = np.arange(0, 10.01, 0.1)


def test_a_ramp_is_integrated_exactly_with_interpolated_edges():
    got = joules(make(("gpu0_power_w", "gpu_board", T, 5 + 2 * T)), 1.03, 8.57, samples=4)
    truth = 5 * 7.54 + (8.57**2 - 1.03**2)
    assert (got.meter, got.scope, got.method) == ("gpu0", "gpu_board", "trapezoid")
    assert got.energy_j.value == pytest.approx(truth)
    assert got.power_w.value == pytest.approx(truth / 7.54)
    assert got.energy_per_sample_j.value == pytest.approx(truth / 4)
    assert got.energy_j.unit == "J" and got.power_w.unit == "W"
    assert not got.warnings


def test_a_rail_that_reads_below_zero_has_bounds_around_its_energy():
    """An idle Thor's VDD_GPU prints -392 mW: the sensor's offset, told as it is."""
    watts = np.where(T % 1 < 0.5, -0.392, -0.196)
    got = joules(make(("vdd_gpu_power_w", "module", T, watts)), 0, 10)
    assert got.energy_j.value == pytest.approx(-2.94, abs=0.1)
    assert got.energy_j.lo < got.energy_j.value < got.energy_j.hi
    field = energy_window.ratio(np.resize([-1.0, -2.0, -1.5], 30), np.full(30, 2.0))
    assert field.lo < field.value < field.hi


def test_a_step_between_readings_is_not_smeared_over_a_steady_stretch():
    watts = np.where(T < 5, 5.0, 10.0)
    got = joules(make(("gpu0_power_w", "gpu_board", T, watts)), 0, 10)
    assert got.energy_j.value == pytest.approx(75, abs=0.5)


def test_repeated_rows_count_once():
    t = np.repeat(T, 3)
    got = joules(make(("gpu0_power_w", "gpu_board", t, np.repeat(5 + T, 3))), 0, 10)
    assert got.energy_j.value == pytest.approx(100)
    assert got.energy_j.n == 101  # the value in force at the start, and one at each of 100 polls


def test_polling_faster_than_the_sensor_warns():
    fast = np.arange(0, 10.001, 0.01)
    got = joules(make(("gpu0_power_w", "gpu_board", fast, 5 + np.floor(fast))), 0, 10)
    assert got.energy_j.n == 11
    assert got.warnings[0].code == "W-PWR-3" and re.search(r" 10\.0 s .* 11 ", got.warnings[0].what)
    low, high = got.energy_j.lo, got.energy_j.hi
    assert f"Its energy lies between {low:.3g} and {high:.3g} J (-" in str(got.warnings[0])
    assert got.warnings[0].fix == "--duration 20s", "longer than the window that was too short"


def test_a_mean_since_the_start_is_no_meter():
    got = joules(make(("vdd_in_power_since_start_w", "module", T, np.full(len(T), 5.2))), 0, 10)
    assert isinstance(got.energy_j, Absent)
    seldom = ("vdd_in_power_w", "module", T[::10], 14.5 + 0.01 * (np.arange(11) % 2))
    often = ("vdd_in_power_since_start_w", "module", T, 5 + 0.001 * T)
    assert joules(make(seldom, often), 0, 10).power_w.value == pytest.approx(14.5, rel=0.02)


def test_a_counter_wins_and_its_steps_are_bounded():
    truth = 20.0 * T
    steps = np.floor(T / 0.5) * 0.5 * 20.0  # the counter moves every 0.5 s
    r = make(
        ("gpu0_power_w", "gpu_board", T, np.full(len(T), 99.0)), ("gpu0_energy_j", "gpu_board", T, steps)
    )
    got = joules(r, 1.23, 8.41)
    assert got.method == "counter"
    assert got.energy_j.value == pytest.approx(20 * (8.41 - 1.23), rel=0.02)
    assert got.energy_j.lo <= np.interp(8.41, T, truth) - np.interp(1.23, T, truth) <= got.energy_j.hi
    assert not got.warnings


@settings(max_examples=60, deadline=None)
@given(
    start=st.floats(1.5, 4.0),
    length=st.floats(1.5, 4.0),
    period=st.floats(0.05, 0.7),
    seed=st.integers(0, 99),
)
def test_the_counters_bounds_hold_whatever_the_load(start, length, period, seed):
    rng = np.random.default_rng(seed)
    fine = np.arange(0, 10.0001, 0.001)
    truth = np.concatenate(
        ([0.0], np.cumsum(np.repeat(rng.uniform(1, 50, 100), 100)[: len(fine) - 1]) * 0.001)
    )
    updates = np.floor(fine / period) * period
    counter = np.interp(updates, fine, truth)
    shown = np.interp(T, fine, np.arange(len(fine))).astype(int)
    got = joules(make(("cpu_package_energy_j", "cpu_package", T, counter[shown])), start, start + length)
    used = np.interp(start + length, fine, truth) - np.interp(start, fine, truth)
    assert isinstance(got.energy_j, Measured)
    assert got.energy_j.lo is not None and got.energy_j.hi is not None
    assert got.energy_j.lo - 1e-6 <= used <= got.energy_j.hi + 1e-6


def edges_only(start, stop, late, last=14.0):
    """When a dear counter is read: at first, each 5 s, a moment after each edge and three times more, at last."""
    near = [edge + late + 0.1 * k for edge in (start, stop) for k in range(4)]
    return np.array(sorted({0.0, 5.0, 10.0, last, *near}))


def widest(polls, edge, period, late, watts=120):
    """How far apart a counter's bounds at an edge may lie: its next update but one, against what it had counted surely.

    That is the last value seen before, or the one seen `late` after the edge less twice the steepest power until then,
    which whole periods make look higher than it was. The reading after the edge says nothing where the one before is
    no more than ten times as distant.
    """
    lately = edge - polls[polls <= edge][-1]
    before = watts * (late + 0.1 + lately + period)
    soon = watts * (0.1 + period + 2 * late * (1 + period / 0.1))
    return min(before, soon) if lately > 10 * late else before


@settings(max_examples=80)
@example(start=2.59375, length=6.0, period=0.03125, late=0.01953125, seed=0)
@example(start=4.0, length=1.1, period=0.1, late=0.02, seed=0)
@given(
    start=st.floats(0.8, 4.0),
    length=st.floats(1.0, 8.0),
    period=st.floats(0.02, 0.1),
    late=st.floats(0.0005, 0.02),
    seed=st.integers(0, 99),
)
@pytest.mark.slow
def test_a_counter_read_about_the_edges_alone_has_bounds_that_hold(start, length, period, late, seed):
    rng, stop = np.random.default_rng(seed), start + length
    fine = np.arange(0, 14.0001, 0.001)
    watts = np.repeat(rng.uniform(60, 120, 141), 100)[: len(fine)]
    truth = np.concatenate(([0.0], np.cumsum(watts[:-1]) * 0.001))
    polls = edges_only(start, stop, late)
    counter = np.interp(np.floor(polls / period) * period, fine, truth)
    used = np.interp(stop, fine, truth) - np.interp(start, fine, truth)
    got = joules(make(("gpu0_energy_j", "gpu_board", polls, counter)), start, stop)
    field = got.energy_j
    assert field.lo - 1e-6 <= used <= field.hi + 1e-6
    assert field.hi - field.lo <= sum(widest(polls, edge, period, late) for edge in (start, stop)) + 1e-6
    assert abs(field.value - used) <= 120 * (period + 0.1)


def test_a_load_that_jumps_as_the_window_ends_is_allowed_for():
    fine = np.arange(0, 14.0001, 0.001)
    truth = np.concatenate(([0.0], np.cumsum(np.where(fine < 9.0, 10.0, 1000.0)[:-1]) * 0.001))
    polls = edges_only(6.0, 9.0, 0.02)
    got = joules(make(("gpu0_energy_j", "gpu_board", polls, np.interp(polls, fine, truth))), 6.0, 9.0)
    assert got.energy_j.lo <= 30.0 <= got.energy_j.hi  # the reading 20 ms after the stop shows 20 J more


def test_few_updates_of_a_counter_are_enough_where_its_bounds_are_narrow():
    polls = edges_only(6.0, 9.0, 0.003)
    counter = 100 * np.floor(polls / 0.02) * 0.02
    got = joules(
        make(("gpu0_power_w", "gpu_board", T, 90 + T % 1), ("gpu0_energy_j", "gpu_board", polls, counter)),
        6,
        9,
    )
    assert got.energy_j.n < MIN_UPDATES["counter"] and not got.warnings
    assert got.method == "counter" and got.energy_j.value == pytest.approx(300, rel=0.02)


def test_a_counter_read_about_the_edges_wins_over_power_and_takes_its_course():
    start, stop = 2.0, 12.0
    fine = np.arange(0, 14.0001, 0.001)
    watts = np.where(fine % 2 < 1, 50.0, 150.0)
    truth = np.concatenate(([0.0], np.cumsum(watts[:-1]) * 0.001))
    polls, often = edges_only(start, stop, 0.003), np.arange(0, 14.001, 0.1)
    counter = np.interp(np.floor(polls / 0.02) * 0.02, fine, truth)
    power = 1.03 * np.interp(often, fine, watts) + 0.001 * often  # a gain of 3 %, and never the same twice
    got = joules(
        make(("gpu0_power_w", "gpu_board", often, power), ("gpu0_energy_j", "gpu_board", polls, counter)),
        start,
        stop,
    )
    assert got.method == "counter" and not got.warnings
    assert got.energy_j.value == pytest.approx(1000, rel=0.01)
    seconds = np.arange(0.0, 10.1, 0.5)
    each = np.diff(got.total.curve.at(seconds))
    assert each.sum() == pytest.approx(1000, rel=0.01)
    assert each.max() / each.min() > 2.5, (
        "the course of power, where the counter alone would be a straight line"
    )
    alone = joules(make(("gpu0_energy_j", "gpu_board", polls, counter)), start, stop)
    assert alone.total.refresh_s > 2, "no interval over blocks that the counter cannot tell apart"


def test_a_counter_read_too_seldom_gives_way_to_power():
    seldom = np.array([0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    r = make(("gpu0_energy_j", "gpu_board", seldom, 20 * seldom), ("gpu0_power_w", "gpu_board", T, 15 + T))
    assert joules(r, 3, 7).method == "trapezoid"
    assert joules(r, 0.5, 10).method == "counter"
    alone = joules(make(("gpu0_energy_j", "gpu_board", seldom, 20 * seldom)), 3, 7)
    assert alone.method == "counter" and alone.energy_j.value == pytest.approx(80)
    assert alone.warnings


def test_no_bounds_without_an_update_outside_the_window():
    got = joules(make(("gpu0_energy_j", "gpu_board", T, 20 * T)), 0.0, 10.0)
    assert got.energy_j.value == pytest.approx(200)
    assert got.energy_j.hi is None


@pytest.mark.parametrize(
    ("name", "t", "values", "word"),
    [
        ("gpu0_energy_j", T, np.full(len(T), 7.0), "did not move"),
        ("gpu0_energy_j", T, np.where(T < 5, 100 + T, T), "went backwards"),
        ("gpu0_power_w", T, np.zeros(len(T)), "0 W throughout"),
        ("gpu0_power_w", T[:60], np.full(60, 5.0), "span 4.90 s of a window of 8.00 s"),
        ("gpu0_power_w", np.delete(T, slice(30, 60)), np.full(len(T) - 30, 5.0), "silent for 3.10 s"),
        ("gpu0_power_w", [5.0], [5.0], "too few"),
    ],
)
def test_a_meter_that_cannot_be_trusted_is_absent_with_the_reason(name, t, values, word):
    got = joules(make((name, "gpu_board", t, values)), 1.0, 9.0)
    for field in (got.energy_j, got.power_w, got.energy_per_sample_j):
        assert isinstance(field, Absent)
        assert word in field.reason


def test_without_a_sensor_the_reasons_are_listed():
    why = [("cpu_package_energy_j", "RAPL: no package zone"), ("gpu_power_w", "NVML: no library")]
    got = joules(make(absent=why), 0, 1)
    assert got.energy_j.reason.startswith("no power sensor: ")
    assert "RAPL: no package zone" in got.energy_j.reason and "NVML: no library" in got.energy_j.reason
    assert "nothing" not in joules(make(), 0, 1).energy_j.reason


def test_the_widest_scope_comes_first_and_a_meter_can_be_named():
    r = make(
        ("cpu_package_energy_j", "cpu_package", T, 10 * T),
        ("vdd_in_power_w", "module", T, np.full(len(T), 15.0)),
        ("gpu0_power_average_w", "gpu_board", T, np.full(len(T), 70.0)),
    )
    assert [e.meter for e in energies(r, S, 9 * S, 1)] == ["vdd_in", "gpu0", "cpu_package"]
    assert joules(r, 1, 9).scope == "module"
    assert joules(r, 1, 9, meter="cpu_package").energy_j.value == pytest.approx(80)
    assert joules(r, 1, 9, meter="gpu0").method == "trapezoid of averages"
    assert "no meter called 'dla'" in joules(r, 1, 9, meter="dla").energy_j.reason


def test_of_instant_values_and_averages_those_with_the_narrower_bounds_are_taken():
    t = np.arange(0, 60, 0.1)
    steady = ("gpu0_power_average_w", "gpu_board", t, 55 + np.sin(t) / 10)
    jumping = ("gpu0_power_w", "gpu_board", t, np.where(np.arange(len(t)) % 2, 100.0, 10.0))
    assert joules(make(jumping, steady), 5, 55).method == "trapezoid of averages"
    ramps = [(name, "gpu_board", t, 10 * t) for name in ("gpu0_power_w", "gpu0_power_average_w")]
    assert joules(make(*ramps), 5, 8).method == "trapezoid"  # averages smear the edges
    counter = ("gpu0_energy_j", "gpu_board", t, 55 * t)
    assert joules(make(jumping, steady, counter), 5, 55).method == "counter"


def test_no_samples_means_no_energy_per_sample():
    got = joules(make(("gpu0_power_w", "gpu_board", T, 5 + T)), 1, 9, samples=0)
    assert isinstance(got.energy_per_sample_j, Absent)
    assert isinstance(got.energy_j, Measured)


def test_a_gpu_boards_meter_says_nothing_of_a_cpus_work():
    board = ("gpu0_power_w", "gpu_board", T, np.full(len(T), 80.0))
    assert isinstance(joules(make(board), 1, 9).energy_j, Measured)
    blind = joules(make(board), 1, 9, device="cpu")
    assert isinstance(blind.energy_j, Absent)
    package = ("cpu_package_power_w", "cpu_package", T, np.full(len(T), 5.0))
    assert joules(make(board, package), 1, 9, device="cpu").scope == "cpu_package"
    blind = joules(make(package), 1, 9, device="cuda")
    assert isinstance(blind.energy_j, Absent)
