"""What is wanted of a variant: one objective to be best at, and constraints that it must keep.

    --objective latency --constraint "p99<=33ms" --constraint "top1>=0.98ref" --constraint "memory<=2GB"

A constraint is judged on the end of the interval that hurts: of `p99<=33ms` the upper bound of the p99, where there
is one. Only `accuracy` is judged on its value, because twenty labelled photographs leave an interval that nothing
would pass. `0.98ref` is relative to the fp32 reference: the labelled accuracy of both, or, where there are no labels,
the top-1 agreement with it. What was not measured does not keep a constraint.

What constraints are judged on: the figures of one variant by name, whatever table its row belongs to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Measured


@dataclass(frozen=True)
class Objective:
    """What to optimise: the metric paired per replicate, and which way is better."""

    metric: str
    column: str
    higher_is_better: bool
    words: str


OBJECTIVES: Mapping[str, Objective] = {
    "latency": Objective("latency_p50_s", "p50_s", False, "lowest median latency"),
    "throughput": Objective("throughput_sps", "throughput_sps", True, "highest throughput"),
    "energy": Objective("energy_per_sample_j", "energy_per_sample_j", False, "least energy per sample"),
    "watts": Objective("power_w", "power_w", False, "least mean power"),
}


def goal(name: str) -> Objective:
    """Return the objective called `name`; UsageError that lists them where there is none."""
    if name not in OBJECTIVES:
        raise UsageError(
            "E-VAR-3", f"no objective is called {name!r}", evidence=f"known: {', '.join(OBJECTIVES)}"
        )
    return OBJECTIVES[name]


@dataclass(frozen=True)
class Quantity:
    """One thing that can be bounded: the field, which side, and the units it is written in."""

    column: str
    at_most: bool
    units: Mapping[str, float]
    """Unit -> factor to SI; the first is the one it is printed in."""


TIME = {"ms": 1e-3, "s": 1.0, "us": 1e-6}
BYTES = {"MB": 1e6, "GB": 1e9, "kB": 1e3, "B": 1.0, "MiB": 2.0**20, "GiB": 2.0**30}
SHARE = {"": 1.0, "%": 0.01}
QUANTITIES: Mapping[str, Quantity] = {
    "p50": Quantity("p50_s", True, TIME),
    "p90": Quantity("p90_s", True, TIME),
    "p95": Quantity("p95_s", True, TIME),
    "p99": Quantity("p99_s", True, TIME),
    "p999": Quantity("p999_s", True, TIME),
    "throughput": Quantity("throughput_sps", False, {"": 1.0, "/s": 1.0}),
    "accuracy": Quantity("accuracy", False, {**SHARE, "ref": 1.0}),
    "top1": Quantity("accuracy", False, {**SHARE, "ref": 1.0}),
    "agreement": Quantity("agreement", False, SHARE),
    "memory": Quantity("peak_rss_bytes", True, BYTES),
    "gpu_memory": Quantity("gpu_memory_bytes", True, BYTES),
    "power": Quantity("power_w", True, {"W": 1.0, "mW": 1e-3}),
    "energy": Quantity("energy_per_sample_j", True, {"mJ": 1e-3, "J": 1.0, "uJ": 1e-6}),
}
#: Properties of the artifact: they do not vary from run to run.
STEADY = frozenset({"accuracy", "top1", "agreement"})
#: Other ways to write a quantity.
ALIASES = {"p99.9": "p999"}
WRITTEN = re.compile(
    r"\s*([a-z][a-z_]*[0-9.]*)\s*([<>]=?)\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)\s*"
)


@dataclass(frozen=True)
class Bound:
    """A bound as constraints and promises (slo.py) are written: `p99<=33ms`; `limit` is SI, `text` has no spaces."""

    name: str
    limit: float
    strict: bool
    """Whether the limit itself is already too much (`<`) or too little (`>`)."""
    unit: str
    text: str


def bound(
    text: str, known: Callable[[str], Quantity | str], refuse: Callable[[str, str], UsageError]
) -> Bound:
    """Read a bound; `known` tells a name's quantity, or why it has none, `refuse` makes the error of a reason."""
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise refuse(text, "it is not FIGURE<VALUE, FIGURE<=VALUE, FIGURE>VALUE or FIGURE>=VALUE")
    name, sense, number, unit = match.groups()
    found = known(name)
    if isinstance(found, str):
        raise refuse(text, found)
    if (sense[0] == "<") is not found.at_most:
        raise refuse(text, f"{name} is bounded by {'< or <=' if found.at_most else '> or >='}")
    if unit not in found.units:
        raise refuse(text, f"{name} is written in {', '.join(u or 'a plain number' for u in found.units)}")
    limit = float(number) * found.units[unit]
    if not math.isfinite(limit):
        raise refuse(text, "the limit is not finite")
    return Bound(name, limit, len(sense) == 1, unit, f"{name}{sense}{number}{unit}")


