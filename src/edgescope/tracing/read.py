"""A profiler's file as a Trace: each format is asked whether it knows the file by its content."""

from __future__ import annotations

from pathlib import Path

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.records import Trace
from edgescope.tracing.importers.base import Importer

HEAD_BYTES = 4096


def read(path: Path | str, kind: str = "") -> Trace:
    """Return what a profiler's file holds; `kind` names its format if the content does not tell.

    Raises UsageError if no importer knows the file, or if there is nothing in it.
    """
    path = Path(path)
    try:
        head = _head(path)
    except OSError as error:
        raise UsageError(
            "E-PROF-2",
            f"{path} cannot be read",
            evidence=str(error),
            fix="edgescope trace FILE, the path of an export",
        ) from error
    for name in [kind] if kind else registry.IMPORTERS:
        importer: Importer = registry.load(registry.IMPORTERS, name, "importer")
        if kind or importer.knows(path, head):
            return importer.read(path)
    raise UsageError(
        "E-PROF-3",
        f"{path.name} is in no format that edgescope reads",
        evidence=f"it begins with {head[:40]!r}; known: {', '.join(registry.IMPORTERS)}",
        effect="Nothing was imported",
        fix="for a .nsys-rep file: nsys export --type sqlite FILE.nsys-rep",
    )


def known(name: str) -> bool:
    """Return whether a name is that of a file in a format that edgescope reads."""
    path = Path(name)
    if not path.is_file():
        return False
    head = _head(path)
    members = (registry.load(registry.IMPORTERS, n, "importer") for n in registry.IMPORTERS)
    return any(member.knows(path, head) for member in members)


def _head(path: Path) -> bytes:
    """Return how the file begins, below the lines that Nsight Compute writes of itself, one for each kernel."""
    with path.open("rb") as file:
        line = file.readline(HEAD_BYTES)
        while line.startswith(b"=="):
            line = file.readline(HEAD_BYTES)
        return line + file.read(HEAD_BYTES - len(line))
