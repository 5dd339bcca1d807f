"""The losses of weakly supervised training: a bag is a video, labelled as a whole.

A minibatch holds normal bags first and as many abnormal ones after them: (2 B, crops, segments, width).

    rtfm          Tian et al., ICCV 2021. In each bag the k = segments // 10 snippets with the longest features are
                  chosen. Their mean score answers for the bag (cross-entropy); their mean feature is to be long in an
                  abnormal bag (100) and short in a normal one; scores of abnormal bags are to be smooth and few.
    ranking       Sultani et al., CVPR 2018. The highest score of an abnormal bag is to exceed a normal one's by 1.
    top_k         cross-entropy of the mean of the k highest scores, with the same smoothness and sparsity; for a head
                  too small to learn long features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from edgescope.wings.anomaly.networks.heads import Scored


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
