"""Two variants side by side: `edgescope.compare("3f2a", "91bc")`."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.cells import compare as cells
from edgescope.analysis.cells import ids
from edgescope.analysis.cells.compare import Comparison
from edgescope.records import Result
from edgescope.runner.setup import Stored, store_of

Named = str | Result | Sequence[Result]
"""A result or a cell by its name (`edgescope list`), a result, or the replicates of one cell."""


def compare(
    baseline: Named,
    candidate: Named,
    *,
    store: Stored = None,
    other_store: Stored = None,
    force: bool = False,
) -> Comparison:
    """Return what was set differently, the ratios with their intervals, and a judgement of the candidate.

    A name of a cell means all of its replicates; `other_store` is where the candidate is, if elsewhere. `force` shows
    numbers that are not comparable side by side.
    """
    there = store if other_store is None else other_store
    return cells.compare(results_of(baseline, store), results_of(candidate, there), force=force)


def results_of(named: Named, store: Stored) -> list[Result]:
    """Return the results that are named, with their raw rows."""
    if isinstance(named, str):
        place = store_of(store)
        return place.fulls(ids.matching(place.results(), named))
    return [named] if isinstance(named, Result) else list(named)
