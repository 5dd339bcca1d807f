"""Keep a network that lives in this process where other processes find it: `edgescope.live(network, inputs)`.

A trial runs in processes of its own, so the network must reach them. It is kept in the cache as cloudpickle writes it,
the code of the user's own modules (a notebook's cells, a file beside the script) included; what cannot be pickled is
kept as torch.export sees it. The name that stands for it holds a digest of all that is kept, and a file with another
digest is not read: reading a pickle runs code, and this one's code came from the user's own process.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch import nn

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.models.user import calling, torch_file
from edgescope.models.user.calling import Called, called, takes_any
from edgescope.models.user.networks import LIVE, facts
from edgescope.records import digest

TRACKER = re.compile(rb"[0-9a-f]{32}")
"""Random numbers by which cloudpickle knows a class again; they differ in every process."""


def live(network: Callable[..., Any], example_inputs: Any, name: str = "") -> str:
    """Return the name of a network, or of a function of tensors, for Trials and verbs; it is kept in the cache.

    `example_inputs` is a tensor, a tuple of them, a dictionary, or whatever structure the network takes; the first axis
    of each tensor is the batch. `name` is what reports call it. ModelError if it can neither be pickled nor exported.
    """
    called_as = cache.safe(name or getattr(network, "__name__", "") or type(network).__name__)
    try:
        found = called(network, example_inputs)
    except ValueError as error:
        raise ModelError(
            "E-LIVE-1",
            f"{called_as} cannot be called with these example inputs",
            evidence=str(error),
            fix=f"edgescope.live({called_as}, torch.randn(1, 3, 224, 224))",
        ) from error
    with cache.workbench(cache.folder(LIVE) / called_as) as bench:
        path, batch = bench / "network.pt2", None
        try:
            _pickled(network, example_inputs, path)
        except Exception as error:  # what cannot be pickled raises what it likes
            batch = _exported(found, called_as, path, error)
        kept = f"{LIVE}:{called_as}#{_digest(path)}"
        state = calling.state_of(found.module)
        params = sum(parameter.numel() for parameter in found.module.parameters())
        about = {"inputs": found.inputs(), "params": params, "state": state, "batch": batch}
        cache.write_json(facts(kept), about | {"digest": digest([kept, state])})
        path.replace(facts(kept).with_suffix(".pt2"))
    return kept


def _pickled(network: Any, examples: Any, path: Path) -> None:
    with _by_value():
        torch.save({"network": network, "examples": examples}, str(path), pickle_module=cloudpickle)


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    """Have the user's own modules pickled with their code, so that it is part of what is kept."""
    own = set(calling.sources())
    modules = [
        m
        for m in list(sys.modules.values())
        if getattr(m, "__file__", None) in own and m.__name__ != "__main__"
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _exported(found: Called, name: str, path: Path, why: Exception) -> int | None:
    """Keep the network as torch.export sees it; return its only batch size, or None where its batch axis is open."""
    tensors = tuple(found.examples.values())
    two = tuple(torch.cat([tensor, tensor])[:2] for tensor in tensors)
    opened: Any = tuple({0: torch.export.Dim("N", min=1, max=4096)} for _ in tensors)
    last: Exception = why
    for given, shapes, batch in (
        (two, (opened,) if takes_any(found.module) else opened, None),
        (tensors, None, len(tensors[0])),
    ):
        try:
            torch.export.save(torch.export.export(found.module, given, dynamic_shapes=shapes), path)
            return batch
        except Exception as error:  # a network may raise anything while it is traced
            last = error
    raise ModelError(
        "E-LIVE-2",
        f"{name} can neither be pickled nor exported, so it cannot reach a trial's process",
        evidence=f"cloudpickle: {_said(why)}; torch.export: {_said(last)}",
        fix="write it as module:callable in a file, a function that returns (network, example inputs)",
    ) from last


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _digest(path: Path) -> str:
    """Return 12 hex digits of what is in the file, without numbers that differ from process to process."""
    state = hashlib.sha256()
    with zipfile.ZipFile(path) as file:
        for name in sorted(file.namelist()):
            inner = name.partition("/")[2]
            if "serialization_id" in inner:
                continue
            data = file.read(name)
            state.update(inner.encode())
            state.update(TRACKER.sub(b"", data) if inner.endswith(".pkl") else data)
    return state.hexdigest()[:12]


def opened(name: str) -> nn.Module:
    """Return a live network in eval mode, called with its tensors one by one; ModelError if it is gone or changed."""
    path = facts(name).with_suffix(".pt2")
    if not path.exists() or _digest(path) != name.rpartition("#")[2]:
        raise ModelError(
            "E-LIVE-3",
            f"{name} is not in the cache as it was kept",
            evidence=f"{path.name} is {'changed' if path.exists() else 'gone'}",
            fix="edgescope.live(network, example_inputs) again, in Python",
        )
    with zipfile.ZipFile(path) as file:
        pickled = any(entry.endswith("/data.pkl") for entry in file.namelist())
    if not pickled:
        return torch_file.opened(path)
    held = torch.load(
        str(path), map_location="cpu", weights_only=False
    )  # its digest says that live() wrote it
    return called(held["network"], held["examples"]).module
