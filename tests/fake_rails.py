"""Constructed trees of Jetson boards: device tree, release, power monitors. Values are synthetic unless a test says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fake_board import write

RELEASE = "# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, EABI: aarch64, DATE: -\n"
TREES = {
    "nano": ("nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"),
    "agx_xavier": ("nvidia,p2972-0000", "nvidia,tegra194"),
    "xavier_nx": ("nvidia,p3509-0000+p3668-0000", "nvidia,tegra194"),
    "orin_nano": ("nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"),
    "orin_nx": ("nvidia,p3768-0000+p3767-0000", "nvidia,p3767-0000", "nvidia,tegra234"),
    "agx_orin": ("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"),
    "agx_thor": ("nvidia,p4071-0000+p3834-0008", "nvidia,tegra264"),
}


def board(root: Path, key: str) -> Path:
    """A device tree and a release."""
    return write(
        root, {"proc/device-tree/compatible": "\0".join(TREES[key]) + "\0", "etc/nv_tegra_release": RELEASE}
    )


def iio(root: Path, address: str, device: int, rails: Mapping[str, float]) -> Path:
    """JetPack 4: rails in mW by label, all at 5 V."""
    base = f"sys/bus/i2c/drivers/ina3221x/{address}/iio:device{device}"
    for c, (label, mw) in enumerate(rails.items()):
        files = {"rail_name_": f"{label}\n"}
        write(root, {f"{base}/{name}{c}": text for name, text in files.items()})
        for name, value in (("voltage", 5000), ("current", mw / 5), ("power", mw)):
            write(root, {f"{base}/in_{name}{c}_input": f"{value:.0f}\n"})
    return root / base


def hwmon(
    root: Path, number: int, rails: Mapping[str, float], *, address: str = "1-0040", chip: str = "ina3221"
) -> Path:
    """JetPack 5 and later: rails in mW by label, all at 1 V; listed by driver and, through a link, by class."""
    base = f"sys/bus/i2c/drivers/{chip}/{address}/hwmon/hwmon{number}"
    files: dict[str, object] = {"name": chip, "update_interval": 430, "samples": 512}
    for c, (label, mw) in enumerate(rails.items(), 1):
        files |= {f"in{c}_label": label, f"in{c}_input": 1000, f"curr{c}_input": f"{mw:.0f}"}
        files |= {f"in{c}_enable": 1, f"shunt{c}_resistor": 2000}
    write(root, {f"{base}/{name}": f"{text}\n" for name, text in files.items()})
    link = root / f"sys/class/hwmon/hwmon{number}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(root / base)
    return root / base


def ina238(root: Path, number: int = 9, *, uw: int = 16_802_000, label: str = "VIN") -> Path:
    """The INA238 of a Thor carrier, listed by class alone: mV, mA, and power in uW."""
    base = f"sys/class/hwmon/hwmon{number}"
    files = {"name": "ina238", "in0_input": 1, "in1_input": 19_600, "curr1_input": 857, "power1_input": uw}
    files |= {"in1_label": label} if label else {}
    write(root, {f"{base}/{name}": f"{text}\n" for name, text in files.items()})
    return root / base


def agx_orin(root: Path) -> Path:
    """The rails of a public tegrastats line: 3150, 14312, 4968 and 1091 mW."""
    board(root, "agx_orin")
    hwmon(root, 3, {"VDD_GPU_SOC": 3150, "VDD_CPU_CV": 14312, "VIN_SYS_5V0": 4968})
    hwmon(root, 4, {"NC": 0, "VDDQ_VDD2_1V8AO": 1091, "NC ": 0}, address="1-0041")
    return root
