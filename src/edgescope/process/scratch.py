"""Temporary folders that are removed even if the process that made them is killed.

A trial that is over its time or memory is stopped with SIGKILL and removes nothing itself; if /tmp is in memory, that
memory would stay in use. So a process started for a trial gets a folder that its parent removes, and makes its own
folders inside it. TMPDIR is left alone: compilers keep their caches under it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time

VARIABLE = "EDGESCOPE_SCRATCH"
PATIENCE_S = 2.0
"""A process that is about to die may still write into a folder while it is being removed."""


class Folder(tempfile.TemporaryDirectory[str]):
    """A temporary folder; files that cannot be removed after a while stay, without an error."""

    def cleanup(self) -> None:
        """Remove the folder and what is in it."""
        until = time.monotonic() + PATIENCE_S
        super().cleanup()
        while os.path.isdir(self.name) and time.monotonic() < until:
            time.sleep(0.05)
            shutil.rmtree(self.name, ignore_errors=True)


def folder(kind: str) -> Folder:
    """Return a new temporary folder named after its kind; OSError if none can be made."""
    parent = os.environ.get(VARIABLE, "")
    inside = parent if os.path.isdir(parent) else None
    return Folder(prefix=f"edgescope-{kind}-", dir=inside, ignore_cleanup_errors=True)


def within(parent: str) -> dict[str, str]:
    """Return the environment variables that make a process put its temporary folders inside `parent`."""
    return {VARIABLE: parent}
