"""What a trial may set on an NVIDIA GPU: a lower power limit of the board, and a share of the GPU through CUDA's MPS.

`--mode gpu_power=200` asks the driver for 200 W, through nvidia-smi and only with --allow-power-limit, on the GPU that
CUDA calls 0, the first in CUDA_VISIBLE_DEVICES. With several GPUs CUDA numbers them as the driver does only under
CUDA_DEVICE_ORDER=PCI_BUS_ID, so no other order is accepted. It needs root. A Jetson has no such limit: its power modes
cap clocks.

`--mode mps=50` starts a control daemon of the Multi-Process Service (docs.nvidia.com/deploy/mps) with its own folders,
so it does not affect other users, and gives the trial's process half of the threads
(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE). No table says where MPS works: Tegra boards differ by release. So the daemon is
started and queried, and its answer decides.

`--sharing mps` has the workers of a trial share the device through it. The process that starts the trial enters the
daemon like a mode and notes it in the same journal. After the trial it checks that the daemon still runs and had a
server: a daemon that died, or that had no client, shared nothing, and the numbers would carry the wrong label.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgescope.devices.base import Journal, Mode, Undo
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.process import Launch
from edgescope.records import Result, Status, Trial

ALLOWED = "EDGESCOPE_ALLOW_POWER_LIMIT"
_SMI = "nvidia-smi"
_LIMIT_S = 20
#: nvidia-smi prints the limit with two decimals; the driver rounds to whole milliwatts.
_SLACK_W = 0.51


class GpuPower(Mode):
    """A lower power limit on one GPU, in watts."""

    def __init__(self, watts: float) -> None:
        self.watts = watts

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return f"gpu_power={self.watts:g}"

    def enter(self, journal: Journal) -> None:
        """Lower the limit; UsageError without the user's permission, UnsupportedError if there is no limit to set."""
        if os.environ.get(ALLOWED) != "1":
            raise UsageError(
                "E-MODE-7", "the power limit is left alone unless you say so", fix="--allow-power-limit"
            )
        index = board()
        now, lowest, highest = _limits(index)
        if not lowest <= self.watts <= highest:
            raise UsageError(
                "E-MODE-8",
                f"{self.watts:g} W is not a limit this GPU takes",
                evidence=f"{lowest:g} to {highest:g} W",
            )
        words = ("gpu_power", str(index), f"{now:g}")
        journal.note(self.name, Undo(f"GPU {index} power limit {now:g} W", words))
        put_limit((str(index), f"{self.watts:g}"))
        problem = self.problem()
        if problem:
            raise SettingError(
                "E-MODE-2", "mode change not in effect", evidence=problem, effect="Nothing was measured"
            )

    def problem(self) -> str:
        """Return '' if the driver reports the limit, else the limit that it reports."""
        now = _limits(board())[0]
        return "" if abs(now - self.watts) < _SLACK_W else f"nvidia-smi says power.limit {now:g} W"

    def evidence(self) -> str:
        """Return the power limit that the driver reports."""
        index = board()
        return f"nvidia-smi -i {index}: power.limit {_limits(index)[0]:g} W"

    def features(self) -> Mapping[str, float]:
        """Return the power limit in watts."""
        return {"gpu_power_w": self.watts}


def board(environ: Mapping[str, str] = os.environ) -> int:
    """Return the driver's number for the GPU that CUDA calls 0; UsageError E-MODE-13 if it cannot be known."""
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    first = visible.split(",")[0].strip() or "0"
    known = re.fullmatch("[0-9]{1,3}", first, re.ASCII) is not None
    why = "" if known else f"CUDA_VISIBLE_DEVICES={visible}"
    order = environ.get("CUDA_DEVICE_ORDER", "")
    if known and order != "PCI_BUS_ID":
        gpus = sum(line.startswith("GPU ") for line in _smi("-L").splitlines())
        why = f"{gpus} GPUs, CUDA_DEVICE_ORDER={order or 'not set'}" if gpus > 1 else ""
    if why:
        raise UsageError(
            "E-MODE-13",
            "it is not known which GPU's power limit to set",
            evidence=why,
            fix="CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 edgescope ...",
        )
    return int(first)


def _limits(index: int) -> tuple[float, float, float]:
    """Return the present, the lowest and the highest allowed limit in watts."""
    query = "--query-gpu=power.limit,power.min_limit,power.max_limit"
    text = _smi("-i", str(index), query, "--format=csv,noheader,nounits")
    try:
        now, lowest, highest = (float(word) for word in text.split(","))
    except ValueError as error:  # [N/A] if a board has none
        raise UnsupportedError(
            "E-MODE-9", f"GPU {index} has no power limit", evidence=text.strip()[:100]
        ) from error
    return now, lowest, highest


def put_limit(words: Sequence[str], root: Path = Path("/")) -> str:
    """Set the limit of GPU words[0] to words[1] watts, unless it is that already."""
    index, watts = words
    if abs(_limits(int(index))[0] - float(watts)) < _SLACK_W:
        return ""
    return _smi("-i", index, "-pl", watts)


def _smi(*words: str) -> str:
    try:
        done = subprocess.run(
            [_SMI, *words], capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnsupportedError(
            "E-MODE-9", "there is no power limit to set here", evidence=str(error)
        ) from error
    if done.returncode:
        text = " ".join((done.stdout + done.stderr).split())[-300:]
        raise SettingError(
            "E-MODE-4", f"nvidia-smi {' '.join(words)} failed", evidence=text, fix="run as root"
        )
    return done.stdout


CONTROL = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
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


def require_mps(trial: Trial, environ: Mapping[str, str]) -> None:
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
