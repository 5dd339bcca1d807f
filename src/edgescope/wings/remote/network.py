"""A network as one file of operators and numbers, which any PyTorch from 1.10 on can run (torch_program.py).

The first line is JSON: names of the inputs, operators with their arguments, and where each tensor lies behind the line.

torch.export follows the network once, with inputs of the trial's shapes, and gives the operators that it calls, before
any is taken apart. So an old torch need read no pickle, no TorchScript and no source of the network, whose modules may
not install there. The precision and the layout are the board's to set; a network in half precision is followed in half.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from edgescope.errors import UnsupportedError
from edgescope.models.base import Batch
from edgescope.records import Json

#: Bytes at which each tensor begins in the file: what any type of number and any vector unit takes.
ALIGNED = 64
#: Operators that check and compute nothing.
CHECKS = ("_assert", "sym_constrain")
#: Operators that draw random numbers, besides dropout, which can be left out.
DRAWS = frozenset(
    {"bernoulli_.float", "bernoulli.p", "rand.default", "rand_like.default", "randn_like.default"}
)
VERSION = 1
"""Raised when the files change their form."""


def write(
    module: torch.nn.Module, batch: Batch, names: Sequence[str], dtype: torch.dtype, path: Path
) -> dict[str, Json]:
    """Write `module` to `path`; return what was written.

    `batch` holds example inputs, of the only shapes that the result takes. UnsupportedError if it cannot be followed.
    """
    module = module.eval().to(dtype)
    examples = [torch.from_numpy(batch[name]) for name in names]
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in examples)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, inputs)
        graph, tensors = _graph(program)
    except UnsupportedError:
        raise
    except Exception as error:  # a network may raise anything while it is followed
        raise _not_followed(f"{type(error).__name__}: {error}") from error
    _save({**graph, "tensors": _places(tensors)}, tensors, path)
    return {"operators": len(graph["nodes"]), "tensors": len(tensors), "torch": torch.__version__}


def write_training(
    module: torch.nn.Module, inputs: Mapping[int, torch.Tensor], path: Path
) -> dict[str, Json]:
    """Write `module` as it trains to `path`: a graph for each size of a minibatch; return what was written.

    `inputs` holds an example by its size. UnsupportedError if it cannot be followed, or draws random numbers itself.
    """
    module, graphs, kept = module.train(), list[dict[str, Json]](), dict[str, torch.Tensor]()
    for size, example in inputs.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(module, (example,))
            graph, tensors = _graph(program)
        except UnsupportedError:
            raise
        except Exception as error:  # a network may raise anything while it is followed
            raise _not_followed(f"{type(error).__name__}: {error}") from error
        drawn = sorted({str(n["op"]) for n in graph["nodes"]} & DRAWS)
        if drawn or (kept and list(kept) != list(tensors)):
            raise _not_followed(
                f"it draws random numbers by {', '.join(drawn) or 'its size'} while it trains"
            )
        graphs.append({**graph, "batch": size})
        kept = tensors
    trained = {id(p) for p in module.parameters() if p.requires_grad}
    places = _places(kept)
    for place, tensor in zip(places, kept.values(), strict=True):
        place["trained"] = id(tensor) in trained
    _save({"version": VERSION, "graphs": graphs, "tensors": places}, kept, path)
    return {"operators": len(graph["nodes"]), "tensors": len(kept), "torch": torch.__version__}


def _save(head: Mapping[str, Json], tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the first line and the tensors behind it, where `_places` says."""
    line = json.dumps(head, allow_nan=False).encode()
    with open(path, "wb") as file:
        file.write(line + b" " * (-(len(line) + 1) % ALIGNED) + b"\n")
        for tensor in tensors.values():
            file.seek(-(-file.tell() // ALIGNED) * ALIGNED)
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            file.write(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def _not_followed(why: str) -> UnsupportedError:
    return UnsupportedError(
        "E-ON-6",
        "this network cannot be written as a list of operators",
        evidence=" ".join(why.split())[:300],
        effect="The board's PyTorch is older than the network's code needs, so it is sent in this form alone",
        fix="--backend trtexec; or take what depends on the values of a tensor out of forward()",
    )


def _graph(program: torch.export.ExportedProgram) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the graph without its numbers, and the tensors by the name that the graph gives them."""
    signature, held = program.graph_signature, {**program.state_dict, **program.constants}
    names: dict[str, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    inputs = list[str]()
    for spec, node in zip(signature.input_specs, _of(program, "placeholder"), strict=True):
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(names.setdefault(node.name, f"x{len(inputs)}"))
            continue
        tensor = held.get(spec.target or "")
        if not isinstance(tensor, torch.Tensor):
            raise _not_followed(f"it holds {type(tensor).__name__}, which is no tensor")
        if node.users:
            tensors[names.setdefault(node.name, f"w{len(tensors)}")] = tensor
    nodes = list[dict[str, Json]]()
    for node in _of(program, "call_function"):
        target = str(node.target).removeprefix("aten.")
        if target.startswith(CHECKS):
            continue
        names[node.name] = f"v{len(nodes)}"
        nodes.append(_node(node, names))
    (last,) = _of(program, "output")
    found = [_argument(value, names)["value"] for value in last.args[0] if value is not None]
    return {"version": VERSION, "inputs": inputs, "nodes": nodes, "outputs": found}, tensors


def _of(program: torch.export.ExportedProgram, kind: str) -> list[Any]:
    nodes = list(program.graph.nodes)
    if other := next((n for n in nodes if n.op not in ("placeholder", "call_function", "output")), None):
        raise _not_followed(f"it needs {other.op} {other.target}")
    return [node for node in nodes if node.op == kind]


def _node(node: Any, names: Mapping[str, str]) -> dict[str, Json]:
    """Return one call as JSON."""
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target.namespace != "aten":
            raise _not_followed(f"it calls {node.target}, which is no operator of PyTorch's own")
        op = str(node.target).removeprefix("aten.")
    elif getattr(node.target, "__name__", "") == "getitem":
        op = "getitem."
    else:
        raise _not_followed(f"it calls {node.target}")
    args = [_argument(a, names) for a in node.args]
    kwargs = {k: _argument(v, names) for k, v in node.kwargs.items()}
    return {"name": names[node.name], "op": op, "args": args, "kwargs": kwargs}


#: What else an argument may be: the key of its JSON, and how PyTorch names it.
_NAMED: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    torch.dtype: ("dtype", lambda v: str(v).removeprefix("torch.")),
    torch.layout: ("layout", lambda v: str(v).removeprefix("torch.")),
    torch.memory_format: ("memory", lambda v: str(v).removeprefix("torch.")),
    torch.device: ("device", str),
}


def _argument(value: Any, names: Mapping[str, str]) -> Any:
    """Return an argument as JSON: a plain value, a list, or {kind: text}."""
    if isinstance(value, torch.fx.Node):
        return {"value": names[value.name]}
    if isinstance(value, list | tuple):
        return [_argument(v, names) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, (key, text) in _NAMED.items():
        if isinstance(value, kind):
            return {key: text(value)}
    raise _not_followed(f"an argument is {type(value).__name__} {value}"[:200])


def _places(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, Json]]:
    """Return name, dtype, shape and offset behind the first line of each tensor; `write` writes them so."""
    found, offset = list[dict[str, Json]](), 0
    for name, tensor in tensors.items():
        offset += -offset % ALIGNED
        dtype = str(tensor.dtype).removeprefix("torch.")
        found.append({"name": name, "dtype": dtype, "shape": list(tensor.shape), "offset": offset})
        offset += tensor.numel() * tensor.element_size()
    return found
