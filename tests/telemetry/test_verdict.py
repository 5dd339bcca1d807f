from __future__ import annotations

import re

import numpy as np
import pytest

from edgescope.devices.base import Throttle
from edgescope.records import Channel, Readings, Trust
from edgescope.telemetry.verdict import judge, mean_share

S = 1_000_000_000
ALIVE = {"hz": 10.0, "alive": True, "end": "stopped"}
LOOKED = Throttle(looked_at=("4 thermal throttle counters",))


def readings(seconds=4.0, hz=10.0, **series):
    """Rows at `hz` for `seconds`; each series a number or an array; sampler_cpu_s always there."""
    n = int(seconds * hz) + 1
    t_ns = (np.arange(n) * S / hz).astype(np.int64)
    series = {"sampler_cpu_s": 0.0, "cpu_steal": 0.0, "cpu_others": 0.01} | series
    channels, parts = [], []
    for i, (name, value) in enumerate((k, v) for k, v in series.items() if v is not None):
        channels.append(Channel(name, "share", "system", "interval", "test"))
        parts.append((t_ns, np.full(n, i, np.int16), np.broadcast_to(np.asarray(value, float), n)))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    return Readings(tuple(channels), *columns)


def verdict(r, start=1.0, stop=3.0, **kw):
    kw = {"cost": ALIVE, "throttle": LOOKED, "slowdown": 1.0} | kw
    return judge(r, int(start * S), int(stop * S), **kw)


def allowed(others: float, steal: float = 0.0) -> dict[str, float]:
    """What is read besides under an affinity mask."""
    return {"cpu_allowed_others": others, "cpu_allowed_steal": steal}


def test_clean_shows_its_figures():
    got = verdict(readings(cpu_others=0.013))
    assert got.trust is Trust.CLEAN
    text = " ".join(got.evidence)
    assert (
        "took 0.0% of all cores" in text
        and "used 1.3% of all cores" in text
        and "took 0.0% more time" in text
    )
    assert "used 2.0% of the allowed cores (limit 10%)" in verdict(readings(**allowed(0.02))).evidence[2]
    assert "no throttling event in 4 thermal throttle counters" in text


@pytest.mark.parametrize(
    ("probes", "told"),
    [
        ({"slowdown": 1.104}, "a fixed loop took 10.4% more time after the run than before (limit 10.0%)"),
        ({"slowdown": 0.9}, "a fixed loop took 10.0% less time after the run than before (limit 9.1%)"),
        ({"memory": 1 / 1.51}, "through memory took 33.8% less time after the run than before (limit 33.3%)"),
    ],
)
def test_a_probe_is_told_beside_the_limit_of_its_direction(probes, told):
    assert told in " ".join(verdict(readings(), **probes).evidence)


