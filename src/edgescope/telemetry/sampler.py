"""Takes readings during a run in a separate process, on the queries' clock, and measures its own cost.

A thread inside the measured process would fight it for the interpreter lock and vanish with it. The sampler
is another process: its readings are in a file even if it is killed, and a dead watcher never certifies a
clean run. Its cost is its own CPU time between its first and last tick, as a share of one core; it is
started (some 0.1 s) before the run and stopped after it.
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgescope.devices.base import SourceSpec
from edgescope.errors import UsageError
from edgescope.process import Line, Pipe, Process
from edgescope.records import Channel, Json, Readings
from edgescope.telemetry.watcher import COST_CHANNEL

_ROW = np.dtype([("t_ns", "<i8"), ("channel", "<i2"), ("value", "<f8")])
_START_S = 20.0
"""Driver libraries can take seconds to initialise."""
_STOP_S = 5.0
MAX_HZ = 1000.0


class Sampler:
    """Reads the sources `specs` at `hz` into a file in `folder`; a context manager for one run."""

    MODULE = "edgescope.telemetry.watcher"

    @classmethod
    def begun(cls) -> Process | None:
        """Start the watcher's process, which then waits for its sources; None if it cannot be started."""
        with contextlib.suppress(OSError):
            # in its own session: Ctrl-C goes to the parent, which then stops the watcher in order
            return Process([sys.executable, "-m", cls.MODULE], session=True)
        return None

    def __init__(
        self, specs: Sequence[SourceSpec], hz: float, folder: Path, process: Process | None = None
    ) -> None:
        """`process`: the watcher's, if it was begun before."""
        if not 0 < hz <= MAX_HZ:
            raise UsageError(
                "E-SAMPLE-1",
                f"a sampling rate must lie in (0, {MAX_HZ:.0f}] Hz, not {hz}",
                fix="a rate such as 10",
            )
        self._specs, self._hz = list(specs), hz
        self._path = folder / "readings.bin"
        self._process = process
        self._channels: list[dict[str, str]] = []
        self._died = "it was never started"
        self._last: dict[str, Any] = {}
        self._pending = b""
        self._every: list[tuple[str, int, int]] = []

    @property
    def pid(self) -> int:
        """Return the process id of the watcher, or 0 if there is none."""
        return self._process.pid if self._process else 0

    def __enter__(self) -> Sampler:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        try:
            self._process = self._process or Process([sys.executable, "-m", self.MODULE], session=True)
            self._start(self._process.pipe)
        except OSError as error:
            self._died = f"it could not be started: {error}"
        return self

    def _start(self, pipe: Pipe) -> None:
        self._died = "it did not become ready"
        pipe.send(sources=[asdict(s) for s in self._specs], hz=self._hz, path=str(self._path))
        with contextlib.suppress(TimeoutError, EOFError):
            ready = pipe.receive(_START_S)
            self._channels, self._every, self._hz = ready["channels"], ready["every"], ready["hz"]
            self._died = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        self._process.pipe.hang_up()
        patience_s = _STOP_S
        try:
            while True:
                self._digest(self._process.pipe.receive(_STOP_S))
        except EOFError:
            pass
        except TimeoutError:
            patience_s, self._died = 0.0, self._died or f"it did not stop within {_STOP_S:g} s"
        self._process.end(patience_s)
        if not self._last and not self._died:
            self._died = self._process.ending()
        if self._died and (last := self._process.tail()[-1:]):
            self._died += f": {last[0][:300]}"

    def mark(self) -> None:
        """Have the sources that are read at edges only read now; `cost` reports a watcher that is gone."""
        if self._process:
            with contextlib.suppress(OSError, ValueError):
                self._process.pipe.send(mark=True)

    def _digest(self, message: Line) -> None:
        """Process one message of the watcher's."""
        if "status" in message:
            index, status, reason = message["status"]
            self._channels[index] |= {"status": status, "reason": reason}
        elif "end" in message:
            self._last, self._channels = message, message["channels"]
            self._every = message.get("every", self._every)
            self._pending = base64.b64decode(message["pending"])

    def _rows(self) -> NDArray[Any]:
        try:
            data = self._path.read_bytes()
        except OSError:
            data = b""
        data += self._pending
        whole = len(data) // _ROW.itemsize * _ROW.itemsize  # a kill may cut the last row
        return np.frombuffer(data[:whole], _ROW)

    def readings(self) -> Readings:
        """Return every reading, even after the watcher was killed; each channel says whether it was measured."""
        rows = self._rows()
        return Readings(
            tuple(Channel(**c) for c in self._channels),
            rows["t_ns"].astype(np.int64),
            rows["channel"].astype(np.int16),
            rows["value"].astype(np.float64),
        )

    def cost(self) -> dict[str, Json]:
        """Return the cost of watching and how it ended; cpu_share is of one core, None with fewer than two ticks.

        `slowed` names the sources that are read less often than requested because one read costs too much, and
        their number of ticks between reads.
        """
        t_ns, cpu_s = self.readings().series(COST_CHANNEL)
        ticks = len(t_ns)
        wall_s = float(t_ns[-1] - t_ns[0]) / 1e9 if ticks > 1 else 0.0
        spent_s = float(cpu_s[-1] - cpu_s[0]) if ticks > 1 else 0.0
        return {
            "hz": self._hz,
            "ticks": ticks,
            "missed_ticks": max(0, int(wall_s * self._hz) - ticks + 1),
            "achieved_hz": (ticks - 1) / wall_s if wall_s else None,
            "cpu_s": spent_s,
            "wall_s": wall_s,
            "cpu_share": spent_s / wall_s if wall_s else None,
            "alive": not self._died,
            "end": f"died: {self._died}" if self._died else "stopped",
            "slowed": {target: every for target, every, planned in self._every if every > planned},
            "lost_rows": int(self._last.get("lost_rows", 0)),
            "write_error": str(self._last.get("write_error", "")),
        }


class Telemetry(Protocol):
    """Watches between entering and leaving; never raises because a sensor or the watcher failed."""

    def __enter__(self) -> Telemetry:
        """Start watching; returns once the first readings are taken."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""

    def mark(self) -> None:
        """Note that a window begins or ends now, for sources read at edges only; costs some microseconds."""

    def readings(self) -> Readings:
        """Return every reading taken, and every channel with its status."""

    def cost(self) -> dict[str, Json]:
        """Return hz, ticks, missed_ticks, achieved_hz, cpu_s, wall_s, cpu_share (of one core), alive, end."""


class NullSampler:
    """Watches nothing and costs nothing (`hz = 0`); the verdict on its readings is UNKNOWN."""

    def __enter__(self) -> NullSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def mark(self) -> None:
        """Do nothing."""

    def readings(self) -> Readings:
        """Return no channels and no rows."""
        return Readings((), np.empty(0, np.int64), np.empty(0, np.int16), np.empty(0, np.float64))

    def cost(self) -> dict[str, Json]:
        """Return zero ticks; not alive, because nothing watched."""
        return {"hz": 0.0, "ticks": 0, "missed_ticks": 0, "cpu_s": 0.0, "alive": False, "end": "off (hz = 0)"}
