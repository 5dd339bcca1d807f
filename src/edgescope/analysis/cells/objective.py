"""Objectives and constraints: the metric to optimise, the bounds that a cell must keep, the Pareto front of two costs.

    --objective latency --constraint "p99<=33ms" --constraint "top1>=0.98ref" --constraint "memory<=2GB"

A constraint is judged on the worse end of the interval: `p99<=33ms` on the upper bound of the p99, if there is one.
Only measures of right answers (`accuracy`, `top1`, `map` ...) are judged on their value: twenty labelled photographs
leave an interval that nothing would pass. `0.98ref` is relative to the fp32 reference: the measure of both, or, where
there are no labels, the top-1 agreement with it. A metric that was not measured does not keep its constraint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from edgescope import metrics, registry
from edgescope.errors import UsageError, closest_name, flagged, known_names, near_names
from edgescope.metrics import METRICS, Metric
from edgescope.records import Absent, Field, Measured

OBJECTIVES: Mapping[str, Metric] = metrics.objectives()
#: SI unit of a metric -> the units a limit is written in, with their factors; the first is the one it is printed in.
UNITS: Mapping[str, Mapping[str, float]] = {
    "s": {"ms": 1e-3, "s": 1.0, "us": 1e-6},
    "bytes": {"MB": 1e6, "GB": 1e9, "kB": 1e3, "B": 1.0, "MiB": 2.0**20, "GiB": 2.0**30},
    "samples/s": {"": 1.0, "/s": 1.0, "fps": 1.0},
    "share": {"": 1.0, "%": 0.01},
    "W": {"W": 1.0, "mW": 1e-3},
    "J": {"mJ": 1e-3, "J": 1.0, "uJ": 1e-6},
}
WRITTEN = re.compile(
    r"\s*([a-z][a-z_]*[0-9.]*)\s*([<>]=?)\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)\s*"
)


def goal(name: str) -> Metric:
    """Return the metric of the objective `name`; the UsageError for an unknown name lists all objectives."""
    known = metrics.objectives()
    if name not in known:
        raise UsageError(
            "E-VAR-3",
            f"no objective is called {name!r}",
            evidence=known_names(known),
            fix=_bounded_instead(name) or flagged("--objective", near_names(name, known) or list(known)),
        )
    return known[name]


def _bounded_instead(name: str) -> str:
    """Return the constraint to write where a metric can be bounded but is no objective; '' for an unknown word."""
    metric = metrics.bounded().get(name)
    return f'--constraint "{_example(name, metric)}"' if metric else ""


def _example(name: str, metric: Metric) -> str:
    """Return a constraint that can be read: `p99<=33ms`, `top1>=0.98ref`."""
    sense = ">=" if metric.higher else "<="
    number = {"s": "33ms", "bytes": "2GB", "W": "10W", "J": "50mJ", "samples/s": "30", "share": "5%"}
    return f"{name}{sense}{'0.98ref' if metric.measure else number.get(metric.unit, '1')}"


def units(metric: Metric) -> Mapping[str, float]:
    """Return the units that a limit on a metric is written in, each with its factor to SI."""
    plain = UNITS.get(metric.unit, {"": 1.0})
    return {**plain, "ref": 1.0} if metric.measure else plain


class Compliance(str, Enum):
    """Whether a constraint, or all of a run's, is kept."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


