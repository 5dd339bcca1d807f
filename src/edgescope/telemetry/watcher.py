"""The sampler's own process: `python -m edgescope.telemetry.watcher`, started by telemetry.sampler.

    stdin    {"sources", "hz", "path"}, then {"mark"} for each edge of a window; closing it means stop
    stdout   {"channels"} when ready, {"status"} when a channel's fate changes, {"end"} at last
    path     rows of (t_ns int64, channel int16, value float64), little-endian, appended tick by tick

Times are time.monotonic_ns: CLOCK_MONOTONIC is the same in every process, so readings and queries need no
alignment. Ticks follow a schedule, so they do not drift, and their phase varies by a fifth of a period, so
that they do not lock on to a periodic workload. Half of the cost of watching is waking up (0.2 % of a core at
10 Hz in a virtual machine), so ticks come no more often than the fastest available source needs.
This module imports neither numpy nor an engine.

This process ends when its parent dies: stdin closes, and getppid is checked at each tick.
PR_SET_PDEATHSIG is not used, because it fires when the *thread* that started us ends.
"""

from __future__ import annotations

import base64
import gc
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Source, SourceSpec, Unsupported, Value
from edgescope.process import Pipe

ROW = struct.Struct("<qhd")
COST_CHANNEL = "sampler_cpu_s"
_SILENT = 50
"""Ticks between two readings of a source whose channels are all reported absent."""
_AFTER_EDGE = 3
"""Ticks after an edge on which an edge source is read again until its value moves: that step bounds the count at
the edge."""
_JITTER = 0.2
"""Share of a period by which a tick may come late on purpose."""
_GOLDEN = 0.6180339887498949
"""Multiples of the golden ratio fill the unit interval evenly: jitter without a random generator."""
_CPU_BUDGET = 0.001
"""Share of one core that one source may cost; a costlier source is read less often."""
_TRIED = 5
"""Reads on ticks whose median is a source's cost; back-to-back reads do not count, since some sources cache."""
_COSTLY_S = 0.0005
"""Smallest CPU time of a read that counts for slowing a source; a cheaper read costs little more than the tick."""
_WALL_BUDGET = 0.2
"""Share of the time that one source may block the others."""
_MAX_PENDING = 4 << 20
"""Bytes of rows kept in memory while the disk refuses writes."""
_MAX_MESSAGES = 100
"""The largest number of status lines: the parent reads the pipe (64 KiB) only at the end; a full pipe would block."""
_MAX_REASON = 300


class RowFile:
    """Rows appended to a file; while the disk refuses them they wait in memory, up to `_MAX_PENDING`."""

    def __init__(self, path: str) -> None:
        self._pending = bytearray()
        self.lost_rows, self.error, self._fd = 0, "", -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    def append(self, rows: bytes) -> None:
        """Write these rows and the rows that wait; never raise."""
        if len(self._pending) + len(rows) > _MAX_PENDING:
            self.lost_rows += len(rows) // ROW.size
            return
        self._pending += rows
        if self._fd < 0:
            return
        try:
            del self._pending[: os.write(self._fd, self._pending)]
        except OSError as error:
            self.error = self.error or f"{error.strerror} after {os.lseek(self._fd, 0, os.SEEK_END)} bytes"

    @property
    def pending(self) -> bytes:
        """Return the bytes that could not be written; the file and these bytes together are whole rows."""
        return bytes(self._pending)


class Board:
    """The channels of all sources by index, with the status of each; reports each change of status."""

    def __init__(self) -> None:
        self.channels: list[ChannelSpec] = []
        self._status: list[tuple[str, str]] = []
        self._failures: list[int] = []
        self._messages = 0
        self.pipe: Pipe | None = None
        """Set once the parent has the table; earlier changes are in the table."""

    def add(self, spec: ChannelSpec) -> int:
        """Return the index of a new channel."""
        self.channels.append(spec)
        self._status.append(("", ""))
        self._failures.append(0)
        return len(self.channels) - 1

    def note(self, index: int, value: Value) -> None:
        """Record the status of one reading."""
        if isinstance(value, Unsupported):
            new = ("unsupported", value.reason[:_MAX_REASON])
        elif isinstance(value, Failed):
            self._failures[index] += 1
            new = ("failed", value.reason[:_MAX_REASON])
        else:
            count = self._failures[index]
            new = ("measured", f"{count} readings failed" if count else "")
        old = self._status[index]
        if new[0] != old[0]:
            self._status[index] = new
            if self.pipe and self._messages < _MAX_MESSAGES:
                self._messages += 1
                self.pipe.send(status=[index, *new])

    def table(self) -> list[dict[str, str]]:
        """Return every channel as JSON, status and reason included."""
        status = [s if s[0] else ("failed", "no interval has passed yet") for s in self._status]
        return [
            asdict(c) | {"status": s, "reason": r} for c, (s, r) in zip(self.channels, status, strict=True)
        ]


