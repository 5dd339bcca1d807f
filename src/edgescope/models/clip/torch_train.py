"""Train a network on clips, in PyTorch: AdamW, a cosine schedule, the weights of the last epoch.

The held-out videos are evaluated after every epoch, one clip each, only to be reported: they choose neither an
epoch nor a setting, so the last accuracy is on videos that nothing was tuned on. Each epoch sees every
training video once, as a clip at a random offset. Nothing is flipped or played backwards: that would turn
an action into another. The same data, settings, machine and number of threads give the same weights.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from edgescope import cache
from edgescope.errors import ModelError, UnavailableError
from edgescope.models.clip import dataset, torch_networks
from edgescope.models.clip.dataset import Data, Video
from edgescope.models.clip.train import Epoch, Settings

Window = tuple[Video, int]


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
    device = _device(settings.device)
    network = torch_networks.build(entry, classes=len(data.classes), seed=settings.seed)
    params, macs = _sizes(entry, len(data.classes))
    with _repeatable(settings.seed, device):
        loop = _Loop(entry, data, settings, network, device)
        history = _resumed(loop, *kept) if kept else []
        for epoch in history:
            tell(epoch)
        for number in range(len(history) + 1, settings.epochs + 1):
            history.append(loop.epoch(number))
            if kept:
                _keep(loop, history, *kept)
            tell(history[-1])
    return Trained(network.to("cpu").eval(), params, macs, tuple(history))


def _keep(loop: _Loop, history: Sequence[Epoch], path: Path, name: str) -> None:
    """Write the state that the next epoch depends on, completely or not at all."""
    page = {"name": name, "history": [asdict(epoch) for epoch in history], "state": loop.state()}
    with cache.writing(path) as temporary:
        torch.save(page, str(temporary))


def _resumed(loop: _Loop, path: Path, name: str) -> list[Epoch]:
    """Return the finished epochs of an interrupted training of this name, with its state restored, or none."""
    try:
        page = torch.load(str(path), map_location="cpu", weights_only=True)
        if page["name"] != name:
            return []
        history = [Epoch(**epoch) for epoch in page["history"]]
        loop.restore(page["state"])
    except (OSError, RuntimeError, EOFError, ValueError, TypeError, KeyError, pickle.UnpicklingError):
        return []  # no file, or a damaged one: train from the start
    return history


class _Loop:
    """One training run: the objective, its optimiser and schedule, and the order of the clips."""

    def __init__(
        self,
        entry: dict[str, Any],
        data: Data,
        settings: Settings,
        network: torch.nn.Module,
        device: torch.device,
    ) -> None:
        self.entry, self.data, self.batch, self.device = entry, data, settings.batch, device
        self.network = network
        self.objective = torch_networks.objective(network).to(device)
        self.optimiser = torch.optim.AdamW(self.objective.parameters(), lr=settings.rate, weight_decay=0.01)
        steps = settings.epochs * -(-len(data.training) // settings.batch)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)
        self.rng = np.random.default_rng(settings.seed)

    def state(self) -> dict[str, Any]:
        """Return the state that the next epoch depends on, in types that torch.load reads without running code."""
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return {
            "objective": self.objective.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "order": json.dumps(self.rng.bit_generator.state),
            "random": torch.get_rng_state(),
            "random_cuda": cuda,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore `state`, to go on from there."""
        self.objective.load_state_dict(state["objective"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.rng.bit_generator.state = json.loads(state["order"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)

    def epoch(self, number: int) -> Epoch:
        """Train once on every video; return the mean loss and the number of held-out videos classified correctly."""
        begin = time.perf_counter()
        loss = self._train()
        if not np.isfinite(loss):
            raise ModelError(
                "E-TRAIN-3",
                f"the loss of epoch {number} is no longer a number",
                effect="No weights were written",
                fix="a smaller --learning-rate",
            )
        right = self._right()
        return Epoch(number, loss, right, len(self.data.held_out), time.perf_counter() - begin)

    def _train(self) -> float:
        self.objective.train()
        total = 0.0
        for videos in self._batches(self.rng.permutation(len(self.data.training))):
            windows = [(video, int(self.rng.choice(video.starts))) for video in videos]
            self.optimiser.zero_grad(set_to_none=True)
            loss = self.objective(self._clips(windows), self._labels(windows))
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            total += loss.item() * len(windows)
        return total / len(self.data.training)

    def _batches(self, order: NDArray[np.int64]) -> Iterator[list[Video]]:
        """Yield the training videos in this order, in batches of nearly the same size."""
        for part in np.array_split(order, -(-len(order) // self.batch)):
            yield [self.data.training[i] for i in part]

    def _right(self) -> int:
        self.network.eval()
        right = 0
        with torch.inference_mode():
            for start in range(0, len(self.data.held_out), self.batch):
                windows = [(v, v.middle) for v in self.data.held_out[start : start + self.batch]]
                answers = self.network(self._clips(windows)).argmax(dim=1)
                right += int((answers == self._labels(windows)).sum())
        return right

    def _clips(self, windows: Sequence[Window]) -> torch.Tensor:
        cut = [dataset.prepared(dataset.clip(video, start), self.entry) for video, start in windows]
        return torch.from_numpy(np.stack(cut)).to(self.device)

    def _labels(self, windows: Sequence[Window]) -> torch.Tensor:
        return torch.tensor([video.label for video, _ in windows], device=self.device)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "E-TRAIN-2",
            "no CUDA device can be used",
            evidence=f"PyTorch {torch.__version__}",
            effect="Nothing was trained",
            fix="--device cpu, or a PyTorch built for your driver",
        )
    return torch.device(name)


def _sizes(entry: dict[str, Any], classes: int) -> tuple[int, int]:
    """Return parameters, and multiply-accumulates of one sample, counted without computing."""
    with torch.device("meta"):
        network = torch_networks.build(entry, classes=classes)
        sample = torch.empty(1, *entry["input"])
    with FlopCounterMode(display=False) as counter:
        network(sample)
    return sum(p.numel() for p in network.parameters()), counter.get_total_flops() // 2


@contextmanager
def _repeatable(seed: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch and allow only deterministic algorithms within the block; restore both afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs this to be deterministic
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
            torch.backends.cudnn.benchmark = benchmark
