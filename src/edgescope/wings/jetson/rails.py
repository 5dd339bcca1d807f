"""A Jetson's power rails: volts, amperes and watts of each, and a total only if boards.toml defines it.

Power is the driver's own figure if there is one, else voltage times current, read in immediate succession. The
INA238's power register has no sign (its data sheet), so the sign is the current's: an idle rail may read a little
below 0, as tegrastats prints it. What
a rail feeds and its scope come from boards.toml for the board that the device tree names; a label that this board does
not have, or has twice, stays a rail of scope `rail`, and no total is guessed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import Fact, KernelFile, absent, word
from edgescope.wings.jetson import identity, power_monitors
from edgescope.wings.jetson.boards import SUM, Board
from edgescope.wings.jetson.boards import Rail as Known
from edgescope.wings.jetson.power_monitors import Monitor

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
    monitors = power_monitors.find(root)
    named = identity.recognise(root)
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
