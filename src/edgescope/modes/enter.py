"""Entering a mode and leaving it again, however the block inside ends; the journal on disk that remains if it cannot.

Exceptions, Ctrl-C, SIGTERM and a closed terminal (SIGHUP) leave through the same `finally`. After SIGKILL or a power
cut the journal is what remains: `modes.journal` in the state folder (EDGESCOPE_STATE, or ~/.local/state/edgescope)
holds one line for each step: the mode that noted it, the state that it restores, and the command that restores it. A
step is on disk (fsync of file and folder) before the change it undoes is made, so a process killed at any moment leaves
either a setting untouched or a line that restores it. A lock that the kernel drops with its process (flock)
distinguishes a journal left behind from one in use. The next start that measures first restores the settings that were
left behind; `edgescope doctor --restore` does the same on request.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from edgescope.devices.base import Device, Mode, Undo
from edgescope.devices.manifest import present
from edgescope.errors import EdgescopeError, Message, SettingError, UsageError
from edgescope.modes import catalog
from edgescope.modes.privileged import act
from edgescope.process import said

FILE, LOCK = "modes.journal", "modes.lock"
_STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
Act = Callable[[Sequence[str], Path], str]
_JOURNALS: dict[Path, DiskJournal] = {}
"""The journals of this process, one for each state folder, shared by nested modes."""


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


@dataclass(frozen=True)
class Line:
    """One step and the mode that noted it."""

    owner: str
    undo: Undo


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for state that must outlive a crash."""
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".local/state"
    return Path(environ.get("EDGESCOPE_STATE") or Path(base) / "edgescope")


