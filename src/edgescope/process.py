"""A program that edgescope starts: how it begins, how the two talk, how it ended and what it wrote last.

Every process that lasts is started here: a trial's, its workers, the sampler, ssh to a board. Modes and profilers put
words before the program, and every interpreter is a fresh one, which is why this is no multiprocessing.

Standard library only, because the sampler's own process imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

#: How much of the end of stderr is read: the traceback of a program in a deep folder fits.
TAIL_BYTES = 8192
#: A line longer than this is no message.
LONGEST = 16 << 20
PR_SET_PDEATHSIG = 1

Message = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """How a program starts: the words before its own, and what its environment adds."""

    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, inner: Launch) -> Launch:
        """Return both: `inner` is started by this one, and its environment has the last word."""
        return Launch((*self.prefix, *inner.prefix), {**self.env, **inner.env})

    def __bool__(self) -> bool:
        return bool(self.prefix or self.env)


class Pipe:
    """Lines of JSON both ways; either end of the connection holds one."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads, self._writes = reads, writes
        self._lines: deque[bytes] = deque()
        self._rest = b""

    @classmethod
    def own(cls) -> Pipe:
        """Take this process's stdin and stdout for its parent alone; what is printed from now on goes to stderr."""
        reads, writes = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        return cls(reads, writes)

    def fileno(self) -> int:
        """Return what becomes readable when the other end says something."""
        return self._reads.fileno()

    def write(self, data: bytes) -> None:
        """Write all of it; BrokenPipeError where the other end is gone, ValueError where this one is closed."""
        left = memoryview(data)
        while left:
            left = left[self._writes.write(left) :]

    def send(self, **message: Any) -> None:
        """Write one message."""
        self.write(json.dumps(message).encode() + b"\n")

    def ready(self, timeout_s: float | None = 0.0) -> bool:
        """Wait until there is something to read; return whether there is (None: wait without end)."""
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))

    def fill(self) -> None:
        """Read once; EOFError where the other end has closed, OverflowError for a line without end."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            raise EOFError("the other end has closed the pipe")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._rest) > LONGEST:
            raise OverflowError(self._rest[:120].decode(errors="replace"))

    def line(self, timeout_s: float | None = None) -> bytes:
        """Return the next line; TimeoutError where none comes in time, EOFError where none will."""
        until = time.monotonic() + (timeout_s or 0.0)
        while not self._lines:
            if not self.ready(None if timeout_s is None else until - time.monotonic()):
                raise TimeoutError(f"no line within {timeout_s} s")
            self.fill()
        return self._lines.popleft()

    def received(self) -> Iterator[Message]:
        """Yield the messages that have been read; lines that are none are a launcher's own and are skipped."""
        while self._lines:
            with contextlib.suppress(ValueError):
                message = json.loads(self._lines.popleft())
                if isinstance(message, dict):
                    yield message

    def receive(self, timeout_s: float | None = None) -> Message:
        """Return the next message; TimeoutError where none comes in time, EOFError where none will."""
        until = time.monotonic() + (timeout_s or 0.0)
        while (message := next(self.received(), None)) is None:
            line = self.line(None if timeout_s is None else until - time.monotonic())
            self._lines.appendleft(line)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the other end closes the pipe."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.receive()

    def hang_up(self) -> None:
        """Close this end for writing, which tells the program that nothing more comes."""
        with contextlib.suppress(OSError):
            self._writes.close()

    def close(self) -> None:
        """Close this end; harmless when it is closed."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self._reads.close()


class Process:
    """A program that was started, and its end of the pipe; OSError where it cannot be started.

    It reads its stdin to the end or watches its parent (`die_with_parent`), so that it ends with this process however
    that ends. Its stderr goes to a file without a name, which nothing that it does can replace.
    """

    def __init__(
        self, program: Sequence[str], launch: Launch = Launch(), *, talks: bool = True, session: bool = False
    ) -> None:
        """Start `program`; one that does not talk has no input, and `session` spares it a terminal's Ctrl-C."""
        self.launch = launch
        self._log: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with this object)
        self._since, self._last = 0, list[str]()
        channel = subprocess.PIPE if talks else subprocess.DEVNULL
        try:
            self._child = subprocess.Popen(
                [*launch.prefix, *program],
                env={**os.environ, **launch.env},
                stdin=channel,
                stdout=channel,
                stderr=self._log,
                bufsize=0,
                start_new_session=session,
            )
        except OSError:
            self._log.close()
            raise
        self.pid = self._child.pid
        if self._child.stdin and self._child.stdout:
            self.pipe = Pipe(self._child.stdout, self._child.stdin)

    @property
    def code(self) -> int | None:
        """Return its exit code, the negative number of a signal that ended it, or None while it runs."""
        return self._child.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; return its exit code, None where it did not come in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout_s)
        return None

    def kill(self) -> None:
        """Have the kernel end it; harmless when it is gone."""
        self._child.kill()

    def terminate(self) -> None:
        """Ask it to end; harmless when it is gone."""
        self._child.terminate()

    def end(self, patience_s: float = 0.0) -> None:
        """Close the pipe, give it so long to end by itself, then kill it; harmless when it is gone."""
        if self._child.stdin is not None:
            self.pipe.close()
        if not patience_s or self.wait(patience_s) is None:
            self.kill()
            self._child.wait()
        self._last = self.tail()
        self._log.close()

    def mark(self) -> None:
        """Have `tail` leave out what it has written so far."""
        self._since = os.fstat(self._log.fileno()).st_size

    def tail(self) -> list[str]:
        """Return the last lines that it wrote to stderr, without what a terminal would not print."""
        if self._log.closed:
            return self._last
        log = self._log.fileno()
        size = os.fstat(log).st_size
        start = max(self._since, size - TAIL_BYTES)
        text = os.pread(log, max(0, size - start), start).decode(errors="replace")
        lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
        return [line for line in lines if line]

    def ending(self) -> str:
        """Return how it ended: `died of SIGKILL`, `exited with 3`."""
        return how_ended(self._child.returncode or 0, self.launch)


def how_ended(code: int, launch: Launch = Launch()) -> str:
    """Return how a process ended: `died of SIGKILL`, `exited with 3`; a shell before it tells a signal as 128 + n."""
    told = 128 - code if launch.prefix and 128 < code < 128 + signal.NSIG else code
    if told >= 0:
        return f"exited with {code}"
    by = f" ({launch.prefix[0]} exited with {code})" if told != code else ""
    hint = " (often the kernel's OOM killer: see dmesg)" if told == -signal.SIGKILL else ""
    return f"died of {signal_name(-told)}{hint}{by}"


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, `signal 35` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends (Linux prctl); an orphan already (pid 1 took it) ends now."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1 != parent:
        os.kill(os.getpid(), signal.SIGKILL)
