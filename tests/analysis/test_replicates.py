"""What fresh processes say together, against SciPy's intervals and under exchanges that must change nothing."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from edgescope.analysis.cells import replicates
from edgescope.analysis.cells.replicates import (
    NOTICED,
    above,
    across,
    bounds,
    by_replicate,
    field_of,
    judged,
    latencies_s,
    neighbours,
    of_fields,
    paired_values,
    percentiles,
    quotient,
    reaching,
)
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.stats import Interval, Judgement


@pytest.fixture
def of(make):
    """A replicate by number with these metrics, rowless."""

    def made(number, metrics, **keys):
        trial = Trial(model="m", replicate=number)
        return make.result([1e6] * 5, trial=trial, raw=False, metrics=metrics, **keys)

    return made


def watts(value, lo=None, hi=None):
    return {"power_w": Measured(value, "W", lo, hi, 9)}


def test_a_figure_that_rows_cannot_give_is_not_looked_for_in_them(make, monkeypatch):
    bare = make.result([1e6] * 50, metrics={})
    read = mock.Mock(side_effect=replicates.metrics)
    monkeypatch.setattr(replicates, "metrics", read)
    assert field_of(bare, "power_w") == Absent("not measured") and not read.called
    assert field_of(bare, "latency_max_s").value == field_of(bare, "latency_p50_s").value == 1e-3
    assert field_of(bare, "throughput_sps").unit == "samples/s" and read.call_count == 1


def test_the_mean_over_replicates_has_students_interval(of):
    values = [10.0, 11.0, 12.5, 11.5]
    found = across([of(i, {"x": Measured(v, "W", n=9)}) for i, v in enumerate(values)], "x")
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.value, found.unit, found.n) == (11.25, "W", 4)
    assert (found.lo, found.hi) == (pytest.approx(low), pytest.approx(high))


def test_two_replicates_have_a_mean_and_no_interval_and_one_keeps_its_own(of):
    own = Measured(10.0, "W", 9.0, 11.0, 50)
    assert across([of(0, {"x": own})], "x") == own
    assert across([of(0, {"x": own}), of(1, {"x": Measured(12.0, "W")})], "x") == Measured(11.0, "W", n=2)
    assert across([of(0, {"x": own}), of(1, {"x": Absent("lost")})], "x") == own
    assert across([of(0, {"x": Absent("lost")})], "x") == Absent("lost")
    assert across([], "x") == Absent("no replicate finished")


def test_an_interval_of_power_reaches_to_the_mean_of_the_meters_bounds(of):
    close = [of(i, watts(v, v - 2, v + 4)) for i, v in enumerate([10.0, 10.1, 9.9])]
    found = across(close, "power_w")
    assert (found.lo, found.hi) == (pytest.approx(8.0), pytest.approx(14.0))
    apart = across([of(i, watts(v, v - 0.1, v + 0.1)) for i, v in enumerate([5.0, 10.0, 15.0])], "power_w")
    low, high = stats.ttest_1samp([5.0, 10.0, 15.0], 0).confidence_interval(0.95)
    assert (apart.lo, apart.hi) == (pytest.approx(low), pytest.approx(high))


def test_bounds_of_energy_per_sample_are_those_of_the_whole_in_proportion(of):
    energy = {"energy_j": Measured(20.0, "J", 16.0, 30.0, 9), "energy_per_sample_j": Measured(0.2, "J", n=9)}
    assert bounds(of(0, energy), "energy_per_sample_j") == (pytest.approx(0.16), pytest.approx(0.30))
    one = energy | {"energy_j": Measured(1.0, "J", 0.8, 1.5, 9)}
    assert bounds(of(0, one), "energy_per_sample_j") == (pytest.approx(0.16), pytest.approx(0.30))
    nothing = energy | {"energy_j": Measured(0.0, "J", 0.0, 0.5, 9)}
    assert bounds(of(0, nothing), "energy_per_sample_j") == (0.0, 0.5)
    assert bounds(of(0, energy), "energy_j") == (16.0, 30.0)
    for other in (watts(5.0), watts(5.0, 4.0), {"power_w": Absent("x")}):
        assert bounds(of(0, other), "power_w") is None
    assert bounds(of(0, {"latency_p50_s": Measured(1.0, "s", 0.9, 1.1)}), "latency_p50_s") is None


def test_an_interval_is_only_ever_widened():
    assert reaching(1.0, 2.0, [None, None]) == (1.0, 2.0)
    assert reaching(1.0, 2.0, [(0.5, 1.5), None, (0.7, 3.5)]) == (pytest.approx(0.6), 2.5)
    assert reaching(1.0, 2.0, [(1.2, 1.4)]) == (1.0, 2.0)


def test_a_percentile_spreads_as_the_replicates_do(make):
    runs = make.cell(1e6, replicates=4, n=400, sd=0.02)
    own = [np.quantile(latencies_s(r), 0.9) for r in runs]
    spread = math.exp(stats.t.ppf(0.975, 3) * np.log(own).std(ddof=1) / 2)
    found, point = percentiles(runs)["p90_s"], np.mean(own)
    assert (found.value, found.n) == (pytest.approx(point), 1600)
    assert (found.lo, found.hi) == (pytest.approx(point / spread), pytest.approx(point * spread))
    two = percentiles(runs[:2])["p90_s"]
    assert (two.lo, two.hi, two.n) == (None, None, 800)
    one = percentiles(runs[:1])["p90_s"]
    assert one.lo is not None and one.lo < one.value < one.hi
    assert percentiles(runs[::-1])["p90_s"].value == pytest.approx(point)  # their order says nothing


def test_of_a_number_that_ran_twice_the_last_start_counts(of):
    first, second = (of(3, {}, started_at=f"2026-01-01T00:00:0{s}+00:00") for s in (1, 2))
    assert by_replicate([second, first]) == {3: second} == by_replicate([first, second])
    failed = replace(second, status=Status.CRASHED)
    assert by_replicate([first, failed]) == {3: first}
    assert by_replicate([first, failed], (Status.CRASHED,)) == {3: failed}


def test_only_numbers_with_positive_values_on_both_sides_are_pairs(of):
    a = {i: of(i, {"x": Measured(v, "s")}) for i, v in enumerate([1.0, 2.0, 0.0, 4.0, 5.0])}
    b = {i: of(i, {"x": Measured(v, "s")}) for i, v in enumerate([3.0, -1.0, 3.0, 8.0])}
    b[5] = b[0]
    assert paired_values(a, b, "x") == ([1.0, 4.0], [3.0, 8.0])
    assert paired_values(a, b, "y") == ([], [])


@pytest.mark.parametrize(
    ("first", "second", "near"),
    [
        ("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00", True),  # exactly an hour
        ("2026-01-01T01:00:00+00:00", "2026-01-01T00:00:00+00:00", True),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:01+00:00", False),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T02:30:00+02:00", True),  # the same half hour elsewhere
        ("2026-01-01T00:00:00+00:00", "", False),
        ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00", False),  # no time zone: not known
    ],
)
def test_neighbours_began_within_an_hour(of, first, second, near):
    a, b = {1: of(1, {}, started_at=first)}, {1: of(1, {}, started_at=second)}
    assert neighbours(a, b) == ((a, b) if near else ({}, {}))


ten = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=10)


@pytest.mark.slow
@given(ten, st.randoms())
def test_swapping_the_sides_turns_a_judgement_round_and_shuffling_pairs_changes_nothing(values, rng):
    def side(numbers):
        return {i: fake(v) for i, v in enumerate(numbers)}

    others = [v * 1.1 for v in values[::-1]]
    there, forth = judged(side(values), side(others), "x")
    back, again = judged(side(others), side(values), "x")
    assert there.value * back.value == pytest.approx(1) and there.lo * back.hi == pytest.approx(1, rel=1e-6)
    turned = {Judgement.FASTER: Judgement.SLOWER, Judgement.SLOWER: Judgement.FASTER}
    if abs(abs(there.value - 1) - 0.01) > 2e-4 and abs(abs(back.value - 1) - 0.01) > 2e-4:
        assert Judgement.SAME in (forth, again) or turned.get(forth, forth) is again
    order = list(range(len(values)))
    rng.shuffle(order)
    shuffled = judged(side([values[i] for i in order]), side([others[i] for i in order]), "x")
    assert shuffled[0].value == pytest.approx(there.value) and shuffled[0].hi == pytest.approx(there.hi)


def fake(value, name="x"):
    """The least that is a result of one metric."""
    from making import result

    return result(metrics={name: Measured(value, "s")}, queries=None, window=None)


def test_power_is_not_better_where_the_meters_bounds_overlap(of):
    def side(level, reach):
        return {i: of(i, watts(level + 0.01 * i, level - reach, level + reach)) for i in range(5)}

    ratio, judgement = judged(side(10.0, 0.1), side(8.0, 0.1), "power_w")
    assert judgement is Judgement.SLOWER
    assert (ratio.lo, ratio.hi) == (pytest.approx(9.9 / 8.1), pytest.approx(10.1 / 7.9))
    assert judged(side(8.0, 0.1), side(10.0, 0.1), "power_w")[1] is Judgement.FASTER
    assert judged(side(10.0, 2.0), side(8.0, 2.0), "power_w")[1] is Judgement.AMBIGUOUS
    unbounded = judged(side(10.0, 1.0), side(1.0, 1.0), "power_w")[0]
    assert math.isinf(unbounded.hi) and unbounded.lo == pytest.approx(4.5)
    assert judged(side(1.0, 1.0), {i: of(i, watts(1.0, -1.0, 0.0)) for i in range(5)}, "power_w")[0].lo == 0.0
    assert judged(side(1.0, 1.0), {}, "power_w") is None


def test_a_quotient_of_three_numbers_is_of_pairs_and_of_two_of_figures(of):
    over = [of(i, {"x": Measured(v, "s", n=9)}) for i, v in enumerate([2.0, 4.2, 8.4])]
    under = [of(i, {"x": Measured(v, "s", n=9)}) for i, v in enumerate([1.0, 2.0, 4.0])]
    found = quotient(over, under, "x")
    logs = np.log([2.0, 2.1, 2.1])
    low, high = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert (found.value, found.n) == (pytest.approx(math.exp(logs.mean())), 3)
    assert (found.lo, found.hi) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    two = quotient(over[:2], under[:2], "x")
    assert (two.value, two.lo, two.n) == (pytest.approx(3.1 / 1.5), None, 1)


def test_the_ends_of_independent_figures_are_joined_as_independent_errors_are():
    over, under = Measured(8.0, "s", 4.0, 16.0, 9), Measured(2.0, "s", 1.0, 4.0, 9)
    found = of_fields(over, under)
    factor = 2 ** math.sqrt(2)  # both are a factor of 2 either way
    assert (found.value, found.n, found.unit) == (pytest.approx(4.0), 1, "1")
    assert (found.lo, found.hi) == (pytest.approx(4 / factor), pytest.approx(4 * factor))
    crooked = of_fields(Measured(8.0, "s", 8.0, 16.0), Measured(2.0, "s", 2.0, 2.0))
    assert (crooked.lo, crooked.hi) == (pytest.approx(4.0), pytest.approx(8.0))
    other = of_fields(Measured(8.0, "s", 8.0, 8.0), Measured(2.0, "s", 2.0, 4.0))
    assert (other.lo, other.hi) == (pytest.approx(2.0), pytest.approx(4.0))
    for endless in (Measured(8.0, "s"), Measured(8.0, "s", 0.0, 9.0), Measured(8.0, "s", 1.0, math.inf)):
        assert of_fields(endless, under).lo is None and of_fields(under, endless).hi is None
    for zero in (Measured(0.0, "s"), Measured(-1.0, "s")):
        assert isinstance(of_fields(zero, under), Absent) and isinstance(of_fields(over, zero), Absent)
    assert of_fields(over, Absent("lost")) == Absent("lost") == of_fields(Absent("lost"), under)


def test_a_ratio_is_surely_above_a_limit_or_below_it_or_neither():
    def ratio(value, lo=None, hi=None, n=1):
        return Measured(value, "1", lo, hi, n)

    assert above(ratio(1.2, 1.1, 1.3)) is True and above(ratio(0.8, 0.7, 0.9)) is False
    assert above(ratio(1.2, 1.0, 1.3)) is None and above(ratio(0.8, 0.7, 1.0)) is None
    assert above(ratio(1.04, 1.03, 1.05)) is None  # too near for runs that are no pairs
    assert above(ratio(1 + NOTICED, 1.03, 1.08)) is True
    assert above(ratio(1.04, 1.03, 1.05, 2)) is None and above(ratio(1.04, 1.03, 1.05, 3)) is True
    assert above(ratio(1.2)) is None and above(ratio(1.2), exact=True) is True
    assert above(ratio(0.8), exact=True) is False and above(ratio(1.04), exact=True) is None
    assert above(ratio(2.4, 2.1, 2.9), 2.0) is True and above(ratio(1.5, 1.4, 1.6), 2.0) is False
    assert above(Absent("lost")) is None


def test_crowded_and_offline_runs_give_the_latencies_that_their_figures_are_of(make):
    run = make.result([1e6, 2e6, 3e6])
    assert latencies_s(run) == pytest.approx([0.001, 0.002, 0.003])
    assert latencies_s(replace(run, window=None)) is None and latencies_s(replace(run, queries=None)) is None
    for scenario in ("offline", "mlperf_offline"):
        assert latencies_s(replace(run, trial=Trial(model="m", scenario=scenario))) is None


def test_a_ratio_is_widened_where_both_sides_have_ends():
    ratio = Interval(1.9, 2.1, 2.0, 5, 5)
    assert (
        replicates._widened(ratio, [], [(1.0, 2.0)]) is ratio is replicates._widened(ratio, [(1.0, 2.0)], [])
    )
    found = replicates._widened(ratio, [(3.0, 5.0), (5.0, 7.0)], [(1.0, 2.0), (2.0, 3.0)])
    assert (found.lo, found.hi, found.value) == (4 / 2.5, 4.0, 2.0)
    narrow = replicates._widened(ratio, [(4.0, 4.0)], [(2.0, 2.0)])
    assert (narrow.lo, narrow.hi) == (1.9, 2.1)
    none = replicates._widened(ratio, [(4.0, 4.0)], [(0.0, 0.0)])
    assert (none.lo, none.hi) == (0.0, math.inf)
