"""Replay: the devices of a recorded board, measured by the same code that measures a real one.

The devices of a recording are the real ones over its tree of files (Stage). Their sources run in the sampler's
process as always, each wrapped in a ReplaySource that first lets the tree move on and then reads. They
report the board's own paths, and its reasons if a file could not be read.

A recording is not a machine: settings cannot be changed, the process that is measured runs elsewhere, and every
result says `replayed`.
"""

from __future__ import annotations

import atexit
import copy
import fcntl
import hashlib
import math
import os
import shutil
import struct
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from edgescope import registry
from edgescope.devices import recording
from edgescope.devices.base import (
    ChannelSpec,
    Device,
    Failed,
    Journal,
    Mode,
    NullDevice,
    SourceSpec,
    TellsOfModes,
    Throttle,
    Throttled,
    ThrottleWatch,
    Unsupported,
    Value,
)
from edgescope.devices.kernel_files import absent
from edgescope.devices.recording import Recording
from edgescope.errors import SettingError
from edgescope.registry import BOARD, REPLAYED

_DEVICES = ("cpu", "jetson")
"""Registered devices that read only files below a root; a recording holds such files."""
_NOT_FILES = ("architecture", "libc", "affinity")
"""Facts that a device takes from this process and not from files: they are not the recorded board's."""
_PREFIX = "edgescope-stage-"
_CLOCK = struct.Struct("<qq")
"""(monotonic ns of the start, frames applied)."""
_FRESH_S = 60.0
"""A folder without a lock file may be one that is being made."""


def devices(name: str) -> dict[str, Device]:
    """Return the devices of the recording `name`, played from its beginning; Usage- or StoreError for a bad one."""
    stage = Stage.make(recording.find(name))
    made: dict[str, Device] = {REPLAYED: ReplayDevice(stage)}
    for device in (n for n in _DEVICES if n in registry.DEVICES):
        made[device] = Replayed(registry.load(registry.DEVICES, device, "device")(stage.root), stage)
    return made


def root(here: Mapping[str, Any]) -> Path:
    """Return the folder that stands for / among these devices: a stage's tree, or / itself."""
    mark = here.get(REPLAYED)
    return mark.stage.root if isinstance(mark, ReplayDevice) and mark.stage else Path("/")


class ReplayDevice(NullDevice):
    """The recording itself: its board, its origin and its file; the sources are those of the board's devices."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.stage = stage

    def present(self) -> str:
        """Return '' while a recording is played, otherwise the reason."""
        return "" if self.stage else "no recording is played (edgescope --board FILE ...)"

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the recording's digest, so that a replayed machine never has a real one's id, and its facts."""
        if self.stage is None:
            return {}, {}
        what = self.stage.recording
        digest = hashlib.sha256("".join(recording.lines(what)).encode()).hexdigest()[:16]
        facts = {"board": what.board, "made": what.made, "about": what.about, "seconds": what.seconds}
        return {"recording": digest}, facts


