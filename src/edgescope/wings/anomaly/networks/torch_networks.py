"""Builds the networks of video anomaly detection in PyTorch: the half of network.py that needs torch.

Untrained networks get random weights from a seed, so that every process builds the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgescope.models.image import torch_networks as image_networks
from edgescope.models.image import torchvision_compat
from edgescope.models.image.network import pretrained_file
from edgescope.models.weights import fill, read_state
from edgescope.wings.anomaly.networks import checkpoints
from edgescope.wings.anomaly.networks.feature_networks import I3d, Motion
from edgescope.wings.anomaly.networks.heads import HEADS


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
    found = checkpoints.ours_of(state)
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
