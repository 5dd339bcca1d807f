"""Limits how fast this process and its loader's workers read a disk: cgroup v2's io.max, where this process may.

Against the delays of medium.py the kernel throttles every read, metadata and read-ahead too. It bounds
bytes and reads a second only: the wait of a single read stays the disk's own. Source: admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgescope.errors import UnsupportedError
from edgescope.wings.training.medium import Medium

DYING_TRIES = 60


@contextmanager
def limited(folder: Path, medium: Medium, root: Path = Path("/")) -> Iterator[str]:
    """Let this process and those that it starts read a folder's disk as slowly as a medium; yield the limit.

    UnsupportedError if this process may set no such limit, or the folder lies on no disk.
    """
    groups, pid = root / "sys/fs/cgroup", os.getpid()
    group = groups / f"edgescope-io-{pid}"
    try:
        limit = f"{disk(folder, root)} rbps={round(medium.bytes_s)} riops={round(medium.depth / medium.latency_s)}"
        before = _group_of(root)
        if before.startswith("edgescope-"):
            raise OSError(errno.EBUSY, "a mode's own group holds this process, and would lose it", before)
        if "io" not in (groups / "cgroup.controllers").read_text().split():
            raise OSError(
                errno.ENOTSUP, "the kernel limits no reads here", str(groups / "cgroup.controllers")
            )
        (groups / "cgroup.subtree_control").write_text("+io")
        group.mkdir(exist_ok=True)
        (group / "io.max").write_text(limit)
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        _remove(group)
        raise UnsupportedError(
            "E-MEDIUM-1",
            "the reads of a folder cannot be limited by a control group here",
            evidence=str(error),
            effect="Nothing was measured",
            fix="--workload-option medium_by=delay",
        ) from error
    try:
        yield limit
    finally:
        with contextlib.suppress(OSError):
            (groups / before / "cgroup.procs").write_text(str(pid))
        _remove(group)


def disk(folder: Path, root: Path = Path("/")) -> str:
    """Return the number of the whole disk that a folder lies on, as `8:0`; OSError if it lies on none."""
    number = folder.stat().st_dev
    block = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not block.exists():
        raise OSError(errno.ENODEV, "the folder lies on no disk", str(folder))
    whole = block.resolve().parent if (block / "partition").exists() else block
    return (whole / "dev").read_text().strip()


def _group_of(root: Path) -> str:
    """Return the control group of this process, below the top."""
    rows = (root / "proc/self/cgroup").read_text().splitlines()
    return next((row.removeprefix("0::").strip("/") for row in rows if row.startswith("0::")), "")


def _remove(group: Path) -> None:
    """Remove a group; workers that were just ended may still be in it for a moment."""
    for _ in range(DYING_TRIES):
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        time.sleep(0.05)
