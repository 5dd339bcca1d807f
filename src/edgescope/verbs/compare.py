"""Compare two variants: `edgescope.compare("3f2a", "91bc")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from edgescope.analysis.cells import compare as cells
from edgescope.analysis.cells import ids
from edgescope.analysis.cells.compare import Comparison
from edgescope.analysis.cells.devices import SIDES, Terms, same_work
from edgescope.errors import UsageError
from edgescope.records import Result
from edgescope.runner.setup import Stored, Tell, silent, store_of
from edgescope.runner.setup import named as of_name

Named = str | Result | Sequence[Result]
"""The name of a result or a cell (`edgescope list`), a result, or the replicates of one cell."""


def compare(
    baseline: Named,
    candidate: Named,
    *,
    store: Stored = None,
    other_store: Stored = None,
    machine: str = "",
    force: bool = False,
    prices: Mapping[str, float] = MappingProxyType({}),
    power_budget: float | None = None,
    tell: Tell = silent,
) -> Comparison:
    """Return the settings that differ, the ratios with their intervals, and a judgement of the candidate.

    The name of a cell stands for all its replicates, on this machine if it has any (or on `machine`); `other_store`
    holds the candidate if `store` does not. `force`
    shows numbers side by side even if they are not comparable. Two machines are compared for their energy; `prices`
    (`baseline`, `candidate` or a machine's id -> price) and `power_budget` (watts) say what else they are compared for.
    """
    there = store if other_store is None else other_store
    named = (named_results(baseline, store, machine, tell), named_results(candidate, there, machine, tell))
    base, other = ({(r.id, r.machine.id) for r in side} for side in named)
    if shared := base & other:
        raise UsageError(
            "E-CMP-5",
            "both sides hold the same result",
            evidence=", ".join(sorted(name for name, _ in shared)),
            effect="Nothing was compared",
            fix="name two different cells (edgescope list)",
        )
    sides = dict(zip(SIDES, named, strict=True))
    chosen = {}
    if power_budget is not None:
        stores = zip(sides.items(), (store, there), strict=True)
        chosen = {s: same_work(g[0], list(store_of(of).results())) for (s, g), of in stores if g}
    terms = Terms(dict(prices), power_budget)
    return cells.compare(*sides.values(), force=force, terms=terms, cells=chosen)


def named_results(named: Named, store: Stored, machine: str = "", tell: Tell = silent) -> list[Result]:
    """Return the results that `named` stands for, with their raw rows."""
    if isinstance(named, str):
        place = store_of(store)
        return place.fulls(of_name(place, named, ids.matching, machine, tell))
    return [named] if isinstance(named, Result) else list(named)
