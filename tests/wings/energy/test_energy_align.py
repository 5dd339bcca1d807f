"""Placing a log on a run's time: the parts of the search against what they mean, and whole logs to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.records import QUERY_DTYPES, Absent, Channel, Idle, Measured, Queries, Readings, Window
from edgescope.wings.energy.align import (
    Alignment,
    Load,
    _coarse,
    _edge,
    _explained,
    _gap,
    _squares,
    _unsure,
    _widened,
    align,
    load,
)
from edgescope.wings.energy.meter_log import MeterLog

S = 1_000_000_000


def run(before: float = 8.0, busy: float = 20.0, after: float = 8.0) -> Load:
    return Load(-before, 0.0, busy, busy + after, lambda t: np.clip(t, 0.0, busy))


def log(
    of: Load,
    hz: float = 4.0,
    before: float = 5.0,
    after: float = 5.0,
    drift: float = 0.0,
    noise: float = 0.0,
    lost: float = 0.0,
) -> MeterLog:
    """6 W, and 14 W under load, each row the mean of the time around it; none for `lost` seconds about the fall."""
    t = np.arange(of.start_s - before, of.stop_s + after, 1 / hz)
    t = t[np.abs(t - of.fall_s) > lost / 2] if lost else t
    clock, rng = t * (1 + drift), np.random.default_rng(0)
    return MeterLog(clock - clock[0], 6 + 8 * of.level(t, 1 / hz) + rng.normal(0, noise, len(t)), "")


def refusal(call: object, *args: object) -> str:
    with pytest.raises(UsageError) as found:
        call(*args)  # type: ignore[operator]
    assert found.value.code == "E-METER-2"
    return str(found.value)


def test_the_level_is_the_share_of_the_time_around_a_moment():
    level = run(busy=10.0).level(np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 5.0, 10.0, 11.0]), 2.0)
    assert level.tolist() == [0, 0, 0.25, 0.5, 0.75, 1, 0.5, 0]


def test_a_load_is_on_while_any_query_that_ended_is_in_flight():
    issued, done = [-1.0, 3.0, 1.0, 10.0, 20.0], [0.0, 5.0, 4.0, 12.0, -1.0]
    columns = {name: np.zeros(5, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["issued_ns"] = (np.array(issued) * S).astype(np.int64)
    columns["done_ns"] = np.array([x if x < 0 else x * S for x in done]).astype(np.int64)
    stretches = (Idle("after", 14 * S, 18 * S), Idle("before", -6 * S, -2 * S))
    for origin in (0, 2):
        found = load(Queries(columns), stretches, origin * S)
        edges = (found.start_s, found.rise_s, found.fall_s, found.stop_s)
        assert edges == (-6 - origin, -2 - origin, 14 - origin, 18 - origin)
        t = np.array([-2.0, -0.5, 0, 1, 2, 4.5, 5, 8, 10, 11, 12, 30]) - origin
        assert found.busy(t).tolist() == [0, 0.5, 1, 1, 2, 4.5, 5, 5, 5, 6, 7, 7]
    for one in stretches:
        with pytest.raises(UsageError) as refused:
            load(Queries(columns), (one,), 0)
        assert refused.value.fix == "bench ... --idle 10s, metered"


@pytest.mark.parametrize(
    ("drift", "seconds"),
    [(0.02, [5 / 1.02, 3.0]), (0.01, [5.0, 3.0]), (-0.02, [5 / 0.98, 3.0]), (0.0, [5, 3])],
)
def test_a_drift_within_its_uncertainty_counts_as_none(drift, seconds):
    placed = Alignment(100.0, 0.1, drift, 0.01, 0.9, 8.0, 3.0)
    assert placed.drifts is (abs(drift) > 0.01)
    wanted = [3 + (seconds[0]), seconds[1]]
    assert placed.run_time(np.array([108.0, 103.0])).tolist() == pytest.approx(wanted)


def test_the_share_explained_is_the_squared_correlation_at_each_shift():
    rng = np.random.default_rng(0)
    watts, level = rng.normal(50, 3, 40), rng.uniform(size=7)
    wanted = []
    for shift in range(34):
        r = np.corrcoef(watts[shift : shift + 7], level)[0, 1]
        wanted.append(r**2 if r > 0 else 0.0)
    assert _explained(watts, level) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert 0 < sum(w == 0 for w in wanted) < 34
    assert _explained(np.full(9, 5.0), level).tolist() == [0.0] * 3
    assert _explained(watts, np.ones(7)).tolist() == [0.0] * 34
    edge = _explained(np.repeat([5.0, 6.0, 5.0], 20), np.repeat([0.0, 1.0], 4))
    assert edge.max() == edge[16] == pytest.approx(1) and not edge[:9].any() and not edge[24:].any()


def test_the_squares_left_and_the_step_are_those_of_a_straight_line():
    rng = np.random.default_rng(1)
    watts, levels = rng.normal(9, 1, 12), [rng.uniform(size=12) for _ in range(3)]
    squares, steps = _squares(watts, levels)
    for left, step, level in zip(squares, steps, levels, strict=True):
        (slope, _), rest = np.polyfit(level, watts, 1, full=True)[:2]
        assert (step, left) == (pytest.approx(slope), pytest.approx(rest[0]))
    flat, none = _squares(watts, [np.ones(12)])
    assert flat.tolist() == [pytest.approx(np.var(watts) * 12)] and none.tolist() == [0.0]


@pytest.mark.parametrize(
    ("t", "edge", "gap"),
    [
        ([0, 1, 2, 3, 4, 5, 6], 3.0, 1.0),
        ([0, 1, 2, 5, 6, 7, 8], 3.0, 3.0),
        ([0, 1, 2, 5, 6, 7, 8], 0.0, 3.0),  # the row at 5 s is a gap and two rows away, and no more
        ([0, 1, 2, 5, 6, 7, 8], -0.1, 1.0),
        ([0, 1, 2, 5, 6, 7, 8], 10.0, 3.0),
        ([0, 1, 2, 5, 6, 7, 8], 10.1, 1.0),
        ([0, 0.5, 1.0], 0.5, 1.0),
        ([0, 1, 2], 99.0, 1.0),
    ],
)
def test_the_gap_at_an_edge_is_the_longest_within_two_rows(t, edge, gap):
    assert _gap(np.array(t, float), edge, 1.0) == gap


@pytest.mark.parametrize("stretches", [(3.0, 30.0, 30.0), (30.0, 3.0, 30.0), (30.0, 30.0, 3.0)])
def test_three_rows_in_the_shortest_stretch_are_too_few_for_an_edge_and_fewer_too_slow(stretches):
    slow = MeterLog(np.arange(99.0), np.ones(99), "")
    assert "no load edge" in refusal(align, slow, run(*stretches))
    before, busy, after = (x - 0.01 if x == 3 else x for x in stretches)
    assert "too slowly" in refusal(align, slow, run(before, busy, after))


@pytest.mark.parametrize(("rows", "enough"), [(5, True), (4, False)])
def test_an_edge_is_seen_in_five_rows(rows, enough):
    of = run()
    t = np.arange(8.0 - (rows - 1) / 2, 8.0 + rows / 2, 1.0)
    seen = MeterLog(t, 6 + 8 * of.level(t - 8, 1.0), "")
    if not enough:
        assert f"only {rows} rows" in refusal(_edge, seen, of, 8.0, 0.0, 2.0)
        return
    offset, _, step = _edge(seen, of, 8.0, 0.0, 2.0)
    assert (offset, step) == (pytest.approx(8.0, abs=0.01), pytest.approx(8.0, abs=0.05))


def test_a_log_is_as_long_as_the_run_at_least():
    of = run()
    whole = log(of, before=0.0, after=0.25)
    assert _coarse(whole, of, 8.0)[0] == pytest.approx(8.0)
    short = MeterLog(whole.t_s[:-4], whole.watts[:-4], "")
    assert "35.0 s, the run and its idle stretches take 36.0 s" in refusal(_coarse, short, of, 8.0)


def runs(apart: float, level: float) -> MeterLog:
    """A run, and another one of so much of its step."""
    t = np.arange(0.0, 120.0, 0.25)
    of = run()
    watts = 6 + 8 * of.level(t - 10, 0.25) + 8 * level * of.level(t - 10 - apart, 0.25)
    return MeterLog(t, watts, "")


def test_the_first_of_two_equal_runs_is_not_preferred():
    told = refusal(_coarse, runs(50.0, 1.0), run(), 8.0)
    assert "two places 50.0 s apart (100% and 100% explained)" in told
    assert _coarse(runs(50.0, 0.0), run(), 8.0) == (10.0, pytest.approx(1.0, abs=0.01))


@pytest.mark.parametrize(("second", "refused"), [(1.0, True), (0.95, True), (0.4, False)])
def test_a_second_run_that_explains_four_fifths_as_much_makes_the_place_unknown(second, refused):
    """Noise that leaves three quarters of the variance to the load: the limit is a share of the best."""
    seen = runs(50.0, second)
    noisy = MeterLog(seen.t_s, seen.watts + 3.2 * (np.arange(len(seen.t_s)) % 2 * 2 - 1), "")
    best = _explained(noisy.watts, run().level(np.arange(-8.0, 28.0, 0.25), 0.25)).max()
    assert 0.5 < best < 0.85
    if refused:
        assert "two places" in refusal(_coarse, noisy, run(), 8.0)
    else:
        assert _coarse(noisy, run(), 8.0)[0] == 10.0


def test_another_offset_within_half_of_the_shortest_stretch_is_no_rival():
    of = run()
    seen = log(of, before=30.0, after=30.0)
    fit = {reach: _coarse(seen, of, reach) for reach in (8.0, 4.0)}
    assert fit[8.0] == fit[4.0] == (38.0, pytest.approx(1.0, abs=0.01))
    assert "two places" in refusal(_coarse, seen, of, 1.0)


@pytest.mark.parametrize(
    ("hz", "drift", "uncertainty", "drifts"),
    [
        (4.0, 0.0, 0.2428125, False),
        (10.0, 0.0, 0.099375, False),
        (20.0, 0.01, 0.050559375, True),
        (20.0, -0.01, 0.0500656, True),
        (20.0, 0.02, 0.0508063, True),
    ],
)
def test_logs_without_noise_are_placed_to_the_last_digit(hz, drift, uncertainty, drifts):
    """Half a row, half of the ramp that it hides, and what the search resolves."""
    of = run()
    placed = align(log(of, hz=hz, drift=drift), of)
    assert placed.offset_s == pytest.approx(13 * (1 + drift), abs=5e-4)
    assert placed.uncertainty_s == pytest.approx(uncertainty, abs=1e-5)
    assert placed.drift == pytest.approx(drift, abs=2e-4) and placed.drifts is drifts
    assert placed.drift_uncertainty == pytest.approx(uncertainty * 2 / 20, rel=0.03)
    assert placed.step_w == pytest.approx(8.0, abs=0.01) and placed.rise_s == 0.0


@pytest.mark.parametrize(
    ("hz", "noise", "lost", "found"),
    [
        (4.0, 0.5, 0.0, (13.005625, 0.35859375, -0.0000625, 0.0329297, 0.9853006, 7.7742734)),
        (10.0, 2.0, 0.0, (13.016875, 0.2271875, -0.00075, 0.0219219, 0.8509435, 8.2226355)),
        (4.0, 0.5, 1.6, (13.015625, 2.9748438, 0.0009375, 0.1637422, 0.9726093, 7.7742734)),
    ],
)
def test_logs_with_noise_and_a_gap_are_placed_as_they_were(hz, noise, lost, found):
    of = run()
    placed = align(log(of, hz=hz, noise=noise, lost=lost), of)
    assert not placed.drifts
    ends = (placed.offset_s, placed.uncertainty_s, placed.drift, placed.drift_uncertainty)
    assert (*ends, placed.explained, placed.step_w) == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("drift", [0.03, -0.03])
def test_a_clock_more_than_two_per_cent_off_is_of_another_run(drift):
    of = run()
    assert "off over this run" in refusal(align, log(of, hz=20, drift=drift), of)


@pytest.mark.parametrize(("before", "after"), [(4.0, 6.0), (6.0, 4.0)])
@pytest.mark.parametrize(("drift", "rate"), [(0.0, 0.0), (0.01, 0.005 * 200), (-0.01, 0.005 * 200)])
def test_the_uncertain_offset_costs_what_the_worse_of_both_shifts_gains_or_loses(before, after, drift, rate):
    """Half a second earlier or later: 10 W are lost at one edge and 4 W or 6 W gained at the other."""
    t = np.arange(-1200, 4000) / 100
    watts = np.where(t < 0, before, np.where(t < 20, 10.0, after)) + 0.001 * np.sin(t)
    channel = Channel("meter_power_w", "W", "wall", "gauge", "log")
    seen = Readings((channel,), (t * S).round().astype(np.int64), np.zeros(len(t), np.int16), watts)
    placed = Alignment(0.0, 0.5, drift, 0.005, 0.9, 8.0, 0.0)
    assert _unsure(seen, Window(0, 1, 0, 20 * S), placed) == pytest.approx(0.5 * 6 + rate, abs=0.06)
    assert _unsure(seen, Window(0, 1, 60 * S, 80 * S), placed) == 0.0


def test_ends_of_figures_that_are_not_there_stay_where_they_are():
    fields = {
        "power_w": Absent("x"),
        "energy_j": Absent("x"),
        "energy_per_sample_j": Absent("x"),
        "energy_dynamic_j": Measured(30.0, "J", 28.0, None, 5),
        "energy_dynamic_per_sample_j": Measured(0.3, "J", 0.28, 0.32, 5),
        "idle_power_w": Measured(3.0, "W", 2.0, 4.0, 2),
    }
    found = _widened(fields, 2.0, Window(0, 1, 0, 4 * S))
    assert found == fields | {"energy_dynamic_j": Measured(30.0, "J", 26.0, None, 5)}
    whole = {"energy_j": Measured(40.0, "J", 36.0, 44.0), "energy_per_sample_j": Measured(0.4, "J")}
    wider = _widened(fields | whole, 2.0, Window(0, 1, 0, 4 * S))["energy_dynamic_per_sample_j"]
    assert (wider.lo, wider.hi) == pytest.approx((0.26, 0.34))
