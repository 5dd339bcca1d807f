"""The heads that score snippets: RTFM's, Sultani's ranking head, and a small one for boards that RTFM is too much for.

All heads take features (N, T, F) and return scores (N, T); `scored` also returns what a loss needs.

RTFM's network (Tian et al., ICCV 2021): features of consecutive snippets -> an anomaly score for each snippet.

Three dilated convolutions over time and a non-local block see the snippets around each one (the multi-scale temporal
network); three dense layers score what comes out. 24,718,849 parameters with features of width 2048.

Snippets stay the rows of a matrix throughout, so every convolution is one matrix product with all its taps side by
side, and the products of neighbouring snippets are added afterwards: (N, T, F) needs no transposing, and the three
dilated convolutions and the 1x1 share one product. It computes what convolutions over a zero-padded sequence do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 2048
DILATIONS = (1, 2, 4)
DROPOUT = 0.7


class Scored(NamedTuple):
    """The network's answer for sequences (N, T, F)."""

    scores: torch.Tensor
    """(N, T) between 0 and 1."""
    features: torch.Tensor
    """(N, T, F) after the temporal network, and after dropout while training; their lengths choose snippets."""


class Rows(nn.BatchNorm1d):
    """Batch norm of the last axis of (N, T, C), over all N x T rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, T, C)."""
        return super().forward(x.flatten(0, 1)).view_as(x)


class NonLocal1d(nn.Module):
    """Adds to every snippet a sum over all of them, weighted by dot products divided by their number (no softmax)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 2
        self.g, self.theta, self.phi = (nn.Conv1d(channels, inner, 1) for _ in range(3))
        self.out = nn.Conv1d(inner, channels, 1)
        self.norm = Rows(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, T, C)."""
        weight = torch.cat([part.weight for part in (self.theta, self.phi, self.g)]).squeeze(2)
        bias = torch.cat([_bias(part) for part in (self.theta, self.phi, self.g)])
        theta, phi, g = F.linear(x, weight, bias).chunk(3, dim=2)
        gathered = torch.bmm(torch.bmm(theta, phi.transpose(1, 2)) / x.shape[1], g)
        found: torch.Tensor = x + self.norm(F.linear(gathered, self.out.weight.squeeze(2), self.out.bias))
        return found


class Score(nn.Module):
    """Three dense layers that score each snippet; RTFM's and MIL's heads differ in sizes and dropout."""

    def __init__(self, sizes: tuple[int, int, int], dropout: float, *, relu_twice: bool = True) -> None:
        super().__init__()
        width, first, second = sizes
        self.fc1, self.fc2, self.fc3 = nn.Linear(width, first), nn.Linear(first, second), nn.Linear(second, 1)
        self.drop, self.relu_twice = nn.Dropout(dropout), relu_twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (N, T) of (N, T, F)."""
        x = self.drop(F.relu(self.fc1(x)))
        x = self.fc2(x)
        x = self.drop(F.relu(x) if self.relu_twice else x)
        return torch.sigmoid(self.fc3(x)).squeeze(-1)


class Rtfm(nn.Module):
    """RTFM for features of any width that is a multiple of 8: (N, T, F) -> scores (N, T)."""

    def __init__(self, width: int = WIDTH, dropout: float = DROPOUT) -> None:
        super().__init__()
        branch = width // 4
        self.dilated = nn.ModuleList(nn.Conv1d(width, branch, 3, dilation=d, padding=d) for d in DILATIONS)
        self.dilated_norms = nn.ModuleList(Rows(branch) for _ in DILATIONS)
        self.narrow = nn.Conv1d(width, branch, 1, bias=False)
        self.non_local = NonLocal1d(branch)
        self.fuse = nn.Conv1d(width, width, 3, padding=1, bias=False)
        self.fuse_norm = Rows(width)
        self.score = Score((width, 512, 128), dropout)
        self.drop = nn.Dropout(dropout)
        self.apply(_start)
        nn.init.zeros_(self.non_local.norm.weight)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Return scores (N, T)."""
        return self.scored(sequences).scores

    def scored(self, sequences: torch.Tensor) -> Scored:
        """Return scores and the features that they were computed from."""
        features = self.drop(self.temporal(sequences))
        return Scored(self.score(features), features)

    def temporal(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, T, F): each snippet's features with those of the snippets around it, added to its own."""
        weights = [_taps(part.get_parameter("weight")) for part in (*self.dilated, self.narrow)]
        products = F.linear(x, torch.cat(weights)).chunk(3 * len(DILATIONS) + 1, dim=2)
        joined = []
        for number, (part, norm) in enumerate(zip(self.dilated, self.dilated_norms, strict=True)):
            taps = products[3 * number : 3 * number + 3]
            joined.append(norm(F.relu(_summed(taps, DILATIONS[number]) + _bias(part))))
        joined.append(self.non_local(F.relu(products[-1])))
        fused = _summed(F.linear(torch.cat(joined, dim=2), _taps(self.fuse.weight)).chunk(3, dim=2), 1)
        found: torch.Tensor = self.fuse_norm(F.relu(fused)) + x
        return found


