"""Three small networks that classify the action in a clip, and how they are trained, in PyTorch.

A study of the Jetson Nano (arXiv 2406.17749) measured a 3D-CNN, an autoencoder classifier and a DenseNet for
clips and printed only their sizes: 20,333,956 / 332,807 / 109,386 parameters and 116.6 / 22.4 / 27.7 MFLOP. The
designs here are ours, of those sizes. All take clips of 16 RGB frames of 64 x 64, because the study's work per
parameter fits such small inputs, and halve them with strided convolutions instead of pooling: the
gradient of 3D pooling is not deterministic on a GPU, and training is to give the same weights twice.

Training is AdamW with a cosine schedule, and takes the weights of the last epoch. The held-out videos are evaluated
after every epoch, one clip each, only to be reported: they choose neither an epoch nor a setting, so the last accuracy
is on videos that nothing was tuned on. Each epoch sees every training video once, as a clip at a random offset. Nothing
is flipped or played backwards: that would turn an action into another. The same data, settings, machine and number of
threads give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from edgescope import fit
from edgescope.fit import Task
from edgescope.models.weights import fill, read_state
from edgescope.wings.training import clip_data
from edgescope.wings.training.clip_data import Data, Video
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
    network = build(entry, classes=len(data.classes), seed=settings.seed)
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
        module = objective(network).to(self.settings.place)
        optimiser = torch.optim.AdamW(module.parameters(), lr=self.settings.rate, weight_decay=0.01)
        steps = self.settings.epochs * -(-len(self.data.training) // self.settings.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        return Task(module, self.batches, lambda module, batch: module(*batch), optimiser, schedule)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield each training video once, as a clip at a random offset, in batches of nearly the same size."""
        rng = np.random.default_rng([self.settings.seed, epoch])
        videos = [self.data.training[i] for i in rng.permutation(len(self.data.training))]
        windows = [(video, int(rng.choice(video.starts))) for video in videos]
        for part in np.array_split(np.arange(len(windows)), -(-len(windows) // self.settings.batch)):
            yield self.batch([windows[i] for i in part])

    def batch(self, windows: Sequence[Window]) -> Batch:
        """Return clips and labels, on the host."""
        cut = [clip_data.prepared(clip_data.clip(video, start), self.entry) for video, start in windows]
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
        network = build(entry, classes=classes)
        sample = torch.empty(1, *entry["input"])
    with FlopCounterMode(display=False) as counter:
        network(sample)
    return sum(p.numel() for p in network.parameters()), counter.get_total_flops() // 2


# -- the networks ---------------------------------------------------------------------------------------------


Stride = int | tuple[int, int, int]


def network(entry: dict[str, Any], weights: Path | None, *, classes: int, seed: int) -> nn.Module:
    """Return the network of a zoo entry with the weights of a file, or with random weights from `seed`."""
    module = build(entry, classes=classes, seed=seed)
    if weights:
        fill(module, read_state(weights, module), name=entry["definition"], in_order=False)
    return module


def build(entry: dict[str, Any], *, classes: int | None = None, seed: int = 0) -> nn.Module:
    """Return `clips:name` with random weights from `seed`, in eval mode: (N, 3, 16, 64, 64) -> (N, classes)."""
    make: dict[str, Callable[[int], nn.Module]] = {
        "clips:cnn3d": Cnn3d,
        "clips:autoencoder": AutoencoderClassifier,
        "clips:densenet": ClipDenseNet,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make[entry["definition"]](classes or entry["classes"])
        for part in module.modules():
            if isinstance(part, nn.Conv3d):
                nn.init.kaiming_normal_(
                    part.weight
                )  # PyTorch's own start lets the signal fade layer by layer
        return module.eval()


def _convolved(inside: int, outside: int, stride: Stride) -> nn.Sequential:
    """Return a 3x3x3 convolution with normalisation and ReLU."""
    convolution = nn.Conv3d(inside, outside, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(outside), nn.ReLU(inplace=True))


class Cnn3d(nn.Module):
    """Three 3D convolutions and a wide dense layer, where 99.7 % of the parameters are."""

    def __init__(self, classes: int, hidden: int = 1240) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _convolved(3, 8, (1, 2, 2)), _convolved(8, 32, 2), _convolved(32, 64, 2), nn.Flatten()
        )
        dense = nn.Linear(64 * 4 * 8 * 8, hidden)
        self.head = nn.Sequential(dense, nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, classes))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes)."""
        logits: torch.Tensor = self.head(self.features(clips))
        return logits


class AutoencoderClassifier(nn.Module):
    """The encoder of an autoencoder and a classifier on its code.

    The decoder (Rebuilt) takes part only in training: this part runs on a device and is counted.
    """

    CODE = 76

    def __init__(self, classes: int) -> None:
        super().__init__()
        convolutions = _convolved(3, 8, 2), _convolved(8, 16, 2), _convolved(16, 32, 2)
        self.encoder = nn.Sequential(
            *convolutions, nn.Flatten(), nn.Linear(32 * 2 * 8 * 8, self.CODE), nn.ReLU(inplace=True)
        )
        self.head = nn.Linear(self.CODE, classes)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes)."""
        logits: torch.Tensor = self.head(self.encoder(clips))
        return logits


