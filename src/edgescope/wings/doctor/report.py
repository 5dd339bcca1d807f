"""The doctor's report: what can be measured here, what would disturb it now, and what commands would unlock more.

Each metric is probed on its own: its value or why it has none, how often it changes, what reading it costs. While the
probe waits to see which processes are busy, it reads every sensor twenty times a second, which shows how often each one
really changes: a rail behind an INA3221 that averages 512 samples is new every 0.43 s, however often it is read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.devices.base import ChannelSpec, Device, Failed, Source, SourceSpec, Unsupported, Value
from edgescope.devices.clocks import Trip, next_trip
from edgescope.devices.kernel_files import fact, is_absent
from edgescope.devices.manifest import machine, settings
from edgescope.devices.probes import Prober
from edgescope.records import Machine
from edgescope.wings.doctor import readiness, unlock
from edgescope.wings.doctor.readiness import Finding


@dataclass(frozen=True)
class Metric:
    """One metric of one device: whether it can be read here, how often it is new, and what reading it costs."""

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
    """Microseconds of the whole source's read (one read yields many metrics), the shortest of a few."""
    every: int
    """The metric is read on every n-th tick of the sampler."""
    sampled_hz: float = 0.0
    """How often a measured run reads it."""
    refresh_s: float | None = None
    """Time between two new values as the driver publishes it, or None if it does not."""
    seen_hz: float | None = None
    """How often the value changed per second while it was watched, at most 20; None if it was not watched."""


SAMPLER_HZ = 10.0
"""The rate that `every` refers to: that of a measured run."""
_COST_READS = 5
_LOOK_S = 0.05
_REFRESH = re.compile(r"refresh (\d+(?:\.\d+)?) ms")
"""The refresh time in the source text of a rail."""
_DEAR_S = 0.002
"""A source that takes this many seconds to read is not read twenty times a second just to see it change."""


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
    container_flags: tuple[unlock.Flag, ...] = ()
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
            *readiness.board(values, trips, modes, facts.state, root),
            *broken,
        ),
        (*unlock.missing(metrics, root), *_plugins()),
        trips,
        unlock.kind(root),
        unlock.flags(root),
    )


def probe(
    devices: Mapping[str, Device], seconds: float, facts: Callable[[], Machine], root: Path
) -> tuple[Machine, tuple[Metric, ...]]:
    """Return the machine and every metric of `devices`; watch for `seconds`, then call `facts` for the machine."""
    pid = os.getpid()
    opened = [
        WatchedSource(name, spec, _open(spec))
        for name, device in devices.items()
        for spec in device.sources(pid)
    ]
    _look(opened, seconds)
    here = facts()
    refresh = _refresh(here, root)
    return here, tuple(m for one in opened for m in _metrics(one, refresh))


def _open(spec: SourceSpec) -> Source | Failed:
    try:
        return spec.open()
    except Exception as error:  # a driver library may raise anything; the report must still come
        return Failed(f"the source cannot be opened: {error!r}")


def _look(opened: Sequence[WatchedSource], seconds: float) -> None:
    """Wait `seconds` and count how often each metric changes.

    Sources of interval channels are not read meanwhile, so that their first value covers the whole time.
    """
    start = time.monotonic()
    watched = [o for o in opened if not isinstance(o.source, Failed) and _is_watchable(o.source)]
    last: dict[str, float] = {}
    while (left := start + seconds - time.monotonic()) > 0:
        for one in watched:
            assert not isinstance(one.source, Failed)
            for name, _, value in _read(one.source):
                if isinstance(value, float):
                    one.changes[name] = one.changes.get(name, 0) + (last.get(name, value) != value)
                    last[name] = value
            one.watched_s = time.monotonic() - start
        time.sleep(min(_LOOK_S, max(0.0, left)))


def _is_watchable(source: Source) -> bool:
    if any(c.kind == "interval" for c in source.channels()):
        return False
    start = time.perf_counter()
    _read(source)
    return time.perf_counter() - start < _DEAR_S


