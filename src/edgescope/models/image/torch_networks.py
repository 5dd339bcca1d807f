"""Builds the zoo's image networks in PyTorch: the half of network.py that needs torch, torchvision and timm.

An untrained network is initialised from a seed, so that every process builds the same one. The classifiers keep the
initialisation of their library. The segmenter and the detectors are scaled, because the accuracy gate asks of them
what it asks of any network: to compute the same function. That only means something if the output depends on the input
by much more than on rounding. A fresh residual network adds in every block a signal as large as its input, and ends
with large outputs that hardly differ; a fresh detector's boxes move by less than a pixel, because SiLU, unlike ReLU,
has a scale of its own, and a signal below it fades.

Both are corrected by scale alone: a residual block adds only a quarter, and each layer of the detector has one scale,
found on a noise image. Mean and variance of each channel from data, as in training, amplify rounding more than they
add: tried with whole blocks, bf16 was off by 0.27 (centred L2); as it is here, by 0.06. SSD300's scales are found on
made-up scenes, because its boxes are counted on real frames, which resemble noise of all sizes; its heads are centred
too, or the same few of its 8,732 boxes would lead in every frame.

LeNet-5 (LeCun et al. 1998) is as it is trained today: 28 x 28 grey images, ReLU and max pooling, ten classes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgescope.models.image import torchvision_compat
from edgescope.models.image.detectors import PRIOR, Bottleneck, Detector, Head, Ssd300
from edgescope.models.weights import fill, read_state

torchvision_compat.ensure()  # timm imports torchvision
AUXILIARY = "aux_classifier."
"""Weights of a second head that only training uses; torchvision's own files of segmenters hold them."""


def _timm() -> Any:
    """Return timm, which imports torchvision."""
    return importlib.import_module("timm")


class Segmenter(nn.Module):
    """A segmentation network of torchvision that returns a tensor; its weights keep torchvision's names."""

    def __init__(self, name: str, **head: int) -> None:
        super().__init__()
        whole: Any = torchvision_compat.torchvision().models.get_model(
            name, weights=None, weights_backbone=None, **head
        )
        self.backbone, self.classifier = whole.backbone, whole.classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes, height, width) of images (N, 3, height, width)."""
        features = self.backbone(images)
        logits = self.classifier(features.get("out", features))
        return nn.functional.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)


def network(entry: dict[str, Any], weights: Path | None, *, seed: int, in_order: bool) -> nn.Module:
    """Return the network of a zoo entry with the weights of a file, or with random weights from `seed`."""
    module = build(entry, seed)
    if weights:
        state = {k: v for k, v in read_state(weights, module).items() if not k.startswith(AUXILIARY)}
        if entry.get("head") == "any" and (classes := _classes(module, state)):
            module = build(entry | {"classes": classes}, seed)
        fill(module, state, name=entry["definition"], in_order=in_order)
    elif "start" in entry:
        settle(module, entry, seed)
    return module


def _classes(module: nn.Module, state: Mapping[str, torch.Tensor]) -> int:
    """Return the number of classes of the weights if their last layer has another number than the network's, else 0."""
    name, last = list(module.state_dict().items())[-1]
    found = state.get(name)
    return len(found) if found is not None and found.ndim and len(found) != len(last) else 0


