"""What all verbs share that measure or read results: the store, whose results count, limits; `edgescope.run(trial)`.

Every verb gets this machine's results (in a replay: the recording's), or those of the machine that it is given, and
says in one line what it left out. A typed name may mean another machine's result; then that one is taken.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgescope import registry
from edgescope.analysis.cells import ids, machines
from edgescope.devices import manifest
from edgescope.errors import EdgescopeError, Message, UsageError
from edgescope.isolate.fresh import Limits
from edgescope.records import Result, Status, Trial
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
        from edgescope.runner.isolated import Isolated
        from edgescope.runner.run import ExperimentRunner

        retry = [Status(status) for status in self.retry]
        runner = Isolated
        if os.environ.get(registry.ON):
            runner = registry.need(registry.RUNNER_ON_BOARD, "a board over ssh", registry.REINSTALL)
        return ExperimentRunner(
            store,
            replace(self.limits, store=store.root),
            runner(),
            manifest.here(),
            retry,
            say=self.tell,
            waiting=self.waiting,
        )


def check_modes(trials: Iterable[Trial], tell: Callable[[str], None]) -> None:
    """Raise UsageError for a mode that this machine, or the board that it drives, cannot set; warn of reboots."""
    if os.environ.get(registry.ON):
        registry.need(registry.REFUSE_ON_BOARD, "a board over ssh", registry.REINSTALL)(trials)
        return
    names = sorted({t.mode for t in trials} - {Trial.mode})
    if not names:
        return
    from edgescope.modes import catalog

    devices = manifest.present()
    for name in names:
        change, why = catalog.find(name, devices).change()
        if change != "live":
            text = f"{name}: {change} ({why}), so its cells may be refused"
            tell(str(Message("W-MODE-1", text, fix="edgescope modes")))


def usual_modes() -> list[str]:
    """Return the modes that every machine has: as it is, and one, two, four ... of the CPUs that may be used."""
    from edgescope.modes import catalog, cpu

    return [catalog.AS_IS, *cpu.some(sorted(os.sched_getaffinity(0)))]


def board_modes() -> list[str]:
    """Return the names of this board's power modes that need no reboot; [] where there are none.

    A setting that comes on top of a mode (`jetson_clocks`) is none.
    """
    found, _ = manifest.settings(manifest.present())
    return [name for name, mode in found.items() if not mode.comes_last and mode.change()[0] == "live"]


def mode_features(names: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return what each mode sets, as this machine knows it (devices.base.FEATURES); {} for a mode of another board."""
    from edgescope.modes import catalog

    devices, found = manifest.present(), dict[str, Mapping[str, float]]()
    for name in names:
        try:
            found[name] = catalog.find(name, devices).features()
        except EdgescopeError:
            found[name] = {}
    return found


# -- whose results a verb reads: the one place where a store's results are taken for an answer -------------------

Found = TypeVar("Found")
Tell = Callable[[object], None]
UNKNOWN = ("E-STORE-5", "E-CMP-4")
"""Codes that say that nothing has a typed name."""


def silent(what: object) -> None:
    """Tell nobody."""


def own_results(
    store: Store, machine: str = "", tell: Tell = silent, *, flag: str = "--machine", apart: bool = False
) -> list[Result]:
    """Return this machine's results in a store, or those of `machine`; `tell` gets the line about the others.

    UsageError if several other machines have some and none is chosen, or if none has the chosen id. `flag` is what
    chooses; `apart`: the caller shows several machines apart from each other, so they need not be refused.
    """
    share = machines.share(store.results(), manifest.here(), machine, flag, apart=apart)
    if share.note is not None:
        tell(str(share.note))
    return share.results


def named(
    store: Store,
    typed: str,
    find: Callable[[Iterable[Result], str], Found],
    machine: str = "",
    tell: Tell = silent,
) -> Found:
    """Return what `find` finds by a typed name: among this machine's results (or those of `machine`), else among all.

    `latest` is this machine's. UsageError if nothing, or more than one thing, has the name.
    """
    if typed == ids.LATEST:
        return find(own_results(store, machine, tell), typed)
    every = list(store.results())
    mine = [r for r in every if r.machine.id == manifest.here().id or not machines.known(r)]
    mine = machines.share(every, manifest.here(), machine).results if machine else mine
    try:
        return find(mine, typed)
    except UsageError as error:
        if machine or error.code not in UNKNOWN:
            raise
        return find(every, typed)


def run(trial: Trial, *, isolated: bool = True, store: Stored = None, setup: Setup = Setup()) -> Result:
    """Run one trial and return its Result; a failure is a Result with a status and a reason.

    The trial runs in a fresh process unless `isolated` is False, so this process's memory and history cannot disturb
    the figures, and a model that crashes ends only the fresh process. The result is stored if `store` names a folder.
    Names of files are pinned by their content first, as a sweep does.
    """
    from edgescope.models import zoo
    from edgescope.study import grid

    trial = grid.pinned(trial, zoo.pin)
    if store is not None and isolated:
        return setup.cells(store_of(store)).run(trial)
    if not isolated:
        from edgescope import bench

        result = bench.run(trial)
        if store is not None:
            store_of(store).save(result)
        return result
    from edgescope.runner.isolated import Isolated

    with setup.waiting(f"measuring {trial.model} {trial.label}"):
        failed = Isolated().prepare(trial, setup.limits)
        return Isolated().run(trial, setup.limits) if failed is None else failed.inherited(trial)
