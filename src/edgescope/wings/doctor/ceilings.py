"""The ceilings of this machine: peak rates, bandwidth by working set, launch and copies; measured, kept and shown.

A process of its own measures them in a mode: the program (backends/pytorch/ceilings.py) holds PyTorch, and a mode must
be in effect before it starts. The load of the machine before and after, and by how much the same integer work took
longer afterwards, stand beside the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from edgescope import bench, cache, registry, units
from edgescope.analysis import roofline
from edgescope.devices import clocks
from edgescope.errors import UnavailableError
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.records import Json, Machine
from edgescope.report import document as doc

SECONDS = 0.2
"""Seconds of each of the 30 or so figures."""
LIMIT_S = 600.0
#: Load per core before and after from which other programs have surely lowered the figures.
BUSY = 0.5


def measure(device: str, *, mode: str = catalog.AS_IS, seconds: float = SECONDS) -> dict[str, Json]:
    """Return the ceilings of a device in a mode; UnavailableError if PyTorch or the device is missing."""
    program = [sys.executable, "-m", registry.CEILINGS_PROGRAM, device, f"{seconds:g}"]
    devices = {} if mode == catalog.AS_IS else bench.present()
    load, before = os.getloadavg(), clocks.spin(clocks.calibrate())
    with entered(catalog.find(mode, devices)) as entered_mode:
        launch = entered_mode.launch()
        done = subprocess.run(
            [*launch.prefix, *program],
            env={**os.environ, **launch.env},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if done.returncode:
        raise UnavailableError(
            "E-CEIL-2",
            f"the ceilings of {device} could not be measured",
            evidence=(done.stderr.strip().splitlines() or ["no message"])[-1][:200],
            effect="Nothing was measured",
            fix="pip install 'edgescope[torch]'",
        )
    slower = clocks.slowdown(before, clocks.spin(before.loops))
    loads = {"load_average_before": load, "load_average_after": os.getloadavg(), "spin_slowdown": slower}
    found: dict[str, Json] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "machine_meanwhile": loads}


def keep(figures: dict[str, Json], root: Path, where: Machine, mode: str = catalog.AS_IS) -> Path:
    """Write the figures into a store, whole or not at all, and return their file."""
    path = roofline.kept(root, where.id, str(figures["device"]), mode)
    return cache.write_json(path, {"machine_id": where.id, "mode": mode, "figures": figures})


def document(figures: dict[str, Json], kept: str = "") -> doc.Document:
    """Return the document; `kept` is the file in which the figures are kept."""
    rates = tuple(
        doc.Row((name, f"{f['value'] / 1e9:,.0f}" if "value" in f else f"n/a: {f['absent']}"))
        for name, f in figures["flops"].items()
    )
    widths = tuple(
        doc.Row((f"{p['bytes'] / 2**20:g} MiB", f"{p['value'] / 1e9:,.1f}")) for p in figures["bandwidth"]
    )
    copies = tuple(
        doc.Row((f"{there} {units.text(p['bytes'], 'bytes')}", units.text(p["value"], "s")))
        for there, key in (("to the device", "h2d"), ("back", "d2h"))
        for p in figures[key]
    )
    parts = (
        doc.Table((doc.Column("precision"), doc.Column("GFLOP/s at most")), rates),
        doc.Table((doc.Column("working set"), doc.Column("GB/s at most")), widths),
        doc.Table((doc.Column("copy"), doc.Column("time at least")), copies) if copies else None,
        doc.Text(
            f"Launching nothing and waiting for it takes {units.text(figures['launch_s'], 's')}.", "dim"
        ),
        _disturbed(figures["machine_meanwhile"]),
        doc.Text(f"Kept in {kept}.", "dim") if kept else None,
    )
    return doc.Document(f"Ceilings of {figures['device']}", parts, figures)


def _disturbed(meanwhile: dict[str, Json]) -> doc.Text | None:
    """Return a warning where the machine was busy or slowed down meanwhile; None where it was quiet."""
    load, slower = meanwhile["load_average_before"][0], meanwhile["spin_slowdown"]
    if load < BUSY and slower < 1.05:
        return None
    text = (
        f"W-CEIL-1: the machine was not idle (load {load:.2f} before, {slower:.2f} times slower afterwards)"
    )
    return doc.Text(
        doc.Mark(f"{text}. Its ceilings may lie higher. Try: measure again when it is quiet", "warn")
    )
