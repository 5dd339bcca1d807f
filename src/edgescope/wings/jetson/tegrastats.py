"""NVIDIA's tegrastats, live: a check on sysfs, and the only source if sysfs cannot be read.

tegrastats is a program on the board that prints one line per interval (tegrastats_line.py reads a line,
tegrastats_log.py a file of them). Its loads and its milliwatts come from the same drivers as sysfs, a
sensor refreshes about every 430 ms, and without root some clocks are missing, so sysfs has priority.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value

if TYPE_CHECKING:
    from edgescope.wings.jetson.tegrastats_line import Field, Line

Row = tuple[str, int, Value]

PROGRAM = "tegrastats"
RATE, UNREAD = "tegrastats_rate_hz", "tegrastats_unread"
_PLACES = ("/usr/bin", "~")
"""Searched after PATH: root's PATH may lack the first, and L4T R28 put the program into the home folder."""
_SCOPES = {"degC": "thermal_zone"}
_PARTS = {"cpu": "cpu_core", "mts": "system", "gpu": "gpu", "gr3d": "gpu", "emc": "memory"}
_PATIENCE_S = 2.0
"""Time after the end of an interval from which a line counts as missing."""
_LAST_WORDS_S = 0.5
"""Longest wait for the rest that an ended program has left in the pipe."""
_KEPT = 4096
"""Number of lines kept until they are read."""


def find(program: str = "") -> str:
    """Return the path of tegrastats, or '' if it is not installed."""
    places = [str(Path(place).expanduser()) for place in _PLACES]
    return shutil.which(program or PROGRAM, path=os.pathsep.join([*os.get_exec_path(), *places])) or ""


def parse(text: str) -> Line:
    """Return a line's fields; the patterns by which they are found are compiled when the first line is here."""
    from edgescope.wings.jetson import tegrastats_line

    return tegrastats_line.parse(text)


def spec_of(field: Field, scopes: Mapping[str, str]) -> ChannelSpec:
    """Return the channel of a field; `scopes` maps a rail's label to its scope, `rail` otherwise."""
    scope = scopes.get(field.label, "rail") if field.unit == "W" else _SCOPES.get(field.unit, "system")
    if field.unit in ("Hz", "share"):
        scope = next((s for start, s in _PARTS.items() if field.channel.startswith(start)), "engine")
    return ChannelSpec(field.channel, field.unit, scope, field.kind, f"tegrastats {field.label}")


