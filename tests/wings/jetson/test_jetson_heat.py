from __future__ import annotations

import errno
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.kernel_files import is_absent
from edgescope.wings.jetson import boards, files, guards
from edgescope.wings.jetson.files import command_names
from edgescope.wings.jetson.guards import Cooling, Counters, Fans, OverCurrent, fired
from fake_board import write

HWMON = "sys/class/hwmon"
EDP = " 36:      1200         3  LIC  48 Level     soctherm_edp\n"


def values(source):
    got = {name: value for name, _, value in source.read()}
    assert set(got) <= {c.name for c in source.channels()}
    return got


def orin(root, *, oc1=0, oc2=0, oc3=0):
    counts = {"oc1": oc1, "oc2": oc2, "oc3": oc3}
    write(root, {f"{HWMON}/hwmon3/{oc}_event_cnt": f"{n}\n" for oc, n in counts.items()})
    write(root, {"proc/device-tree/compatible": "nvidia,p3768\0nvidia,tegra234\0"})
    return root


def test_fans_of_jetpack_6(tmp_path):
    write(tmp_path, {f"{HWMON}/hwmon0/pwm1": "51\n", f"{HWMON}/hwmon1/rpm": "1450\n"})
    assert values(Fans(str(tmp_path))) == {"fan1_share": pytest.approx(0.2), "fan1_rpm": 1450.0}


def test_one_fan_of_jetpack_4_is_not_counted_twice(tmp_path):
    files = {f"{HWMON}/hwmon1/cur_pwm": "255\n", "sys/devices/pwm-fan/cur_pwm": "255\n"}
    write(tmp_path, files | {"sys/devices/pwm-fan/rpm_measured": "4980\n"})
    assert values(Fans(str(tmp_path))) == {"fan1_share": 1.0, "fan1_rpm": 4980.0}


def test_a_board_without_a_fan_has_no_speed_of_0(tmp_path):
    got = values(Fans(str(tmp_path)))
    assert all(isinstance(v, Unsupported) for v in got.values()) and set(got) == {"fan1_share", "fan1_rpm"}


@pytest.mark.parametrize(
    ("files", "owners"),
    [
        ({"proc/7/comm": "nvfancontrol\n"}, ["nvfancontrol"]),
        ({"proc/7/comm": "nvfancontrol\n", "proc/8/comm": "jtop\n"}, ["nvfancontrol", "jtop"]),
        ({"sys/devices/pwm-fan/temp_control": "1\n"}, ["kernel"]),
        ({"sys/devices/pwm-fan/temp_control": "0\n"}, []),
        ({"sys/class/thermal/thermal_zone0/policy": "step_wise\n"}, ["kernel"]),
        ({"sys/class/thermal/thermal_zone0/policy": "user_space\n"}, []),
        ({}, []),
    ],
)
def test_who_owns_the_fan(tmp_path, files, owners):
    assert Fans.facts(write(tmp_path, files))["owners"] == owners


def test_events_are_counted_since_boot_and_flagged_when_they_rise(tmp_path):
    source = OverCurrent(str(orin(tmp_path, oc3=37)))
    assert values(source)["oc3_events"] == 37.0
    assert values(source)["throttled_oc3_over_current"] == 0.0
    orin(tmp_path, oc3=40)
    got = values(source)
    assert (got["oc3_events"], got["throttled_oc3_over_current"]) == (40.0, 1.0)
    assert values(source)["throttled_oc3_over_current"] == 0.0


def test_the_first_event_of_an_orin_is_under_voltage_and_the_second_of_a_xavier(tmp_path):
    assert Counters(orin(tmp_path)).causes == {
        "oc1": "under_voltage",
        "oc2": "over_current",
        "oc3": "over_current",
    }
    write(tmp_path, {"proc/device-tree/compatible": "nvidia,p3668\0nvidia,tegra194\0"})
    assert Counters(tmp_path).causes["oc2"] == "under_voltage"
    write(tmp_path, {"proc/device-tree/compatible": "nvidia,tegra264\0"})
    assert set(Counters(tmp_path).causes.values()) == {"over_current"}


def test_two_chips_with_the_same_counter_do_not_overwrite_one_another(tmp_path):
    write(orin(tmp_path, oc1=5), {f"{HWMON}/hwmon10/oc1_event_cnt": "9\n"})
    got = values(OverCurrent(str(tmp_path)))
    assert (got["oc1_events"], got["oc1_hwmon10_events"]) == (5.0, 9.0)


