"""What this machine can measure, what would disturb a measurement now, and what one command would unlock.

Data only: the command line prints it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope.devices import readiness
from edgescope.devices.base import Device, Failed, Source, SourceSpec, Unsupported, Value
from edgescope.devices.manifest import machine
from edgescope.devices.readiness import Finding
from edgescope.records import Machine

_COST_READS = 5


@dataclass(frozen=True)
class Metric:
    """One metric of one device: can it be read here, and what does that cost."""

    device: str
    name: str
    unit: str
    scope: str
    kind: str
    source: str
    status: str
    """measured, unsupported or failed."""
    reason: str
    value: float | None
    read_us: float
    """Microseconds of the whole source's read (one read, many metrics), the least of a few."""
    every: int
    """Read on every n-th tick of the sampler."""


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


def examine(devices: Mapping[str, Device], *, watch_s: float = 0.5, root: Path = Path("/")) -> Report:
    """Return the report on `devices` (by registry name); takes about `watch_s` seconds to see who is busy."""
    opened = [
        (name, spec, _open(spec)) for name, device in devices.items() for spec in device.sources(os.getpid())
    ]
    time.sleep(watch_s)
    metrics = tuple(m for name, spec, source in opened for m in _metrics(name, spec, source))
    facts = machine(devices)
    return Report(
        facts,
        {name: device.present() for name, device in devices.items()},
        metrics,
        readiness.disturbances(
            {m.name: m.value for m in metrics if m.value is not None}, facts.state.get("cpu", {}), root
        ),
        readiness.missing(
            {m.name: m.reason for m in metrics if m.status != "measured"}, {m.name for m in metrics}, root
        ),
    )


def _open(spec: SourceSpec) -> Source | Failed:
    try:
        module, name = spec.target.split(":")
        source: Source = getattr(importlib.import_module(module), name)(**spec.kwargs)
        return source
    except Exception as error:  # a driver library may raise anything; the report must still come
        return Failed(f"the source cannot be opened: {error!r}")


def _metrics(device: str, spec: SourceSpec, source: Source | Failed) -> list[Metric]:
    if isinstance(source, Failed):
        return [
            Metric(
                device, spec.target, "", "", "", spec.target, "failed", source.reason, None, 0.0, spec.every
            )
        ]
    values: dict[str, Value] = {}
    reads_us = []
    for _ in range(_COST_READS):
        start = time.perf_counter()
        rows: Sequence[tuple[str, int, Value]] = source.read()
        reads_us.append((time.perf_counter() - start) * 1e6)
        for name, _t, value in rows:
            values.setdefault(name, value)  # an interval's first value covers the longest time
    out = []
    for c in source.channels():
        value = values.get(c.name, Failed("no value came"))
        status, reason, number = _fate(value)
        spec_of = (c.name, c.unit, c.scope, c.kind, c.source)
        out.append(Metric(device, *spec_of, status, reason, number, min(reads_us), spec.every))
    return out


def _fate(value: Value) -> tuple[str, str, float | None]:
    if isinstance(value, Unsupported):
        return "unsupported", value.reason, None
    if isinstance(value, Failed):
        return "failed", value.reason, None
    return "measured", "", value
