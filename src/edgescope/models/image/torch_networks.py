"""Builds the zoo's image networks in PyTorch: the half of network.py that needs torch, torchvision and timm.

An untrained network is initialised from a seed, so that every process builds the same one. The classifiers keep the
initialisation of their library; the two others are scaled, as described below.

The random weights of the segmenter and the detector are scaled so that their outputs can be judged.

The accuracy gate requires the same of an untrained network as of any other: a variant must compute the same
function. That only means something if the output depends on the input by much more than on rounding. A freshly
initialised residual network adds in every block a signal as large as its input, and ends with large outputs that hardly
differ; a fresh detector's boxes move by less than a pixel from input to input, because SiLU, unlike ReLU, has a scale
of its own, and a signal below it fades.

Both are corrected by scale alone: a residual block adds only a quarter, and each layer of the detector has one scale,
found on a noise image. Taking the mean and variance of each channel from data, as training does, makes the detector
depend on its input more but amplifies rounding by more still: when it was tried, with whole blocks, bf16 was off by
0.27 (centred L2); as it is here it is off by 0.06.

LeNet-5 (LeCun et al. 1998) as it is trained today: 28 x 28 grey images, ReLU and max pooling, ten classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgescope.models.image import torchvision_compat
from edgescope.models.image.detector import PRIOR, Bottleneck, Detector, Head
from edgescope.models.weights import fill, read_state

torchvision_compat.ensure()

import timm  # noqa: E402
import torchvision  # noqa: E402

AUXILIARY = "aux_classifier."
"""Weights of a second head that only training uses; torchvision's own files of segmenters hold them."""


class Segmenter(nn.Module):
    """A segmentation network of torchvision that returns a tensor; its weights keep torchvision's names."""

    def __init__(self, name: str, **head: int) -> None:
        super().__init__()
        whole: Any = torchvision.models.get_model(name, weights=None, weights_backbone=None, **head)
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
        state = {k: v for k, v in read_state(weights).items() if not k.startswith(AUXILIARY)}
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
        "timm": lambda: timm.create_model(name, pretrained=False, **head),
        "torchvision": lambda: torchvision.models.get_model(name, weights=None, **head),
        "torchvision segmentation": lambda: Segmenter(name, **head),
        "edgescope": lambda: LeNet5() if name == "lenet5" else Detector(entry["classes"]),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make[library]().eval()


RESIDUAL = 0.25
"""Weight of a residual block's last batch norm. Goyal et al. (arXiv 1706.02677, section 5.1) start training at 0."""
SIDE = 320
"""Side of the noise image on which the detector's scales are found: half the detector's own, a quarter of the work."""
AFTER_SILU = 0.3557
"""Mean square of SiLU(z), z standard normal."""
BOX_SPREAD = 2.0
"""Standard deviation of the logits that weigh a box's distances: in a trained detector they have a clear peak."""


def settle(module: nn.Module, entry: Mapping[str, Any], seed: int) -> None:
    """Apply to `module` the initialisation that its zoo entry names; ValueError for an unknown one."""
    if entry["start"] not in ("quiet residuals 1", "quiet residuals, unit scale 1"):
        raise ValueError(entry["start"])
    quiet_residuals(module)
    if isinstance(module, Detector):
        unit_scale(module, seed)


def quiet_residuals(module: nn.Module) -> None:
    """Let every bottleneck add a quarter of its usual output."""
    for block in module.modules():
        last = block.second.norm if isinstance(block, Bottleneck) else getattr(block, "bn3", None)
        if isinstance(last, nn.BatchNorm2d):
            nn.init.constant_(last.weight, RESIDUAL)


def unit_scale(detector: Detector, seed: int) -> None:
    """Scale the output of every layer to a mean square of 1 on one noise image, and the heads to sensible outputs.

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
        detector.logits(torch.randn(1, 3, SIDE, SIDE))
        for head in detector.heads:
            assert isinstance(head, Head)
            _aim(head.boxes[-1], BOX_SPREAD, 0.0)
            _aim(head.kinds[-1], 1.0, -math.log(1 / PRIOR - 1))
    for hook in hooks:
        hook.remove()
    torch.set_num_threads(threads)


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
