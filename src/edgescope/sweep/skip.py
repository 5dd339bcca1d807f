"""Cells that need not be tried, because a smaller one of the same kind ran out of memory.

Memory grows with the batch, with the processes and with the queries in flight. So a cell that ran out of it answers
for every cell that asks for at least as much of all three and is otherwise the same question. Those become Results
with the status `skipped` and a reason that names the cell and its result; nothing disappears silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone

from edgescope.errors import message
from edgescope.isolate.fresh import new_id
from edgescope.records import Machine, Result, Status, Trial, digest

SIZES = ("batch", "processes", "in_flight")
#: Keys that two cells must share before one says anything of the other's memory.
KIN = ("model", "backend", "device", "precision", "workload", "sharing", "beside", "mode", "io")
AGAIN = "edgescope sweep ... --no-prune --retry skipped"


def kin(trial: Trial) -> str:
    """Return what cells share that differ in nothing but size, load and duration."""
    shapes = {name: list(shape[1:]) for name, shape in trial.shapes.items()}
    return digest([*(getattr(trial, key) for key in KIN), dict(trial.options), shapes])


def size(trial: Trial) -> tuple[int, ...]:
    """Return (batch, processes, in_flight)."""
    return tuple(getattr(trial, key) for key in SIZES)


def sized(trial: Trial) -> str:
    """Return `b4 P2 T2`, the last two where they are not 1."""
    parts = zip("bPT", size(trial), strict=True)
    return " ".join(f"{letter}{n}" for letter, n in parts if letter == "b" or n > 1)


class Exhausted:
    """The cells that ran out of memory so far, by kin."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self.cells: dict[str, list[Result]] = {}
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Take a result into account."""
        if result.status is Status.OOM:
            self.cells.setdefault(kin(result.trial), []).append(result)

    def smaller(self, trial: Trial) -> Result | None:
        """Return the smallest cell that ran out of memory and that this trial exceeds or equals in every size."""
        mine = size(trial)
        found = [
            r
            for r in self.cells.get(kin(trial), ())
            if r.trial.id != trial.id and all(a <= b for a, b in zip(size(r.trial), mine, strict=True))
        ]
        return min(found, key=lambda r: size(r.trial), default=None)

    def reason(self, trial: Trial) -> str:
        """Return why this trial need not be tried, '' where it must be."""
        found = self.smaller(trial)
        if found is None:
            return ""
        return message(
            "I-PRUNE-1",
            f"not tried: {sized(found.trial)} of the same model and engine ran out of memory",
            evidence=f"result {found.id}",
            effect="There is no number for this cell",
            fix=AGAIN,
        )


def skipped(trial: Trial, where: Machine, reason: str) -> Result:
    """Return the Result of a trial that was not tried."""
    now = datetime.now(timezone.utc)
    bare = Result(id=new_id(trial, now), trial=trial, machine=where, status=Status.SKIPPED, reason=reason)
    return replace(bare, started_at=now.isoformat(timespec="milliseconds"))
