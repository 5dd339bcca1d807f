"""Networks that make features of snippets: I3D ResNet-50 in two forms, and a small one of motion, edgescope's own.

I3D is with or without non-local blocks, in the two forms that are called by this name.

`32x2` (Wang et al., CVPR 2018, in the port whose features RTFM was trained on) halves time in the stem, in the first
pooling and after the first stage: 16 frames become a map of 2 x 7 x 7. `8x8` (PySlowFast's I3D_NLN_8x8_R50) keeps time
in the stem and in the first pooling, so the same 16 frames cost 3.5 times (4 times with non-local blocks) as much work.
Both have the same parameters: 28,043,472, and 35,401,936 with five non-local blocks.

The networks return pooled features; the classifier of Kinetics' 400 actions is kept (`fc`), so that a published
checkpoint loads whole.

Motion, (N, 3, T, H, W) -> (N, 512), sees each frame and how much it differs from the one before. Convolutions over
space and over time take turns ((2+1)D, Tran et al., CVPR 2018). Its features are means and maxima of the last maps:
what happens in a small place for a short time is lost in a mean alone. It is made to be trained on videos of one's own
(wings/anomaly/pretext.py): no weights of it are published.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 2048
"""Number of features of a snippet."""
KINETICS = 400
BLOCKS = (3, 4, 6, 3)
TEMPORAL = ((3, 3, 3), (3, 1, 3, 1), (3, 1, 3, 1, 3, 1), (1, 3, 1))
"""Temporal size of each block's first convolution, by stage."""
NON_LOCAL = ((), (1, 3), (1, 3, 5), ())
"""Blocks of each stage that a non-local block follows."""
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Form:
    """The difference between the two forms: how the stem and the first pooling treat time."""

    stem_stride: Triple
    pool: Triple
    pool_padding: Triple


FORMS = {
    "32x2": Form(stem_stride=(2, 2, 2), pool=(2, 3, 3), pool_padding=(0, 0, 0)),
    "8x8": Form(stem_stride=(1, 2, 2), pool=(1, 3, 3), pool_padding=(0, 1, 1)),
}


class NonLocal(nn.Module):
    """Adds to every place a weighted sum over all places (embedded Gaussian), pooled by two in space."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 2
        self.theta, self.phi, self.g = (nn.Conv3d(channels, inner, 1) for _ in range(3))
        self.out = nn.Conv3d(inner, channels, 1)
        self.norm = nn.BatchNorm3d(channels)
        self.pool = nn.MaxPool3d((1, 2, 2))
        self.scale = inner**-0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, C, T, H, W), as x."""
        pooled = self.pool(x)
        theta, phi, g = self.theta(x), self.phi(pooled).flatten(2), self.g(pooled).flatten(2)
        weights = torch.softmax(torch.bmm(theta.flatten(2).transpose(1, 2), phi) * self.scale, dim=2)
        gathered = torch.bmm(g, weights.transpose(1, 2)).view_as(theta)
        found: torch.Tensor = x + self.norm(self.out(gathered))
        return found


class Block(nn.Module):
    """A bottleneck: a temporal convolution, a spatial one that strides, one that widens; then the non-local block."""

    def __init__(self, inside: int, planes: int, temporal: int, stride: int, *, non_local: bool) -> None:
        super().__init__()
        wide = 4 * planes
        self.a = nn.Conv3d(inside, planes, (temporal, 1, 1), padding=(temporal // 2, 0, 0), bias=False)
        self.a_norm = nn.BatchNorm3d(planes)
        self.b = nn.Conv3d(planes, planes, (1, 3, 3), (1, stride, stride), padding=(0, 1, 1), bias=False)
        self.b_norm = nn.BatchNorm3d(planes)
        self.c = nn.Conv3d(planes, wide, 1, bias=False)
        self.c_norm = nn.BatchNorm3d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if inside != wide or stride != 1:
            project = nn.Conv3d(inside, wide, 1, (1, stride, stride), bias=False)
            self.shortcut = nn.Sequential(project, nn.BatchNorm3d(wide))
        self.non_local: nn.Module = NonLocal(wide) if non_local else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, 4 planes, T, H / stride, W / stride)."""
        y = self.relu(self.a_norm(self.a(x)))
        y = self.relu(self.b_norm(self.b(y)))
        found: torch.Tensor = self.non_local(self.relu(self.c_norm(self.c(y)) + self.shortcut(x)))
        return found


class I3d(nn.Module):
    """I3D ResNet-50: (N, 3, T, H, W), normalised -> features (N, 2048)."""

    def __init__(self, form: str = "32x2", *, non_local: bool = True, classes: int = KINETICS) -> None:
        super().__init__()
        shape = FORMS[form]
        self.stem = nn.Conv3d(3, 64, (5, 7, 7), shape.stem_stride, padding=(2, 3, 3), bias=False)
        self.stem_norm = nn.BatchNorm3d(64)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool3d(shape.pool, (shape.pool[0], 2, 2), shape.pool_padding)
        self.halve = nn.MaxPool3d((2, 1, 1))
        inside = 64
        stages = []
        for stage, (temporal, after) in enumerate(zip(TEMPORAL, NON_LOCAL, strict=True)):
            planes, layers = 64 * 2**stage, list[nn.Module]()
            for number, size in enumerate(temporal):
                stride = 2 if stage and not number else 1
                layers.append(Block(inside, planes, size, stride, non_local=non_local and number in after))
                inside = 4 * planes
            stages.append(nn.Sequential(*layers))
        self.stages = nn.ModuleList(stages)
        self.fc = nn.Linear(WIDTH, classes)
        self.apply(_start)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return features (N, 2048): the mean over time and space of the last map."""
        x = self.pool(self.relu(self.stem_norm(self.stem(clips))))
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if number == 0:
                x = self.halve(x)
        features: torch.Tensor = x.mean(dim=(2, 3, 4))
        return features

    def classify(self, clips: torch.Tensor) -> torch.Tensor:
        """Return the logits (N, classes) of Kinetics' actions."""
        logits: torch.Tensor = self.fc(self(clips))
        return logits


QUIET = 0.25
"""Weight of a block's last norm at the start: an untrained network's answers then depend on its input."""


def _start(part: nn.Module) -> None:
    if isinstance(part, nn.Conv3d):
        nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    if isinstance(part, Block):
        nn.init.constant_(part.c_norm.weight, QUIET)
    if isinstance(part, NonLocal):
        nn.init.constant_(part.norm.weight, QUIET)


# -- motion --------------------------------------------------------------------------------------------------


CHANNELS = (24, 48, 96, 192, 256)


class MotionBlock(nn.Module):
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
        self.blocks = nn.Sequential(*(MotionBlock(inside, outside, s) for inside, outside, s in sizes))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return features (N, 512)."""
        moved = clips[:, :, 1:] - clips[:, :, :-1]
        both = torch.cat([clips, torch.cat([moved[:, :, :1], moved], dim=2)], dim=1)
        maps = self.blocks(F.relu(self.norm(self.stem(both))))
        return torch.cat([maps.mean(dim=(2, 3, 4)), maps.amax(dim=(2, 3, 4))], dim=1)
