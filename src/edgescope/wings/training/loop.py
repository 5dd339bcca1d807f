"""The loop behind the training workload: one task, epoch after epoch, a step at a time, and what each part took.

The loader's workers time their own stages (wings/training/loading.py); the step marks its parts on a time line
(wings/training/timeline.py). What an epoch met besides (page cache, disk reads, items left out) is noted
between epochs.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from edgescope import registry
from edgescope.backends.base import spec_of
from edgescope.backends.pytorch import module as shared
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.fit import Step, Task
from edgescope.models.base import Model, Purpose, SeesImages, Trains
from edgescope.records import Effective, Json, Spans, Trial
from edgescope.wings.training import data_sets, loading, medium
from edgescope.wings.training.epochs import STAGES
from edgescope.wings.training.loading import Loaded, Looks, scaled
from edgescope.wings.training.timeline import Timeline, Times, spans_of

#: Number of different samples in an epoch that is drawn from the model's own; more would only fill memory.
DISTINCT = 64
#: Samples in an epoch of the model's own, unless the options say.
EPOCH = 1000
#: Columns of what is kept of loading one minibatch, before one for each stage.
LOAD = ("step", "worker", "start_ns", "end_ns", "cpu_ns")
#: Longest list of items that were left out; all are counted.
LISTED = 20


class Loop:
    """Trains a task from its initial weights; `loss` and `done` (samples) show the progress."""

    def __init__(
        self, model: Model, trial: Trial, options: Mapping[str, Any], *, dropout: bool = True
    ) -> None:
        self.spec, self.trial, self.options = spec_of(trial), trial, options
        shared.require(self.spec)
        torch.manual_seed(trial.seed)
        self.task, self.origin = task_of(model, trial, options)
        self.task.network.to(trial.place.called("torch")).train()
        if not dropout:
            without_dropout(self.task.network)
        shared.settle(self.spec)
        if self.spec.options.get("layout") == "channels_last":
            self.task.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pinned = trial.io == "pinned"
        self.precision_check: shared.PrecisionCheck = self._precision_check()
        self.take = Step(
            self._compiled(), trial.place.called("torch"), trial.precision, non_blocking=self.pinned
        )
        self.batches = loading.Batches(self.task.batches, self._settings())
        if options["held"]:
            first = self.peek(1)[0]
            self.batches = loading.Batches(lambda epoch: itertools.repeat(first))
        self.line = Timeline(self.spec.device)
        self._looks = Looks()
        self._looked = array("q")
        """Rows of the steps that were looked at: when one began and ended, and this process's CPU time in it."""
        self._losses, self._sizes = array("d"), array("q")
        """The loss and the number of samples of each step."""
        self.done, self.loss, self.broken = 0, float("nan"), False
        self.lost: list[str] = []
        self._loads = array("q")
        """Rows of LOAD: what loading each minibatch cost."""
        self._arrived = array("q")
        """Rows of each minibatch: when it came, the items that it lacks, the bytes read from disks (-1: unknown)."""
        self.log: list[dict[str, Json]] = []
        """One row for each epoch; it grows while the loop runs."""
        self.loader: dict[str, Json] = {}
        """What the loader was set to, by the options or by its maker; empty before the first epoch."""
        self._epoch: Iterator[Any] | None = None
        self._traffic: medium.Traffic | None = None
        self._ahead: list[Any] = []
        """The minibatch of the next step, if it was loaded before."""

    def _compiled(self) -> Task:
        if not registry.facts(self.trial.backend).COMPILES:
            return self.task
        network: Any = torch.compile(self.task.network)
        return replace(self.task, network=network)

    def _precision_check(self) -> shared.PrecisionCheck:
        if not registry.facts(self.trial.backend).COMPILES:
            return shared.Heavy(self.task.network)
        from edgescope.backends.pytorch.backend import Frames

        return Frames()

    def _settings(self) -> loading.Settings:
        made, batch = self.options, self.trial.batch
        return loading.Settings(
            num_workers=None if made["num_workers"] < 0 else int(made["num_workers"]),
            prefetch_factor=int(made["prefetch_factor"]) or None,
            persistent=bool(made["persistent_workers"]) or None,
            pinned=self.pinned or None,
            batch=batch if batch > 1 else None,
            skip=made["on_error"] == "skip",
        )

    # -- steps -------------------------------------------------------------------------------------------------

    def peek(self, n: int) -> list[Any]:
        """Return the first n minibatches, loaded in this process; the run itself begins anew."""
        alone = replace(self._settings(), num_workers=0, persistent=False, pinned=False)
        batches, found = loading.Batches(self.task.batches, alone), list[Any]()
        for number in range(n):
            every = (each.data if isinstance(each, Loaded) else each for each in batches.epoch(number))
            rest = (data for data in every if data is not None)
            found += itertools.islice(rest, n - len(found))
            if len(found) == n:
                break
        return found

    def alone(self, batch: Any) -> float:
        """Take one step with a minibatch that is there already; return its loss, so the device has finished."""
        self.loss = float(self.take(batch))
        self.precision_check.stop()
        return self.loss

    def load(self) -> None:
        """Load the minibatch of the next step now, while the device may serve others: an epoch may begin meanwhile."""
        if not self._ahead and not self.broken:
            self.line.begin()
            self._ahead.append(self._fetched())

    def step(self) -> int | None:
        """Take one step and return its number of samples, None when the requested epochs are over.

        The loss is read, so the device has finished. After the loader has failed, nothing more comes.
        """
        if self.broken:
            return None
        begun, epochs = self.line.begin(), len(self.log)
        cpu = time.process_time_ns() if self._looks.due(begun) else -1
        batch = self._ahead.pop() if self._ahead else self._fetched()
        if batch is None:
            return None
        self.line.mark("fetch")
        self.loss = float(self.take(batch, self.line.mark))
        ended = self.line.end()
        if cpu >= 0 and len(self.log) == epochs:  # what begins an epoch (page cache, workers) is no step
            self._looked.extend((begun, ended, time.process_time_ns() - cpu))
        size, row = samples_in(batch), self.log[-1]
        self._losses.append(self.loss)
        self._sizes.append(size)
        self.done += size
        row["samples"] += size
        row["batches"] += 1
        if self.loss != self.loss:
            self.broken = True
            raise ModelError(
                "E-STEP-3",
                f"the loss is no number after {self.done} samples",
                evidence=f"step {self.line.steps}, learning rate {self.options['learning_rate']:g}",
                effect="The weights are lost, and what follows would train nothing",
                fix="--workload-option learning_rate=0.001, or --precision fp32",
            )
        return size

    def _fetched(self) -> Any:
        """Return the next minibatch; after a loader that raised, nothing more comes."""
        try:
            return self._next()
        except Exception:
            self.broken = True
            raise

    def _next(self) -> Any:
        """Return the next minibatch, of the next epoch if this one is over; None after the last epoch."""
        while True:
            if self._epoch is None:
                if self.options["epochs"] and len(self.log) >= self.options["epochs"]:
                    return None
                self._begin()
                self.line.begin()
                self._epoch = self.batches.epoch(len(self.log) - 1)
                self.loader.update(self.batches.settings_used)
            while (found := next(self._epoch, _OVER)) is not _OVER:
                batch = self._noted(found) if type(found) is Loaded else found
                if batch is not None:
                    return batch
            self._end(self.line.waited())

    def _begin(self) -> None:
        """Begin an epoch: put the page cache in its state and note it."""
        number = len(self.log)
        files = self._files()
        state = self.options["page_cache"]
        if files and (state == "cold_epochs" or (state == "cold" and number == 0)):
            medium.drop(files)
        elif files and state == "warm" and number == 0:
            medium.fill(files)
        self._traffic = medium.traffic(files[0]) if files else None
        self.log.append(
            {
                "epoch": number,
                "samples": 0,
                "batches": 0,
                "skipped": 0,
                "page_cache_before": medium.residency(files) if files else None,
                "disk_bytes": 0,
                "device_bytes": None,
                "start_ns": time.monotonic_ns(),
                "end_ns": None,
            }
        )

    def _end(self, end_ns: int) -> None:
        """Note what the epoch met."""
        files, row = self._files(), self.log[-1]
        row["end_ns"], row["loss"] = end_ns, self.loss
        if files:
            row["page_cache_after"] = medium.residency(files)
            after = medium.traffic(files[0])
            row |= after.since(self._traffic) if after is not None and self._traffic is not None else {}
        self._epoch = None
        if not row["batches"]:
            raise UsageError(
                "E-STEP-4",
                "an epoch held no minibatch",
                evidence=f"{row['skipped']} items were left out; {'; '.join(self.lost[:3])}",
                effect="Nothing was trained",
                fix="a data set with at least one sample that can be read",
            )

    def _noted(self, found: Loaded) -> Any:
        """Return a minibatch; note what loading it cost."""
        self._loads.extend(
            (self.line.steps, found.worker, found.start_ns, found.end_ns, found.cpu_ns, *found.stages)
        )
        disk = -1 if found.disk_bytes is None else found.disk_bytes
        self._arrived.extend((time.monotonic_ns(), len(found.skipped or ()), disk))
        if found.disk_bytes != 0:
            row = self.log[-1]
            known = (row["disk_bytes"], found.disk_bytes)
            row["disk_bytes"] = None if None in known else sum(known)
        if found.skipped:
            self.log[-1]["skipped"] += len(found.skipped)
            self.lost += found.skipped[: LISTED - len(self.lost)]
        return found.data

    def _files(self) -> list[Path]:
        items = self.batches.items
        if items is None and not self.options["held"]:
            source: Any = self.task.batches(0)
            items = getattr(source, "dataset", None)
        return list(getattr(items, "files", ()))

    # -- what it found -----------------------------------------------------------------------------------------

    @property
    def loads(self) -> NDArray[np.int64]:
        """Return what loading each minibatch cost: LOAD, then the nanoseconds of each stage; empty if unknown."""
        return np.array(self._loads, np.int64).reshape(-1, len(LOAD) + len(STAGES))

    def between(self, start_ns: int, stop_ns: int) -> Stretch:
        """Return what the loop did in a stretch of time: the steps that ended in it."""
        begins, ends = self.line.ends()
        mine = _within(ends, ends, start_ns, stop_ns)
        took_s = float((ends - begins)[mine].sum()) * 1e-9
        looks = np.array(self._looked, np.int64).reshape(-1, 3)
        came, lacking, disk = np.array(self._arrived, np.int64).reshape(-1, 3).T
        here = _within(came, came, start_ns, stop_ns)
        return Stretch(
            losses=np.array(self._losses)[mine],
            sizes=np.array(self._sizes, np.int64)[mine],
            took_s=took_s,
            skipped=int(lacking[here].sum()),
            disk_bytes=None if (disk[here] < 0).any() else int(disk[here].sum()),
            loader_cpu_s=_cpu_s(self.loads[:, 2:5], start_ns, stop_ns),
            host_cpu_s=_cpu_s(looks, start_ns, stop_ns, took_s),
        )

    def spans(self) -> Spans:
        """Return the parts of every step, what the loader did meanwhile, and the epochs."""
        epochs = [("epoch", e["epoch"], e["start_ns"], e["end_ns"]) for e in self.log if e["end_ns"]]
        return Spans.joined([self.line.spans(), loading_spans(self.loads), Spans.of("range", epochs)])

    def speed(self) -> medium.Speed | None:
        """Return how fast the data set's medium is; None if the data set has no files."""
        files = self._files()
        return medium.speed(files) if files else None

    def effective(self) -> Effective:
        """Return the output precision of the heavy layers in the first step."""
        return self.precision_check.effective(self.spec)

    def close(self) -> None:
        """End the loader's workers."""
        self._epoch = None
        self.batches.close()


