"""What the agent reads from a constructed tree, under the names that the toolkit's own devices use."""

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_board
from edgescope.wings.jetson.rails import Rails
from edgescope.wings.remote import edgescope_agent as agent


def read(root):
    found = agent.sensors(str(root), lambda: sum(os.times()[:4]))
    return {gauge.name: gauge.read() for gauge in found}


@pytest.fixture
def orin(tmp_path):
    return small_board.orin(tmp_path)


def test_rails_under_hwmon_are_volts_amperes_and_watts(orin):
    found = read(orin)
    assert found["vdd_in_voltage_v"] == pytest.approx(4.92)
    assert found["vdd_in_current_a"] == pytest.approx(1.01)
    assert found["vdd_in_power_w"] == pytest.approx(4.92 * 1.01)
    rails = {name for name in found if name.endswith("_power_w")}
    assert rails == {"vdd_in_power_w", "vdd_cpu_gpu_cv_power_w", "vdd_soc_power_w"}


def test_rails_under_iio_have_the_drivers_own_power(tmp_path):
    found = read(small_board.nano(tmp_path))
    assert {n: v for n, v in found.items() if n.endswith("_power_w")} == {
        "pom_5v_in_power_w": pytest.approx(2.5),
        "pom_5v_gpu_power_w": pytest.approx(1.5),
        "pom_5v_cpu_power_w": pytest.approx(0.5),
    }
    assert found["gpu_busy"] == pytest.approx(0.991)
    assert found["gpu_clock_hz"] == 921.6e6


@pytest.mark.parametrize("make", [small_board.orin, small_board.nano])
def test_rails_are_those_of_the_toolkits_own_source(make, tmp_path):
    """Two implementations, one meaning: names, values, kinds."""
    root = make(tmp_path)
    ours = Rails(str(root))
    theirs = {name: value for name, _, value in ours.read() if name != "rails_power_w"}
    kinds = {c.name: (c.unit, c.kind) for c in ours.channels()}
    mine = agent.rails(str(root))
    assert {g.name: g.read() for g in mine} == pytest.approx(theirs)
    assert {g.name: (g.about["unit"], g.about["kind"]) for g in mine} == {n: kinds[n] for n in theirs}


def test_an_ina238_is_found_by_its_class_and_needs_no_label(tmp_path):
    chip = tmp_path / "sys/class/hwmon/hwmon5"
    chip.mkdir(parents=True)
    for name, text in {
        "name": "ina238",
        "in1_input": "19000",
        "curr1_input": "2000",
        "power1_input": "38100000",
    }.items():
        (chip / name).write_text(text + "\n")
    found = {gauge.name: gauge.read() for gauge in agent.rails(str(tmp_path))}
    assert found["ina238_hwmon5_ch1_power_w"] == pytest.approx(38.1)  # the chip's own, not the product


def test_what_is_not_connected_is_no_rail(orin):
    label = orin / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in3_label"
    label.write_text("NC\n")
    assert not [name for name in read(orin) if "nc_" in name or "soc_" in name]


def test_the_rest_of_the_board(orin):
    found = read(orin)
    assert found["gpu_busy"] == pytest.approx(0.42)
    assert found["gpu_clock_hz"] == 612e6
    assert (found["cpu_policy0_clock_hz"], found["cpu_policy4_clock_hz"]) == (1510.4e6, 729.6e6)
    assert found["temperature_cpu_thermal_c"] == pytest.approx(45.875)
    assert found["oc3_events"] == 1
    assert found["fan0_share"] == pytest.approx(0.2)
    assert found["throttled_gpu_throttle_alert_thermal"] == 0
    assert found["mem_available_bytes"] > 1e6
    assert not [name for name in found if "fan" in name and name.startswith("throttled_")]


def test_a_powered_off_zone_has_no_temperature(orin):
    found = {g.name: g for g in agent.temperatures(str(orin))}
    assert found["temperature_cv0_thermal_c"].read() is None
    assert "powered off (reads -256 C)" in found["temperature_cv0_thermal_c"].reason


def test_a_raised_cooling_device_is_a_flag(orin):
    (orin / "sys/class/thermal/cooling_device1/cur_state").write_text("2\n")
    assert read(orin)["throttled_gpu_throttle_alert_thermal"] == 1


