"""Small networks of kinds that the zoo lacks, trained in seconds on tasks that are made here: for own_models.py.

Each function returns (network, example inputs), as `edgescope optimize small_networks:tokens@weights.pth` takes them,
and `drawn` the inputs and labels of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

VOCABULARY, LENGTH, SIDE = 64, 32, 64


class Tokens(nn.Module):
    """A transformer of two layers: which of four groups of tokens is the most frequent."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (n, 4) of int64 tokens (n, 32)."""
        answer: Tensor = self.head(self.encoder(self.embed(tokens)).mean(dim=1))
        return answer


class Two(nn.Module):
    """Two inputs, a picture and a vector: in which quadrant is the brightest spot, counted from the vector's."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 16, 32, 32)
        blocks = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()) for a, b in pairwise(widths)
        ]
        self.picture = nn.Sequential(*blocks, nn.Flatten())
        self.head = nn.Sequential(nn.Linear(32 * 16 + 4, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, picture: Tensor, turn: Tensor) -> Tensor:
        """Return the logits (n, 4) of pictures (n, 1, 32, 32) and one-hot turns (n, 4)."""
        answer: Tensor = self.head(torch.cat([self.picture(picture), turn], dim=1))
        return answer


class Segments(nn.Module):
    """A small encoder and decoder: background, disc or square at each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()
        )
        self.middle = nn.Sequential(nn.Conv2d(32, 32, 5, padding=2), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU(), nn.Conv2d(16, 3, 1))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the logits (n, 3, 64, 64) of pictures (n, 1, 64, 64)."""
        answer: Tensor = self.up(self.middle(self.down(picture)))
        return answer


def tokens() -> tuple[nn.Module, Tensor]:
    """Return the transformer and its example input."""
    return Tokens().eval(), torch.zeros(1, LENGTH, dtype=torch.int64)


def two() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return the network of two inputs and its examples."""
    return Two().eval(), (torch.zeros(1, 1, 32, 32), torch.zeros(1, 4))


def segments() -> tuple[nn.Module, Tensor]:
    """Return the segmentation network and its example input."""
    return Segments().eval(), torch.zeros(1, 1, SIDE, SIDE)


def drawn(name: str, n: int, seed: int) -> tuple[Mapping[str, NDArray[np.generic]], NDArray[np.int64]]:
    """Return n inputs by name, and their labels: (n,) classes, or (n, 64, 64) class maps."""
    rng = np.random.default_rng(seed)
    if name == "tokens":
        labels = rng.integers(0, 4, n)
        favoured = rng.random((n, LENGTH)) < 0.3
        groups = np.where(favoured, labels[:, None], rng.integers(0, 4, (n, LENGTH)))
        return {"tokens": groups * (VOCABULARY // 4) + rng.integers(0, VOCABULARY // 4, (n, LENGTH))}, labels
    if name == "two":
        place, turn = rng.integers(0, 4, n), rng.integers(0, 4, n)
        picture = rng.random((n, 1, 32, 32), dtype=np.float32)
        for i, where in enumerate(place):
            y, x = 16 * (where // 2) + rng.integers(2, 12), 16 * (where % 2) + rng.integers(2, 12)
            picture[i, 0, y : y + 3, x : x + 3] += 1.0
        return {"picture": picture, "turn": np.eye(4, dtype=np.float32)[turn]}, (place + turn) % 4
    y, x = np.mgrid[:SIDE, :SIDE]
    picture, maps = (
        rng.normal(0, 0.3, (n, 1, SIDE, SIDE)).astype(np.float32),
        np.zeros((n, SIDE, SIDE), np.int64),
    )
    for i in range(n):
        (cy, cx, r), (sy, sx, s) = (
            rng.integers([12, 12, 6], [52, 52, 12]),
            rng.integers([2, 2, 8], [40, 40, 20]),
        )
        maps[i][(y - cy) ** 2 + (x - cx) ** 2 < r * r] = 1
        maps[i][sy : sy + s, sx : sx + s] = 2
        picture[i, 0] += maps[i] * 0.7
    return {"picture": picture}, maps


STEPS = {"tokens": 200, "two": 300, "segments": 60}


def trained(name: str) -> nn.Module:
    """Return one of the networks after its STEPS of Adam on its task."""
    torch.manual_seed(0)
    network = {"tokens": tokens, "two": two, "segments": segments}[name]()[0].train()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for step in range(STEPS[name]):
        inputs, labels = drawn(name, 32, seed=step)
        loss = nn.functional.cross_entropy(
            network(*map(torch.from_numpy, inputs.values())), torch.from_numpy(labels)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()