@dataclass(frozen=True)
class Constraint:
    """A bound on one quantity: `p99<=33ms`. `text` is how it was written, `limit` is SI."""

    quantity: str
    limit: float
    relative: bool = False
    """Whether the limit is a share of what the fp32 reference reaches."""
    text: str = ""
    strict: bool = False
    """Whether the limit itself breaks it."""

    def excess(self, of: Figures) -> float:
        """Return how many times the limit is exceeded: up to 1 keeps it, infinity where nothing was measured."""
        found = self._excess(of)
        return math.nextafter(1.0, 2.0) if self.strict and found == 1 else found

    def _excess(self, of: Figures) -> float:
        known, found, limit = self._figure(of)
        if isinstance(found, Absent):
            return math.inf
        value = _hurting(found, known)
        if known.at_most:
            return value / limit if limit > 0 else (math.inf if value > 0 else 1.0)
        return limit / value if value > 0 else math.inf if limit > 0 else 1.0

    def broken(self, of: Figures) -> str:
        """Return '' where the variant keeps this constraint, otherwise the figures that break it."""
        if self.excess(of) <= 1:
            return ""
        known, found, limit = self._figure(of)
        if isinstance(found, Absent):
            return f"{self.text} cannot be judged: {found.reason}"
        unit, factor = next(iter(known.units.items()))
        shown = f"{_hurting(found, known) / factor:.4g}{_spaced(unit)}"
        value = f"{found.value / factor:.4g}"
        bound = "" if f"{_hurting(found, known) / factor:.4g}" == value else f", the bound of {value}"
        against = f", fp32 reaches {limit / self.limit:.4g}" if limit != self.limit else ""
        return f"{self.text} broken: {shown}{_spaced(bound)}{_counted(found, known)}{against}"

    def kept(self, of: Figures) -> str:
        """Return the figures by which a variant keeps this constraint: `p99<=33ms: at most 31.2 ms, 29.8 measured`."""
        known, found, limit = self._figure(of)
        if isinstance(found, Absent):
            return f"{self.text}: {found.reason}"
        unit, factor = next(iter(known.units.items()))
        value, end = found.value / factor, _hurting(found, known) / factor
        against = f", fp32 reaches {limit / self.limit:.4g}" if limit != self.limit else ""
        if f"{end:.4g}" == f"{value:.4g}":
            return f"{self.text}: {value:.4g}{_spaced(unit)}{_counted(found, known)}{against}"
        word = "at most" if known.at_most else "at least"
        return f"{self.text}: {word} {end:.4g}{_spaced(unit)}, {value:.4g} measured{against}"

    def _figure(self, of: Figures) -> tuple[Quantity, Field, float]:
        """Return what is judged: the quantity, the field, and its limit in the field's unit."""
        known, limit = QUANTITIES[self.quantity], self.limit
        if self.relative:
            if isinstance(of.accuracy, Measured) and isinstance(of.reference_accuracy, Measured):
                return known, of.accuracy, limit * of.reference_accuracy.value
            known = QUANTITIES["agreement"]
        found: Field = getattr(of, known.column)
        return known, found, limit


