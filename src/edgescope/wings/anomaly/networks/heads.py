"""The other heads that score snippets: Sultani's ranking head, and a small one for boards that RTFM is too much for.

All heads take features (N, T, F) and return scores (N, T); `scored` also returns what a loss needs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from edgescope.wings.anomaly.networks.rtfm import Rtfm, Score, Scored


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
