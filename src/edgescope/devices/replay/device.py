"""Replay: the devices of a recorded board, measured by the same code that measures a real one.

The devices of a recording are the real ones over its tree of files (playback.py). Their sources run in the sampler's
process as always, each wrapped in a ReplaySource that first lets the tree move on and then reads. They
report the board's own paths, and its reasons if a file could not be read.

A recording is not a machine: settings cannot be changed, the process that is measured runs elsewhere, and every
result says `replayed`.
"""

from __future__ import annotations

import copy
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from edgescope import registry
from edgescope.devices.base import (
    ChannelSpec,
    Device,
    Failed,
    Journal,
    Mode,
    SourceSpec,
    Throttle,
    Throttled,
    ThrottleWatch,
    Unsupported,
    Value,
)
from edgescope.devices.kernel_files import absent
from edgescope.devices.replay import format as recording
from edgescope.devices.replay.playback import Stage
from edgescope.errors import SettingError
from edgescope.registry import BOARD, REPLAYED

_DEVICES = ("cpu", "jetson")
"""Registered devices that read only files below a root; a recording holds such files."""
_NOT_FILES = ("architecture", "libc", "affinity")
"""Facts that a device takes from this process and not from files: they are not the recorded board's."""


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


class ReplayDevice:
    """The recording itself: its board, its origin and its file."""

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

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return no sources: the board's devices have them."""
        return ()

    def modes(self) -> Mapping[str, Mode]:
        """Return no modes."""
        return {}


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
    raise SettingError(
        "E-REC-7",
        f"mode {mode.name} cannot be entered: the board is a recording",
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
