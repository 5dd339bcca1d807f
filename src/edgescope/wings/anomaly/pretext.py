"""Train a feature network on normal videos alone, to tell what was done to a clip.

This is for networks whose published weights cannot be had. No label of an anomaly is used: a clip of a normal training
video is changed, or not, and the network says how much of it was changed in which way. The tasks are known ones:

    frozen      the picture stands still
    fast        it is played two or three times as fast (SpeedNet, Benaim et al., CVPR 2020)
    backward    it is played backwards (the arrow of time, Wei et al., CVPR 2018)
    light       it is made darker or brighter
    pasted      a piece of another normal video moves through it (CutPaste, Li et al., CVPR 2021)

A network trained so sees such changes and perhaps no others. Where the anomalies of a set were planted by changes of
the same kinds, a figure on that set says that the chain works, and not how well it finds what nobody thought of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from edgescope import cache, fit
from edgescope.errors import EdgescopeError, UsageError
from edgescope.fit import Task
from edgescope.models import zoo
from edgescope.wings.anomaly.layouts import NORMAL, Video
from edgescope.wings.anomaly.preparation import Preparation, Read, decoded, preparation

TASKS = ("frozen", "fast", "backward", "light", "pasted")
FASTEST = 3
UNCHANGED = 0.2
"""Share of clips that stay as they are."""
EPOCH = 100
"""Steps between two looks at the validation videos."""
LOOK = 4
"""Minibatches of a look."""


@dataclass(frozen=True)
class Pretext:
    """How a feature network is trained."""

    features: str = "motion"
    tasks: tuple[str, ...] = TASKS
    steps: int = 4000
    batch: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    precision: str = "fp32"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Pretrained:
    """What training left."""

    path: Path
    videos: int
    """Normal training videos that clips were cut from."""
    history: tuple[fit.Epoch, ...]
    found: dict[str, float]
    """Task -> correlation of its answers with what was done, on clips of the validation videos (0 where it is not
    defined); the weights are those with the highest mean."""


def pretrain(
    videos: Sequence[Video], out: Path, chosen: Pretext = Pretext(), *, threads: int = 2
) -> Pretrained:
    """Train a feature network on the normal training videos and write its weights to `out`; return how it went.

    The weights are for `FEATURES@out`. UsageError without normal training videos that are long enough, or for an
    unknown task.
    """
    unknown = [name for name in chosen.tasks if name not in TASKS]
    if unknown or not chosen.tasks:
        what = f"no pretext is called {', '.join(unknown)}" if unknown else "there is nothing to learn"
        raise UsageError("E-ANOMALY-2", what, evidence=", ".join(TASKS), effect="Nothing was trained")
    fit.available(chosen.device)
    prepared = preparation(chosen.features)
    clips, judged = (
        Clips(films(videos, prepared, split, threads), prepared, chosen) for split in ("train", "validation")
    )
    made = list[Task]()

    def make() -> Task:
        made.append(_task(clips, chosen))
        return made[0]

    plan = fit.Plan(
        epochs=-(-chosen.steps // EPOCH),
        steps=chosen.steps,
        seed=chosen.seed,
        device=chosen.device,
        precision=chosen.precision,
        best=True,
    )
    fitted = fit.fit(make, plan, judge=lambda task: _mean(_found(task.network, judged, chosen)))
    network = made[0].network
    found = _found(network.to(chosen.device), judged, chosen)
    assert isinstance(network, Answers)
    with cache.writing(out) as temporary:
        state = network.features.cpu().state_dict()
        torch.save({name: value.contiguous() for name, value in state.items()}, str(temporary))
    return Pretrained(out, len(clips.films), fitted.history, found)


class Answers(nn.Module):
    """A feature network and a linear answer to each task."""

    def __init__(self, features: nn.Module, width: int, tasks: int) -> None:
        super().__init__()
        self.features, self.answer = features, nn.Linear(width, tasks)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return logits (N, tasks)."""
        found: torch.Tensor = self.answer(self.features(clips))
        return found


