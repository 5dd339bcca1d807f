"""Read and write weights files, and load one into a network, in PyTorch.

Weights files are read with weights_only=True: a pickle can run code when it is read, and a weights file
from a stranger must not. A .safetensors file holds no pickle. A plain pickle of dicts and arrays, as Caffe2's networks
are published (.pkl), is read by edgescope.foreign.pickled, which admits nothing else.

A training keeps more than weights, each in its own way. Where they lie in a file, and what stands before their names,
is found by comparing with the names of the network itself, not by a list of what trainers are known to write.
"""

from __future__ import annotations

import argparse
import pathlib
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.foreign import pickled
from edgescope.models.user import files

State = dict[str, torch.Tensor]
WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Parts of a name that torch puts there when it wraps a network or a layer of it: they name no layer."""
DEEPEST, SHOWN = 3, 5
"""How deep weights may lie in a file, and how many names a message lists."""
PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"(d", b"(l", b"}", b"]")
"""How a pickle begins: its protocol, or a dict or list of the first one. PyTorch's files of today are zip archives."""
TORCH = b"\x80\x02\x8a\n"
"""How PyTorch's files before 1.6 begin: a number in a pickle of its own."""
SAFE: list[Any] = [
    argparse.Namespace,
    pathlib.PosixPath,
    np.dtype,
    np.float64(0).__reduce__()[0],  # how numpy pickles a number
    *(type(np.dtype(name)) for name in ("float32", "float64", "int64", "bool")),
]
"""What trainers keep beside the weights and what runs no code: their arguments, a best accuracy."""


def read_state(path: Path, module: torch.nn.Module | None = None) -> State:
    """Return the tensors of a weights file by name; ModelError if it is missing, damaged or holds code.

    With a `module`, those of the file's states that most belong to it, under the names that it uses.
    """
    loaded = _read(path)
    wanted = list(module.state_dict()) if module is not None else []
    states = list(_states(loaded, "", DEEPEST))
    if not states:
        raise ModelError(
            "E-WEIGHTS-4",
            f"{path} holds no state_dict",
            evidence=f"found {_described(loaded)}",
            fix="torch.save(model.state_dict(), path)",
        )
    named = [(place, matched(state, wanted)) for place, state in states]
    return max(named, key=lambda at: (len(at[1].keys() & set(wanted)), "ema" not in at[0], len(at[1])))[1]


def _read(path: Path) -> Any:
    try:
        return _loaded(path)
    except FileNotFoundError as error:
        raise ModelError(
            "E-WEIGHTS-1", f"the weights file {path} is not there", fix="check the path after the @"
        ) from error
    except pickled.NotPlain as error:
        raise _more(path, f"a pickle that PyTorch did not write: {error}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, LookupError) as error:
        raise _unread(path, error) from error
    except SafetensorError as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: Exception) -> ModelError:
    kind = files.said(path)
    if isinstance(error, pickle.UnpicklingError) and (not kind or "zip" in kind):
        return _more(path, _sentence(error))
    return ModelError(
        "E-WEIGHTS-3",
        f"{path} cannot be read as PyTorch weights",
        evidence=f"it is {kind}" if kind and "zip" not in kind else _sentence(error),
        fix="copy the file again; it may be truncated or of another format",
    )


def _more(path: Path, evidence: str) -> ModelError:
    return ModelError(
        "E-WEIGHTS-2",
        f"{path} holds more than weights and was not executed",
        evidence=evidence,
        fix="save the weights alone, with the program that wrote the file: torch.save(model.state_dict(), path)",
    )


