"""torch.profiler as a tracer: operators of PyTorch, and with a GPU every CUDA call, kernel and copy of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgescope.process import Launch
from edgescope.records import Spans
from edgescope.wings.trace import clock_marks
from edgescope.wings.trace.importers import kineto

FILE = "kineto.json"


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
            _mark(profiler)
            yield
            _mark(profiler)
        recorded.export_chrome_trace(str(folder / FILE))

    def spans(self, folder: Path) -> Spans:
        """Return the spans on the queries' clock."""
        return clock_marks.aligned(kineto.read(folder / FILE)).spans


def _mark(profiler: Any) -> None:
    for _ in range(clock_marks.TIMES):
        with profiler.record_function(clock_marks.name()):
            pass