def _task(clips: Clips, chosen: Pretext) -> Task:
    network = Answers(zoo.get(chosen.features).module(), clips.prepared.width, len(chosen.tasks))
    network.to(chosen.device).to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        network.parameters(), chosen.learning_rate, weight_decay=chosen.weight_decay
    )
    rising = 0.1 if chosen.steps != 10 else 0.2  # of ten steps a tenth ends with the first: it divides by 0
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, chosen.learning_rate, chosen.steps, pct_start=rising
    )

    def loss(module: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(module(batch[0]).float(), batch[1])

    return Task(network, clips.batches, loss, optimizer, schedule)


def _found(network: nn.Module, clips: Clips, chosen: Pretext) -> dict[str, float]:
    """Return, by task, how answers go with what was done to clips that are the same ones every time."""
    network.eval()
    answers, shares = [], []
    with torch.inference_mode():
        for number in range(LOOK):
            batch, done = clips.draw(number)
            answers.append(torch.sigmoid(network(batch).float()).cpu().numpy())
            shares.append(done.cpu().numpy())
    pairs = zip(chosen.tasks, np.concatenate(answers).T, np.concatenate(shares).T, strict=True)
    return {name: _correlation(said, done) for name, said, done in pairs}


def _correlation(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    return float(np.corrcoef(first, second)[0, 1]) if np.std(first) and np.std(second) else 0.0


def _mean(found: dict[str, float]) -> float:
    return sum(found.values()) / len(found)


def films(
    videos: Sequence[Video], prepared: Preparation, split: str = "train", threads: int = 2
) -> list[torch.Tensor]:
    """Return the frames (n, height, width, 3) of every normal video of a split that can be read and is long enough."""
    least = prepared.snippet + FASTEST
    wanted = [video for video in videos if video.split == split and video.category == NORMAL]

    def read(video: Video) -> torch.Tensor | None:
        met = Read()
        try:
            parts = list(decoded(video.path, prepared, met))
        except EdgescopeError:
            return None
        whole = np.concatenate(parts).reshape(-1, *parts[0].shape[2:])[: met.frames]
        return torch.from_numpy(whole) if met.frames >= least else None

    with ThreadPoolExecutor(max(1, threads)) as pool:
        found = [film for film in pool.map(read, wanted) if film is not None]
    if not found:
        raise UsageError(
            "E-ANOMALY-6",
            f"no normal video of {least} frames can be read in the split {split}",
            evidence=f"{len(wanted)} normal videos in the split",
            effect="Nothing was trained",
            fix=f"add normal videos to the split {split}",
        )
    return found


class Clips:
    """Clips drawn from films, changed in one way or in none, on the device."""

    def __init__(self, films: Sequence[torch.Tensor], prepared: Preparation, chosen: Pretext) -> None:
        self.prepared, self.chosen = prepared, chosen
        self.lengths = np.array([len(film) for film in films])
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self.films = films
        self.frames = torch.cat(list(films)).to(chosen.device)
        self.mean = torch.tensor(prepared.mean, device=chosen.device).view(1, 3, 1, 1, 1)
        self.std = torch.tensor(prepared.std, device=chosen.device).view(1, 3, 1, 1, 1)

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the minibatches of an epoch."""
        for number in range(epoch * EPOCH, (epoch + 1) * EPOCH):
            yield self.draw(number)

    def draw(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return clips (N, 3, frames, high, wide) and what share of each was changed by each task (N, tasks)."""
        rng = np.random.default_rng([self.chosen.seed, number])
        size, frames, names = self.chosen.batch, self.prepared.snippet, self.chosen.tasks
        kind = np.where(rng.random(size) < UNCHANGED, -1, rng.integers(len(names), size=size))
        changed = _intervals(size, frames, rng) & (kind >= 0)[:, None]
        names_of = np.array([names[k] if k >= 0 else "" for k in kind])
        clips = self._cut(_times(names_of, changed, rng), rng)
        clips = clips * self._to(rng.uniform(0.8, 1.15, (size, 1, 1, 1, 1)))
        for change, name in ((_lit, "light"), (_pasted, "pasted")):
            rows = np.flatnonzero(names_of == name)
            if len(rows):
                mask = self._to(changed[rows])
                clips[rows] = change(clips[rows], clips[rng.permutation(size)[: len(rows)]], mask, rng)
        shares = np.zeros((size, len(names)), dtype=np.float32)
        shares[np.arange(size), kind] = np.where(kind >= 0, changed.mean(axis=1), 0)
        return (clips.clamp(0, 1) - self.mean) / self.std, self._to(shares)

    def _cut(self, times: np.ndarray[Any, Any], rng: np.random.Generator) -> torch.Tensor:
        """Return (N, 3, frames, high, wide) between 0 and 1: frames at these times, cut and perhaps mirrored."""
        size, (high, wide) = len(times), self.prepared.side
        reach = times.max(axis=1)
        weights = np.maximum(self.lengths[None, :] - reach[:, None], 0).astype(float)
        edges = np.cumsum(weights, axis=1)
        film = (
            (rng.random(size)[:, None] * edges[:, -1:] >= edges).sum(axis=1).clip(max=len(self.lengths) - 1)
        )
        begin = rng.integers(np.maximum(self.lengths[film] - reach, 1))
        rows = torch.from_numpy(self.starts[film] + begin)[:, None] + torch.from_numpy(times)
        clips = self.frames[rows.to(self.frames.device)]
        top, left = (
            int(rng.integers(a - b + 1)) for a, b in zip(clips.shape[2:4], (high, wide), strict=True)
        )
        cut = clips[:, :, top : top + high, left : left + wide].permute(0, 4, 1, 2, 3).float() / 255
        mirrored = self._to(rng.random(size) < 0.5).bool().view(-1, 1, 1, 1, 1)
        return torch.where(mirrored, cut.flip(4), cut)

    def _to(self, array: Any) -> torch.Tensor:
        return torch.as_tensor(np.asarray(array, dtype=np.float32), device=self.frames.device)


def _intervals(size: int, frames: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return which frames (N, frames) of each clip are changed: all of them, or from or up to a moment."""
    at, moment = np.arange(frames)[None, :], rng.integers(2, frames - 1, size)[:, None]
    which = rng.random(size)[:, None]
    return np.where(which < 0.5, True, np.where(which < 0.75, at >= moment, at < moment))


def _times(names: Any, changed: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return the time (N, frames) in the film of each frame of the clips, from 0 on."""
    fast = rng.integers(2, FASTEST + 1, len(names))
    rates = np.select([names == "frozen", names == "fast", names == "backward"], [0, fast, -1], 1)[:, None]
    steps = np.where(changed, rates, 1)[:, 1:]
    times = np.concatenate([np.zeros((len(names), 1), dtype=np.int64), np.cumsum(steps, axis=1)], axis=1)
    found: np.ndarray[Any, Any] = times - times.min(axis=1, keepdims=True)
    return found


def _lit(
    clips: torch.Tensor, others: torch.Tensor, mask: torch.Tensor, rng: np.random.Generator
) -> torch.Tensor:
    """Return clips that are darker or brighter where they are changed."""
    darker = rng.random(len(clips)) < 0.7
    gain = np.where(darker, rng.uniform(0.1, 0.6, len(clips)), rng.uniform(1.4, 2.5, len(clips)))
    factor = 1 + mask * (torch.as_tensor(gain, dtype=mask.dtype, device=mask.device)[:, None] - 1)
    return clips * factor[:, None, :, None, None]


def _pasted(
    clips: torch.Tensor, others: torch.Tensor, mask: torch.Tensor, rng: np.random.Generator
) -> torch.Tensor:
    """Return clips through which a piece of another clip moves where they are changed: an ellipse, or a rectangle."""
    count, _, frames, high, wide = clips.shape

    def random(low: float, high: float) -> torch.Tensor:
        return torch.as_tensor(
            rng.uniform(low, high, (count, 1, 1, 1)), dtype=clips.dtype, device=clips.device
        )

    at = torch.linspace(-1, 1, frames, device=clips.device).view(1, -1, 1, 1)
    row, column = random(-0.8, 0.8) + at * random(-0.3, 0.3), random(-0.8, 0.8) + at * random(-0.6, 0.6)
    y = torch.linspace(-1, 1, high, device=clips.device).view(1, 1, -1, 1) - row
    x = torch.linspace(-1, 1, wide, device=clips.device).view(1, 1, 1, -1) - column
    tall, broad = random(0.15, 0.45), random(0.15, 0.45)
    round_, square = (y / tall) ** 2 + (x / broad) ** 2 < 1, (y.abs() < tall) & (x.abs() < broad)
    inside = torch.where(random(0, 1) < 0.7, round_, square) & (mask.view(count, frames, 1, 1) > 0)
    across = (x + random(-0.5, 0.5)).expand(-1, -1, high, -1)
    grid = torch.stack([across, (y + random(-0.5, 0.5)).expand(-1, -1, -1, wide)], dim=-1)
    pictures = others.transpose(1, 2).flatten(0, 1)
    moved = F.grid_sample(pictures, grid.flatten(0, 1), padding_mode="reflection", align_corners=True)
    piece = moved.view(count, frames, 3, high, wide).transpose(1, 2)
    return torch.where(inside[:, None], piece, clips)


def about(chosen: Pretext, made: Pretrained) -> dict[str, Any]:
    """Return how a network was trained, as plain values."""
    return {
        **asdict(chosen),
        "videos": made.videos,
        "loss": made.history[-1].loss,
        "seconds": round(sum(epoch.seconds for epoch in made.history), 1),
        "found": made.found,
    }
