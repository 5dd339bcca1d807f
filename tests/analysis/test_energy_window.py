"""Which meter is taken, when it warns, and the interval over blocks: each limit on both sides, each figure by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from edgescope.analysis.run.energy import consumption, done
from edgescope.analysis.run.energy_integral import Curve, Total
from edgescope.analysis.run.energy_window import (
    Energy,
    _best,
    _shaped,
    _unsure,
    _warnings,
    energies,
    energy,
    integrate,
    interval,
    of_window,
    ratio,
    scope_note,
    updates,
)
from edgescope.records import QUERY_DTYPES, Absent, Channel, Measured, Queries, Readings, Window

S = 1_000_000_000
T = np.arange(-50, 160) / 10


def channel(name: str, scope: str = "module", source: str = "x") -> Channel:
    kind = "counter" if name.endswith("_j") else "average" if "average" in name else "gauge"
    return Channel(name, name[-1].upper(), scope, kind, source)


def readings(*series: tuple[Channel, object], t: np.ndarray = T) -> Readings:
    n = len(series)
    values = [np.broadcast_to(np.asarray(v, float), t.shape) for _, v in series]
    t_ns = (t * S).round().astype(np.int64)
    numbers = np.repeat(np.arange(n, dtype=np.int16), len(t))
    return Readings(tuple(c for c, _ in series), np.tile(t_ns, n), numbers, np.concatenate(values or [[]]))


def flat(watts: float) -> np.ndarray:
    """Nearly constant, and never the same twice."""
    return watts + 1e-6 * np.arange(len(T))


def total(joules: float = 100.0, **kw: object) -> Total:
    curve = Curve(np.array([0.0, 10.0]), np.array([0.0, joules]))
    fields = {"updates": 30, "polls": 30, "refresh_s": 0.1, "curve": curve, "lo": 90.0, "hi": 120.0} | kw
    return Total(joules, **fields)  # type: ignore[arg-type]


# -- which meter -------------------------------------------------------------------------------------------------------


def test_the_named_meter_is_taken_and_a_device_that_it_does_not_see_leaves_it_out():
    r = readings(
        *((channel(f"gpu{k}_power_w", "gpu_board"), flat(50 + k)) for k in (0, 1)),
        (channel("cpu_power_w", "cpu_package"), flat(7.0)),
        (channel("soc_power_w", "rail"), flat(3.0)),
        (channel("plug_power_w", "somewhere"), flat(99.0)),
    )

    def taken(**kw: object) -> str:
        return energy(r, 0, 10 * S, 5, **kw).meter  # type: ignore[arg-type]

    assert [e.meter for e in energies(r, 0, 10 * S, 5)] == ["gpu0", "gpu1", "cpu", "soc", "plug"]
    assert (taken(), taken(board="gpu1"), taken(board="gpu7")) == ("gpu0", "gpu1", "cpu")
    assert (taken(device="cpu"), taken(device="cuda"), taken(device="npu")) == ("cpu", "gpu0", "gpu0")
    assert (taken(meter="gpu1"), taken(meter="soc"), taken(meter="gpu1", device="cpu")) == ("gpu1", "soc", "")


def test_one_rail_is_taken_and_of_two_none():
    rails = [(channel(f"r{k}_power_w", "rail"), flat(k + 1.0)) for k in (0, 1)]
    assert energy(readings(rails[0]), 0, 10 * S, 5).meter == "r0"
    none = energy(readings(*rails), 0, 10 * S, 5)
    assert none.meter == none.scope == none.method == "" and "r0, r1" in none.power_w.reason
    module = (channel("vdd_power_w"), flat(9.0))
    assert energy(readings(*rails, module), 0, 10 * S, 5).meter == "vdd"
    dead = (channel("r1_power_w", "rail"), 0.0)
    assert energy(readings(rails[0], dead), 0, 10 * S, 5).meter == "r0", (
        "one that does not answer is none of several"
    )


def test_a_single_meter_that_fails_gives_its_own_reason_and_several_all_of_theirs():
    one = energy(readings((channel("a_power_w"), 0.0)), 0, 10 * S, 5)
    assert (one.meter, one.energy_j.reason) == (
        "a",
        "a_power_w: it reads 0 W throughout: no sensor is behind it",
    )
    two = energy(readings((channel("a_power_w"), 0.0), (channel("b_power_w"), 0.0)), 0, 10 * S, 5)
    assert two.meter == "" and "a: a_power_w" in two.energy_j.reason and "b: b_power_w" in two.energy_j.reason
    other = energy(readings((channel("a_power_w"), flat(5.0))), 0, 10 * S, 5, meter="b")
    assert other.energy_j.reason == "no meter called 'b': no power or energy channel was watched"


@pytest.mark.parametrize(("samples", "per"), [(1, 50.0), (5, 10.0), (0, None), (-1, None)])
def test_energy_is_divided_by_the_samples_and_power_is_energy_over_time(samples, per):
    got = energy(readings((channel("a_power_w"), flat(5.0))), 0, 10 * S, samples)
    assert got.power_w.value == pytest.approx(5.0, rel=1e-3) and got.energy_j.value == pytest.approx(
        50, rel=1e-3
    )
    assert got.power_w.lo == pytest.approx(got.energy_j.lo / 10)
    if per is None:
        assert isinstance(got.energy_per_sample_j, Absent)
    else:
        assert got.energy_per_sample_j.value == pytest.approx(per, rel=1e-3)


@pytest.mark.parametrize("stop", [0, -1])
def test_an_empty_window_has_no_energy(stop):
    got = energy(readings((channel("a_power_w"), flat(5.0))), 0, stop * S, 5)
    assert got.energy_j == Absent("the window is empty")
    assert isinstance(energy(readings((channel("a_power_w"), flat(5.0))), 0, S, 5).energy_j, Measured)


# -- which reading of a meter ------------------------------------------------------------------------------------------


def way(method: str = "trapezoid", lo: float | None = 90.0, hi: float | None = 110.0, **kw: object) -> Energy:
    joules = Measured(100.0, "J", lo, hi, 30)
    fields = {"total": total(lo=lo, hi=hi), "warnings": ()} | kw
    return Energy("m", "module", method, joules, joules, joules, **fields)  # type: ignore[arg-type]


def test_a_counter_takes_the_course_of_a_finer_power_reading():
    slow, fine = total(100.0, refresh_s=2.0), total(80.0, refresh_s=0.1)
    counter, power = way("counter", total=slow), way(total=fine)
    shaped = _shaped(counter, [power])
    assert shaped.total.refresh_s == 0.1 and shaped.total.joules == 100.0
    assert shaped.total.curve.at(np.array([5.0, 10.0])).tolist() == [50.0, 100.0]
    for same in (
        _shaped(counter, []),
        _shaped(counter, [way(total=replace(fine, refresh_s=2.0))]),
        _shaped(counter, [way(total=replace(fine, joules=0.0))]),
        _shaped(counter, [way(total=None)]),
    ):
        assert same is counter
    assert _shaped(power, [counter]) is power
    half = _shaped(counter, [way(total=replace(fine, joules=-1.0)), power])
    assert half.total.refresh_s == 0.1, "one that used nothing gives no course"


def test_of_readings_without_a_warning_the_narrowest_is_taken_and_else_that_of_most_updates():
    t = (T * 10).round()
    jumping = (channel("m_power_w"), np.where(t % 2 == 0, 10.0, 50.0))
    steady = (channel("m_power_average_w"), flat(30.0))
    assert energy(readings(jumping, steady), 0, 10 * S, 1).method == "trapezoid of averages"
    rising = (channel("m_power_average_w"), 10 * T + 60)
    assert energy(
        readings((channel("m_power_w", source="NVML_INSTANT"), 10 * T + 60), rising), 0, 10 * S, 1
    ).method == ("trapezoid")
    few = (channel("m_power_w"), 10 + np.floor(T))
    fewer = (channel("m_power_average_w"), 10 + np.floor(T / 2))
    got = energy(readings(fewer, few), 0, 10 * S, 1)
    assert (got.method, got.energy_j.n, len(got.warnings)) == ("trapezoid", 11, 1)
    swapped = (channel("m_power_w"), fewer[1]), (channel("m_power_average_w"), few[1])
    assert energy(readings(*swapped), 0, 10 * S, 1).method == "trapezoid of averages"
    assert energies(readings((channel("x_hz"), 1.0)), 0, 10 * S, 1) == ()
    assert isinstance(_best(readings(), "m", [channel("m_power_w")], (0, 10 * S), 1).energy_j, Absent)


def test_an_unknown_gauge_is_bounded_both_as_a_gauge_and_as_a_mean_of_a_second():
    seen = updates((T * S).round().astype(np.int64), 10 + 3 * np.sin(T), 0)
    plain, mean = integrate(seen, 10.0), integrate(seen, 10.0, average_s=1.0)
    both = _unsure(plain, seen, 10.0)
    assert (both.lo, both.hi) == (min(plain.lo, mean.lo), max(plain.hi, mean.hi))
    assert (both.joules, both.updates) == (plain.joules, plain.updates)
    assert plain.lo != mean.lo and plain.hi != mean.hi
    for lo, hi in ((None, 5.0), (5.0, None)):
        bare = replace(plain, lo=lo, hi=hi)
        assert _unsure(bare, seen, 10.0) is bare
    gauge = readings((channel("m_power_w"), 10 + 3 * np.sin(T)))
    known = readings((channel("m_power_w", source="tegrastats VDD_IN"), 10 + 3 * np.sin(T)))
    average = readings((channel("m_power_average_w"), 10 + 3 * np.sin(T)))
    other = readings((replace(channel("m_power_w"), kind="average"), 10 + 3 * np.sin(T)))
    lows = [energy(r, 0, 10 * S, 1).energy_j.lo for r in (gauge, known, average, other)]
    zero = integrate(seen, 10.0, average_s=0.0)
    assert lows == pytest.approx([both.lo, plain.lo, mean.lo, zero.lo])


# -- warnings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found", "fix"),
    [
        ("m_power_w", {"updates": 20}, ""),
        ("m_power_w", {"updates": 19}, "--duration 20s"),
        ("m_power_w", {"updates": 10}, "--duration 20s"),
        ("m_power_w", {"updates": 9}, "--duration 23s"),
        ("m_power_w", {"updates": 1, "polls": 20}, ""),
        ("m_power_w", {"updates": 1, "polls": 19}, "--duration 200s"),
        ("m_power_w", {"updates": 0, "polls": 19}, "--duration 200s"),
        ("m_power_w", {"updates": 2, "polls": 99}, "--duration 100s"),
        ("m_power_average_w", {"updates": 19}, "--duration 20s"),
        ("m_power_average_w", {"updates": 20}, ""),
        ("m_energy_j", {"updates": 5}, ""),
        ("m_energy_j", {"updates": 4}, "--duration 20s"),
        ("m_energy_j", {"updates": 2}, "--duration 25s"),
        ("m_energy_j", {"updates": 4, "lo": 90.0, "hi": 110.0}, ""),
        ("m_energy_j", {"updates": 4, "lo": 90.0, "hi": 110.5}, "--duration 20s"),
        ("m_energy_j", {"updates": 4, "lo": None, "hi": None}, "--duration 20s"),
        ("m_energy_j", {"updates": 4, "lo": 0.0, "hi": 20.0}, ""),
        ("m_power_w", {"updates": 4, "lo": 90.0, "hi": 110.0}, "--duration 50s"),
    ],
)
def test_too_few_updates_are_told_with_a_window_that_holds_enough(name, found, fix):
    told = _warnings(channel(name), total(**found), 10.0)
    assert [w.fix for w in told] == ([fix] if fix else [])
    assert all(w.code == "W-PWR-3" for w in told)


@pytest.mark.parametrize(
    ("joules", "lo", "hi", "effect"),
    [
        (100.0, 90.0, 150.0, "Its energy lies between 90 and 150 J (-10% to +50%)"),
        (0.0, -1.0, 1.0, "Its energy lies between -1 and 1 J"),
        (0.5, 0.25, 1.0, "Its energy lies between 0.25 and 1 J (-50% to +100%)"),
        (100.0, None, 150.0, "Nothing bounds its energy"),
        (100.0, 90.0, None, "Nothing bounds its energy"),
    ],
)
def test_a_warning_says_between_what_the_energy_lies(joules, lo, hi, effect):
    (told,) = _warnings(channel("m_power_w"), total(joules, updates=3, lo=lo, hi=hi), 10.0)
    assert told.effect == effect


def test_what_a_scope_leaves_out_is_told():
    assert scope_note("plug", "wall") is None
    scopes = ("carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail", "else")
    assert len({scope_note("m", scope).effect for scope in scopes}) == len(scopes)


# -- blocks ------------------------------------------------------------------------------------------------------------


def by_hand(joules: np.ndarray, samples: np.ndarray) -> tuple[float, float, float, int] | None:
    """Student's interval of a ratio of sums, widened for the correlation that may be there."""
    value = joules.sum() / samples.sum()
    rest = [float(j - value * s) for j, s in zip(joules, samples, strict=True)]

    def lag1() -> float:
        mean = sum(rest) / len(rest)
        off = [x - mean for x in rest]
        return sum(a * b for a, b in pairwise(off)) / sum(x * x for x in off)

    def doubt() -> float:
        return float(norm.ppf(0.9)) / len(rest) ** 0.5

    while len(rest) >= 20 and lag1() > doubt():
        whole = rest[len(rest) % 2 :]
        rest = [a + b for a, b in zip(whole[::2], whole[1::2], strict=True)]
    n, seen = len(rest), lag1()
    if seen > doubt():
        return None
    alike = min(max(0.0, seen + (1 + 3 * seen) / n + doubt()), 0.9)
    error = math.sqrt(n * np.var(rest, ddof=1) * (1 + alike) / (1 - alike)) / samples.sum()
    half = float(student.ppf(0.975, n - 1)) * error
    return value, value - half, value + half, n


