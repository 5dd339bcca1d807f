"""LeNet-5 (LeCun et al. 1998) as it is trained today: 28 x 28 grey images, ReLU and max pooling, ten classes."""

from __future__ import annotations

from torch import nn


class LeNet5(nn.Sequential):
    """Two convolutions, three linear layers: 61,706 parameters. Takes (N, 1, 28, 28), gives (N, 10) logits."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )
