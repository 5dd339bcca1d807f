"""A small feature network of motion, edgescope's own: (N, 3, T, H, W) -> (N, 512).

It sees each frame and how much it differs from the one before. Convolutions over space and over time take turns
((2+1)D, Tran et al., CVPR 2018). Its features are means and maxima of the last maps, because what happens in a small
place for a short time is lost in a mean alone. It is made to be trained on one's own videos (anomaly/pretext.py): no
weights of it are published.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS = (24, 48, 96, 192, 256)
WIDTH = 2 * CHANNELS[-1]


class Block(nn.Module):
    """A convolution over space, one over time, and what came in added to what comes out."""

    def __init__(self, inside: int, outside: int, stride: tuple[int, int]) -> None:
        super().__init__()
        time, space = stride
        self.space = nn.Conv3d(inside, outside, (1, 3, 3), (1, space, space), (0, 1, 1), bias=False)
        self.time = nn.Conv3d(outside, outside, (3, 1, 1), (time, 1, 1), (1, 0, 0), bias=False)
        self.space_norm, self.time_norm = nn.BatchNorm3d(outside), nn.BatchNorm3d(outside)
        self.shortcut = nn.Conv3d(inside, outside, 1, (time, space, space), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return maps of `outside` channels."""
        y = F.relu(self.space_norm(self.space(x)))
        return F.relu(self.time_norm(self.time(y)) + self.shortcut(x))


class Motion(nn.Module):
    """The network; T of 8 or more."""

    def __init__(self) -> None:
        super().__init__()
        first, *others = CHANNELS
        self.stem = nn.Conv3d(6, first, (1, 5, 5), (1, 2, 2), (0, 2, 2), bias=False)
        self.norm = nn.BatchNorm3d(first)
        strides = ((1, 2), (2, 2), (2, 2), (1, 1))
        sizes = zip(CHANNELS[:-1], others, strides, strict=True)
        self.blocks = nn.Sequential(*(Block(inside, outside, s) for inside, outside, s in sizes))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return features (N, 512)."""
        moved = clips[:, :, 1:] - clips[:, :, :-1]
        both = torch.cat([clips, torch.cat([moved[:, :, :1], moved], dim=2)], dim=1)
        maps = self.blocks(F.relu(self.norm(self.stem(both))))
        return torch.cat([maps.mean(dim=(2, 3, 4)), maps.amax(dim=(2, 3, 4))], dim=1)
