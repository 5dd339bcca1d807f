"""Integrals and their bounds, worked out by hand on sensors that are regular to the second."""

from __future__ import annotations

import numpy as np
import pytest

from edgescope.analysis.run.energy_integral import Curve, Updates, count, integrate, updates

S = 1_000_000_000
SECONDS = np.arange(-5, 16)


def seen(t: object, value: object, origin: float = 0.0) -> Updates:
    t_ns = (np.asarray(t, float) * S).round().astype(np.int64)
    return updates(t_ns, np.asarray(value, float), round(origin * S))


def ends(found: object) -> tuple[float, float, float]:
    assert not isinstance(found, str), found
    return found.joules, found.lo, found.hi  # type: ignore[attr-defined]


# -- the curve ---------------------------------------------------------------------------------------------------------


def test_energy_is_quadratic_where_power_is_known_and_else_linear():
    t, joules = np.array([0.0, 2.0, 3.0]), np.array([0.0, 6.0, 9.5])
    curve = Curve(t, joules, np.array([1.0, 5.0, 2.0]))
    moments = np.array([-1, 0, 1, 2, 2.5, 3, 4])
    assert curve.at(moments).tolist() == [0, 0, 2, 6, 8.125, 9.5, 9.5]
    assert curve.times(2.0).at(moments).tolist() == [0, 0, 4, 12, 16.25, 19, 19]
    line = Curve(t, joules)
    assert line.at(moments).tolist() == [0, 0, 3, 6, 7.75, 9.5, 9.5]
    assert line.times(3.0).at(moments).tolist() == [0, 0, 9, 18, 23.25, 28.5, 28.5]


# -- updates -----------------------------------------------------------------------------------------------------------


def test_updates_are_new_values_in_order_of_time():
    found = seen([4, 0, 1, 2, 3, 5, 1], [7, 5, 5, 6, np.nan, 7, 9])
    assert found.polls_s.tolist() == [0, 1, 2, 4, 5], "what comes twice counts once, and no number not at all"
    assert (found.t_s.tolist(), found.value.tolist()) == ([0, 2, 4], [5, 6, 7])
    assert found.blind_s.tolist() == [0, 1, 2] and len(found) == 3
    assert found.usual_blind_s == 1.5
    moved = seen([4, 0, 1, 2], [7, 5, 5, 6], origin=1.5)
    assert moved.polls_s.tolist() == [-1.5, -0.5, 0.5, 2.5]
    none = seen([], [])
    assert (len(none), none.usual_blind_s, none.refresh_s) == (0, 0.0, 0.0)
    one = seen([3], [4])
    assert (one.usual_blind_s, one.refresh_s, one.slowest_s) == (0.0, 0.0, 1.0)


def test_an_update_belongs_to_the_window_after_its_start_until_its_stop():
    found = seen([-1, 0, 1, 2, 3], [1, 2, 3, 4, 5])
    assert [found.inside(stop) for stop in (0.5, 1, 2.5, 3, 9)] == [0, 1, 2, 3, 3]


def polled(gaps: list[int], lost: tuple[int, ...] = ()) -> Updates:
    """A sensor read each 125 ms, whose value changes after so many reads each; some reads are lost."""
    values = np.repeat(np.arange(len(gaps) + 1), [*gaps, 1])
    t = np.arange(len(values)) * 0.125
    kept = np.isin(np.arange(len(values)), lost, invert=True)
    return seen(t[kept], values[kept])