@dataclass(frozen=True)
class Stretch:
    """What a loop did in a stretch of time."""

    losses: NDArray[np.float64]
    """Of each step."""
    sizes: NDArray[np.int64]
    """Samples of each step."""
    took_s: float
    """All steps together."""
    skipped: int
    """Items that could not be loaded and were left out."""
    disk_bytes: int | None
    """Bytes that loading read from disks; None if the kernel does not tell."""
    loader_cpu_s: float | None
    """Seconds of CPU of loading, None if the loader does not tell."""
    host_cpu_s: float | None
    """Seconds of CPU of this process in its steps, None without a step; workers are not in it."""


def _within(begins: Times, ends: Times, start_ns: int, stop_ns: int) -> NDArray[np.bool_]:
    return np.asarray((begins >= start_ns) & (ends <= stop_ns))


def _cpu_s(
    pieces: NDArray[np.int64], start_ns: int, stop_ns: int, whole_s: float | None = None
) -> float | None:
    """Return the CPU seconds of a stretch from some pieces of work in it; without `whole_s`, of all these pieces.

    A row is when a piece began, when it ended, and its nanoseconds of CPU; -1 where nobody looked.
    """
    begins, ends, cpu = pieces.T
    mine = _within(begins, ends, start_ns, stop_ns)
    looked, took = mine & (cpu >= 0), ends - begins
    whole = float(took[mine].sum()) * 1e-9 if whole_s is None else whole_s
    return scaled(float(cpu[looked].sum()), float(took[looked].sum()), whole)


