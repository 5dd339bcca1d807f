"""The half of backend.py that runs a float .tflite in fp16, through the API that can request it from XNNPACK.

LiteRT reports neither the arithmetic nor the operators of a model compiled this way, only whether XNNPACK took all of
it. The outputs give the proof: rounding to 11 bits changes them, so outputs that differ from fp32 no more than by
another order of summation were computed in fp32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ai_edge_litert
import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.cpu_options import CpuOptions
from ai_edge_litert.options import Options
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import UnsupportedError
from edgescope.models.base import TensorSpec
from edgescope.records import Effective, Json
from edgescope.wings.litert import tflite_reader
from edgescope.wings.litert.backend import LiteRtSession, Request, Shapes

#: TFLITE_XNNPACK_DELEGATE_FLAG_FORCE_FP16, xnnpack_delegate.h of LiteRT.
FORCE_FP16 = 4
VERSION = 1  # raise this when the probe changes


class _Compiled:
    """One compiled model with its own buffers; threads must not share it."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        options = Options(cpu_options=CpuOptions(num_threads=threads, xnnpack_flags=FORCE_FP16))
        try:
            self.model = CompiledModel.from_file(str(path), options=options)
            signature = self.model.get_signature_by_index(0)
            details = self.model.get_input_tensor_details(signature["key"])
            names = [str(details[i]["name"]) for i in signature["inputs"]]
            for index, (key, name) in enumerate(zip(signature["inputs"], names, strict=True)):
                if tuple(details[key]["shape"]) != shapes[name]:
                    self.model.resize_input_tensor(index, list(shapes[name]), 0)
            self.names, self.inputs = names, self.model.create_input_buffers(0)
            self.outputs = self.model.create_output_buffers(0)
        except (RuntimeError, ValueError) as error:
            raise tflite_reader.unsound(path, error) from error
        made = self.model.get_output_tensor_details(signature["key"])
        self.shapes = [(tuple(made[o]["shape"]), np.dtype(made[o]["dtype"])) for o in signature["outputs"]]

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        for buffer, name in zip(self.inputs, self.names, strict=True):
            buffer.write(arrays[name])
        self.model.run_by_index(0, self.inputs, self.outputs)
        return [
            buffer.read(int(np.prod(shape)), dtype.type).reshape(shape)
            for buffer, (shape, dtype) in zip(self.outputs, self.shapes, strict=True)
        ]


class Fp16Session(LiteRtSession):
    """One compiled model for each query in flight."""

    def __init__(self, path: Path, shapes: Shapes, notes: Mapping[str, Json], threads: int) -> None:
        super().__init__(notes["names"], threads, lambda: _Compiled(path, shapes, threads))
        self.found = notes["fp16"]
        if not self.idle[0].model.is_fully_accelerated():
            raise UnsupportedError(
                "E-TFL-5",
                f"XNNPACK does not take all of {path.name}",
                effect="Operators it leaves out run in fp32, and LiteRT does not tell which",
                fix="--precision fp32",
            )

    def effective(self) -> Effective:
        """Return fp16, with the comparison of outputs by `probe` as evidence."""
        evidence = (
            "XNNPACK took the whole graph with FORCE_FP16; its outputs differ from fp32 by"
            f" {self.found['difference']:.2g} of the largest, so they were not computed in fp32"
        )
        return Effective("cpu", "fp16", self.threads, evidence)


def probe(path: Path, shapes: Shapes, inputs: Sequence[TensorSpec]) -> dict[str, float]:
    """Return {"difference": largest of fp16 from fp32 over the largest output}, computed once per file and CPU."""
    key = hashlib.sha256(_cpu().encode() + repr(sorted(shapes.items())).encode()).hexdigest()[:12]
    note = (
        cache.folder("litert")
        / f"{cache.content(path)[:24]}-{ai_edge_litert.__version__}-{VERSION}-{key}.json"
    )
    found: dict[str, float] | None = cache.read_json(note)
    if found is None:
        found = {"difference": _difference(path, shapes, [i.dtype for i in inputs])}
        cache.write_json(note, found)
    return found


def _difference(path: Path, shapes: Shapes, dtypes: Sequence[str]) -> float:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal(shape).astype(dtype)
        for (name, shape), dtype in zip(shapes.items(), dtypes, strict=True)
    }
    half = _Compiled(path, shapes, 1)(arrays)
    single = Request(path, shapes, 1, xnnpack=True)(arrays)
    pairs = list(zip(half, single, strict=True))
    largest = max(float(np.abs(b.astype(np.float64)).max()) for _, b in pairs)
    apart = max(float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) for a, b in pairs)
    return apart / largest if largest else apart


def _cpu() -> str:
    """Return the line of /proc/cpuinfo that lists this CPU's features, or '' if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
