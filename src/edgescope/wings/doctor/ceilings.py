"""Measures the ceilings of this machine in a process of its own, in a mode, and keeps them beside its results.

The program (backends/pytorch/ceilings.py) holds PyTorch, and a mode must be in effect before it starts. The load of the
machine before and after, and by how much the same integer work took longer afterwards, stand beside the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from edgescope import bench, cache, registry
from edgescope.analysis import roofline
from edgescope.devices import cpu_probe
from edgescope.errors import UnavailableError
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.records import Json, Machine

SECONDS = 0.2
"""Seconds of each of the 30 or so figures."""
LIMIT_S = 600.0


def measure(device: str, *, mode: str = catalog.AS_IS, seconds: float = SECONDS) -> dict[str, Json]:
    """Return the ceilings of a device in a mode; UnavailableError if PyTorch or the device is missing."""
    program = [sys.executable, "-m", registry.CEILINGS_PROGRAM, device, f"{seconds:g}"]
    devices = {} if mode == catalog.AS_IS else bench.present()
    load, before = os.getloadavg(), cpu_probe.spin(cpu_probe.calibrate())
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
    slower = cpu_probe.slowdown(before, cpu_probe.spin(before.loops))
    loads = {"load_average_before": load, "load_average_after": os.getloadavg(), "spin_slowdown": slower}
    found: dict[str, Json] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "machine_meanwhile": loads}


def keep(figures: dict[str, Json], root: Path, where: Machine, mode: str = catalog.AS_IS) -> Path:
    """Write the figures into a store, whole or not at all, and return their file."""
    path = roofline.kept(root, where.id, str(figures["device"]), mode)
    return cache.write_json(path, {"machine_id": where.id, "mode": mode, "figures": figures})
