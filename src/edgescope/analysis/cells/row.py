"""The row that every table of cells is made of: a trial, its metrics by name, and whether it may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from edgescope import metrics as known
from edgescope.analysis.cells.percentiles import percentiles
from edgescope.analysis.cells.replicates import across
from edgescope.analysis.energy import scopes
from edgescope.analysis.run.usage import first
from edgescope.metrics import Metric
from edgescope.records import Absent, Field, Json, Measured, Result, Status, Trial, Verdict
from edgescope.records.answers import plain
from edgescope.records.codec import to_plain

NOT_VERIFIED, NOT_MEASURED = Absent("not verified"), Absent("not measured")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell: its figures, whether it may be used, and its replicates."""

    trial: Trial
    status: Status
    verdict: Verdict
    metrics: Mapping[str, Field]
    """Name in metrics.toml -> figure.

    `agreement` is for a trained classifier; `gate` holds the sentence of the accuracy check in any case. `speedup` is
    the baseline's median
    latency / this one's over pairs of replicates (offline: throughputs), absent if they do not resolve it."""
    scope: str = ""
    """The scope of the watts and joules; '' if no meter is known."""
    gate: str = ""
    rejected: str = ""
    """Why this cell can never be the best; '' if it can."""
    broken: tuple[str, ...] = ()
    """The constraints it breaks, with the figures: it is rejected for these alone."""
    pairs: str = ""
    """How many pairs the speed-up comes from: `6 pairs in turns`, or of runs one after another `5 of 5 pairs`."""
    turns: tuple[tuple[Result, Result], ...] = field(default=(), repr=False)
    """The pairs (its own Result, the baseline's) that took turns and that the speed-up comes from."""
    notes: tuple[str, ...] = ()
    """Warnings about the figures: pairs left out, unstable replicates, medians that the pairs contradict."""
    replicates: Mapping[int, Result] = field(default_factory=dict, repr=False)
    apart: str = ""
    """What tells this row from others of the same label (`4 s`); '' if the label stands once."""

    def __getitem__(self, name: str) -> Field:
        """Return one figure, or Absent if this cell does not have the metric."""
        return self.metrics.get(name, NOT_MEASURED)

    def measured(self, name: str) -> Measured:
        """Return one figure that must exist; KeyError with the reason if it does not."""
        found = self[name]
        if isinstance(found, Absent):
            raise KeyError(f"{name}: {found.reason}")
        return found

    @cached_property
    def cell(self) -> str:
        """The cell's name."""
        return self.trial.cell

    @cached_property
    def label(self) -> str:
        """The variant's name, of the precision that ran where it was left to the file, and what tells it apart."""
        told = (r.label for r in self.replicates.values() if r.effective is not None)
        return next(told, self.trial.label) + (f" ({self.apart})" if self.apart else "")

    @property
    def name(self) -> str:
        """Model and variant."""
        return f"{self.trial.model.partition('#')[0]} {self.label}"

    @property
    def failed(self) -> bool:
        """Whether it did not run, or gave wrong outputs: no constraint could be loosened to admit it."""
        return bool(self.rejected) and not self.broken

    def having(self, **fields: Field) -> Row:
        """Return the row with these figures replaced."""
        return replace(self, metrics={**self.metrics, **fields})

    def to_json(self) -> dict[str, Json]:
        """Return the row as plain JSON values: every metric under its own name, and the trial."""
        plain: dict[str, Json] = to_plain(
            {
                "cell": self.cell,
                "label": self.label,
                "status": self.status,
                "verdict": self.verdict,
                **self.metrics,
                "scope": self.scope,
                "gate": self.gate,
                "rejected": self.rejected,
                "broken": self.broken,
                "pairs": self.pairs,
                "notes": self.notes,
            }
        )
        return plain | {"trial": self.trial.to_json()}


def figures(results: Sequence[Result], workload: str, scope: str) -> dict[str, Field]:
    """Return the metrics of one cell's replicates; the metrics of the accuracy check come from the first replicate."""
    timed = percentiles(results)
    checked = results[0].verification if results else None
    told = checked.fields if checked else {}
    out: dict[str, Field] = {name: field for name, field in told.items() if name.startswith("reference_")}
    for metric in known.METRICS.values():
        if not ((metric.unit and metric.of) or metric.quantile) or not metric.belongs(workload):
            continue
        if metric.artifact:
            out[metric.name] = told.get(next(iter(metric.of)), NOT_VERIFIED)
            continue
        if metric.quantile is not None:
            out[metric.name] = timed[metric.name]
            continue
        usual = (metric.shown or metric.bound) and not metric.optional
        if usual or any(name in r.metrics for r in results for name in metric.of):
            out[metric.name] = joined(results, metric, scope)
    return {"speedup": NOT_MEASURED, **out}


def joined(results: Sequence[Result], metric: Metric, scope: str) -> Field:
    """Return one figure over all replicates: the maximum of bytes and of worst cases, else the mean with its spread."""
    if metric.unit == "bytes" or metric.largest:
        fields = [first(r, metric.of) for r in results]
        peaks = [f.value for f in fields if isinstance(f, Measured)]
        if not peaks:
            return next(iter(fields), NOT_MEASURED)
        return Measured(max(peaks), metric.unit, n=len(peaks))
    found = across(results, metric.of[0])
    return scopes.within(found, results, scope) if metric.scope else found


def row_line(row: Row) -> str:
    """Return a cell in one line: its name, p50, and why it was rejected."""
    timed = plain(row["p50"])
    figure = "" if timed is None else f"  p50 {timed * 1e3:.4g} ms"
    return f"{row.label}{figure}{f'  ({row.rejected})' if row.rejected else ''}"


def row_of(row: Row) -> dict[str, Json]:
    """Return a cell as a row of a data frame: model, label, status, and the value of every metric by its name."""
    about = {"model": row.trial.model.partition("#")[0], "label": row.label, "status": row.status.value}
    figures = {name: plain(field) for name, field in row.metrics.items()}
    return about | {"verdict": row.verdict.trust.value, "rejected": row.rejected} | figures
