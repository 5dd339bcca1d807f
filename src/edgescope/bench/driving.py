"""Drives a scenario in this process, and says what the process came to need."""

from __future__ import annotations

import gc
from pathlib import Path

from edgescope.clock import Clock
from edgescope.records import Absent, Field, Measured, Queries
from edgescope.scenarios import Scenario
from edgescope.workloads.base import Work


def drive(scenario: Scenario, work: Work, clock: Clock) -> Queries:
    """Drive the scenario with the garbage collector out of the way."""
    gc.collect()
    gc.freeze()
    try:
        return scenario.drive(work, clock)
    finally:
        gc.unfreeze()


def peak_rss(process: str = "self") -> Field:
    """Return a process's largest resident set so far (VmHWM), engine and libraries included."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
        kilobytes = next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration) as error:
        return Absent(f"/proc/{process}/status: {error!r}")
    return Measured(float(kilobytes) * 1024, "bytes")