class Replayed:
    """A real device over a recorded tree."""

    def __init__(self, inner: Device, stage: Stage) -> None:
        self._inner, self._stage = inner, stage

    def present(self) -> str:
        """Return '' if the recorded board has this hardware, otherwise the reason."""
        return self._stage.plain(self._inner.present())

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the recorded board's facts at the current position of the recording."""
        self._stage.advance(begin=False)
        stable, state = self._inner.machine()
        return self._of_the_board(stable), self._of_the_board(state)

    def _of_the_board(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        own = {k: absent("not in the recording: no file says it") for k in _NOT_FILES if k in facts}
        return {**self._stage.plainly(facts), **own}

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return the device's own sources, each wrapped, without those that run a program of this machine."""
        folder, target = str(self._stage.folder), f"{__name__}:{ReplaySource.__name__}"
        return tuple(
            SourceSpec(
                target, {"target": s.target, "kwargs": dict(s.kwargs), "stage": folder}, s.every, s.edges
            )
            for s in self._inner.sources(pid)
            if "root" in s.kwargs
        )

    def modes(self) -> Mapping[str, Mode]:
        """Return the board's modes; none can be entered."""
        return {name: _sealed(mode) for name, mode in self._inner.modes().items()}

    def unlisted(self) -> tuple[str, Sequence[str]]:
        """Return what the device says of its power modes."""
        return self._inner.unlisted() if isinstance(self._inner, TellsOfModes) else ("", ())

    def throttle_watch(self) -> AbstractContextManager[ThrottleWatch]:
        """Return the device's own watch; it reads the recording."""
        inner = self._inner.throttle_watch() if isinstance(self._inner, Throttled) else None
        return ReplayWatch(inner, self._stage)


class ReplayWatch:
    """A device's watch of its throttling counters; the recording advances between its two readings."""

    def __init__(self, inner: AbstractContextManager[ThrottleWatch] | None, stage: Stage) -> None:
        self._inner, self._stage = inner, stage
        self._watch: ThrottleWatch | None = None
        self._entered_ns = 0

    def __enter__(self) -> ReplayWatch:
        self._stage.advance(begin=False)  # time begins with the first reading of a sensor
        self._entered_ns = time.monotonic_ns()
        self._watch = self._inner.__enter__() if self._inner else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage.advance(since_ns=self._entered_ns)  # no sensor was read, so the recording starts at entry
        if self._inner:
            self._inner.__exit__(kind, error, trace)

    def evidence(self) -> Throttle:
        """Return the changes of the recorded counters."""
        found = self._watch.evidence() if self._watch else Throttle()
        return Throttle(*(tuple(map(self._stage.plain, getattr(found, f.name))) for f in fields(found)))


def _sealed(mode: Mode) -> Mode:
    """Return the mode, readable but refusing to be entered: a recording must not change a machine."""
    sealed, kind = copy.copy(mode), type(mode)
    object.__setattr__(sealed, "__class__", type(kind.__name__, (kind,), {"enter": _refuse}))
    return sealed


def _refuse(mode: Mode, journal: Journal) -> None:
    raise refusal(mode.name)


def refusal(mode: str) -> SettingError:
    """Return the error for a mode that is to be entered on a recorded board."""
    return SettingError(
        "E-REC-7",
        f"mode {mode} cannot be entered: the board is a recording",
        effect="Nothing was changed and nothing was measured",
        fix="--mode as_is, or measure on the board itself",
    )


class ReplaySource:
    """A source over a recorded tree: it advances the recording, then reads."""

    def __init__(self, target: str, kwargs: Mapping[str, Any], stage: str) -> None:
        self._stage = Stage.join(Path(stage))
        self._inner = SourceSpec(target, kwargs).open()

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the source's channels with paths as on the board."""
        return tuple(replace(c, source=self._stage.plain(c.source)) for c in self._inner.channels())

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return the source's rows, with the times of reading on this machine's clock."""
        self._stage.advance()
        return [(name, t_ns, self._plain(value)) for name, t_ns, value in self._inner.read()]

    def _plain(self, value: Value) -> Value:
        if isinstance(value, Unsupported | Failed):
            return type(value)(self._stage.plain(value.reason))
        return value


def played() -> str:
    """Return the recording that this process plays, or ''."""
    return os.environ.get(BOARD, "")


def materialise(what: Recording, root: Path) -> None:
    """Write the recording's files below `root`, a folder of our own; a file that was absent is not written."""
    for entry in what.entries:
        path = root / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.text is not None:
            with path.open("xb") as file:
                file.write(entry.text.encode())


class Stage:
    """A recording written as a tree of files in a temporary folder, which advances with time; processes join it.

        FOLDER/root/...      the tree; sensors read it as they would read /
        FOLDER/board.jsonl   the recording, for the processes that join
        FOLDER/gone/...      files of the tree that cannot be read at the moment
        FOLDER/clock         start of the recording and number of applied frames; locked while frames are applied
        FOLDER/alive         locked by every process that uses the stage, while it lives

    Time starts with the first reading of a sensor. Nothing runs in the background: a reader first calls `advance`,
    which writes the frames that are due. Files are rewritten in place, because sensors keep their descriptors open.
    After its last frame a recording stays as it is; it is not repeated, because counters must not go backwards.

    The kernel drops a lock when its process dies, however it dies, so a folder whose `alive` is not locked is
    unused, and the next stage that is made removes it.
    """

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