class TegrastatsSource:
    """`tegrastats --interval MS`, read by a thread that stamps each line with its time of arrival.

    A reading is a new line: if none has come since the last read there are no rows, so nothing is counted
    twice. A tegrastats that is absent, dies or falls silent makes every channel Unsupported or Failed, never a
    raise. It ends with this process: its pipe breaks at the next line.

    `scopes` maps a rail's label to its scope; `prefix` begins every channel's name, so that none is also sysfs's.
    """

    def __init__(
        self,
        interval_ms: int = 1000,
        program: str = "",
        scopes: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> None:
        self._interval_s, self._scopes, self._prefix = interval_ms / 1e3, dict(scopes or {}), prefix
        self._lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._specs: dict[str, ChannelSpec] = {}
        """Name of a field in a line -> its channel."""
        self._problem: Unsupported | Failed | None = None
        self._noise, self._unread, self._example = "", 0, ""
        self._last_ns = time.monotonic_ns()
        self._timed = False
        """Whether `_last_ns` is the arrival time of a line, so that a rate can be computed from it."""
        self._process: subprocess.Popen[bytes] | None = None
        path = find(program)
        if path:
            self._start(path, interval_ms)
        else:
            self._problem = Unsupported(
                f"no tegrastats in PATH, {' or '.join(_PLACES)}: not a Jetson, or a container"
            )

    def _start(self, path: str, interval_ms: int) -> None:
        try:
            self._process = subprocess.Popen(
                [path, "--interval", str(interval_ms)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self._problem = Unsupported(f"{path} cannot be started: {error.strerror}")
            return
        weakref.finalize(self, _stop, self._process)
        self._thread = threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True)
        self._thread.start()
        self._learn()

    def _learn(self) -> None:
        """Wait for the first line and take the channels from it; if none comes, report what came instead."""
        deadline = time.monotonic() + self._interval_s + _PATIENCE_S
        while not self._specs and time.monotonic() < deadline and not self._ended():
            while self._lines:
                text = self._lines[0][1]
                self._specs = {f.channel: self._spec(f) for f in parse(text).fields}
                if self._specs:
                    return  # the line stays for the first reading
                self._noise = text.strip() or self._noise
                self._lines.popleft()
            time.sleep(0.01)
        if not self._specs:
            self._problem = self._ended() or Failed(
                f"tegrastats printed no line with readings{self._heard()}"
            )
            self.close()

    def _spec(self, field: Field) -> ChannelSpec:
        spec = spec_of(field, self._scopes)
        return replace(spec, name=self._prefix + spec.name)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the channels of the first line, the achieved rate, and the items that could not be read."""
        return (
            *self._specs.values(),
            ChannelSpec(RATE, "Hz", "system", "interval", "lines of tegrastats that have arrived"),
            ChannelSpec(UNREAD, "1", "system", "gauge", "items of its lines that could not be read"),
        )

    def read(self) -> Sequence[Row]:
        """Return the rows of every line since the last read, each with its time of arrival."""
        rows: list[Row] = []
        arrivals = [self._last_ns] if self._timed else []
        while self._lines:
            t_ns, text = self._lines.popleft()
            new = self._rows(t_ns, text)
            if new:
                rows += new
                arrivals.append(t_ns)
        now = time.monotonic_ns()
        if rows:
            self._timed, self._last_ns = True, arrivals[-1]
            if self._last_ns > arrivals[0]:
                rows.append((RATE, self._last_ns, (len(arrivals) - 1) * 1e9 / (self._last_ns - arrivals[0])))
            rows.append((UNREAD, now, self._what_was_unread()))
        elif problem := self._problem or self._ended() or self._silent(now):
            rows = [(c.name, now, problem) for c in self.channels()]
        return rows

    def _rows(self, t_ns: int, text: str) -> list[Row]:
        line = parse(text)
        if not line.fields:
            self._noise = text.strip() or self._noise
            return []
        values: dict[str, Value] = {f.channel: f.value for f in line.fields}
        strange = [*line.unknown, *(n for n in values if n not in self._specs)]
        self._unread, self._example = self._unread + len(strange), (strange or [self._example])[0]
        missing = Failed("this line of tegrastats does not have it")
        return [(spec.name, t_ns, values.get(name, missing)) for name, spec in self._specs.items()]

    def _what_was_unread(self) -> Value:
        if not self._unread:
            return 0.0
        return Failed(f"{self._unread} items were not read, such as {self._example!r}")

    def _ended(self) -> Failed | None:
        code = self._process.poll() if self._process else None
        if code is None:
            return None
        self._thread.join(_LAST_WORDS_S)
        if self._lines:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Failed(f"tegrastats {how}{self._heard()}")

    def _silent(self, now_ns: int) -> Failed | None:
        waited = (now_ns - self._last_ns) / 1e9
        if waited < 3 * self._interval_s + _PATIENCE_S:
            return None
        return Failed(f"tegrastats has printed nothing for {waited:.0f} s")

    def _heard(self) -> str:
        return f"; it said: {self._noise[:120]!r}" if self._noise else ""

    def close(self) -> None:
        """End the program; a later read reports that it has ended."""
        if self._process:
            _stop(self._process)


def _pump(process: subprocess.Popen[bytes], lines: deque[tuple[int, str]]) -> None:
    """Read lines from the pipe until it ends; a line gets the time at which its end arrives."""
    assert process.stdout
    with process.stdout as pipe:
        for line in pipe:
            lines.append((time.monotonic_ns(), line.decode(errors="replace")))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
