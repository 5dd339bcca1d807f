"""Train a network on clips, in PyTorch: AdamW, a cosine schedule, the weights of the last epoch.

The held-out videos are evaluated after every epoch, one clip each, only to be reported: they choose neither an
epoch nor a setting, so the last accuracy is on videos that nothing was tuned on. Each epoch sees every
training video once, as a clip at a random offset. Nothing is flipped or played backwards: that would turn
an action into another. The same data, settings, machine and number of threads give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from edgescope import fit
from edgescope.fit import Task
from edgescope.wings.training.clip_classifier import dataset, torch_networks
from edgescope.wings.training.clip_classifier.dataset import Data, Video
from edgescope.wings.training.clips import Epoch, Settings

Window = tuple[Video, int]
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Trained:
    """A trained network, the sizes of one sample's pass, and how training went."""

    network: torch.nn.Module
    params: int
    macs: int
    history: tuple[Epoch, ...]


def train(
    entry: dict[str, Any],
    data: Data,
    settings: Settings,
    *,
    tell: Callable[[Epoch], None] = lambda epoch: None,
    kept: tuple[Path, str] | None = None,
) -> Trained:
    """Return the network of a zoo entry, trained on `data`, on the CPU, in eval mode.

    `kept`: the file of the epochs done so far, and the name of this training in it; those epochs are reported again but
    not trained again. UnavailableError without the requested device; ModelError if the loss is no longer a number.
    """
    network = torch_networks.build(entry, classes=len(data.classes), seed=settings.seed)
    clips = _Clips(entry, data, settings)

    def reported(epoch: fit.Epoch) -> Epoch:
        return Epoch(epoch.number, epoch.loss, int(epoch.value or 0), len(data.held_out), epoch.seconds)

    fitted = fit.fit(
        lambda: clips.task(network),
        fit.Plan(settings.epochs, seed=settings.seed, device=settings.device, deterministic=True),
        judge=lambda task: clips.right(network),
        tell=lambda epoch: tell(reported(epoch)),
        kept=kept,
    )
    params, macs = _sizes(entry, len(data.classes))
    return Trained(network.eval(), params, macs, tuple(map(reported, fitted.history)))


@dataclass(frozen=True)
class _Clips:
    """What is trained: clips of videos, in an order that the seed and the number of the epoch decide."""

    entry: dict[str, Any]
    data: Data
    settings: Settings

    def task(self, network: torch.nn.Module) -> Task:
        """Return the objective of `network`, its optimiser and its schedule."""
        objective = torch_networks.objective(network).to(self.settings.place)
        optimiser = torch.optim.AdamW(objective.parameters(), lr=self.settings.rate, weight_decay=0.01)
        steps = self.settings.epochs * -(-len(self.data.training) // self.settings.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        return Task(objective, self.batches, lambda module, batch: module(*batch), optimiser, schedule)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield each training video once, as a clip at a random offset, in batches of nearly the same size."""
        rng = np.random.default_rng([self.settings.seed, epoch])
        videos = [self.data.training[i] for i in rng.permutation(len(self.data.training))]
        windows = [(video, int(rng.choice(video.starts))) for video in videos]
        for part in np.array_split(np.arange(len(windows)), -(-len(windows) // self.settings.batch)):
            yield self.batch([windows[i] for i in part])

    def batch(self, windows: Sequence[Window]) -> Batch:
        """Return clips and labels, on the host."""
        cut = [dataset.prepared(dataset.clip(video, start), self.entry) for video, start in windows]
        return torch.from_numpy(np.stack(cut)), torch.tensor([video.label for video, _ in windows])

    def right(self, network: torch.nn.Module) -> int:
        """Return the number of held-out videos whose middle clip is classified correctly."""
        network.eval()
        right, size, device = 0, self.settings.batch, self.settings.place
        with torch.inference_mode():
            for start in range(0, len(self.data.held_out), size):
                clips, labels = self.batch([(v, v.middle) for v in self.data.held_out[start : start + size]])
                right += int((network(clips.to(device)).argmax(dim=1).cpu() == labels).sum())
        return right


def _sizes(entry: dict[str, Any], classes: int) -> tuple[int, int]:
    """Return parameters, and multiply-accumulates of one sample, counted without computing."""
    with torch.device("meta"):
        network = torch_networks.build(entry, classes=classes)
        sample = torch.empty(1, *entry["input"])
    with FlopCounterMode(display=False) as counter:
        network(sample)
    return sum(p.numel() for p in network.parameters()), counter.get_total_flops() // 2
