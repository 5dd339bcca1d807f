"""Every meter of power and energy at rest and under load, and the counters of throttling."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from numpy.typing import NDArray

from edgescope.analysis.run.energy_window import energies
from edgescope.records import Absent, Json, Measured, Readings
from edgescope.units import counted
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.site import Site, mapping, watched

LOAD_S = 6.0
"""Seconds of each stretch."""
RISE, RISE_W = 1.02, 0.05
"""Times its power at rest, and watts more, that the widest meter must show while every core computes."""
LAG = 0.2
"""Share of a stretch at its begin that is left out: a meter that averages still shows what was before."""
SAME, SAME_W = 0.1, 2.0
"""Share, or watts, by which a meter's counter of joules may differ from its own readings of watts."""
GPU_SCOPES = ("gpu_board", "gpu")
"""What a load of the CPU does not raise."""
BURN = "import time\nt = time.monotonic() + {seconds}\nwhile time.monotonic() < t: sum(range(9999))"


def energy(site: Site) -> Outcome:
    """Read every meter at rest and while every core computes; the widest must rise."""
    watch, spans = site.watch(), list[tuple[int, int]]()
    with watch.watching():
        spans.append(_timed(site, ["sleep", f"{LOAD_S:g}"], LOAD_S))
        cores = os.cpu_count() or 1
        burn = BURN.format(seconds=LOAD_S)
        each = " & ".join(['"$0" -c "$1"'] * (cores if site.reached == "here" else 4))
        python = sys.executable if site.reached == "here" else "python3"
        spans.append(_timed(site, ["sh", "-c", f"{each}; wait", python, burn], LOAD_S))
    idle, load = (energies(watch.readings, round(a + LAG * (b - a)), b, 0) for a, b in spans)
    if not load:
        missing = [
            f"{c.name}: {c.reason}" for c in watch.readings.channels if c.unit in ("W", "J") and c.reason
        ]
        return unsupported(f"no meter of power or energy: {'; '.join(missing[:3]) or 'no channel'}")
    evidence: dict[str, Json] = {}
    wrong = []
    rest = {e.meter: e.power_w for e in idle}
    for meter in load:
        before, now = rest.get(meter.meter, Absent("not read while idle")), meter.power_w
        if not isinstance(before, Measured) or not isinstance(now, Measured):
            why = now.reason if isinstance(now, Absent) else getattr(before, "reason", "")
            evidence[meter.meter] = {"absent": why}
            wrong.append(f"{meter.meter}: {why}")
            continue
        evidence[meter.meter] = {
            "scope": meter.scope, "method": meter.method, "idle_w": before.value, "load_w": now.value,
            "energy_j": meter.energy_j.value if isinstance(meter.energy_j, Measured) else None,
            "updates": meter.total.updates if meter.total else None,
        }  # fmt: skip
        wrong += _counted_otherwise(watch.readings, meter.meter, spans[1], evidence)
    widest = mapping(evidence.get(load[0].meter))
    rises = load[0].scope not in GPU_SCOPES and site.reached != "recording"
    if rises and "load_w" in widest and widest["load_w"] <= widest["idle_w"] * RISE + RISE_W:
        wrong.append(f"{load[0].meter} does not rise with a load of every core")
    right = f"{counted(len(load), 'meter')}; {load[0].meter} {_span(widest)}"
    return judged(wrong, right, evidence)


def _counted_otherwise(
    readings: Readings, meter: str, span: tuple[int, int], evidence: dict[str, Json]
) -> list[str]:
    """Compare a meter's counter of joules with its own watts over one stretch, where it has both."""
    t_ns, joules = _within(readings, f"{meter}_energy_j", span)
    watts = _within(readings, f"{meter}_power_w", span)[1]
    if len(joules) < 2 or not len(watts):
        return []
    counted_w, mean_w = float(joules[-1] - joules[0]) / float(t_ns[-1] - t_ns[0]) * 1e9, float(watts.mean())
    evidence[f"{meter}, both ways"] = {"counter_w": counted_w, "readings_w": mean_w}
    near = abs(counted_w - mean_w) <= max(SAME * mean_w, SAME_W)
    return [] if near else [f"{meter}: {counted_w:.1f} W by its counter, {mean_w:.1f} W by its readings"]


def _within(readings: Readings, name: str, span: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (times, values) of a channel within a stretch."""
    t_ns, values = readings.series(name)
    inside = (t_ns >= span[0]) & (t_ns <= span[1])
    return t_ns[inside], values[inside]


def throttle(site: Site) -> Outcome:
    """Read the counters of throttling twice while the board idles; what moved is the board's own, and is said."""
    found = watched(site, 2.0).throttle
    if found is None:
        return unsupported("no device here counts throttling")
    evidence: dict[str, Json] = {
        "events": list(found.events), "looked_at": list(found.looked_at),
        "absent": list(found.absent), "unknown": list(found.unknown),
    }  # fmt: skip
    if not found.looked_at:
        return unsupported(f"no counter can be read: {'; '.join(found.absent) or 'none is there'}", evidence)
    events = f"; while it idled: {'; '.join(found.events)}" if found.events else ", none moved while it idled"
    return judged([], f"{counted(len(found.looked_at), 'counter')}{events}", evidence)


def _timed(site: Site, argv: list[str], seconds: float) -> tuple[int, int]:
    """Run a program; return its start and end on the sensors' clock, as its lines are stamped.

    A recording runs none: its time passes all the same.
    """
    if site.reached == "recording":
        begun = time.monotonic_ns()
        threading.Event().wait(seconds)
        return begun, time.monotonic_ns()
    said = site.run(["sh", "-c", 'echo; "$@"; echo', "sh", *argv], seconds + 20)
    return said.lines[0][0], said.lines[-1][0]


def _span(figures: object) -> str:
    f = mapping(figures)
    return f"{f['idle_w']:.2f} W at rest, {f['load_w']:.2f} W under load" if "load_w" in f else ""
