"""What a store already tried: results that differ from one in a single setting, and what that did to the throughput.

A setting that was changed alone is an experiment. It says more about a cause than any counter does, so a diagnosis is
confirmed or refuted by it where the store holds one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.replicates import MEASURED
from edgescope.records import Absent, Field, Json, Measured, Result, Role, Trial
from edgescope.records.trial import ROLES, TABLES

#: Roles whose fields are no settings of the work: how long it was measured, how it is judged, which repeat it is.
ASIDE = Role.EFFORT | Role.TRACING | Role.JUDGING | Role.REPEAT


FASTER = 1.1
"""A change that gains at least this much counts as one."""


@dataclass(frozen=True)
class Intervention:
    """One setting that was changed, and the throughput afterwards over that before."""

    setting: str
    """A Trial's field, `options.threads`, `workload_options.decode` ..."""
    before: Json
    after: Json
    ratio: Measured
    """Samples per second, after over before."""
    result: Result
    """One of the results with the other setting."""

    @property
    def text(self) -> str:
        """Return `batch 1 -> 8: x 3.1`."""
        name = self.setting.rpartition(".")[2]
        return f"{name} {_word(self.before)} -> {_word(self.after)}: throughput x {self.ratio.value:.2f}"

    @property
    def source(self) -> str:
        """Return the result that it was read from."""
        return f"result {self.result.id.rpartition('-')[2]} of the store"


def _word(value: Json) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def settings(trial: Trial) -> dict[str, Json]:
    """Return every setting of the work by name, the options of each table by `table.option`."""
    plain = trial.to_json()
    flat: dict[str, Json] = {}
    for name in (name for name, role in ROLES.items() if role not in ASIDE):
        value = plain[name]
        flat |= {f"{name}.{key}": v for key, v in value.items()} if name in TABLES else {name: value}
    return flat


def differing(a: Trial, b: Trial) -> dict[str, tuple[Json, Json]]:
    """Return setting -> (its value in `a`, in `b`) where they differ; an option that is not given is None."""
    mine, theirs = settings(a), settings(b)
    names = [*mine, *(name for name in theirs if name not in mine)]
    return {n: (mine.get(n), theirs.get(n)) for n in names if mine.get(n) != theirs.get(n)}


def interventions(result: Result, others: Iterable[Result]) -> tuple[Intervention, ...]:
    """Return every single-setting change that these results hold, replicates of a cell taken together."""
    own: list[float] = []
    cells: dict[str, list[Result]] = {}
    for other in others:
        if other.machine.id != result.machine.id or other.status not in MEASURED:
            continue
        if other.trial.cell == result.trial.cell or not differing(result.trial, other.trial):
            own += _rates([other])
        elif len(differing(result.trial, other.trial)) == 1:
            cells.setdefault(other.trial.cell, []).append(other)
    base = own or _rates([result])
    return tuple(made for cell in cells.values() if base and (made := _made(result, base, cell)) is not None)


def _made(result: Result, base: Sequence[float], cell: Sequence[Result]) -> Intervention | None:
    rates = _rates(cell)
    if not rates:
        return None
    (setting, (before, after)), *_ = differing(result.trial, cell[0].trial).items()
    ratio = math.exp(_mean_log(rates) - _mean_log(base))
    return Intervention(setting, before, after, Measured(ratio, "ratio", n=len(rates)), cell[0])


def _rates(results: Iterable[Result]) -> list[float]:
    found = [r.metrics.get("throughput_sps") for r in results]
    return [f.value for f in found if isinstance(f, Measured) and f.value > 0]


def _mean_log(rates: Sequence[float]) -> float:
    return math.fsum(map(math.log, rates)) / len(rates)


def unit_seconds(result: Result) -> Field:
    """Return the seconds between two finished units of the whole trial: batch / throughput."""
    rate = result.metrics.get("throughput_sps")
    if not isinstance(rate, Measured) or rate.value <= 0:
        return rate if isinstance(rate, Absent) else Absent("no throughput was measured")
    return Measured(result.trial.batch / rate.value, "s", n=rate.n)


@dataclass(frozen=True)
class CostOfBatch:
    """Seconds of a unit as a + b x batch, from cells that differ in the batch alone."""

    fixed_s: float
    each_s: float
    batches: tuple[int, ...]

    def seconds(self, batch: int) -> float:
        """Return the predicted seconds of a unit of this batch."""
        return self.fixed_s + self.each_s * batch


def cost_of_batch(result: Result, found: Iterable[Intervention]) -> CostOfBatch | None:
    """Return the fit through the smallest and the largest batch, or None if one batch was measured.

    Two points, not all of them: a network that no longer fits a cache bends the line in between.
    """
    points: Mapping[int, float] = {
        r.trial.batch: s.value
        for r in (result, *(i.result for i in found if i.setting == "batch"))
        if isinstance(s := unit_seconds(r), Measured)
    }
    if len(points) < 2 or result.trial.batch not in points:
        return None
    own = result.trial.batch
    far = max(points) if own < max(points) else min(points)
    each = max(0.0, (points[far] - points[own]) / (far - own))
    return CostOfBatch(max(0.0, points[own] - each * own), each, tuple(sorted(points)))
