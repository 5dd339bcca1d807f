"""Is the mode that the Trial names in effect? Asked by the process that measures, and said in its Result."""

from __future__ import annotations

from dataclasses import replace

from edgescope.bench.watch import Devices
from edgescope.errors import SettingError
from edgescope.modes import catalog
from edgescope.records import Machine, Result, Trial


def require(trial: Trial, devices: Devices) -> str:
    """Return what was read to know that the trial's mode is in effect, '' of `as_is`.

    SettingError E-MODE-2 where it is not, UsageError E-MODE-1 where this machine has no such mode.
    """
    if trial.mode == catalog.AS_IS:
        return ""
    mode = catalog.find(trial.mode, devices)
    problem = mode.problem()
    if problem:
        raise SettingError(
            "E-MODE-2",
            f"mode {trial.mode} is not in effect in the process that measures",
            evidence=problem,
            effect="Nothing was measured",
            fix=f"edgescope bench --mode {trial.mode}, which sets and restores it",
        )
    return mode.evidence()


def noted(result: Result, evidence: str) -> Result:
    """Return the result with the mode in effect among the machine's facts and in the engine's evidence."""
    if not evidence:
        return result
    mode = {"asked": result.trial.mode, "evidence": evidence}
    machine = Machine(result.machine.stable, {**result.machine.state, "mode": mode})
    effective = result.effective
    if effective is not None:
        told = "; ".join(filter(None, (effective.evidence, f"mode {result.trial.mode}: {evidence}")))
        effective = replace(effective, evidence=told)
    return replace(result, machine=machine, effective=effective)