def _loaded(path: Path) -> Any:
    with path.open("rb") as file:
        start = file.read(9)
    if path.suffix == ".safetensors" or start[8:] == b"{":
        return load_file(str(path))
    with torch.serialization.safe_globals(SAFE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(str(path), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError):
            if not start.startswith(PICKLE) or start.startswith(TORCH):
                raise
            return _tensors(pickled.read(path))


def _tensors(held: Any) -> Any:
    """Return a plain value with its arrays of numbers as tensors."""
    if isinstance(held, dict):
        return {key: _tensors(value) for key, value in held.items()}
    if isinstance(held, np.ndarray) and held.dtype.kind in "fiub":
        return torch.from_numpy(held.astype(held.dtype.newbyteorder("=")))
    return held


def _states(held: Any, place: str, depth: int) -> Iterator[tuple[str, State]]:
    """Yield (where, tensors by name) of every mapping in a file that holds any, the outermost first."""
    if not isinstance(held, Mapping) or not depth:
        return
    found = {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
    if found and all(isinstance(name, str) for name in found):
        yield place, found
    for name, inner in held.items():
        yield from _states(inner, f"{place}.{name}", depth - 1)


def matched(state: Mapping[str, torch.Tensor], wanted: Collection[str]) -> State:
    """Return the state under the names of a network: without what stands before or within its names.

    What lies outside a prefix belongs to another part of the training, and a number alone (an epoch, how many networks
    were averaged) to no layer; both are left out once all that is wanted is there. No name in common: as it is.
    """
    names, given = _plain(wanted), _plain(state)
    if not names:
        return {key: state[name] for key, name in given.items()}
    prefix = _prefix(given, names)
    inner = _prefix(names, given) if not prefix else ""
    found = {
        inner + key.removeprefix(prefix): state[name] for key, name in given.items() if key.startswith(prefix)
    }
    found = {names.get(key, key): value for key, value in found.items()}
    if not set(wanted) <= found.keys():
        return found if found.keys() & set(wanted) else dict(state)
    return {key: value for key, value in found.items() if key in wanted or value.ndim}


def _plain(names: Iterable[str]) -> dict[str, str]:
    """Return name without WRAPPERS -> name; as they are if two would be the same then."""
    names = list(names)
    found = {".".join(part for part in name.split(".") if part not in WRAPPERS): name for name in names}
    return found if len(found) == len(names) else {name: name for name in names}


def _prefix(given: Collection[str], names: Collection[str]) -> str:
    """Return what stands before most of the names that both have, '' if nothing does, or not one thing alone."""
    places: Counter[str] = Counter()
    for name in given:
        parts = name.split(".")
        tails = (".".join(parts[cut:]) for cut in range(len(parts)))
        places.update(name.removesuffix(tail) for tail in tails if tail in names)
    best = [place for place, count in places.items() if count == max(places.values())]
    return best[0] if len(best) == 1 else ""


def _described(loaded: Any) -> str:
    """Return what a file holds: `dict with epoch (int), args (Namespace)`."""
    if not isinstance(loaded, Mapping):
        return type(loaded).__name__
    return f"{type(loaded).__name__} with {_listed(f'{k} ({type(v).__name__})' for k, v in loaded.items())}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "nothing") + more


def save(module: torch.nn.Module, path: Path) -> None:
    """Write the state_dict of `module` to `path`, completely or not at all."""
    with cache.writing(path) as temporary:
        torch.save(module.state_dict(), str(temporary))


def fill(module: torch.nn.Module, state: Mapping[str, torch.Tensor], *, name: str, in_order: bool) -> None:
    """Copy `state` into `module` by name, or in order for a port with other names; ModelError if it does not fit."""
    wanted = module.state_dict()
    if in_order and len(state) == len(wanted):
        state = dict(zip(wanted, state.values(), strict=True))
    state = matched(state, wanted)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            "E-WEIGHTS-5",
            f"these weights do not fit {name}",
            evidence=_misfit(wanted, state) or _sentence(error),
            fix="give the weights of this very network, or name the right network before the @",
        ) from error


def _misfit(wanted: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> str:
    """Return what is missing, what the network has no place for, and what has another shape."""
    other = [f"{k} {_shape(state[k])} for {_shape(v)}" for k, v in wanted.items() if k in state]
    sides = {
        "missing": [key for key in wanted if key not in state],
        "not of this network": [key for key in state if key not in wanted],
        "of another shape": [text for text in other if len(set(text.split(" ", 1)[1].split(" for "))) > 1],
    }
    return "; ".join(f"{len(keys)} {what}: {_listed(keys)}" for what, keys in sides.items() if keys)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _sentence(error: BaseException) -> str:
    """Return what an error says, in one line without colours; of torch's page on pickles, what stopped it."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    inner = re.search(
        r"WeightsUnpickler error: (.*?)(?: was not an allowed|\. Please| Check the doc|$)", text
    )
    if inner and inner[1].startswith("Unsupported operand"):
        return "a pickle that PyTorch did not write"
    return f"{type(error).__name__}: {(inner[1] if inner else text)[:200]}"
