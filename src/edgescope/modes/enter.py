"""Entering a mode and leaving it again, however the block inside ends.

Exceptions, Ctrl-C, SIGTERM and a closed terminal (SIGHUP) leave through the same `finally`. After SIGKILL or a power
cut the journal on disk is what remains; the next start begins with it.
"""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from edgescope.devices.base import Device, Mode
from edgescope.devices.manifest import present
from edgescope.errors import UsageError
from edgescope.modes import catalog
from edgescope.modes.journal import DiskJournal, Entry, folder

_JOURNALS: dict[Path, DiskJournal] = {}
"""The journals of this process, one for each state folder, shared by nested modes."""


def journal() -> DiskJournal:
    """Return this process's journal in the present state folder."""
    return _JOURNALS.setdefault(folder(), DiskJournal(folder()))


@contextmanager
def entered(mode: Mode) -> Iterator[Mode]:
    """Restore settings left behind by a killed process, enter the mode, and leave it when the block ends.

    Raises SettingError (E-MODE-2 not in effect, E-MODE-3 another process holds the modes, E-MODE-5 and 6 restoring
    failed) and UnsupportedError; when it raises, all its changes have been undone.
    """
    journal().recover()
    book = Entry(journal())
    with stoppable():
        try:
            mode.enter(book)
            yield mode
        finally:
            mode.leave(book)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as an exception does, so that settings are put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    mine = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def in_mode(name: str, devices: Mapping[str, Device] | None = None) -> Iterator[Mode]:
    """Hold a board-wide setting while the block runs: `with edgescope.in_mode("15W+jetson_clocks"): ...`.

    The mode is set, read back and probed under load, and restored however the block ends. Settings of a process
    (cpus=, quota=, mps=) cannot be applied to a running process; give them in Trial(mode=...).
    """
    with entered(catalog.find(name, present() if devices is None else devices)) as mode:
        if mode.launch():
            raise UsageError(
                "E-MODE-11",
                f"{name} is a setting of a process, and this one runs already",
                fix=f'Trial(mode="{name}") measured by edgescope.run, or --mode {shlex.quote(name)}',
            )
        yield mode