@pytest.mark.parametrize("n", [10, 11, 19, 20, 21, 23, 40, 41, 64])
@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_the_interval_over_blocks_is_that_of_the_formula(n, repeat):
    rng = np.random.default_rng(n * repeat)
    noise = np.repeat(rng.normal(0, 1, n), repeat)[:n]
    joules, samples = 50 + noise, 5.0 + rng.integers(0, 2, n)
    found, wanted = ratio(joules, samples), by_hand(joules, samples)
    if wanted is None:
        assert found is None
        return
    assert (found.value, found.lo, found.hi) == pytest.approx(wanted[:3]) and found.n == wanted[3]
    assert found.unit == "J"


@pytest.mark.parametrize(("least", "cut"), [(0.0, True), (-1.0, False)])
def test_energy_is_not_below_nothing_unless_a_sensor_reads_below_it(least, cut):
    joules = np.array([30.0, least, 0, 0, 0, 40, 0, 0, 0, 0, 0, 1])
    found, wanted = ratio(joules, np.ones(12)), by_hand(joules, np.ones(12))
    assert wanted[1] < 0
    assert found.lo == (0.0 if cut else pytest.approx(wanted[1]))


def test_fewer_than_ten_blocks_or_no_samples_give_no_interval():
    rng = np.random.default_rng(0)
    joules = 5 + rng.normal(size=10)
    assert ratio(joules, np.ones(10)) is not None and ratio(joules[:9], np.ones(9)) is None
    assert ratio(joules, np.zeros(10)) is None


