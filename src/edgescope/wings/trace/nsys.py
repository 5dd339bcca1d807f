"""Nsight Systems as a tracer: it starts the process, records what cudaProfilerStart and Stop bound, and exports it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgescope.errors import UnavailableError
from edgescope.process import Launch
from edgescope.records import Spans
from edgescope.wings.trace import clock_marks
from edgescope.wings.trace.importers import nsys

REPORT = "report"
#: CPU sampling and context switches need rights that few users have; with them nsys 2025.3 hung at the end.
FLAGS = ("-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--force-overwrite=true")
RANGE = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")


class NsysTracer:
    """Owns the process that it profiles."""

    def launch(self, folder: Path) -> Launch:
        """Return a launch under `nsys profile`; UnavailableError if nsys is not installed."""
        return Launch((_nsys(), "profile", *FLAGS, *RANGE, "-o", str(folder / REPORT)))

    @contextmanager
    def window(self, folder: Path) -> Iterator[None]:
        """Record within the block, with a mark of the clock at both ends."""
        cuda: Any = importlib.import_module("torch.cuda")
        cuda.cudart().cudaProfilerStart()
        _mark()
        try:
            yield
        finally:
            _mark()
            cuda.cudart().cudaProfilerStop()

    def spans(self, folder: Path) -> Spans:
        """Return the spans on the queries' clock."""
        target = folder / f"{REPORT}.sqlite"
        report = next(p for p in folder.iterdir() if p.suffix in (".nsys-rep", ".qdrep"))
        command = [_nsys(), "export", "--type", "sqlite", "-o", str(target), str(report)]
        subprocess.run(command, check=True, capture_output=True)
        return clock_marks.aligned(nsys.read(target)).spans


def _mark() -> None:
    nvtx: Any = importlib.import_module("torch.cuda.nvtx")
    for _ in range(clock_marks.TIMES):
        nvtx.range_push(clock_marks.name())
        nvtx.range_pop()


def _nsys() -> str:
    found = shutil.which("nsys")
    if found is None:
        raise UnavailableError(
            "E-PROF-6",
            "nsys is not installed",
            effect="Nothing was measured",
            fix="https://developer.nvidia.com/nsight-systems, or --profiler kineto",
        )
    return found
