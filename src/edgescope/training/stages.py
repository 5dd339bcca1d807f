"""Where the time of a data loader goes, worker by worker: read, decode, augment, collate.

A data set marks its stages with `with stage("read"): ...`. The time of an item outside its marks counts as `item`, so
a data set without marks still shows what an item costs. What a worker measured travels with its minibatch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import get_worker_info

from edgescope.analysis.run.epochs import STAGES

_spent: dict[str, int] = dict.fromkeys(STAGES, 0)


@dataclass(frozen=True)
class Costs:
    """What loading one minibatch cost; times in nanoseconds of the monotonic clock."""

    worker: int
    """Number of the loader's worker, from 1; 0 is the training process itself."""
    start_ns: int
    end_ns: int
    stages: tuple[int, ...]
    """Nanoseconds of each of STAGES, summed over the items."""
    cpu_ns: int
    """CPU time of the loading thread; the rest of its time it waited."""
    disk_bytes: int | None
    """Bytes that came from a disk, not from the page cache; None if the kernel does not say."""
    skipped: tuple[str, ...] = ()
    """The items that could not be loaded, each with its reason."""


@dataclass
class Loaded:
    """A minibatch and what loading it cost; `data` is None if every item of it was skipped."""

    data: Any
    costs: Costs

    def pin_memory(self) -> Loaded:
        """Return it with its tensors in pinned memory; the loader's pinning thread calls this."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return Loaded(pin_memory(self.data), self.costs)  # type: ignore[no-untyped-call]


class stage:
    """Counts the time of a block to one stage of this process's loader."""

    __slots__ = ("name", "start")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.start = time.monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = time.monotonic_ns() - self.start
        _spent[self.name] += spent
        _batch.marked_ns += spent


@dataclass(frozen=True)
class Skipped:
    """Stands for an item that could not be loaded."""

    reason: str


class Watched(torch.utils.data.Dataset[Any]):
    """A data set whose items are timed; with `skip`, an item that cannot be loaded is left out and counted."""

    def __init__(self, items: Any, *, skip: bool = False) -> None:
        self.items, self.skip = items, skip

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return several items; a loader asks for all of a minibatch at once, so they are timed together."""
        begun, marked = _batch.begin(), _batch.marked_ns
        try:
            if self.skip:
                return [self._one(index) for index in indices]
            if hasattr(self.items, "__getitems__"):
                found: list[Any] = self.items.__getitems__(indices)
                return found
            return [self.items[index] for index in indices]
        finally:
            _spent["item"] += time.monotonic_ns() - begun - (_batch.marked_ns - marked)

    def _one(self, index: Any) -> Any:
        try:
            return self.items[index]
        except Exception as error:  # a data set may raise anything
            return Skipped(f"item {index}: {type(error).__name__}: {error}"[:200])


@dataclass
class _Batch:
    """The minibatch that this process is loading."""

    start_ns: int = 0
    cpu_ns: int = 0
    marked_ns: int = 0
    """Nanoseconds that named stages have taken so far."""

    def begin(self) -> int:
        """Return the time now; a minibatch begins with its first item."""
        now = time.monotonic_ns()
        if not self.start_ns:
            self.start_ns, self.cpu_ns = now, time.thread_time_ns()
            _spent.update(dict.fromkeys(STAGES, 0))
        return now


_batch = _Batch()


@dataclass
class WatchedCollate:
    """Joins the items of a minibatch as `collate` does, and adds what loading them cost."""

    collate: Callable[[list[Any]], Any]
    reads_disk: bool = False
    """Whether to ask the kernel how much came from a disk, which takes 20 microseconds."""
    _known: dict[int, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note what this process has read before; a worker begins at 0."""
        self._known[os.getpid()] = disk_bytes()

    def __call__(self, items: list[Any]) -> Loaded:
        """Return the minibatch with its costs."""
        start = _batch.begin()
        kept = [item for item in items if not isinstance(item, Skipped)]
        lost = tuple(item.reason for item in items if isinstance(item, Skipped))
        data = self.collate(kept) if kept else None
        _spent["collate"] += time.monotonic_ns() - start
        info = get_worker_info()
        costs = Costs(
            worker=0 if info is None else info.id + 1,
            start_ns=_batch.start_ns,
            end_ns=time.monotonic_ns(),
            stages=tuple(_spent[name] for name in STAGES),
            cpu_ns=time.thread_time_ns() - _batch.cpu_ns,
            disk_bytes=self._from_disk(),
            skipped=lost,
        )
        _batch.start_ns = 0
        return Loaded(data, costs)

    def _from_disk(self) -> int | None:
        """Return the bytes read from disks since the last minibatch: 0 if it does not look, None if unknown."""
        if not self.reads_disk:
            return 0
        now, pid = disk_bytes(), os.getpid()
        before = self._known.get(pid, 0)
        self._known[pid] = now
        return None if now is None or before is None else now - before


def disk_bytes() -> int | None:
    """Return the bytes that this process has read from disks so far; None if the kernel does not say."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes")), None)
