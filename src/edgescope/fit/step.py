"""One step of training: copy the minibatch to the device, forward, backward, optimizer.

A run of many epochs and the training workload take the same step, so what is measured is what trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from edgescope.fit.task import Task

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
