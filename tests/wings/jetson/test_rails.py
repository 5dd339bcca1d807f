"""Power rails of every layout. The trees are constructed; where a value is from a public line the test says so."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.devices import recording
from edgescope.devices.base import Failed, SourceSpec, Unsupported
from edgescope.devices.replay import materialise
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.jetson import rails as jetson_rails
from edgescope.wings.jetson.rails import Monitor, Rails
from edgescope.wings.jetson.tegrastats_line import parse
from fake_board import write
from fake_rails import agx_orin, board, hwmon, iio, ina238


def values(root: Path) -> dict:
    source = Rails(str(root))
    rows = source.read()
    names = [c.name for c in source.channels()]
    assert sorted(name for name, _, _ in rows) == sorted(names), "one row a channel"
    assert len(set(names)) == len(names)
    return {name: value for name, _, value in rows}


def scopes(root: Path) -> dict:
    return {c.name: c.scope for c in Rails(str(root)).channels() if c.name.endswith("_power_w")}


def test_jetpack_4_reads_the_drivers_own_power(tmp_path):
    board(tmp_path, "nano")
    folder = iio(tmp_path, "6-0040", 0, {"POM_5V_IN": 4200, "POM_5V_GPU": 1500, "POM_5V_CPU": 900})
    write(folder, {"in_power0_input": "4321\n"})
    got = values(tmp_path)
    assert got["pom_5v_in_power_w"] == pytest.approx(4.321)
    assert got["pom_5v_in_voltage_v"] == pytest.approx(5.0)
    assert got["pom_5v_in_current_a"] == pytest.approx(0.84)
    assert got["pom_5v_gpu_power_w"] == pytest.approx(1.5)


def test_jetpack_5_multiplies_volts_by_amperes(tmp_path):
    """A user's reading that agreed with tegrastats: 19864 mV and 180 mA, printed as 3575 mW."""
    folder = hwmon(board(tmp_path, "agx_orin"), 3, {"VDD_GPU_SOC": 0})
    write(folder, {"in1_input": "19864\n", "curr1_input": "180\n"})
    got = values(tmp_path)
    assert got["vdd_gpu_soc_power_w"] == pytest.approx(19.864 * 0.180)
    assert got["vdd_gpu_soc_voltage_v"] == pytest.approx(19.864)
    assert got["vdd_gpu_soc_current_a"] == pytest.approx(0.180)


def test_an_ina238_gives_microwatts_and_usb_c_supplies_are_no_rails(tmp_path):
    """VIN of 16802 mW is from a public line of a Thor."""
    board(tmp_path, "agx_thor")
    ina238(tmp_path, 9)
    ucsi = {
        "name": "ucsi_source_psy_1_00081",
        "in0_input": "20000",
        "curr1_input": "5000",
        "in1_label": "VIN",
    }
    write(tmp_path / "sys/class/hwmon/hwmon2", ucsi | {"in1_input": "20000"})
    got = values(tmp_path)
    assert got == {
        "vin_power_w": pytest.approx(16.802),
        "vin_voltage_v": pytest.approx(19.6),
        "vin_current_a": pytest.approx(0.857),
    }
    assert scopes(tmp_path) == {"vin_power_w": "carrier"}


@settings(max_examples=30, deadline=None)
@given(st.integers(-50_000, 200_000), st.sampled_from(["ina3221", "ina238"]))
def test_a_power_below_zero_is_the_same_from_sysfs_and_from_tegrastats(tmp_path_factory, mw, chip):
    """VDD_GPU of -392 mW is from a public line of an idle Thor."""
    root = board(tmp_path_factory.mktemp("board"), "agx_thor")
    if chip == "ina3221":
        hwmon(root, 3, {"VIN": mw})
    else:  # its power register has no sign
        write(ina238(root, uw=abs(mw) * 1000), {"in1_input": "1000\n", "curr1_input": f"{mw}\n"})
    got = values(root)
    (printed,) = [f.value for f in parse(f"RAM 1/2MB VIN {mw}mW").fields if f.channel == "vin_power_w"]
    assert got["vin_power_w"] == pytest.approx(printed) == pytest.approx(mw / 1e3)
    assert got["vin_current_a"] == pytest.approx(mw / 1e3)


