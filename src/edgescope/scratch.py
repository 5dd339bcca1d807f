"""Temporary folders that go even where the process that made them is killed.

A trial that is over its time or memory is stopped with SIGKILL and removes nothing itself; where /tmp is memory, that
memory would be gone. So a process started for a trial is told of a folder that its parent removes, and makes its own in
there. TMPDIR is left alone: compilers keep their caches under it.
"""

from __future__ import annotations

import os
import tempfile

VARIABLE = "EDGESCOPE_SCRATCH"


def folder(kind: str) -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary folder named after its kind; OSError where none can be made."""
    parent = os.environ.get(VARIABLE, "")
    inside = parent if os.path.isdir(parent) else None
    return tempfile.TemporaryDirectory(prefix=f"edgescope-{kind}-", dir=inside, ignore_cleanup_errors=True)


def within(parent: str) -> dict[str, str]:
    """Return the environment of a process whose temporary folders `parent` shall hold."""
    return {VARIABLE: parent}