@pytest.mark.parametrize(
    ("series", "extra", "trust"),
    [
        ({"cpu_steal": 0.019}, {}, Trust.CLEAN),
        ({"cpu_steal": 0.021}, {}, Trust.DISTURBED),
        ({"cpu_others": 0.099}, {}, Trust.CLEAN),
        ({"cpu_others": 0.101}, {}, Trust.DISTURBED),
        ({"cpu_others": 0.5, **allowed(0.01)}, {}, Trust.CLEAN),
        ({"cpu_others": 0.01, **allowed(0.101)}, {}, Trust.DISTURBED),
        ({"cpu_steal": 0.01, **allowed(0.0, steal=0.03)}, {}, Trust.DISTURBED),
        ({"cpu_others": None, **allowed(0.01)}, {}, Trust.CLEAN),
        ({"cpu_steal": 0.0, "cpu_allowed_others": 0.01}, {}, Trust.UNKNOWN),
        ({"psi_memory_some": 0.06}, {}, Trust.DISTURBED),
        ({}, {"slowdown": 1.09}, Trust.CLEAN),
        ({}, {"slowdown": 1.11}, Trust.DISTURBED),
        ({}, {"slowdown": 0.92}, Trust.CLEAN),
        ({}, {"slowdown": 0.9}, Trust.DISTURBED),
        ({}, {"memory": 1.49}, Trust.CLEAN),
        ({}, {"memory": 1.51}, Trust.DISTURBED),
        ({}, {"memory": 1 / 1.51}, Trust.DISTURBED),
        ({}, {"core_to_core": 207e-9, "apart": True}, Trust.DISTURBED),
        ({}, {"core_to_core": 207e-9}, Trust.CLEAN),
        (
            {},
            {"throttle": Throttle(("cpu3 core_throttle_count rose by 12",), ("1 counter",))},
            Trust.THROTTLED,
        ),
        ({"throttled_gpu0_thermal": 1.0}, {}, Trust.THROTTLED),
        ({"throttled_gpu0_thermal": 0.0}, {}, Trust.CLEAN),
        ({"throttled_oc3_over_current": 1.0}, {}, Trust.THROTTLED),
        ({"throttled_oc1_under_voltage": 1.0}, {}, Trust.THROTTLED),
        ({"vdd_in_voltage_v": 4.49}, {}, Trust.THROTTLED),
        ({"vdd_in_voltage_v": 4.51}, {}, Trust.CLEAN),
        ({"vdd_in_voltage_v": 19.0}, {}, Trust.CLEAN),
        ({"vdd_soc_voltage_v": 1.0}, {}, Trust.CLEAN),
        ({}, {"throttle": Throttle(looked_at=("1 zone",), unknown=("W-THR-2: unknown",))}, Trust.UNKNOWN),
        ({}, {"throttle": Throttle(absent=("no counters",))}, Trust.CLEAN),
        ({}, {"throttle": Throttle(absent=("no counters",)), "slowdown": None}, Trust.UNKNOWN),
        ({}, {"throttle": None, "slowdown": None}, Trust.UNKNOWN),
        ({"cpu_others": None}, {}, Trust.UNKNOWN),
        ({}, {"cost": {"hz": 10.0, "alive": False, "end": "died: killed by signal 9"}}, Trust.UNKNOWN),
        ({}, {"cost": {"hz": 0.0, "alive": False, "end": "off (hz = 0)"}}, Trust.UNKNOWN),
        ({}, {"away": "another machine computed"}, Trust.UNKNOWN),
    ],
)
def test_each_rule_on_both_sides_of_its_threshold(series, extra, trust):
    got = verdict(readings(**series), **extra)
    assert got.trust is trust
    assert got.evidence


def test_how_far_the_cpus_are_apart_is_told():
    assert "the CPUs are 25 ns apart" in verdict(readings(), core_to_core=25e-9).evidence
    far = verdict(readings(), core_to_core=207e-9, apart=True)
    assert re.fullmatch(r"the hypervisor .* 207 ns apart \(limit 180 ns\)", far.evidence[0])


def test_where_only_the_spin_probe_speaks_it_is_said():
    got = verdict(readings(), throttle=Throttle(absent=("no cpuinfo_cur_freq",)))
    assert any(
        "no clock or thermal counter is readable here (no cpuinfo_cur_freq)" in e for e in got.evidence
    )


def test_a_power_cap_may_hold_for_a_moment_and_heat_may_not():
    once = np.zeros(41)
    once[20] = 1.0
    assert verdict(readings(throttled_gpu0_power=once)).trust is Trust.CLEAN
    assert verdict(readings(throttled_gpu0_thermal=once)).trust is Trust.THROTTLED
    capped = verdict(readings(throttled_gpu0_power=np.arange(41) % 2))
    assert capped.trust is Trust.THROTTLED
    assert "throttled_gpu0_power in 48% of 21 readings" in capped.evidence[0]


def test_a_throttled_run_says_why_from_when_and_how_much():
    flags = (np.arange(41) >= 22).astype(float)  # from 2.2 s of the readings: second 1.2 of the window
    got = verdict(readings(throttled_gpu_throttle_alert_thermal=flags))
    assert got.evidence[0].startswith("thermal from second 1.2: throttled_gpu_throttle_alert_thermal in 43%")


def test_what_began_first_is_named_first():
    later, sooner = (np.arange(41) >= 25).astype(float), (np.arange(41) >= 22).astype(float)
    got = verdict(readings(throttled_gpu_clock=later, throttled_tj_thermal=sooner))
    assert [e.split(" from ")[0] for e in got.evidence[:2]] == ["thermal", "clock below its request"]


def test_a_dip_of_the_input_says_its_depth_and_its_second():
    volts = np.full(41, 4.98)
    volts[25] = 4.41
    got = verdict(readings(vdd_in_voltage_v=volts))
    assert got.trust is Trust.THROTTLED
    assert got.evidence[0].startswith("under-voltage from second 1.5: vdd_in fell to 4.41 V")


def test_a_clock_may_lag_while_its_governor_raises_it():
    lag = np.zeros(41)
    lag[10:14] = 1.0
    assert verdict(readings(throttled_gpu_clock=lag)).trust is Trust.CLEAN
    assert verdict(readings(throttled_gpu_clock=np.ones(41))).trust is Trust.THROTTLED