_OVER = object()


def loading_spans(loads: NDArray[np.int64]) -> Spans:
    """Return each load and its stages one after another, those that took any time; the stream is the worker."""
    step, worker, start, end, _ = loads[:, : len(LOAD)].T
    spent = loads[:, len(LOAD) :]
    ends = start[:, None] + np.cumsum(spent, axis=1)
    rows = [("load", start, end, np.ones(len(loads), bool))]
    rows += [(n, ends[:, i] - spent[:, i], ends[:, i], spent[:, i] > 0) for i, n in enumerate(STAGES)]
    return Spans.joined(
        [
            spans_of("stage", name, starts[took], stops[took], steps=step[took], workers=worker[took])
            for name, starts, stops, took in rows
            if took.any()
        ]
    )


def samples_in(batch: Any) -> int:
    """Return the number of samples in a minibatch: the first axis of the first tensor in it."""
    found = _samples_in(batch)
    return 1 if found is None else found


def _samples_in(part: Any) -> int | None:
    if isinstance(part, torch.Tensor):
        return part.size(0) if part.dim() else None
    if isinstance(part, (tuple, list)):
        for each in part:
            if (found := _samples_in(each)) is not None:
                return found
        return None
    return _samples_in(tuple(part.values())) if isinstance(part, Mapping) else None


