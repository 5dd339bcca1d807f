"""The half of networks.py that reads PyTorch's own files: which kind one is, its inputs, and the network in it.

Kinds are told apart by what is in the file, not by its name. A program of torch.export or TorchScript is code, and
reading it runs code (SECURITY.md). A pickled network is not read at all: its pickle could do anything.
"""

from __future__ import annotations

import itertools
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models import weights
from edgescope.models.image import torchvision_compat
from edgescope.models.user.calling import Flat
from edgescope.records import Json

torchvision_compat.ensure()  # an exported network may call torchvision's operators
SCRIPT, EXPORTED = "TorchScript", "ExportedProgram"
KINDS = ("float32", "int64")
"""What an input of a TorchScript file may be; the file does not say, so they are tried in this order."""
FEW_INPUTS = 4


def kind(path: Path) -> str:
    """Return which kind of program a file holds, without running anything of it; ModelError if it holds none."""
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    except (OSError, zipfile.BadZipFile):
        names = []
    inner = {name.partition("/")[2] for name in names} | set(names)
    if any("aotinductor" in name for name in names):
        raise UnsupportedError(
            "E-TORCH-3",
            f"{path.name} is compiled by AOTInductor for one machine",
            effect="It holds no network that other engines could run",
            fix="give the .pt2 of torch.export.save",
        )
    if "serialized_exported_program.json" in inner or any(name.startswith("models/") for name in inner):
        return EXPORTED
    if any(name.startswith("code/") for name in inner) and "constants.pkl" in inner:
        return SCRIPT
    raise _no_program(path)


def _no_program(path: Path) -> ModelError:
    """Return the error for a file without a program: it holds weights, a pickle, or nothing of PyTorch's."""
    try:
        count = len(weights.read_state(path))
    except ModelError as error:
        if error.code == "E-WEIGHTS-2" and _pickled(path):
            return ModelError(
                "E-TORCH-2",
                f"{path.name} holds a pickled network and was not executed",
                evidence=error.evidence,
                effect="A pickle can run anything when it is read",
                fix="torch.export.save(torch.export.export(model, inputs), 'model.pt2'), or torch.jit.save",
            )
        return ModelError(
            "E-TORCH-4",
            f"{path.name} is no file of PyTorch's",
            evidence=error.evidence or error.what,
            fix="export or copy it again; it is truncated or of another format",
        )
    return ModelError(
        "E-TORCH-1",
        f"{path.name} holds weights and no network",
        evidence=f"{count} tensors",
        fix=f"NAME@{path.name} or module:callable@{path.name}, with the network that they belong to",
    )


def _pickled(path: Path) -> bool:
    """Return whether a file is a pickle, by itself or in the archive that torch.save writes."""
    with path.open("rb") as file:
        return file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def opened(path: Path) -> nn.Module:
    """Return the network in a file, in eval mode, called with its tensors one by one; this runs what the file holds."""
    found = kind(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if found == SCRIPT:
                script: nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
                return script.eval()
            return Program(torch.export.load(path))
    except Exception as error:  # torch's readers share no base class
        raise ModelError(
            "E-TORCH-5",
            f"PyTorch {torch.__version__} cannot read the {found} file {path.name}",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="save it again with this version of PyTorch; it may be damaged, or of a later version",
        ) from error


class Program(nn.Module):
    """An exported program, whose module refuses eval() because the mode is fixed in the file."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        inner, spec = program.module(), program.call_spec.in_spec
        self.examples = _placeholders(program)
        plain = spec is None or spec == pytree.tree_structure((tuple(range(len(self.examples))), {}))
        self.network = inner if plain else Flat(_Held(inner), [torch.empty(0)] * len(self.examples), spec)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the program."""
        return self.network(*tensors)

    def train(self, mode: bool = True) -> Program:
        """Leave the mode as it was exported."""
        return self


class _Held(nn.Module):
    """Calls a network that is no part of it, so that eval() does not reach it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.held = [network]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.held[0](*args, **kwargs)


def _placeholders(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """Return the tensors that a program takes, by name, in order; UnsupportedError if it takes anything else."""
    named = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    given = program.graph_signature.user_inputs
    other = [str(name) for name in given if not isinstance(named.get(str(name)), torch.Tensor)]
    if other or not given:
        raise UnsupportedError(
            "E-TORCH-6",
            f"the exported program takes inputs that are no tensors: {', '.join(other) or 'none at all'}",
            fix="export it with tensors as its inputs",
        )
    return {str(name): named[str(name)] for name in given}


def describe(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Json]:
    """Return the kind, the inputs {name, dims, dtype} with open axes by name, and the number of parameters."""
    found, network = kind(path), opened(path)
    inputs = _of_script(path, network, shapes) if found == SCRIPT else _of_program(network)
    params = sum(parameter.numel() for parameter in network.parameters())
    return {"kind": found, "inputs": inputs, "params": params}


def _of_program(network: nn.Module) -> list[dict[str, Json]]:
    assert isinstance(network, Program)
    return [
        {
            "name": name,
            "dims": [
                size if isinstance(size, int) else "N" if i == 0 else str(size)
                for i, size in enumerate(t.shape)
            ],
            "dtype": str(t.dtype).removeprefix("torch."),
        }
        for name, t in network.examples.items()
    ]


def _of_script(path: Path, network: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, Json]]:
    """Return the inputs of a TorchScript file, whose shapes the user says and whose types are tried."""
    arguments = [a for a in network.forward.schema.arguments[1:] if not a.has_default_value()]
    other = [f"{a.name}: {a.type}" for a in arguments if str(a.type) != "Tensor"]
    if other or not 0 < len(arguments) <= FEW_INPUTS:
        raise UnsupportedError(
            "E-TORCH-6",
            f"{path.name} does not take one to {FEW_INPUTS} tensors",
            evidence=", ".join(other) or f"{len(arguments)} inputs",
            fix="wrap it in a network that takes tensors and save that one",
        )
    names = [a.name for a in arguments]
    if missing := [name for name in names if name not in shapes]:
        raise UsageError(
            "E-SHAPE-5",
            f"{path.name} is a TorchScript file, which does not say the shapes of its inputs",
            evidence=f"its inputs are {', '.join(names)}",
            effect="Speed depends on them, so they are not guessed",
            fix=" ".join(f"--shapes {name}=Nx3x224x224" for name in missing),
        )
    dtypes = _tried(path, network, [(2, *shapes[name][1:]) for name in names])
    return [
        {
            "name": name,
            "dims": ["N", *shapes[name][1:]],
            "dtype": dtype,
        }
        for name, dtype in zip(names, dtypes, strict=True)
    ]


def _tried(path: Path, network: Any, shapes: Sequence[Sequence[int]]) -> Sequence[str]:
    """Return the first types of the inputs with which the network runs; ModelError if it runs with none."""
    first = ""
    for dtypes in itertools.product(KINDS, repeat=len(shapes)):
        tensors = [torch.ones(tuple(s), dtype=getattr(torch, d)) for s, d in zip(shapes, dtypes, strict=True)]
        try:
            with torch.inference_mode():
                network(*tensors)
            return dtypes
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            first = first or (lines[-1][:300] if lines else "")
    raise ModelError(
        "E-TORCH-7",
        f"{path.name} does not run with inputs of these shapes",
        evidence=f"{', '.join('x'.join(map(str, s)) for s in shapes)} as {' or '.join(KINDS)}: {first}",
        fix="other --shapes",
    )
