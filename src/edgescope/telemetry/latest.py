"""Reads the sensors of a machine in this process: latest values, the last minute of each, the cost of reading.

A measured run has a sampler in a separate process (telemetry.sampler); a view may read in its own. It reads like the
sampler: the same sources, the same budget for each source, the same handling of drivers that raise.
An energy counter (joules) is shown as power: its difference over the time between two readings. A sensor that
stops answering loses its value: an old value must not be shown as the present one.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgescope.devices.base import ChannelSpec, Failed, SourceSpec, Value
from edgescope.telemetry.watcher import Board, Reader

SAMPLER_HZ = 10.0
"""The rate that a SourceSpec's `every` refers to."""
SPAN_S = 60.0
_UNITS = ("share", "Hz", "W", "J", "V", "degC", "byte", "flag", "rpm")


class Live(Board):
    """The sampler's table of channels, which also keeps each channel's latest value."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        """Channels that exist but could not be read the last time, and why."""
        self.hidden: frozenset[int] = frozenset()
        """Channels that the view does not show: an energy counter if a gauge of the same power exists."""
        self._joules: dict[int, tuple[int, float]] = {}

    def note(self, index: int, value: Value) -> None:
        """Take one reading; a joule counter becomes watts."""
        super().note(index, value)
        channel = self.channels[index]
        if index in self.hidden:
            return
        if isinstance(value, Failed):
            self.failed[channel.name] = value.reason
        else:
            self.failed.pop(channel.name, None)
        if not isinstance(value, float):
            self.values.pop(shown_name(channel), None)
            self._joules.pop(index, None)
        elif channel.unit == "J":
            self._watts(index, shown_name(channel), value)
        else:
            self.values[channel.name] = value

    def _watts(self, index: int, name: str, joules: float) -> None:
        now = time.monotonic_ns()
        then, before = self._joules.get(index, (now, joules))
        self._joules[index] = (now, joules)
        if now > then and joules >= before:
            self.values[name] = (joules - before) / (now - then) * 1e9


class Sensors:
    """Every source of `specs`, read at `hz` ticks a second; each source on every n-th tick as its spec says."""

    def __init__(self, specs: Sequence[SourceSpec], hz: float) -> None:
        self._live, self._hz = Live(), hz
        self._span = max(2, round(SPAN_S * hz))
        self._history: dict[str, deque[float]] = {}
        opened: list[tuple[str, Reader, list[ChannelSpec]]] = []
        for spec in specs:
            first = len(self._live.channels)
            reader = Reader(replace(spec, every=max(1, round(spec.every * hz / SAMPLER_HZ))), self._live)
            target = str(spec.kwargs.get("target", spec.target))  # a replayed source wraps the real one
            opened.append((target.rpartition(":")[2], reader, self._live.channels[first:]))
        every = self._live.channels
        self.channels: Mapping[str, ChannelSpec] = _shown(every)
        self._live.hidden = frozenset(
            i for i, c in enumerate(every) if self.channels.get(shown_name(c)) is not c
        )
        wanted = {channel.name for channel in self.channels.values()}
        self._readers = [(name, reader) for name, reader, own in opened if wanted & {c.name for c in own}]
        for _, reader in self._readers:
            reader.pace(1 / hz)

    @property
    def failed(self) -> Mapping[str, str]:
        """Return channel -> reason for the channels that exist but could not be read the last time."""
        return self._live.failed

    @property
    def values(self) -> Mapping[str, float]:
        """Return the latest value of every channel that answered at its last read."""
        return self._live.values

    def tick(self, number: int) -> None:
        """Read the sources that are due and note one point of every channel's last minute."""
        for _, reader in self._readers:
            if number % reader.every == 0:
                reader.read()
        for name in self.channels:
            points = self._history.get(name)
            if points is None:
                points = self._history[name] = deque(maxlen=self._span)
            points.append(self._live.values.get(name, math.nan))

    def last_minute(self, name: str, columns: int) -> list[float]:
        """Return `columns` means over the last minute, oldest first; nan for a column without a reading."""
        return binned(self._history.get(name, ()), columns, self._span)

    def slow(self) -> list[tuple[str, float]]:
        """Return (source, seconds between two reads) of the sources too costly to read every second or two."""
        periods = [(name, r.every / self._hz) for name, r in self._readers]
        return [(name, seconds) for name, seconds in periods if 2.0 < seconds < SPAN_S]


def shown_name(channel: ChannelSpec) -> str:
    """Return the displayed name of a channel; an energy counter is shown under the name of its power."""
    return channel.name.removesuffix("_energy_j") + "_power_w" if channel.unit == "J" else channel.name


def _shown(channels: Sequence[ChannelSpec]) -> dict[str, ChannelSpec]:
    """Return the channels of a view by displayed name; a gauge of power wins over a counter of energy."""
    fit = [c for c in channels if c.unit in _UNITS or c.name.endswith("_events")]
    return {shown_name(c): c for c in sorted(fit, key=lambda c: c.unit != "J")}


def binned(points: Iterable[float], columns: int, span: int) -> list[float]:
    """Return `columns` means of the last `span` points, right-aligned; nan for a column without points."""
    values = list(points)[-span:]
    sums, counts = [0.0] * columns, [0] * columns
    for i, value in enumerate(values, span - len(values)):
        if not math.isnan(value):
            column = i * columns // span
            sums[column] += value
            counts[column] += 1
    return [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]
