"""What was prepared once, and is still there, needs no process that prepares: no exporter is loaded to find that out.

The process that prepares notes which files of the cache it opened. The next one of the same question is spared while
all of them are as it left them, and what is installed has not changed. No answer is kept here: the gate, the probes and
every check of a run are made in each run. Should a file be missing all the same, the measuring process makes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import edgescope
from edgescope import cache
from edgescope.records import Json, Role, Trial, digest

ELSEWHERE = "EDGESCOPE_ON"
"""Names the board that prepares, with a cache of its own."""
FREE = Role.EFFORT | Role.REPEAT
"""Fields that nothing is prepared for."""


@dataclass
class Note:
    """What a process prepares; `whole` once all of it is there."""

    whole: bool = False


@contextmanager
def noting(trial: Trial) -> Iterator[Note]:
    """Note which files of the cache this process opens in the block, if it says that all of them are whole."""
    root, opened = f"{cache.root()}{os.sep}", set[str]()

    def hear(event: str, given: tuple[object, ...]) -> None:
        if event == "open" and isinstance(name := given[0], str | os.PathLike):
            opened.add(os.fspath(name))  # a hook stays to the end of its process, which prepares and ends

    sys.addaudithook(hear)
    note = Note()
    yield note
    if not note.whole:
        return
    files = {name: _state(name) for name in sorted(opened) if name.startswith(root)}
    with suppress(Exception):  # then the next one prepares again
        cache.write_json(_note(trial), {name: state for name, state in files.items() if state})


def known(trial: Trial) -> bool:
    """Return whether the trial's files were all there when it was last prepared, and still are."""
    if ELSEWHERE in os.environ:
        return False
    files = cache.read_json(_note(trial))
    return isinstance(files, dict) and all(state == _state(name) for name, state in files.items())


def _state(name: str) -> Json:
    """Return the length and the time of a file; [] where there is none."""
    try:
        found = os.stat(name)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _note(trial: Trial) -> Path:
    asked = [
        trial.key(~FREE),
        edgescope.__version__,
        sys.version,
        [[path, _state(path)] for path in _installed()],
    ]
    return cache.root() / "prepared" / f"{digest(asked)}.json"


def _installed() -> list[str]:
    """Return the folders of packages: what installs or removes one changes their times."""
    return sorted({path for path in sys.path if path.endswith(("site-packages", "dist-packages"))})
