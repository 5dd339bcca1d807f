"""How nsys is started here: with samples of the GPU's own counters and with scheduling, where it can and may.

Which flag samples the GPU depends on the version (`--gpu-metrics-devices`, before 2024.4 `--gpu-metrics-device`), and
whether it may depends on the driver: on a Jetson, and with RmProfilingAdminOnly, root alone. Asked for `help` as the
device, nsys lists what it can sample and says what stands against it, so nothing is assumed. With a line in sudoers
it samples as root, and the program that it starts still runs as its user (--run-as). Scheduling needs what
`nsys status --environment` checks; asked for without that, nsys 2025.3 hung at the end.

What both answers look like: the lists of the user guide of Nsight Systems 2025 (GPU Metrics, docs.nvidia.com), and
public outputs of `nsys status --environment` of 2024 to 2026. No nsys has been asked by this code yet.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from edgescope.errors import Message, UnavailableError

BASE = ("-t", "cuda,nvtx", "-s", "none", "--force-overwrite=true")
"""Flags of every version and of every user: no samples of the CPU."""
METRICS = ("--gpu-metrics-devices", "--gpu-metrics-device")
"""The flag that samples the GPU's counters, the newest first."""
UNSCHEDULED, SCHEDULED = "--cpuctxsw=none", "--cpuctxsw=process-tree"
RUN_AS = "--run-as"
SUDO = ("sudo", "-n", "-E")
ASKED_S = 30.0
"""Seconds that nsys may take to answer a question."""
ALL = re.compile(r"^\s*all\b", re.MULTILINE)
"""What nsys lists where it can sample a GPU."""
SCHEDULING_OK = re.compile(r"\(process-tree\):\s*OK")


@dataclass(frozen=True)
class Started:
    """How nsys is started, and what of it is missing."""

    program: tuple[str, ...]
    """nsys, behind sudo where that lets it sample."""
    flags: tuple[str, ...]
    notes: tuple[Message, ...] = ()


def path() -> str:
    """Return the path of nsys; UnavailableError if it is not installed."""
    found = shutil.which("nsys")
    if found is None:
        raise UnavailableError(
            "E-PROF-6",
            "nsys is not installed",
            effect="Nothing was measured",
            fix="https://developer.nvidia.com/nsight-systems, or --profiler kineto",
        )
    return found


def here() -> Started:
    """Return how nsys is started by this user; UnavailableError if it is not installed."""
    nsys = path()
    offered = _said([nsys, "profile", "--help"])
    flag = next((name for name in METRICS if name in offered), "")
    if not flag:
        return Started(
            (nsys,), (*BASE, _scheduling((nsys,), offered)), (_missing(nsys, "it has no such flag"),)
        )
    said = ""
    for before in ((), SUDO):
        program = (*before, nsys)
        if before and (os.geteuid() == 0 or RUN_AS not in offered):
            continue
        answer = _said([*program, "profile", f"{flag}=help"])
        if ALL.search(answer):
            user = (f"{RUN_AS}={getpass.getuser()}",) if before else ()
            return Started(program, (*BASE, _scheduling(program, offered), f"{flag}=all", *user))
        said = said or answer
    why = next((line.strip() for line in said.splitlines() if line.strip()), "it did not say why")
    return Started((nsys,), (*BASE, _scheduling((nsys,), offered)), (_missing(nsys, why),))


def _scheduling(program: Sequence[str], offered: str) -> str:
    """Return the flag that records which thread a CPU runs, or the one that does not."""
    may = "--cpuctxsw" in offered and SCHEDULING_OK.search(_said([*program, "status", "--environment"]))
    return SCHEDULED if may else UNSCHEDULED


def _said(command: Sequence[str]) -> str:
    """Return all that a program prints, '' where it cannot be started or does not end."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=ASKED_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout + ended.stderr


def _missing(nsys: str, why: str, user: str = "", whose: str = "") -> Message:
    return Message(
        "I-PROF-9",
        "nsys does not sample the GPU's counters here",
        evidence=why[:160],
        effect="SM active, SM issue and tensor active are missing from the trace",
        fix=f"a line in {whose}/etc/sudoers.d/nsys: {sudoers(user or getpass.getuser(), nsys)}",
    )


def sudoers(user: str, nsys: str) -> str:
    """Return the line of sudoers that lets nsys, and nothing else, sample as root."""
    return f"{user} ALL=(root) NOPASSWD:SETENV: {nsys}"


#: The same questions in the shell of a board: sets N (nsys, maybe behind sudo) and F (flags), and leaves why not in D.
SHELL = f"""\
H=$("$N" profile --help 2>&1); G=; W=; F=
for f in {" ".join(METRICS)}; do case "$H" in *"$f"*) G=$f; break;; esac; done
P="$N"
if [ -n "$G" ]; then
 W=$("$N" profile $G=help 2>&1)
 if echo "$W" | grep -qE '^[[:space:]]*all\\b'; then F="$G=all"; W=
 elif [ "$(id -u)" != 0 ]; then case "$H" in *{RUN_AS}*)
  if {" ".join(SUDO)} "$N" profile $G=help 2>&1 | grep -qE '^[[:space:]]*all\\b'; then
   P="{" ".join(SUDO)} $N"; F="$G=all {RUN_AS}=$(id -un)"; W=
  fi;; esac; fi
else W="it has no such flag"; fi
if [ -n "$W" ]; then (echo "$(id -un)"; echo "$N"; echo "$W") > "$D/unsampled"; fi
if $P status --environment 2>&1 | grep -qE '\\(process-tree\\):[[:space:]]*OK'; then F="$F {SCHEDULED}"
else F="$F {UNSCHEDULED}"; fi
"""


def of_board(left: str) -> Message:
    """Return the note on a board where nothing is sampled, from what SHELL left: user, path, what nsys said."""
    user, nsys, *said = (*left.splitlines(), "", "")
    why = next((line.strip() for line in said if line.strip()), "it did not say why")
    return _missing(nsys, why, user, "the board's ")
