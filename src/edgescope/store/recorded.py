"""What may be said of a result whose sensors were a recording: its times are this machine's, its watts another's.

Measured here, read from a store, or made by an earlier version: no card, row or figure puts the two together.
"""

from __future__ import annotations

from dataclasses import replace

from edgescope.metrics import scoped
from edgescope.records import Absent, Result, Trust, Verdict
from edgescope.registry import REPLAYED

RECORDING = "the sensors are a recording"
WATTS = Absent(
    "unsupported: the watts are of a recording, not of this run (edgescope energy shows them alone)"
)


def replayed(result: Result) -> bool:
    """Return whether a recording stood in for the machine's sensors."""
    return bool(result.machine.state.get(REPLAYED))


def told_apart(result: Result) -> Result:
    """Return a replayed result without power and energy, its verdict unknown; any other one unchanged.

    Throttling and other load in the recording are the board's: they stay as evidence, and say nothing of these times.
    """
    if not replayed(result):
        return result
    own = [e for e in result.verdict.evidence if e != RECORDING]
    return replace(
        result,
        meter=None,
        warnings=tuple(w for w in result.warnings if not w.code.startswith("W-PWR")),
        metrics={name: WATTS if scoped(name) else value for name, value in result.metrics.items()},
        verdict=Verdict(Trust.UNKNOWN, (RECORDING, *own)),
    )
