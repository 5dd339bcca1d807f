"""The networks of video anomaly detection in PyTorch, and the names of their weights in published checkpoints.

Untrained networks get random weights from a seed, so that every process builds the same one.

I3D ResNet-50 is with or without non-local blocks, in the two forms that are called by this name. `32x2` (Wang et al.,
CVPR 2018, in the port whose features RTFM was trained on) halves time in the stem, in the first pooling and after the
first stage: 16 frames become a map of 2 x 7 x 7. `8x8` (PySlowFast's I3D_NLN_8x8_R50) keeps time in the stem and in the
first pooling, so the same 16 frames cost 3.5 times (4 times with non-local blocks) as much work. Both have the same
parameters: 28,043,472, and 35,401,936 with five non-local blocks. The networks return pooled features; the classifier
of Kinetics' 400 actions is kept (`fc`), so that a published checkpoint loads whole.

Motion, edgescope's own, (N, 3, T, H, W) -> (N, 512), sees each frame and how much it differs from the one before.
Convolutions over space and over time take turns ((2+1)D, Tran et al., CVPR 2018). Its features are means and maxima of
the last maps: what happens in a small place for a short time is lost in a mean alone. It is made to be trained on
videos of one's own (wings/anomaly/pretext.py): no weights of it are published.

Each publisher has one table of patterns, `theirs -> ours`, in which {s} stands for a stage, {b} for a block and {x} for
the rest of a name. Every map is one to one, so a network can also be written for other programs. The names in a file
show who published it. PySlowFast publishes the networks with non-local blocks as blobs of Caffe2 (.pkl), whose names
those of Video-Nonlocal-Net are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from edgescope.errors import ModelError
from edgescope.models.image import torch_networks as image_networks
from edgescope.models.image import torchvision_compat
from edgescope.models.image.network import pretrained_file
from edgescope.models.weights import fill, read_state
from edgescope.wings.anomaly.heads import HEADS


def network(entry: dict[str, Any], weights: Path | None, *, seed: int = 0) -> nn.Module:
    """Return the network of a zoo entry with the weights of a file, or with random weights from `seed`."""
    module = build(entry, seed=seed)
    pretrained = entry.get("pretrained")
    if weights:
        load(module, read_state(weights), entry["definition"])
    elif pretrained:
        state = read_state(pretrained_file(pretrained))
        assert isinstance(module, Frames)
        fill(module.network, state, name=entry["definition"], in_order=pretrained["in_order"])
    return module


def load(module: nn.Module, state: Mapping[str, torch.Tensor], name: str) -> None:
    """Copy a checkpoint into `module`, whoever published it; ModelError if it is of another network.

    A batch norm's counter of training steps may be missing: inference never reads it.
    """
    found = ours_of(state)
    own = module.state_dict()
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    fill(module, counters | found, name=name, in_order=False)


def build(entry: Mapping[str, Any], *, seed: int = 0) -> nn.Module:
    """Return `anomaly:name` with random weights from `seed`, in eval mode."""
    make: dict[str, Callable[[], nn.Module]] = {
        "anomaly:i3d_32x2": lambda: I3d("32x2", non_local=False),
        "anomaly:i3d_32x2_nl": lambda: I3d("32x2"),
        "anomaly:i3d_8x8": lambda: I3d("8x8", non_local=False),
        "anomaly:i3d_8x8_nl": lambda: I3d("8x8"),
        "anomaly:s3d": S3d,
        "anomaly:motion": Motion,
        "anomaly:frames": lambda: Frames(image_networks.build({"definition": entry["of"]})),
    }
    definition = entry["definition"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if definition in make:
            return make[definition]().eval()
        return HEADS[definition.removeprefix("anomaly:")](entry["input"][-1]).eval()


# -- networks of features -------------------------------------------------------------------------------------


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


class S3d(nn.Module):
    """S3D (Xie et al., ECCV 2018) of torchvision, with its names: (N, 3, T, H, W), T of 14 or more -> (N, 1024)."""

    def __init__(self) -> None:
        super().__init__()
        whole: Any = torchvision_compat.torchvision().models.get_model("s3d", weights=None)
        self.features, self.avgpool, self.classifier = whole.features, whole.avgpool, whole.classifier

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return features (N, 1024)."""
        maps: torch.Tensor = self.avgpool(self.features(clips))
        return maps.mean(dim=(2, 3, 4))