class Reader:
    """One source with its channels' indices and cadence; every exception of the source becomes Failed."""

    def __init__(self, spec: SourceSpec, board: Board) -> None:
        self.every = self.planned = max(1, spec.every)
        self.target, self.edges = spec.target, spec.edges
        self._spent_s: deque[float] = deque(maxlen=_TRIED)
        self._shown: list[Value] = []
        self._marked, self._awaited = False, 0
        """The number of ticks on which an edge source is still to be read, unless its value moves."""
        self._board = board
        self._source: Source | None = None
        try:
            self._source = spec.open()
            self._index = {c.name: board.add(c) for c in self._source.channels()}
        except Exception as error:  # whatever a driver library raises must not end the watch
            self._source = None
            lost = board.add(ChannelSpec(spec.target, "1", "sampler", "gauge", spec.target))
            board.note(lost, Failed(f"the source cannot be opened: {error!r}"))

    def pace(self, period_s: float) -> bytes:
        """Read a few times, time all but the first, and slow the cadence until the budgets are kept."""
        rows, needed = self.read(), float("inf")
        for _ in range(2):  # measure twice before slowing a source: a preempted read looks costly
            if needed <= self.every or self._source is None:
                return rows
            wall, cpu = time.perf_counter(), time.process_time()
            rows += self.read()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            needed = min(needed, max(cpu / (_CPU_BUDGET * period_s), wall / (_WALL_BUDGET * period_s)))
        self.every = max(self.every, int(needed) + 1)
        return rows

    @property
    def silent(self) -> bool:
        """Return whether no channel of this source is available here."""
        return all(isinstance(value, Unsupported) for value in self._shown)

    def stride(self, ticks: int) -> None:
        """Adapt the cadence to ticks that come only once every `ticks` of the present ones."""
        least = _SILENT if self.silent else 1
        self.every, self.planned = (-(-max(n, least) // ticks) for n in (self.every, self.planned))

    def at_edge(self, period_s: float) -> bytes:
        """Read now, and on the next ticks until the source's value moves."""
        rows, self._awaited, self._marked = self.paced(period_s), _AFTER_EDGE, True
        return rows

    def due(self, tick: int) -> bool:
        """Return whether to read on this tick; tick 0 is the last, when edges have had their readings."""
        return self._awaited > 0 or (tick % self.every == 0 and not (tick == 0 and self._marked))

    @property
    def awaited(self) -> bool:
        """Return whether an edge still needs a reading after it."""
        return self._awaited > 0

    def paced(self, period_s: float) -> bytes:
        """Read; slow the cadence if the last reads were costly."""
        if self._source is None:
            return b""
        cpu = time.process_time()
        rows = self.read()
        self._spent_s.append(time.process_time() - cpu)
        if len(self._spent_s) == _TRIED:
            spent = sorted(self._spent_s)[_TRIED // 2]
            if spent > _COSTLY_S:
                self.every = max(self.every, int(spent / (_CPU_BUDGET * period_s)) + 1)
        return rows

    def read(self) -> bytes:
        """Return this source's rows, packed."""
        if self._source is None:
            return b""
        try:
            rows: Sequence[tuple[str, int, Value]] = self._source.read()
        except Exception as error:  # as above
            failed = Failed(f"reading raised {error!r}")
            rows = [(name, 0, failed) for name in self._index]
        shown = [value for _, _, value in rows]
        self._awaited = max(0, self._awaited - 1) if shown == self._shown else 0
        self._shown = shown
        out = b""
        for name, t_ns, value in rows:
            index = self._index[name]
            self._board.note(index, value)
            if not isinstance(value, Unsupported | Failed):
                out += ROW.pack(t_ns, index, value)
        return out


class Watcher:
    """Reads the sources tick by tick until stdin closes or the parent dies."""

    def __init__(self, request: Mapping[str, Any], pipe: Pipe, parent: int) -> None:
        self._pipe = pipe
        self._parent, self._period_ns, self._stride = parent, 1e9 / float(request["hz"]), 1
        self._board = Board()
        self._cost = self._board.add(
            ChannelSpec(COST_CHANNEL, "s", "sampler", "counter", "time.process_time of the sampler")
        )
        self._readers = [Reader(SourceSpec(**spec), self._board) for spec in request["sources"]]
        self._file = RowFile(request["path"])

    def run(self) -> str:
        """Watch; return why it stopped."""
        gc.freeze()  # nothing here makes cycles; a collection would only cost
        gc.disable()
        self._end_tick(b"".join(reader.pace(self._period_ns / 1e9) for reader in self._readers))
        self._slow_down()
        self._board.pipe = self._pipe
        self._pipe.send(channels=self._board.table(), every=self._cadences(), hz=1e9 / self._period_ns)
        start = time.monotonic_ns()
        while True:
            # late: skip the missed ticks and the tick of this period, so that ticks never bunch
            tick = int((time.monotonic_ns() - start) / self._period_ns) + 1
            late = (tick * _GOLDEN) % 1.0 * _JITTER
            due = start + int((tick + late) * self._period_ns)
            if self._stopped_before(due):
                self._follow_up()
                self._tick(0)  # one last reading of everything, so that windows end inside the readings
                return "stopped"
            if os.getppid() != self._parent:
                return "the parent died"
            self._tick(tick)

    def _slow_down(self) -> None:
        """Tick no more often than the fastest available source needs."""
        self._stride = min((r.planned for r in self._readers if not r.edges and not r.silent), default=1)
        self._period_ns *= self._stride
        for reader in self._readers:
            reader.stride(self._stride)

    def _stopped_before(self, due_ns: int) -> bool:
        """Wait until `due_ns`, reading edges as they come; return whether stdin was closed."""
        while self._pipe.ready((due_ns - time.monotonic_ns()) / 1e9):
            try:
                self._pipe.fill()
            except EOFError:
                return True
            for _ in self._pipe.received():
                pass
            self._file.append(b"".join(r.at_edge(self._period_ns / 1e9) for r in self._readers if r.edges))
        return False

    def _follow_up(self) -> None:
        """Take the readings that the last edge still needs."""
        while late := [reader for reader in self._readers if reader.awaited]:
            time.sleep(self._period_ns / 1e9)
            self._file.append(b"".join(reader.read() for reader in late))

    def _tick(self, tick: int) -> None:
        due = [reader for reader in self._readers if reader.due(tick)]
        self._end_tick(b"".join(reader.paced(self._period_ns / 1e9) for reader in due))

    def _cadences(self) -> list[list[Any]]:
        return [[r.target, r.every * self._stride, r.planned * self._stride] for r in self._readers]

    def _end_tick(self, rows: bytes) -> None:
        cost = time.process_time()
        self._board.note(self._cost, cost)
        self._file.append(rows + ROW.pack(time.monotonic_ns(), self._cost, cost))

    def end(self, why: str) -> dict[str, Any]:
        """Return the last message."""
        return {
            "end": why,
            "lost_rows": self._file.lost_rows,
            "write_error": self._file.error,
            "pending": base64.b64encode(self._file.pending).decode(),
            "channels": self._board.table(),
            "every": self._cadences(),
        }


def main() -> int:
    """Watch the sources that stdin names; return the exit code."""
    parent, pipe = os.getppid(), Pipe.own()
    watcher = Watcher(pipe.receive(), pipe, parent)
    why = watcher.run()
    if why == "stopped":
        pipe.send(**watcher.end(why))
    return 0


if __name__ == "__main__":
    sys.exit(main())
