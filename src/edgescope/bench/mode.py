"""Checks that the Trial's mode is in effect, before and after the run, in the process that measures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from edgescope.bench.watch import Devices
from edgescope.errors import EdgescopeError, Message, SettingError
from edgescope.records import Json, Machine, Result, Trial


def require(trial: Trial, devices: Devices) -> Mapping[str, Json]:
    """Return the evidence and figures of the trial's mode; {} for `as_is`.

    Raises SettingError E-MODE-2 if it is not in effect, UsageError E-MODE-1 if this machine has no such mode.
    """
    if trial.mode == Trial.mode:
        return {}
    from edgescope.modes import catalog  # it knows every mode of every board

    mode = catalog.find(trial.mode, devices)
    problem = mode.problem()
    if problem:
        raise SettingError(
            "E-MODE-2",
            f"mode {trial.mode} is not in effect in the process that measures",
            evidence=problem,
            effect="Nothing was measured",
            fix=f"edgescope bench --mode {shlex.quote(trial.mode)}, which sets and restores it",
        )
    return {"asked": trial.mode, "evidence": mode.evidence(), "features": dict(mode.features())}


def rechecked(result: Result, devices: Devices) -> Result:
    """Return the result unchanged if its mode is still in effect, otherwise as failed with E-MODE-2."""
    trial = result.trial
    if trial.mode == Trial.mode:
        return result
    from edgescope.modes import catalog

    try:
        problem = catalog.find(trial.mode, devices).problem()
    except EdgescopeError as error:
        problem = str(error)
    if not problem:
        return result
    text = Message(
        "E-MODE-2",
        f"mode {trial.mode} was not in effect any more when the run ended",
        evidence=problem,
        effect="Its numbers belong to no one mode",
        fix="the same command again, with nothing else that changes settings",
    )
    return result.spoiled(text)


def noted(result: Result, mode: Mapping[str, Json]) -> Result:
    """Return the result with the mode added to the machine's facts and to the engine's evidence."""
    if not mode:
        return result
    machine = Machine(result.machine.stable, {**result.machine.state, "mode": mode})
    effective = result.effective
    if effective is not None:
        evidence = "; ".join(
            filter(None, (effective.evidence, f"mode {result.trial.mode}: {mode['evidence']}"))
        )
        effective = replace(effective, evidence=evidence)
    return replace(result, machine=machine, effective=effective)
