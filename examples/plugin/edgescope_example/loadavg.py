"""A device: the load averages of /proc/loadavg. Its source is rebuilt in the sampler's process: no numpy, no engine."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Mode, SourceSpec, Value

FILE = "/proc/loadavg"
NAMES = ("loadavg_1min", "loadavg_5min", "loadavg_15min")


class LoadavgSource:
    """One read, three channels."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the runnable tasks of the whole machine, each an average over its time."""
        return [ChannelSpec(name, "1", "system", "average", str(self.path)) for name in NAMES]

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return a value for each channel; Failed with the reason where the file cannot be read, never 0."""
        now = time.monotonic_ns()
        try:
            words = self.path.read_text().split()
            return [(name, now, float(word)) for name, word in zip(NAMES, words, strict=False)]
        except (OSError, ValueError) as error:
            return [(name, now, Failed(str(error))) for name in NAMES]


class Loadavg:
    """The kernel's load averages."""

    def present(self) -> str:
        """Return '' where the file is, otherwise the reason."""
        return "" if Path(FILE).is_file() else f"no {FILE}"

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return no facts: what is stable here would be part of the machine's id."""
        return {}, {}

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return the one source, read on every tenth tick: the kernel changes the file every 5 s."""
        return [SourceSpec("edgescope_example.loadavg:LoadavgSource", {"path": FILE}, every=10)]

    def modes(self) -> Mapping[str, Mode]:
        """Return no settings: there is nothing to change."""
        return {}
