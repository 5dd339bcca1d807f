"""Compare two machines that do the same work: per second, joule, watt and unit of price, and within a power budget.

Two machines are never judged faster or slower: they were not measured together, and no pair cancels a machine's mood.
What is compared is what a buyer asks: how much work for the energy, for the money, and for the watts that there are.
Power and joules are compared only if both meters cover the same (the scope). A price is what the user says it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgescope.analysis.cells.replicates import MEASURED, across, of_fields, percentiles
from edgescope.analysis.run.energy import scopes
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Measured, Result, Role

SIDES = ("baseline", "candidate")
NO_PRICE = Absent("no price is given: --price baseline=PRICE --price candidate=PRICE")
NO_BUDGET = Absent("no power budget is given: --power-budget WATTS")


@dataclass(frozen=True)
class Terms:
    """What the machines cost, and the watts that one may draw."""

    prices: Mapping[str, float] = field(default_factory=dict)
    """`baseline`, `candidate`, or the beginning of a machine's id -> price, in one currency."""
    budget_w: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a price or a budget that cannot be one."""
        wrong = [f"--price {n}={p:g}" for n, p in self.prices.items() if not 0 < p < math.inf]
        budget = self.budget_w
        wrong += [f"--power-budget {budget:g}"] if budget is not None and not 0 < budget < math.inf else []
        if wrong:
            raise UsageError("E-CMP-2", f"{wrong[0]} must be positive", effect="Nothing was compared")

    def price(self, side: str, group: Sequence[Result]) -> float | None:
        """Return the price of one side's machine, or None if none is given."""
        machine = group[0].machine.id
        return next((p for n, p in self.prices.items() if n == side or machine.startswith(n)), None)


NO_TERMS = Terms()


@dataclass(frozen=True)
class DeviceRow:
    """One figure of both machines, and candidate / baseline."""

    name: str
    unit: str
    higher: bool
    """Whether more is better."""
    baseline: Field
    candidate: Field
    ratio: Field


def device_rows(
    baseline: Sequence[Result],
    candidate: Sequence[Result],
    terms: Terms,
    cells: Mapping[str, Sequence[Result]],
) -> tuple[DeviceRow, ...]:
    """Return the figures of both machines; `cells` holds, by side, what else its store has of that machine's work."""
    groups = dict(zip(SIDES, (baseline, candidate), strict=True))
    named = set(terms.prices) - {n for s, g in groups.items() for n in terms.prices if _names(n, s, g)}
    if named:
        raise UsageError(
            "E-CMP-3",
            f"--price {sorted(named)[0]}=... names neither side",
            evidence=f"baseline: machine {baseline[0].machine.id}; candidate: machine {candidate[0].machine.id}",
            fix="--price baseline=PRICE --price candidate=PRICE",
        )
    metered = meters_differ(baseline, candidate)
    sides = {
        side: _figures(side, group, terms, cells.get(side, ()), metered) for side, group in groups.items()
    }
    out = []
    for name, (unit, higher, old) in sides["baseline"].items():
        new = sides["candidate"][name][2]
        out.append(DeviceRow(name, unit, higher, old, new, of_fields(new, old)))
    return tuple(r for r in out if not (r.baseline == r.candidate and r.baseline in (NO_PRICE, NO_BUDGET)))


def _names(name: str, side: str, group: Sequence[Result]) -> bool:
    return name == side or group[0].machine.id.startswith(name)


def meters_differ(baseline: Sequence[Result], candidate: Sequence[Result]) -> Absent | None:
    """Return why watts and joules of two sides are not compared, or None if their meters cover the same."""
    old, new = scopes(baseline), scopes(candidate)
    if old == new or not (old and new):
        return None
    return Absent(
        f"the meters cover different things: {', '.join(sorted(old))} against {', '.join(sorted(new))}"
    )


def _figures(
    side: str, group: Sequence[Result], terms: Terms, cells: Sequence[Result], metered: Absent | None
) -> dict[str, tuple[str, bool, Field]]:
    """Return name -> (unit, whether more is better, figure) of one side."""
    speed = across(group, "throughput_sps")
    watts = metered or across(group, "power_w")
    joules = metered or across(group, "energy_per_sample_j")
    price = terms.price(side, group)
    paid: Field = NO_PRICE if price is None else Measured(price, "price")
    return {
        "throughput_sps": ("samples/s", True, speed),
        "energy_per_sample_j": ("J", False, joules),
        "samples_per_s_per_w": ("samples/s/W", True, _over(speed, watts, "samples/s/W")),
        "samples_per_s_per_price": ("samples/s/price", True, _over(speed, paid, "samples/s/price")),
        "throughput_within_budget_sps": (
            "samples/s",
            True,
            metered or within(cells or group, terms.budget_w),
        ),
        "latency_p50_s": ("s", False, percentiles(list(group))["p50_s"]),
        "power_w": ("W", False, watts),
    }


def _over(top: Field, bottom: Field, unit: str) -> Field:
    """Return the quotient of two figures, with the ends of both; samples a joule are samples a second for each watt."""
    exact = isinstance(bottom, Measured) and bottom.lo is None and bottom.unit == "price"
    if exact and isinstance(top, Measured) and isinstance(bottom, Measured):
        lo, hi = (None if end is None else end / bottom.value for end in (top.lo, top.hi))
        return Measured(top.value / bottom.value, unit, lo, hi, top.n)
    found = of_fields(top, bottom)
    return Measured(found.value, unit, found.lo, found.hi, found.n) if isinstance(found, Measured) else found


def within(results: Sequence[Result], budget_w: float | None) -> Field:
    """Return the highest throughput of a measured cell whose mean power, at its upper end, is within the budget."""
    if budget_w is None:
        return NO_BUDGET
    cells: dict[str, list[Result]] = {}
    for result in results:
        if result.status in MEASURED:
            cells.setdefault(result.trial.cell, []).append(result)
    found = [(across(g, "power_w"), across(g, "throughput_sps")) for g in cells.values()]
    able = [
        s
        for w, s in found
        if isinstance(w, Measured)
        and isinstance(s, Measured)
        and (w.value if w.hi is None else w.hi) <= budget_w
    ]
    metered = [w.value for w, _ in found if isinstance(w, Measured)]
    if not metered:
        return Absent("unsupported: power was not measured")
    if not able:
        return Absent(f"no measured cell draws at most {budget_w:g} W; the least draws {min(metered):.3g} W")
    return max(able, key=lambda s: s.value)


def same_work(of: Result, stored: Sequence[Result]) -> list[Result]:
    """Return the stored results of the same machine that do the same work: model and workload, in any setting."""

    def work(result: Result) -> tuple[str, ...]:
        t = result.trial
        return (t.model, t.workload, t.key(Role.LOAD), t.colocated, t.io, result.machine.id)

    return [r for r in stored if work(r) == work(of)]