@pytest.mark.parametrize(
    ("gaps", "lost", "usual", "slowest"),
    [
        ([9], (), 0.125, 1.0),  # one change more than a second after the first reading: nothing is known
        ([4], (), 0.125, 0.5),
        (
            [4, 3],
            (),
            0.125,
            0.5,
        ),  # the first reading may be as old as it likes, the next change 3 reads and 1
        ([6, 3], (), 0.125, 0.5),
        ([2, 2], (), 0.125, 0.25),
        ([1, 9], (), 0.125, 0.125),
        ([2, 2, 2], (), 0.25, 0.25),  # three that agree
        ([2, 2, 9, 2], (), 0.25, 0.25),
        ([2, 2, 2, 4, 2], (), 0.3, 0.3),  # twice as long: shown twice
        ([2, 2, 2, 4, 2], (9,), 0.3, 0.5),  # with the read before the change lost, it may have been late
        ([4, 4, 4, 5], (), 0.53125, 0.625),
        ([4, 4, 4, 7, 4], (), 0.575, 0.875),  # nearly two: later than a read
        ([4, 4, 4, 9, 4], (), 0.5, 0.5),  # more than two refreshes
        ([8, 8, 8, 12, 8], (), 1.1, 1.5),  # later than a read: a sensor that does not keep its time
        ([8, 8, 8, 12, 15, 8], (), 1.1, 1.875),
        ([8, 8, 8, 9, 15, 8], (), 1.025, 1.875),
        ([8, 8, 8, 9, 16, 8], (), 1.025, 1.125),
        ([8, 8, 8, 14, 8], (), 1.0, 1.75),
    ],
)
def test_the_usual_and_the_slowest_refresh(gaps, lost, usual, slowest):
    found = polled(gaps, lost)
    assert (found.refresh_s, found.slowest_s) == (pytest.approx(usual), pytest.approx(slowest))


def test_refreshes_differ_by_what_the_reads_do_not_explain():
    assert polled([8, 8, 8, 12, 8]).irregular_s == pytest.approx(1.5 - 1.1 - 0.125)
    assert polled([4, 4, 4, 5]).irregular_s == 0.0


def test_a_value_that_outlasts_a_refresh_is_held_until_one_before_its_end():
    t, value = polled([2, 2, 2, 9, 2, 1]).held()
    assert t.tolist() == [0, 0.25, 0.5, 0.75, pytest.approx(1.875 - 0.225), 1.875, 2.125, 2.25, 2.25]
    assert value.tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 6]


# -- power -------------------------------------------------------------------------------------------------------------


def saw(t: np.ndarray = SECONDS) -> np.ndarray:
    """10 W and 12 W by turns: five whole periods are 110 J wherever they begin."""
    return 10.0 + 2.0 * (t % 2)


@pytest.mark.parametrize(
    ("average_s", "either"),
    [
        (
            None,
            28 + 14,
        ),  # fourteen steps of 2 W around the window, each for a second and a read; half a read for J
        (0.0, 16 + 1 * (2 + 2) / 2),
        (3.0, 20 + 3 * (2 + 2) / 2),
    ],
)
def test_what_steps_may_hide_lies_on_either_side(average_s, either):
    found = integrate(seen(SECONDS, saw()), 10.0, average_s=average_s)
    assert ends(found) == pytest.approx((110.0, 110 - either, 110 + either))
    assert (found.updates, found.polls, found.refresh_s) == (11, 11, 1.0)


@pytest.mark.parametrize(("slope", "less", "more"), [(1, 0, 20), (-1, 20, 0)])
def test_a_delay_of_two_seconds_takes_from_one_edge_and_gives_to_the_other(slope, less, more):
    found = integrate(seen(SECONDS, 15 + slope * (SECONDS - 5)), 10.0)
    assert ends(found) == pytest.approx((150.0, 150 - 21 - less, 150 + 21 + more))


@pytest.mark.parametrize(("slope", "less", "more"), [(1, 0, 26), (-1, 26, 0)])
def test_readings_that_end_with_the_window_leave_the_extremes_about_its_edges(slope, less, more):
    t = SECONDS[:-5]
    found = integrate(seen(t, 15 + slope * (t - 5)), 10.0)
    assert ends(found) == pytest.approx((150.0, 150 - 18 - less, 150 + 18 + more))


