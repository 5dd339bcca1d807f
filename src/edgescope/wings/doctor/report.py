"""The doctor's report: what can be measured here, what would disturb it now, and what commands would unlock more.

It is data only; the command line prints it. Metrics come from probe.py, findings from readiness.py,
readiness_board.py and unlock.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgescope import registry
from edgescope.devices import core_to_core
from edgescope.devices.base import Device
from edgescope.devices.manifest import machine
from edgescope.devices.prober import Prober
from edgescope.devices.settings import settings
from edgescope.devices.throttle import Trip, next_trip
from edgescope.records import Machine
from edgescope.wings.doctor import containers, readiness, readiness_board, unlock
from edgescope.wings.doctor.finding import Finding
from edgescope.wings.doctor.probe import Metric, located, probe


@dataclass(frozen=True)
class Report:
    """The report that `examine` returns."""

    machine: Machine
    devices: Mapping[str, str]
    """Device name -> '' if present, otherwise why not."""
    metrics: tuple[Metric, ...]
    disturbances: tuple[Finding, ...]
    """What would disturb a measurement now."""
    missing: tuple[Finding, ...]
    """What cannot be measured here, and what would unlock it."""
    trips: Mapping[str, Trip] = field(default_factory=dict)
    """Temperature channel -> its lowest harmful trip point."""
    container: str = ""
    """docker, podman, ...; '' if there is no sign of a container."""
    container_flags: tuple[containers.Flag, ...] = ()
    """The flags that `docker run` needs; inside a container, only those that are missing."""


def examine(devices: Mapping[str, Device], *, watch_s: float = 0.5, root: Path = Path("/")) -> Report:
    """Return the report on `devices` (by registry name); watch busy processes for about `watch_s` seconds.

    `root` is the folder with the machine's files: / itself, a fake board, or a recording's tree.
    """
    facts, metrics = probe(devices, watch_s, lambda: machine(devices), root)
    values = {m.name: m.value for m in metrics if m.value is not None}
    trips = _trips(metrics, root)
    modes, problems = settings(devices)
    broken = [Finding(e.code, e.what, e.fix, e.evidence) for e in problems]
    return Report(
        facts,
        {name: device.present() for name, device in devices.items()},
        metrics,
        (
            *readiness.disturbances(values, facts.state.get("cpu", {}), root),
            *readiness.distance(facts, _core_to_core_s() if root == Path("/") else None),
            *readiness_board.findings(values, trips, modes, facts.state, root),
            *broken,
        ),
        (*unlock.missing(metrics, root), *_plugins()),
        trips,
        containers.kind(root),
        containers.flags(root),
    )


def _core_to_core_s() -> float | None:
    with Prober(core_to_core) as prober:
        return prober.seconds()


def _plugins() -> list[Finding]:
    """Return a finding for each plug-in that cannot be used."""
    errors = [registry.unusable(found) for family in registry.FAMILIES for found in family.broken]
    return [Finding(error.code, error.what, error.fix, error.evidence) for error in errors]


def _trips(metrics: Sequence[Metric], root: Path) -> dict[str, Trip]:
    files = {m.name: located(m.source, root) for m in metrics if m.unit == "degC" and m.value is not None}
    return {name: trip for name, file in files.items() if file and (trip := next_trip(file.parent))}
