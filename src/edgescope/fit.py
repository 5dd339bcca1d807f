"""Training: a task, one step of it, and a run of epochs with validation, early stopping, a checkpoint and a log.

A step copies the minibatch to the device, goes forward and backward, and updates the weights. A run of many epochs and
the training workload take the same step, so what is measured is what trains.

An epoch is what the task's `batches` yields. After each, the run may be judged on validation data, and its state is
kept: a run of the same name goes on from there to the same weights. Seeds decide everything that a task draws from
torch or from the number of the epoch, so a task needs no state of its own.
"""

from __future__ import annotations

import csv
import io
import math
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgescope import cache, registry
from edgescope.errors import ModelError, UnavailableError


@dataclass(frozen=True)
class Task:
    """One training problem; a user's own `module:callable` returns one."""

    network: nn.Module
    batches: Callable[[int], Iterable[Any]]
    """Returns the minibatches of epoch 0, 1, ...: what a DataLoader yields, on the host."""
    loss: Callable[[nn.Module, Any], torch.Tensor]
    """Returns the scalar loss of the network on a minibatch that is on the network's device."""
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    """Called after each step."""


AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
Mark = Callable[[str], None]
"""Called after each part of a step with its name: h2d, forward, backward, optimizer."""


def nothing(part: str) -> None:
    """Do nothing at the end of a part."""


