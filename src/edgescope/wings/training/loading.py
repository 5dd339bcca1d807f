"""The loader of a training run: any DataLoader, taken apart and put together again with settings and a watch.

Nothing else of it changes: data set, order, batches and collation stay those of its maker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from edgescope.errors import UnsupportedError
from edgescope.wings.training.stages import Watched, joined


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
