"""The device seam: a machine's facts, its sensors, and the settings that can be changed and restored.

A Source is read in one go and yields many channels (one NVML handle, one /proc file). It is
rebuilt from its picklable spec inside the sampler's process, so this module and every source import neither
numpy nor an engine: the sampler must start fast and cost little.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from edgescope.process import Launch


@dataclass(frozen=True)
class Unsupported:
    """The reason why the machine has no such metric; 0 never takes its place."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The reason why reading an existing metric failed this time."""

    reason: str


Value = float | Unsupported | Failed


@dataclass(frozen=True)
class ChannelSpec:
    """Name, unit, scope, kind (gauge, average, counter, interval) of one metric, and the file or call read."""

    name: str
    unit: str
    scope: str
    kind: str
    source: str


@dataclass(frozen=True)
class SourceSpec:
    """How to rebuild a Source in another process: `module:Class` and its keyword arguments (JSON values)."""

    target: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    """The source is read on every n-th tick of the sampler; slow or costly metrics take 5 or 10."""
    edges: bool = False
    """The source is costly and needed only at the edges of a window (a counter): it is read when the sampler's `mark`
    is called, and after it; `every` applies if `mark` is never called."""

    def open(self) -> Source:
        """Import the class and return the source; an exception of the driver library passes through."""
        module, name = self.target.split(":")
        source: Source = getattr(importlib.import_module(module), name)(**self.kwargs)
        return source


class Source(Protocol):
    """One sensor interface: one read yields many channels."""

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the metrics that `read` may yield, whether or not this machine supports them."""

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return (channel name, monotonic time in ns, value) for every channel, unsupported ones included.

        Only an `interval` channel may be left out, when no time has passed on its own clock.
        """


@dataclass(frozen=True)
class Undo:
    """One step that restores a setting, as the journal stores it on disk."""

    what: str
    """The state that the step restores, as the user reads it: `nvpmodel 25W (1)`."""
    request: tuple[str, ...]
    """The arguments of one change for `modes.privileged`; making it twice does no harm."""
    root: str = "/"


class Journal(Protocol):
    """The record of how to undo each change, written before the change is made."""

    def note(self, owner: str, undo: Undo) -> None:
        """Write `undo` to disk on behalf of the mode `owner`; only then may the change be made."""

    def holds(self, undo: Undo) -> bool:
        """Keep other processes from changing settings; return whether `undo` is noted already."""

    def restore(self, owner: str) -> None:
        """Undo the steps noted for `owner`, the last first."""


@dataclass(frozen=True)
class Row:
    """One setting in the list of a machine's settings."""

    name: str
    id: int | None = None
    """The board's number for a power mode, on this board only."""
    cores: tuple[int, ...] = ()
    """CPUs online, or () if the setting does not change them."""
    cpu_max_hz: int | None = None
    """Highest CPU clock of any cluster; None: uncapped, or not set."""
    gpu_max_hz: int | None = None
    emc_max_hz: int | None = None
    default: bool = False
    now: bool = False
    """Whether the board is in this mode."""
    change: str = "live"
    """live, needs a reboot, or not known; '' for a setting that takes a value."""
    why: str = ""


class Mode(Protocol):
    """A reversible resource setting, entered before the child starts and restored from a journal on disk.

    A setting derives from this class; one of the whole machine inherits `launch` and `leave`.
    """

    number: int | None = None
    """The board's number for a power mode."""
    comes_last: bool = False
    """Whether it holds what other settings set, so that it is entered after them."""

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""

    def launch(self) -> Launch:
        """Return how the measuring process starts: unchanged if the setting is one of the whole machine."""
        return Launch()

    def enter(self, journal: Journal) -> None:
        """Note how to undo the change, make it, and check that it took effect.

        Raises SettingError if it did not, UnsupportedError if this machine has no such setting.
        """

    def leave(self, journal: Journal) -> None:
        """Undo the changes of `enter` by the steps that it noted."""
        journal.restore(self.name)

    def problem(self) -> str:
        """Return '' if the setting is in effect for this process, otherwise why not; the child calls it, too."""

    def evidence(self) -> str:
        """Return the evidence, with figures, that the setting is in effect."""

    def features(self) -> Mapping[str, float]:
        """Return the setting as numbers for predictions over modes: keys of FEATURES, in SI units."""
        return {}

    def change(self) -> tuple[str, str]:
        """Return how to change to it from the present one: `live`, `needs a reboot` or `not known`; and why."""
        return "live", ""

    def row(self) -> Row:
        """Return its line in the list of settings."""
        return Row(self.name)


#: The limits that a mode may set: CPUs that may be used, CPU time in CPUs, highest clocks (Hz), the share of the GPU's
#: multiprocessors (0 to 1), and the GPU's power limit (W).
FEATURES = ("cpu_cores", "cpu_quota", "cpu_hz", "gpu_hz", "memory_hz", "gpu_sm_share", "gpu_power_w")


class Device(Protocol):
    """One kind of hardware on this machine."""

    def present(self) -> str:
        """Return '' if this hardware is present, otherwise why not."""

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable facts, present facts); an unreadable fact is {"absent": reason}."""

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return the sources that watch this machine and the process `pid`."""

    def modes(self) -> Mapping[str, Mode]:
        """Return the settings that can be changed and restored, by name."""


@dataclass(frozen=True)
class Throttle:
    """Whether clocks were held down between two reads of a device's own counters."""

    events: tuple[str, ...] = ()
    """The throttling events, one sentence with figures for each; empty if there were none."""
    looked_at: tuple[str, ...] = ()
    """The counters that could be read; empty means that throttling is not known."""
    absent: tuple[str, ...] = ()
    """The counters that could not be read, and why."""
    unknown: tuple[str, ...] = ()
    """Why no run may be certified clean here, whatever else was read."""


class ThrottleWatch(Protocol):
    """Two reads of a device's throttling counters."""

    def evidence(self) -> Throttle:
        """Return the throttling between entering and leaving; valid after the context is left."""


@runtime_checkable
class Throttled(Protocol):
    """Optional for a device: it has counters that show whether clocks were held down."""

    def throttle_watch(self) -> AbstractContextManager[ThrottleWatch]:
        """Return a context that reads the counters when it is entered and when it is left."""


@runtime_checkable
class TellsProcessMemory(Protocol):
    """Optional for a device with its own memory: its driver knows how much of it each process holds."""

    def process_memory(self, pids: Sequence[int]) -> Mapping[int, Value]:
        """Return the bytes that each of these processes holds there, or why that is not known."""


@runtime_checkable
class TellsOfModes(Protocol):
    """Optional for a device with power modes: it knows why its list of them is empty or not whole."""

    def unlisted(self) -> tuple[str, Sequence[str]]:
        """Return why there is no power mode, where there is none, and what was left out of the list."""


class NullDevice:
    """A device without sensors: for tests, and for measuring the cost of watching."""

    def present(self) -> str:
        """Return '': the null device is always present."""
        return ""

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return no facts."""
        return {}, {}

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return no sources."""
        return ()

    def modes(self) -> Mapping[str, Mode]:
        """Return no settings."""
        return {}


class AbsentSource:
    """A source of channels that this machine does not have, so that results say why a figure is missing."""

    def __init__(self, channels: Sequence[Sequence[str]], reason: str) -> None:
        self._channels = tuple(ChannelSpec(*fields) for fields in channels)
        self._reason = reason

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the channels that are missing."""
        return self._channels

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return Unsupported with the reason for each channel."""
        now = time.monotonic_ns()
        return [(c.name, now, Unsupported(self._reason)) for c in self._channels]