@pytest.mark.parametrize("below", ["hwmon/hwmon3", "hwmon3", "i2c-1/1-0040/hwmon/hwmon3"])
def test_any_depth_below_the_driver(tmp_path, below):
    board(tmp_path, "orin_nx")
    base = tmp_path / "sys/bus/i2c/drivers/ina3221/1-0040"
    write(base / below, {"in1_label": "VDD_IN\n", "in1_input": "5000\n", "curr1_input": "1000\n"})
    (base / "driver").symlink_to(base.parent)  # sysfs is full of links that lead in circles
    assert values(tmp_path)["vdd_in_power_w"] == pytest.approx(5.0)


def test_the_class_alone_is_enough_and_listing_it_twice_changes_nothing(tmp_path):
    board(tmp_path, "orin_nx")
    files = {"name": "ina3221\n", "in1_label": "VDD_IN\n", "in1_input": "5000\n", "curr1_input": "900\n"}
    write(tmp_path / "sys/class/hwmon/hwmon3", files)
    alone = values(tmp_path)
    assert alone["vdd_in_power_w"] == pytest.approx(4.5)
    write(tmp_path / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3", files)
    assert values(tmp_path) == alone


def test_what_is_no_rail_is_left_out(tmp_path):
    folder = hwmon(board(tmp_path, "agx_orin"), 4, {"NC": 7, "VDDQ_VDD2_1V8AO": 1091, "VDD_OFF": 5})
    extra = {"in3_enable": "0", "in4_input": "12", "curr4_input": "9999", "in4_label": "x"}
    extra |= {"in7_label": "sum of shunt voltages", "in7_input": "33", "curr7_input": "1"}
    write(folder, extra)
    assert [n for n in values(tmp_path) if n.endswith("_power_w")] == [
        "vddq_vdd2_1v8ao_power_w",
        "rails_power_w",
    ]


def test_a_label_that_merely_holds_the_letters_is_a_rail(tmp_path):
    hwmon(board(tmp_path, "orin_nx"), 3, {"VDD_SYNC": 5, "NC_2": 5, "VDD_NC": 5})
    assert [n for n in values(tmp_path) if n.endswith("_power_w")] == ["vdd_sync_power_w"]


def test_the_refresh_is_read_told_and_known(tmp_path):
    agx_orin(tmp_path)
    spec = {c.name: c for c in Rails(str(tmp_path)).channels()}["vdd_cpu_cv_power_w"]
    assert spec.kind == "average"
    for words in ("in2_input x curr2_input", "refresh 430 ms", "mean of 512 samples", "steps of 20 mA"):
        assert words in spec.source
    total = {c.name: c for c in Rails(str(tmp_path)).channels()}["rails_power_w"]
    assert total.kind == "average"
    assert total.source == "sum of VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0; refresh 430 ms"
    fact = jetson_rails.facts(tmp_path)["rails"]["vdd_cpu_cv"]
    assert (fact["refresh_s"], fact["samples"]) == (pytest.approx(0.43), 512)
    assert fact["current_step_a"] == pytest.approx(0.020), "40 uV over 2 mOhm"


@pytest.mark.parametrize("junk", ["", "0", "-5", "nan", "inf", "soon"])
def test_a_refresh_that_is_not_published_is_absent(tmp_path, junk):
    board(tmp_path, "nano")
    iio(tmp_path, "6-0040", 0, {"POM_5V_IN": 4200})
    folder = hwmon(tmp_path, 3, {"OTHER": 100})
    write(folder, {"update_interval": junk, "samples": junk, "shunt1_resistor": junk})
    for name in ("pom_5v_in", "other"):
        fact = jetson_rails.facts(tmp_path)["rails"][name]
        for key in ("refresh_s", "samples", "current_step_a"):
            assert list(fact[key]) == ["absent"]
    specs = Rails(str(tmp_path)).channels()
    assert {c.kind for c in specs} == {"gauge"}
    assert all("refresh not published" in c.source for c in specs)


# What is a total: the same synthetic rails that other tools turn into four totals (docs/reference/boards.md).

SYNTHETIC = {
    "orin_nx": ({"VDD_IN": 9000, "VDD_CPU_GPU_CV": 4200, "VDD_SOC": 1700}, "vdd_in_power_w", 9.0, "module"),
    "nano": ({"POM_5V_IN": 4200, "POM_5V_GPU": 1500, "POM_5V_CPU": 900}, "pom_5v_in_power_w", 4.2, "module"),
}


@pytest.mark.parametrize("key", SYNTHETIC)
def test_one_label_is_the_total(tmp_path, key):
    rails, channel, watts, scope = SYNTHETIC[key]
    board(tmp_path, key)
    iio(tmp_path, "6-0040", 0, rails) if key == "nano" else hwmon(tmp_path, 3, rails)
    assert values(tmp_path)[channel] == pytest.approx(watts)
    found = scopes(tmp_path)
    assert found.pop(channel) == scope
    assert set(found.values()) == {"rail"}, "its parts are no totals, and nothing is added"
    total = jetson_rails.facts(tmp_path)["power_total"]
    assert total == {"channel": channel, "scope": scope}


def test_agx_orin_is_a_sum_without_the_rail_that_another_feeds(tmp_path):
    """jtop and EdgeLens say 23521 mW for these rails, jetsontools 18553, Zeus nothing."""
    agx_orin(tmp_path)
    got = values(tmp_path)
    assert got["rails_power_w"] == pytest.approx(3.150 + 14.312 + 4.968)
    assert got["vddq_vdd2_1v8ao_power_w"] == pytest.approx(1.091), "measured, and part of VIN_SYS_5V0"
    assert scopes(tmp_path) == {
        "vdd_gpu_soc_power_w": "rail",
        "vdd_cpu_cv_power_w": "rail",
        "vin_sys_5v0_power_w": "rail",
        "vddq_vdd2_1v8ao_power_w": "rail",
        "rails_power_w": "sum_of_rails",
    }
    facts = jetson_rails.facts(tmp_path)
    assert facts["power_total"]["of"] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]
    assert any("VDDQ_VDD2_1V8AO" in doubt for doubt in facts["doubts"])