class _DenseLayer(nn.Module):
    """Appends `growth` channels computed from all earlier channels (Huang et al., CVPR 2017)."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        convolution = nn.Conv3d(inside, growth, 3, padding=1, bias=False)
        self.new = nn.Sequential(nn.BatchNorm3d(inside), nn.ReLU(inplace=True), convolution)

    def forward(self, known: torch.Tensor) -> torch.Tensor:
        return torch.cat([known, self.new(known)], dim=1)


class ClipDenseNet(nn.Module):
    """Dense blocks of 2, 3 and 8 layers over a clip, each after a halving of time, height and width."""

    BLOCKS = (2, 3, 8)

    def __init__(self, classes: int, stem: int = 8, growth: int = 8) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolved(3, stem, 2)]
        width = stem
        for index, block in enumerate(self.BLOCKS):
            narrowed = width if index == 0 else width // 2
            halving = nn.Conv3d(width, narrowed, 2, 2, bias=False)
            layers += [nn.BatchNorm3d(width), nn.ReLU(inplace=True), halving]
            layers += [_DenseLayer(narrowed + i * growth, growth) for i in range(block)]
            width = narrowed + block * growth
        self.features = nn.Sequential(*layers, nn.BatchNorm3d(width), nn.ReLU(inplace=True))
        self.head = nn.Linear(width, classes)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes)."""
        logits: torch.Tensor = self.head(self.features(clips).mean(dim=(2, 3, 4)))
        return logits


class Classified(nn.Module):
    """The training loss of a classifier: the cross-entropy of its logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(self.network(clips), labels)


class Rebuilt(nn.Module):
    """The training loss of the autoencoder: the cross-entropy, and the error of the rebuilt clip."""

    def __init__(self, network: AutoencoderClassifier) -> None:
        super().__init__()
        self.network = network
        self.decoder = nn.Sequential(
            nn.Linear(network.CODE, 32 * 2 * 8 * 8),
            nn.Unflatten(1, (32, 2, 8, 8)),
            nn.ConvTranspose3d(32, 16, 4, 2, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose3d(16, 8, 4, 2, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose3d(8, 3, 4, 2, padding=1),
        )

    def forward(self, clips: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        code = self.network.encoder(clips)
        known = nn.functional.cross_entropy(self.network.head(code), labels)
        return known + nn.functional.mse_loss(self.decoder(code), clips)


def objective(network: nn.Module) -> nn.Module:
    """Return the module (clips, labels) -> loss that trains `network`; it may have its own parameters."""
    return Rebuilt(network) if isinstance(network, AutoencoderClassifier) else Classified(network)
