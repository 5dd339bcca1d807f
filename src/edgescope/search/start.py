"""What a search knew when it began, kept in the store: an interrupted search goes on with the rest of its budget.

    ROOT/<machine id>/search-<question>.json       {"known": [variants in the store]}
    ROOT/<machine id>/budget-<question>.json       {"seconds": how long the sessions of an optimisation took}
    ROOT/<machine id>/again-<question>.json        {"since": start of the run without cache, "whole": did it end}

Without these files a resumed search could not distinguish its own results from older ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from edgescope import cache
from edgescope.analysis.cells.objective import Wanted
from edgescope.records import Json, digest
from edgescope.runner.run import ExperimentRunner


def known(
    cells: ExperimentRunner, grid: Sequence[str], wanted: Wanted, seed: int, held: Collection[str]
) -> set[str]:
    """Return the variants of `grid` that were stored when this search began: `held` if it begins now.

    The same grid, question, seed, machine and packages make the same search whatever its budget, so a run with a larger
    budget continues it.
    """
    question = {
        "grid": sorted(grid),
        "objective": wanted.objective,
        "constraints": sorted(c.text for c in wanted.constraints),
        "seed": seed,
        "packages": cells.where.state.get("packages"),
    }
    path = cells.store.root / cells.where.id / f"search-{digest(question)}.json"
    page = cache.read_json(path)
    found = page.get("known") if isinstance(page, dict) else None
    if not isinstance(found, list):
        found = sorted(held)
        cache.write_json(path, {"known": found})
    return set(found)


class Spent:
    """Seconds that earlier sessions of one optimisation took, kept beside the results: its budget is that of all."""

    def __init__(self, cells: ExperimentRunner, question: Json, *, anew: bool) -> None:
        self.path = cells.store.root / cells.where.id / f"budget-{digest(question)}.json"
        page = None if anew else cache.read_json(self.path)
        found = page.get("seconds") if isinstance(page, dict) else None
        self.seconds = float(found) if isinstance(found, int | float) else 0.0

    def keep(self, seconds: float) -> None:
        """Note how long this session has taken so far."""
        cache.write_json(self.path, {"seconds": self.seconds + seconds})


@contextmanager
def counting(cells: ExperimentRunner, question: Json, *, cached: bool) -> Iterator[ExperimentRunner]:
    """Yield the cells; they then use stored results, except those older than the last search without the cache.

    `cached=False` begins such a search. One that was interrupted is continued, with or without the cache.
    """
    path = cells.store.root / cells.where.id / f"again-{digest(question)}.json"
    page = cache.read_json(path)
    page = page if isinstance(page, dict) else {}
    if not cached and page.get("whole", True):
        page = {"since": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "whole": False}
        cache.write_json(path, page)
    cells.since = str(page.get("since", ""))
    yield cells
    if not page.get("whole", True):
        cache.write_json(path, page | {"whole": True})