@pytest.mark.parametrize(
    ("t", "wanted"),
    [
        (np.arange(0, 13), (150, 150 - 18, 150 + 18 + 20)),
        (
            np.arange(0, 12),
            (150, 150 - 16.5, 150 + 16.5 + 22),
        ),  # a second less, and only the extremes are left
        (np.arange(0, 13) + 0.5, (152.5, 152.5 - 18, 152.5 + 18 + 24)),
    ],
)
def test_readings_must_reach_from_the_start_to_the_longest_delay_after_the_stop(t, wanted):
    assert ends(integrate(seen(t, 10 + t), 10.0)) == pytest.approx(wanted)


def area(t: np.ndarray, w: np.ndarray, a: float, b: float) -> float:
    """The integral of a polygon, flat beyond its ends, from a to b."""
    x = np.unique([a, b, *t[(t > a) & (t < b)]])
    y = np.interp(x, t, w)
    return float(np.sum((y[1:] + y[:-1]) * np.diff(x)) / 2)


def by_the_book(s: Updates, stop: float, average: float | None) -> tuple[float, float, float]:
    """What the head of the module says, one update after the other."""
    gauge, usual = average is None, s.usual_blind_s
    late, mean = s.slowest_s + usual, 0.0 if average is None else max(average, s.slowest_s)
    reach, either = late + mean, 0.0
    for j in range(1, len(s)):
        if s.t_s[j] <= -reach or s.t_s[j - 1] >= stop + reach:
            continue
        step, apart = abs(s.value[j] - s.value[j - 1]), s.t_s[j] - s.t_s[j - 1]
        older = [max(s.blind_s[k] - usual / 2, usual / 2) for k in (j, j - 1)]
        either += step * (sum(older) / 2 + s.irregular_s)
        apart = 2 * s.slowest_s if apart > s.slowest_s else apart
        either += step * (apart + s.blind_s[j]) / 2 if gauge else 0.0
    near = [np.flatnonzero(abs(s.t_s - x) <= reach) for x in (0.0, stop)]
    shown = [s.value[max(0, k[0] - 1) : k[-1] + 2] for k in near]
    either += mean * sum(float(np.ptp(x)) for x in shown) / 2
    early = 0.0 if gauge else (s.slowest_s - s.refresh_s) / 2
    t, w = s.held()
    age = 0.0 if average is None else max(average, s.refresh_s) / 2
    t, w = np.append(t - age, t[-1]), np.append(w, w[-1])
    first, last = max(0.0, s.polls_s[0]), min(stop, s.polls_s[-1])
    joules = area(t, w, first, last) * stop / (last - first)
    if t[0] <= -early and t[-1] >= stop + late + early:
        own = area(t, w, 0.0, stop)
        moved = [area(t, w, d, stop + d) - own for d in np.linspace(-early, late + early, 129)]
        return joules, joules - either - max(0.0, -min(moved)), joules + either + max(0.0, *moved)
    (a, b), late = shown, late + early
    less, more = late * (a.max() - b.min()), late * (b.max() - a.min())
    return joules, joules - either - max(0.0, less), joules + either + max(0.0, more)


@pytest.mark.parametrize("average", [None, 0.0, 1.5])
@pytest.mark.parametrize("reads", [6, 9])
@pytest.mark.parametrize(
    ("first", "last"), [(-6.0, 99.0), (0.5, 99.0), (-0.4, 12.0), (-6.0, 11.0), (0.3, 11.6)]
)
def test_the_bounds_of_irregular_sensors_are_those_of_the_book(average, reads, first, last):
    """Refreshes of six to nine reads, some of them missing; the readings begin and end near the edges, or far away."""
    rng = np.random.default_rng(reads)
    turns = rng.integers(6, reads + 1, 60)
    value = np.repeat(rng.uniform(20, 30, 60).round(1), turns) + 0.0
    t = np.arange(len(value)) * 0.125 - 8.0
    kept = (t >= first) & (t <= last) & (t < 25) & (rng.uniform(size=len(t)) > 0.1)
    s = seen(t[kept], value[kept])
    found = integrate(s, 10.0, average_s=average)
    assert ends(found) == pytest.approx(by_the_book(s, 10.0, average))


