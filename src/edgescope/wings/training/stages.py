"""Where the time of a data loader goes, worker by worker: read, decode, augment, collate.

A data set marks its stages with `with stage("read"): ...`. The time of an item outside its marks counts as `item`, so
a data set without marks still shows what an item costs. What a worker measured travels with its minibatch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns, thread_time_ns
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import get_worker_info

from edgescope.analysis.run.epochs import STAGES
from edgescope.wings.training.looks import Looks

_NOTHING = dict.fromkeys(STAGES, 0)
_spent: dict[str, int] = dict(_NOTHING)
"""Nanoseconds of each stage in the minibatch that this process is loading."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A minibatch and what loading it cost; times in nanoseconds of the monotonic clock."""

    data: Any
    """None if every item of it was skipped."""
    worker: int
    """Number of the loader's worker, from 1; 0 is the training process itself."""
    start_ns: int
    end_ns: int
    cpu_ns: int
    """CPU time of the loading thread, the rest of its time it waited; -1 if this minibatch was not looked at."""
    stages: tuple[int, ...]
    """Nanoseconds of each of STAGES, summed over the items."""
    disk_bytes: int | None = 0
    """Bytes that came from a disk, not from the page cache; None if the kernel does not say."""
    skipped: Sequence[str] = ()
    """The items that could not be loaded, each with its reason."""

    def pin_memory(self) -> Loaded:
        """Return it with its tensors in pinned memory; the loader's pinning thread calls this."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return replace(self, data=pin_memory(self.data))  # type: ignore[no-untyped-call]


class stage:
    """Counts the time of a block to one stage of this process's loader."""

    __slots__ = ("name", "start")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.start = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _spent[self.name] += monotonic_ns() - self.start


class Watched(torch.utils.data.Dataset[Any]):
    """A data set whose items come as joined minibatches, each with what loading it cost.

    With `skip`, an item that cannot be loaded is left out and counted. `reads_disk` asks the kernel how much came from
    a disk, which takes 20 microseconds a minibatch.
    """

    def __init__(
        self,
        items: Any,
        collate: Callable[[list[Any]], Any],
        *,
        skip: bool = False,
        reads_disk: bool = False,
    ) -> None:
        self.items, self.collate, self.skip, self.reads_disk = items, collate, skip, reads_disk
        self._several = getattr(items, "__getitems__", None)
        self._looks = Looks()
        self._known = {os.getpid(): disk_bytes()}
        """What this process has read before, by process: a worker begins at 0."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: list[Any]) -> Loaded:
        """Return a whole minibatch: a loader asks for all of its items at once."""
        start = monotonic_ns()
        cpu = thread_time_ns() if self._looks.due(start) else -1
        _spent.update(_NOTHING)
        lost: list[str] = []
        if self.skip:
            found = self._loadable(indices, lost)
        elif self._several:
            found = self._several(indices)
        else:
            items = self.items
            found = [items[index] for index in indices]
        fetched, marked = monotonic_ns(), sum(_spent.values())
        data = self.collate(found) if found else None
        end = monotonic_ns()
        _spent["collate"] += end - fetched - (sum(_spent.values()) - marked)
        _spent["item"] += fetched - start - marked
        info = get_worker_info()
        return Loaded(
            data,
            0 if info is None else info.id + 1,
            start,
            end,
            -1 if cpu < 0 else thread_time_ns() - cpu,
            tuple(_spent.values()),
            self._from_disk() if self.reads_disk else 0,
            lost,
        )

    def _loadable(self, indices: list[Any], lost: list[str]) -> list[Any]:
        """Return the items that can be loaded; note why the others cannot."""
        if self._several:
            with contextlib.suppress(Exception):  # one by one tells which of them cannot
                return list(self._several(indices))
        found = []
        for index in indices:
            try:
                found.append(self.items[index])
            except Exception as error:  # a data set may raise anything
                lost.append(f"item {index}: {type(error).__name__}: {error}"[:200])
        return found

    def _from_disk(self) -> int | None:
        """Return the bytes read from disks since the last minibatch; None if unknown."""
        now, pid = disk_bytes(), os.getpid()
        before = self._known.get(pid, 0)
        self._known[pid] = now
        return None if now is None or before is None else now - before


def joined(loaded: Loaded) -> Loaded:
    """Return a minibatch as it is: it was joined where its items were loaded."""
    return loaded


def disk_bytes() -> int | None:
    """Return the bytes that this process has read from disks so far; None if the kernel does not say."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes")), None)
