"""Compare two variants: `edgescope.compare("3f2a", "91bc")`."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.cells import compare as cells
from edgescope.analysis.cells import ids
from edgescope.analysis.cells.compare import Comparison
from edgescope.records import Result
from edgescope.runner.setup import Stored, store_of

Named = str | Result | Sequence[Result]
"""The name of a result or a cell (`edgescope list`), a result, or the replicates of one cell."""


def compare(
    baseline: Named,
    candidate: Named,
    *,
    store: Stored = None,
    other_store: Stored = None,
    force: bool = False,
) -> Comparison:
    """Return the settings that differ, the ratios with their intervals, and a judgement of the candidate.

    The name of a cell stands for all its replicates; `other_store` holds the candidate if `store` does not. `force`
    shows numbers side by side even if they are not comparable.
    """
    there = store if other_store is None else other_store
    return cells.compare(named_results(baseline, store), named_results(candidate, there), force=force)


def named_results(named: Named, store: Stored) -> list[Result]:
    """Return the results that `named` stands for, with their raw rows."""
    if isinstance(named, str):
        place = store_of(store)
        return place.fulls(ids.matching(place.results(), named))
    return [named] if isinstance(named, Result) else list(named)
