"""How a network is called: example inputs of any structure become named tensors in one order.

Every engine takes a row of tensors. A network may take keywords, a dictionary, a tuple within a list; a function is no
network at all. What takes its tensors one by one already stays as it is, so that it costs what it costs its user.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgescope.models import synthetic
from edgescope.records import Json

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
