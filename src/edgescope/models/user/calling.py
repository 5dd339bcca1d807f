"""How a user's own code is called: the factory that makes a network, and the network with inputs of any structure.

`module:callable@weights.pth` fills the network that the factory returns with the weights of the file.

A factory is called in several processes: one exports the network, others run it. All must get the same
weights, or right answers would look wrong. So the usual random generators are seeded before each call, and
the weights are compared with those of the first. The result is recorded, with the files that it read.

Every engine takes a row of tensors. A network may take keywords, a dictionary, a tuple within a list; a function is no
network at all. So example inputs of any structure become named tensors in one order. What takes its tensors one by one
already stays as it is, so that it costs what it costs its user.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import random
import re
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from edgescope import cache
from edgescope.errors import ModelError, closest_name
from edgescope.fit import Task
from edgescope.models import synthetic
from edgescope.models.image import torchvision_compat
from edgescope.models.weights import fill, read_state
from edgescope.records import Json, digest
from edgescope.records.lazy import np

SEED = 0
torchvision_compat.ensure()  # a user's module may import torchvision, or timm, which imports it
_watching: list[set[str]] = []


def make(name: str, state: str | None = None) -> Called:
    """Return the network in eval mode and its example inputs; ModelError for anything else.

    `state` is the value of "state" from describe(): ModelError if the weights differ now.
    """
    factory, _, weights = name.partition("@")
    made = _call(factory)
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise _unfit(factory, f"it returned {_kind(made)}")
    try:
        found = called(*made)
    except ValueError as error:
        raise _unfit(factory, f"its example inputs are {error}") from error
    if weights:
        if not isinstance(made[0], torch.nn.Module):
            raise _unfit(factory, f"it returned {_kind(made[0])} where weights are given for a network")
        fill(made[0], read_state(Path(weights), made[0]), name=factory, in_order=False)
    if state is not None and state_of(found.module) != state:
        raise ModelError(
            "E-FACTORY-4",
            f"the factory {name} is not deterministic: its weights differ from those of an earlier call",
            evidence=f"torch, numpy and random were seeded with {SEED} before both calls",
            effect="Each process would measure another network, and right outputs would look wrong",
            fix="build the network inside the factory; seed it there, or load its weights from a file",
        )
    return found


def task(name: str) -> Task:
    """Return what the callable `name` trains, with its initial weights; ModelError if it is no Task."""
    made = _call(name.partition("@")[0])
    if not isinstance(made, Task):
        raise _unfit(name, f"it returned {_kind(made)}")
    return made


def describe(name: str) -> dict[str, Json]:
    """Return inputs, params, the digests of the weights and of everything, and every file read to make the network."""
    with _reads() as opened:
        made = _call(name.partition("@")[0])
        trains = isinstance(made, Task)
        found = Called(made.network, {}) if trains else make(name)
    files = {path: cache.content(Path(path)) for path in sorted(opened | sources())}
    state = state_of(found.module)
    return {
        "inputs": found.inputs(),
        "params": sum(parameter.numel() for parameter in found.module.parameters()),
        "macs": macs(found),
        "files": files,
        "state": state,
        "trains": trains,
        "config": config_of(found.module),
        "digest": digest([name, state, sorted(files.values())]),
    }


def macs(found: Called) -> int | None:
    """Return the multiply-accumulates of one sample, or None if PyTorch cannot count them."""
    counter, examples = FlopCounterMode(display=False), [t.detach() for t in found.examples.values()]
    try:
        with counter, torch.no_grad():
            found.module(*examples)
    except Exception:  # it is the user's network, and counting intercepts its operations
        return None
    return int(counter.get_total_flops()) // 2 // max(1, len(examples[0])) or None


def config_of(module: torch.nn.Module) -> dict[str, Json] | None:
    """Return what a network of timm's says of its pictures (default_cfg), or None."""
    given = getattr(module, "default_cfg", None)
    kept = ("mean", "std", "crop_pct", "crop_mode", "interpolation")
    found = {key: given[key] for key in kept if key in given} if isinstance(given, dict) else {}
    return found if {"mean", "std"} <= set(found) else None


