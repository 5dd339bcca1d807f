"""A program that edgescope starts: how it begins, how it ended and what it wrote last."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from edgescope.process.pipe import Pipe

#: How much of the end of stderr is read: the traceback of a program in a deep folder fits.
TAIL_BYTES = 8192
PR_SET_PDEATHSIG = 1


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
