"""How the workers of a multi-process trial share a device, where that needs more than starting them: MPS.

The daemon is entered by the process that starts the trial, like a mode, and written down in the same journal. After
the trial it is asked whether it still runs and had a server: a daemon that died, or that nobody connected to, did not
share anything, and the numbers would carry the wrong label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgescope.devices.base import Mode
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.modes.combined import Together
from edgescope.modes.mps import Mps
from edgescope.records import Result, Status, Trial


def mps_of(trial: Trial) -> Mps | None:
    """Return the MPS daemon that the trial's sharing asks for, None where it asks for none.

    UnsupportedError on a CPU, UsageError where the mode is a daemon of its own, too.
    """
    word, _, percent = trial.sharing.partition("=")
    if word != "mps":
        return None
    if trial.device != "cuda":
        raise UnsupportedError(
            "E-MPS-3",
            f"{trial.sharing} shares a GPU, and this trial runs on the {trial.device}",
            effect="It would be plain time sharing under another name",
            fix="--sharing time_slicing, or --device cuda",
        )
    if any(part.startswith("mps=") for part in trial.mode.split("+")):
        raise UsageError(
            "E-MODE-10",
            f"mode {trial.mode} and sharing {trial.sharing} are two MPS daemons",
            fix="one of them",
        )
    return Mps(float(percent) if percent else None)


def with_sharing(mode: Mode, trial: Trial) -> tuple[Mode, Mps | None]:
    """Return the trial's mode together with what its sharing needs, and the MPS daemon among it."""
    daemon = mps_of(trial)
    return (mode, None) if daemon is None else (Together(mode, daemon), daemon)


def require(trial: Trial, environ: Mapping[str, str]) -> None:
    """Raise SettingError unless processes with this environment share the device as the trial asks."""
    daemon = mps_of(trial)
    problem = daemon.problem(environ) if daemon else ""
    if problem:
        raise SettingError(
            "E-MPS-4",
            f"sharing {trial.sharing} is not in effect for the workers",
            evidence=problem,
            effect="They would slice the GPU's time under another name. Nothing was measured",
            fix="edgescope bench, sweep, or edgescope.run(trial), which start the daemon",
        )


def kept(result: Result, daemon: Mps | None) -> Result:
    """Return the result as it is while its MPS daemon answers; otherwise one that has failed, with what it said."""
    if daemon is None or result.status is Status.UNSUPPORTED:
        return result
    problem = daemon.dead()
    if not problem:
        return result
    text = Message(
        "E-MPS-2",
        "the MPS daemon did not serve this trial to its end",
        evidence=problem,
        effect="Its numbers belong to no one way of sharing",
        fix="the same command again; nvidia-smi for other users of this GPU",
    )
    if result.status in (Status.OK, Status.UNSTABLE):
        return replace(result, status=Status.FAILED, reason=text)
    return replace(result, warnings=(*result.warnings, text))
