"""List the engines, whether each can be used here, and the options it takes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgescope.commandline import trial_flags

if TYPE_CHECKING:
    from edgescope.backends.base import Usable
    from edgescope.errors import UnavailableError
    from edgescope.registry import Broken


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print every backend; a missing one with the command that installs it; return 0."""
    from edgescope import registry
    from edgescope.backends.base import Usable
    from edgescope.errors import UnavailableError

    rows: list[dict[str, Any]] = []
    for name, entry in registry.BACKENDS.items():
        devices = registry.runs_on(name)
        row: dict[str, Any] = {
            "name": name,
            "summary": entry.summary,
            "devices": list(devices),
            "available": True,
            "options": {},
            "reason": "",
            "fix": "",
            "without": {},
        }
        try:
            backend = registry.load(registry.BACKENDS, name, "backend")
            row["options"] = dict(backend.OPTIONS)
            if isinstance(backend, Usable):
                row["without"] = _without(backend, devices)
        except UnavailableError as error:
            row |= {"available": False, **_why(error)}
        if len(row["without"]) == len(devices):  # it works on none
            row |= {"available": False, **next(iter(row["without"].values()))}
        rows.append(row)
    rows += [_broken(found) for found in registry.BACKENDS.broken]
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    from edgescope.report.render import terminal

    cells = [
        (
            row["name"],
            _here(row) if row["available"] else f"no: {row['reason']}; {row['fix']}",
            row["summary"],
            ", ".join(row["devices"]),
            "\n".join(f"{key}: {text}" for key, text in row["options"].items()),
        )
        for row in rows
    ]
    terminal.table(("backend", "here", "what", "on", "options"), cells, below=("options",))
    return 0


def _here(row: Mapping[str, Any]) -> str:
    return f"yes, not on {', '.join(row['without'])}" if row.get("without") else "yes"


def _why(error: UnavailableError) -> dict[str, str]:
    return {"reason": error.evidence or error.what, "fix": error.fix}


def _without(backend: Usable, devices: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return device -> reason and fix, of the devices on which the engine does not work here."""
    from edgescope.errors import UnavailableError

    found = {}
    for device in devices:
        try:
            backend.usable(device)
        except UnavailableError as error:
            found[device] = _why(error)
    return found


def _broken(found: Broken) -> dict[str, Any]:
    """Return the row of a plug-in whose backend cannot be loaded."""
    from edgescope.registry import unusable

    problem = unusable(found, "backend")
    row = {
        "name": found.name,
        "summary": problem.what,
        "devices": [],
        "available": False,
        "options": {},
        "without": {},
    }
    return row | {"reason": problem.evidence, "fix": problem.fix}
