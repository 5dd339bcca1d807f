"""The half of files.py that needs torch: call a factory, and record its result and the files it read.

A factory is called in several processes: one exports the network, others run it. All must get the same
weights, or right answers would look wrong. So the usual random generators are seeded before each call, and
the weights are compared with those of the first.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import random
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.models.image import torchvision_compat
from edgescope.records import Json, digest

SEED = 0
torchvision_compat.ensure()  # a user's module may import torchvision, or timm, which imports it
_watching: list[set[str]] = []


def make(name: str, state: str | None = None) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the module in eval mode and its example inputs by name; ModelError for anything else.

    `state` is the value of "state" from describe(): ModelError if the weights differ now.
    """
    made = _call(name)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise _unfit(name, f"it returned {_kind(made)}")
    module, examples = made
    if state is not None and _state(module) != state:
        raise ModelError(
            "E-FACTORY-4",
            f"the factory {name} is not deterministic: its weights differ from those of an earlier call",
            evidence=f"torch, numpy and random were seeded with {SEED} before both calls",
            effect="Each process would measure another network, and right outputs would look wrong",
            fix="build the network inside the factory; seed it there, or load its weights from a file",
        )
    return module.eval(), _named(name, module, examples)


def describe(name: str) -> dict[str, Json]:
    """Return inputs, params, the digests of the weights and of everything, and every file read to make the network."""
    with _reads() as opened:
        module, examples = make(name)
    files = {path: cache.content(Path(path)) for path in sorted(opened | _sources())}
    state = _state(module)
    return {
        "inputs": [_input(key, tensor) for key, tensor in examples.items()],
        "params": sum(parameter.numel() for parameter in module.parameters()),
        "files": files,
        "state": state,
        "digest": digest([name, state, sorted(files.values())]),
    }


def _state(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers."""
    state = hashlib.sha256()
    for key, tensor in module.state_dict().items():
        state.update(key.encode())
        state.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()


def _seed() -> None:
    """Seed the generators that weights are usually drawn from."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)


def _call(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    _seed()  # a module may make its network while it is imported
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ModelError(
            "E-FACTORY-1",
            f"{name} cannot be imported",
            evidence=_last(error),
            fix="run edgescope in the folder that holds the module, and check the name after the colon",
        ) from error
    _seed()
    try:
        return factory()
    except Exception as error:  # and so may the factory
        raise ModelError(
            "E-FACTORY-2",
            f"{name}() raised an error",
            evidence=_last(error),
            fix=f"python -c {shlex.quote(f'import {module_name}; {module_name}.{attribute}()')}",
        ) from error


def _last(error: BaseException) -> str:
    """Return the last line of a traceback and its place in the source."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return traceback.format_exception_only(error)[-1].strip()[:300] + where


def _named(name: str, module: torch.nn.Module, examples: Any) -> dict[str, torch.Tensor]:
    """Return the example inputs by the names of forward()'s arguments."""
    if isinstance(examples, torch.Tensor):
        examples = (examples,)
    if isinstance(examples, Mapping):
        order = [p for p in inspect.signature(module.forward).parameters if p in examples]
        named = {key: examples[key] for key in order} if len(order) == len(examples) else dict(examples)
    elif isinstance(examples, list | tuple):
        taken = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in (0, 1)]
        names = taken if len(taken) >= len(examples) else [f"input_{i}" for i in range(len(examples))]
        named = dict(zip(names, examples, strict=False))
    else:
        raise _unfit(name, f"its example inputs are {_kind(examples)}")
    wrong = [key for key, value in named.items() if not isinstance(value, torch.Tensor) or value.ndim == 0]
    if wrong or not named:
        raise _unfit(name, f"not tensors with a batch axis: {', '.join(wrong) or 'there are no inputs'}")
    return named


def _unfit(name: str, found: str) -> ModelError:
    return ModelError(
        "E-FACTORY-3",
        f"{name}() must return (nn.Module, example inputs)",
        evidence=found,
        fix="return model, (torch.randn(1, 3, 224, 224),)",
    )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"


def _input(name: str, tensor: torch.Tensor) -> dict[str, Json]:
    real = tensor.is_floating_point()
    bounds = None if real else [int(tensor.min()), int(tensor.max())]
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"name": name, "shape": list(tensor.shape[1:]), "dtype": dtype, "range": bounds}


@contextmanager
def _reads() -> Iterator[set[str]]:
    """Yield the set of the user's own files that are opened within the block, including weights."""
    if not _watching:
        _watching.append(set())
        sys.addaudithook(_audit)
    _watching[0].clear()
    opened: set[str] = set()
    yield opened
    opened.update(path for path in tuple(_watching[0]) if _own(path))  # _own may open files itself


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], str) and len(_watching[0]) < 10_000:
        _watching[0].add(args[0])


def _sources() -> set[str]:
    """Return the source files of the user's own modules that are loaded."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if file and _own(file)}


def _own(path: str) -> bool:
    """Return whether a file is the user's own, not a package's, edgescope's or the system's."""
    full = Path(path).absolute()
    foreign = (
        *sysconfig.get_paths().values(),
        str(Path(__file__).parents[1]),
        str(cache.root()),
        "/proc",
        "/sys",
        "/dev",
    )
    inside = any(full.is_relative_to(folder) for folder in foreign)
    return not inside and full.suffix != ".pyc" and full.is_file()
