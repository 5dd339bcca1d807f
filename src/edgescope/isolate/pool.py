"""Crews that live on between trials, so that a sweep does not start its engines anew for every cell.

Starting an engine's process takes seconds on a GPU, a cell measures for two. One crew of each sharing is kept; its
workers are replaced when the next trial asks for another model, engine, precision or setting, since a process keeps
more of those than its session (allocators, chosen kernels, switches).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

from edgescope.isolate import placement as seating
from edgescope.isolate.leader import GRACE_S, PATIENCE_S, Crew
from edgescope.isolate.process import Seat
from edgescope.isolate.staff import Staff, available
from edgescope.records import Role, Trial

#: Seconds after which the process that leads is ended; the leader gives up a little earlier and says who was late.
LIMIT = "EDGESCOPE_TIMEOUT"
_EARLIER = 0.9


class Crews:
    """One crew a sharing; a context manager that ends them all. `env` is what all workers' environments add."""

    def __init__(self, env: Mapping[str, str] | None = None, *, grace_s: float = GRACE_S) -> None:
        self.env, self.grace_s = dict(env or {}), grace_s
        self.staff = Staff()
        """Workers that trials to come will need, of the present trial's crew."""
        self.free = available()
        """Bytes of memory that could be had before there was any worker."""
        self._kept: dict[str, tuple[str, Crew]] = {}
        self._begun = time.monotonic()

    def __enter__(self) -> Crews:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker of every crew."""
        for _, crew in self._kept.values():
            crew.close()
        self._kept.clear()

    def begin(self, env: Mapping[str, str], staff: Staff = Staff()) -> None:  # noqa: B008  (frozen)
        """Begin a trial: `env` and `staff` from now on, and its time starts."""
        self.env, self.staff, self._begun = dict(env), staff, time.monotonic()

    @property
    def limit_s(self) -> float:
        """Seconds that the present trial may still take."""
        whole = float(os.environ.get(LIMIT, PATIENCE_S))
        return max(1.0, whole * _EARLIER - (time.monotonic() - self._begun))

    def of(self, trial: Trial) -> Crew:
        """Return the crew that answers `trial`: the kept one of its sharing, with new workers where it must."""
        same = alike(trial)
        key, crew = self._kept.get(trial.sharing, ("", None))
        if crew is None:
            crew = Crew(grace_s=self.grace_s)
        elif key != same:
            crew.dismiss()
        self._kept[trial.sharing] = same, crew
        return crew

    @property
    def pids(self) -> set[int]:
        """The processes of all workers that are kept."""
        return {member.pid for _, crew in self._kept.values() for member in crew.members}

    def idle(self, trial: Trial) -> int:
        """Return how many kept workers do nothing in the trial; on a GPU each still holds what its engine keeps."""
        everybody = sum(len(crew.members) for _, crew in self._kept.values())
        return max(0, everybody - len(seating.seats(trial)))

    def seats(self, trial: Trial) -> list[Seat]:
        """Return a seat for each worker of the trial, with what the environment adds."""
        return [replace(seat, env={**self.env, **seat.env}) for seat in seating.seats(trial)]


def alike(trial: Trial) -> str:
    """Return what two trials share that one worker process may answer one after the other."""
    return trial.key(Role.ARTIFACT | Role.SHARING | Role.MODE, but=("shapes", "io"))