def test_a_sensor_that_is_unplugged_has_no_value_and_a_reason(orin):
    found = {g.name: g for g in agent.rails(str(orin))}
    (orin / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in1_input").write_text("")
    assert found["vdd_in_power_w"].read() is None
    assert found["vdd_in_power_w"].reason
    assert found["vdd_soc_power_w"].read() == pytest.approx(4.904 * 0.347)


def test_an_empty_machine_has_cpu_shares_and_memory_without_values(tmp_path):
    assert set(read(tmp_path).values()) == {None}


LINE = (
    "09-01-2026 09:25:18 RAM 5739/7546MB (lfb 1x2MB) SWAP 2047/2048MB (cached 209MB) CPU [72%@1728,off] GR3D_FREQ 33% "
    "cpu@50C/50C VDD_IN 9761mW/9761mW/9761mW VDD_CPU_GPU_CV 4238mW/4238mW/4238mW VDD_SOC 1825mW/1825mW/1825mW"
)
OLD = (
    "RAM 1200/3956MB (lfb 4x4MB) SWAP 0/1978MB (cached 0MB) CPU [1%@102,off] EMC_FREQ 0% GR3D_FREQ 0% "
    "POM_5V_IN 1022/1022 POM_5V_GPU 0/0 POM_5V_CPU 122/130"
)


def test_tegrastats_rails_of_old_and_new_releases():
    """Shortened lines as public logs of R39 (Orin Nano) and R32 (Nano) have them."""
    assert agent.tegrastats_rails(LINE) == {
        "vdd_in_power_w": 9.761,
        "vdd_cpu_gpu_cv_power_w": 4.238,
        "vdd_soc_power_w": 1.825,
    }
    assert agent.tegrastats_rails(OLD) == {
        "pom_5v_in_power_w": 1.022,
        "pom_5v_gpu_power_w": 0.0,
        "pom_5v_cpu_power_w": 0.122,
    }


@given(st.integers(-50_000, 200_000), st.integers(-50_000, 200_000))
def test_a_power_below_zero_is_a_power_from_tegrastats_and_from_an_ina238_alike(tmp_path_factory, mw, mean):
    """VDD_GPU of -392 mW is from a public line of an idle Thor."""
    for form in ("{}mW/{}mW", "{}/{}", "{}mW/{}mW/3924mW"):
        assert agent.tegrastats_rails(f"RAM 1/2MB VIN {form.format(mw, mean)}") == {"vin_power_w": mw / 1e3}
    chip = tmp_path_factory.mktemp("board") / "sys/class/hwmon/hwmon5"
    chip.mkdir(parents=True)
    files = {"name": "ina238", "in1_label": "VIN", "in1_input": 1000, "curr1_input": mw}
    for name, text in (files | {"power1_input": abs(mw) * 1000}).items():  # the register has no sign
        (chip / name).write_text(f"{text}\n")
    found = {g.name: g for g in agent.rails(str(chip.parents[3]))}
    assert found["vin_power_w"].read() == pytest.approx(mw / 1e3)


@given(st.text(alphabet="RAMVDD_IN 0123456789/mWMB@%[],C-", max_size=200))
def test_any_line_of_tegrastats_gives_finite_watts_or_nothing(line):
    found = agent.tegrastats_rails(line)
    assert all(math.isfinite(value) for value in found.values())
    assert "ram_power_w" not in agent.tegrastats_rails(line + " RAM 1/2MB")


def test_cpu_shares_add_up_over_a_busy_moment(tmp_path):
    (tmp_path / "proc").mkdir()
    stat, spent = tmp_path / "proc/stat", iter([0.0, 0.5, 0.5])
    shares = agent.CpuShares(str(tmp_path), lambda: next(spent))
    busy, steal, others = shares.gauges()
    for user, idle, stolen, expected in (
        (100, 100, 10, None),
        (200, 190, 20, (100 / 200, 10 / 200, 0.5 - 50 / 200)),
    ):
        stat.write_text(f"cpu {user} 0 0 {idle} 0 0 0 {stolen}\n")
        got = (busy.read(), steal.read(), others.read())
        assert got == (None,) * 3 if expected is None else got == pytest.approx(expected)