def _bias(part: nn.Module) -> torch.Tensor:
    assert isinstance(part.bias, torch.Tensor)
    return part.bias


def _taps(weight: torch.Tensor) -> torch.Tensor:
    """Return a convolution's weight (out, in, k) as the matrix (k x out, in) of its taps."""
    return weight.permute(2, 0, 1).flatten(0, 1)


def _summed(taps: Sequence[torch.Tensor], dilation: int) -> torch.Tensor:
    """Return the convolution (N, T, C) from the products (N, T, C) of its three taps, for t - d, t and t + d."""
    before, here, after = taps
    d = min(dilation, here.shape[1])
    return here + F.pad(before[:, : here.shape[1] - d], (0, 0, d, 0)) + F.pad(after[:, d:], (0, 0, 0, d))


def _start(part: nn.Module) -> None:
    if isinstance(part, (nn.Conv1d, nn.Linear)):
        nn.init.xavier_uniform_(part.weight)
        if part.bias is not None:
            nn.init.zeros_(part.bias)


# -- the other heads -----------------------------------------------------------------------------------------


class Ranking(nn.Module):
    """The head of Sultani et al. (CVPR 2018): each snippet by itself; F-512-32-1, dropout 0.6, no ReLU after 32."""

    def __init__(self, width: int = 2048, dropout: float = 0.6) -> None:
        super().__init__()
        self.score = Score((width, 512, 32), dropout, relu_twice=False)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight)
                nn.init.zeros_(part.bias)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Return scores (N, T)."""
        found: torch.Tensor = self.score(sequences)
        return found

    def scored(self, sequences: torch.Tensor) -> Scored:
        """Return scores and the features that they were computed from."""
        return Scored(self(sequences), sequences)


class Light(nn.Module):
    """A head of 132 thousand parameters (width 1024): narrow to 128, see two snippets to each side, score."""

    def __init__(self, width: int = 1024, hidden: int = 128, dropout: float = 0.5) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, hidden)
        self.around = nn.Conv1d(hidden, hidden, 5, padding=2, groups=hidden)
        self.last = nn.Linear(hidden, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Return scores (N, T)."""
        return self.scored(sequences).scores

    def scored(self, sequences: torch.Tensor) -> Scored:
        """Return scores and the features that they were computed from."""
        x = self.drop(F.relu(self.narrow(sequences)))
        x = x + F.relu(self.around(x.transpose(1, 2))).transpose(1, 2)
        return Scored(torch.sigmoid(self.last(self.drop(x))).squeeze(-1), x)


HEADS: dict[str, Callable[[int], nn.Module]] = {"rtfm": Rtfm, "mil_ranking": Ranking, "light_head": Light}
"""Name of a head -> its class, which takes the width of the features."""