class Step:
    """Takes steps of one task on one device, in fp32 or in mixed precision (`bf16`, `fp16` with a scaled loss)."""

    def __init__(
        self, task: Task, device: str, precision: str = "fp32", *, non_blocking: bool = False
    ) -> None:
        self.task, self.device, self.non_blocking = task, device, non_blocking
        self.dtype = AUTOCAST.get(precision)
        self.scaler = torch.amp.GradScaler(device, enabled=self.dtype is torch.float16)

    def __call__(self, batch: Any, mark: Mark = nothing) -> torch.Tensor:
        """Update the weights with one minibatch; return its loss, which may not be computed yet on a GPU."""
        batch = moved(batch, self.device, non_blocking=self.non_blocking)
        mark("h2d")
        with torch.autocast(self.device, self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = self.task.loss(self.task.network, batch)
        mark("forward")
        self.task.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        mark("backward")
        self.scaler.step(self.task.optimizer)
        self.scaler.update()
        if self.task.schedule is not None:
            self.task.schedule.step()
        mark("optimizer")
        return loss.detach()


def moved(batch: Any, device: str, *, non_blocking: bool = False) -> Any:
    """Return a minibatch with every tensor in it on the device: tensors, sequences, mappings and dataclasses."""

    def each(part: Any) -> Any:
        return moved(part, device, non_blocking=non_blocking)

    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if isinstance(batch, Mapping):
        return {name: each(part) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(each, batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map(each, batch))
    if is_dataclass(batch) and not isinstance(batch, type):
        return replace(batch, **{field.name: each(getattr(batch, field.name)) for field in fields(batch)})
    return batch


@dataclass(frozen=True)
class Plan:
    """How long to train, on what, and when to stop."""

    epochs: int
    steps: int | None = None
    """The most steps in all; the epoch in which they end is cut short. None: all of the epochs."""
    seed: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    """fp32, tf32 (on an NVIDIA GPU), or bf16 or fp16 for mixed precision."""
    judged_from: int = 1
    """The first epoch that is judged."""
    best: bool = False
    """Whether to end with the weights of the best value (the first of equals) and not with the last ones."""
    patience: int | None = None
    """Judged epochs without a better value after which training stops; None: never."""
    keep_s: float = 0.0
    """Seconds between two checkpoints; 0: one after each epoch."""
    deterministic: bool = False
    """Whether to allow only algorithms that give the same result every time; they can be slower."""


@dataclass(frozen=True)
class Epoch:
    """One epoch that was done."""

    number: int
    """From 1 on."""
    steps: int
    """Steps since the start of training."""
    loss: float
    """Mean loss of its steps."""
    value: float | None
    """What judging gave, the larger the better; None if it was not judged."""
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """How a run went; the task's network holds the weights that it ended with."""

    history: tuple[Epoch, ...]
    best: Epoch | None
    """The epoch with the best value, or None if none was judged."""
    stopped: str
    """Why it ended early, or ''."""


Judge = Callable[[], float]
"""Returns how good the network is now, the larger the better; it leaves the network's mode as it found it."""
UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, TypeError, LookupError, pickle.UnpicklingError)
"""What torch.load raises for a file of something else, and what reading such a content raises."""


def fit(
    make: Callable[[], Task],
    plan: Plan,
    *,
    judge: Callable[[Task], float] | None = None,
    tell: Callable[[Epoch], None] = lambda epoch: None,
    kept: tuple[Path, str] | None = None,
    log: Path | None = None,
) -> Fitted:
    """Train what `make` returns; return how it went.

    `make` is called with torch seeded. `kept` is the file of a checkpoint and the name of this training in it: finished
    epochs are reported again but not trained again. `log` becomes a CSV of the epochs. UnavailableError without the
    requested device; ModelError if the loss is no longer a number.
    """
    available(plan.device)
    with repeatable(plan.seed, plan.device, deterministic=plan.deterministic), _matmuls(plan.precision):
        run = _Run(make(), plan, judge)
        if kept:
            run.resume(*kept)
        for epoch in run.history:
            tell(epoch)
        for epoch in run.epochs():
            last = run.finished
            if kept and (last or time.monotonic() - run.kept_at >= plan.keep_s):
                run.keep(*kept)
            if log:
                write_log(log, run.history)
            tell(epoch)
        run.end()
    return Fitted(tuple(run.history), run.best, run.stopped)


class _Run:
    """A run in progress."""

    def __init__(self, task: Task, plan: Plan, judge: Callable[[Task], float] | None) -> None:
        self.task, self.plan, self.judge = task, plan, judge
        self.place = registry.place(plan.device)
        at = self.place.called("torch")
        self.step = Step(task, at, plan.precision)
        task.network.to(at)
        self.history: list[Epoch] = []
        self.best: Epoch | None = None
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.kept_at = time.monotonic()

    @property
    def steps(self) -> int:
        """Return the steps done so far."""
        return self.history[-1].steps if self.history else 0

    @property
    def stopped(self) -> str:
        """Return why the run ends early, or ''."""
        patience, best = self.plan.patience, self.best
        if patience is None or best is None:
            return ""
        worse = sum(e.value is not None for e in self.history if e.number > best.number)
        return f"no better value in {worse} epochs after epoch {best.number}" if worse >= patience else ""

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to do."""
        enough = self.plan.steps is not None and self.steps >= self.plan.steps
        return len(self.history) >= self.plan.epochs or enough or bool(self.stopped)

    def epochs(self) -> Iterator[Epoch]:
        """Train and judge epoch after epoch until the run is finished."""
        while not self.finished:
            number, begin = len(self.history) + 1, time.perf_counter()
            loss, done = self._train(number)
            value = None
            if self.judge is not None and number >= self.plan.judged_from:
                value = self.judge(self.task)
            epoch = Epoch(number, self.steps + done, loss, value, time.perf_counter() - begin)
            self.history.append(epoch)
            if value is not None and (
                self.best is None or self.best.value is None or value > self.best.value
            ):
                self.best = epoch
                if self.plan.best:
                    self.best_weights = _copied(self.task.network.state_dict())
            yield epoch

    def _train(self, number: int) -> tuple[float, int]:
        """Take the steps of an epoch; return their mean loss and their number."""
        self.task.network.train()
        losses = list[torch.Tensor]()  # read once an epoch: reading waits for the device
        for batch in self.task.batches(number - 1):
            losses.append(self.step(batch))
            if self.plan.steps is not None and self.steps + len(losses) >= self.plan.steps:
                break
        loss = float(torch.stack(losses).float().mean()) if losses else math.nan
        if not math.isfinite(loss):
            raise ModelError(
                "E-TRAIN-3",
                f"the loss of epoch {number} is no longer a number"
                if losses
                else f"epoch {number} has no batch",
                effect="No weights were written",
                fix="a smaller --learning-rate",
            )
        return loss, len(losses)

    def end(self) -> None:
        """Give the network the weights that the run ends with, in eval mode, on the CPU."""
        if self.best_weights is not None:
            self.task.network.load_state_dict(self.best_weights)
        self.task.network.to("cpu").eval()

    # -- the checkpoint ------------------------------------------------------------------------------------------

    def keep(self, path: Path, name: str) -> None:
        """Write the state that the next epoch depends on, completely or not at all."""
        schedule = self.task.schedule
        page = {
            "name": name,
            "history": [asdict(epoch) for epoch in self.history],
            "best": asdict(self.best) if self.best else None,
            "best_weights": self.best_weights,
            "network": self.task.network.state_dict(),
            "optimizer": self.task.optimizer.state_dict(),
            "schedule": schedule.state_dict() if schedule else None,
            "scaler": self.step.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state() if self.place.cuda else None,
        }
        with cache.writing(path) as temporary:
            torch.save(page, str(temporary))
        self.kept_at = time.monotonic()

    def resume(self, path: Path, name: str) -> None:
        """Restore the state of an interrupted run of this name; a missing or damaged file starts from the beginning."""
        try:
            page = torch.load(str(path), map_location="cpu", weights_only=True)
            if page["name"] != name:
                return
            history = [Epoch(**epoch) for epoch in page["history"]]
            best = Epoch(**page["best"]) if page["best"] else None
            self.task.network.load_state_dict(page["network"])
            self.task.optimizer.load_state_dict(page["optimizer"])
        except UNREADABLE:
            return
        if self.task.schedule is not None:
            self.task.schedule.load_state_dict(page["schedule"])
        self.step.scaler.load_state_dict(page["scaler"])
        torch.set_rng_state(page["random"])
        if page["random_cuda"] is not None and self.place.cuda:
            torch.cuda.set_rng_state(page["random_cuda"])
        self.history, self.best, self.best_weights = history, best, page["best_weights"]


def _copied(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}


def write_log(path: Path, history: Sequence[Epoch]) -> None:
    """Write the epochs as a CSV, completely or not at all."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([field.name for field in fields(Epoch)])
    rows.writerows(["" if value is None else value for value in astuple(epoch)] for epoch in history)
    with cache.writing(path) as temporary:
        temporary.write_text(text.getvalue())


def available(device: str) -> None:
    """Raise UnavailableError if PyTorch cannot use `device`."""
    place = registry.place(device)
    module = getattr(torch, place.called("torch"), None)
    if not place.is_host and (module is None or not module.is_available()):
        raise UnavailableError(
            "E-TRAIN-2",
            f"no {place.word} can be used for --device {device}",
            evidence=f"PyTorch {torch.__version__}",
            effect="Nothing was trained",
            fix="--device cpu, or a PyTorch built for your driver",
        )


@contextmanager
def _matmuls(precision: str) -> Iterator[None]:
    """Let matrix products of float32 use TF32 within the block if it is requested; restore the setting afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def repeatable(seed: int, device: str, *, deterministic: bool) -> Iterator[None]:
    """Seed PyTorch within the block, and allow only deterministic algorithms if requested; restore both afterwards."""
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs this to be deterministic
    devices = [torch.cuda.current_device()] if registry.place(device).cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(before or deterministic)
        torch.backends.cudnn.benchmark = benchmark and not deterministic
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
            torch.backends.cudnn.benchmark = benchmark