def test_guards_at_rest_are_counted_not_listed():
    got = verdict(readings(throttled_a_thermal=0.0, throttled_b_thermal=0.0, throttled_c_power=0.0))
    assert "3 guards at rest in up to 21 readings (thermal, power cap)" in got.evidence


def cut(whole, name, after_s):
    """The same readings, but this channel was last read at `after_s`."""
    index = next(i for i, c in enumerate(whole.channels) if c.name == name)
    keep = (whole.channel != index) | (whole.t_ns <= after_s * S)
    return Readings(whole.channels, whole.t_ns[keep], whole.channel[keep], whole.value[keep])


@pytest.mark.parametrize(
    ("after_s", "says"),
    [(1.5, "after second 0.5"), (1.0, "after second 0.0"), (0.4, "0.6 s before the window")],
)
@pytest.mark.parametrize(
    ("name", "value"),
    [("throttled_gpu_throttle_alert_thermal", 0.0), ("pom_5v_in_voltage_v", 5.0), ("vdd_in_voltage_v", 4.98)],
)
def test_a_guard_whose_sensor_was_unplugged_certifies_nothing(name, value, after_s, says):
    got = verdict(cut(readings(**{name: value}), name, after_s))
    assert got.trust is Trust.UNKNOWN
    assert f"{name} fell silent {says}" in got.evidence[0]


def test_what_is_no_guard_may_fall_silent():
    for name, value in (("vdd_in_voltage_v", 19.0), ("vdd_soc_voltage_v", 1.0), ("vdd_in_power_w", 5.0)):
        assert verdict(cut(readings(**{name: value}), name, 1.5)).trust is Trust.CLEAN


def test_what_happens_outside_the_window_does_not_count():
    steal = np.zeros(41)
    steal[[2, 38]] = 1.0
    assert verdict(readings(cpu_steal=steal)).trust is Trust.CLEAN
    assert verdict(readings(cpu_steal=steal), start=0.1).trust is Trust.DISTURBED


def test_certain_harm_outranks_a_dead_sampler_and_keeps_its_evidence():
    dead = {"hz": 10.0, "alive": False, "end": "died: killed by signal 9"}
    got = verdict(readings(cpu_steal=0.5), cost=dead)
    assert got.trust is Trust.DISTURBED
    assert any("killed by signal 9" in e for e in got.evidence)


@pytest.mark.parametrize(("stop", "trust"), [(3.0, Trust.CLEAN), (1.15, Trust.UNKNOWN), (6.0, Trust.UNKNOWN)])
def test_too_few_readings_in_the_window(stop, trust):
    assert verdict(readings(), stop=stop).trust is trust


def test_a_mean_is_weighted_by_the_time_inside_the_window():
    r = readings(seconds=2, hz=1, cpu_steal=[9.0, 0.2, 0.4])
    assert mean_share(r, "cpu_steal", S // 2, 2 * S) == pytest.approx((0.5 * 0.2 + 1.0 * 0.4) / 1.5)
    assert mean_share(r, "cpu_steal", 3 * S, 4 * S) is None
    assert mean_share(r, "nothing", 0, S) is None


@pytest.mark.parametrize("slowdown", [1.2, 1 / 1.2])
def test_a_machine_that_sped_up_is_as_disturbed_as_one_that_slowed(slowdown):
    assert verdict(readings(), slowdown=slowdown).trust is Trust.DISTURBED
    assert verdict(readings(), slowdown=1 / 1.05).trust is Trust.CLEAN


def test_two_speeds_within_the_run_disturb_it_with_the_evidence():
    text = "two speed states: 1.08 ms for 62%, 1.72 ms for 38%; change at 3.1 s"
    found = verdict(readings(), slowdown=1.0, speeds=text)
    assert found.trust is Trust.DISTURBED and found.evidence[0] == text


def test_a_window_that_only_touches_the_readings_has_no_mean():
    assert mean_share(readings(seconds=4, cpu_steal=0.5), "cpu_steal", 4 * S, 6 * S) is None
    assert mean_share(readings(seconds=4, cpu_steal=0.5), "cpu_steal", int(3.9 * S), 6 * S) == 0.5


def test_three_readings_are_enough_and_two_are_not():
    assert verdict(readings(), start=1.0, stop=1.25).trust is Trust.CLEAN
    assert "only 2 of the sampler's readings" in verdict(readings(), start=1.0, stop=1.19).evidence[0]
