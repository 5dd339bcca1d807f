"""A Jetson's power rails: volts, amperes and watts of each, and a total only if boards.toml defines it.

The chips that measure them (TI INA3221, INA238) are found on any release:

    JetPack 4      /sys/bus/i2c/drivers/ina3221x/7-0040/iio:device0/{rail_name_0,in_voltage0_input,in_power0_input}
    JetPack 5, 6   /sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3/{in1_label,in1_input,curr1_input}
    JetPack 7      /sys/class/hwmon/hwmon5/{name,in1_input,curr1_input,power1_input}

Units: mV and mA; power in mW under iio, in uW under hwmon (Documentation/hwmon/{ina3221,ina238}.rst). Left out
are channels called NC (not connected) or switched off, in4 to in7 and curr4 of the INA3221 (shunt voltages and sums),
and USB-C supplies, which report the negotiated current, not the drawn one.

Power is the driver's own figure if there is one, else voltage times current, read in immediate succession. The
INA238's power register has no sign (its data sheet), so the sign is the current's: an idle rail may read a little
below 0, as tegrastats prints it. What a rail feeds and its scope come from boards.toml for the board that the device
tree names; a label that this board does not have, or has twice, stays a rail of scope `rail`, and no total is guessed.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import Fact, KernelFile, absent, fact, is_absent, word
from edgescope.wings.jetson import boards
from edgescope.wings.jetson.boards import SUM, Board
from edgescope.wings.jetson.boards import Rail as Known
from edgescope.wings.jetson.files import natural

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


def power_monitors(root: Path) -> tuple[Monitor, ...]:
    """Return every rail that a power monitor measures, in the order of chips and channels."""
    found: dict[str, tuple[str, str, Path]] = {}
    places: set[str] = set()
    for chip, place, folder in (*_by_driver(root), *_by_class(root)):
        if folder.name not in found and place not in places:  # hwmon3 is one device wherever it is listed
            found[folder.name] = (chip, place, folder)
            places.add(place)
    ordered = sorted(found.values(), key=lambda f: (f[1] == f[2].name, natural(f[1])))
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


Row = tuple[str, int, Value]

TOTAL = "rails_power_w"
_LONGEST = 60
_LIMIT_A = 1000.0
"""No shunt on such a board carries more: a larger figure is a bus error."""
_NONE = (
    "no INA3221 or INA238 power monitor under {0}/sys/bus/i2c/drivers or {0}/sys/class/hwmon: "
    "the board has none, or this is a container (docker run ... -v /sys:/sys:ro)"
)


@dataclass(frozen=True)
class Found:
    """The rails of one machine: each monitor with its channel name and its entry in boards.toml."""

    board: Board | None
    rails: tuple[tuple[str, Monitor, Known], ...]
    total: str | tuple[str, ...]
    """Label of the rail that is the total, or labels of the sum's terms, or ''."""
    why_no_total: str = ""


def find(root: Path) -> Found:
    """Return the rails of the machine under `root`."""
    monitors = power_monitors(root)
    named = boards.here(root)
    count = Counter(("rails", *(_word(m.label) for m in monitors)))  # a rail of that name would be the sum's
    once = {m.label for m in monitors if count[_word(m.label)] == 1}
    rails = []
    for m in monitors:
        known = named.board.rails.get(m.label) if named.board and m.label in once else None
        name = _word(m.label) if m.label in once else f"{_word(m.label)}_{_word(m.place)}_{m.channel}"
        rails.append((name, m, known or Known(m.label, "not known for this board")))
    if named.board is None:
        return Found(None, tuple(rails), "", named.how)
    return Found(named.board, tuple(rails), *_total(named.board, once))


def _total(board: Board, labels: Collection[str]) -> tuple[str | tuple[str, ...], str]:
    """Return how the total is formed from labels that occur once here, or why there is none."""
    needs = []
    for way in board.total:
        terms = board.terms() if way == SUM else (way,)
        missing = [label for label in terms if label not in labels]
        if not missing:
            return (terms if way == SUM else way), ""
        needs.append(f"{'a sum' if way == SUM else 'it'} needs {', '.join(missing)}")
    return "", f"{board.name}: no total here: {'; '.join(needs)}, which no monitor (or more than one) shows"


def readable(root: Path) -> bool:
    """Return whether any rail's power can be read now."""
    return any(
        isinstance(value, float) for name, _, value in Rails(str(root)).read() if name.endswith("_power_w")
    )


