"""A stage: a recording written as a tree of files in a temporary folder, which advances with time.

    FOLDER/root/...      the tree; sensors read it as they would read /
    FOLDER/board.jsonl   the recording, for the processes that join
    FOLDER/gone/...      files of the tree that cannot be read at the moment
    FOLDER/clock         start of the recording and number of applied frames; locked while frames are applied
    FOLDER/alive         locked by every process that uses the stage, while it lives

Time starts with the first reading of a sensor. Nothing runs in the background: a reader first calls `advance`, which
writes the frames that are due. Files are rewritten in place, because sensors keep their descriptors open. After its
last frame a recording stays as it is; it is not repeated, because counters must not go backwards.

The kernel drops a lock when its process dies, however it dies, so a folder whose `alive` is not locked is
unused, and the next stage that is made removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import math
import os
import shutil
import struct
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope.devices.replay import format as recording
from edgescope.devices.replay.format import Recording

_PREFIX = "edgescope-stage-"
_CLOCK = struct.Struct("<qq")
"""(monotonic ns of the start, frames applied)."""
_FRESH_S = 60.0
"""A folder without a lock file may be one that is being made."""


def materialise(what: Recording, root: Path) -> None:
    """Write the recording's files below `root`, a folder of our own; a file that was absent is not written."""
    for entry in what.entries:
        path = root / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.text is not None:
            with path.open("xb") as file:
                file.write(entry.text.encode())


class Stage:
    """One recording being played in one folder; processes share it by joining."""

    def __init__(self, folder: Path, what: Recording) -> None:
        self.folder, self.recording, self.root = folder, what, folder / "root"
        self._due_ns: float = 0
        self._clock, self._alive = -1, -1
        self._clock = os.open(folder / "clock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._alive, fcntl.LOCK_SH)
        gone = {str(self.root / e.path): e.absent for e in what.entries if e.text is None}
        self._gone = dict(sorted(gone.items(), key=lambda item: -len(item[0])))  # x10 before x1

    @classmethod
    def make(cls, path: Path) -> Stage:
        """Write the recording into `path`; the folder is removed when this process ends."""
        what = recording.read(path)
        sweep()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        stage = _OPEN[str(folder)] = cls(folder, what)
        atexit.register(_remove, folder, os.getpid())
        stage.root.mkdir()
        materialise(what, stage.root)
        with (folder / recording.MEMBER).open("w", encoding="utf-8") as file:
            file.writelines(recording.lines(what))
        return stage

    @classmethod
    def join(cls, folder: Path) -> Stage:
        """Join a stage that this or another process made."""
        found = _OPEN.get(str(folder))
        if found is None:
            found = _OPEN[str(folder)] = cls(folder, recording.read(folder / recording.MEMBER))
        return found

    def __del__(self) -> None:
        for fd in (self._clock, self._alive):
            if fd >= 0:
                os.close(fd)

    def advance(self, *, begin: bool = True, since_ns: int | None = None) -> None:
        """Write the frames due by now; start the time if it has not started, unless `begin` is false.

        It then began at `since_ns` on the monotonic clock, now by default.
        """
        if time.monotonic_ns() < self._due_ns:
            return
        fcntl.flock(self._clock, fcntl.LOCK_EX)
        try:
            state = os.pread(self._clock, _CLOCK.size, 0)
            if state or begin:
                now = time.monotonic_ns()
                start = now if since_ns is None else since_ns
                self._due_ns = self._apply(now, *(_CLOCK.unpack(state) if state else (start, 0)))
        finally:
            fcntl.flock(self._clock, fcntl.LOCK_UN)

    def _apply(self, now: int, start: int, done: int) -> float:
        """Write the frames from number `done` on that are due at `now`; return the time of the next frame."""
        frames = self.recording.frames
        files: dict[str, str | None] = {}
        while done < len(frames) and start + frames[done].t_s * 1e9 <= now:
            files |= frames[done].files
            done += 1
        for path, text in files.items():
            self._set(path, text)
        os.pwrite(self._clock, _CLOCK.pack(start, done), 0)
        return start + frames[done].t_s * 1e9 if done < len(frames) else math.inf

    def _set(self, path: str, text: str | None) -> None:
        """Write a file's text; None makes it unreadable, also for open descriptors, until it gets a text."""
        here, gone = self.root / path, self.folder / "gone" / path
        if text is not None and gone.exists():
            gone.replace(here)
        if text is not None or here.exists():
            _rewrite(here, (text or "").encode())
        if text is None and here.exists():
            gone.parent.mkdir(parents=True, exist_ok=True)
            here.replace(gone)

    def plain(self, text: str) -> str:
        """Return a message with the board's own paths, and the recorded reason if a file was absent."""
        if str(self.root) not in text:
            return text
        for path, reason in self._gone.items():
            if path in text:
                return reason
        return text.replace(str(self.root) + "/", "/").replace(str(self.root), "/")

    def plainly(self, value: Any) -> Any:
        """Return a JSON value with every text in it passed through `plain`."""
        if isinstance(value, str):
            return self.plain(value)
        if isinstance(value, Mapping):
            return {key: self.plainly(item) for key, item in value.items()}
        return [self.plainly(item) for item in value] if isinstance(value, list | tuple) else value


_OPEN: weakref.WeakValueDictionary[str, Stage] = weakref.WeakValueDictionary()
"""Folder -> stage in use in this process; an unused stage releases its locks."""


def _rewrite(path: Path, data: bytes) -> None:
    """Replace a file's content in place: open descriptors see the change, as in sysfs."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _remove(folder: Path, pid: int) -> None:
    """Remove a stage, but only in the process that made it: a forked child also calls this at its end."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
        sweep()


def sweep(where: Path | None = None) -> None:
    """Remove the stages that no living process uses."""
    for folder in (where or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        fd = os.open(folder / "alive", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _age_s(folder) > _FRESH_S
    except OSError:  # another user's
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0