def queries(samples: int = 2, status: object = 0) -> Queries:
    """A query each 100 ms from 0 s to 10 s, in an order of their own."""
    columns = {name: np.zeros(100, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["done_ns"] = np.roll((np.arange(100) + 1) * S // 10, 7)
    columns["samples"][:] = samples
    columns["status"][:] = status
    return Queries(columns)


@pytest.mark.parametrize(
    ("refresh", "n"),
    [(0.25, 10), (0.2501, None), (0.1, 25), (0.0390625, 64), (0.01, 64), (0.0, 64), (0.2, 12)],
)
def test_a_block_is_four_refreshes_long_and_there_are_ten_to_sixty_four(refresh, n):
    rng = np.random.default_rng(3)
    t = np.arange(0, 1001) / 100
    curve = Curve(t, np.concatenate(([0.0], np.cumsum(rng.uniform(0.05, 0.15, 1000)))))
    found = interval(total(refresh_s=refresh, curve=curve), queries(), Window(0, 100, 0, 10 * S))
    assert (found and found.n) == n
    if found:
        assert found.value == pytest.approx(curve.joules[-1] / 200)


def test_the_samples_of_a_block_are_those_done_in_it():
    """Ten blocks of a second; the joules of each are its own number, and samples of failed queries are none."""
    curve = Curve(np.arange(11.0), np.concatenate(([0.0], np.cumsum([3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3]))))
    status = np.zeros(100, int)
    status[::5] = 1
    shifted = total(refresh_s=0.25, curve=curve)
    window = Window(0, 100, 0, 10 * S)
    found = interval(shifted, queries(3), window)
    assert found.value == pytest.approx(39 / 300)
    wanted = by_hand(np.diff(curve.joules), np.full(10, 30.0))
    assert (found.lo, found.hi) == pytest.approx((max(0.0, wanted[1]), wanted[2]))
    failed = interval(shifted, queries(3, status), window)
    assert failed.value == pytest.approx(39 / (300 - 60))
    later = queries(3)
    later.columns["done_ns"] += 5 * S
    assert interval(shifted, later, Window(0, 100, 5 * S, 15 * S)).value == pytest.approx(39 / 300)


def test_an_interval_over_blocks_takes_the_place_of_the_meters_bounds():
    per, over = Measured(0.5, "J", 0.1, 0.9, 77), Measured(0.51, "J", 0.4, 0.6, 12)
    assert of_window(per, over) == Measured(0.5, "J", 0.4, 0.6, 12) and of_window(per, None) is per


def test_a_runs_consumption_counts_the_window_and_the_queries_that_succeeded():
    r = readings((channel("m_power_w", source="INA; refresh 35 ms"), 10 + np.sin(37 * T)))
    window = Window(0, 100, 0, 10 * S)
    status = np.zeros(100, int)
    status[:40] = 1
    assert done(queries(3), window) == 300 and done(queries(3, status), window) == 180
    found = consumption(r, queries(3, status), window)
    m = found.metrics
    assert m["energy_per_sample_j"].value == pytest.approx(m["energy_j"].value / 180)
    assert m["energy_j"].value == pytest.approx(10 * m["power_w"].value)
    rate = m["power_updates_hz"]
    assert (rate.value, rate.n) == (pytest.approx(m["energy_j"].n / 10), m["energy_j"].n)
    assert [w.code for w in found.warnings] == ["W-PWR-2"]
