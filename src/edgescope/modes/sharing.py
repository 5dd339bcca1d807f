"""Sets up device sharing between the workers of a multi-process trial if it needs more than starting them: MPS.

The process that starts the trial enters the daemon like a mode and notes it in the same journal. After the trial it
checks that the daemon still runs and had a server: a daemon that died, or that had no client, shared nothing, and
the numbers would carry the wrong label.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.devices.base import Mode
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.modes.combined import Together
from edgescope.modes.mps import Mps
from edgescope.records import Result, Status, Trial


def mps_of(trial: Trial) -> Mps | None:
    """Return the MPS daemon that the trial's sharing needs, or None if it needs none.

    Raises UnsupportedError on a CPU, UsageError if the trial's mode is an MPS daemon, too.
    """
    word, _, percent = trial.sharing.partition("=")
    if word != "mps":
        return None
    if word not in trial.place.sharing:
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
    """Return the trial's mode combined with the mode that its sharing needs, and the MPS daemon or None."""
    daemon = mps_of(trial)
    return (mode, None) if daemon is None else (Together(mode, daemon), daemon)


def require(trial: Trial, environ: Mapping[str, str]) -> None:
    """Raise SettingError unless processes with this environment share the device as the trial requests."""
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


def rechecked(result: Result, daemon: Mps | None) -> Result:
    """Return the result unchanged if its MPS daemon still answers, otherwise as failed with the daemon's answer."""
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
    return result.spoiled(text)
