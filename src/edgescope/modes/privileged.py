"""Makes one change: with the helper's own code if this process may, otherwise through sudo.

A change is a few words (`nvpmodel -m 1`, `write FILE VALUE`): short enough for a journal line, and the same whether
it is made here, by the installed helper, or replayed after a crash.

The helper makes no control group: root would have to put it where the user's own limits (memory, processes) no longer
hold. A group of our own limits CPU time (v2, or v1 as on JetPack 4), if this process may make one. See
Documentation/admin-guide/cgroup-v2.rst (cpu.max) and cgroup-v1 (cpu.cfs_*).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from edgescope import registry
from edgescope.devices.kernel_files import fact
from edgescope.errors import SettingError
from edgescope.modes import gpu, helper

HELPER = Path("/usr/local/sbin/edgescope-helper")
_SUDO_S = 60
PERIOD_US = 100_000
_GROUP = r"edgescope-[0-9]{1,10}(-[0-9]{1,4})?"
_GROUP_REQUESTS = (
    ("set", _GROUP, r"[1-9][0-9]{3,8}"),
    ("join", _GROUP, r"[1-9][0-9]{0,9}"),
    ("remove", _GROUP),
)
"""The requests that `change_group` accepts, one pattern for each word: set a quota in microseconds, join, remove."""
_DYING_TRIES = 60


class Check(Protocol):
    """Whether a change is in effect, for a program whose exit status does not tell: functions of a board's module."""

    def is_so(self, request: Sequence[str], root: Path) -> bool:
        """Return whether the setting already has the requested value, also after the next boot."""

    def read_back(self, request: Sequence[str], output: str, root: Path) -> None:
        """Raise SettingError unless the change, after which the program printed `output`, is in effect."""


class _Plain:
    """What fails where it does not do what it is told: a file of the kernel, jetson_clocks."""

    def is_so(self, request: Sequence[str], root: Path) -> bool:
        return request[0] == "write" and bool(fact(root / request[1].lstrip("/")) == request[2])

    def read_back(self, request: Sequence[str], output: str, root: Path) -> None:
        pass


def act(request: Sequence[str], root: Path = Path("/")) -> str:
    """Make the change on the machine under `root`; return the program's output; SettingError if it failed.

    A power mode is read back by its board's own check (registry.CHECKS), without which nothing is changed. A setting
    that already has the value is not set again, so that undoing a change that was never made needs no rights.
    """
    try:
        if request and request[0] in OWN:
            return OWN[request[0]](request[1:], root)
        verb = helper.checked(request)[0]
        check: Check = registry.need(registry.CHECKS[verb], verb, "") if verb in registry.CHECKS else _Plain()
        if check.is_so(request, root):
            return ""
        text = perform(request, root)
    except (helper.Refused, OSError, subprocess.SubprocessError, LookupError, ValueError) as error:
        raise SettingError(
            "E-MODE-4",
            f"the change was not made: {' '.join(request)}",
            evidence=str(error),
            fix="edgescope modes --install-helper"
            if isinstance(error, PermissionError) and request[0] not in OWN
            else "",
        ) from error
    check.read_back(request, text, root)
    return text


def perform(request: Sequence[str], root: Path) -> str:
    """Make the change in this process if it may, otherwise through the installed helper."""
    program = request[0] in helper.PROGRAMS
    if root != Path("/") or os.geteuid() == 0:
        return helper.perform(request, str(root))
    if not program:
        try:
            return helper.perform(request, str(root))
        except PermissionError:
            pass
    if not HELPER.is_file():
        raise PermissionError(1, f"this needs root, and {HELPER} is not installed")
    done = subprocess.run(
        ["sudo", "-n", str(HELPER), *request],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SUDO_S,
        check=False,
    )
    if done.returncode:
        text = " ".join(done.stderr.split())[-300:] or f"sudo ended with {done.returncode}"
        raise OSError(text) if text.startswith("edgescope-helper:") else PermissionError(1, text)
    return done.stdout


def cgroup_base(root: Path) -> Path:
    """Return the folder of the hierarchy that limits CPU time; OSError if there is none."""
    top = root / "sys/fs/cgroup"
    if (top / "cgroup.controllers").exists():
        return top
    for name in ("cpu", "cpu,cpuacct"):
        if (top / name / "cgroup.procs").exists():
            return top / name
    raise FileNotFoundError(errno.ENOENT, "no control group can limit CPU time", str(top))


def free_group(base: Path) -> str:
    """Return an unused group name with this process's id; one process may hold several quotas."""
    first = f"edgescope-{os.getpid()}"
    names = (first, *(f"{first}-{n}" for n in range(1, 10_000)))
    return next(name for name in names if not (base / name).exists())


def change_group(words: Sequence[str], root: Path = Path("/")) -> str:
    """Make, enter or remove a group; SettingError for any other request, OSError if it is not permitted."""
    if not any(
        len(row) == len(words) and all(re.fullmatch(p, w, re.ASCII) for p, w in zip(row, words, strict=True))
        for row in _GROUP_REQUESTS
    ):
        raise SettingError("E-MODE-4", f"{ascii(list(words))[:200]} is no request for a control group")
    folder = cgroup_base(root) / words[1]
    if words[0] == "set":
        _limit_group(folder, words[2])
    elif words[0] == "join":
        (folder / "cgroup.procs").write_text(words[2])
    elif folder.is_dir():
        _remove_group(folder)
    return ""


#: Changes that the helper does not make: they need no root, or must not be possible without a password.
OWN: Mapping[str, Callable[[Sequence[str], Path], str]] = {
    "quota": change_group,
    "mps_quit": gpu.quit_daemon,
    "gpu_power": gpu.put_limit,
}


def _limit_group(folder: Path, quota_us: str) -> None:
    v2 = (folder.parent / "cgroup.controllers").exists()
    if v2:
        (folder.parent / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir(mode=0o755, exist_ok=True)
    if v2:
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(quota_us)


def _remove_group(folder: Path) -> None:
    """Remove a group; processes that were just killed may still be in it for a moment."""
    for _ in range(_DYING_TRIES):
        try:
            return folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.05)
    folder.rmdir()
