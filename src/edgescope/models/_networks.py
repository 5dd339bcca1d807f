"""Builds the zoo's networks in PyTorch: the half of image.py that needs torch.

Weights files are read with weights_only=True: a pickle can run code when it is read, and a weights file
from a stranger must not. An untrained network is initialised from a seed, so that every process builds the
same one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from edgescope.errors import ModelError
from edgescope.models import _torchvision

_torchvision.ensure()

import timm  # noqa: E402
import torchvision  # noqa: E402


def network(definition: str, weights: Path | None, *, seed: int, in_order: bool) -> torch.nn.Module:
    """Return a network with the weights of a file, or random ones from `seed` where there is no file."""
    module = build(definition, seed)
    if weights:
        fill(module, read_state(weights), name=definition, in_order=in_order)
    return module


def build(definition: str, seed: int = 0) -> torch.nn.Module:
    """Return `timm:name` or `torchvision:name` with random weights from `seed`, in eval mode."""
    library, name = definition.split(":")
    make: Callable[[], torch.nn.Module] = {
        "timm": lambda: timm.create_model(name, pretrained=False),
        "torchvision": lambda: torchvision.models.get_model(name, weights=None),
    }[library]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a weights file by name; ModelError where it is missing, damaged or holds code."""
    try:
        loaded: Any = torch.load(str(path), map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(
            "E-WEIGHTS-1", f"the weights file {path} is not there", fix="check the path after the @"
        ) from error
    except pickle.UnpicklingError as error:
        raise ModelError(
            "E-WEIGHTS-2",
            f"{path} holds more than weights and was not executed",
            evidence=_first_sentence(error),
            fix="save the weights alone: torch.save(model.state_dict(), path)",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelError(
            "E-WEIGHTS-3",
            f"{path} cannot be read as PyTorch weights",
            evidence=_first_sentence(error),
            fix="copy the file again; it may be truncated or of another format",
        ) from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, Mapping) else {}
    if not state or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ModelError(
            "E-WEIGHTS-4",
            f"{path} holds no state_dict",
            evidence=f"found {type(loaded).__name__}",
            fix="torch.save(model.state_dict(), path)",
        )
    return dict(state)


def fill(module: torch.nn.Module, state: Mapping[str, torch.Tensor], *, name: str, in_order: bool) -> None:
    """Copy `state` into `module` by name, or in order for a port that renamed all; else ModelError."""
    wanted = module.state_dict()
    if in_order and len(state) == len(wanted):
        state = dict(zip(wanted, state.values(), strict=True))
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            "E-WEIGHTS-5",
            f"these weights do not fit {name}",
            evidence=" ".join(str(error).split())[:300],
            fix="give the weights of this very network, or name the right network before the @",
        ) from error


def _first_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
