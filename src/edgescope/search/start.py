"""What a search knew when it began, kept in the store: an interrupted one goes on with the budget it has left.

    ROOT/<machine id>/search-<question>.json       {"known": [variants that the store held]}
    ROOT/<machine id>/again-<question>.json        {"since": when it was asked without the cache, "whole": has it ended}

Without them a resumed search could not tell what it measured from what was there before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from edgescope import cache
from edgescope.analysis.cells.objective import Wanted
from edgescope.records import Json, digest
from edgescope.runner.run import Cells
from edgescope.runner.setup import Setup
from edgescope.store.results import Store


def known(cells: Cells, grid: Sequence[str], wanted: Wanted, seed: int, held: Collection[str]) -> set[str]:
    """Return the variants of `grid` that were stored when this search began: `held` where it begins now.

    The same grid, question, seed, machine and packages are the same search, whatever its budget: a larger one goes on.
    """
    asked = {
        "grid": sorted(grid),
        "objective": wanted.objective,
        "constraints": sorted(c.text for c in wanted.constraints),
        "seed": seed,
        "packages": cells.where.state.get("packages"),
    }
    path = cells.store.root / cells.where.id / f"search-{digest(asked)}.json"
    page = cache.read_json(path)
    found = page.get("known") if isinstance(page, dict) else None
    if not isinstance(found, list):
        found = sorted(held)
        cache.write_json(path, {"known": found})
    return set(found)


@contextmanager
def counting(setup: Setup, store: Store, question: Json, *, cached: bool) -> Iterator[Cells]:
    """Yield cells for which stored results count, unless the question was once asked again without the cache.

    From then on older results do not count for it. Asking again before that search has ended goes on with it.
    """
    cells = setup.cells(store)
    path = store.root / cells.where.id / f"again-{digest(question)}.json"
    page = cache.read_json(path)
    page = page if isinstance(page, dict) else {}
    if not cached and page.get("whole", True):
        page = {"since": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "whole": False}
        cache.write_json(path, page)
    cells.since = str(page.get("since", ""))
    yield cells
    if not page.get("whole", True):
        cache.write_json(path, page | {"whole": True})
