"""What a search knew when it began, kept in the store: an interrupted one goes on with the budget it has left.

    ROOT/<machine id>/search-<question>.json       {"known": [variants that the store held]}

Without it a resumed search could not tell the cells that it measured from those that were there before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgescope import cache
from edgescope.analysis.cells.objective import Wanted
from edgescope.records import digest
from edgescope.runner.run import Cells


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