class Frames(nn.Module):
    """An image network over each frame of a snippet: the mean of its last block's features, and of how they change.

    It is no network of motion: it stands in where no weights of one can be had, because an image network with real
    weights sees more in a film than a network for films with random ones. (N, 3, T, H, W) -> (N, 2 x features).
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return, side by side, means of the maps, and of how much each place changes from frame to frame."""
        images = clips.transpose(1, 2).flatten(0, 1)
        maps = self.network.blocks(self.network.bn1(self.network.conv_stem(images)))
        maps = maps.view(clips.shape[0], clips.shape[2], *maps.shape[1:])
        moved = (maps[:, 1:] - maps[:, :-1]).abs().mean(dim=(1, 3, 4))
        return torch.cat([maps.mean(dim=(1, 3, 4)), moved], dim=1)


# -- names in published checkpoints ---------------------------------------------------------------------------


Value = TypeVar("Value")

LETTERS = {"1": "a", "2": "b", "3": "c"}
#: I3D, the 32x2 form: torchvision's names of a ResNet, stages from 1 on, `nl` within its block.
PORT_OF_32X2 = (
    ("conv1.{x}", "stem.{x}"),
    ("bn1.{x}", "stem_norm.{x}"),
    *((f"layer{{s}}.{{b}}.conv{n}.{{x}}", f"stages.{{s}}.{{b}}.{ours}.{{x}}") for n, ours in LETTERS.items()),
    *(
        (f"layer{{s}}.{{b}}.bn{n}.{{x}}", f"stages.{{s}}.{{b}}.{ours}_norm.{{x}}")
        for n, ours in LETTERS.items()
    ),
    ("layer{s}.{b}.downsample.{x}", "stages.{s}.{b}.shortcut.{x}"),
    ("layer{s}.{b}.nl.bn.{x}", "stages.{s}.{b}.non_local.norm.{x}"),
    ("layer{s}.{b}.nl.{x}", "stages.{s}.{b}.non_local.{x}"),
    ("fc.{x}", "fc.{x}"),
)
#: I3D, the 8x8 form: PySlowFast, stages from s2 on.
PYSLOWFAST = (
    ("s1.pathway0_stem.conv.{x}", "stem.{x}"),
    ("s1.pathway0_stem.bn.{x}", "stem_norm.{x}"),
    *(
        (f"s{{s}}.pathway0_res{{b}}.branch2.{n}.{{x}}", f"stages.{{s}}.{{b}}.{n}.{{x}}")
        for n in LETTERS.values()
    ),
    *(
        (f"s{{s}}.pathway0_res{{b}}.branch2.{n}_bn.{{x}}", f"stages.{{s}}.{{b}}.{n}_norm.{{x}}")
        for n in LETTERS.values()
    ),
    ("s{s}.pathway0_res{b}.branch1.{x}", "stages.{s}.{b}.shortcut.0.{x}"),
    ("s{s}.pathway0_res{b}.branch1_bn.{x}", "stages.{s}.{b}.shortcut.1.{x}"),
    ("s{s}.pathway0_nonlocal{b}.norm.{x}", "stages.{s}.{b}.non_local.norm.{x}"),
    ("s{s}.pathway0_nonlocal{b}.conv_{x}", "stages.{s}.{b}.non_local.{x}"),
    ("head.projection.{x}", "fc.{x}"),
)
NORM = {"s": "weight", "b": "bias", "rm": "running_mean", "riv": "running_var"}
#: Caffe2's blobs of I3D in both forms: Video-Nonlocal-Net's names, stages from res2 on.
CAFFE2 = (
    ("conv1_w", "stem.weight"),
    *((f"res_conv1_bn_{n}", f"stem_norm.{ours}") for n, ours in NORM.items()),
    *((f"res{{s}}_{{b}}_branch2{n}_w", f"stages.{{s}}.{{b}}.{n}.weight") for n in LETTERS.values()),
    *(
        (f"res{{s}}_{{b}}_branch2{n}_bn_{key}", f"stages.{{s}}.{{b}}.{n}_norm.{ours}")
        for n in LETTERS.values()
        for key, ours in NORM.items()
    ),
    ("res{s}_{b}_branch1_w", "stages.{s}.{b}.shortcut.0.weight"),
    *(
        (f"res{{s}}_{{b}}_branch1_bn_{n}", f"stages.{{s}}.{{b}}.shortcut.1.{ours}")
        for n, ours in NORM.items()
    ),
    *(
        (f"nonlocal_conv{{s}}_{{b}}_{n}_{key}", f"stages.{{s}}.{{b}}.non_local.{n}.{ours}")
        for n in ("theta", "phi", "g", "out")
        for key, ours in (("w", "weight"), ("b", "bias"))
    ),
    *(
        (f"nonlocal_conv{{s}}_{{b}}_bn_{n}", f"stages.{{s}}.{{b}}.non_local.norm.{ours}")
        for n, ours in NORM.items()
    ),
    ("pred_w", "fc.weight"),
    ("pred_b", "fc.bias"),
)
#: RTFM as its authors publish it.
RTFM = (
    *((f"Aggregate.conv_{n}.0.{{x}}", f"dilated.{n - 1}.{{x}}") for n in (1, 2, 3)),
    *((f"Aggregate.conv_{n}.2.{{x}}", f"dilated_norms.{n - 1}.{{x}}") for n in (1, 2, 3)),
    ("Aggregate.conv_4.0.{x}", "narrow.{x}"),
    ("Aggregate.conv_5.0.{x}", "fuse.{x}"),
    ("Aggregate.conv_5.2.{x}", "fuse_norm.{x}"),
    ("Aggregate.non_local.W.0.{x}", "non_local.out.{x}"),
    ("Aggregate.non_local.W.1.{x}", "non_local.norm.{x}"),
    ("Aggregate.non_local.{x}", "non_local.{x}"),
    *((f"fc{n}.{{x}}", f"score.fc{n}.{{x}}") for n in (1, 2, 3)),
)
PUBLISHERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "32x2": PORT_OF_32X2,
    "8x8": PYSLOWFAST,
    "caffe2": CAFFE2,
    "rtfm": RTFM,
}
FIRST_STAGE = {"32x2": 1, "8x8": 2, "caffe2": 2, "rtfm": 0}
"""The number of a publisher's first stage; ours is 0."""
OLDER_NAMES = ((re.compile(r"(_nonlocal\d+)\.bn\."), r"\1.norm."),)
"""Names of older files of a publisher -> its names of today."""
OF_TRAINING = re.compile(r"lr|model_iter|.+_momentum")
"""What Caffe2 keeps beside the weights of a network: no part of it."""