def test_a_mean_over_seconds_stands_in_the_middle_of_them():
    """A ramp, shown as the mean of four seconds, is two seconds late; the last value stands until the end."""
    found = integrate(seen(SECONDS, SECONDS - 2.0 + 10), 10.0, average_s=4.0)
    assert ends(found)[0] == pytest.approx(150.0)
    short = integrate(seen(SECONDS[:-5], SECONDS[:-5] - 2.0 + 10), 10.0, average_s=4.0)
    assert ends(short)[0] == pytest.approx(150.0 - 2.0), "two seconds of the last value"


def test_a_value_that_was_held_counts_with_twice_the_slowest_refresh():
    value = saw()
    value[8:13] = 12.0  # from 3 s to 7 s, and 10 W at 8 s
    value[13] = 10.0
    found = integrate(seen(SECONDS, value), 10.0)
    assert found.updates == 7 and found.polls == 11
    steps = 28 - 4 * 2
    assert ends(found)[0] == pytest.approx(22 + 11 + 4 * 12 + 11 + 22)
    assert ends(found)[2] - ends(found)[0] == pytest.approx(steps * 1.5 + 2 * 1 / 2 + shift(value), abs=0.02)


def shift(value: np.ndarray) -> float:
    """How much more than at no delay the window's energy may be at a delay of up to two seconds."""
    t, w = SECONDS.astype(float), value.copy()
    fine = np.linspace(0, 2, 129)
    grid = np.arange(-5000, 15001) / 1000
    used = np.concatenate(([0.0], np.cumsum((np.interp(grid, t, w)[1:] + np.interp(grid, t, w)[:-1]) / 2000)))
    each = np.interp(10 + fine, grid, used) - np.interp(fine, grid, used)
    return float(each.max() - each[0])


@pytest.mark.parametrize(
    ("t", "word"),
    [
        (np.arange(0, 9.6, 0.5), ""),  # 95 % of the window
        (np.arange(0, 9.4, 0.1), "span"),
        (np.arange(0.5, 10.1, 0.5), ""),
        (np.arange(0.6, 10.1, 0.2), "span"),
        ([-9, 99], ""),  # two readings
        ([-9, 5, 99], "silent"),
        ([*range(-5, 4), *range(5, 16)], ""),  # 2 s of 10 s
        ([*range(-5, 3), *range(5, 16)], "silent"),
        ([-9, *range(2, 16)], ""),  # 2 s of it inside
        ([-9, *range(3, 16)], "silent"),
        ([*range(-5, 9), 19], ""),
        ([*range(-5, 8), 19], "silent"),
        ([3], "too few"),
    ],
)
def test_readings_span_most_of_the_window_and_are_never_silent_for_a_fifth(t, word):
    found = integrate(seen(t, 10.0 + 0.01 * np.arange(len(t))), 10.0)
    assert (word in found) if isinstance(found, str) else not word


def test_a_part_that_nobody_read_is_filled_with_the_mean():
    t = np.arange(0, 9.6, 0.5)
    assert ends(integrate(seen(t, 10 + t), 10.0))[0] == pytest.approx((95 + 9.5**2 / 2) * 10 / 9.5)
    later = t + 0.5
    assert ends(integrate(seen(later, 10 + t), 10.0))[0] == pytest.approx((95 + 9.5**2 / 2) * 10 / 9.5)


def test_power_is_bounded_by_nothing_unless_it_was_below_it():
    low = integrate(seen(SECONDS, (SECONDS % 2) * 2.0), 10.0)
    assert ends(low) == pytest.approx((10.0, 0.0, 52.0))
    below = integrate(seen(SECONDS, (SECONDS % 2) * 2.0 - 0.5), 10.0)
    assert ends(below) == pytest.approx((5.0, -37.0, 47.0))
    assert isinstance(integrate(seen(SECONDS, SECONDS * 0.0), 10.0), str)


# -- counters ----------------------------------------------------------------------------------------------------------


