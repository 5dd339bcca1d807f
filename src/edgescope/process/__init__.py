"""Programs that edgescope starts, the pipes they talk through, and temporary folders that are removed with them.

Every long-lived process is started here: a trial's, its workers, the sampler, ssh to a board. Modes and profilers put
a prefix before the command, and every interpreter starts fresh, which is why this does not use multiprocessing.

Standard library only, because the sampler's own process imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

#: How much of the end of stderr is read: the traceback of a program in a deep folder fits.
TAIL_BYTES = 8192
PR_SET_PDEATHSIG = 1
#: The longest message in bytes; a longer line is an error.
LONGEST = 16 << 20
SCRATCH = "EDGESCOPE_SCRATCH"
REMOVAL_S = 2.0
"""A process that is about to die may still write into a folder while it is being removed."""

Line = dict[str, Any]


def give_back() -> None:
    """Give the system the memory that loading took and freed: the C library would keep it for later."""
    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


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


@dataclass(frozen=True)
class Launch:
    """How a program starts: a prefix before its command, and variables added to its environment."""

    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, inner: Launch) -> Launch:
        """Return both combined: this prefix comes first, and `inner`'s environment wins."""
        return Launch((*self.prefix, *inner.prefix), {**self.env, **inner.env})

    def __bool__(self) -> bool:
        return bool(self.prefix or self.env)


class Child(Protocol):
    """What a Process needs of its child; subprocess.Popen is one."""

    pid: int
    returncode: int | Any

    @property
    def stdin(self) -> IO[bytes] | None:
        """Return where it reads from."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Return where it writes to."""

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for it to end; subprocess.TimeoutExpired if it does not in time."""

    def kill(self) -> None:
        """Kill it; harmless if it has ended."""

    def terminate(self) -> None:
        """Ask it to end; harmless if it has ended."""


class Process:
    """A program that was started, and our end of its pipe; OSError if it cannot be started.

    The program must read its stdin to the end or watch its parent (`die_with_parent`), so that it ends with this
    process, however that ends. Its stderr goes to a file without a name, which the program cannot replace.
    """

    def __init__(
        self, program: Sequence[str], launch: Launch = Launch(), *, talks: bool = True, session: bool = False
    ) -> None:
        """Start `program`; without `talks` it gets no input, with `session` a terminal's Ctrl-C does not reach it."""
        self.launch = launch
        self._log: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with this object)
        self._since, self._last = 0, list[str]()
        try:
            self._child = self._begun(program, subprocess.PIPE if talks else subprocess.DEVNULL, session)
        except OSError:
            self._log.close()
            raise
        self.pid = self._child.pid
        if self._child.stdin and self._child.stdout:
            self.pipe = Pipe(self._child.stdout, self._child.stdin)

    def _begun(self, program: Sequence[str], channel: int, session: bool) -> Child:
        return subprocess.Popen(
            [*self.launch.prefix, *program],
            env={**os.environ, **self.launch.env},
            stdin=channel,
            stdout=channel,
            stderr=self._log,
            bufsize=0,
            start_new_session=session,
        )

    @property
    def code(self) -> int | None:
        """Return its exit code, the negative number of a signal that ended it, or None while it runs."""
        return self._child.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for it to end; return its exit code, or None if it did not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout_s)
        return None

    def kill(self) -> None:
        """Kill it (SIGKILL); harmless if it has ended."""
        self._child.kill()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); harmless if it has ended."""
        self._child.terminate()

    def end(self, patience_s: float = 0.0) -> None:
        """Close the pipe, give it `patience_s` to end by itself, then kill it; harmless if it has ended."""
        if self._child.stdin is not None:
            self.pipe.close()
        if not patience_s or self.wait(patience_s) is None:
            self.kill()
            self._child.wait()
        self._last = self.tail()
        self._log.close()

    def mark(self) -> None:
        """Have `tail` leave out what the program has written to stderr so far."""
        self._since = os.fstat(self._log.fileno()).st_size

    def tail(self) -> list[str]:
        """Return the last lines that it wrote to stderr, without unprintable characters and empty lines."""
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
    """Return how a process ended: `died of SIGKILL`, `exited with 3`; a shell prefix reports a signal as 128 + n."""
    status = 128 - code if launch.prefix and 128 < code < 128 + signal.NSIG else code
    if status >= 0:
        return f"exited with {code}"
    by = f" ({launch.prefix[0]} exited with {code})" if status != code else ""
    hint = " (often the kernel's OOM killer: see dmesg)" if status == -signal.SIGKILL else ""
    return f"died of {signal_name(-status)}{hint}{by}"


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, `signal 35` for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends (Linux prctl); end now if this process is already an orphan."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1 != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder; files that cannot be removed after a while stay, without an error.

    A trial that is over its time or memory is stopped with SIGKILL and removes nothing itself; if /tmp is in memory,
    that memory would stay in use. So a process started for a trial gets a folder that its parent removes, and makes its
    own folders inside it. TMPDIR is left alone: compilers keep their caches under it.
    """

    def cleanup(self) -> None:
        """Remove the folder and what is in it."""
        until = time.monotonic() + REMOVAL_S
        super().cleanup()
        while os.path.isdir(self.name) and time.monotonic() < until:
            time.sleep(0.05)
            shutil.rmtree(self.name, ignore_errors=True)


def scratch_folder(kind: str) -> ScratchFolder:
    """Return a new temporary folder named after its kind; OSError if none can be made."""
    parent = os.environ.get(SCRATCH, "")
    inside = parent if os.path.isdir(parent) else None
    return ScratchFolder(prefix=f"edgescope-{kind}-", dir=inside, ignore_cleanup_errors=True)


def scratch_within(parent: str) -> dict[str, str]:
    """Return the environment variables that make a process put its temporary folders inside `parent`."""
    return {SCRATCH: parent}
