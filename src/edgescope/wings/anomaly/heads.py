"""The heads that score snippets, and their losses: RTFM's, Sultani's ranking head, and a small one for small boards.

All heads take features (N, T, F) and return scores (N, T); `scored` also returns what a loss needs.

RTFM's network (Tian et al., ICCV 2021): features of consecutive snippets -> an anomaly score for each snippet.

Three dilated convolutions over time and a non-local block see the snippets around each one (the multi-scale temporal
network); three dense layers score what comes out. 24,718,849 parameters with features of width 2048.

Snippets stay the rows of a matrix throughout, so every convolution is one matrix product with all its taps side by
side, and the products of neighbouring snippets are added afterwards: (N, T, F) needs no transposing, and the three
dilated convolutions and the 1x1 share one product. It computes what convolutions over a zero-padded sequence do.

The losses are weakly supervised: a bag is a video, labelled as a whole. A minibatch holds normal bags first and as many
abnormal ones after them: (2 B, crops, segments, width).

    rtfm          Tian et al., ICCV 2021. In each bag the k = segments // 10 snippets with the longest features are
                  chosen. Their mean score answers for the bag (cross-entropy); their mean feature is to be long in an
                  abnormal bag (100) and short in a normal one; scores of abnormal bags are to be smooth and few.
    ranking       Sultani et al., CVPR 2018. The highest score of an abnormal bag is to exceed a normal one's by 1.
    top_k         cross-entropy of the mean of the k highest scores, with the same smoothness and sparsity; for a head
                  too small to learn long features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


# -- losses ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """The terms of a loss, already weighted."""

    bags: torch.Tensor
    """How well bags are told apart: cross-entropy, or the hinge of the ranking."""
    lengths: torch.Tensor
    """Feature lengths; 0 for a head whose features have no lengths to learn."""
    smooth: torch.Tensor
    sparse: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        """Return their sum."""
        return self.bags + self.lengths + self.smooth + self.sparse


@dataclass(frozen=True)
class Weights:
    """The weights of the terms; the defaults are RTFM's published ones."""

    margin: float = 100.0
    """The length that features of abnormal bags are to have."""
    lengths: float = 1e-4
    smooth: float = 8e-4
    sparse: float = 8e-3


RANKING = Weights(smooth=8e-5, sparse=8e-5)
"""Sultani's published weights; the ranking loss has no lengths."""


def rtfm(network: Any, bags: torch.Tensor, weights: Weights = Weights()) -> Terms:
    """Return RTFM's loss of a minibatch.

    Differences between neighbours run over the flattened scores of all abnormal bags, across the borders of bags, and
    sparsity is the length of that whole vector, as published.
    """
    crops = bags.shape[1]
    found: Scored = network.scored(bags.flatten(0, 1))
    with torch.autocast(bags.device.type, enabled=False):
        scores = _by_bag(found.scores.float(), crops).mean(dim=1)
        features = _by_bag(found.features, crops)
        with torch.no_grad():  # lengths choose segments; nothing is learned through them
            lengths = torch.linalg.vector_norm(features, dim=3, dtype=torch.float32).mean(dim=1)
        half, count = len(scores) // 2, max(1, scores.shape[1] // 10)
        abnormal = _longest(lengths[half:], count, network.drop)
        normal = _longest(lengths[:half], count, network.drop)
        answers = torch.cat([scores[:half].gather(1, normal), scores[half:].gather(1, abnormal)]).mean(dim=1)
        apart = (weights.margin - _mean_length(features[half:], abnormal)).abs()
        together = _mean_length(features[:half], normal)
        return Terms(
            bags=F.binary_cross_entropy(answers, _labels(answers)),
            lengths=weights.lengths * ((apart + together) ** 2).mean(),
            smooth=weights.smooth * _differences(scores[half:].flatten()),
            sparse=weights.sparse * torch.linalg.vector_norm(scores[half:]),
        )


def ranking(network: Any, bags: torch.Tensor, weights: Weights = RANKING) -> Terms:
    """Return the ranking loss of a minibatch, over all pairs of an abnormal and a normal bag."""
    scores = _scores(network, bags)
    half = len(scores) // 2
    highest = scores.amax(dim=1)
    hinge = (1 - highest[half:, None] + highest[None, :half]).clamp(min=0).mean()
    abnormal = scores[half:]
    steps = abnormal[:, 1:] - abnormal[:, :-1]
    return Terms(
        bags=hinge,
        lengths=hinge.new_zeros(()),
        smooth=weights.smooth * (steps**2).sum(dim=1).mean(),
        sparse=weights.sparse * abnormal.sum(dim=1).mean(),
    )


def top_k(network: Any, bags: torch.Tensor, weights: Weights = Weights()) -> Terms:
    """Return the cross-entropy of the mean of each bag's highest scores."""
    scores = _scores(network, bags)
    half = len(scores) // 2
    answers = scores.topk(max(1, scores.shape[1] // 10), dim=1).values.mean(dim=1)
    with torch.autocast(bags.device.type, enabled=False):
        return Terms(
            bags=F.binary_cross_entropy(answers, _labels(answers)),
            lengths=answers.new_zeros(()),
            smooth=weights.smooth * _differences(scores[half:].flatten()),
            sparse=weights.sparse * torch.linalg.vector_norm(scores[half:]),
        )


Loss = Callable[[Any, torch.Tensor], Terms]
LOSSES: dict[str, Loss] = {"rtfm": rtfm, "mil_ranking": ranking, "light_head": top_k}
"""Name of a head -> the loss that trains it."""


def _by_bag(rows: torch.Tensor, crops: int) -> torch.Tensor:
    """Return (bags, crops, ...) of (bags x crops, ...)."""
    return rows.view(-1, crops, *rows.shape[1:])


def _scores(network: Any, bags: torch.Tensor) -> torch.Tensor:
    """Return scores (bags, segments), the mean over crops."""
    found: Scored = network.scored(bags.flatten(0, 1))
    scores: torch.Tensor = _by_bag(found.scores.float(), bags.shape[1]).mean(dim=1)
    return scores


def _labels(answers: torch.Tensor) -> torch.Tensor:
    """Return 0 for the first half of the bags and 1 for the second."""
    labels = torch.zeros_like(answers)
    labels[len(answers) // 2 :] = 1
    return labels


def _longest(lengths: torch.Tensor, count: int, drop: nn.Module) -> torch.Tensor:
    """Return the segments (bags, count) with the longest features; dropout hides some of them while training."""
    shown: torch.Tensor = lengths * drop(torch.ones_like(lengths))
    return shown.topk(count, dim=1).indices


def _mean_length(features: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return (bags, crops), the length of the mean feature of the chosen segments."""
    rows = chosen[:, None, :, None].expand(-1, features.shape[1], -1, features.shape[3])
    found: torch.Tensor = torch.linalg.vector_norm(features.gather(2, rows).float().mean(dim=2), dim=2)
    return found


def _differences(scores: torch.Tensor) -> torch.Tensor:
    """Return the sum of squared differences between neighbours."""
    return ((scores[1:] - scores[:-1]) ** 2).sum()
