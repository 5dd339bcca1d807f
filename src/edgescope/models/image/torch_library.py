"""What timm and torchvision say of a network of theirs: the half of network.py that asks them.

The answer has the form of an entry of zoo.toml: a package's network is built, exported and judged as the zoo's are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from edgescope.errors import UnsupportedError, UsageError, closest_name
from edgescope.models.image import torch_networks, torchvision_compat

torchvision_compat.ensure()

import timm  # noqa: E402
import torchvision  # noqa: E402

USUAL = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
"""ImageNet's statistics, where a package states none."""


def describe(name: str) -> dict[str, Any]:
    """Return definition, task, input, params, macs, mean and std of `timm:NAME` or `torchvision:NAME`.

    UsageError, with the closest name, if the package has no such network; UnsupportedError if it takes no image.
    """
    library, _, network = name.partition(":")
    entry = _of_timm(network) if library == "timm" else _of_torchvision(network)
    with torch.device("meta"):
        module = torch_networks.build(entry)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            module(torch.zeros(1, *entry["input"]))
    params = sum(parameter.numel() for parameter in module.parameters())
    return entry | {"params": params, "macs": counter.get_total_flops() // 2, "head": "any"}


def _of_timm(name: str) -> dict[str, Any]:
    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    config = timm.get_pretrained_cfg(name)
    image = list(config.input_size) if config else [3, 224, 224]
    stated = {"mean": list(config.mean), "std": list(config.std)} if config else USUAL
    return {"definition": f"timm:{name}", "input": image, **stated}


def _of_torchvision(name: str) -> dict[str, Any]:
    models = torchvision.models
    segmenters = models.list_models(module=models.segmentation)
    classifiers = models.list_models(module=models)
    if name not in models.list_models():
        raise _unknown("torchvision", name, (*classifiers, *segmenters))
    if name not in (*classifiers, *segmenters):
        raise UnsupportedError(
            "E-LIBRARY-1",
            f"torchvision's {name} does not answer one image with one tensor",
            fix="write it as module:callable, a function that returns (network, example inputs)",
        )
    usual = getattr(models.get_model_weights(name), "DEFAULT", None)
    steps = usual.transforms() if usual else None
    side = next((s for n in ("crop_size", "resize_size") if (s := getattr(steps, n, None))), [224])[0]
    stated = {key: list(getattr(steps, key, default)) for key, default in USUAL.items()}
    kind = "torchvision segmentation" if name in segmenters else "torchvision"
    task = {"task": "segment"} if name in segmenters else {}
    return {"definition": f"{kind}:{name}", "input": [3, side, side], **task, **stated}


def _unknown(library: str, name: str, known: Any) -> UsageError:
    known = list(known)
    close = closest_name(name, known)
    return UsageError(
        "E-MODEL-3",
        f"{library} has no network called {name!r}",
        evidence=f"it has {len(known)}, among them {', '.join(known[:5])}",
        fix=f"edgescope bench {library}:{close}" if close else "edgescope docs your-model",
    )
