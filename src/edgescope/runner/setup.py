"""The setup that all measuring verbs share: the store, the limits, the statuses to retry, the progress callback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.errors import EdgescopeError, Message
from edgescope.isolate.fresh import Limits
from edgescope.records import Status, Trial
from edgescope.store.results import Store

if TYPE_CHECKING:  # a verb that only reads a file needs nothing that measures
    from edgescope.runner.builds import Waiting
    from edgescope.runner.run import ExperimentRunner

Stored = Store | Path | str | None
"""A store, or the folder of one; None: EDGESCOPE_STORE, else ./edgescope-results."""


def store_of(store: Stored) -> Store:
    """Return `store` as a Store; a path is opened."""
    return store if isinstance(store, Store) else Store(store)


@dataclass(frozen=True)
class Setup:
    """How a verb measures; `Setup(tell=print)` prints its progress."""

    limits: Limits = Limits()
    """The limits that stop a run."""
    retry: Collection[Status | str] = ()
    """Stored results with these statuses are measured again."""
    tell: Callable[[object], None] = lambda what: None
    """Called with each next run and with each message; str() of the argument is a line to print."""
    waiting: Waiting = lambda what: contextlib.nullcontext()
    """Makes a context that is open during a long step; its argument describes the step."""

    def cells(self, store: Store) -> ExperimentRunner:
        """Return what runs trials on this machine into a store, each in its own process."""
        from edgescope.devices.manifest import here
        from edgescope.runner.isolated import Isolated
        from edgescope.runner.run import ExperimentRunner

        retry = [Status(status) for status in self.retry]
        return ExperimentRunner(
            store, self.limits, Isolated(), here(), retry, say=self.tell, waiting=self.waiting
        )


def check_modes(trials: Iterable[Trial], tell: Callable[[str], None]) -> None:
    """Raise UsageError for a mode that this machine lacks; warn about modes that need a reboot."""
    names = sorted({t.mode for t in trials} - {Trial.mode})
    if not names:
        return
    from edgescope.devices.manifest import present
    from edgescope.modes import catalog
    from edgescope.modes.jetson import NvpMode

    devices = present()
    for name in names:
        mode = catalog.find(name, devices)
        change, why = mode.change() if isinstance(mode, NvpMode) else ("live", "")
        if change != "live":
            text = f"{name}: {change} ({why}), so its cells may be refused"
            tell(str(Message("W-MODE-1", text, fix="edgescope modes")))


def usual_modes() -> list[str]:
    """Return the modes that every machine has: as it is, and one, two, four ... of the CPUs that may be used."""
    from edgescope.modes import catalog, cpu

    return [catalog.AS_IS, *cpu.some(sorted(os.sched_getaffinity(0)))]


def mode_features(names: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return what each mode sets, as this machine knows it (devices.base.FEATURES); {} for a mode of another board."""
    from edgescope.devices.manifest import present
    from edgescope.modes import catalog

    devices, found = present(), dict[str, Mapping[str, float]]()
    for name in names:
        try:
            found[name] = catalog.find(name, devices).features()
        except EdgescopeError:
            found[name] = {}
    return found
