"""Find the chips that measure supply rails (TI INA3221, INA238), on any release.

    JetPack 4      /sys/bus/i2c/drivers/ina3221x/7-0040/iio:device0/{rail_name_0,in_voltage0_input,in_power0_input}
    JetPack 5, 6   /sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3/{in1_label,in1_input,curr1_input}
    JetPack 7      /sys/class/hwmon/hwmon5/{name,in1_input,curr1_input,power1_input}

Units: mV and mA; power in mW under iio, in uW under hwmon (Documentation/hwmon/{ina3221,ina238}.rst). Left out
are channels called NC (not connected) or switched off, in4 to in7 and curr4 of the INA3221 (shunt voltages and sums),
and USB-C supplies, which report the negotiated current, not the drawn one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgescope.devices.kernel_files import fact, is_absent

CHIPS = {"ina3221": (3, 33.0), "ina237": (1, 86.0), "ina238": (1, 86.0), "ina228": (1, 86.0)}
"""Driver -> (channels, full scale of the bus voltage in volts, from the data sheets)."""
_DRIVERS = ("ina3221x", "ina3221", "ina237", "ina238", "ina228")
_DEPTH = 4
_DEVICE = re.compile(r"(hwmon|iio:device)(\d+)")
_NC = re.compile(r"(?:^|[^A-Z])NC(?:$|[^A-Z])")
_SHUNT_STEP_V = 40e-6
"""One step of the INA3221's shunt voltage register (data sheet SBOS576)."""


@dataclass(frozen=True)
class Monitor:
    """One channel of one chip: three files and the facts about them."""

    label: str
    """The driver's name of the rail, else chip, address and channel."""
    chip: str
    place: str
    """I2C bus and address (`1-0040`), or else the name of the folder."""
    channel: int
    voltage: Path
    current: Path
    power: Path | None
    """The driver's power figure, if it has one."""
    power_scale: float
    limit_v: float
    refresh_s: float | None
    """Seconds between two results of the chip, if the driver reports it."""
    samples: int | None
    """Number of conversions averaged into one result, if the driver reports it."""
    step_a: float | None
    """Smallest step of the current, from the shunt resistor, if the driver reports it."""

    def words(self) -> str:
        """Return the files, the refresh time and the step of this rail, in words."""
        files = str(self.power) if self.power else f"{self.voltage} x {self.current.name}"
        parts = [
            files,
            f"refresh {self.refresh_s * 1e3:.0f} ms" if self.refresh_s else "refresh not published",
        ]
        if self.samples and self.samples > 1:
            parts.append(f"mean of {self.samples} samples")
        if self.step_a:
            parts.append(f"steps of {self.step_a * 1e3:g} mA")
        return "; ".join(parts)


def find(root: Path) -> tuple[Monitor, ...]:
    """Return every rail that a power monitor measures, in the order of chips and channels."""
    found: dict[str, tuple[str, str, Path]] = {}
    places: set[str] = set()
    for chip, place, folder in (*_by_driver(root), *_by_class(root)):
        if folder.name not in found and place not in places:  # hwmon3 is one device wherever it is listed
            found[folder.name] = (chip, place, folder)
            places.add(place)
    ordered = sorted(found.values(), key=lambda f: (f[1] == f[2].name, _natural(f[1])))
    return tuple(m for chip, place, folder in ordered for m in _monitors(chip, place, folder))


def _by_driver(root: Path) -> Iterator[tuple[str, str, Path]]:
    for driver in _DRIVERS:
        for address in sorted((root / "sys/bus/i2c/drivers" / driver).glob("[0-9]*-[0-9a-f]*")):
            for folder in _devices(address, _DEPTH):
                yield driver.removesuffix("x"), address.name, folder


def _devices(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the hwmon and iio devices below a folder; links are not followed, because they form circles."""
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            continue
        if _DEVICE.fullmatch(entry.name):
            yield folder / entry.name
        elif depth > 1:
            yield from _devices(folder / entry.name, depth - 1)


def _by_class(root: Path) -> Iterator[tuple[str, str, Path]]:
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon[0-9]*")):
        chip = fact(folder / "name")
        if isinstance(chip, str) and chip in CHIPS:
            device = os.path.basename(os.path.realpath(folder / "device"))
            yield chip, device if re.fullmatch(r"\d+-[0-9a-f]{4}", device) else folder.name, folder


def _monitors(chip: str, place: str, folder: Path) -> Iterator[Monitor]:
    channels, limit_v = CHIPS[chip]
    iio = folder.name.startswith("iio")
    interval, samples = _positive(folder / "update_interval"), _positive(folder / "samples")
    for c in range(channels) if iio else range(1, channels + 1):
        voltage, current, power, labels = _iio(folder, c) if iio else _hwmon(folder, c)
        here = os.path.exists(voltage) and os.path.exists(current)
        if not here or fact(folder / f"in{c}_enable") == "0":
            continue
        label = next((text for path in labels if not is_absent(text := fact(path)) and text), "")
        if _NC.search(label.upper()):
            continue
        shunt = _positive(folder / f"shunt{c}_resistor") if chip == "ina3221" else None
        yield Monitor(
            label or f"{chip}_{place}_ch{c}",
            chip,
            place,
            c,
            voltage,
            current,
            power if os.path.exists(power) else None,
            1e-3 if iio else 1e-6,
            limit_v,
            refresh_s=interval / 1e3 if interval else None,
            samples=int(samples) if samples else None,
            step_a=_SHUNT_STEP_V / (shunt * 1e-6) if shunt else None,
        )


def _positive(path: Path) -> float | None:
    """Return the number in a file if it is finite and above 0, else None."""
    value = fact(path, float)
    return value if isinstance(value, float) and 0 < value < math.inf else None


def _iio(folder: Path, c: int) -> tuple[Path, Path, Path, tuple[Path, ...]]:
    names = (f"in_voltage{c}_input", f"in_current{c}_input", f"in_power{c}_input")
    voltage, current, power = (folder / name for name in names)
    return voltage, current, power, (folder / f"rail_name_{c}",)


def _hwmon(folder: Path, c: int) -> tuple[Path, Path, Path, tuple[Path, ...]]:
    voltage, current, power = (folder / f"{kind}{c}_input" for kind in ("in", "curr", "power"))
    labels = [folder / f"{kind}{c}_label" for kind in ("in", "curr", "power")]
    return voltage, current, power, (*labels, folder / "label")


def _natural(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
