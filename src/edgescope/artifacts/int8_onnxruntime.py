"""The half of int8.py that needs onnx and onnxruntime: find ranges, round, correct the biases.

There are two steps, so that per-layer fallback can round many times for one calibration: `prepare` folds the graph and
finds ranges and means on the calibration inputs; `rounded` makes the QDQ file, with some nodes left in fp32.

    u8s8  activations uint8 with a zero point, outputs quantised too: x86 CPUs multiply this form fastest
    s8s8  all zero points 0, float biases, a Q/DQ pair before each weight, and only the inputs of operators
          quantised: what TensorRT reads, and how it fuses a convolution with what follows it (NVIDIA, "Working
          with Quantized Types": quantise the inputs of weighted operations, not their outputs; of a residual
          sum, the branch that does not end in a convolution)
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, version_converter
from onnxruntime import quantization
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgescope import cache
from edgescope.artifacts import bias_correction, onnx_write
from edgescope.artifacts.onnx_export import size_of
from edgescope.cache import external_data
from edgescope.errors import UnsupportedError
from edgescope.models.base import Samples
from edgescope.process import scratch_folder
from edgescope.records import Json

OPSET = 13  # the first opset whose QuantizeLinear has one scale per channel
TYPES = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "AveragePool")
"""Operators that TensorRT runs in int8; s8s8 quantises only the inputs of these."""
PRODUCTS = ("MatMul", "Gemm")
"""Operators whose weights dynamic quantisation makes int8."""
HEAVY = (*PRODUCTS, "Conv", "ConvTranspose")


@dataclass(frozen=True)
class Prepared:
    """A folded fp32 file, with the ranges and means of its tensors on the calibration inputs."""

    path: Path
    ranges: Any
    means: bias_correction.Means
    ir_version: int


def quantize(
    source: Path, calibration: Samples, path: Path, *, keep_float: int, qdq: str = "u8s8"
) -> dict[str, Json]:
    """Write the int8 file to `path` and return how it was made; UnsupportedError if it cannot be made."""
    begin = time.perf_counter()
    with scratch_folder("int8") as folder, refusing():
        prepared = prepare(source, calibration, Path(folder))
        kept = first_convolutions(prepared.path, keep_float)
        corrected = rounded(prepared, path, kept, qdq=qdq)
    return {
        "build_s": round(time.perf_counter() - begin, 3),
        "kept_float": kept,
        "biases_corrected": corrected,
        "opset": opset_of(onnx_write.unweighted(path)),
        **size_of(path),
    }


def dynamic(source: Path, path: Path, *, share: float) -> dict[str, Json]:
    """Write the file whose weights of matrix products are int8, the ranges of activations being found at run time.

    UnsupportedError if these are fewer than `share` of all heavy operators with weights: it would not be int8.
    """
    begin = time.perf_counter()
    with scratch_folder("int8") as folder, refusing():
        ready = Path(folder) / "ready.onnx"
        model = _folded(source, Path(folder))
        weights = {tensor.name for tensor in model.graph.initializer}
        heavy = [n for n in model.graph.node if n.op_type in HEAVY and weights & set(n.input[1:2])]
        products = [node for node in heavy if node.op_type in PRODUCTS]
        if not heavy or len(products) < share * len(heavy):
            raise UnsupportedError(
                "E-INT8-15",
                "dynamic quantisation reduces matrix products, and most of this network's work is elsewhere",
                evidence=f"{len(products)} of {len(heavy)} operators with weights are matrix products",
                effect="It would run in fp32 under the label int8",
                fix="leave --option dynamic out",
            )
        del model.graph.value_info[:]  # the quantiser takes noted shapes for those of its own graph
        onnx_write.save(model, ready)
        quantization.quantize_dynamic(
            ready,
            path,
            op_types_to_quantize=list(PRODUCTS),
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=external_data(ready).exists(),
            extra_options={"MatMulConstBOnly": True},
        )
        onnx.checker.check_model(str(path))
    opset = opset_of(onnx_write.unweighted(path))
    return {
        "build_s": round(time.perf_counter() - begin, 3),
        "products": len(products),
        "opset": opset,
        **size_of(path),
    }


@contextlib.contextmanager
def refusing(tool: str = "onnxruntime") -> Iterator[None]:
    """Turn a quantiser's errors, which share no base class, into an UnsupportedError that is told as the tool's."""
    try:
        with quiet():
            yield
    except (UnsupportedError, OSError):  # a full disk says nothing about the network
        raise
    except Exception as error:
        raise UnsupportedError(
            "E-INT8-3",
            f"the quantiser of {tool} {cache.versions((tool,))[tool]} failed on this network",
            evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            effect="That is the tool's failure; it does not say that the network cannot be int8",
            fix="--backend onnxruntime --option dynamic=true, or another precision",
        ) from error


def prepare(source: Path, calibration: Samples, folder: Path) -> Prepared:
    """Return the folded file, in `folder`, with the range and mean of its tensors on the calibration inputs."""
    model, path = _folded(source, folder), folder / "prepared.onnx"
    ir_version = onnx_write.unweighted(source).ir_version
    _give_biases(model)
    onnx_write.save(model, path)
    return Prepared(
        path, _ranges(path, calibration), bias_correction.input_means(path, calibration), ir_version
    )


def _folded(source: Path, folder: Path) -> Any:
    """Return the network as onnxruntime folds it, its nodes with names, in an opset that has int8."""
    model = onnx.load(str(source))
    if opset_of(model) < OPSET:
        model = version_converter.convert_version(model, OPSET)
    whole, folded = (folder / name for name in ("whole.onnx", "folded.onnx"))
    onnx_write.save(model, whole)  # with its weights, because it is folded in another folder than theirs
    large = external_data(whole).exists()
    quant_pre_process(
        str(whole),
        str(folded),
        skip_symbolic_shape=True,
        save_as_external_data=large,
        all_tensors_to_one_file=True,
        external_data_location=external_data(folded).name if large else None,
    )
    model = onnx.load(str(folded))
    _name(model)
    return model


def _ranges(path: Path, calibration: Samples) -> Any:
    """Return the smallest and largest value of every tensor, as onnxruntime finds them."""
    calibrator = create_calibrator(
        str(path),
        None,
        augmented_model_path=str(path.with_name("augmented.onnx")),
        use_external_data_format=external_data(path).exists(),
    )
    calibrator.collect_data(_Reader(calibration))
    return calibrator.compute_data()


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime carries no types
    """Hands calibration inputs to onnxruntime one by one."""

    def __init__(self, samples: Samples) -> None:
        self._rows = bias_correction.rows(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._rows, None)


def rounded(prepared: Prepared, path: Path, kept: Collection[str], *, qdq: str = "u8s8") -> int:
    """Write the QDQ file to `path` with the nodes in `kept` in fp32; return how many biases were corrected."""
    symmetric = qdq == "s8s8"
    quantizer = QDQQuantizer(
        load_model_with_shape_infer(prepared.path),
        True,  # one scale per output channel
        False,
        quantization.QuantType.QInt8,
        quantization.QuantType.QInt8 if symmetric else quantization.QuantType.QUInt8,
        prepared.ranges,
        [],
        list(kept),
        list(TYPES) if symmetric else _every_type(),
        _options(symmetric),
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    model = quantizer.model.model
    corrected = bias_correction.correct(onnx.load(str(prepared.path)), model, prepared.means)
    if symmetric:
        _free_residuals(model)
    model.ir_version = max(prepared.ir_version, 7)
    _drop_unused_domains(model)
    onnx_write.save(model, path)
    onnx.checker.check_model(str(path))
    return corrected


def _free_residuals(model: Any) -> None:
    """Remove one Q/DQ pair per residual sum, between a convolution and the sum, so that the two fuse."""
    makers = {name: node for node in model.graph.node for name in node.output}
    uses = Counter(name for node in model.graph.node for name in node.input)
    for add in [node for node in model.graph.node if node.op_type == "Add"]:
        chains = [_chain(makers, name, ("DequantizeLinear", "QuantizeLinear", "Conv")) for name in add.input]
        quantised = all(_chain(makers, name, ("DequantizeLinear",)) for name in add.input)
        alone = [bool(chain) and all(uses[node.output[0]] == 1 for node in chain) for chain in chains]
        if quantised and any(alone):
            index = alone.index(True)
            dequantise, quantise, convolution = chains[index]
            add.input[index] = convolution.output[0]
            model.graph.node.remove(quantise)
            model.graph.node.remove(dequantise)


def _chain(makers: Mapping[str, Any], name: str, types: tuple[str, ...]) -> list[Any]:
    """Return the chain of nodes of these types that makes a tensor, or [] if other nodes make it."""
    found: list[Any] = []
    for kind in types:
        node = makers.get(name)
        if node is None or node.op_type != kind:
            return []
        found, name = [*found, node], node.input[0]
    return found


def _options(symmetric: bool) -> dict[str, Any]:
    if not symmetric:
        return {}
    return {
        "ActivationSymmetric": True,
        "WeightSymmetric": True,
        "AddQDQPairToWeight": True,
        "QuantizeBias": False,
        "OpTypesToExcludeOutputQuantization": list(TYPES),
    }


def _every_type() -> list[str]:
    """Return the operator types that onnxruntime quantises by default."""
    return sorted({*quantization.registry.QLinearOpsRegistry, *quantization.registry.QDQRegistry})


def _drop_unused_domains(model: Any) -> None:
    """Remove the operator sets that onnxruntime lists in every file it folds and that no node needs."""
    used = {"", *(node.domain for node in model.graph.node)}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _name(model: Any) -> None:
    """Give every node a unique name: nodes are distinguished, left out and compared by name."""
    counts = Counter(node.name for node in model.graph.node)
    for index, node in enumerate(model.graph.node):
        if not node.name or counts[node.name] > 1:
            node.name = f"{node.op_type}_{index}_of_{len(model.graph.node)}"


def _give_biases(model: Any) -> None:
    """Give every convolution a bias (0 if it had none), so that there is one to correct afterwards."""
    known = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        if node.op_type == "Conv" and len(node.input) == 2 and node.input[1] in known:
            name = f"edgescope_bias_{index}"
            zeros = np.zeros(known[node.input[1]][0], dtype=np.float32)
            model.graph.initializer.append(numpy_helper.from_array(zeros, name))
            node.input.append(name)


def first_convolutions(path: Path, count: int) -> list[str]:
    """Return the names of the first `count` convolutions, if there are others after them."""
    graph = onnx_write.unweighted(path).graph
    names = [node.name for node in graph.node if node.op_type == "Conv"]
    return names[:count] if len(names) > 2 * count else []


def opset_of(model: Any) -> int:
    """Return the version of the standard operators that a model is written in."""
    found: int = max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=0)
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the quantiser's advice, which this module already follows, off the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
