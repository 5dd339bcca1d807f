"""Limits a trial to some of the CPUs: `--mode cpus=0-1`.

The trial's process and all it starts may run only on these (sched_setaffinity); engines that size their thread
pools by the affinity use fewer threads, as they would on a smaller machine. Nothing outside the process changes, so
there is nothing to restore. Other processes may still run on the same CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from edgescope.devices.base import Journal
from edgescope.errors import UnsupportedError
from edgescope.modes import launcher
from edgescope.process import Launch
from edgescope.units import ranges


class Affinity:
    """The process may run on `cpus` only."""

    def __init__(self, cpus: Iterable[int]) -> None:
        self.cpus = tuple(sorted(set(cpus)))

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"cpus={ranges(self.cpus)}"

    def launch(self) -> Launch:
        """Return the launch that sets the affinity."""
        return launcher.launch(cpus=ranges(self.cpus))

    def enter(self, journal: Journal) -> None:
        """Raise UnsupportedError unless this process may use these CPUs."""
        allowed = os.sched_getaffinity(0)
        missing = sorted(set(self.cpus) - allowed)
        if missing:
            raise UnsupportedError(
                "E-CPUS-1",
                f"CPU {ranges(missing)} cannot be used here",
                evidence=f"this process may use {ranges(allowed)}",
                fix=f"--mode cpus={ranges(allowed)}, or a part of it",
            )

    def leave(self, journal: Journal) -> None:
        """Do nothing: the setting ended with the process."""

    def problem(self) -> str:
        """Return '' if this process may run on exactly these CPUs, else the CPUs it may use."""
        now = os.sched_getaffinity(0)
        return "" if now == set(self.cpus) else f"this process may use CPUs {ranges(now)}"

    def evidence(self) -> str:
        """Return the CPUs that the kernel lets this process run on."""
        return f"sched_getaffinity: CPUs {ranges(os.sched_getaffinity(0))}"

    def features(self) -> Mapping[str, float]:
        """Return the number of CPUs."""
        return {"cpu_cores": float(len(self.cpus))}


def some(usable: Sequence[int]) -> dict[str, Affinity]:
    """Return the modes that use one, two, four ... of the usable CPUs, but not all, by name."""
    sizes = [2**n for n in range(len(usable).bit_length()) if 2**n < len(usable)]
    return {mode.name: mode for mode in (Affinity(usable[:size]) for size in sizes)}