@dataclass(frozen=True)
class Constraint:
    """A bound on one metric: `p99<=33ms`. `text` is how it was written, without spaces; `limit` is SI."""

    metric: Metric
    limit: float
    relative: bool = False
    """Whether the limit is a share of the fp32 reference's value."""
    text: str = ""
    strict: bool = False
    """Whether the limit itself breaks it."""

    @property
    def name(self) -> str:
        """The metric's name as it was written: `p99`, `memory`."""
        match = WRITTEN.fullmatch(self.text)
        return match[1] if match else self.metric.name

    @property
    def quantile(self) -> float | None:
        """The quantile of a latency constraint: 0.99 for p99."""
        return self.metric.quantile

    @property
    def at_most(self) -> bool:
        """Whether it is an upper limit."""
        return not self.metric.higher

    def holds(self, value: float) -> bool:
        """Return whether a value (SI) is within the limit."""
        return self._holds(value, self.limit)

    def _holds(self, value: float, limit: float) -> bool:
        inside = value < limit if self.at_most else value > limit
        return inside or (value == limit and not self.strict)

    def check(self, worst: float | None, best: float) -> Compliance:
        """Return whether the constraint is kept, given the figure's two ends; None if no bound is known yet."""
        if worst is not None and self.holds(worst):
            return Compliance.YES
        return Compliance.PERHAPS if self.holds(best) else Compliance.NO

    def excess(self, of: Mapping[str, Field]) -> float:
        """Return the figure as a multiple of the limit: up to 1 keeps it, infinity if nothing was measured."""
        known, found, limit = self._figure(of)
        if isinstance(found, Absent):
            return math.inf
        value = _hurting(found, known)
        times = _excess(value, limit, self.at_most)
        return min(times, 1.0) if self._holds(value, limit) else max(times, math.nextafter(1.0, 2.0))

    def judged(self, of: Mapping[str, Field]) -> bool:
        """Return whether there is a figure to judge the variant by."""
        return isinstance(self._figure(of)[1], Measured)

    def broken(self, of: Mapping[str, Field]) -> str:
        """Return '' if the variant keeps this constraint, otherwise the figures that break it."""
        if self.excess(of) <= 1:
            return ""
        known, found, _ = self._figure(of)
        if isinstance(found, Absent):
            return f"{self.text} cannot be judged: {found.reason}"
        unit, factor = next(iter(units(known).items()))
        end, value = (f"{x / factor:.4g}" for x in (_hurting(found, known), found.value))
        bound = "" if end == value else f", the bound of {value}"
        against = self._against(of)
        return f"{self.text} broken: {end}{_spaced(unit)}{bound}{_counted(found, known)}{against}"

    def kept(self, of: Mapping[str, Field]) -> str:
        """Return the figures by which a variant keeps this constraint: `p99<=33ms: at most 31.2 ms, 29.8 measured`."""
        known, found, _ = self._figure(of)
        if isinstance(found, Absent):
            return f"{self.text}: {found.reason}"
        unit, factor = next(iter(units(known).items()))
        end, value = (f"{x / factor:.4g}" for x in (_hurting(found, known), found.value))
        against = self._against(of)
        if end == value:
            return f"{self.text}: {value}{_spaced(unit)}{_counted(found, known)}{against}"
        word = "at most" if self.at_most else "at least"
        return f"{self.text}: {word} {end}{_spaced(unit)}, {value} measured{against}"

    def _against(self, of: Mapping[str, Field]) -> str:
        """Return what fp32 reaches, where the limit is a share of it."""
        reference = of.get(f"reference_{self.metric.name}") if self.relative else None
        judged = isinstance(of.get(self.metric.name), Measured)
        return f", fp32 reaches {reference.value:.4g}" if isinstance(reference, Measured) and judged else ""

    def _figure(self, of: Mapping[str, Field]) -> tuple[Metric, Field, float]:
        """Return the metric, its field, and the limit in the field's unit."""
        known, limit = self.metric, self.limit
        if self.relative:
            own, reference = of.get(known.name), of.get(f"reference_{known.name}")
            if isinstance(own, Measured) and isinstance(reference, Measured):
                return known, own, reference.value - (1 - limit) * abs(reference.value)
            if known.name not in ("accuracy", "top1"):
                return known, of.get(known.name, Absent("not measured")), limit
            known = METRICS["agreement"]
        return known, of.get(known.name, Absent("not measured")), limit


def _excess(value: float, limit: float, at_most: bool) -> float:
    if at_most:
        return value / limit if limit > 0 else (math.inf if value > 0 else 1.0)
    return limit / value if value > 0 else math.inf if limit > 0 else 1.0


def _spaced(unit: str) -> str:
    return f" {unit}" if unit.isalpha() else unit


def _counted(found: Measured, known: Metric) -> str:
    return f" of {found.n}" if known.artifact else ""


def _hurting(found: Measured, known: Metric) -> float:
    """Return the worse end of the interval, or the value if there is no interval (and for a measure)."""
    if known.measure:
        return found.value
    return judged_end(found, not known.higher)


def judged_end(found: Measured, at_most: bool) -> float:
    """Return the worse end of a figure's interval, or its value if it has none."""
    end = found.hi if at_most else found.lo
    return found.value if end is None else end


def _of_a_cell(name: str) -> Metric | str:
    known = metrics.bounded()
    near = near_names(name, known)
    return known.get(name) or f"{name!r} cannot be bounded; {known_names(known, near)}"


