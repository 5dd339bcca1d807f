"""The Jetson Nano study's table as printed, and where its own arithmetic contradicts it.

The study divides seconds before by seconds after and prints the quotient twice. Both columns are recomputed from its
seconds; a printed value more than one per cent off is marked as a misprint, with the corrected value and the division.
Its FLOPS column is held against a count of the same network's multiply-accumulates: some rows count those, some twice
as many. Source: arXiv 2406.17749.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import fmean, geometric_mean

from edgescope.wings.studies.paper import paper

MISPRINT = 0.01
"""Share by which a printed quotient may differ from its own division: the printed values are rounded or cut."""
COUNTED = 0.15
"""Share within which a FLOPS value is taken for one, or two, per multiply-accumulate."""


@dataclass(frozen=True)
class Misprint:
    """One printed value that cannot be right."""

    column: str
    """ratio, speed-up or parameters."""
    printed: str
    correct: str
    why: str
    """The arithmetic, e.g. `0.6638 s / 0.1184 s = 5.606`."""

    def __str__(self) -> str:
        return f"{self.column} printed as {self.printed}, should be {self.correct}: {self.why}"


@dataclass(frozen=True)
class StudyRow:
    """One row as printed, and the network of the zoo that it means."""

    name: str
    ours: str
    before_s: float
    after_s: float
    ratio: str
    speedup: str
    params: int
    flops: int
    input: int | None = None
    """Number of input values of one sample; None if not known."""
    outputs: int | None = None
    counted_params: int | None = None
    counted_macs: int | None = None
    rebuilt: bool = False
    """Whether the study does not define this network: `ours` was then built to its printed size."""
    notes: tuple[str, ...] = ()

    @property
    def recomputed(self) -> float:
        """Return seconds before / seconds after, the speed-up that its own times give."""
        return self.before_s / self.after_s

    @property
    def misprints(self) -> tuple[Misprint, ...]:
        """Return the printed values that its own arithmetic, or a count of the network, contradicts."""
        found = [self._quotient(c, t) for c, t in (("ratio", self.ratio), ("speed-up", self.speedup))]
        return tuple(m for m in (*found, self._params()) if m)

    def _quotient(self, column: str, printed: str) -> Misprint | None:
        if abs(float(printed) / self.recomputed - 1) <= MISPRINT:
            return None
        why = f"{self.before_s:.4f} s / {self.after_s:.4f} s = {self.recomputed:.3f}"
        return Misprint(column, printed, f"{self.recomputed:.2f}", why)

    def _params(self) -> Misprint | None:
        if self.rebuilt or self.counted_params in (None, self.params):
            return None
        correct = f"{self.counted_params:,}"
        why = f"{self.ours} with 1000 classes has {correct}"
        return Misprint("parameters", f"{self.params:,}", correct, why)

    def flops_count(self, macs: int | None) -> str:
        """Return what the FLOPS column counts here, `MACs` or `2 x MACs`, or `unknown`; `macs` is our count."""
        per_mac = self.flops / macs if macs else math.nan
        kinds = {1: "MACs", 2: "2 x MACs"}
        return next((word for n, word in kinds.items() if abs(per_mac / n - 1) <= COUNTED), "unknown")


@dataclass(frozen=True)
class Study:
    """The whole table."""

    title: str
    source: str
    board: str
    mean_speedup_in_conclusion: float
    mean_speedup_in_abstract: str
    notes: tuple[str, ...]
    rows: tuple[StudyRow, ...]

    @property
    def arithmetic_mean(self) -> float:
        """Return the arithmetic mean of the recomputed speed-ups."""
        return fmean(r.recomputed for r in self.rows)

    @property
    def geometric_mean(self) -> float:
        """Return the geometric mean of the recomputed speed-ups: what a mean of ratios should be."""
        return geometric_mean(r.recomputed for r in self.rows)

    def row(self, model: str) -> StudyRow | None:
        """Return the row of a model of the zoo; a two-class variant has the row of its original."""
        name = model.removesuffix("_2class")
        return next((r for r in self.rows if r.ours == name), None)


@cache
def study() -> Study:
    """Return the study's table."""
    found = paper("jetson_nano")
    rows = tuple(StudyRow(**{**row, "notes": tuple(row.get("notes", ()))}) for row in found.page["row"])
    printed = found.page["printed"]
    facts = {**printed, "notes": tuple(printed["notes"])}
    return Study(found.title, found.source, found.boards, **facts, rows=rows)
