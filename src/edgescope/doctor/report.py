"""What this machine can measure, what would disturb a measurement now, and what one command would unlock.

Data only: the command line prints it. Metrics are probed by probe.py, findings come from readiness.py,
readiness_jetson.py and unlock.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgescope import registry
from edgescope.devices.base import Device
from edgescope.devices.manifest import machine
from edgescope.devices.settings import settings
from edgescope.devices.throttle import Trip, next_trip
from edgescope.doctor import containers, readiness, readiness_jetson, unlock
from edgescope.doctor.finding import Finding
from edgescope.doctor.probe import Metric, located, probe
from edgescope.records import Machine


@dataclass(frozen=True)
class Report:
    """The answer of `examine`."""

    machine: Machine
    devices: Mapping[str, str]
    """Device name -> '' when present, otherwise why not."""
    metrics: tuple[Metric, ...]
    disturbances: tuple[Finding, ...]
    """What would disturb a measurement now."""
    missing: tuple[Finding, ...]
    """What cannot be measured here, and what would unlock it."""
    trips: Mapping[str, Trip] = field(default_factory=dict)
    """Temperature channel -> its lowest harmful trip point."""
    container: str = ""
    """docker, podman, ...; '' where nothing says that this is a container."""
    container_flags: tuple[containers.Flag, ...] = ()
    """What `docker run` needs: in a container what is missing, on a host what one would lack."""


def examine(devices: Mapping[str, Device], *, watch_s: float = 0.5, root: Path = Path("/")) -> Report:
    """Return the report on `devices` (by registry name); takes about `watch_s` seconds to see who is busy.

    `root` is where the files of this machine lie: / itself, a fake board, or a recording's tree.
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
            *readiness_jetson.findings(values, trips, modes, facts.state, root),
            *broken,
        ),
        (*unlock.missing(metrics, root), *_plugins()),
        trips,
        containers.kind(root),
        containers.flags(root),
    )


def _plugins() -> list[Finding]:
    """Return what each plug-in that adds nothing is, and why."""
    said = [registry.unusable(found) for family in registry.FAMILIES for found in family.broken]
    return [Finding(error.code, error.what, error.fix, error.evidence) for error in said]


def _trips(metrics: Sequence[Metric], root: Path) -> dict[str, Trip]:
    files = {m.name: located(m.source, root) for m in metrics if m.unit == "degC" and m.value is not None}
    return {name: trip for name, file in files.items() if file and (trip := next_trip(file.parent))}
