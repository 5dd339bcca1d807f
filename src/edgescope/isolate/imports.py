"""What the process of a trial imports, told to those that lead later ones: they can be forked with that done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from edgescope import registry
from edgescope.records import Json, Measured, Result, Role, Trial

FILE = "imports.json"
"""In the folder of a trial that ran: what its process had imported by then."""


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
        (folder / FILE).write_text(json.dumps(found.to_json()))


def told(folder: Path) -> Imports | None:
    """Return what `tell` wrote into the folder; None if it wrote nothing that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Imports.from_json(json.loads((folder / FILE).read_text()))
    return None
