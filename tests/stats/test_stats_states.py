"""Speed states, and what a run that met them says of its mean: traces whose truth is known, in fake time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traces
from edgescope.analysis.run.summary import metrics, speeds, warnings
from edgescope.records import Measured
from edgescope.scenarios.closed import SingleStream
from edgescope.stats import StopRule, states
from edgescope.stats.sequential import State, States, _joined, _partition, _state_noise
from fake_time import drive, trial

QUIET = {"quiet": traces.quiet, "correlated": traces.correlated, "bursty": traces.bursty}


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize("seconds", [1, 10])
def test_a_steady_machine_is_rarely_said_to_change(name, seconds):
    assert np.mean([states(QUIET[name](seconds, seed)).several for seed in range(40)]) <= 0.05


def test_a_wandering_machine_is_seldom_taken_for_one_of_several_speeds():
    """Noise that lasts for 70 queries, in a window of 900: a block is like its neighbour, unlike one 0.25 s away."""
    assert np.mean([states(traces.correlated(1, seed, rho=0.97)).several for seed in range(40)]) <= 0.25


def test_the_stop_rule_goes_on_where_there_are_two_speeds_however_narrow_the_interval():
    went_on = 0
    for seed in range(24):
        parts = [
            traces.quiet(1.4, seed, cv=0.2),
            traces.quiet(1.4, seed + 50, cv=0.2, level_s=1.12 * traces.FAST_S),
        ]
        x, rule = np.concatenate(parts), StopRule(0.05, 10**9, 10**10)
        stopped = rule.decide(round(x.sum() * 1e9), x * 1e9)
        went_on += rule.interval.reliable and rule.interval.half_width <= 0.05 * rule.interval.value
        assert stopped is None or not states(x).several
    assert went_on >= 1


def test_both_speeds_are_found_with_their_shares_and_the_moment_of_change():
    found, elapsed = states(x := traces.two_state(10, 3)), 0.0
    for level, seconds in traces.dwells(10, 3)[:1]:
        elapsed, first = seconds, level
    at = np.cumsum(x)[found.changes[0]]
    assert [s.level for s in found.found] == pytest.approx([traces.FAST_S, traces.SLOW_S], rel=0.01)
    assert at == pytest.approx(elapsed, abs=0.2)
    fast = sum(s for level, s in traces.dwells(10, 3) if level == traces.FAST_S) / 10
    assert found.found[0].share == pytest.approx(fast, abs=0.03) and first in (traces.FAST_S, traces.SLOW_S)


def test_a_run_of_ten_seconds_always_finds_them():
    assert np.mean([states(traces.two_state(10, seed)).several for seed in range(60)]) >= 0.95


@pytest.mark.parametrize("sign", [1, -1])
def test_a_slope_is_a_drift_not_several_speeds(sign):
    x = traces.quiet(10, 1) * (1 + 0.15 * sign * np.linspace(-1, 1, len(traces.quiet(10, 1))))
    assert not states(x).several


@pytest.mark.parametrize("turn", [1, -1])
def test_speeding_up_is_seen_as_slowing_down_is(turn):
    x = np.concatenate([traces.quiet(2, 1), traces.quiet(2, 2, level_s=traces.SLOW_S)])[::turn]
    assert len(states(x).found) == 2 and len(states(x).changes) == 1


@given(st.lists(st.floats(1e-9, 1e3), max_size=400), st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_whatever_comes_the_shares_are_shares(x, scale):
    found = states(np.array(x) * scale)
    assert sum(s.share for s in found.found) <= 1 + 1e-9
    assert all(a.level < b.level for a, b in zip(found.found, found.found[1:], strict=False))
    assert found.several or not found.changes


def run(series, **keys):
    """One closed loop in fake time over a trace: its metrics, its warnings and the seconds it took."""
    t = trial(**({"min_s": 1.0, "max_s": 10.0} | keys))
    queries, plan = drive(SingleStream, t, traces.service(series))
    window = plan.window
    seconds = (window.stop_ns - window.start_ns) * 1e-9
    return metrics(queries, window), warnings(queries, window), seconds, speeds(queries, window, t.scenario)


@pytest.mark.slow
def test_where_the_mean_has_an_interval_it_holds_the_long_run_mean():
    """By the defaults no single run of a host with two speeds bounds its mean; none claims to."""
    found = [run(traces.two_state(12, seed))[0]["latency_mean_s"] for seed in range(25)]
    given = [f for f in found if f.lo is not None]
    covered = sum(f.lo <= traces.TWO_STATE_MEAN_S <= f.hi for f in given)
    assert covered >= 0.9 * len(given)


def test_a_quiet_run_is_no_longer_than_it_was_and_a_long_one_has_an_interval():
    assert run(traces.quiet(12, 1))[2] == pytest.approx(1.0, abs=0.01)
    long = run(traces.quiet(12, 1), min_s=10.0)[0]["latency_mean_s"]
    assert isinstance(long, Measured) and long.lo < traces.FAST_S < long.hi
    assert run(traces.quiet(12, 1))[0]["latency_mean_s"].lo is None


def test_a_run_that_meets_a_second_speed_goes_on_and_says_so():
    series = np.concatenate([traces.quiet(0.57, 1), traces.quiet(12, 2, level_s=traces.SLOW_S)])
    _, said, seconds, text = run(series, rel_width=0.2)
    assert seconds == pytest.approx(10.0, abs=0.01)
    assert text == "two speed states: 1.08 ms for 6%, 1.72 ms for 94%; change at 0.6 s"
    assert any(w.code == "W-STATE-1" and "two speed states" in str(w) for w in said)
    assert not any(w.code == "W-STAT-4" for w in said)


def test_without_jitter_any_step_counts_and_no_other_moment_is_a_change():
    x = np.concatenate([np.full(1000, 1e-3), np.full(500, 2e-3), np.full(1000, 1e-3)])
    found = states(x)
    assert [s.level for s in found.found] == pytest.approx([1e-3, 2e-3])
    assert [s.share for s in found.found] == pytest.approx([2 / 3, 1 / 3], abs=0.02)
    assert len(found.changes) == 2 and found.changes == pytest.approx([1000, 1500], abs=20)
    assert not states(np.full(2500, 1e-3)).several


def test_the_noise_of_a_series_is_the_standard_deviation_of_its_blocks():
    y = np.random.default_rng(3).normal(5.0, 0.7, 20_000)
    for lag in (1, 4):
        assert _state_noise(y, lag) == pytest.approx(0.7, rel=0.03)
    y[10_000:] += 50  # one step does not move it
    assert _state_noise(y, 1) == pytest.approx(0.7, rel=0.03)


@pytest.mark.parametrize(
    ("found", "seconds", "known"),
    [
        *((States((State(1.0, 1.0),)), s, s >= 10.0) for s in (9.99, 10.0)),
        *((States((State(1.0, 0.5), State(2.0, 0.5)), tuple(range(n))), 99.0, n >= 20) for n in (19, 20)),
    ],
)
def test_one_speed_is_known_from_ten_seconds_several_from_twenty_changes(found, seconds, known):
    assert found.known_over(seconds) is known


@pytest.mark.parametrize(
    ("samples", "each_s", "said"), [(63, 0.1, 0), (64, 0.1, 1), (512, 0.00098, 1), (512, 0.00097, 0)]
)
def test_sixteen_blocks_of_four_samples_and_half_a_second_tell_a_speed(samples, each_s, said):
    assert len(states(np.full(samples, each_s)).found) == said
    assert states(np.where(np.arange(samples) == 5, 0.0, each_s)).found == ()


def stretched(*parts):
    """Samples of one level after the other, as (level, samples), and the slices of these stretches."""
    ends = np.cumsum([n for _, n in parts]).tolist()
    x = np.concatenate([np.full(n, float(level)) for level, n in parts])
    return x, [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("second", "several"), [(1.0999, False), (1.1001, True), (0.91, False), (0.909, True)]
)
def test_levels_a_tenth_apart_are_two_states(second, several):
    found = _joined(*stretched((1.0, 100), (second, 100)))
    assert found.several is several and found.changes == ((100,) if several else ())


def test_states_are_told_fastest_first_with_their_share_of_the_time():
    found = _joined(*stretched((2.0, 30), (1.0, 50), (2.1, 10), (1.05, 20), (9.0, 1)))
    time = 60 + 50 + 21 + 21 + 9
    assert [s.level for s in found.found] == [1.0, 2.0, 9.0]
    assert [s.share for s in found.found] == pytest.approx([71 / time, 81 / time, 9 / time])
    assert found.changes == (30, 80, 90, 110)
    # a level is a tenth above the lowest of a state, not above its neighbour
    assert [s.level for s in _joined(*stretched((1.0, 9), (1.09, 9), (1.18, 9))).found] == pytest.approx(
        [1.045, 1.18]
    )


@pytest.mark.parametrize(("samples", "kept"), [(4, True), (3, False)])
def test_what_takes_less_than_a_twentieth_of_the_time_is_a_burst_and_no_change(samples, kept):
    found = _joined(*stretched((1.0, 95), (1.25, samples)))
    share = 1.25 * samples / (95 + 1.25 * samples)
    assert (share >= 0.05) is kept and found.several is kept
    assert sum(s.share for s in found.found) == pytest.approx(1.0 if kept else 1 - share)
    assert found.changes == ((95,) if kept else ())


@pytest.mark.parametrize("edge", [4, 11, 20, 36])
@pytest.mark.parametrize("shortest", [3, 4])
def test_a_step_is_cut_where_it_is(edge, shortest):
    y = np.where(np.arange(40) < edge, 0.0, 0.3)
    assert _partition(y, shortest) == [0, edge] and _partition(-y, shortest) == [0, edge]
    assert _partition(np.zeros(40), shortest) == [0]


def test_a_stretch_shorter_than_the_shortest_is_none_and_a_slope_is_cut_nowhere():
    y = np.zeros(40)
    y[10:13] = 0.3
    assert _partition(y, 3) == [0, 10, 13] and 10 not in _partition(y, 4)[1:-1]
    assert _partition(np.linspace(0, 1, 40), 3) == [0]


def cheapest(y, shortest, penalty):
    """Every way to cut a short series, each by its squares about the means and a penalty a change."""
    n, best = len(y), (np.inf, [])

    def walk(begin, edges, cost):
        nonlocal best
        for end in range(begin + shortest, n + 1):
            whole = cost + float(((y[begin:end] - y[begin:end].mean()) ** 2).sum())
            if end == n:
                best = min(best, (whole + penalty * (len(edges) - 1), edges))
            else:
                walk(end, [*edges, end], whole)

    walk(0, [0], 0.0)
    return best[1]


@pytest.mark.parametrize("seed", range(8))
def test_the_cut_is_the_cheapest_of_all(seed):
    rng = np.random.default_rng(seed)
    y = (
        0.1 * rng.normal(size=18)
        + np.repeat(rng.normal(size=3) * 2, 6)
        + np.array([0.0, 1.5] * 9) * (seed % 2)
    )
    noise = max(_state_noise(y, 1), _state_noise(y, 3))
    wanted = cheapest(y, 3, 10 * noise**2 * np.log(18))
    line = np.linspace(-1, 1, 18)
    rest = y - y.mean() - line * (line @ y) / (line @ line)
    spread = sum(((part - part.mean()) ** 2).sum() for part in np.split(y, wanted[1:]))
    straight = rest @ rest + 10 * noise**2 * np.log(18) <= spread + 10 * noise**2 * np.log(18) * (
        len(wanted) - 1
    )
    assert _partition(y, 3) == ([0] if straight else wanted)


@pytest.mark.parametrize(("penalties", "cut"), [(9.8, False), (10.2, True)])
def test_a_change_must_spare_ten_variances_times_the_logarithm_of_the_blocks(penalties, cut):
    """Blocks that alternate by +-1 about a step in the middle, which spares n h^2 / 4."""
    wiggle = np.tile([1.0, -1.0], 32)
    noise = 2 / (0.6745 * np.sqrt(2))
    step = np.sqrt(4 * penalties * noise**2 * np.log(64) / 64)
    assert _partition(wiggle + np.repeat([0.0, step], 32), 3) == ([0, 32] if cut else [0])


def test_three_blocks_are_a_stretch_in_a_long_run():
    x = np.full(512, 0.04)
    x[160:172] *= 3
    found = states(x)
    assert [s.level for s in found.found] == pytest.approx([0.04, 0.12]) and found.changes == (160, 172)
