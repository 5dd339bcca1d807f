"""Write a recording to disk, whole or not at all, with results that do not name their owner."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope.devices.kernel_files import fact, is_absent
from edgescope.devices.replay import device
from edgescope.devices.replay import format as recording
from edgescope.devices.replay.format import Recording
from edgescope.errors import StoreError, UsageError
from edgescope.records import Json, Machine, Result
from edgescope.store import results as store
from edgescope.store import whole_file
from edgescope.wings.record.capture import Plan

MAX_SECONDS, MAX_HZ = 3600.0, 50.0
_NAMING = re.compile(r"hostname|serial|uuid|mac_address|^environment$|^command$|^git$")
"""Facts of a machine's state that name it or its owner, or show other activity."""
_SERIAL_END = re.compile(r" #\w+$")
"""The end of the serial number, which devices.cpu.facts appends to a Jetson's name."""


def plan(output: str, seconds: float, hz: float, results: str | None) -> Plan:
    """Return the plan for these flags; UsageError if they are not valid."""
    if device.played():
        raise UsageError(
            "E-REC-8", "a recording cannot be recorded", fix="leave out --board, and unset EDGESCOPE_BOARD"
        )
    if not (0 < seconds <= MAX_SECONDS and 0 < hz <= MAX_HZ):
        raise UsageError(
            "E-REC-3",
            f"{seconds:g} s at {hz:g} Hz cannot be recorded",
            evidence=f"up to {MAX_SECONDS:.0f} s and {MAX_HZ:.0f} Hz",
        )
    if not output.endswith(".zip" if results else (recording.SUFFIX, ".zip")):
        raise UsageError(
            "E-REC-4",
            f"{output!r} cannot be the recording's name",
            fix="-o NAME.zip (with --results), or -o NAME.board.jsonl",
        )
    if results and not Path(results).is_dir():
        raise UsageError("E-REC-5", f"there is no store at {results!r}", fix="--results DIR")
    return Plan(seconds, hz)


def board_name(root: Path = Path("/")) -> str:
    """Return the model's name as the device tree or the firmware prints it."""
    for path in ("proc/device-tree/model", "sys/class/dmi/id/product_name"):
        name = fact(root / path, lambda text: text.strip("\0 \n"))
        if not is_absent(name) and name:
            return str(name)
    return "unnamed board"


def write(what: Recording, output: Path, results: Path | None = None) -> int:
    """Write the recording, with the results of a store if one is given; return its size in bytes."""
    try:
        with whole_file.written(output) as file:
            if output.suffix == ".zip":
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr(recording.MEMBER, "".join(recording.lines(what)))
                    if results:
                        _add_results(results, archive)
            else:
                file.writelines(line.encode() for line in recording.lines(what))
    except OSError as error:
        raise StoreError(
            "E-REC-6", f"{output} cannot be written", evidence=str(error), fix="-o FILE in another folder"
        ) from error
    return output.stat().st_size


def _add_results(root: Path, archive: zipfile.ZipFile) -> None:
    """Add every readable result, without its owner's name, as a store below results/."""
    where = store.Store(root)
    for result in where.fulls(where.results()):
        bare = nameless(result)
        folder = Path(tempfile.mkdtemp(prefix="edgescope-record-"))
        try:
            store.write(bare, folder)
            for path in sorted(folder.iterdir()):
                archive.write(path, f"results/{bare.machine.id}/{bare.id}/{path.name}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def nameless(result: Result) -> Result:
    """Return the result without host name, serial numbers, environment and command line.

    Where the end of a serial number was part of the machine's name its id changes: two boards of one kind then
    look like one machine.
    """
    where = result.machine
    return replace(result, machine=Machine(_without(where.stable), _without(where.state)))


def _without(value: Json) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _left_out() if _NAMING.search(str(key)) else _without(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(item) for item in value]
    return _SERIAL_END.sub("", value) if isinstance(value, str) else value


def _left_out() -> dict[str, str]:
    return {"absent": "left out of the recording"}
