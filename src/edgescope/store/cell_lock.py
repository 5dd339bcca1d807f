"""A lock in the store so that one process at a time measures a cell; the kernel releases it with its process.

    DIR/.locks/<machine id>-<cell id>     the process that measures the cell now: pid, command, start time

Two runs that take the same cell would measure everything twice, each disturbing the other. The file is locked (flock),
so a killed process leaves no lock behind, only a file, which the next one takes over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from edgescope.errors import StoreError
from edgescope.records import plain_json
from edgescope.store import files

FOLDER = ".locks"
#: Most bytes read of the text about the holder.
MOST_BYTES = 8192
#: Error numbers of a file system without locks.
_UNABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK, errno.EBADF)


@dataclass(frozen=True)
class Holder:
    """The process that measures a cell."""

    pid: int = 0
    host: str = ""
    command: str = ""
    since: str = ""
    """Local time of its machine, HH:MM:SS."""

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid}{where}{command} since {self.since}" if self.pid else "another process"


class CellLock:
    """The lock of one cell on one machine; `take` and `release`, or `held` for as long as a block runs."""

    def __init__(self, root: Path, machine: str, cell: str) -> None:
        self.path = root / FOLDER / f"{machine}-{cell}"
        self._handle = -1

    def take(self, command: str = "") -> Holder | None:
        """Take the lock and return None, or return who holds it. On a file system without locks it is always free."""
        if self._handle >= 0:
            return None
        while True:
            handle = self._opened()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(handle)
                os.close(handle)
                return holder
            except OSError as error:
                os.close(handle)
                if error.errno in _UNABLE:
                    return None
                raise
            if _is(handle, self.path):
                break
            os.close(handle)  # the holder has just removed it
        self._handle = handle
        mine = Holder(os.getpid(), socket.gethostname(), command, time.strftime("%H:%M:%S"))
        with contextlib.suppress(OSError):  # the lock counts; the text is for people
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(mine)).encode(), 0)
        return None

    def release(self) -> None:
        """Release the lock; its file is removed before anybody else can take it."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._handle)
            self._handle = -1

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the lock, taken before or not, when the block ends."""
        try:
            yield
        finally:
            self.release()

    def _opened(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.is_folder(self.path.parent)
        with contextlib.suppress(FileNotFoundError):
            files.is_file(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(self.path, flags, 0o644)


def holders(root: Path) -> list[Holder]:
    """Return who measures into a store now, apart from this process; no lock is held for long."""
    with contextlib.suppress(OSError, StoreError):
        if files.is_folder(root / FOLDER):
            every = [_look(path) for path in sorted((root / FOLDER).iterdir())]
            return [holder for holder in every if holder is not None]
    return []


def _look(path: Path) -> Holder | None:
    with contextlib.suppress(OSError, StoreError), files.opened(path, MOST_BYTES) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # dropped when it is closed
        except BlockingIOError:
            holder = _holder(handle)
            return None if (holder.pid, holder.host) == (os.getpid(), socket.gethostname()) else holder
    return None


def _holder(handle: int) -> Holder:
    try:
        return plain_json.record(Holder, plain_json.parsed(os.pread(handle, MOST_BYTES, 0)))
    except ValueError:  # it has the lock and has not written yet
        return Holder()


def _is(handle: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False