def test_agx_xavier_is_a_sum_of_two_chips(tmp_path):
    """jtop and EdgeLens say 9800 mW for these rails, jetsontools 700, Zeus nothing."""
    board(tmp_path, "agx_xavier")
    iio(tmp_path, "1-0040", 0, {"GPU": 3000, "CPU": 1500, "SOC": 2200})
    iio(tmp_path, "1-0041", 1, {"CV": 0, "VDDRQ": 700, "SYS5V": 2400})
    got = values(tmp_path)
    assert got["rails_power_w"] == pytest.approx(9.8)
    assert got["cv_power_w"] == 0.0, "a rail that is switched off really draws nothing"


def test_thor_takes_vin_where_it_is_and_has_no_total_where_it_is_not(tmp_path):
    """The rails of a public line: 0, 5535, 5040 and VIN 16802 mW."""
    board(tmp_path, "agx_thor")
    hwmon(tmp_path, 5, {"VDD_GPU": 0, "VDD_CPU_SOC_MSS": 5535, "VIN_SYS_5V0": 5040})
    assert values(tmp_path)["vdd_cpu_soc_mss_power_w"] == pytest.approx(5.535)
    assert "rails_power_w" not in values(tmp_path), "one of the three may feed another"
    assert "it needs VIN" in jetson_rails.facts(tmp_path)["power_total"]["absent"]
    ina238(tmp_path, 9)
    got = values(tmp_path)
    assert got["vin_power_w"] == pytest.approx(16.802)
    assert "rails_power_w" not in got
    assert jetson_rails.facts(tmp_path)["power_total"] == {"channel": "vin_power_w", "scope": "carrier"}


