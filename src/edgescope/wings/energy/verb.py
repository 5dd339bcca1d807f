"""The energy of a stored result by every meter, and at the wall: `edgescope.energy("3f2a")`; and the page about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope.analysis.cells import ids
from edgescope.analysis.run.energy import A_SAMPLE, Consumption, consumption, done, ends
from edgescope.analysis.run.energy_window import energies
from edgescope.errors import Message, UsageError
from edgescope.metrics import METRICS, replayed
from edgescope.records import Absent, Answer, Field, Json, Meter, Result
from edgescope.records.answers import figure_text, plain
from edgescope.report import document as doc
from edgescope.report import result as card
from edgescope.runner.setup import Stored, Tell, named, silent, store_of
from edgescope.units import show, why
from edgescope.wings.energy import meter_log
from edgescope.wings.energy.align import Wall, wall
from edgescope.wings.energy.meter_table import Dialect

PER_SAMPLE: Mapping[str, Field] = dict.fromkeys(
    A_SAMPLE,
    Absent("unsupported: the watts are of a recording, the samples of this machine"),
)
SHOWN = ("power_w", "energy_j", "energy_per_sample_j", "idle_power_w", "energy_dynamic_per_sample_j")


@dataclass(frozen=True, repr=False)
class Energies(Answer):
    """The power and energy of one run, by each meter."""

    result: Result
    meters: tuple[tuple[Meter, Consumption], ...]
    wall: Wall | None = None
    """The energy by the log of an external meter, or None if no log was given."""

    @property
    def warnings(self) -> list[Message]:
        """Return every warning once: those of the run, of its meters and of the log.

        Meters after the first contribute only W-PWR-3, which names its channel; their scopes and idle powers are shown.
        """
        found = self.meters
        parts = [self.result.warnings, *(c.warnings for _, c in found[:1])]
        parts += [tuple(w for w in c.warnings if w.code == "W-PWR-3") for _, c in found[1:]]
        parts += [self.wall.consumption.warnings] if self.wall else []
        return list({str(warning): warning for part in parts for warning in part}.values())

    def _each(self) -> Iterator[tuple[str, str, Mapping[str, Field]]]:
        for meter, spent in self.meters:
            yield meter.name, meter.scope, spent.metrics
        if self.wall is not None:
            yield "log", self.wall.scope, self.wall.consumption.metrics

    def lines(self) -> Iterator[str]:
        """Yield the result, then one line for each meter."""
        yield f"{self.result.trial.model.partition('#')[0]} {self.result.trial.label}"
        for name, scope, metrics in self._each():
            power, joules = (
                figure_text(n, metrics[f]) for n, f in (("power", "power_w"), ("energy", "energy_j"))
            )
            yield f"  {name} ({scope}): {power}, {joules}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each meter."""
        return [
            {"meter": name, "scope": scope} | {figure: plain(metrics[figure]) for figure in SHOWN}
            for name, scope, metrics in self._each()
        ]


def energy(
    result: str | Result,
    *,
    meter: Path | str | None = None,
    dialect: Dialect | None = None,
    scope: str = "",
    machine: str = "",
    store: Stored = None,
    tell: Tell = silent,
) -> Energies:
    """Return a stored result's power and energy by every meter, and by an external meter's CSV log.

    `result` is a name from `edgescope list`, or `latest` for the newest; the log is aligned by the load's own edge.
    `dialect` says how the log is to be read where that is not clear from it: columns, units, devices.
    `scope` says what the external meter measures (the wall). `machine` is whose results the name is looked up in.
    """
    if isinstance(result, str):
        place = store_of(store)
        result = place.full(named(place, result, ids.one, machine, tell))
    if result.readings is None or result.window is None or result.queries is None:
        raise UsageError(
            "E-METER-3", f"the result {result.id} was not measured", evidence=str(result.reason or "")[:200]
        )
    own = PER_SAMPLE if replayed(result) else {}
    window, queries = result.window, result.queries
    found = []
    for e in energies(result.readings, window.start_ns, window.stop_ns, done(queries, window)):
        spent = consumption(
            result.readings,
            queries,
            window,
            idle=result.idle,
            meter=e.meter,
            colocated=result.trial.colocated,
        )
        found.append((Meter(e.meter, e.scope, e.method), replace(spent, metrics={**spent.metrics, **own})))
    if meter is None:
        return Energies(result, tuple(found))
    log = meter_log.read(Path(meter), dialect)
    return Energies(result, tuple(found), wall(result, log, scope))


