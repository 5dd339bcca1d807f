"""A load that another program makes (MLPerf LoadGen): who drove, what that program says of itself, its logs."""

from __future__ import annotations

from dataclasses import replace

from edgescope.models.base import Model
from edgescope.records import Result
from edgescope.scenarios import Foreign, Scenario
from edgescope.workloads.base import Opened


def examine(scenario: Scenario, opened: Opened, model: Model) -> None:
    """Let the program check the answers in its own way, where it drove and there is something to answer."""
    computes = model.reference not in ("null", "none")
    if isinstance(scenario, Foreign) and opened.answer is not None and computes:
        scenario.accuracy(opened.answer, model)


def noted(result: Result, scenario: Scenario) -> Result:
    """Return the result with what the program said; unchanged where edgescope drove itself."""
    if not isinstance(scenario, Foreign):
        return result
    return replace(
        result,
        driver="external",
        artifact={**result.artifact, **scenario.notes()},
        warnings=(*result.warnings, *scenario.warnings()),
    )