def _spaced(unit: str) -> str:
    return f" {unit}" if unit.isalpha() else unit


def _counted(found: Measured, known: Quantity) -> str:
    return f" of {found.n}" if known.column in ("accuracy", "agreement") else ""


def _hurting(found: Measured, known: Quantity) -> float:
    """Return the end of the interval that hurts, the value where there is none (and for accuracy)."""
    if known.column == "accuracy":
        return found.value
    return judged_end(found, known.at_most)


def judged_end(found: Measured, at_most: bool) -> float:
    """Return the end of a figure's interval that hurts, or its value where it has none."""
    end = found.hi if at_most else found.lo
    return found.value if end is None else end


def parse(text: str) -> Constraint:
    """Read `p99<=33ms`, `accuracy>=0.98ref`, `memory<=2GB`; UsageError says what can be written."""
    found = bound(text, _known, _unreadable)
    name = ALIASES.get(found.name, found.name)
    return Constraint(name, found.limit, found.unit == "ref", found.text, found.strict)


def _known(name: str) -> Quantity | str:
    found = QUANTITIES.get(ALIASES.get(name, name))
    return found or f"{name!r} cannot be bounded; known: {', '.join(QUANTITIES)}"


def _unreadable(text: str, why: str) -> UsageError:
    return UsageError(
        "E-CONS-1", f"--constraint {text!r} cannot be read", evidence=why, fix='--constraint "p99<=33ms"'
    )


@dataclass(frozen=True)
class Wanted:
    """The objective and the constraints of one question."""

    objective: str = "latency"
    constraints: tuple[Constraint, ...] = ()

    @property
    def goal(self) -> Objective:
        """The objective itself."""
        return goal(self.objective)

    def broken(self, of: Figures) -> tuple[str, ...]:
        """Return the figures of every constraint that a variant breaks."""
        return tuple(text for text in (c.broken(of) for c in self.constraints) if text)

    def hopeless(self, of: Figures, margin: float) -> bool:
        """Whether a constraint is broken by more than the margin that one short run leaves."""
        allowed = {c: 1.0 if c.quantity in STEADY else 1 + margin for c in self.constraints}
        return any(c.excess(of) > most for c, most in allowed.items())

    def binding(self, of: Figures) -> tuple[float, str]:
        """Return (excess, text) of the constraint that is broken the most; (1, '') where there is none."""
        worst = max(((c.excess(of), c.text) for c in self.constraints), default=(1.0, ""))
        return worst if worst[0] > 1 else (1.0, "")


#: The lowest median latency, without constraints.
FASTEST = Wanted()


def wanted(objective: str, constraints: Sequence[str] = ()) -> Wanted:
    """Return the question as typed; UsageError where a part of it cannot be read."""
    goal(objective)
    return Wanted(objective, tuple(parse(text) for text in constraints))


# ruff: noqa: D102  (each is what its name says)


class Figures(Protocol):
    """The figures of one variant that constraints are judged on: a column each, in SI."""

    @property
    def p50_s(self) -> Field: ...
    @property
    def p90_s(self) -> Field: ...
    @property
    def p95_s(self) -> Field: ...
    @property
    def p99_s(self) -> Field: ...
    @property
    def p999_s(self) -> Field: ...
    @property
    def throughput_sps(self) -> Field: ...
    @property
    def accuracy(self) -> Field: ...
    @property
    def reference_accuracy(self) -> Field: ...
    @property
    def agreement(self) -> Field: ...
    @property
    def peak_rss_bytes(self) -> Field: ...
    @property
    def gpu_memory_bytes(self) -> Field: ...
    @property
    def power_w(self) -> Field: ...
    @property
    def energy_per_sample_j(self) -> Field: ...