Found = Sequence[tuple[Meter, Consumption]]


def document(spent: Energies, log: str = "") -> doc.Document:
    """Return the document about a result's meters, and about the external meter whose log is called `log`."""
    result, found, wall, warned = spent.result, spent.meters, spent.wall, spent.warnings
    metered = [(m, c.metrics) for m, c in found]
    if wall is not None:
        metered.append((Meter(log, wall.scope, "trapezoid"), wall.consumption.metrics))
    figures = (
        doc.Column(METRICS[name].title, head=METRICS[name].head.lower(), rank=i)
        for i, name in enumerate(SHOWN[:3])
    )
    heads = (doc.Column("meter"), doc.Column("scope"), doc.Column("method"), *figures)
    rows = tuple(doc.Row((m.name, m.scope, m.method, *_figures(figures))) for m, figures in metered)
    absent = f"no meter recorded this result: {why(result.metrics.get('power_w'))}"
    lines = [f"{m.name}: {_idle(c.metrics)}" for m, c in found]
    lines += [_placed(wall), f"{wall.scope}: {_idle(wall.consumption.metrics)}"] if wall else []
    parts = (
        doc.Text(card.status(result)),
        doc.Table(heads, rows) if rows else doc.Text(absent, "dim"),
        doc.Items(tuple(lines)) if lines else None,
        doc.Items(tuple(doc.Mark(str(w), "warn") for w in warned), kind="warnings") if warned else None,
    )
    return doc.Document(f"Energy of {result.id}", parts, _data(result, found, wall, warned))


def _figures(figures: Mapping[str, Field]) -> list[doc.Value]:
    """Return power, energy and energy per sample, each with the kind of its interval."""
    fields = [figures[name] for name in SHOWN[:3]]
    return [f"{why(f)} {ends(f, figures['energy_j'])}".strip() for f in fields]


def _idle(figures: Mapping[str, Field]) -> str:
    rest, beyond = figures["idle_power_w"], figures["energy_dynamic_per_sample_j"]
    if isinstance(rest, Absent):
        return f"idle n/a ({rest.reason})"
    return f"idle {show(rest)}; beyond it {why(beyond)} a sample (bounds)"


def _placed(wall: Wall) -> str:
    """Return a sentence about the alignment of the log with the run's time."""
    a = wall.alignment
    return (
        f"the window begins {a.offset_s:.3f} s after the log's first row, +-{a.uncertainty_s:.3f} s; "
        f"the meter's clock runs {a.drift:+.2%} off, +-{a.drift_uncertainty:.2%}; "
        f"the load's step of {a.step_w:.2f} W explains {a.explained:.0%} of the log"
    )


def _data(result: Result, found: Found, wall: Wall | None, warned: Sequence[Message]) -> dict[str, Json]:
    meters = [
        {"meter": m.name, "scope": m.scope, "method": m.method}
        | {name: c.metrics[name] for name in SHOWN}
        | {"ends": {name: ends(c.metrics[name], c.metrics["energy_j"]) for name in SHOWN}}
        for m, c in found
    ]
    at_wall = wall and {
        "alignment": wall.alignment,
        "metrics": dict(wall.consumption.metrics),
        "warnings": list(wall.consumption.warnings),
    }
    status = {"result": result.id, "status": result.status.value, "verdict": result.verdict}
    return {**status, "meters": meters, "wall": at_wall, "warnings": list(warned)}
