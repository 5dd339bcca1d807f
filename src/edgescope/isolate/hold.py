"""Keeps a trial's process from measuring while its parent does something else: it loads meanwhile, on another core.

The parent holds a lock on a file in the trial's folder; the process waits for it before it measures. The kernel frees
the lock of a parent that dies. Where the folder's file system has no locks, the parent is done before the trial begins.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE = "hold"


@contextmanager
def held(folder: Path, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Do `meanwhile` beside the block; a process that calls `wait` on the folder in it waits until that is done.

    An error of `meanwhile` is nobody's here: who needs its answer asks again.
    """

    def work() -> None:
        with suppress(Exception):
            meanwhile()
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)

    with open(folder / FILE, "w") as file:
        thread = threading.Thread(target=work)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            thread.run()
            yield
            return
        thread.start()
        try:
            yield
        finally:
            thread.join()


def wait(folder: Path) -> None:
    """Wait until what the parent does beside the trial in the folder is done."""
    with suppress(OSError), open(folder / FILE) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
