"""The row that every table of cells is made of, what tells rows of one label apart, and which cells may share a table.

A label leaves out how long a trial measured, and more that most tables have in common: rows that would have the same
name get what differs between them in brackets, `4 s` against `1 s`.

A latency belongs to one query under one load, so only cells that answer the same question share a table. Cells that
differ in samples per query, arrival pattern, queue or number of copies answer different questions, even if all else is
equal. Engine, device, precision, options, sharing and mode are the choices. In the offline scenario all samples are
there at once, so batch, processes and queries in flight are choices too: its figure is the throughput. When a
recommendation is for the best throughput, those three are choices in closed loops as well (choices.load).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from edgescope import metrics as known
from edgescope import registry
from edgescope.analysis.cells.replicates import across, percentiles
from edgescope.analysis.run import energy
from edgescope.analysis.run.usage import first
from edgescope.metrics import Metric
from edgescope.records import Absent, Field, Json, Measured, Result, Role, Status, Trial, Verdict, digest
from edgescope.records.answers import plain
from edgescope.records.codec import to_plain
from edgescope.units import fact, lasting

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
    return energy.within(found, results, scope) if metric.scope else found


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


WORDS: Mapping[str, Callable[[Json], str]] = {
    "turn_s": lambda s: "alone" if s is None else "in turns",
    "max_s": lambda s: f"{s:g} s" if s < 99.5 else lasting(s),
    "warmup": lambda s: "warm-up as it needs" if s is None else f"warm-up {s:g} s",
}
"""Field -> its words, in the order in which they are said; other fields say their name and value."""
IMPLIED = {"turn_s": ("max_s", "min_s", "warmup", "max_queries", "rel_width"), "max_s": ("min_s",)}
"""Field -> those that mostly differ with it, and that tell nothing more if it tells the rows apart."""


def told_apart(labels: Mapping[str, tuple[str, Trial]]) -> dict[str, str]:
    """Return cell -> what differs from the cells of the same label, '' for a label that stands once."""
    groups: dict[str, dict[str, Trial]] = {}
    for cell, (label, trial) in labels.items():
        groups.setdefault(label, {})[cell] = trial
    found: dict[str, str] = {}
    for trials in groups.values():
        found |= _apart(trials) if len(trials) > 1 else dict.fromkeys(trials, "")
    return found


def _apart(trials: Mapping[str, Trial]) -> dict[str, str]:
    """Return cell -> the fields that differ within this group, without those that others imply."""
    plain = {cell: trial.to_json() for cell, trial in trials.items()}
    first = next(iter(plain.values()))
    differ = [n for n in first if n != "replicate" and any(p[n] != first[n] for p in plain.values())]
    named = [n for n in WORDS if n in differ] + [n for n in differ if n not in WORDS]
    for lead, others in IMPLIED.items():
        fewer = [n for n in named if n not in others]
        if lead in named and _all_differ(plain.values(), fewer):
            named = fewer
    return {cell: ", ".join(_words(n, p[n]) for n in named) for cell, p in plain.items()}


def _all_differ(plain: Iterable[Mapping[str, Json]], names: list[str]) -> bool:
    """Return whether no two have the same values of these fields."""
    values = [repr([p[n] for n in names]) for p in plain]
    return len(set(values)) == len(values)


def _words(name: str, value: Json) -> str:
    if name in WORDS:
        return WORDS[name](value)
    return f"{name} {'none' if value is None else fact(value)}"


#: Engines and models that measure the harness; a pick among them would recommend an engine that computes nothing.
HARNESS = "null"


def question_id(trial: Trial) -> str:
    """Return the name of the question that a trial answers; trials with the same name may be compared."""
    load = (trial.workload, trial.key(Role.LOAD), trial.colocated, trial.io)
    size = (trial.batch, trial.processes, trial.in_flight) if registry.scenario(trial.scenario).timed else ()
    shapes = {name: shape[1:] for name, shape in trial.shapes.items()}
    data = [trial.data, trial.preprocess] if trial.data or trial.preprocess else []
    return digest([load, size, shapes, *data])


def in_words(trial: Trial) -> str:
    """Return the load in words: `single_stream, batch 4, 2 processes`."""
    parts = [trial.workload] if trial.workload != Trial.workload else []
    parts.append(trial.load)
    if registry.scenario(trial.scenario).timed:
        parts += [f"batch {trial.batch}"] if trial.batch > 1 else []
        parts += [f"{trial.processes} processes"] if trial.processes > 1 else []
        parts += [f"{trial.in_flight} in flight"] if trial.in_flight > 1 else []
    parts += [f"beside {trial.colocated}"] if trial.colocated else []
    parts += [f"io {trial.io}"] if trial.io != "host" else []
    parts += [f"data {trial.data.partition('#')[0]}"] if trial.data else []
    parts += [f"{name} {'x'.join(map(str, shape[1:]))}" for name, shape in trial.shapes.items()]
    return ", ".join(parts)


def of_harness(trial: Trial) -> bool:
    """Return whether a trial measures edgescope itself: nothing that computes is in it."""
    return HARNESS in (trial.backend, trial.model, trial.workload)