def test_a_counter_that_goes_backwards_is_no_event_and_no_quiet(tmp_path):
    source = OverCurrent(str(orin(tmp_path, oc2=9)))
    orin(tmp_path, oc2=2)
    got = values(source)["throttled_oc2_over_current"]
    assert isinstance(got, Failed) and "backwards from 9 to 2" in got.reason
    assert values(source)["throttled_oc2_over_current"] == 0.0


def test_a_counter_that_is_unplugged_and_comes_back(tmp_path, monkeypatch):
    source = OverCurrent(str(orin(tmp_path)))
    real = os.pread

    def gone(*_):
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "pread", gone)
    assert all(isinstance(v, Failed) for v in values(source).values())
    monkeypatch.setattr(os, "pread", real)
    assert values(source)["throttled_oc3_over_current"] == 0.0


def test_the_nano_counts_an_interrupt(tmp_path):
    write(tmp_path, {"proc/interrupts": f"           CPU0       CPU1\n{EDP}"})
    source = OverCurrent(str(tmp_path))
    assert values(source) == {"oc1_events": 1203.0, "throttled_oc1_over_current": 0.0}


def test_a_board_without_counters(tmp_path):
    assert isinstance(values(OverCurrent(str(tmp_path)))["oc1_events"], Unsupported)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=16))
def test_an_interrupt_is_summed_over_the_cores(counts):
    line = "36: " + "  ".join(map(str, counts)) + "  LIC 48 Level soctherm_edp"
    assert fired(f"x\n{line}\n") == float(sum(counts))


@given(st.text())
def test_no_text_breaks_the_interrupt_parser(text):
    assert isinstance(fired(text + "soctherm_edp"), float | Failed)
    assert isinstance(fired(text.replace("soctherm_edp", "")), Unsupported)


COOLING = {
    "pwm-fan": 3,
    "hot-surface-alert": 1,
    "cpu-throttle-alert": 0,
    "gpu-throttle-alert": 1,
    "cpufreq-cpu0": 0,
    "devfreq-17000000.gpu": 0,
    "something-new": 2,
}


def test_a_fan_and_a_warning_cost_no_speed_and_an_unknown_device_does(tmp_path):
    for i, (kind, state) in enumerate(COOLING.items()):
        base = f"sys/class/thermal/cooling_device{i}"
        write(tmp_path, {f"{base}/type": f"{kind}\n", f"{base}/cur_state": f"{state}\n"})
    source = Cooling(str(tmp_path))
    assert values(source) == {
        "throttled_cpu_throttle_alert_thermal": 0.0,
        "throttled_gpu_throttle_alert_thermal": 1.0,
        "throttled_cpufreq_cpu0_thermal": 0.0,
        "throttled_devfreq_17000000_gpu_thermal": 0.0,
        "throttled_something_new_thermal": 1.0,
    }
    assert "slows the GPU" in source.channels()[1].source


def test_two_devices_of_one_type_are_kept_apart(tmp_path):
    for i in (2, 10):
        base = f"sys/class/thermal/cooling_device{i}"
        write(tmp_path, {f"{base}/type": "cpu-balanced\n", f"{base}/cur_state": f"{i // 10}\n"})
    assert values(Cooling(str(tmp_path))) == {
        "throttled_cpu_balanced_thermal": 0.0,
        "throttled_cpu_balanced_10_thermal": 1.0,
    }


def test_without_cooling_devices_a_zones_passive_trip_speaks(tmp_path):
    for i, (kind, temp) in enumerate((("tj-thermal", 98900), ("cv0-thermal", -256000), ("board", 80000))):
        base = f"sys/class/thermal/thermal_zone{i}"
        trip = {f"{base}/trip_point_0_type": "passive", f"{base}/trip_point_0_temp": 99000} if i < 2 else {}
        write(tmp_path, {f"{base}/type": kind, f"{base}/temp": temp} | trip)
    source = Cooling(str(tmp_path))
    got = values(source)
    assert got["throttled_tj_thermal_thermal"] == 0.0 and "throttled_board_thermal" not in got
    assert isinstance(got["throttled_cv0_thermal_thermal"], Unsupported)
    write(tmp_path, {"sys/class/thermal/thermal_zone0/temp": "99000"})
    assert values(source)["throttled_tj_thermal_thermal"] == 1.0


def test_a_jump_of_the_wall_clock_moves_no_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    before = time.monotonic_ns()
    source = OverCurrent(str(orin(tmp_path)))
    assert all(before <= t <= time.monotonic_ns() for _, t, _ in source.read())


