"""Whose results a verb reads: the one place where a store's results are taken for an answer.

Every verb gets this machine's (in a replay: the recording's), or those of the machine that it is given, and says in one
line what it left out. A typed name may mean another machine's result; then that one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from edgescope.analysis.cells import ids, machines
from edgescope.devices import manifest
from edgescope.errors import UsageError
from edgescope.records import Result
from edgescope.store.results import Store

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
