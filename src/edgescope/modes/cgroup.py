"""A control group of our own that limits CPU time (v2, or v1 as on JetPack 4), if this process may make one.

The privileged helper makes none: root would have to put the group where the user's own limits (memory, processes) no
longer hold. See Documentation/admin-guide/cgroup-v2.rst (cpu.max) and cgroup-v1 (cpu.cfs_*).
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.errors import SettingError

PERIOD_US = 100_000
_GROUP = r"edgescope-[0-9]{1,10}(-[0-9]{1,4})?"
REQUESTS = (("set", _GROUP, r"[1-9][0-9]{3,8}"), ("join", _GROUP, r"[1-9][0-9]{0,9}"), ("remove", _GROUP))
"""The requests that `perform` accepts, one pattern for each word: set a quota in microseconds, join, remove."""
_DYING_TRIES = 60


def base(root: Path) -> Path:
    """Return the folder of the hierarchy that limits CPU time; OSError if there is none."""
    top = root / "sys/fs/cgroup"
    if (top / "cgroup.controllers").exists():
        return top
    for name in ("cpu", "cpu,cpuacct"):
        if (top / name / "cgroup.procs").exists():
            return top / name
    raise FileNotFoundError(errno.ENOENT, "no control group can limit CPU time", str(top))


def free(base: Path) -> str:
    """Return an unused group name with this process's id; one process may hold several quotas."""
    first = f"edgescope-{os.getpid()}"
    names = (first, *(f"{first}-{n}" for n in range(1, 10_000)))
    return next(name for name in names if not (base / name).exists())


def perform(words: Sequence[str], root: Path = Path("/")) -> str:
    """Make, enter or remove a group; SettingError for any other request, OSError if it is not permitted."""
    if not any(
        len(row) == len(words) and all(re.fullmatch(p, w, re.ASCII) for p, w in zip(row, words, strict=True))
        for row in REQUESTS
    ):
        raise SettingError("E-MODE-4", f"{ascii(list(words))[:200]} is no request for a control group")
    folder = base(root) / words[1]
    if words[0] == "set":
        _set(folder, words[2])
    elif words[0] == "join":
        (folder / "cgroup.procs").write_text(words[2])
    elif folder.is_dir():
        _remove(folder)
    return ""


def _set(folder: Path, quota_us: str) -> None:
    v2 = (folder.parent / "cgroup.controllers").exists()
    if v2:
        (folder.parent / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir(mode=0o755, exist_ok=True)
    if v2:
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(quota_us)


def _remove(folder: Path) -> None:
    """Remove a group; processes that were just killed may still be in it for a moment."""
    for _ in range(_DYING_TRIES):
        try:
            return folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.05)
    folder.rmdir()
