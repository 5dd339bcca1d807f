"""Worker processes that begin with their imports done: forks of a process that has imported what they need.

PyTorch and a library of networks take seconds to import, and a pair of fresh processes pays that each time. A trial
that ran alone tells what it has imported, and so does a worker that was started; later workers of its cell are forked
from a server that has imported just that. The first one is started: a forked one does not show what a process takes.
What cannot be forked safely is started as before (fork_server.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from edgescope.isolate import fork_server
from edgescope.isolate.fork_server import LONGEST
from edgescope.isolate.notes import Imports, kind
from edgescope.isolate.pool import Prestart
from edgescope.isolate.worker import Placement, WorkerProcess
from edgescope.process import Child, Process
from edgescope.records import Trial

IMPORT_S = 60.0
"""Seconds that a server may take to import."""
FORK_S = 5.0
"""Seconds that it may take to fork."""


class Orphan:
    """A child of this process that another one forked; it offers what Process uses of subprocess.Popen."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has taken its exit code; subprocess says 0 then, too
                pid, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for it to end; subprocess.TimeoutExpired if it does not in time."""
        if self.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                select.select([handle], [], [], timeout)
            finally:
                os.close(handle)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a forked worker", timeout or 0.0)
        return code

    def kill(self) -> None:
        """Kill it; harmless if it has ended."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end; harmless if it has ended."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer(Process):
    """A process that imports modules and then forks workers; OSError if it cannot be started."""

    def __init__(self, names: Sequence[str]) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__([sys.executable, "-m", fork_server.__name__, str(os.getpid())])
        self._refusal: str | None = None
        self._theirs.close()
        self._ours.send(json.dumps(list(names)).encode())

    def _begun(self, program: Sequence[str], channel: int, session: bool) -> Child:
        return subprocess.Popen(program, stdin=self._theirs.fileno(), stdout=self._log, stderr=self._log)

    def refusal(self) -> str:
        """Wait until everything is imported; return why it forks nothing, '' if it does."""
        if self._refusal is None:
            try:
                self._refusal = self._answer(IMPORT_S).strip()
            except OSError as error:
                self._refusal = str(error)
        return self._refusal

    def fork(self, stderr: int) -> Orphan:
        """Return a new worker, whose stderr is the given file; OSError if there is none."""
        (reads, stdin), (stdout, writes) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._ours, [b"\n"], [reads, writes, stderr])
            pid = int(self._answer(FORK_S))
            if not pid:
                raise OSError("there is no room for another process")
        except (OSError, ValueError):
            os.close(stdin)
            os.close(stdout)
            raise
        finally:
            os.close(reads)
            os.close(writes)
        return Orphan(pid, os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0))

    def _answer(self, limit_s: float) -> str:
        self._ours.settimeout(limit_s)
        if not (answer := self._ours.recv(LONGEST)):
            raise OSError(f"the process that forks workers {self.how_it_ended()}")
        return answer.decode()

    def how_it_ended(self) -> str:
        """Return how it ended, with the last line that it wrote."""
        self.wait(FORK_S)
        return " | ".join((self.ending(), *self.tail()[-1:]))

    def end(self, patience_s: float = 0.0) -> None:
        """End it; its workers live on."""
        self._ours.close()
        super().end(patience_s)


class ForkedWorker(WorkerProcess):
    """A worker that a server forked; OSError if it could not."""

    def __init__(self, number: int, server: ForkServer) -> None:
        self._server = server
        super().__init__(number, Placement())

    def _begun(self, program: Sequence[str], channel: int, session: bool) -> Child:
        return self._server.fork(self._log.fileno())


class Forks:
    """The fork servers of one leader, which must have asked for orphans (`warden.adopt`); leaving it ends them."""

    def __init__(self) -> None:
        self.floor_bytes: int | None = None
        """Bytes of memory that stay free; None: the default floor."""
        self._imports: dict[str, Imports] = {}
        """Kind of trial -> what its first process had imported: all of one kind share a server."""
        self._known: set[str] = set()
        """Cells of which a process was started, so that its memory is known."""
        self._servers: dict[tuple[str, ...], ForkServer | None] = {}
        """What is imported -> who forks such workers; None if nobody may."""

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self._running():
            server.end()
        self._servers.clear()

    def _running(self) -> list[ForkServer]:
        return [server for server in self._servers.values() if server is not None]

    @property
    def pids(self) -> set[int]:
        """Return the process ids of the fork servers."""
        return {server.pid for server in self._running()}

    def unknown(self, trial: Trial) -> bool:
        """Return whether no process of the trial's cell was started yet: its first one is, so its memory is known."""
        return trial.cell not in self._known

    def learn(self, trial: Trial, found: Imports) -> None:
        """Remember what a started process of the trial's cell, or of the same program alone, has imported."""
        self._imports.setdefault(kind(trial), found)
        self._known.add(trial.cell)

    def expect(self, trials: Iterable[Trial]) -> None:
        """Start the servers of the coming workers; `ready` waits for them.

        A server takes less memory than a worker: it is started if one more such worker leaves the floor free.
        """
        known = [self._imports[kind(trial)] for trial in trials if not self.unknown(trial)]
        needed = sum(found.took_bytes for found in known)
        for found in known:
            if found.names in self._servers or not found.took_bytes:
                continue
            needed += found.took_bytes
            if Prestart(floor_bytes=self.floor_bytes).fits(1, needed):
                with contextlib.suppress(OSError):
                    self._servers[found.names] = ForkServer(found.names)

    def ready(self) -> None:
        """Wait until no server imports any more; forget those that may not fork."""
        for names, server in self._servers.items():
            if server is not None and server.refusal():
                self._end(names)

    def worker(self, number: int, trial: Trial) -> WorkerProcess:
        """Return a new worker for the trial: forked if there is a server, else started."""
        if (server := self._server(trial)) is not None:
            with contextlib.suppress(OSError):
                return ForkedWorker(number, server)
            self.distrust([trial])
        return WorkerProcess(number, Placement())

    def distrust(self, trials: Iterable[Trial]) -> bool:
        """Start the workers of these trials from now on; return whether any of them would have been forked."""
        forked = [self._imports[kind(trial)].names for trial in trials if self._server(trial) is not None]
        for names in forked:
            self._end(names)
        return bool(forked)

    def _server(self, trial: Trial) -> ForkServer | None:
        """Return who forks the trial's workers, once it has imported; None if they are started."""
        if self.unknown(trial):
            return None
        self.ready()
        return self._servers.get(self._imports[kind(trial)].names)

    def _end(self, names: tuple[str, ...]) -> None:
        if (server := self._servers[names]) is not None:
            server.end()
        self._servers[names] = None