def test_processes_that_end_meanwhile_have_no_name(tmp_path):
    write(tmp_path, {"proc/12/comm": "nvfancontrol\n", "proc/15/comm": " jtop \n", "proc/self/comm": "x"})
    (tmp_path / "proc/13").mkdir()
    assert command_names(tmp_path) == {12: "nvfancontrol", 15: "jtop"}
    assert command_names(tmp_path / "none") == {}


def test_files_are_found_in_the_order_of_their_patterns_and_numbers(tmp_path):
    for name in ("a/hwmon10", "a/hwmon9", "b/hwmon1", "a/hwmon2x"):
        write(tmp_path, {name: ""})
    paths = files.found(tmp_path, ("b/*", "a/hwmon*", "*/hwmon9"))
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "b/hwmon1",
        "a/hwmon2x",
        "a/hwmon9",
        "a/hwmon10",
    ]


def test_why_nothing_can_be_read_is_the_reason_that_can_be_changed(tmp_path, monkeypatch):
    missing = files.first_readable(tmp_path, ("a/*", "b/c", "d"))
    assert missing.reason == f"no {tmp_path / 'b/c'}"
    assert files.first_readable(tmp_path, ("a/*",)).reason == f"no {tmp_path / 'a/*'}"
    real = files.KernelFile.read

    def read(file):
        return Unsupported(f"no permission to read {file.path}") if file.path.name == "d" else real(file)

    monkeypatch.setattr(files.KernelFile, "read", read)
    assert files.first_readable(tmp_path, ("b/c", "d")).reason == f"no permission to read {tmp_path / 'd'}"
    write(tmp_path, {"e": "5", "f": "6"})
    assert files.first_readable(tmp_path, ("d", "e", "f")).number() == 5.0


@pytest.mark.parametrize(
    ("text", "chip"), [("nvidia,p3448\0nvidia,tegra210\0", "tegra210"), ("arm,board\0", ""), (None, "")]
)
def test_the_chip_is_named_by_the_device_tree(tmp_path, text, chip):
    if text is not None:
        write(tmp_path, {"proc/device-tree/compatible": text})
    found = boards.soc(tmp_path)
    assert ("" if is_absent(found) else found) == chip


@pytest.mark.parametrize(
    ("kind", "slowed"),
    [
        ("GPU-throttle-alert", "the GPU"),
        ("devfreq-gpc0", "the GPU"),
        ("cpufreq-cpu0", "the CPU"),
        ("cv0-throttle-alert", "the vision engines"),
        ("soc0-throttle-alert", "memory and fabric"),
        ("emc-balanced", "memory and fabric"),
        ("new", "some clock"),
    ],
)
def test_what_a_cooling_device_slows_is_told_by_its_name(kind, slowed):
    assert guards.slows(kind) == slowed


@pytest.mark.parametrize(("state", "flag"), [(0, 0.0), (1, 1.0), (7, 1.0)])
def test_a_raised_cooling_device_is_at_work(tmp_path, state, flag):
    device = "sys/class/thermal/cooling_device3"
    write(tmp_path, {f"{device}/type": "cpu-throttle-alert", f"{device}/cur_state": str(state)})
    assert values(Cooling(str(tmp_path))) == {"throttled_cpu_throttle_alert_thermal": flag}


@pytest.mark.parametrize(
    ("temperature", "flag"), [(74_999, 0.0), (75_000, 1.0), (75_001, 1.0), (-200_000, 0.0), (-200_001, None)]
)
def test_a_zone_is_past_its_trip_from_the_trip_on(tmp_path, temperature, flag):
    zone = "sys/class/thermal/thermal_zone2"
    files = {
        "type": "soc-therm",
        "temp": temperature,
        "trip_point_0_type": "passive",
        "trip_point_0_temp": 75_000,
    }
    write(tmp_path, {f"{zone}/{name}": str(text) for name, text in files.items()})
    (found,) = values(Cooling(str(tmp_path))).values()
    assert isinstance(found, Unsupported) if flag is None else found == flag


def test_zones_of_one_kind_are_told_apart_and_one_without_a_kind_is_called_as_its_folder(tmp_path):
    for n, kind in enumerate(("soc", "soc", None)):
        zone = f"sys/class/thermal/thermal_zone{n}"
        files = {"temp": 1, "trip_point_0_type": "passive", "trip_point_0_temp": 5_000 + n}
        files |= {} if kind is None else {"type": kind}
        write(tmp_path, {f"{zone}/{name}": str(text) for name, text in files.items()})
    found = guards.passive_zones(tmp_path)
    assert {name: trip for name, (_, trip) in found.items()} == {
        "soc": 5.0,
        "soc_1": 5.001,
        "thermal_zone2": 5.002,
    }
