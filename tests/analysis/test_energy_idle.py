"""Idle power before and after, dynamic energy beyond it, and what is said where either cannot be known."""

from __future__ import annotations

import numpy as np
import pytest

from edgescope.analysis.energy.align import _outwards
from edgescope.analysis.energy.idle import NAMES, _dynamic, _joined
from edgescope.analysis.energy.of_run import consumption
from edgescope.records import QUERY_DTYPES, Absent, Channel, Idle, Measured, Queries, Readings, Window

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
    assert any(str(w).startswith("W-PWR-4: idle power moved by +2.00 W") for w in got.warnings)


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
    assert any(str(w).startswith("W-PWR-4: idle power is known before the load only") for w in got.warnings)
    assert m["idle_power_w"].value == pytest.approx(4.0) and m["idle_power_w"].n == 1
    assert "after" in m["idle_power_drift_w"].reason


def test_the_meter_of_the_load_measures_the_idling_too():
    rail = ("vdd_soc_power_w", "W", "rail", np.full(len(T), 1.0))
    assert spent(rail, module(load())).metrics["idle_power_w"].value == pytest.approx(4.0)


def test_the_scope_is_said_and_the_rate_of_updates():
    slow = np.floor(T / 0.43) * 0.43
    got = spent(module(10 + 0.1 * np.sin(slow)))
    assert str(got.warnings[0]).startswith("W-PWR-2: the scope of power is MODULE (vdd_in)")
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
