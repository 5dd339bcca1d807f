"""The engine's own profile as a tracer: ONNX Runtime's nodes, OpenVINO's layers. It needs nothing installed.

The engine has to be asked when its session is made, so the launch sets a variable that the backends read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from edgescope.backends.base import PROFILE
from edgescope.errors import UnsupportedError
from edgescope.process import Launch
from edgescope.records import Spans
from edgescope.tracing.read import read

CLOCK = "window.json"


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
        (folder / CLOCK).write_text(
            json.dumps({"begin": begin, "end": (time.monotonic_ns(), time.time_ns())})
        )

    def spans(self, folder: Path) -> Spans:
        """Return the spans within the window; layers without times of their own lie end to end from 0 on."""
        files = sorted(p for p in folder.iterdir() if p.name.startswith("engine"))
        if not files:
            raise UnsupportedError("E-PROF-5", "this engine wrote no profile of its own")
        clock = json.loads((folder / CLOCK).read_text())
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
