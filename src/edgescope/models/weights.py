"""Read and write weights files, and load one into a network, in PyTorch.

Weights files are read with weights_only=True: a pickle can run code when it is read, and a weights file
from a stranger must not. A .safetensors file holds no pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from edgescope import cache
from edgescope.errors import ModelError

HOLDERS = ("state_dict", "model_state_dict", "model")
"""Names under which a checkpoint of a training holds its weights."""
PARALLEL = "module."
"""What torch.nn.DataParallel puts before every name."""


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a weights file by name; ModelError if it is missing, damaged or holds code."""
    try:
        loaded = _loaded(path)
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
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, SafetensorError) as error:
        raise ModelError(
            "E-WEIGHTS-3",
            f"{path} cannot be read as PyTorch weights",
            evidence=_first_sentence(error),
            fix="copy the file again; it may be truncated or of another format",
        ) from error
    held = loaded if isinstance(loaded, Mapping) else {}
    state = next((held[key] for key in HOLDERS if isinstance(held.get(key), Mapping)), held)
    if not state or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ModelError(
            "E-WEIGHTS-4",
            f"{path} holds no state_dict",
            evidence=f"found {type(loaded).__name__}",
            fix="torch.save(model.state_dict(), path)",
        )
    prefix = PARALLEL if all(name.startswith(PARALLEL) for name in state) else ""
    return {name.removeprefix(prefix): value for name, value in state.items()}


def _loaded(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return load_file(str(path))
    return torch.load(str(path), map_location="cpu", weights_only=True)


def save(module: torch.nn.Module, path: Path) -> None:
    """Write the state_dict of `module` to `path`, completely or not at all."""
    with cache.writing(path) as temporary:
        torch.save(module.state_dict(), str(temporary))


def fill(module: torch.nn.Module, state: Mapping[str, torch.Tensor], *, name: str, in_order: bool) -> None:
    """Copy `state` into `module` by name, or in order for a port with other names; ModelError if it does not fit."""
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
