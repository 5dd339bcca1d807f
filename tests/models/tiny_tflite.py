"""A .tflite made by hand with the schema that LiteRT ships: one convolution, one matrix product, NHWC."""

from __future__ import annotations

import tempfile
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

SIZE, CHANNELS, CLASSES = 8, 3, 10
TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int32": schema.TensorType.INT32,
}


class File:
    """A model under construction."""

    def __init__(self) -> None:
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.model.metadata = []
        self.graph.tensors, self.graph.operators = [], []

    def tensor(self, name, shape, dtype, *, scales=None, zeros=None, data=None, signature=None) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type = name.encode(), list(shape), TYPES[dtype]
        made.buffer = 0 if data is None else self.buffer(data.tobytes())
        made.shapeSignature = signature
        if scales is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.array(scales, np.float32)
            made.quantization.zeroPoint = np.array(zeros or [0] * len(scales), np.int64)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def buffer(self, data: bytes) -> int:
        made = schema.BufferT()
        made.data = np.frombuffer(data, np.uint8)
        self.model.buffers.append(made)
        return len(self.model.buffers) - 1

    def operator(self, kind, inputs, outputs, options=None) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, kind)
        code.version = 3
        self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes) - 1, inputs, outputs
        if options is not None:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
            made.builtinOptions = options
        self.graph.operators.append(made)

    def metadata(self, name: str, text: bytes) -> None:
        made = schema.MetadataT()
        made.name, made.buffer = name.encode(), self.buffer(text)
        self.model.metadata.append(made)

    def save(self, path: Path) -> Path:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Return the numbers of the network, small enough that int8 keeps the answers close."""
    rng = np.random.default_rng(seed)
    return {
        "filter": rng.normal(0, 0.2, (8, 3, 3, CHANNELS)).astype(np.float32),
        "bias": rng.normal(0, 0.1, 8).astype(np.float32),
        "matrix": rng.normal(0, 0.05, (CLASSES, 8 * SIZE * SIZE)).astype(np.float32),
    }


def write(
    path: Path, kind: str = "fp32", *, batch: int | None = 1, seed: int = 0, reduced: bool = False
) -> Path:
    """Write the network as fp32, fp16 (weights stored so), dynamic (int8 weights between floats), or int8.

    `batch` None leaves the batch axis open.
    """
    file, given = File(), weights(seed)
    rows = batch or 1
    activation, scales = (
        ("int8", {"image": 4 / 127, "hidden": 6 / 127, "out": 12 / 127})
        if kind == "int8"
        else (
            "float32",
            {},
        )
    )

    def flow(name: str, *shape: int) -> int:
        signature = [-1, *shape] if batch is None else None
        scale = [scales[name]] if name in scales else None
        return file.tensor(name, (rows, *shape), activation, scales=scale, signature=signature)

    image = flow("image", SIZE, SIZE, CHANNELS)
    hidden, out = flow("hidden", SIZE, SIZE, 8), flow("out", CLASSES)
    file.graph.inputs, file.graph.outputs = [image], [out]
    convolution = schema.Conv2DOptionsT()
    convolution.strideH = convolution.strideW = 1
    convolution.dilationHFactor = convolution.dilationWFactor = 1
    convolution.padding = schema.Padding.SAME
    convolution.fusedActivationFunction = schema.ActivationFunctionType.RELU
    bias = _bias(file, "bias", given["bias"], kind, (scales.get("image"), given["filter"]))
    zero = np.zeros(CLASSES, np.float32)
    none = _bias(file, "zero", zero, kind, (scales.get("hidden"), given["matrix"]))
    file.operator(
        "CONV_2D", [image, _weight(file, "filter", given["filter"], kind), bias], [hidden], convolution
    )
    matrix = _weight(file, "matrix", given["matrix"], kind)
    file.operator("FULLY_CONNECTED", [hidden, matrix, none], [out], schema.FullyConnectedOptionsT())
    if reduced:
        file.metadata("reduced_precision_support", b"fp16accfp16")
    return file.save(path)


def content() -> bytes:
    """Return the fp32 network as the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / "net.tflite").read_bytes()


def _scale(array: np.ndarray) -> float:
    return float(np.abs(array).max() / 127)


def _weight(file: File, name: str, array: np.ndarray, kind: str) -> int:
    if kind in ("int8", "dynamic"):
        whole = np.round(array / _scale(array)).astype(np.int8)
        return file.tensor(name, array.shape, "int8", scales=[_scale(array)], data=whole)
    if kind == "fp16":
        stored = file.tensor(f"{name}16", array.shape, "float16", data=array.astype(np.float16))
        widened = file.tensor(name, array.shape, "float32")
        file.operator("DEQUANTIZE", [stored], [widened], schema.DequantizeOptionsT())
        return widened
    return file.tensor(name, array.shape, "float32", data=array)


def _bias(file: File, name: str, array: np.ndarray, kind: str, of: tuple[float | None, np.ndarray]) -> int:
    if kind != "int8":
        return file.tensor(name, array.shape, "float32", data=array)
    given, weight = of
    assert given is not None
    scale = given * _scale(weight)
    return file.tensor(
        name, array.shape, "int32", scales=[scale], data=np.round(array / scale).astype(np.int32)
    )
