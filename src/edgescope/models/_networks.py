"""Builds the zoo's image networks in PyTorch: the half of image.py that needs torch, torchvision and timm.

An untrained network is initialised from a seed, so that every process builds the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from edgescope.models import _torchvision
from edgescope.models._weights import fill, read_state

_torchvision.ensure()

import timm  # noqa: E402
import torchvision  # noqa: E402


def network(entry: dict[str, Any], weights: Path | None, *, seed: int, in_order: bool) -> torch.nn.Module:
    """Return the network of a zoo entry with the weights of a file, or random ones from `seed` without one."""
    module = build(entry, seed)
    if weights:
        fill(module, read_state(weights), name=entry["definition"], in_order=in_order)
    return module


def build(entry: dict[str, Any], seed: int = 0) -> torch.nn.Module:
    """Return `timm:name` or `torchvision:name` with random weights from `seed`, in eval mode.

    `classes` of the entry is the size of the last layer; without it, the library's own, 1000.
    """
    library, name = entry["definition"].split(":")
    head = {"num_classes": entry["classes"]} if "classes" in entry else {}
    make: Callable[[], torch.nn.Module] = {
        "timm": lambda: timm.create_model(name, pretrained=False, **head),
        "torchvision": lambda: torchvision.models.get_model(name, weights=None, **head),
    }[library]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()
