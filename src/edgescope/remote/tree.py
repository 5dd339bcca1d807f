"""A board's /proc and /sys as a folder on the host, so that the same devices read a local machine and a board.

The agent sends the text of the files that describe a board; they are written under a temporary root. A second read
writes into the same files: the devices keep them open, as they do on the machine itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from edgescope import registry
from edgescope.devices import manifest
from edgescope.devices.base import Device
from edgescope.devices.kernel_files import absent
from edgescope.records import Json, Machine

#: Devices that are read from files under a root.
DEVICES = ("cpu", "jetson")
#: Facts of the CPU device that come from system calls, not files: the host's must not pass for the board's.
_STABLE_CALLS, _STATE_CALLS = ("architecture",), ("libc", "affinity")


class Tree:
    """The files of one board under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reported: Mapping[str, Json] = {}

    def write(self, facts: Mapping[str, Json]) -> None:
        """Write the files in the agent's `facts`; remove files that it no longer reports."""
        files = {name: text for name, text in dict(facts.get("files", {})).items() if _inside(name)}
        for name in set(self.reported.get("files", {})) - set(files):
            (self.root / name).unlink(missing_ok=True)
        for name, text in files.items():
            path = self.root / name
            with contextlib.suppress(OSError):  # a name that is a folder in another: no kernel does that
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(text))
        self.reported = {**facts, "files": files}

    def devices(self) -> dict[str, Device]:
        """Return the devices that read this board."""
        known = [name for name in DEVICES if name in registry.DEVICES]
        return {name: registry.load(registry.DEVICES, name, "device")(self.root) for name in known}

    def machine(self, about: Mapping[str, Json]) -> Machine:
        """Return the board as its own edgescope would describe it; `about` says how it was reached.

        Packages, environment, command and git are the host's: they made the artifact and judged the outputs.
        """
        found = manifest.machine(self.devices())
        stable = _with(found.stable, {name: self.reported.get(name) for name in _STABLE_CALLS})
        state = _with(found.state, {name: self.reported.get(name) for name in _STATE_CALLS})
        state = {**state, "agent": dict(about)}
        return Machine(self._as_there(stable), self._as_there(state))

    def _as_there(self, facts: Any) -> Any:
        """Return the facts with the board's own paths in their reasons: the machine's id is a hash of the facts."""
        if isinstance(facts, Mapping):
            return {key: self._as_there(value) for key, value in facts.items()}
        if isinstance(facts, list | tuple):
            return [self._as_there(value) for value in facts]
        return facts.replace(str(self.root), "") if isinstance(facts, str) else facts


def _with(facts: Mapping[str, Any], calls: Mapping[str, Json]) -> dict[str, Any]:
    reported = {name: absent("the agent did not say") if v is None else v for name, v in calls.items()}
    return {**facts, "cpu": {**facts["cpu"], **reported}} if "cpu" in facts else dict(facts)


def _inside(name: object) -> bool:
    """Return whether a path from a board stays under the root: data from the wire is not trusted."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
