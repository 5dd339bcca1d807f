"""What was prepared once, and is still there, needs no process that prepares: no exporter is loaded to find that out.

The process that prepares notes which files of the cache it opened. The next one of the same question is spared while
all of them are as it left them, and what is installed has not changed. No answer is kept here: the gate, the probes and
every check of a run are made in each run. Should a file be missing all the same, the measuring process makes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import edgescope
from edgescope import cache, registry
from edgescope.records import Json, Role, Trial, digest

ELSEWHERE = registry.ON
"""Names the board that prepares, with a cache of its own."""
FREE = Role.EFFORT | Role.REPEAT
"""Fields that nothing is prepared for."""


def opened() -> Set[str]:
    """Return the names of all files that this process opens from now on: it prepares, and then ends."""
    found = set[str]()

    def hear(event: str, given: tuple[object, ...]) -> None:
        if event == "open" and isinstance(name := given[0], str | os.PathLike):
            found.add(os.fspath(name))

    sys.addaudithook(hear)
    return found


def note(trial: Trial, names: Set[str]) -> None:
    """Note that the trial is prepared, by those files of the cache that still are there; harmless if that fails."""
    root = f"{cache.root()}{os.sep}"
    files = {name: _state(name) for name in sorted(names) if name.startswith(root)}
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
