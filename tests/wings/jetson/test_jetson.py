"""The Jetson device over constructed trees; lines of /etc/nv_tegra_release are public ones, re-typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import registry
from edgescope.devices import manifest, recording
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.kernel_files import is_absent
from edgescope.devices.replay import materialise
from edgescope.wings.doctor import report as doctor
from edgescope.wings.jetson import boards
from edgescope.wings.jetson.device import JetsonDevice
from fake_board import write
from fake_rails import TREES, agx_orin, board, hwmon, iio

LINES = (
    (
        "# R28 (release), REVISION: 2.1, GCID: 11272647, BOARD: t186ref, EABI: aarch64, DATE: Thu May 17",
        "28.2.1",
        "",
    ),
    (
        "# R32 (release), REVISION: 7.1, GCID: 29689809, BOARD: t186ref, EABI: aarch64, DATE: Wed Feb  2",
        "32.7.1",
        "4.6.1",
    ),
    (
        "# R35 (release), REVISION: 2.1, GCID: 32398013, BOARD: t186ref, EABI: aarch64, DATE: Sun Jan 22",
        "35.2.1",
        "5.1",
    ),
    ("# R36 (release), REVISION: 4.3, GCID: -", "36.4.3", "6.2"),
    ("# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64", "38.2.0", "7.0"),
    ("# R39 (release), REVISION: 2.1", "39.2.1", "7.2.1"),
    ("# R38 (release), REVISION: 4", "38.4.0", "7.1"),
    ("# R28 (release), REVISION: 4.0", "28.4.0", "3.3.3"),
    ("# R35 (release), REVISION: 6.5, GCID: -", "35.6.5", "5.1.7"),
    ("# R39 (release), REVISION: 0.0", "39.0.0", ""),
    ("# R99 (release), REVISION: 1.0", "99.1.0", ""),
)


@pytest.mark.parametrize(("line", "release", "jetpack"), LINES)
def test_the_release_line(tmp_path, line, release, jetpack):
    write(tmp_path, {"etc/nv_tegra_release": line + "\n# KERNEL_VARIANT: oot\n"})
    assert boards.l4t(tmp_path) == release
    found = boards.jetpack_here(tmp_path)
    assert found == jetpack if jetpack else release in found["absent"]
    if not jetpack:
        series = {"28": "JetPack 3", "39": "JetPack 7", "99": "no JetPack"}[release[:2]]
        assert series in found["absent"]


@given(st.text(max_size=80))
@pytest.mark.slow
def test_any_release_file_is_a_fact_or_absent(text):
    class Root(type(Path())):
        def read_text(self, *args, **kwargs):
            return text

    found = boards.l4t(Root("/"))
    assert is_absent(found) or found.count(".") >= 2


def test_no_release_file_is_absent_with_the_reason(tmp_path):
    assert "no " in boards.l4t(tmp_path)["absent"]
    assert "no " in boards.jetpack_here(tmp_path)["absent"]


@pytest.mark.parametrize("key", TREES)
def test_the_module_names_the_machine(tmp_path, key):
    device = JetsonDevice(board(tmp_path, key))
    assert device.present() == ""
    stable, _ = device.machine()
    assert stable["soc"] == TREES[key][-1].removeprefix("nvidia,")
    assert stable["compute_capability"] in ("5.3", "6.2", "7.2", "8.7", "11.0")
    assert stable["board"].startswith("Jetson")


@pytest.mark.process
def test_an_update_does_not_change_the_machine(tmp_path):
    device = JetsonDevice(agx_orin(tmp_path))
    before = manifest.machine({"jetson": device})
    write(tmp_path, {"etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 2\n"})
    assert manifest.machine({"jetson": device}).id == before.id


def test_facts_say_what_is_unknown_of_an_unknown_board(tmp_path):
    write(tmp_path, {"proc/device-tree/compatible": "acme,edge-9\0nvidia,tegra234\0"})
    device = JetsonDevice(tmp_path)
    assert device.present() == ""
    stable, state = device.machine()
    assert stable["soc"] == "tegra234"
    for name in ("board", "module", "compute_capability"):
        assert "acme,edge-9" in stable[name]["absent"]
    assert "absent" in state["l4t"] and "absent" in state["power_mode"] and "absent" in state["rails"]


def test_nothing_identifies_a_person_or_one_machine(tmp_path):
    agx_orin(tmp_path)
    secret = {"serial-number": "1422823012345\0", "nvidia,boardids": "x"}
    write(tmp_path / "proc/device-tree", secret)
    write(tmp_path, {"proc/sys/kernel/hostname": "annas-robot\n"})
    text = json.dumps(JetsonDevice(tmp_path).machine())
    assert "1422823012345" not in text and "annas-robot" not in text


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "neither"),
        ({"proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0"}, "raspberrypi,4-model-b"),
        ({"etc/nv_tegra_release": "nothing like it\n"}, "neither"),
    ],
)
def test_elsewhere_it_is_not_there_and_says_why(tmp_path, files, words):
    device = JetsonDevice(write(tmp_path, files))
    assert words in device.present()
    assert device.sources(1) == ()
    assert device.modes() == {}


def test_a_container_without_the_device_tree_is_still_a_jetson(tmp_path):
    write(tmp_path, {"etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\n"})
    assert JetsonDevice(tmp_path).present() == ""
    assert "-v /sys:/sys:ro" in JetsonDevice(tmp_path / "nothing").present()


def test_the_registry_knows_it():
    assert registry.load(registry.DEVICES, "jetson", "device") is JetsonDevice


@pytest.mark.process
def test_every_source_can_be_opened_and_gives_every_channel_once(tmp_path):
    report = doctor.examine({"jetson": JetsonDevice(agx_orin(tmp_path))}, watch_s=0.0, root=tmp_path)
    names = [m.name for m in report.metrics]
    assert len(names) == len(set(names)), "two sources share a channel"
    lost = [m.reason for m in report.metrics if "cannot be opened" in m.reason]
    assert not lost
    assert {m.name: m.scope for m in report.metrics}["rails_power_w"] == "sum_of_rails"


def test_power_and_load_are_read_on_every_tick(tmp_path):
    every = {s.target.split(":")[1]: s.every for s in JetsonDevice(agx_orin(tmp_path)).sources(1)}
    assert every["Rails"] == every["Gpu"] == 1
    assert min(n for name, n in every.items() if name not in ("Rails", "Gpu")) >= 5


def test_the_power_mode_is_a_fact(tmp_path):
    board(tmp_path, "orin_nano")
    hwmon(tmp_path, 3, {"VDD_IN": 5000})
    conf = "< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_1 1\n< POWER_MODEL ID=1 NAME=25W >\n"
    write(tmp_path, {"etc/nvpmodel.conf": conf, "var/lib/nvpmodel/status": "pmode:0000"})
    _, state = JetsonDevice(tmp_path).machine()
    assert state["power_mode"] == {"name": "15W", "id": 0, "cores": [0, 1], "default": False}
    assert "nvpmodel_problems" not in state
    path = tmp_path / "etc/nvpmodel.conf"
    path.write_text(path.read_text() + "\nCPU_ONLINE what is this\n")
    assert "words where 3 are due" in JetsonDevice(tmp_path).machine()[1]["nvpmodel_problems"][0]
    assert {"15W", "25W"} <= set(JetsonDevice(tmp_path).modes())


def test_the_throttle_watch_looks_at_this_root(tmp_path):
    board(tmp_path, "nano")
    iio(tmp_path, "6-0040", 0, {"POM_5V_IN": 4200})
    with JetsonDevice(tmp_path).throttle_watch() as watch:
        pass
    assert watch.evidence().events == ()


@pytest.mark.process
def test_the_table_of_metrics_names_real_channels(tmp_path):
    """docs/reference/boards.md lists what the sources give: names and scopes, on the shipped AGX Orin."""
    materialise(recording.read(recording.find("agx_orin")), tmp_path)
    devices = {"jetson": JetsonDevice(tmp_path), "cpu": CpuDevice(tmp_path)}
    report = doctor.examine(devices, watch_s=0.0, root=tmp_path)
    have = {(m.name, m.scope) for m in report.metrics}
    for metric in boards.metrics():
        for name in metric.name.split(", "):
            pattern = re.sub(r"<[a-z]+>", r"\\w+", name.replace("<N>", r"\d+"))
            assert any(re.fullmatch(pattern, n) and scope == metric.scope for n, scope in have), name