class DiskJournal:
    """The journal of one process; nothing is locked or written until the first change."""

    def __init__(
        self, where: Path | None = None, do: Act = act, say: Callable[[str], None] = said.say
    ) -> None:
        self.where = where or folder()
        self.path = self.where / FILE
        self.lines: list[Line] = []
        self.stuck: list[Line] = []
        """Lines that could not be undone; the others belong to modes that are still held."""
        self._do, self._say, self._lock = do, say, -1

    def note(self, owner: str, undo: Undo) -> None:
        """Write one step to disk; SettingError E-MODE-3 if another process holds the modes, 12 if writing fails."""
        with _writable():
            self._hold()
            self.lines.append(Line(owner, undo))
            self._write(appended=True)

    def holds(self, undo: Undo) -> bool:
        """Take the modes for this process, as `note` does; return whether the same undo is noted already."""
        with _writable():
            self._hold()
        return any((line.undo.request, line.undo.root) == (undo.request, undo.root) for line in self.lines)

    def _hold(self) -> None:
        if self._lock < 0:
            self._take()

    def restore(self, owner: str) -> None:
        """Undo the steps of `owner`, the last first; steps that fail stay in the journal and raise E-MODE-5."""
        mine = [line for line in self.lines if line.owner == owner]
        try:
            if mine:
                self._undo(mine)
        finally:
            if not self.lines:
                self._drop()

    def recover(self) -> bool:
        """Restore the settings left by a killed process or by this one; return False if there were none.

        Raises SettingError: E-MODE-3 if its owner lives, E-MODE-5 if a step fails, E-MODE-6 if it cannot be read.
        """
        try:
            if self._lock >= 0:
                return self._again()
            if not self.path.exists():
                return False
            self._take()  # restores on the way
        except OSError as error:
            raise _spoilt(self.path, str(error)) from error
        self._drop()
        return True

    def _again(self) -> bool:
        """Retry the steps that could not be undone before; leave those of modes that are still held."""
        if not self.stuck:
            return False
        try:
            self._undo(list(self.stuck))
        finally:
            if not self.lines:
                self._drop()
        return True

    def _take(self) -> None:
        """Lock the modes; restore the settings left by a process that no longer holds the lock."""
        self.where.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.where / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(handle, 20, 0).decode(errors="replace")
            os.close(handle)
            raise SettingError(
                "E-MODE-3",
                "another edgescope has changed this machine's settings",
                evidence=f"process {owner or 'unknown'} holds {self.where / LOCK}",
                effect="Two at once would measure each other's modes",
                fix="wait for it to end",
            ) from error
        self._lock = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            self.lines = list(_read(self.path))
            if self.lines:
                self._undo(list(self.lines), "left behind by a process that was killed: ")
            elif self.path.exists():
                self._write()  # a line cut short would run into the next
        except (EdgescopeError, OSError):
            self._drop()
            raise

    def _undo(self, lines: Sequence[Line], how: str = "") -> None:
        """Undo the lines, the last first, undisturbed by a second Ctrl-C."""
        done, failed, unwritten = [], [], ""
        with _undisturbed():
            self.stuck = [line for line in self.stuck if line not in lines]
            for line in reversed(lines):
                try:
                    self._do(line.undo.request, Path(line.undo.root))
                except EdgescopeError as error:
                    failed.append(f"{line.undo.what}: {error}")
                    self.stuck.insert(0, line)
                else:
                    self.lines.remove(line)
                    done.append(line.undo.what)
            try:
                self._write()
            except OSError as error:
                unwritten = str(error)
        if done:
            self._say(str(Message("I-RST", f"restored: {how}{', '.join(done)}")))
        if failed:
            raise SettingError(
                "E-MODE-5",
                "a setting could not be put back",
                evidence="; ".join(failed),
                effect="Measurements from now on describe a changed machine",
                fix="edgescope doctor --restore",
            )
        if unwritten:
            raise _spoilt(self.path, unwritten)

    def _write(self, *, appended: bool = False) -> None:
        """Write the lines to the file and sync it to disk."""
        if not self.lines:
            self.path.unlink(missing_ok=True)
        elif appended:
            with self.path.open("ab") as file:
                file.write(_line(self.lines[-1]))
                file.flush()
                os.fsync(file.fileno())
        else:
            new = self.path.with_suffix(".new")
            with new.open("wb") as file:
                file.writelines(_line(line) for line in self.lines)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        _sync(self.where)

    def _drop(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock, self.lines, self.stuck = -1, [], []


class Entry:
    """A view of the journal for one entry into a mode: leaving undoes only the steps that this entry noted."""

    _numbers = itertools.count(1)

    def __init__(self, book: DiskJournal) -> None:
        self._book, self._number = book, next(self._numbers)

    def note(self, owner: str, undo: Undo) -> None:
        """Do the same as DiskJournal.note."""
        self._book.note(f"{owner}#{self._number}", undo)

    def holds(self, undo: Undo) -> bool:
        """Do the same as DiskJournal.holds, for the steps of all entries."""
        return self._book.holds(undo)

    def restore(self, owner: str) -> None:
        """Do the same as DiskJournal.restore, for the steps of this entry."""
        self._book.restore(f"{owner}#{self._number}")


def _line(line: Line) -> bytes:
    undo = {"what": line.undo.what, "request": list(line.undo.request), "root": line.undo.root}
    return (json.dumps({"owner": line.owner, "pid": os.getpid(), **undo}) + "\n").encode()


def _read(path: Path) -> Iterator[Line]:
    """Yield the lines; ignore a last line that is cut short, because its change was not made yet."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise _spoilt(path, "it belongs to another user")
            rows = file.read().split(b"\n")
    except FileNotFoundError:
        return
    for number, row in enumerate(rows[:-1], 1):
        try:
            d = json.loads(row)
            request = tuple(str(word) for word in d["request"])
            yield Line(str(d["owner"]), Undo(str(d["what"]), request, str(d["root"])))
        except (ValueError, TypeError, KeyError) as error:
            raise _spoilt(path, f"line {number}: {error!r}") from error


def _spoilt(path: Path, why: str) -> SettingError:
    return SettingError(
        "E-MODE-6",
        f"the journal {path} cannot be used",
        evidence=why,
        effect="A setting may still be changed from an earlier run",
        fix="read it, put the settings back by hand, and remove it",
    )


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingError(
            "E-MODE-12",
            "the way back could not be written down, so nothing was changed",
            evidence=str(error),
            fix="EDGESCOPE_STATE=/a/folder/of/yours edgescope ...",
        ) from error


def _sync(where: Path) -> None:
    handle = os.open(where, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back the signals that stop a program until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def left_behind(where: Path | None = None) -> list[str]:
    """Describe the settings that a killed process left changed; return [] if there are none or its owner lives."""
    path = (where or folder()) / FILE
    try:
        if not path.exists() or _held(path.parent / LOCK):
            return []
        return [line.undo.what for line in _read(path)]
    except SettingError as error:
        return [str(error)]
    except OSError as error:
        return [str(_spoilt(path, str(error)))]


def _held(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
