"""Which search of a question goes on: the newest that the store holds of it, or another one, measured from anew.

Searches of one question are told apart by the replicates of their runs: the same model, load and arrivals, measured
again. One that was interrupted is continued before another begins.
"""

from __future__ import annotations

from dataclasses import replace

from edgescope.records import Result, Trial
from edgescope.search.capacity import Search
from edgescope.search.capacity_question import Question, Runs

#: Distance between the replicates of two searches: more than one needs.
APART = 1000


class _Unfinished(Exception):
    """The store does not hold the next run."""


class _Stored:
    """Runs that the store holds, and no other."""

    def __init__(self, cells: Runs) -> None:
        self.store, self._known = cells.store, cells.finished()

    def finished(self) -> dict[str, Result]:
        return self._known

    def run(self, trial: Trial) -> Result:
        raise _Unfinished


def going_on(asked: Question, cells: Runs, *, fresh: bool = False, exhaustive: bool = False) -> Question:
    """Return the question as its newest stored search asks it; with `fresh` as one more does, where that is whole."""
    stored, number, whole = _Stored(cells), 0, True
    while (found := _state(_numbered(asked, number + 1), stored, exhaustive)) is not None:
        number, whole = number + 1, found
    return _numbered(asked, number + (fresh and whole))


def _numbered(asked: Question, number: int) -> Question:
    return replace(asked, base=replace(asked.base, replicate=APART * number))


def _state(asked: Question, stored: _Stored, exhaustive: bool) -> bool | None:
    """Return whether the store holds all of a search, None where none of its own: any question begins alike."""
    search = Search(asked, stored)
    try:
        search.every() if exhaustive else search.run()
    except _Unfinished:
        return False if search.stored > 1 else None
    return True
