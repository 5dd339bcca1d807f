"""CUDA's Multi-Process Service (docs.nvidia.com/deploy/mps): a share of the GPU for a trial, or for its workers.

`--mode mps=50` starts a control daemon with its own folders, so it does not affect other users, and gives the
trial's process half of the threads (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE). No table says where MPS works: Tegra boards
differ by release. So the daemon is started and queried, and its answer decides.

`--sharing mps` has the workers of a trial share the device through it. The process that starts the trial enters the
daemon like a mode and notes it in the same journal. After the trial it checks that the daemon still runs and had a
server: a daemon that died, or that had no client, shared nothing, and the numbers would carry the wrong label.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgescope.devices.base import Journal, Mode, Undo
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.process import Launch
from edgescope.records import Result, Status, Trial

CONTROL = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_LIMIT_S = 20
_PREFIX = "edgescope-mps-"
#: The control program's answer if no daemon runs: "Cannot find MPS control daemon process".
_GONE = "cannot find mps control daemon"


class Mps(Mode):
    """A private MPS daemon that gives at most `percent` of the GPU's threads (None: all of them)."""

    def __init__(self, percent: float | None = None) -> None:
        self.percent = percent
        self._folder: Path | None = None
        self._known: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return "mps" if self.percent is None else f"mps={self.percent:g}"

    def launch(self) -> Launch:
        """Return the client's environment."""
        return Launch(env={**_places(self._folder), **share(self.percent)}) if self._folder else Launch()

    def enter(self, journal: Journal) -> None:
        """Start the daemon and query its servers; UnsupportedError with its answer if it does not run."""
        if shutil.which(CONTROL) is None:
            raise self._not_here(f"no {CONTROL}")
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        journal.note(self.name, Undo(f"no MPS daemon in {self._folder}", ("mps_quit", str(self._folder))))
        for words, command in ((["-d"], ""), ([], "get_server_list\n")):
            problem = _control(words, command, self._folder)
            if problem:
                raise self._not_here(problem)

    def _not_here(self, evidence: str) -> UnsupportedError:
        return UnsupportedError(
            "E-MPS-1",
            "MPS does not run here",
            evidence=evidence,
            fix="measure without MPS: --sharing time_slicing, no --mode mps=",
        )

    def leave(self, journal: Journal) -> None:
        """Stop the daemon and remove its folder."""
        journal.restore(self.name)
        if self._folder:  # it still exists if the journal could not be written
            shutil.rmtree(self._folder, ignore_errors=True)

    def problem(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return '' if a process with this environment has the share and the daemon's pipe exists."""
        if environ.get(PERCENT) != share(self.percent).get(PERCENT):
            return f"{PERCENT} is {environ.get(PERCENT, 'not set')}"
        pipe = Path(environ.get(PIPE, "")) / "control"
        return "" if pipe.exists() else f"no MPS daemon: {pipe} is not there"

    def evidence(self) -> str:
        """Return the share that CUDA was given, and the daemon's folder."""
        return (
            f"{PERCENT}={os.environ.get(PERCENT, 'not set')}, daemon in {os.environ.get(PIPE, 'no folder')}"
        )

    def features(self) -> Mapping[str, float]:
        """Return the share of the GPU's multiprocessors if it is limited."""
        return {} if self.percent is None else {"gpu_sm_share": self.percent / 100}

    def begin(self) -> None:
        """Note the state of the servers' log at the beginning of a trial."""
        self._known = self._written()

    def _written(self) -> tuple[int, int] | None:
        """Return size and time of the servers' log, or None if there is none."""
        with contextlib.suppress(OSError):
            found = Path(f"{self._folder}/log/server.log").stat()
            return found.st_size, found.st_mtime_ns
        return None

    def dead(self) -> str:
        """Return '' if the daemon still answers and has had a server since `begin`, otherwise its answer."""
        if self._folder is None:
            return "it was never started"
        problem, servers = _answered([], "get_server_list\n", self._folder)
        if problem:
            return "; ".join(filter(None, (problem, _log(self._folder))))
        if servers.strip() or self._written() != self._known:  # a server may end with its last client
            return ""
        return "; ".join(
            filter(None, ("it had no server meanwhile, so it had no client", _log(self._folder)))
        )


def share(percent: float | None) -> dict[str, str]:
    """Return the environment that gives a client `percent` of the GPU's threads; {} for all of them."""
    return {} if percent is None else {PERCENT: f"{percent:g}"}


def _log(folder: Path) -> str:
    """Return the end of the daemon's and its server's logs."""
    lines: list[str] = []
    for name in ("control.log", "server.log"):
        with contextlib.suppress(OSError):
            lines += (folder / "log" / name).read_text(errors="replace").splitlines()[-2:]
    return " | ".join(lines)[-300:]


def _places(folder: Path | None) -> dict[str, str]:
    return {PIPE: str(folder), LOG: f"{folder}/log"}


def _control(words: Sequence[str], command: str, folder: Path) -> str:
    """Run the control program; return '' if it succeeded, otherwise its output."""
    return _answered(words, command, folder)[0]


def _answered(words: Sequence[str], command: str, folder: Path) -> tuple[str, str]:
    """Run the control program with `command` on its stdin; return the problem ('' if none) and its output."""
    try:
        done = subprocess.run(
            [CONTROL, *words],
            input=command,
            env={**os.environ, **_places(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error), ""
    if done.returncode == 0:
        return "", done.stdout
    return " ".join(done.stdout.split())[-300:] or f"it ended with {done.returncode}", done.stdout


def quit_daemon(words: Sequence[str], root: Path = Path("/")) -> str:
    """Stop the daemon whose folder is words[0] and remove the folder; SettingError if it does not stop.

    A daemon that has already ended counts as stopped: after a power cut its pipe still exists, but no process answers.
    """
    folder = Path(words[0])
    if not folder.name.startswith(_PREFIX):
        raise SettingError("E-MODE-4", f"{folder} is no folder of an MPS daemon of edgescope's")
    problem = _control([], "quit\n", folder) if (folder / "control").exists() else ""
    if problem and _GONE not in problem.lower():
        raise SettingError("E-MODE-4", f"the MPS daemon in {folder} was not stopped", evidence=problem)
    if folder.exists():
        shutil.rmtree(folder)
    return ""


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
    from edgescope.modes.catalog import Together  # it knows every mode, this one too

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
