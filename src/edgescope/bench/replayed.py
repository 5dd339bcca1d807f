"""A result whose sensors were a recording says so, and is never called clean."""

from __future__ import annotations

from dataclasses import replace

from edgescope.errors import message
from edgescope.records import Result, Trust, Verdict
from edgescope.registry import REPLAYED

EVIDENCE = "the sensors are a recording"


def marked(result: Result) -> Result:
    """Return the result with the mark where its machine is a recording; any other as it is."""
    mark = result.machine.state.get(REPLAYED)
    if not mark:
        return result
    verdict = result.verdict
    trust = Trust.UNKNOWN if verdict.trust is Trust.CLEAN else verdict.trust
    warning = message(
        "W-REC-1",
        f"{EVIDENCE} of {mark['board']} ({mark['made']})",
        effect="Its power, clocks and temperatures are not those of this run",
    )
    return replace(
        result,
        verdict=Verdict(trust, (EVIDENCE, *verdict.evidence)),
        warnings=(*result.warnings, warning),
    )