RECORDED = {
    "nano": ("pom_5v_in_power_w", "module"),
    "tx2": ("vdd_in_power_w", "module"),
    "xavier_nx": ("vdd_in_power_w", "module"),
    "agx_xavier": ("rails_power_w", "sum_of_rails"),
    "orin_nano": ("vdd_in_power_w", "module"),
    "orin_nx": ("vdd_in_power_w", "module"),
    "agx_orin": ("rails_power_w", "sum_of_rails"),
    "thor": ("vin_power_w", "carrier"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_shipped_recordings_have_their_total_and_no_strange_rail(tmp_path, name):
    """The recordings are constructed, by their own text from public lines."""
    materialise(recording.read(recording.find(name)), tmp_path)
    channel, scope = RECORDED[name]
    assert isinstance(values(tmp_path)[channel], float)
    assert scopes(tmp_path)[channel] == scope
    facts = jetson_rails.facts(tmp_path)
    assert facts["power_total"]["channel"] == channel
    assert all(rail["feeds"] != "not known for this board" for rail in facts["rails"].values())


def test_every_shipped_recording_is_looked_at():
    assert set(RECORDED) == set(recording.shipped())


def test_an_unknown_board_has_rails_and_no_total(tmp_path):
    write(tmp_path, {"proc/device-tree/compatible": "acme,edge-9\0nvidia,tegra234\0"})
    hwmon(tmp_path, 3, {"VDD_IN": 9000, "VDD_CPU_GPU_CV": 4200, "VDD_SOC": 1700})
    assert values(tmp_path)["vdd_in_power_w"] == pytest.approx(9.0)
    assert set(scopes(tmp_path).values()) == {"rail"}
    assert "acme,edge-9" in jetson_rails.facts(tmp_path)["power_total"]["absent"]


def test_labels_of_two_boards_mixed(tmp_path):
    """An Orin NX on a carrier with a monitor of its own, which borrows an AGX Orin's label."""
    board(tmp_path, "orin_nx")
    hwmon(tmp_path, 3, {"VDD_IN": 9000, "VDD_CPU_GPU_CV": 4200, "VDD_SOC": 1700})
    hwmon(tmp_path, 4, {"VIN_SYS_5V0": 3000, "CAMERAS": 500}, address="7-0041")
    got, found = values(tmp_path), scopes(tmp_path)
    assert "rails_power_w" not in got
    assert found["vdd_in_power_w"] == "module"
    assert found["vin_sys_5v0_power_w"] == found["cameras_power_w"] == "rail"
    assert jetson_rails.facts(tmp_path)["rails"]["cameras"]["feeds"] == "not known for this board"


def test_a_label_that_two_monitors_claim_is_nobodys_total(tmp_path):
    board(tmp_path, "orin_nx")
    hwmon(tmp_path, 3, {"VDD_IN": 9000})
    hwmon(tmp_path, 4, {"VDD_IN": 3000}, address="7-0040")
    got = values(tmp_path)
    assert got["vdd_in_1_0040_1_power_w"] == pytest.approx(9.0)
    assert got["vdd_in_7_0040_1_power_w"] == pytest.approx(3.0)
    assert set(scopes(tmp_path).values()) == {"rail"}
    assert "VDD_IN" in jetson_rails.facts(tmp_path)["power_total"]["absent"]


def test_labels_that_would_share_a_channel_do_not(tmp_path):
    board(tmp_path, "orin_nx")
    hwmon(tmp_path, 3, {"VDD-A": 1, "VDD A": 2, "rails": 3})
    assert len(values(tmp_path)) == 9
    assert "rails_power_w" not in values(tmp_path), "that name is the sum's"


def test_a_sum_that_misses_a_term_is_unsupported(tmp_path):
    board(tmp_path, "agx_orin")
    hwmon(tmp_path, 3, {"VDD_GPU_SOC": 3150, "VDD_CPU_CV": 14312})
    got = values(tmp_path)
    assert isinstance(got["rails_power_w"], Unsupported)
    assert "VIN_SYS_5V0" in got["rails_power_w"].reason
    assert got["vdd_cpu_cv_power_w"] == pytest.approx(14.312)


def test_an_unlabelled_channel_is_named_after_its_place(tmp_path):
    board(tmp_path, "agx_thor")
    ina238(tmp_path, 9, label="")
    assert scopes(tmp_path) == {"ina238_hwmon9_ch1_power_w": "rail"}


# What goes wrong while it runs.


def test_a_sensor_that_vanishes_fails_and_may_come_back(tmp_path, monkeypatch):
    agx_orin(tmp_path)
    source = Rails(str(tmp_path))
    real, gone = os.pread, source._rails[1]._current._fd

    def pread(fd, size, offset):
        if fd == gone:
            raise OSError(errno.ENODEV, "No such device")
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    got = {name: value for name, _, value in source.read()}
    assert isinstance(got["vdd_cpu_cv_power_w"], Failed)
    assert "No such device" in got["vdd_cpu_cv_power_w"].reason
    assert isinstance(got["rails_power_w"], Failed), "a sum without a term is no sum"
    assert got["vdd_gpu_soc_power_w"] == pytest.approx(3.150)
    gone = -1
    assert dict((n, v) for n, _, v in source.read())["rails_power_w"] == pytest.approx(22.430)


@pytest.mark.parametrize(
    "junk", ["", "\n", "garbage", "nan", "inf", "-inf", "0x10", "65535", "-20000", "1e999"]
)
def test_garbage_is_failed_never_0(tmp_path, junk):
    folder = hwmon(board(tmp_path, "orin_nx"), 3, {"VDD_IN": 9000})
    write(folder, {"in1_input": junk})
    got = values(tmp_path)
    assert isinstance(got["vdd_in_voltage_v"], Failed)
    assert isinstance(got["vdd_in_power_w"], Failed)
    assert got["vdd_in_current_a"] == pytest.approx(9.0)


def test_a_small_negative_current_is_an_offset_and_stays(tmp_path):
    """An idle Thor shows VDD_GPU at -392 mW: one step of 20 mA below zero, at 19.6 V."""
    folder = hwmon(board(tmp_path, "agx_thor"), 3, {"VDD_GPU": 0})
    write(folder, {"in1_input": "19600\n", "curr1_input": "-20\n"})
    assert values(tmp_path)["vdd_gpu_power_w"] == pytest.approx(-0.392)


@pytest.mark.parametrize("key", ["nano", "agx_orin"])
def test_without_sys_the_reason_says_what_to_mount(tmp_path, key):
    got = values(board(tmp_path, key))
    assert list(got) == ["rails_power_w"]
    assert "-v /sys:/sys:ro" in got["rails_power_w"].reason
    assert "absent" in jetson_rails.facts(tmp_path)["rails"]


def test_files_that_may_not_be_read_are_unsupported(tmp_path, monkeypatch):
    agx_orin(tmp_path)
    real = os.open

    def closed(path, *rest, **more):
        if str(path).endswith("_input"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", closed)
    got = values(tmp_path)
    assert len(got) == 13
    assert all(isinstance(v, Unsupported) and "no permission" in v.reason for v in got.values())


def test_nothing_is_written_and_every_file_is_opened_once(tmp_path, monkeypatch):
    agx_orin(tmp_path)
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flags, *r, **m: opened.append(flags) or real(path, flags, *r, **m)
    )
    source = Rails(str(tmp_path))
    assert len(opened) == 8
    assert all(flags & os.O_ACCMODE == os.O_RDONLY for flags in opened)
    for _ in range(3):
        source.read()
    assert len(opened) == 8


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return agx_orin(tmp_path_factory.mktemp("board"))


@settings(max_examples=50, deadline=None)
@given(contents=st.lists(st.binary(max_size=24), min_size=9, max_size=9))
@pytest.mark.slow
def test_any_bytes_give_one_row_a_channel(damaged, contents):
    names = ("in1_label", "in1_input", "curr1_input", "in1_enable", "update_interval", "samples")
    names += ("shunt1_resistor", "in2_label", "power1_input")
    folder = damaged / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    for file, content in zip(names, contents, strict=True):
        (folder / file).write_bytes(content)
    for value in values(damaged).values():
        assert isinstance(value, Unsupported | Failed) or abs(value) < 1e6
    jetson_rails.facts(damaged)


@pytest.mark.process
def test_the_real_sampler_reads_them(tmp_path):
    agx_orin(tmp_path / "board")
    spec = SourceSpec("edgescope.wings.jetson.rails:Rails", {"root": str(tmp_path / "board")})
    with Sampler([spec], 50.0, tmp_path / "readings") as sampler:
        time.sleep(0.3)
    readings = sampler.readings()
    assert {c.name: c.status for c in readings.channels}["rails_power_w"] == "measured"
    t_ns, watts = readings.series("rails_power_w")
    assert len(t_ns) >= 3
    assert watts == pytest.approx(22.430)


@pytest.mark.process
def test_the_source_imports_neither_numpy_nor_an_engine():
    code = (
        "import sys, edgescope.wings.jetson.rails; assert not {'numpy', 'torch', 'pynvml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "v x curr1_input; refresh not published"),
        ({"samples": 1, "refresh_s": 0.0}, "v x curr1_input; refresh not published"),
        ({"samples": 2, "refresh_s": 0.001}, "v x curr1_input; refresh 1 ms; mean of 2 samples"),
        ({"step_a": 0.005}, "v x curr1_input; refresh not published; steps of 5 mA"),
        ({"power": Path("/p")}, "/p; refresh not published"),
    ],
)
def test_a_rail_says_in_words_how_it_is_measured(keys, words):
    usual = dict.fromkeys(f.name for f in dataclasses.fields(Monitor))
    usual |= {"voltage": "v", "current": Path("/x/curr1_input")}
    assert Monitor(**{**usual, **keys}).words() == words


@pytest.mark.parametrize(
    ("chip", "channels", "limit_v"),
    [("ina3221", 3, 33.0), ("ina237", 1, 86.0), ("ina238", 1, 86.0), ("ina228", 1, 86.0)],
)
def test_a_chip_has_so_many_channels_and_no_rail_beyond_its_range(tmp_path, chip, channels, limit_v):

    folder = "sys/class/hwmon/hwmon0"
    for c in range(5):
        write(tmp_path, {f"{folder}/in{c}_input": f"{limit_v * 1000:.0f}", f"{folder}/curr{c}_input": "1000"})
    write(tmp_path, {f"{folder}/name": chip, f"{folder}/in2_input": f"{limit_v * 1000 + 1:.0f}"})
    found = values(tmp_path)
    volts = {
        name.removesuffix("_voltage_v")[-1]: value
        for name, value in found.items()
        if name.endswith("_voltage_v")
    }
    assert sorted(volts) == [str(c + 1) for c in range(channels)] and volts["1"] == limit_v
    assert channels == 1 or (isinstance(volts["2"], Failed) and volts["3"] == limit_v)


@pytest.mark.parametrize(
    ("volts", "amperes", "fine"),
    [
        (-1000, 0, True),
        (-1001, 0, False),
        (5000, 1_000_000, True),
        (5000, 1_000_001, False),
        (5000, -1_000_000, True),
        (5000, -1_000_001, False),
    ],
)
def test_a_figure_that_no_shunt_carries_is_a_bus_error(tmp_path, volts, amperes, fine):
    folder = "sys/class/hwmon/hwmon0"
    files = {"name": "ina238", "in1_input": volts, "curr1_input": amperes, "in1_label": "X"}
    found = values(write(tmp_path, {f"{folder}/{name}": text for name, text in files.items()}))
    assert found["x_power_w"] == volts * amperes / 1e6 if fine else isinstance(found["x_power_w"], Failed)