def parse(text: str, known: Callable[[str], Metric | str] = _of_a_cell) -> Constraint:
    """Return the Constraint in `p99<=33ms`, `accuracy>=0.98ref`, `memory<=2GB`; UsageError lists what can be written.

    `known` returns the metric that a name bounds, or the reason why it bounds none.
    """
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise unreadable(text, "it is not FIGURE<VALUE, FIGURE<=VALUE, FIGURE>VALUE or FIGURE>=VALUE")
    name, sense, number, unit = match.groups()
    found = known(name)
    if isinstance(found, str):
        raise unreadable(text, found, _nearest(name, sense, f"{number}{unit}"))
    factors = units(found)
    right = f"{'>' if found.higher else '<'}{sense[1:]}"
    first = f"{name}{right}{number}{unit if unit in factors else next(iter(factors))}"
    if sense != right:
        raise unreadable(text, f"{name} is bounded by {'> or >=' if found.higher else '< or <='}", first)
    if unit not in factors:
        named = ", ".join(u or "a plain number" for u in factors)
        raise unreadable(text, f"{name} is written in {named}", first)
    limit = float(number) * factors[unit]
    if not math.isfinite(limit):
        raise unreadable(text, "the limit is not finite")
    return Constraint(found, limit, unit == "ref", f"{name}{sense}{number}{unit}", len(sense) == 1)


def least_share(constraints: Sequence[Constraint], given: float | None) -> float | None:
    """Return the share of fp32's value that the gate must ask for: `given`, else what constraints on measures say."""
    shares = [c.limit for c in constraints if c.relative and c.limit <= 1]
    return given if given is not None else min(shares, default=None)


def _nearest(name: str, sense: str, rest: str) -> str:
    """Return the constraint with the nearest word that can be bounded, or '' if none is near."""
    close = closest_name(name, metrics.bounded())
    return f"{close}{sense}{rest}" if close and close != name else ""


def unreadable(text: str, why: str, instead: str = "") -> UsageError:
    """Return the UsageError for a constraint that cannot be read, with what to write `instead`."""
    fix = f'--constraint "{instead or "p99<=33ms"}"'
    return UsageError("E-CONS-1", f"--constraint {text!r} cannot be read", evidence=why, fix=fix)


@dataclass(frozen=True)
class Wanted:
    """The objective and the constraints of one question."""

    objective: str = "latency"
    constraints: tuple[Constraint, ...] = ()

    @property
    def goal(self) -> Metric:
        """The metric to be best at."""
        return goal(self.objective)

    def alone(self, device: str) -> bool:
        """Return whether a figure that is asked for comes from a meter that could not tell two processes apart."""
        figures = [self.goal, *(c.metric for c in self.constraints)]
        shared = (m.unit == "bytes" and not registry.place(device).is_host for m in figures if m.of)
        return any(shared) or any(metrics.scoped(m.of[0]) for m in figures if m.of)

    def broken(self, of: Mapping[str, Field]) -> tuple[str, ...]:
        """Return the figures of every constraint that a variant breaks."""
        return tuple(text for text in (c.broken(of) for c in self.constraints) if text)

    def hopeless(self, of: Mapping[str, Field], margin: float) -> bool:
        """Whether a constraint is broken by more than `margin`, so that a longer run cannot help.

        A figure that is not there yet, such as the p99 of a short run, says nothing.
        """
        known = [c for c in self.constraints if c.judged(of)]
        allowed = {c: 1.0 if c.metric.artifact else 1 + margin for c in known}
        return any(c.excess(of) > most for c, most in allowed.items())

    def binding(self, of: Mapping[str, Field]) -> tuple[float, str]:
        """Return (excess, text) of the constraint that is broken the most, or (1, '') if none is broken."""
        worst = max(((c.excess(of), c.text) for c in self.constraints), default=(1.0, ""))
        return worst if worst[0] > 1 else (1.0, "")


#: The lowest median latency, without constraints.
FASTEST = Wanted()


def wanted(objective: str, constraints: Sequence[str] = ()) -> Wanted:
    """Return the objective and constraints as typed; UsageError if a part cannot be read."""
    goal(objective)
    return Wanted(objective, tuple(parse(text) for text in constraints))


Point = TypeVar("Point")


def pareto(
    rows: Iterable[Point], x: Callable[[Point], float | None], y: Callable[[Point], float | None]
) -> list[Point]:
    """Return the rows on the front of two costs (less is better), by rising x.

    A row without one of the costs is left out. Negate a key if more is better. Rows equal on both costs all stay.
    """
    points = [(a, b, row) for row in rows if (a := x(row)) is not None and (b := y(row)) is not None]
    front: list[tuple[float, float, Point]] = []
    for point in sorted(points, key=lambda p: p[:2]):
        if not front or point[1] < front[-1][1] or point[:2] == front[-1][:2]:
            front.append(point)
    return [row for *_, row in front]


def nondominated(rows: Iterable[Point], costs: Callable[[Point], Sequence[float] | None]) -> list[Point]:
    """Return, in order, the rows that no other dominates (as good on every cost and better on one).

    A row without costs is left out; equals all stay.
    """
    points = [(found, row) for row in rows if (found := costs(row)) is not None]

    def beaten(mine: Sequence[float]) -> bool:
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and tuple(other) != tuple(mine)
            for other, _ in points
        )

    return [row for found, row in points if not beaten(found)]
