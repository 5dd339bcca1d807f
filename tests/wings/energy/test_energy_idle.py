"""Idle power before and after, dynamic energy beyond it, and what is said where either cannot be known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.run.energy import (
    NAMES,
    _clocks,
    _drift,
    _drifting,
    _dynamic,
    _joined,
    _mean,
    _missing,
    _per,
    consumption,
    inner,
)
from edgescope.records import QUERY_DTYPES, Absent, Channel, Idle, Measured, Queries, Readings, Window
from edgescope.wings.energy.align import _outwards

S = 1_000_000_000
T = np.arange(-12, 32.01, 0.1)
IDLE = (Idle("before", -11 * S, -S), Idle("after", 21 * S, 31 * S))


def load(before=4.0, busy=10.0, after=4.0):
    return np.where(T < 0, before, np.where(T <= 20, busy, after))


def queries(n=200):
    columns = {name: np.zeros(n, dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["done_ns"] = (np.arange(n) + 1) * (20 * S // n)
    columns["samples"][:] = 2
    return Queries(columns), Window(0, n, 0, 20 * S)


def readings(*series):
    """(name, unit, scope, values on T) -> Readings."""
    channels = tuple(Channel(name, unit, scope, "gauge", "test") for name, unit, scope, _ in series)
    t_ns = (T * S).round().astype(np.int64)
    return Readings(
        channels,
        np.tile(t_ns, len(series)),
        np.repeat(np.arange(len(series), dtype=np.int16), len(T)),
        np.concatenate([np.asarray(v, float) for *_, v in series] or [np.empty(0)])
        if series
        else np.empty(0),
    )


def spent(*series, idle=IDLE, **kw):
    rows, window = queries()
    return consumption(readings(*series), rows, window, idle=idle, **kw)


def test_a_row_of_many_samples_counts_as_many():
    rows, window = queries()
    rows.columns["samples"][:] = 8
    a_row = spent(module(load())).metrics["energy_per_sample_j"].value
    m = consumption(readings(module(load())), rows, window, idle=IDLE).metrics
    assert m["energy_per_sample_j"].value == pytest.approx(a_row / 4)
    assert m["energy_dynamic_per_sample_j"].value == pytest.approx(m["energy_dynamic_j"].value / 1600)


def test_what_other_models_used_beside_it_is_no_samples():
    m = spent(module(load()), colocated="resnet18").metrics
    for name in ("energy_per_sample_j", "energy_dynamic_per_sample_j"):
        assert m[name] == Absent("other models ran beside it: resnet18")
    assert m["power_w"].value > 0 and m["energy_j"].value > 0


def module(watts):
    return ("vdd_in_power_w", "W", "module", watts)


def test_dynamic_energy_is_what_the_load_adds():
    got = spent(module(load()))
    m = got.metrics
    assert (got.meter.name, got.meter.scope, got.meter.method) == ("vdd_in", "module", "trapezoid")
    assert m["idle_power_w"].value == pytest.approx(4.0)
    assert m["energy_j"].value == pytest.approx(200, rel=0.01)
    assert m["energy_dynamic_j"].value == pytest.approx(120, rel=0.02)
    assert m["energy_dynamic_per_sample_j"].value == pytest.approx(0.3, rel=0.02)
    assert m["energy_dynamic_j"].lo <= 120 <= m["energy_dynamic_j"].hi
    assert m["idle_power_drift_w"].value == pytest.approx(0)
    assert not [w for w in got.warnings if w.code in ("W-PWR-4", "W-PWR-5")]


def test_an_idle_power_that_moved_is_told_and_widens_the_bounds():
    got = spent(module(load(before=4.0, after=6.0)))
    m = got.metrics
    assert (m["idle_power_before_w"].value, m["idle_power_after_w"].value) == (
        pytest.approx(4.0),
        pytest.approx(6.0),
    )
    assert m["idle_power_drift_w"].value == pytest.approx(2.0)
    assert m["idle_power_w"].value == pytest.approx(5.0)
    assert m["energy_dynamic_j"].lo <= 200 - 6 * 20 + 1 and m["energy_dynamic_j"].hi >= 200 - 4 * 20 - 1
    assert any(w.code == "W-PWR-4" and " +2.00 W" in w.what for w in got.warnings)


@pytest.mark.parametrize(("idle_hz", "warned"), [(306e6, True), (1_000e6, False)])
def test_clocks_that_fell_while_idle_are_told(idle_hz, warned):
    clock = ("gpu_clock_hz", "Hz", "system", np.where((T < -0.05) | (T > 20.05), idle_hz, 1_000e6))
    found = [w for w in spent(module(load()), clock).warnings if w.code == "W-PWR-5"]
    assert bool(found) is warned
    if warned:
        assert "gpu_clock_hz 306 MHz idle, 1000 MHz in the run" in str(found[0])


def test_the_end_next_to_the_load_is_left_out():
    """A sensor that shows the load for another second after it."""
    late = np.where((T > 20) & (T < 22), 10.0, load())
    assert spent(module(late)).metrics["idle_power_after_w"].value == pytest.approx(4.0)


def test_without_idling_every_idle_figure_is_absent_with_the_reason():
    m = spent(module(load()), idle=()).metrics
    assert isinstance(m["energy_j"], Measured)
    for name in NAMES:
        assert isinstance(m[name], Absent) and "--idle 10s" in m[name].reason


def test_without_a_meter_they_are_absent_with_its_reason():
    got = spent()
    assert got.meter is None and not got.warnings
    for name in (*NAMES, "power_w", "energy_per_sample_j", "power_updates_hz"):
        assert "no power or energy channel was watched" in got.metrics[name].reason


def test_a_meter_silent_while_idle_leaves_the_total_standing():
    watts = readings(module(load()))
    busy = (watts.t_ns > -S // 2) & (watts.t_ns < 41 * S // 2)
    cut = Readings(watts.channels, watts.t_ns[busy], watts.channel[busy], watts.value[busy])
    rows, window = queries()
    m = consumption(cut, rows, window, idle=IDLE).metrics
    assert isinstance(m["energy_j"], Measured)
    assert "too few" in m["idle_power_w"].reason or "span" in m["idle_power_w"].reason


def test_one_stretch_alone_gives_an_idle_power_but_no_drift():
    got = spent(module(load()), idle=IDLE[:1])
    m = got.metrics
    assert any(w.code == "W-PWR-4" and "before the load only" in w.what for w in got.warnings)
    assert m["idle_power_w"].value == pytest.approx(4.0) and m["idle_power_w"].n == 1
    assert "after" in m["idle_power_drift_w"].reason


def test_the_meter_of_the_load_measures_the_idling_too():
    rail = ("vdd_soc_power_w", "W", "rail", np.full(len(T), 1.0))
    assert spent(rail, module(load())).metrics["idle_power_w"].value == pytest.approx(4.0)


def test_the_scope_is_said_and_the_rate_of_updates():
    slow = np.floor(T / 0.43) * 0.43
    got = spent(module(10 + 0.1 * np.sin(slow)))
    assert got.warnings[0].code == "W-PWR-2" and got.warnings[0].what.endswith(" MODULE (vdd_in)")
    assert "carrier board" in str(got.warnings[0])
    assert got.metrics["power_updates_hz"].value == pytest.approx(1 / 0.43, rel=0.1)


def test_single_rails_are_no_total_unless_one_is_named():
    rails = [(f"vdd_{n}_power_w", "W", "rail", load()) for n in ("cpu", "gpu")]
    got = spent(*rails)
    assert "no rail is a total: vdd_cpu, vdd_gpu" in got.metrics["power_w"].reason
    assert got.meter is None
    assert spent(*rails, meter="vdd_gpu").meter.name == "vdd_gpu"
    assert spent(rails[0]).meter.scope == "rail"


def test_an_end_that_nothing_bounds_stays_unknown():
    whole, bare = Measured(200.0, "J", 190.0, 210.0), Measured(200.0, "J")
    rest, known = Measured(4.0, "W"), Measured(4.0, "W", 3.0, 5.0)
    assert _dynamic(whole, known, 20.0) == Measured(120.0, "J", 90.0, 150.0)
    for total, idle in ((bare, known), (whole, rest)):
        assert _dynamic(total, idle, 20.0) == Measured(120.0, "J")
    assert _joined([known, rest]) == Measured(4.0, "W", n=2)
    assert _outwards(bare, 3.0) == bare and _outwards(whole, 3.0) == Measured(200.0, "J", 187.0, 213.0)


def test_a_fifth_of_an_idle_stretch_next_to_the_load_is_left_out():
    assert inner(Idle("before", 10, 20)) == (10, 18) and inner(Idle("after", 10, 20)) == (12, 20)


def test_the_drift_is_what_came_after_less_what_was_before():
    low, high, none = Measured(4.0, "W", 3.0, 5.0, 9), Measured(6.5, "W"), Absent("x")
    assert _drift(low, high) == Measured(2.5, "W", n=2) and _drift(high, low) == Measured(-2.5, "W", n=2)
    assert _drift(none, low) == _drift(low, none) == none


@pytest.mark.parametrize(
    ("before", "after", "told"), [(9.5, 10.5, 0), (10.5, 9.5, 0), (9.4, 10.6, 1), (10.6, 9.4, 1)]
)
def test_a_tenth_of_the_idle_power_may_come_or_go(before, after, told):
    power = _joined([Measured(before, "W"), Measured(after, "W")])
    drift = _drift(Measured(before, "W"), Measured(after, "W"))
    assert power.value == 10.0
    assert len(_drifting({"idle_power_drift_w": drift}, power)) == told


def test_dynamic_energy_per_sample_is_divided_with_its_ends():
    whole = Measured(12.0, "J", 8.0, None, 7)
    assert _per(whole, 4) == Measured(3.0, "J", 2.0, None, 7) and _per(whole, 1) == whole
    assert isinstance(_per(whole, 0), Absent)


def test_a_stretch_without_power_is_said_to_be_missing():
    known, lost = Measured(4.0, "W"), Absent("the sensor slept")
    assert _missing(known, known) == ()
    for before, after, when in ((lost, known, "after"), (known, lost, "before")):
        (told,) = _missing(before, after)
        assert told.code == "W-PWR-4"
        assert told.what.endswith(f" {when} the load only: the sensor slept")


def clocked(*hz, unit="Hz", kind="gauge"):
    """Channels that show a clock in the stretch before, in the run, and in the stretch after."""
    channels = tuple(Channel(f"clock{i}_hz", unit, "system", kind, "x") for i in range(len(hz)))
    t = np.array([0, 4, 10, 20, 26, 30], np.int64)  # each at the very end of its stretch
    values = [np.repeat(levels, 2).astype(float) for levels in hz]
    n = len(hz)
    return Readings(
        channels, np.tile(t, n), np.repeat(np.arange(n, dtype=np.int16), 6), np.concatenate(values)
    )


@pytest.mark.parametrize(
    ("before", "busy", "after", "told"),
    [
        (950, 1000, 950, 0),
        (949, 1000, 950, 1),
        (1050, 1000, 1050, 0),
        (1051, 1000, 1050, 1),
        (900, 1000, 1100, 0),  # the mean of both stretches
        (0, 1000, 1000, 0),  # a clock that was not known is none of both
        (0, 1000, 0, 0),
        (1000, 0, 1000, 0),
    ],
)
def test_a_clock_may_differ_by_a_twentieth_between_idle_and_load(before, busy, after, told):
    idle = (Idle("before", 0, 5), Idle("after", 25, 30))
    window = Window(0, 1, 10, 20)
    found = _clocks(clocked((before, busy, after)), idle, window)
    assert len(found) == told
    assert _clocks(clocked((1, 1000, 1), unit="W"), idle, window) == ()
    assert _clocks(clocked((1, 1000, 1), kind="counter"), idle, window) == ()


def test_four_clocks_at_most_are_told_and_each_channel_is_looked_at():
    idle, window = (Idle("before", 0, 5), Idle("after", 25, 30)), Window(0, 1, 10, 20)
    (told,) = _clocks(clocked((2e8, 2e8, 2e8), *[(5e8, 1e9, 5e8)] * 5), idle, window)
    names = [f"clock{i}_hz 500 MHz idle, 1000 MHz in the run" for i in (1, 2, 3, 4)]
    assert (told.code, told.evidence) == ("W-PWR-5", "; ".join(names))
    mixed = clocked((5e8, 1e9, 5e8), (5e8, 1e9, 5e8))
    mixed = Readings(
        (replace(mixed.channels[0], unit="W"), mixed.channels[1]), mixed.t_ns, mixed.channel, mixed.value
    )
    assert _clocks(mixed, idle, window)[0].evidence.startswith("clock1_hz")


def test_what_was_read_at_the_very_ends_counts():
    read = clocked((1.0, 2.0, 3.0))
    wanted = {
        (0, 4): 1.0,
        (4, 10): 1.5,
        (10, 20): 2.0,
        (11, 19): None,
        (5, 9): None,
        (0, 30): 2.0,
        (20, 30): 8 / 3,
    }
    for span, mean in wanted.items():
        assert _mean(read, "clock0_hz", *span) == mean


def test_idle_figures_carry_both_stretches_and_the_whole_window():
    got = spent(module(load(before=4.0, after=5.0) + 0.001 * (np.arange(len(T)) % 2)))
    m = got.metrics
    lows = [m[f"idle_power_{when}_w"].lo for when in ("before", "after")]
    highs = [m[f"idle_power_{when}_w"].hi for when in ("before", "after")]
    assert (m["idle_power_w"].lo, m["idle_power_w"].hi, m["idle_power_w"].n) == (min(lows), max(highs), 2)
    whole, dynamic = m["energy_j"], m["energy_dynamic_j"]
    assert dynamic.value == pytest.approx(whole.value - 20 * m["idle_power_w"].value)
    assert dynamic.lo == pytest.approx(whole.lo - 20 * max(highs))
    assert dynamic.hi == pytest.approx(whole.hi - 20 * min(lows))
    per = m["energy_dynamic_per_sample_j"]
    assert (per.value, per.lo) == (pytest.approx(dynamic.value / 400), pytest.approx(dynamic.lo / 400))