class Rails:
    """Every rail of every power monitor, and their sum if this board's total is formed as a sum."""

    def __init__(self, root: str) -> None:
        self._found = find(Path(root))
        self._rails = [_Rail(name, m, known.scope) for name, m, known in self._found.rails]
        self._terms = self._found.total if isinstance(self._found.total, tuple) else ()
        self._missing = "" if self._rails else _NONE.format(root.rstrip("/"))
        if self._rails and self._found.board and SUM in self._found.board.total:
            self._missing = self._found.why_no_total

    def channels(self) -> Sequence[ChannelSpec]:
        """Return power, voltage and current of each rail, and the sum."""
        out = [spec for rail in self._rails for spec in rail.specs]
        if self._missing:
            out.append(ChannelSpec(TOTAL, "W", SUM, "gauge", "power monitors"))
        if self._terms:
            kinds = {spec.kind for rail in self._rails for spec in rail.specs if rail.label in self._terms}
            kind = "average" if "average" in kinds else "gauge"
            out.append(
                ChannelSpec(TOTAL, "W", SUM, kind, f"sum of {' + '.join(self._terms)}; {self._slowest()}")
            )
        return out

    def _slowest(self) -> str:
        """Return how often the slowest term of the sum changes."""
        each = [m.refresh_s for _, m, _ in self._found.rails if m.label in self._terms]
        known = [s for s in each if s is not None]
        return f"refresh {max(known) * 1e3:.0f} ms" if len(known) == len(each) else "refresh not published"

    def read(self) -> Sequence[Row]:
        """Return one row per channel; one unreadable term makes the sum unreadable."""
        start = time.monotonic_ns()
        rows: list[Row] = []
        terms: list[Value] = []
        for rail in self._rails:
            rows += rail.read()
            if rail.label in self._terms:
                terms.append(rows[-3][2])
        if self._terms:
            problem = next((v for v in terms if isinstance(v, Unsupported | Failed)), None)
            value = problem or sum(v for v in terms if isinstance(v, float))
            rows.append((TOTAL, (start + time.monotonic_ns()) // 2, value))
        elif self._missing:
            rows.append((TOTAL, start, Unsupported(self._missing)))
        return rows


class _Rail:
    """One rail's files, opened once."""

    def __init__(self, name: str, monitor: Monitor, scope: str) -> None:
        self.label = monitor.label
        self._names = tuple(f"{name}_{what}" for what in ("power_w", "voltage_v", "current_a"))
        self._voltage, self._current = KernelFile(monitor.voltage), KernelFile(monitor.current)
        self._power = KernelFile(monitor.power) if monitor.power else None
        self._scale, self._limit_v = monitor.power_scale, monitor.limit_v
        kind = "average" if (monitor.samples or 1) > 1 else "gauge"
        self.specs = tuple(
            ChannelSpec(channel, unit, scope, kind, monitor.words())
            for channel, unit in zip(self._names, "WVA", strict=True)
        )

    def read(self) -> list[Row]:
        """Return power, voltage and current, with the time between the two reads as their time."""
        volts = self._voltage.number(1e-3)
        now = time.monotonic_ns()
        amperes = self._current.number(1e-3)
        volts = _within(volts, -1.0, self._limit_v, "V", self._voltage)
        amperes = _within(amperes, -_LIMIT_A, _LIMIT_A, "A", self._current)
        if self._power is not None:
            limit_w = self._limit_v * _LIMIT_A
            watts = _within(self._power.number(self._scale), -limit_w, limit_w, "W", self._power)
            if isinstance(watts, float) and isinstance(amperes, float) and amperes < 0:
                watts = -abs(watts)
        elif isinstance(volts, float) and isinstance(amperes, float):
            watts = volts * amperes
        else:
            watts = amperes if isinstance(volts, float) else volts
        return [(name, now, v) for name, v in zip(self._names, (watts, volts, amperes), strict=True)]


def _within(value: Value, low: float, high: float, unit: str, file: KernelFile) -> Value:
    """Return the value, or Failed if no such chip can have measured it (nan included)."""
    if not isinstance(value, float) or low <= value <= high:
        return value
    shown = f"{value:g} {unit}" if math.isfinite(value) else "no number"
    return Failed(f"{file.path} reads {shown}: out of the chip's range")


def facts(root: Path) -> dict[str, Any]:
    """Return {"rails": channel -> facts, "power_total": how the total is formed, or why there is none}."""
    found = find(root)
    rails: Fact = {name: _described(monitor, known) for name, monitor, known in found.rails}
    total: Fact = absent(found.why_no_total)
    if isinstance(found.total, tuple):
        total = {"channel": TOTAL, "scope": SUM, "of": list(found.total)}
    elif found.total and found.board:
        channel = f"{_word(found.total)}_power_w"
        total = {"channel": channel, "scope": found.board.rails[found.total].scope}
    if not rails:
        rails = absent(_NONE.format(str(root).rstrip("/")))
    return {"rails": rails, "power_total": total, "doubts": list(found.board.doubts if found.board else ())}


def _described(monitor: Monitor, known: Known) -> dict[str, Any]:
    untold = f"the driver of this {monitor.chip} does not publish it"
    return {
        "label": monitor.label,
        "scope": known.scope,
        "feeds": known.feeds,
        "below": known.below,
        "chip": f"{monitor.chip} {monitor.place} channel {monitor.channel}",
        "refresh_s": monitor.refresh_s or absent(untold),
        "samples": monitor.samples or absent(untold),
        "current_step_a": monitor.step_a or absent(untold),
    }


def _word(text: str) -> str:
    """Return a label as the prefix of a channel's name."""
    return word(text)[:_LONGEST] or "rail"
