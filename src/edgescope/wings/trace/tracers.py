"""Profilers as tracers: torch.profiler, Nsight Systems, and the engine's own profile, each for one window.

torch.profiler sees operators of PyTorch, and with a GPU every CUDA call, kernel and copy of the process. nsys starts
the process and records what cudaProfilerStart and Stop bound. ONNX Runtime's nodes and OpenVINO's layers need nothing
installed, but the engine has to be asked when its session is made: the launch sets a variable that the backends read.

A mark of the queries' clock lays a profiler's trace and the queries on one axis. It is a range whose name holds the
monotonic time just before its start. A busy machine may delay the start, so there are TIMES marks at each end of a
window and the least delayed counts; the two ends show how far the clocks drift.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.backends.base import PROFILE
from edgescope.errors import Message, UnsupportedError
from edgescope.process import Launch
from edgescope.records import CLOCK_MARK, Readings, Spans, Trace
from edgescope.wings.trace import nsys_run
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.importers import kineto, nsys

TORCH_FILE = "kineto.json"


class KinetoTracer:
    """Records from inside the process; needs torch there, whatever the engine is."""

    def launch(self, folder: Path) -> Launch:
        """Return an empty launch: nothing is needed before the process starts."""
        return Launch()

    @contextmanager
    def window(self, folder: Path) -> Iterator[None]:
        """Record within the block, then write the trace."""
        from torch import cuda, profiler

        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if cuda.is_available() else []
        # acc_events would make a Python object of every event when the block ends, which only `events()` needs
        recorded = profiler.profile(activities=kinds)
        with recorded:
            _mark_torch(profiler)
            yield
            _mark_torch(profiler)
        recorded.export_chrome_trace(str(folder / TORCH_FILE))

    def spans(self, folder: Path) -> Spans:
        """Return the spans on the queries' clock."""
        return aligned(kineto.read(folder / TORCH_FILE)).spans


def _mark_torch(profiler: Any) -> None:
    for _ in range(TIMES):
        with profiler.record_function(clock_mark()):
            pass


WINDOW = "window.json"


class EngineTracer:
    """Reads the profile that the backend's session leaves in the folder when it is closed."""

    def launch(self, folder: Path) -> Launch:
        """Return a launch whose variable makes the backend profile into the folder."""
        return Launch(env={PROFILE: str(folder)})

    @contextmanager
    def window(self, folder: Path) -> Iterator[None]:
        """Note when the window was, on the queries' clock and on the time of day, which engines use."""
        begin = (time.monotonic_ns(), time.time_ns())
        yield
        (folder / WINDOW).write_text(
            json.dumps({"begin": begin, "end": (time.monotonic_ns(), time.time_ns())})
        )

    def spans(self, folder: Path) -> Spans:
        """Return the spans within the window; layers without times of their own lie end to end from 0 on."""
        files = sorted(p for p in folder.iterdir() if p.name.startswith("engine"))
        if not files:
            raise UnsupportedError("E-PROF-5", "this engine wrote no profile of its own")
        clock = json.loads((folder / WINDOW).read_text())
        parts = [_placed(path, clock) for path in files if not path.name.endswith(".start")]
        return Spans.joined(parts)


def _placed(path: Path, clock: dict[str, list[int]]) -> Spans:
    (begin, epoch), (end, _) = clock["begin"], clock["end"]
    trace, start = read(path), path.with_name(path.name + ".start")
    if not trace.timed:
        return trace.spans
    shift = int(start.read_text()) - epoch + begin if start.exists() else 0
    spans = trace.spans.moved(shift)
    inside = (spans.columns["start_ns"] >= begin) & (spans.columns["end_ns"] <= end)
    return spans.where(np.asarray(inside))


REPORT = "report"
RANGE = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")


class NsysTracer:
    """Owns the process that it profiles."""

    def launch(self, folder: Path) -> Launch:
        """Return a launch under `nsys profile`; UnavailableError if nsys is not installed."""
        started = nsys_run.here()
        return Launch((*started.program, "profile", *started.flags, *RANGE, "-o", str(folder / REPORT)))

    @contextmanager
    def window(self, folder: Path) -> Iterator[None]:
        """Record within the block, with a mark of the clock at both ends."""
        cuda: Any = importlib.import_module("torch.cuda")
        cuda.cudart().cudaProfilerStart()
        _mark_nvtx()
        try:
            yield
        finally:
            _mark_nvtx()
            cuda.cudart().cudaProfilerStop()

    def spans(self, folder: Path) -> Spans:
        """Return the spans on the queries' clock."""
        return self._trace(folder).spans

    def readings(self, folder: Path) -> Readings | None:
        """Return the samples of the GPU's counters on the queries' clock; None where none were taken."""
        return self._trace(folder).samples

    def _trace(self, folder: Path) -> Trace:
        target = folder / f"{REPORT}.sqlite"
        if not target.exists():
            report = next(p for p in folder.iterdir() if p.suffix in (".nsys-rep", ".qdrep"))
            command = [nsys_run.path(), "export", "--type", "sqlite", "-o", str(target), str(report)]
            subprocess.run(command, check=True, capture_output=True)
        return aligned(nsys.read(target))


def _mark_nvtx() -> None:
    nvtx: Any = importlib.import_module("torch.cuda.nvtx")
    for _ in range(TIMES):
        nvtx.range_push(clock_mark())
        nvtx.range_pop()


TIMES = 5
#: Drift between two marks beyond which a note says so.
DRIFT_NS = 50_000


def clock_mark() -> str:
    """Return the name of a mark that begins now."""
    return f"{CLOCK_MARK}{time.monotonic_ns()}"


def aligned(trace: Trace) -> Trace:
    """Return the trace on the queries' clock, without its marks; with a note instead if it has none."""
    spans = trace.spans
    marks = [i for i, n in enumerate(spans.names) if n.startswith(CLOCK_MARK)]
    rows = np.flatnonzero(np.isin(spans.columns["name"], marks)) if marks else np.empty(0, "int64")
    rows = rows[np.argsort(spans.columns["start_ns"][rows])]
    shifts = [
        int(spans.names[int(spans.columns["name"][row])].removeprefix(CLOCK_MARK))
        - int(spans.columns["start_ns"][row])
        for row in rows.tolist()
    ]
    if not shifts:
        note = Message(
            "W-PROF-8", "the trace has no mark of the queries' clock", effect="Its times are its own"
        )
        return replace(trace, notes=(*trace.notes, note))
    kept = np.ones(len(spans), bool)
    kept[rows] = False
    half = (len(shifts) + 1) // 2
    ends = [max(part) for part in (shifts[:half], shifts[half:]) if part]
    moved = replace(trace, spans=spans.where(kept)).on_monotonic(sum(ends) // len(ends))
    drift = max(ends) - min(ends)
    if drift <= DRIFT_NS:
        return moved
    note = Message(
        "W-PROF-9",
        f"the profiler's clock moves {drift / 1000:.0f} us against the queries' within the window",
        effect="Spans and queries may lie that far apart",
    )
    return replace(moved, notes=(*moved.notes, note))