def _read(source: Source) -> Sequence[tuple[str, int, Value]]:
    try:
        return source.read()
    except Exception as error:  # as in _open
        now, failed = time.monotonic_ns(), Failed(f"reading raised {error!r}")
        return [(c.name, now, failed) for c in source.channels()]


def _metrics(one: WatchedSource, refresh: Callable[[ChannelSpec], float | None]) -> list[Metric]:
    if isinstance(one.source, Failed):
        spec = one.spec
        nothing = (spec.target, "", "", "", spec.target, "failed", one.source.reason, None, 0.0, spec.every)
        return [Metric(one.device, *nothing)]
    values: dict[str, Value] = {}
    reads_us = []
    for _ in range(_COST_READS):
        start = time.perf_counter()
        rows = _read(one.source)
        reads_us.append((time.perf_counter() - start) * 1e6)
        for name, _t, value in rows:
            values.setdefault(name, value)  # an interval's first value covers the longest time
    out = []
    for c in one.source.channels():
        status, reason, number = _fate(values.get(c.name, Failed("no value came")))
        changes = one.changes.get(c.name)
        out.append(
            Metric(
                device=one.device,
                name=c.name,
                unit=c.unit,
                scope=c.scope,
                kind=c.kind,
                source=c.source,
                status=status,
                reason=reason,
                value=number,
                read_us=min(reads_us),
                every=one.spec.every,
                sampled_hz=SAMPLER_HZ / max(1, one.spec.every),
                refresh_s=refresh(c) if number is not None else None,
                seen_hz=changes / one.watched_s if changes is not None and one.watched_s else None,
            )
        )
    return out


def _fate(value: Value) -> tuple[str, str, float | None]:
    if isinstance(value, Unsupported):
        return "unsupported", value.reason, None
    if isinstance(value, Failed):
        return "failed", value.reason, None
    return "measured", "", value


def _refresh(facts: Machine, root: Path) -> Callable[[ChannelSpec], float | None]:
    """Return a function from channel to refresh time: the rails' own facts, else hwmon's update_interval.

    update_interval is in milliseconds (Documentation/hwmon/sysfs-interface).
    """
    rails: Mapping[str, Any] = {}
    for part in (facts.stable.get("jetson", {}), facts.state.get("jetson", {})):
        found = part.get("rails") if isinstance(part, Mapping) else None
        rails = found if isinstance(found, Mapping) and not is_absent(found) else rails

    def of(channel: ChannelSpec) -> float | None:
        for rail, what in rails.items():
            if channel.name.startswith(f"{rail}_") and isinstance(what.get("refresh_s"), int | float):
                return float(what["refresh_s"])
        if published := _REFRESH.search(channel.source):
            return float(published[1]) / 1e3
        file = located(channel.source, root)
        if file is None:
            return None
        milliseconds = fact(file.with_name("update_interval"), float)
        return None if is_absent(milliseconds) else float(milliseconds) / 1e3

    return of


def located(source: str, root: Path) -> Path | None:
    """Return the file that a channel's source names: unchanged in a fake root, below `root` in a recording."""
    first = source.partition(" ")[0]
    if not first.startswith("/"):
        return None
    return Path(first) if Path(first).is_relative_to(root) else root / first.lstrip("/")


@dataclass
class WatchedSource:
    """A source, or why it cannot be opened, and how often each of its channels changed while it was watched."""

    device: str
    spec: SourceSpec
    source: Source | Failed
    changes: dict[str, int] = field(default_factory=dict)
    watched_s: float = 0.0


def _core_to_core_s() -> float | None:
    with Prober("core_to_core") as prober:
        return prober.seconds()


def _plugins() -> list[Finding]:
    """Return a finding for each plug-in that cannot be used."""
    errors = [registry.unusable(found) for family in registry.FAMILIES for found in family.broken]
    return [Finding(error.code, error.what, error.fix, error.evidence) for error in errors]


def _trips(metrics: Sequence[Metric], root: Path) -> dict[str, Trip]:
    files = {m.name: located(m.source, root) for m in metrics if m.unit == "degC" and m.value is not None}
    return {name: trip for name, file in files.items() if file and (trip := next_trip(file.parent))}