def counter(start: float, stop: float, polls: object = None) -> tuple[float, float | None, float | None]:
    """10 W behind a counter that moves each two seconds, read each second; its steepest second shows 20 W."""
    t = np.arange(-3, 14) if polls is None else np.asarray(polls, float)
    return ends(count(seen(t, 20.0 * np.floor(t / 2), start), stop - start))


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [
        (0, 10, (100, 80, 120)),
        (1, 10, (90, 80, 120)),
        (0.5, 9.5, (90, 60, 120)),
        (1.5, 8.5, (70, 40, 100)),
        (1.95, 8.5, (65.5, 40, 82)),  # the next reading, 50 ms later, shows 20 J: 18 had been used
        (1.9, 8.5, (66, 40, 100)),  # 100 ms are too late
        (2, 7.95, (59.5, 38, 80)),
        (0, 13, (130, None, None)),
        (0, 12, (120, None, None)),
        (0, 11.5, (115, None, None)),
        (0, 11, (110, 80, 120)),
        (-3, 10, (140, 120, 160)),
        (-3.05, 10, (140 * 13.05 / 13, 120, 162)),
        (-3.2, 10, (140 * 13.2 / 13, None, None)),
    ],
)
def test_a_counter_is_bounded_by_what_it_surely_showed(start, stop, wanted):
    found = counter(start, stop)
    assert found == (pytest.approx(wanted[0]), *(None if x is None else pytest.approx(x) for x in wanted[1:]))


def test_a_reading_after_an_edge_says_nothing_where_the_one_before_is_hardly_further():
    t = np.array([-3, -2, -1, 0, 1, 1.5, 2.05, *range(3, 14)])
    near, far = counter(2, 9, t), counter(2, 9, np.delete(t, 5))
    assert far[2] == pytest.approx(near[2] - 20 + 0.05 * 2 * 20 * (20 / 0.95 / 20) * 0.95, abs=0.5)


def test_the_shortest_time_that_a_counter_resolves():
    t = np.arange(-2, 14)
    value = 20.0 * np.floor(t / 2)
    assert count(seen(t, value), 10.0).refresh_s == 2.0
    kept = np.array([-2, -1, 0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13])
    assert count(seen(kept, 20.0 * np.floor(kept / 2)), 10.0).refresh_s == 4.0
    apart = np.array([-9, -8, -7, -6, 0, 2, 4, 6, 8, 10, 30])
    found = count(seen(apart, apart), 10.0)
    assert (found.refresh_s, found.updates, found.polls) == (2.0, 5, 6), (
        "what lies outside counts for nothing"
    )


@pytest.mark.parametrize(
    ("t", "value", "word"),
    [
        ([0, 1, 2, 3], [5, 6, 7, 6.9], "backwards"),
        ([0, 1, 2, 3], [5, 5, 5, 5], "did not move"),
        ([0, 1, 2, 3], [5, 6, 6, 6], ""),
        ([0, 2.8], [5, 6], "span"),
        ([0, 2.85], [5, 6], ""),
        ([-1, 0, 9], [1, 2, 3], "did not move"),
    ],
)
def test_a_counter_moves_forward_and_is_read_through_the_window(t, value, word):
    found = count(seen(t, value), 3.0)
    assert (word in found) if isinstance(found, str) else not word


def test_beyond_its_last_update_a_counter_is_stale_and_not_idle():
    found = count(seen([0, 1, 2, 3, 4], [0, 7, 14, 14, 14]), 4.0)
    assert found.joules == pytest.approx(28.0)
    assert count(seen([0, 1, 2], [5, 6, 8]), 2.0).curve.joules.tolist() == [0, 1, 3]
    early = count(seen([-1, 0, 1, 2, 3, 4], [5, 5, 5, 12, 19, 26]), 4.0)
    assert early.joules == pytest.approx(
        np.interp(4, [-1, 2, 3, 4], [5, 12, 19, 26]) - np.interp(0, [-1, 2], [5, 12])
    )
