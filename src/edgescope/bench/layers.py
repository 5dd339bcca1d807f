"""Opens a trial's network in its engine and asks for the time of every operator, while the machine is watched."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope import onnx_operators, registry
from edgescope.analysis.roofline import HEAVY, Exported, Layer
from edgescope.backends.base import Layered, spec_of
from edgescope.bench.parts import HERE
from edgescope.bench.watch import Devices, Watch
from edgescope.devices.manifest import present
from edgescope.errors import UnsupportedError
from edgescope.records import Result, Trial, Verdict, Window
from edgescope.workloads.base import Parts
from edgescope.workloads.inference import batches_of

HZ = 20.0
"""Readings a second: a profile of a small network takes half a second."""


@dataclass(frozen=True)
class Profile:
    """The layers of a network in one engine, and whether their times may be trusted."""

    layers: tuple[Layer, ...]
    verdict: Verdict


def profiled(trial: Trial, parts: Parts = HERE, devices: Devices | None = None) -> Profile:
    """Return every operator of a trial's network in its engine with the verdict on the time it took to ask.

    UnsupportedError if the engine tells none.
    """
    here = present() if devices is None else devices
    watch, ask = Watch(here, HZ), _asking(trial, parts)
    with watch.watching():
        watch.mark()
        start = time.monotonic_ns()
        found = ask()
        stop = time.monotonic_ns()
        watch.mark()
    return Profile(tuple(found), watch.verdict(Window(0, 0, start, stop)))


def layers(trial: Trial, parts: Parts = HERE) -> Sequence[Layer]:
    """Return every operator of a trial's network in its engine; UnsupportedError if the engine tells none."""
    return _asking(trial, parts)()


def _asking(trial: Trial, parts: Parts) -> Callable[[], Sequence[Layer]]:
    """Return what asks the engine, everything that it needs being made."""
    model, backend = parts.model(trial), parts.backend(trial.backend)
    if not isinstance(backend, Layered):
        raise UnsupportedError(
            "E-LAYER-1",
            f"{trial.backend} tells no times of its operators",
            effect="Nothing was measured",
            fix="--backend torch_eager, onnxruntime or openvino",
        )
    teller, batch = backend, batches_of(model, trial)[0]
    artifact = backend.prepare(model, spec_of(trial), parts.folder)
    return lambda: teller.layers(artifact, batch)


def ran(layers: Sequence[Layer]) -> dict[str, int]:
    """Return how many of the layers that multiply ran in which precision."""
    return dict(Counter(layer.precision for layer in layers if layer.flops or _multiplies(layer.kind)))


def _multiplies(kind: str) -> bool:
    return kind.lower() in HEAVY or kind in onnx_operators.HEAVY or kind in ("Convolution", "FullyConnected")


def exported(files: Sequence[Path], trial: Trial) -> Exported:
    """Return the layers in trtexec's files; if the trial's model is an ONNX file, its nodes name their modules."""
    from edgescope.artifacts.onnx_names import ModulePaths

    name = trial.model.partition("#")[0]
    read = registry.need(registry.LAYER_FILES, "the reader of trtexec's files", registry.REINSTALL)
    found: Exported = read(files, ModulePaths(Path(name), trial.batch) if name.endswith(".onnx") else None)
    return found


def of_operators(names: Iterable[str], result: Result) -> dict[str, str]:
    """Return the layer of each operator in an engine's profile, `Conv relu_25_nchwc`, that the engine's file knows."""
    from edgescope.artifacts.onnx_names import ModulePaths

    file = Path(str(result.artifact.get("path") or ""))
    if file.suffix != ".onnx" or not file.is_file():
        return {}
    paths, found = ModulePaths(file, result.trial.batch), {}
    for operator in names:
        kind, _, name = operator.partition(" ")
        if (node := paths.known(name, kind)) is not None:
            found[operator] = node.path
    return found