def build(entry: dict[str, Any], seed: int = 0) -> nn.Module:
    """Return `library:name` with the library's initialisation from `seed`, in eval mode.

    `classes` of the entry is the size of the last layer; without it, the library's own, 1000.
    """
    library, name = entry["definition"].split(":")
    head = {"num_classes": entry["classes"]} if "classes" in entry else {}
    make: dict[str, Callable[[], nn.Module]] = {
        "timm": lambda: _timm().create_model(name, pretrained=False, **head),
        "torchvision": lambda: torchvision_compat.torchvision().models.get_model(name, weights=None, **head),
        "torchvision segmentation": lambda: Segmenter(name, **head),
        "edgescope": lambda: OWN[name](entry["classes"]),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make[library]().eval()


RESIDUAL = 0.25
"""Weight of a residual block's last batch norm. Goyal et al. (arXiv 1706.02677, section 5.1) start training at 0."""
SIDE, SSD_SIDE = 320, 300
"""Sides of the images on which the detectors' scales are found: half of the point detector's own, SSD300's own."""
AFTER_SILU = 0.3557
"""Mean square of SiLU(z), z standard normal."""
STARTS = (
    "quiet residuals 1",
    "quiet residuals, unit scale 1",
    "quiet residuals, unit scale, centred heads 1",
)
SCENES, CELLS = 2, (2, 5, 12, 30, 75, 150)
"""Number of scenes on which SSD300's scales are found, and the grids of noise of which they are the sum."""
MOVE_SPREAD, LOGIT_SPREAD, BACKGROUND = 1.0, 0.85, 3.0
"""Standard deviations of SSD300's moves and logits on these scenes, and how far the background leads."""
BOX_SPREAD = 2.0
"""Standard deviation of the logits that weigh a box's distances: in a trained detector they have a clear peak."""


def settle(module: nn.Module, entry: Mapping[str, Any], seed: int) -> None:
    """Apply to `module` the initialisation that its zoo entry names; ValueError for an unknown one."""
    if entry["start"] not in STARTS:
        raise ValueError(entry["start"])
    quiet_residuals(module)
    if isinstance(module, Detector | Ssd300):
        unit_scale(module, seed)


def quiet_residuals(module: nn.Module) -> None:
    """Let every bottleneck add a quarter of its usual output."""
    for block in module.modules():
        last = block.second.norm if isinstance(block, Bottleneck) else getattr(block, "bn3", None)
        if isinstance(last, nn.BatchNorm2d):
            nn.init.constant_(last.weight, RESIDUAL)


def unit_scale(detector: Detector | Ssd300, seed: int) -> None:
    """Scale the output of every layer to a mean square of 1 on made-up images, and the heads to sensible outputs.

    One scale per layer, rounded to a quarter of an octave, so that machines that sum in another order agree on it. It
    uses one thread: eight workers that each start one thread per core take half a minute, a single worker takes a
    moment.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    norms = [part for part in detector.modules() if isinstance(part, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(_scale) for norm in norms]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        if isinstance(detector, Ssd300):
            _aim_ssd(detector)
        else:
            _aim_points(detector)
    for hook in hooks:
        hook.remove()
    torch.set_num_threads(threads)


def _aim_points(detector: Detector) -> None:
    """Find the scales of the point detector on one noise image, and set its heads."""
    detector.logits(torch.randn(1, 3, SIDE, SIDE))
    for head in detector.heads:
        assert isinstance(head, Head)
        _aim(head.boxes[-1], BOX_SPREAD, 0.0)
        _aim(head.kinds[-1], 1.0, -math.log(1 / PRIOR - 1))


def _aim_ssd(network: Ssd300) -> None:
    """Find the scales of SSD300 on made-up scenes; give its heads outputs of mean 0, and the background its lead."""
    maps = network.features(scenes(SCENES, SSD_SIDE))
    for heads, spread in ((network.moves, MOVE_SPREAD), (network.logits, LOGIT_SPREAD)):
        for head, given in zip(heads, maps, strict=True):
            assert isinstance(head, nn.Conv2d) and head.bias is not None
            nn.init.normal_(head.weight)
            nn.init.zeros_(head.bias)
            answer = head(given)
            mean = answer.mean((0, 2, 3))
            octaves = math.log2(spread / float((answer - mean[:, None, None]).square().mean().sqrt()))
            scale = 2 ** (round(4 * octaves) / 4)
            head.weight.mul_(scale)
            head.bias.copy_((-256 * scale * mean).round() / 256)
    for head in network.logits:
        assert isinstance(head, nn.Conv2d) and head.bias is not None
        head.bias.view(network.classes, -1)[0] += BACKGROUND


def scenes(n: int, side: int) -> torch.Tensor:
    """Return n random images (n, 3, side, side) between -1 and 1, mostly grey, whose large shapes are the strongest."""
    image = torch.zeros(n, 3, side, side)
    for level, cells in enumerate(CELLS):
        noise = torch.randn(n, 1, cells, cells) + 0.3 * torch.randn(n, 3, cells, cells)
        finer = nn.functional.interpolate(noise, size=(side, side), mode="bilinear", align_corners=False)
        image += finer / 1.6**level
    return (0.45 * image).clamp(-1, 1)


def _scale(norm: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
    """Set a batch norm's variance to the mean square of its coming input."""
    assert isinstance(norm, nn.BatchNorm2d) and norm.running_var is not None
    octaves = math.log2(float(given[0].double().square().mean()))
    norm.running_var.fill_(2 ** (round(4 * octaves) / 4))


def _aim(last: nn.Module, spread: float, bias: float) -> None:
    """Make a head's last convolution give logits with this standard deviation around this bias."""
    assert isinstance(last, nn.Conv2d) and last.bias is not None
    nn.init.normal_(last.weight, 0.0, spread / math.sqrt(AFTER_SILU * last.in_channels))
    nn.init.constant_(last.bias, bias)


class LeNet5(nn.Sequential):
    """Two convolutions, three linear layers: 61,706 parameters. Takes (N, 1, 28, 28), gives (N, 10) logits."""

    def __init__(self, classes: int = 10) -> None:
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
            nn.Linear(84, classes),
        )


def resnet18_cifar(classes: int = 10) -> nn.Module:
    """Return ResNet-18 for 32 x 32 images: a stem of 3 x 3 without stride, no pooling before the blocks."""
    network: nn.Module = torchvision_compat.torchvision().models.resnet18(weights=None, num_classes=classes)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return network


OWN: Mapping[str, Callable[[int], nn.Module]] = {
    "lenet5": LeNet5,
    "resnet18_cifar": resnet18_cifar,
    "detector": Detector,
    "ssd300": Ssd300,
}
"""Networks of edgescope's own, each made from its number of classes."""