def state_of(module: torch.nn.Module) -> str:
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
        module = importlib.import_module(module_name)
        factory = getattr(module, attribute)
    except Exception as error:  # a user's module may raise anything while it is imported
        close = _closest(module_name, attribute)
        raise ModelError(
            "E-FACTORY-1",
            f"{name} cannot be imported",
            evidence=_last(error),
            fix=close
            or "run edgescope in the folder that holds the module, and check the name after the colon",
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


def _closest(module: str, attribute: str) -> str:
    """Return `module:attribute` with the half that was mistyped corrected, or '' where nothing is close."""
    loaded = sys.modules.get(module)
    if loaded is None:
        near = closest_name(module, (path.stem for path in Path().glob("*.py")))
        return f"{near}:{attribute}" if near else ""
    near = closest_name(attribute, (name for name, value in vars(loaded).items() if callable(value)))
    return f"{module}:{near}" if near else ""


def _last(error: BaseException) -> str:
    """Return the last line of a traceback and its place in the source."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return traceback.format_exception_only(error)[-1].strip()[:300] + where


def _unfit(name: str, found: str) -> ModelError:
    return ModelError(
        "E-FACTORY-3",
        f"{name}() must return (nn.Module, example inputs), or a Task to train",
        evidence=found,
        fix="return model, (torch.randn(1, 3, 224, 224),)",
    )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"


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


def sources() -> set[str]:
    """Return the source files of the user's own modules that are loaded."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if file and _own(file)}


def _own(path: str) -> bool:
    """Return whether a file is the user's own, not a package's, edgescope's or the system's."""
    full = Path(path).absolute()
    inside = str(full).startswith((*_installed(), f"{cache.root()}/", "/proc/", "/sys/", "/dev/"))
    return not inside and full.suffix != ".pyc" and full.is_file()


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the folders of packages and of edgescope; sysconfig takes longer to tell than all else of a file."""
    return tuple(f"{folder}/" for folder in (*sysconfig.get_paths().values(), Path(__file__).parents[1]))


CONSTANT = (bool, int, float, type(None))
"""What may stand among the example inputs besides tensors; every call gets it unchanged."""


@dataclass(frozen=True)
class Called:
    """A network in eval mode that takes the values of `examples` one by one, in that order."""

    module: nn.Module
    examples: Mapping[str, torch.Tensor]

    def inputs(self) -> list[dict[str, Json]]:
        """Return name, shape without the batch axis, dtype and, of integers, the range of every input."""
        return [_about(name, tensor) for name, tensor in self.examples.items()]


class Function(nn.Module):
    """A function, or another callable object, as a network; the networks that it refers to are its parts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        for index, part in enumerate(_parts(function)):
            self.add_module(f"part_{index}", part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


class Flat(nn.Module):
    """A network that is called with tensors one by one; it puts them where the network takes them."""

    def __init__(self, network: nn.Module, leaves: Sequence[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.network, self.spec = network, spec
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the network with the structure that it takes."""
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.network(*args, **kwargs)


def called(network: Callable[..., Any], examples: Any) -> Called:
    """Return the network with its example inputs by name; ValueError, with the reason, if they cannot be inputs.

    A mapping whose keys are arguments holds keywords; every other one is itself an argument. A tuple or a list holds
    the arguments; anything else is the only one.
    """
    module = network if isinstance(network, nn.Module) else Function(network)
    takes = inspect.signature(network.forward if isinstance(network, nn.Module) else network).parameters
    args, kwargs = _arguments(takes, examples)
    leaves = _named(takes, args, kwargs)
    wrong = [
        name for name, leaf in leaves if not isinstance(leaf, CONSTANT) and getattr(leaf, "ndim", 0) == 0
    ]
    tensors = {name: leaf for name, leaf in leaves if isinstance(leaf, torch.Tensor)}
    if wrong or not tensors:
        raise ValueError(f"not tensors with a batch axis: {', '.join(wrong) or 'there are no inputs'}")
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        sizes = ", ".join(f"{name} {len(tensor)}" for name, tensor in tensors.items())
        raise ValueError(f"the batch, their first axis, differs: {sizes}")
    if kwargs or not all(isinstance(value, torch.Tensor) for value in args):
        module = Flat(module, *pytree.tree_flatten((tuple(args), dict(kwargs))))
    return Called(module.eval(), tensors)


def takes_any(module: nn.Module) -> bool:
    """Return whether forward() takes any number of tensors, which torch.export counts as one argument."""
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values())


def _arguments(takes: Mapping[str, inspect.Parameter], examples: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments and keywords; keywords that come first in the signature become positional."""
    if not isinstance(examples, Mapping):
        return list(examples) if isinstance(examples, list | tuple) else [examples], {}
    loose = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if not all(name in takes for name in examples) and not (loose and len(takes) == 1):
        return [examples], {}
    first = list(takes)[: len(examples)]
    if set(first) == set(examples) and all(takes[name].kind in (0, 1) for name in first):
        return [examples[name] for name in first], {}
    return [], dict(examples)


def _named(
    takes: Mapping[str, inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return every leaf of the arguments with a name: the argument's, or the last key of its path where that is one."""
    names = [p.name for p in takes.values() if p.kind in (0, 1)]
    names = names if len(names) >= len(args) else [f"input_{i}" for i in range(len(args))]
    found: list[tuple[str, str, Any]] = []
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            keys = [re.sub(r"\W", "_", str(getattr(key, "key", getattr(key, "idx", key)))) for key in path]
            whole = "_".join([name, *keys])
            found.append((whole, keys[-1] if keys and not keys[-1].isdigit() else whole, leaf))
    short = len({last for _, last, _ in found}) == len(found)
    return [(last if short else whole, leaf) for whole, last, leaf in found]


def _parts(function: Any) -> Iterator[nn.Module]:
    """Yield the networks that a function's closure, its object, or its partial arguments hold."""
    inner = inspect.unwrap(getattr(function, "func", function))
    held = [
        getattr(inner, "__self__", None),
        *getattr(function, "args", ()),
        *getattr(function, "__dict__", {}).values(),
    ]
    if inspect.isfunction(inner) or inspect.ismethod(inner):
        found = inspect.getclosurevars(inner)
        held += [*found.nonlocals.values(), *found.globals.values()]
    yield from dict.fromkeys(part for part in held if isinstance(part, nn.Module))


def _about(name: str, tensor: torch.Tensor) -> dict[str, Json]:
    dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape[1:])
    real = tensor.is_floating_point() or tensor.is_complex() or not tensor.numel()
    bounds = (
        None if real else list(synthetic.seen_range(dtype, shape, int(tensor.min()), int(tensor.max()), name))
    )
    return {"name": name, "shape": shape, "dtype": dtype, "range": bounds}
