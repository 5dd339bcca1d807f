"""The document about the energy of a result: what each meter measured, and the wall if there is a log of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgescope.analysis.energy.of_run import Consumption, ends
from edgescope.errors import Message
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Json, Meter, Result
from edgescope.report import document as doc
from edgescope.report import result as card
from edgescope.units import show, why
from edgescope.wings.energy.align import Wall
from edgescope.wings.energy.verb import SHOWN, Energies

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
