"""The half of export.py that needs torch and onnx: export, check, compare."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxscript  # noqa: F401  (torch's exporter imports it late; missing, it must be said at once)
import torch
from numpy.typing import NDArray

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.export import OPSET, TOLERANCE
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.synthetic import Range, samples
from edgescope.records import Json

BATCHES = (1, 4)


def export(
    module: torch.nn.Module,
    inputs: Sequence[TensorSpec],
    path: Path,
    ranges: Mapping[str, Range] | None = None,
) -> dict[str, Json]:
    """Write `module` to `path` as ONNX, whole or not at all; return how it went: seconds, opset, parity."""
    module = module.eval()
    example = _tensors(inputs, 2, ranges)
    begin = time.perf_counter()
    with cache.writing(path) as temporary:
        _write(module, example, inputs, temporary)
        seconds = time.perf_counter() - begin
        onnx.checker.check_model(str(temporary), full_check=True)
        error = _parity(module, inputs, temporary, ranges)
        data = temporary.read_bytes()
    graph = onnx.load(str(path), load_external_data=False)
    return {
        "build_s": round(seconds, 3),
        "opset": max(entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx")),
        "nodes": len(graph.graph.node),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "parity": {"max_rel_error": error, "batches": list(BATCHES), "against": "torch_eager fp32"},
    }


def _write(
    module: torch.nn.Module, example: tuple[Any, ...], inputs: Sequence[TensorSpec], path: Path
) -> None:
    batch = torch.export.Dim("N", min=1, max=4096)
    try:
        with _quiet():
            program = torch.onnx.export(
                module,
                example,
                dynamo=True,
                opset_version=OPSET,
                input_names=[spec.name for spec in inputs],
                dynamic_shapes=tuple({0: batch} for _ in inputs),
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:
        raise ModelError(
            "E-EXPORT-2",
            "this network cannot be exported to ONNX with an open batch axis",
            evidence=last_line(error),
            effect="Only the torch backends can run it",
            fix="--backend torch_eager or torch_compile; or export it yourself and give the .onnx file",
        ) from error


def _parity(
    module: torch.nn.Module, inputs: Sequence[TensorSpec], path: Path, ranges: Mapping[str, Range] | None
) -> float:
    """Return the largest |onnx - torch| over the largest |torch|, batch 1 and 4; ModelError if too large."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in BATCHES:
        tensors = _tensors(inputs, batch, ranges)
        with torch.inference_mode():
            wanted = _flat(module(*tensors))
        got = session.run(None, {spec.name: t.numpy() for spec, t in zip(inputs, tensors, strict=True)})
        worst = max(worst, *(_error(a, b) for a, b in zip(got, wanted, strict=True)))
    if not worst <= TOLERANCE:
        raise ModelError(
            "E-EXPORT-3",
            "the exported ONNX file does not compute what the network computes",
            evidence=f"largest relative error {worst:.2g}, allowed {TOLERANCE:g}",
            effect="The file was not kept",
            fix="--backend torch_eager; or look for data-dependent Python code in forward()",
        )
    return worst


def _error(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(got.astype(np.float64) - wanted).max(initial=0.0)) / scale


def _tensors(
    inputs: Sequence[TensorSpec], n: int, ranges: Mapping[str, Range] | None
) -> tuple[torch.Tensor, ...]:
    drawn = samples(inputs, Purpose.BENCH, n, ranges=ranges)
    assert drawn is not None
    return tuple(torch.from_numpy(drawn.arrays[spec.name]) for spec in inputs)


def _flat(outputs: Any) -> list[NDArray[Any]]:
    """Return every tensor in a network's output, in the order the exporter gives them."""
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.detach().cpu().numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress lines and deprecation warnings off the terminal."""
    level, sink = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text with its type, short enough for one message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"