def bytes_in(batch: Any) -> int:
    """Return the bytes of the first tensors in a minibatch."""
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    return int(first.nbytes) if isinstance(first, torch.Tensor) else 0


# -- what is trained -------------------------------------------------------------------------------------------


def task_of(model: Model, trial: Trial, options: Mapping[str, Any]) -> tuple[Task, str]:
    """Return what a trial trains and where its samples come from: the user's own task, or a classifier."""
    if isinstance(model, Trains) and (own := model.task()) is not None:
        return own, "the task's own loader"
    network = model.module()
    items, origin = items_of(model, network, trial, options)
    loader = loading.made(items, trial.batch, trial.seed)
    if len(items) < trial.batch:
        raise UsageError(
            "E-STEP-4",
            f"the data set holds {len(items)} samples, fewer than one minibatch of {trial.batch}",
            effect="Nothing was trained",
            fix=f"--batch {len(items)}",
        )
    return Task(network, lambda epoch: loader, cross_entropy, optimizer_of(network, options)), origin


def cross_entropy(network: nn.Module, batch: Any) -> torch.Tensor:
    """Return the loss of a classifier."""
    inputs, labels = batch
    return nn.functional.cross_entropy(network(inputs), labels)


def items_of(model: Model, network: nn.Module, trial: Trial, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the data set and its origin; UnsupportedError if the network is no classifier of one input."""
    if len(model.inputs) != 1:
        raise UnsupportedError("E-STEP-2", f"there is nothing to train {model.info.name} with")
    spec = model.inputs[0]
    classes = _classes(network, spec.shape, model.info.name)
    size = int(options["epoch_samples"])
    if folder := str(options["images"]):
        if len(spec.shape) != 3:
            raise UnsupportedError("E-STEP-2", f"{model.info.name} takes no pictures")
        known: Any = model.preprocess if isinstance(model, SeesImages) else None
        look = {"mean": known.mean, "std": known.std} if known is not None else {}
        items = data_sets.opened(Path(folder), data_sets.Pictures(*spec.shape, **look), size, options)
        if items.classes > classes:
            raise UsageError(
                "E-STEP-5",
                f"{folder} has {items.classes} classes, {model.info.name} has {classes}",
                effect="Nothing was trained",
                fix=f"edgescope train data {folder} --photographs {classes}",
            )
        return items, "; ".join((f"{len(items)} samples of {folder}", *items.notes))
    samples = model.samples(Purpose.BENCH, DISTINCT)
    if samples is None:
        raise UnsupportedError("E-STEP-2", f"there is nothing to train {model.info.name} with")
    inputs = np.array(samples.arrays[spec.name], dtype=np.float32)
    labels, origin = samples.labels, samples.origin
    if labels is None:
        labels = np.random.default_rng(abs(trial.seed)).integers(0, classes, len(inputs))
        origin = f"{origin}; labels drawn at random"
    drawn: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)
    return data_sets.Held(inputs, drawn, size or EPOCH), origin


def _classes(network: nn.Module, shape: tuple[int, ...], name: str) -> int:
    """Return the number of classes that a network gives logits of."""
    was = network.training
    with torch.no_grad():
        logits = network.eval()(torch.zeros(1, *shape))
    network.train(was)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2:
        raise UnsupportedError(
            "E-STEP-2",
            f"{name} is not a classifier, and training has no other loss",
            effect="Nothing was measured",
            fix="a model that gives one row of logits per sample, or a callable that returns a Task",
        )
    return int(logits.shape[1])


def without_dropout(net: nn.Module) -> None:
    """Switch off every dropout layer."""
    for layer in net.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0


def optimizer_of(net: nn.Module, options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer that the options name."""
    rate = float(options["learning_rate"])
    if options["optimizer"] == "adam":
        return torch.optim.Adam(net.parameters(), lr=rate)
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
