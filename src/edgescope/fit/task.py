"""What is trained: a network, the minibatches of an epoch, the loss of one, and what updates the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


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
