"""Figures of cells by hand: ratios, means, their intervals, bounds of fresh processes, the limits of constraints."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgescope.analysis.cells import concurrency, objective, replicates
from edgescope.analysis.run import slowdowns, summary
from edgescope.records import (
    QUERY_DTYPES,
    QUERY_ERROR,
    QUERY_OK,
    Absent,
    Channel,
    Measured,
    Queries,
    Readings,
    Window,
)
from edgescope.stats import mean_interval, quantile_metric
from edgescope.stats.intervals import Interval, t_quantile
from edgescope.stats.pairs import RESOLVED, SAME_WITHIN, Judgement
from edgescope.wings.recommend import candidates

S = 1_000_000_000


# -- fresh processes ---------------------------------------------------------------------------------------------------


def test_the_spread_within_cells_is_pooled_over_them():
    found = candidates.pooled([[1.0, math.e], [5.0], [1.0, math.e**2, math.e**4]])
    assert (found.sd, found.dof) == (pytest.approx(math.sqrt((0.5 + 8) / 3)), 3)
    assert candidates.pooled([[1.0], []]) is None


def test_the_spread_of_a_cell_is_moderated_by_the_others():
    own, other = [1.0, math.e**0.2], [1.0, math.e**0.4, math.e**0.8]
    machine = candidates.pooled([own, other])
    prior = 1 / (1 / 2 + 1 / 2)
    found = candidates.moderated(own, machine)
    variance = (prior * 0.16 + 1 * 0.02) / (prior + 1)
    assert (found.dof, found.sd) == (pytest.approx(prior + 1), pytest.approx(math.sqrt(variance)))
    wide = candidates.moderated(other, machine)
    alone = candidates.Spread(0.4, 2)
    prior = 1 / (1 / 2 + 1 / 1)
    both = candidates.Spread(math.sqrt((prior * 0.02 + 2 * 0.16) / (prior + 2)), prior + 2)
    assert (wide.sd, wide.dof) == pytest.approx(
        max(((s.sd, s.dof) for s in (alone, both)), key=lambda s: t_quantile(0.95, s[1]) * s[0])
    )
    single = candidates.moderated([3.0], candidates.Spread(0.4, 6))
    assert (single.sd, single.dof) == (0.4, pytest.approx(1 / (1 / 2 + 1 / 6)))
    assert (
        candidates.moderated(own, None) == candidates.pooled([own])
        and candidates.moderated([3.0], None) is None
    )
    assert candidates.moderated(own, candidates.pooled([own])) == candidates.pooled([own]), (
        "its own cell is not among the others"
    )


def test_a_further_process_lies_within_its_bounds():
    values, machine = [1.0, math.e**0.2], candidates.Spread(0.3, 5)
    spread = candidates.moderated(values, machine)
    reach = t_quantile(0.95, spread.dof) * spread.sd * math.sqrt(1.5)
    assert candidates.fresh(values, machine) == pytest.approx((math.exp(0.1 - reach), math.exp(0.1 + reach)))
    assert candidates.fresh([], machine) is None and candidates.fresh([2.0], None) is None


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (1.01, Judgement.FASTER),
        (0.99, Judgement.AMBIGUOUS),
        (-1.01, Judgement.FASTER),
        (0.0, Judgement.AMBIGUOUS),
    ],
)
def test_two_cells_differ_by_more_than_their_spread(gap, said):
    machine = candidates.Spread(0.1, 400)
    spread = candidates.moderated([1.0], machine)
    edge = t_quantile(0.975, spread.dof) * math.sqrt(2) * spread.sd
    assert candidates.compared([math.exp(gap * edge)], [1.0], machine) is said
    assert candidates.compared([1.0], [], machine) is None and candidates.compared([1.0], [1.0], None) is None


def test_two_cells_are_the_same_where_their_ratio_surely_is():
    dof = 1 / (1 / 2 + 1 / 400)
    sd = math.log1p(SAME_WITHIN) / (t_quantile(0.95, dof) * math.sqrt(2))
    for share, said in ((0.99, Judgement.SAME), (1.01, Judgement.AMBIGUOUS)):
        assert candidates.compared([1.0], [1.0], candidates.Spread(share * sd, 400)) is said
    gap = 0.2 * math.log1p(SAME_WITHIN)
    assert (
        candidates.compared([math.exp(gap)], [1.0], candidates.Spread(0.81 * sd, 400)) is Judgement.AMBIGUOUS
    )
    assert candidates.compared([math.exp(gap)], [1.0], candidates.Spread(0.79 * sd, 400)) is Judgement.SAME


# -- replicates --------------------------------------------------------------------------------------------------------


def test_the_mean_over_processes_has_students_interval_from_three_on():
    half = t_quantile(0.975, 2) * 1.0 / math.sqrt(3)
    found = replicates.spread([1.0, 2.0, None, 3.0], "s")
    assert (found.value, found.lo, found.hi, found.n) == (2.0, 0.0, pytest.approx(2 + half), 3)
    high = replicates.spread([11.0, 12.0, 13.0], "s", [(5.0, 13.0), None, (7.0, 21.0)])
    assert (high.lo, high.hi) == (6.0, 17.0)
    inner = replicates.spread([11.0, 12.0, 13.0], "s", [(11.9, 12.1)])
    assert (inner.lo, inner.hi) == pytest.approx((12 - half, 12 + half))
    assert replicates.spread([1.0, 3.0], "s") == Measured(2.0, "s", n=2)
    assert isinstance(replicates.spread([None], "s"), Absent)


def test_ratios_of_independent_figures_are_joined_on_logs():
    over, under = Measured(8.0, "s", 4.0, 16.0, 9), Measured(2.0, "s", 1.0, 8.0, 9)
    found = replicates.of_fields(over, under)
    low, high = math.log(2), math.log(2)
    assert (found.value, found.n) == (pytest.approx(4.0), 1)
    assert found.lo == pytest.approx(math.exp(math.log(4) - math.hypot(low, math.log(4))))
    assert found.hi == pytest.approx(math.exp(math.log(4) + math.hypot(high, math.log(2))))
    for bare in (
        Measured(8.0, "s"),
        Measured(8.0, "s", 0.0, 9.0),
        Measured(8.0, "s", 1.0, math.inf),
        Measured(8.0, "s", None, 9.0),
    ):
        for a, b in ((bare, under), (over, bare)):
            ratio = replicates.of_fields(a, b)
            assert ratio.lo is None and ratio.value == pytest.approx(a.value / b.value)
    assert isinstance(replicates.of_fields(Measured(0.0, "s"), under), Absent)
    assert isinstance(replicates.of_fields(over, Measured(0.0, "s")), Absent)
    gone = Absent("x")
    assert replicates.of_fields(gone, under) is gone and replicates.of_fields(over, gone) is gone


@pytest.mark.parametrize(
    ("value", "lo", "hi", "n", "exact", "said"),
    [
        (1.2, 1.1, 1.3, 3, False, True),
        (0.8, 0.7, 0.9, 3, False, False),
        (1.2, 0.9, 1.3, 3, False, None),
        (1.02, 1.01, 1.03, 3, False, True),
        (1.02, 1.01, 1.03, 2, False, None),
        (1.06, 1.01, 1.1, 1, False, True),
        (0.94, 0.9, 0.99, 1, False, False),
        (1.2, 1.0, 1.3, 3, False, None),
        (0.8, 0.7, 1.0, 3, False, None),
        (1.06, None, None, 1, True, True),
        (0.94, None, None, 1, True, False),
        (1.04, None, None, 1, True, None),
        (1.06, None, None, 1, False, None),
        (1.06, 1.01, None, 1, True, True),
    ],
)
def test_what_is_above_a_limit_for_sure(value, lo, hi, n, exact, said):
    ratio = Measured(value, "1", lo, hi, n)
    assert replicates.above(ratio, exact=exact) is said
    twice = Measured(2 * value, "1", lo and 2 * lo, hi and 2 * hi, n)
    assert replicates.above(twice, 2.0, exact=exact) is said
    assert replicates.above(Absent("x")) is None


def test_means_of_ratios_carry_the_errors_of_their_parts():
    f = 4  # degrees of freedom of five pairs
    parts = [Measured(v, "1", v * math.exp(-e), v * math.exp(e), 5) for v, e in ((2.0, 0.2), (0.5, 0.1))]
    freedoms = [replicates._error(p)[1] for p in parts]
    assert freedoms[0] == freedoms[1] <= f
    errors = [e / t_quantile(0.975, freedoms[0]) for e in (0.2, 0.1)]
    variance = sum((e / 2) ** 2 for e in errors)
    freedom = variance**2 / sum((e / 2) ** 4 / freedoms[0] for e in errors)
    half = t_quantile(0.975, math.floor(freedom)) * math.sqrt(variance)
    found = replicates.log_mean([*parts, Absent("x")])
    assert (found.value, found.n) == (pytest.approx(1.0), 2)
    assert (found.lo, found.hi) == pytest.approx((math.exp(-half), math.exp(half)))
    plain = replicates.plain_mean(parts)
    weighted = sum((w * e / 2) ** 2 for w, e in zip((2.0, 0.5), errors, strict=True))
    freedom = weighted**2 / sum(
        (w * e / 2) ** 4 / freedoms[0] for w, e in zip((2.0, 0.5), errors, strict=True)
    )
    half = t_quantile(0.975, max(1, math.floor(freedom))) * math.sqrt(weighted)
    assert plain.value == pytest.approx(1.25)
    assert (plain.lo, plain.hi) == pytest.approx(
        (1.25 * math.exp(-half / 1.25), 1.25 * math.exp(half / 1.25))
    )
    ones = replicates.log_mean([Measured(1.0, "1", n=1), Measured(1.0, "1", n=1)])
    assert (ones.value, ones.lo, ones.hi) == (1.0, 1.0, 1.0)
    for bare in (Measured(2.0, "1", n=9), Measured(2.0, "1", 1.0, 3.0, 2), Measured(2.0, "1", 0.0, 3.0, 9)):
        assert replicates.log_mean([parts[0], bare]).lo is None and replicates.plain_mean([bare]).lo is None
    assert isinstance(replicates.log_mean([]), Absent) and isinstance(
        replicates.plain_mean([Absent("x")]), Absent
    )


# -- constraints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit", "strict", "relative"),
    [
        ("p99<=33ms", 0.033, False, False),
        ("p99 < 1.5e1 us", 1.5e-5, True, False),
        ("memory<=2GB", 2e9, False, False),
        ("memory<=3MiB", 3 * 2**20, False, False),
        ("memory<=2GiB", 2**31, False, False),
        ("memory<=5kB", 5000, False, False),
        ("memory<7B", 7, True, False),
        ("memory<7MB", 7e6, True, False),
        ("dropped<1%", 0.01, True, False),
        ("power<=500mW", 0.5, False, False),
        ("power<=5W", 5, False, False),
        ("accuracy>=0.98ref", 0.98, False, True),
        ("accuracy>0.5", 0.5, True, False),
    ],
)
def test_a_constraint_is_read_in_si(text, limit, strict, relative):
    found = objective.parse(text)
    assert (found.limit, found.strict, found.relative) == (pytest.approx(limit), strict, relative)
    assert found.holds(found.limit) is not strict
    inside, outside = found.limit * 0.9, found.limit * 1.1
    assert found.holds(inside) is found.at_most and found.holds(outside) is not found.at_most


def test_a_constraint_is_judged_on_the_worse_end():
    found = objective.parse("p99<=100ms")
    for worst, best, kept in (
        (0.1, 0.09, "yes"),
        (0.11, 0.1, "perhaps"),
        (0.2, 0.11, "no"),
        (None, 0.1, "perhaps"),
        (None, 0.2, "no"),
    ):
        assert found.check(worst, best).value == kept
    name = found.metric.name
    for field, excess in (
        (Measured(0.05, "s", 0.01, 0.2), 2.0),
        (Measured(0.05, "s"), 0.5),
        (Measured(0.1, "s", 0.05, None), 1.0),
        (Absent("x"), math.inf),
    ):
        assert found.excess({name: field}) == pytest.approx(excess)
        assert bool(found.broken({name: field})) is (excess > 1) and found.judged({name: field}) is (
            excess < math.inf
        )
    least = objective.parse("accuracy>=0.8")
    assert least.excess({"accuracy": Measured(0.4, "1", 0.1, 0.9)}) == pytest.approx(2.0), (
        "a measure counts as it is"
    )
    strict = objective.parse("p99<100ms")
    assert strict.excess({name: Measured(0.1, "s")}) == math.nextafter(1.0, 2.0)
    share = objective.parse("accuracy>=0.9ref")
    both = {"accuracy": Measured(0.45, "1"), "reference_accuracy": Measured(0.5, "1")}
    assert share.excess(both) == 1.0
    assert share.excess(both | {"accuracy": Measured(0.225, "1")}) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("value", "limit", "at_most", "excess"),
    [
        (3, 2, True, 1.5),
        (3, 0, True, math.inf),
        (0, 0, True, 1.0),
        (-1, 0, True, 1.0),
        (2, 3, False, 1.5),
        (0, 3, False, math.inf),
        (0, 0, False, 1.0),
        (-1, -2, False, 1.0),
    ],
)
def test_the_multiple_of_a_limit(value, limit, at_most, excess):
    assert objective._excess(value, limit, at_most) == excess


# -- the long run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("means", "share"),
    [
        ([1.0] * 8, 0.0),
        ([1.0] * 4 + [1.1] * 4, 0.1 / 1.05),
        ([1.1] * 4 + [1.0] * 4, -0.1 / 1.05),
        ([1.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0, 1.2], 0.0),
        ([1.0, 1.0001, 1.0, 1.0001, 1.2, 1.2001, 1.2, 1.2001], 0.2 / 1.10005),
        ([1.0], 0.0),
        ([], 0.0),
    ],
)
def test_a_step_is_a_split_whose_sides_differ_by_more_than_chance(means, share):
    assert slowdowns._step(np.array(means)) == pytest.approx(share, abs=1e-6)


def test_the_means_of_eight_parts_that_hold_a_value():
    t = np.array([10.0, 10.5, 11.9, 12.0, 18.0, 17.99])
    values = np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    assert slowdowns._block_means(t, values, 10.0, 18.0).tolist() == [2, 5, 7, 10]


@pytest.mark.parametrize(
    ("slope", "jump", "from_s", "steady"),
    [
        (0.99, 0.0, 0.0, True),
        (1.01, 0.0, 0.0, False),
        (-1.01, 0.0, 0.0, False),
        (0.0, 1.9, 0.0, True),
        (0.0, 2.1, 0.0, False),
        (0.0, 9.0, 70.0, True),
    ],
)
def test_heat_is_steady_within_a_degree_a_minute_and_two_between_parts(slope, jump, from_s, steady):
    """A bump in one of the middle parts hardly moves the slope."""
    t = np.arange(0, 120.5, 0.5)
    c = 50 + slope * t / 60 + jump * ((t >= 45) & (t < 60))
    assert (slowdowns._unsteady_heat({"x": (t, c)}, from_s, 120.0) == "") is steady


def test_heat_that_was_not_read_says_nothing():
    t = np.arange(0, 120.0)
    assert "silent" in slowdowns._unsteady_heat({"x": (t[:105], t[:105] * 0)}, 0.0, 120.0)
    assert slowdowns._unsteady_heat({"x": (t[:106], t[:106] * 0)}, 0.0, 120.0) == ""
    few = np.linspace(0, 120, 16)
    assert slowdowns._unsteady_heat({"x": (few, few * 0)}, 0.0, 120.0) == ""
    assert "too few" in slowdowns._unsteady_heat({"x": (few, few * 0)}, 1.0, 120.0)


@pytest.mark.parametrize(
    ("name", "active", "first", "throttled"),
    [
        ("throttled_gpu_thermal", [3], 3.0, True),
        ("throttled_x_other", [99], 99.0, True),
        ("throttled_gpu_power", [10, 30, 50, 70, 90], 10.0, False),
        ("throttled_gpu_power", [10, 30, 50, 70, 75, 90], 70.0, True),
        ("throttled_gpu_power", [10], 10.0, False),
        ("throttled_gpu_clock", [*range(0, 100, 5)], 0.0, False),
        ("throttled_gpu_clock", [*range(40, 61)], 38.0 + 2, True),
        ("throttled_gpu_clock", [], None, False),
    ],
)
def test_a_guard_counts_from_its_share_on(name, active, first, throttled):
    """A hundred readings, one a second."""
    value = np.zeros(100)
    value[active] = 1
    t_ns = (np.arange(100) * S).astype(np.int64)
    r = Readings((Channel(name, "1", "system", "gauge", "x"),), t_ns, np.zeros(100, np.int16), value)
    (hold,) = slowdowns.holds(r, 0, 99 * S)
    assert (hold.first_s, hold.throttled, hold.n) == (first, throttled, 100)
    assert hold.share == pytest.approx(len(active) / 100)
    (later,) = slowdowns.holds(r, 10 * S, 20 * S)
    assert later.n == 11


# -- summaries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "need"), [(0.5, 2), (0.9, 10), (0.99, 100), (0.25, 2)])
def test_a_quantile_needs_a_sample_beyond_it(q, need):
    x = np.random.default_rng(0).exponential(size=need)
    assert isinstance(quantile_metric(x[:-1], q), Absent)
    found = quantile_metric(x, q)
    assert found.value == pytest.approx(np.quantile(x, q)) and found.n == need


def test_throughput_is_samples_of_what_succeeded_over_the_window():
    rng, n = np.random.default_rng(0), 300
    done = np.cumsum(rng.uniform(0.01, 0.03, n))
    columns = {name: np.full(n, -1, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["done_ns"], columns["samples"] = (done * S).astype(np.int64), np.full(n, 4)
    columns["status"] = np.where(np.arange(n) < 10, QUERY_ERROR, QUERY_OK)
    window = Window(0, n, 0, 8 * S)
    found = summary.throughput(Queries(columns), window)
    value, gap = 290 * 4 / 8, mean_interval(np.diff(np.sort(columns["done_ns"][10:])))
    assert (found.value, found.n) == (value, 290)
    assert (found.lo, found.hi) == pytest.approx((value * gap.value / gap.hi, value * gap.value / gap.lo))
    assert isinstance(summary.throughput(Queries(columns), Window(0, n, 0, 0)), Absent)
    columns["status"][:] = QUERY_ERROR
    assert isinstance(summary.throughput(Queries(columns), window), Absent)
    assert summary._cv(np.array([1.0, 3.0])).value == pytest.approx(math.sqrt(2) / 2)
    assert isinstance(summary._cv(np.zeros(3)), Absent)


@pytest.mark.parametrize(
    ("n", "half", "wish"),
    [
        (1, 0.1, "use --replicates 5"),
        (9, 0.99, "use --replicates 9"),
        (9, 1.4, "use --replicates 18"),
        (9, 1.5, "measure on a quieter machine"),  # 20.25 pairs are more than twenty
        (4, 0.1, "use --replicates 5"),
    ],
)
def test_more_pairs_are_wished_for_as_the_interval_narrows_with_their_root(n, half, wish):
    width = RESOLVED**half
    ratio = Interval(2.0 / width, 2.0 * width, 2.0, n, n, False, "wide")
    assert replicates.of_pairs(ratio, "--replicates") == Absent(f"wide: {wish}")
    assert replicates.of_pairs(ratio, replicates.LONGER) == Absent(f"wide: use {replicates.LONGER}")


def test_what_sharing_gains_is_told_with_as_many_digits_as_are_known():
    assert [concurrency.digits(x) for x in (9.994, 10.0, 99.94, 100.0, 1234.0)] == [
        "9.99",
        "10.0",
        "99.9",
        "100",
        "1,234",
    ]
    told = [
        concurrency.times(Measured(v, "1", lo, hi))
        for v, lo, hi in (
            (3.61, 3.5, 3.7),
            (3.61, 3.4, 3.7),
            (10.0, 9.9, 10.1),
            (100.0, 99.0, 101.0),
            (3.6, None, 4.0),
        )
    ]
    assert told == ["3.61x [3.50, 3.70]", "3.6x [3.4, 3.7]", "10.0x [9.9, 10.1]", "100x [99, 101]", "3.60x"]
    assert [bool(concurrency._of(n, "largest")) for n in (1, 2)] == [False, True]
