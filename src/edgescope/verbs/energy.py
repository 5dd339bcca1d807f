"""The energy of a stored result by every meter that watched it, and at the wall: `edgescope.energy("3f2a")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgescope.analysis.cells import ids
from edgescope.analysis.energy import meter_log
from edgescope.analysis.energy.align import Wall, wall
from edgescope.analysis.energy.of_run import Consumption, consumption, done
from edgescope.analysis.energy.window import energies
from edgescope.errors import UsageError
from edgescope.records import Answer, Field, Json, Meter, Result
from edgescope.records.answers import plain, said
from edgescope.runner.setup import Stored, store_of

SHOWN = ("power_w", "energy_j", "energy_per_sample_j", "idle_power_w", "energy_dynamic_per_sample_j")


@dataclass(frozen=True, repr=False)
class Energies(Answer):
    """What each meter says of one run."""

    result: Result
    meters: tuple[tuple[Meter, Consumption], ...]
    wall: Wall | None = None
    """By the log of an external meter, where one was given."""

    @property
    def warnings(self) -> list[str]:
        """Every warning once: those of the run, of its meters and of the log.

        Of further meters only what names its channel; their scopes and idle powers are shown.
        """
        found = self.meters
        parts = [self.result.warnings, *(c.warnings for _, c in found[:1])]
        parts += [tuple(w for w in c.warnings if w.code == "W-PWR-3") for _, c in found[1:]]
        parts += [self.wall.consumption.warnings] if self.wall else []
        return list(dict.fromkeys(str(warning) for part in parts for warning in part))

    def _each(self) -> Iterator[tuple[str, str, Mapping[str, Field]]]:
        for meter, spent in self.meters:
            yield meter.name, meter.scope, spent.metrics
        if self.wall is not None:
            yield "log", self.wall.scope, self.wall.consumption.metrics

    def lines(self) -> Iterator[str]:
        """Yield the result, and a line a meter."""
        yield f"{self.result.trial.model.partition('#')[0]} {self.result.trial.label}"
        for name, scope, metrics in self._each():
            yield f"  {name} ({scope}): {said('power', metrics['power_w'])}, {said('energy', metrics['energy_j'])}"

    def records(self) -> list[dict[str, Json]]:
        """Return a row a meter."""
        return [
            {"meter": name, "scope": scope} | {figure: plain(metrics[figure]) for figure in SHOWN}
            for name, scope, metrics in self._each()
        ]


def energy(
    result: str | Result,
    *,
    meter: Path | str | None = None,
    time_column: str = "",
    power_column: str = "",
    scope: str = "",
    store: Stored = None,
) -> Energies:
    """Return a stored result's power and energy by every meter, and by an external meter's CSV log.

    The result is named as `edgescope list` does, `latest` for the newest; the log is placed by the load's own edge.
    `scope` says what the meter sits in front of (the wall).
    """
    if isinstance(result, str):
        place = store_of(store)
        result = place.full(ids.one(place.results(), result))
    if result.readings is None or result.window is None or result.queries is None:
        raise UsageError(
            "E-METER-3", f"the result {result.id} was not measured", evidence=str(result.reason or "")[:200]
        )
    every = energies(
        result.readings,
        result.window.start_ns,
        result.window.stop_ns,
        done(result.queries, result.window),
    )
    found = tuple(
        (
            Meter(e.meter, e.scope, e.method),
            consumption(
                result.readings,
                result.queries,
                result.window,
                idle=result.idle,
                meter=e.meter,
                colocated=result.trial.colocated,
            ),
        )
        for e in every
    )
    if meter is None:
        return Energies(result, found)
    log = meter_log.read(Path(meter), time_column=time_column, power_column=power_column)
    return Energies(result, found, wall(result, log, scope))