def to_ours(state: Mapping[str, Value], publisher: str) -> dict[str, Value]:
    """Return a published checkpoint's tensors under edgescope's names; ModelError names the first unknown name."""
    found = {}
    for name, value in state.items():
        if publisher == "caffe2" and OF_TRAINING.fullmatch(name):
            continue
        today = name
        for pattern, new in OLDER_NAMES:
            today = pattern.sub(new, today)
        ours = _mapped(today, PUBLISHERS[publisher], -FIRST_STAGE[publisher])
        if ours is None:
            raise ModelError(
                "E-WEIGHTS-7",
                f"the checkpoint holds {name}, which {publisher} has not",
                evidence=f"{len(state)} tensors",
                effect="The weights were not loaded",
                fix="give the checkpoint of this very network; its form is in `edgescope docs anomaly`",
            )
        found[ours] = value
    return found


def to_theirs(state: Mapping[str, Value], publisher: str) -> dict[str, Value]:
    """Return tensors under edgescope's names under those of `publisher`."""
    back = tuple((ours, theirs) for theirs, ours in PUBLISHERS[publisher])
    named = ((_mapped(name, back, FIRST_STAGE[publisher]), value) for name, value in state.items())
    return {name: value for name, value in named if name is not None}


def publisher_of(names: Iterable[str]) -> str:
    """Return the publisher whose names these are, or '' if they are edgescope's own."""
    known = set(names)
    signs = {
        "8x8": "s1.pathway0_stem.conv.weight",
        "32x2": "layer1.0.conv1.weight",
        "caffe2": "conv1_w",
        "rtfm": "Aggregate.conv_1.0.weight",
    }
    return next((name for name, sign in signs.items() if sign in known), "")


def ours_of(state: Mapping[str, Value]) -> dict[str, Value]:
    """Return a checkpoint's tensors under edgescope's names, whoever published it."""
    publisher = publisher_of(state)
    return to_ours(state, publisher) if publisher else dict(state)


def _mapped(name: str, table: tuple[tuple[str, str], ...], shift: int) -> str | None:
    for theirs, ours in table:
        if found := _pattern(theirs).fullmatch(name):
            parts = found.groupdict()
            if "s" in parts:
                parts["s"] = str(int(parts["s"]) + shift)
            return ours.format(**parts)
    return None


def _pattern(text: str) -> re.Pattern[str]:
    escaped = re.escape(text)
    for key, pattern in (("s", r"\d+"), ("b", r"\d+"), ("x", r".+")):
        escaped = escaped.replace(rf"\{{{key}\}}", rf"(?P<{key}>{pattern})")
    return re.compile(escaped)
