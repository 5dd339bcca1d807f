"""The loader of a training run, and where its time goes, worker by worker: read, decode, augment, collate.

Any DataLoader is taken apart and put together again with settings and a watch. Nothing else of it changes: data set,
order, batches and collation stay those of its maker.

A data set marks its stages with `with stage("read"): ...`. The time of an item outside its marks counts as `item`, so
a data set without marks still shows what an item costs. What a worker measured travels with its minibatch. CPU time is
read of a few minibatches only: its clock costs a system call, ten times as much as the time of day, which would be most
of what watching a step costs.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns, thread_time_ns
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, get_worker_info

from edgescope.errors import UnsupportedError
from edgescope.wings.training.epochs import STAGES


@dataclass(frozen=True)
class Settings:
    """How a loader works; None leaves it as its maker set it."""

    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent: bool | None = None
    pinned: bool | None = None
    batch: int | None = None
    skip: bool = False
    """Leave out items that cannot be loaded."""


class Batches:
    """The minibatches of a run, epoch after epoch, each as `Loaded`.

    An iterable that is no DataLoader is passed on as it is.
    """

    def __init__(self, epochs: Callable[[int], Iterable[Any]], settings: Settings = Settings()) -> None:
        self.epochs, self.settings = epochs, settings
        self._source: Any = None
        self._watched: Any = None

    def epoch(self, number: int) -> Iterator[Any]:
        """Start one epoch and return its minibatches."""
        source = self.epochs(number)
        if source is not self._source:
            self._source = source
            self._watched = watched(source, self.settings) if isinstance(source, DataLoader) else source
        return iter(self._watched)

    @property
    def settings_used(self) -> dict[str, int | bool]:
        """Return the workers, prefetching and persistence that the loader has, its maker's where none was set."""
        loader = self._watched
        if not isinstance(loader, DataLoader):
            return {}
        return {
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor or 0,
            "persistent_workers": loader.persistent_workers,
        }

    @property
    def items(self) -> Any:
        """Return the data set; None if there is none, or the first epoch has not begun."""
        found = getattr(self._watched, "dataset", None)
        return found.items if isinstance(found, Watched) else found

    def close(self) -> None:
        """End the loader's workers, persistent ones too."""
        iterator = getattr(self._watched, "_iterator", None)
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
        self._watched = self._source = None


def watched(loader: DataLoader[Any], settings: Settings) -> DataLoader[Any]:
    """Return a loader of the same minibatches with these settings, whose minibatches are `Loaded`."""
    workers = loader.num_workers if settings.num_workers is None else settings.num_workers
    prefetch = loader.prefetch_factor if settings.prefetch_factor is None else settings.prefetch_factor
    persistent = loader.persistent_workers if settings.persistent is None else settings.persistent
    items: Any = loader.dataset
    if isinstance(items, IterableDataset) or loader.batch_sampler is None:
        raise UnsupportedError(
            "E-LOADER-1",
            "a loader without single items or without minibatches cannot be watched",
            effect="Nothing was measured",
            fix="a DataLoader with a batch_size over a data set with __getitem__ and __len__",
        )
    files = bool(getattr(items, "files", ()))
    keys: dict[str, Any] = {
        "num_workers": workers,
        "pin_memory": loader.pin_memory if settings.pinned is None else settings.pinned,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context if workers else None,
        "generator": loader.generator,
        "collate_fn": joined,
    }
    if workers:
        keys |= {"prefetch_factor": prefetch or 2, "persistent_workers": persistent}
    watch = Watched(items, loader.collate_fn, skip=settings.skip, reads_disk=files)
    return DataLoader(watch, **keys, **_batches(loader, settings))


def _batches(loader: DataLoader[Any], settings: Settings) -> dict[str, Any]:
    """Return how samples become minibatches: the loader's own way, with another size if one is set."""
    found = loader.batch_sampler
    if settings.batch is None or not isinstance(found, BatchSampler):
        return {"batch_sampler": found}
    return {"batch_sampler": BatchSampler(found.sampler, settings.batch, found.drop_last)}


def made(items: Any, batch: int, seed: int) -> DataLoader[Any]:
    """Return a loader of a data set in random order, another one in each epoch; its last minibatch may be smaller."""
    order = torch.Generator().manual_seed(abs(seed))
    return DataLoader(items, batch_size=batch, shuffle=True, generator=order)


# -- where the time goes --------------------------------------------------------------------------------------


EVERY_NS = 50_000_000


class Looks:
    """Says which pieces are looked at: the first, then one every 25 to 75 ms."""

    def __init__(self) -> None:
        self._next_ns = 0
        self._random = random.Random(0)
        """At random, so that no pattern of steps fits it; its own, as a data set may draw from the module's."""

    def due(self, now_ns: int) -> bool:
        """Return whether the piece that begins now is looked at."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + int(EVERY_NS * (0.5 + self._random.random()))
        return True


def scaled(spent: float, looked: float, whole: float) -> float | None:
    """Return the CPU time of a `whole` if `spent` was that of the `looked` part of it; None without a look."""
    return spent / looked * whole if looked else None


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
