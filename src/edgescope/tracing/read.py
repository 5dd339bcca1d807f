"""A profiler's file as a Trace: each format is asked whether it knows the file by its content."""

from __future__ import annotations

from pathlib import Path

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.records import Trace
from edgescope.tracing.importer import Importer

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
        fix=remedy(path, head),
    )


#: What begins a file, or ends its name, of a program that keeps a format of its own -> how it is made readable.
REMEDIES: tuple[tuple[str, tuple[bytes, ...], tuple[str, ...]], ...] = (
    ("nsys export --type sqlite {}", (b"QDSTRM",), (".nsys-rep", ".qdrep", ".qdstrm")),
    ("ncu --import {} --csv --page raw > kernels.csv", (b"NVR\0",), (".ncu-rep", ".nsight-cuprof-report")),
    (
        "nsys profile -o report PROGRAM, then nsys export --type sqlite of it: nvprof's own output is not read",
        (b'"Type","Time(%)"', b'"Start","Duration"', b"NVPROF"),
        (".nvvp", ".nvprof"),
    ),
    (
        "perf script -i {} -F comm,tid,pid,cpu,time,event,trace --ns > sched.txt",
        (b"PERFILE2",),
        (".perf.data",),
    ),
    (
        "benchmark_app -report_type detailed_counters: this report of it has no layers",
        (b'"cmd_options"', b"Command line parameters\n"),
        (),
    ),
)


def remedy(path: Path, head: bytes) -> str:
    """Return the command that makes a file readable that is in a profiler's own format."""
    for words, begins, ends in REMEDIES:
        if path.name.lower().endswith(ends) or any(begin in head for begin in begins):
            return words.format(path.name)
    return "an export that is read: nsys export --type sqlite, export_chrome_trace (edgescope docs profiling)"


def _head(path: Path) -> bytes:
    """Return how the file begins, below the lines that Nsight Compute writes of itself, one for each kernel."""
    with path.open("rb") as file:
        line = file.readline(HEAD_BYTES)
        while line.startswith(b"=="):
            line = file.readline(HEAD_BYTES)
        return line + file.read(HEAD_BYTES - len(line))
