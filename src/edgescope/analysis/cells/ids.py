"""Make short names of stored results, and find the results that a typed name means.

A result's id is its trial's id, its start time and six random digits: runs of one trial share the beginning. So a
short name is the last digits, which are unique, or as much of the whole id as is unique.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from edgescope.analysis.cells.machines import name as machine_name
from edgescope.errors import UsageError
from edgescope.records import Result

LATEST = "latest"
"""Names the newest result."""
LEAST = 6
"""Characters of a short name: fewer would be taken by the next result."""


def short_ids(results: Iterable[Result]) -> dict[str, str]:
    """Return id -> a name that means this result alone among these."""
    every = list(results)
    tails = Counter(r.id.rpartition("-")[2] for r in every)
    starts = sorted({i for r in every for i in (r.id, r.trial.id, r.trial.cell)})
    out = {}
    for result in every:
        tail = result.id.rpartition("-")[2]
        free = tails[tail] == 1 and len(tail) >= LEAST and not _begins(starts, tail)
        out[result.id] = tail if free else _prefix(result.id, starts)
    return out


def _begins(starts: Sequence[str], text: str) -> bool:
    """Return whether one of the sorted `starts` begins with `text`."""
    at = bisect_left(starts, text)
    return at < len(starts) and starts[at].startswith(text)


def _prefix(id_: str, starts: Sequence[str]) -> str:
    """Return the shortest beginning of an id that nothing else in the sorted `starts` has."""
    at = bisect_left(starts, id_)
    beside = [starts[i] for i in (at - 1, at + 1) if 0 <= i < len(starts)]  # none else shares more with it
    alike = ([a == b for a, b in zip(id_, other, strict=False)] for other in beside)
    shared = max(([*same, False].index(False) for same in alike), default=0)
    return id_[: max(LEAST, shared + 1)]


def matching(results: Iterable[Result], typed: str) -> list[Result]:
    """Return the result that `typed` names, or all results of the cell that it begins; UsageError otherwise.

    A result is named by its short name, by a beginning of its id that no other result shares, or as `latest`.
    """
    every = list(results)
    if typed == LATEST:
        return [one(every, typed)]
    named = [r for r in every if r.id.startswith(typed) or r.id.rpartition("-")[2] == typed]
    if len(named) == 1:
        return named
    cells = {r.trial.cell for r in every if r.trial.cell.startswith(typed)}
    if len(cells) == 1 and not named:
        return _of_one_machine([r for r in every if r.trial.cell in cells], typed)
    found = [*named, *(r for r in every if r.trial.cell in cells and r not in named)]
    if not found:
        raise UsageError("E-CMP-4", f"no result or cell is called {typed!r}", fix="edgescope list")
    raise UsageError(
        "E-CMP-2",
        f"{typed!r} is the beginning of {len(found)} results",
        evidence=_listed(found, short_ids(every)),
        effect="Nothing was compared",
        fix="one of these names (edgescope list)",
    )


def starting_with(results: Iterable[Result], typed: str) -> list[Result]:
    """Return the results whose short name, or result, trial or cell id, begins with `typed`; UsageError if none."""
    every = list(results)
    found = [
        r
        for r in every
        if r.id.rpartition("-")[2] == typed
        or any(i.startswith(typed) for i in (r.id, r.trial.id, r.trial.cell))
    ]
    if not found:
        raise UsageError(
            "E-STORE-5", f"no result, trial or cell id starts with {typed!r}", fix="edgescope list"
        )
    return found


def one(results: Iterable[Result], typed: str) -> Result:
    """Return the result that `typed` names: a short name, the beginning of an id or `latest`; UsageError if not one."""
    every = list(results)
    if typed == LATEST and not every:
        raise UsageError("E-STORE-5", "the store holds no result yet", fix="edgescope bench MODEL")
    if typed == LATEST:
        return max(every, key=lambda r: (r.started_at, r.id))
    found = starting_with(every, typed)
    if len(found) > 1:
        raise UsageError(
            "E-STORE-9",
            f"{typed!r} is the beginning of {len(found)} results",
            evidence=_listed(found, short_ids(every)),
            fix="one of these names (edgescope list)",
        )
    return found[0]


def _listed(found: Sequence[Result], names: dict[str, str]) -> str:
    lines = [
        f"{names[r.id]}: {r.trial.model.partition('#')[0]} {r.trial.label} #{r.trial.replicate}, {r.started_at[:16]}"
        for r in found[:8]
    ]
    return "; ".join(lines) + (f"; and {len(found) - 8} more" if len(found) > 8 else "")


def _of_one_machine(found: list[Result], typed: str) -> list[Result]:
    machines = {r.machine.id: r.machine for r in found}
    if len(machines) > 1:
        raise UsageError(
            "E-CMP-3",
            f"{typed!r} was measured on several machines",
            evidence="; ".join(map(machine_name, machines.values())),
            fix="name a result of each (edgescope list)",
        )
    return found
