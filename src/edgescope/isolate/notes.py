"""What the process of a trial notes for later ones: what it has imported, and which files it has prepared.

Those that lead later processes can fork them with the imports done. And what was prepared once, and is still there,
needs no process that prepares: no exporter is loaded to find that out. The process that prepares notes which files of
the cache it opened. The next one of the same question is spared while all of them are as it left them, and what is
installed has not changed. No answer is kept here: the gate, the probes and every check of a run are made in each run.
Should a file be missing all the same, the measuring process makes it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import edgescope
from edgescope import cache, registry
from edgescope.records import Json, Measured, Result, Role, Trial, digest

IMPORTS_FILE = "imports.json"
"""In the folder of a trial that ran: what its process had imported by then."""
_ELSEWHERE = registry.ON
"""Names the board that prepares, with a cache of its own."""
_FREE = Role.EFFORT | Role.REPEAT
"""Fields that nothing is prepared for."""


@dataclass(frozen=True)
class Imports:
    """The modules that a trial's process imported, in order, and the bytes of memory that it took (0: not known)."""

    names: tuple[str, ...]
    took_bytes: float

    def to_json(self) -> dict[str, Json]:
        """Return it as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Imports:
        """Return what `to_json` made; ValueError or KeyError if it did not."""
        names, took = data["names"], data["took_bytes"]
        if not isinstance(names, list | tuple) or not isinstance(took, int | float):
            raise ValueError(f"no imports: {data}")
        return cls(tuple(map(str, names)), float(took))


Imported = tuple[Trial, Imports]
"""A trial, and what a process that ran it, or one of the same program, has imported."""
Noted = Callable[[Trial, Imports], None]
"""Takes note of what the process of a trial imported."""


def unnoted(trial: Trial, found: Imports) -> None:
    """Take no note."""


def kind(trial: Trial) -> str:
    """Return the name of all trials whose processes import the same, but for what reads their data."""
    return " ".join((trial.model, trial.backend, trial.device, trial.workload))


def program(trial: Trial) -> str:
    """Return the name of all trials whose processes take the same, but for the data that they read."""
    return trial.key(~(Role.EFFORT | Role.JUDGING | Role.REPEAT), but=("data", "preprocess"))


def modules() -> list[str]:
    """Return what this process has imported of edgescope and of installed packages, in order."""
    installed = tuple(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    found = [
        name
        for name, module in list(sys.modules.items())
        if name.startswith("edgescope.")
        or (
            name != "__main__"
            and "." not in name
            and (getattr(module, "__file__", None) or "").startswith(installed)
        )
    ]
    return [*found, registry.WORKER_PROGRAM]


def tell(folder: Path, result: Result) -> None:
    """Write what this process has imported into the folder of its trial; harmless if that fails."""
    peak = result.metrics.get("peak_rss_bytes")
    found = Imports(tuple(modules()), peak.value if isinstance(peak, Measured) else 0.0)
    with suppress(OSError):
        (folder / IMPORTS_FILE).write_text(json.dumps(found.to_json()))


def told(folder: Path) -> Imports | None:
    """Return what `tell` wrote into the folder; None if it wrote nothing that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Imports.from_json(json.loads((folder / IMPORTS_FILE).read_text()))
    return None


def files_opened() -> Set[str]:
    """Return the names of all files that this process opens from now on: it prepares, and then ends."""
    found = set[str]()

    def hear(event: str, given: tuple[object, ...]) -> None:
        if event == "open" and isinstance(name := given[0], str | os.PathLike):
            found.add(os.fspath(name))

    sys.addaudithook(hear)
    return found


def note_prepared(trial: Trial, names: Set[str]) -> None:
    """Note that the trial is prepared, by those files of the cache that still are there; harmless if that fails."""
    root = f"{cache.root()}{os.sep}"
    files = {name: _state(name) for name in sorted(names) if name.startswith(root)}
    with suppress(Exception):  # then the next one prepares again
        cache.write_json(_prepared_note(trial), {name: state for name, state in files.items() if state})


def is_prepared(trial: Trial) -> bool:
    """Return whether the trial's files were all there when it was last prepared, and still are."""
    if _ELSEWHERE in os.environ:
        return False
    files = cache.read_json(_prepared_note(trial))
    return isinstance(files, dict) and all(state == _state(name) for name, state in files.items())


def _state(name: str) -> Json:
    """Return the length and the time of a file; [] where there is none."""
    try:
        found = os.stat(name)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _prepared_note(trial: Trial) -> Path:
    asked = [
        trial.key(~_FREE),
        edgescope.__version__,
        sys.version,
        [[path, _state(path)] for path in _installed()],
    ]
    return cache.root() / "prepared" / f"{digest(asked)}.json"


def _installed() -> list[str]:
    """Return the folders of packages: what installs or removes one changes their times."""
    return sorted({path for path in sys.path if path.endswith(("site-packages", "dist-packages"))})
