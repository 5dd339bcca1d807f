"""The device seam: what a machine is, which sensors it has, which settings can be changed and restored.

A Source is one thing that is read in one go and yields many channels (one NVML handle, one /proc file). It is
rebuilt from its picklable spec inside the sampler's process, so this module and every source import neither
numpy nor an engine: the sampler must start fast and cost little.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from edgescope.process import Launch


@dataclass(frozen=True)
class Unsupported:
    """The machine has no such metric, and why; never 0 in its place."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The metric exists and reading it went wrong this time, and why."""

    reason: str


Value = float | Unsupported | Failed


@dataclass(frozen=True)
class ChannelSpec:
    """Name, unit, scope and kind (gauge, average, counter, interval) of one metric, and where it is read."""

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
    """Read on every n-th tick of the sampler; slow-moving or dear metrics take 5 or 10."""
    edges: bool = False
    """Dear, and needed at the edges of a window only (a counter): read when the sampler is told of one, and after it;
    `every` is for whoever tells it of none."""

    def open(self) -> Source:
        """Import the class and return the source; whatever a driver library raises is raised."""
        module, name = self.target.split(":")
        source: Source = getattr(importlib.import_module(module), name)(**self.kwargs)
        return source


class Source(Protocol):
    """One sensor interface: one read, many channels."""

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the metrics that `read` may yield, whether or not this machine supports them."""

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return (channel name, monotonic time in ns, value) for every channel, unsupported ones included.

        Only an `interval` channel may be left out, when no time has passed on its own clock.
        """


@dataclass(frozen=True)
class Undo:
    """One step that puts a setting back, as the journal keeps it on disk."""

    what: str
    """What will be so again, for the user: `nvpmodel 25W (1)`."""
    request: tuple[str, ...]
    """The words of one change that `modes.privileged` knows; doing it twice does no harm."""
    root: str = "/"


class Journal(Protocol):
    """Where the way back is written before anything is changed."""

    def note(self, owner: str, undo: Undo) -> None:
        """Put `undo` on disk, on behalf of the mode `owner`; only then may the change be made."""

    def holds(self, undo: Undo) -> bool:
        """Keep other processes from changing settings; return whether `undo` is noted already."""

    def restore(self, owner: str) -> None:
        """Undo what was noted for `owner`, the last first."""


class Mode(Protocol):
    """A reversible resource setting, entered before the child starts and restored from a journal on disk.

    A setting of the whole machine derives from this and has `launch` and `leave` from it.
    """

    @property
    def name(self) -> str:
        """The word after --mode."""

    def launch(self) -> Launch:
        """Return how the process that measures starts: as it is, where the setting is the whole machine's."""
        return Launch()

    def enter(self, journal: Journal) -> None:
        """Note the way back, make the change, check that it took effect.

        Raises SettingError where it did not, UnsupportedError where this machine has no such setting.
        """

    def leave(self, journal: Journal) -> None:
        """Put back what `enter` changed, by what it noted."""
        journal.restore(self.name)

    def problem(self) -> str:
        """Return '' when the setting is in effect for this process, otherwise why not; the child asks too."""

    def evidence(self) -> str:
        """Return what was read to know that it is in effect, with figures."""

    def features(self) -> Mapping[str, float]:
        """Return the setting in numbers, for what predicts over modes: the keys of FEATURES, in SI units."""
        return {}


#: What a mode limits, as a number: CPUs that may be used, CPU time in CPUs, highest clocks (Hz), the share of the GPU's
#: multiprocessors (0 to 1), and the GPU's power limit (W).
FEATURES = ("cpu_cores", "cpu_quota", "cpu_hz", "gpu_hz", "memory_hz", "gpu_sm_share", "gpu_power_w")


class Device(Protocol):
    """One kind of hardware on this machine."""

    def present(self) -> str:
        """Return '' when this hardware is here, otherwise the reason why it is not."""

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable facts, facts of the moment); an unreadable fact is {"absent": reason}."""

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return the sources that watch this machine and the process `pid`."""

    def modes(self) -> Mapping[str, Mode]:
        """Return the settings that can be changed and restored, by name."""


@dataclass(frozen=True)
class Throttle:
    """Whether clocks were held down between two looks at a device's own counters."""

    events: tuple[str, ...] = ()
    """What was seen, one sentence with figures each; empty where nothing was."""
    looked_at: tuple[str, ...] = ()
    """Which counters could be read; empty means that nothing can be said."""
    absent: tuple[str, ...] = ()
    """Which could not, and why."""
    unknown: tuple[str, ...] = ()
    """Why nothing may be certified here, whatever else was looked at."""


class ThrottleWatch(Protocol):
    """A pair of looks at a device's throttling counters."""

    def evidence(self) -> Throttle:
        """Return what happened between entering and leaving; valid once the context is left."""


@runtime_checkable
class Throttled(Protocol):
    """Optional, of a device: it has counters that tell whether clocks were held down."""

    def throttle_watch(self) -> AbstractContextManager[ThrottleWatch]:
        """Return a context that looks at them when it is entered and when it is left."""


@runtime_checkable
class TellsProcessMemory(Protocol):
    """Optional, of a device with memory of its own: its driver knows how much of it each process holds."""

    def process_memory(self, pids: Sequence[int]) -> Mapping[int, Value]:
        """Return the bytes that each of these processes holds there, or why that cannot be told."""
