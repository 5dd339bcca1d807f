"""Lines of JSON between a program and whoever started it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import IO, Any

#: The longest message in bytes; a longer line is an error.
LONGEST = 16 << 20

Line = dict[str, Any]


class Pipe:
    """Lines of JSON in both directions; each end of the connection holds one Pipe."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads, self._writes = reads, writes
        self._lines: deque[bytes] = deque()
        self._rest = b""

    @classmethod
    def own(cls) -> Pipe:
        """Return a Pipe on this process's stdin and stdout; whatever else is printed from now on goes to stderr."""
        reads, writes = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        return cls(reads, writes)

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when the other end sends something."""
        return self._reads.fileno()

    def write(self, data: bytes) -> None:
        """Write all of `data`; BrokenPipeError if the other end is gone, ValueError if this end is closed."""
        left = memoryview(data)
        while left:
            left = left[self._writes.write(left) :]

    def send(self, **message: Any) -> None:
        """Write one message."""
        self.write(json.dumps(message).encode() + b"\n")

    def ready(self, timeout_s: float | None = 0.0) -> bool:
        """Wait up to `timeout_s` for something to read; return whether there is (None: wait forever)."""
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))

    def fill(self) -> None:
        """Read once; EOFError if the other end has closed, OverflowError if a line is longer than LONGEST."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            raise EOFError("the other end has closed the pipe")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._rest) > LONGEST:
            raise OverflowError(self._rest[:120].decode(errors="replace"))

    def line(self, timeout_s: float | None = None) -> bytes:
        """Return the next line; TimeoutError if none comes in time, EOFError if the other end has closed."""
        until = time.monotonic() + (timeout_s or 0.0)
        while not self._lines:
            if not self.ready(None if timeout_s is None else until - time.monotonic()):
                raise TimeoutError(f"no line within {timeout_s} s")
            self.fill()
        return self._lines.popleft()

    def received(self) -> Iterator[Line]:
        """Yield the messages that have been read; skip other lines, which a launcher printed."""
        while self._lines:
            with contextlib.suppress(ValueError):
                message = json.loads(self._lines.popleft())
                if isinstance(message, dict):
                    yield message

    def receive(self, timeout_s: float | None = None) -> Line:
        """Return the next message; TimeoutError if none comes in time, EOFError if the other end has closed."""
        until = time.monotonic() + (timeout_s or 0.0)
        while (message := next(self.received(), None)) is None:
            line = self.line(None if timeout_s is None else until - time.monotonic())
            self._lines.appendleft(line)
        return message

    def __iter__(self) -> Iterator[Line]:
        """Yield messages until the other end closes the pipe."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.receive()

    def hang_up(self) -> None:
        """Close this end for writing, which tells the program that nothing more comes."""
        with contextlib.suppress(OSError):
            self._writes.close()

    def close(self) -> None:
        """Close this end; harmless if it is closed already."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self._reads.close()
