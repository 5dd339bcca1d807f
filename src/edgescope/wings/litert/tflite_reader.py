"""Describe a .tflite file through LiteRT's own interpreter: inputs, operators, and the delegate that runs them.

A .tflite is fixed when it is converted: its layout (NHWC, usually), its precision and usually its batch. The
precision is that of the arithmetic, not of the storage: weights stored as float16 that a DEQUANTIZE operator widens
are multiplied in fp32.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgescope.errors import ModelError
from edgescope.records import Json

#: The operators that do nearly all multiplications of a network.
HEAVY = {
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "CONV_3D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "BATCH_MATMUL",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
}
#: Operators that compute in no precision: they change it, or stand for others.
SILENT = {"CAST", "QUANTIZE", "DEQUANTIZE", "DELEGATE"}
#: Narrowest first: an operator computes in the precision of its narrowest tensor.
WIDTHS = {
    "int4": "int4",
    "int8": "int8",
    "uint8": "int8",
    "int16": "int16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
}
#: Name of the metadata by which a float file itself requests fp16 arithmetic from XNNPACK.
REDUCED = "reduced_precision_support"
FIX = "convert it again; a .tflite begins with four bytes and then TFL3"


def opened(path: Path, threads: int = 1, *, xnnpack: bool = True) -> Any:
    """Return an interpreter for the file, without allocating its tensors; ModelError if the file is unsound."""
    kind = OpResolverType.BUILTIN if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        return Interpreter(str(path), num_threads=threads, experimental_op_resolver_type=kind)
    except (ValueError, RuntimeError) as error:
        raise unsound(path, error) from error


def allocated(path: Path, interpreter: Any, shapes: Mapping[int, Sequence[int]] | None = None) -> Any:
    """Return the interpreter, allocated with `shapes` for its inputs (by tensor index); ModelError if that fails."""
    try:
        for index, shape in (shapes or {}).items():
            interpreter.resize_tensor_input(index, list(shape), strict=True)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise unsound(path, error) from error
    return interpreter


def unsound(path: Path, error: Exception) -> ModelError:
    """Return the error for a file that LiteRT cannot load."""
    if re.search("Select TensorFlow op|custom op", str(error)):
        return ModelError(
            "E-TFL-5",
            f"{path.name} needs operators that LiteRT itself does not have",
            evidence=", ".join(_custom(path)) or " ".join(str(error).split())[:300],
            effect="They are compiled into a program of their own, and none of them is here: nothing was measured",
            fix="convert it again with the built-in operators alone (supported_ops = [TFLITE_BUILTINS])",
        )
    return ModelError(
        "E-TFL-1",
        f"LiteRT cannot load {path.name}",
        evidence=" ".join(str(error).split())[:300],
        effect="Nothing was measured",
        fix=FIX,
    )


def _custom(path: Path) -> list[str]:
    """Return the names of a file's custom operators; those of TensorFlow begin with Flex."""
    model = schema.Model.GetRootAs(path.read_bytes())
    codes = (model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength()))
    return sorted({code.decode(errors="replace") for code in codes if code})


def describe(path: Path) -> dict[str, Json]:
    """Return the facts about a file that are known without running it; ModelError if unsound.

    `inputs`: [{name, dims, dtype, quantised, step}], an open axis as the letter d and its position (N for the first);
    `params`: numbers stored as weights; `kinds`: {precision: operators that tell it}; `reduced`: whether the file lets
    XNNPACK compute in fp16; `subgraphs`: the number of graphs, of which only the first is read.
    """
    interpreter = opened(path, xnnpack=False)
    operators = interpreter._get_ops_details()
    details = {t["index"]: t for t in interpreter.get_tensor_details()}
    inputs = [_input(path, given) for given in interpreter.get_input_details()]
    return {
        "inputs": inputs,
        "params": _params(operators, details, {t["index"] for t in interpreter.get_input_details()}),
        "kinds": dict(kinds(telling(operators))),
        "reduced": _reduced(path),
        "subgraphs": int(interpreter.num_subgraphs()),
    }


def _input(path: Path, given: Mapping[str, Any]) -> dict[str, Json]:
    signature = given["shape_signature"] if len(given["shape_signature"]) else given["shape"]
    dtype = np.dtype(given["dtype"])
    if not len(signature) or dtype.kind not in "fiub":
        raise ModelError(
            "E-TFL-2",
            f"input {given['name']!r} of {path.name} cannot be fed",
            evidence=f"type {dtype.name}, {len(signature)} axes",
            effect="Nothing was measured",
            fix="convert it with numeric inputs whose first axis is the batch",
        )
    dims = [int(d) if d >= 0 else "N" if i == 0 else f"d{i}" for i, d in enumerate(signature)]
    steps = given["quantization_parameters"]
    one = len(steps["scales"]) == len(steps["zero_points"]) == 1 and dtype.kind in "iu"
    step = [float(steps["scales"][0]), int(steps["zero_points"][0])] if one else None
    about = {"name": given["name"], "dims": dims, "dtype": dtype.name}
    return {**about, "quantised": bool(len(steps["scales"])), "step": step}


def _params(operators: Sequence[Any], details: Mapping[int, Any], inputs: set[int]) -> int:
    """Return how many weights are stored; integers without a scale are shapes and axes, not weights."""
    made = {int(i) for op in operators for i in op["outputs"]} | inputs
    read = {int(i) for op in operators for i in op["inputs"] if i >= 0} - made
    weights = [details[i] for i in read if i in details]
    return sum(int(np.prod(t["shape"])) for t in weights if _is_weight(t))


def _is_weight(tensor: Mapping[str, Any]) -> bool:
    floating = np.dtype(tensor["dtype"]).name in ("float32", "float16", "bfloat16", "float64")
    return floating or len(tensor["quantization_parameters"]["scales"]) > 0


def _reduced(path: Path) -> bool:
    model = schema.Model.GetRootAs(path.read_bytes())
    names = [model.Metadata(i).Name() for i in range(model.MetadataLength())]
    return any((name or b"").decode(errors="replace") == REDUCED for name in names)


def heavy(operators: Sequence[Any]) -> list[Any]:
    """Return the heavy operators (those that multiply) among those that an interpreter lists."""
    return [op for op in operators if op["op_name"] in HEAVY]


def telling(operators: Sequence[Any]) -> list[Any]:
    """Return the operators that tell in which precision a network computes: the heavy ones, else all that have one."""
    plain = [op for op in operators if op["op_name"] not in SILENT and _arithmetic(op) != "unknown"]
    return heavy(operators) or plain


def kinds(operators: Sequence[Any]) -> Counter[str]:
    """Return precision -> number of these operators that compute in it."""
    return Counter(_arithmetic(op) for op in operators)


def _arithmetic(operator: Mapping[str, Any]) -> str:
    found = {np.dtype(t).name for t in (*operator["operand_types"], *operator["result_types"])}
    return next((word for name, word in WIDTHS.items() if name in found), "unknown")


def hybrid(operators: Sequence[Any]) -> int:
    """Return how many of these operators have narrow weights but float inputs: the engine narrows while it runs."""
    return sum(
        _arithmetic(op) in ("int8", "int4") and np.dtype(op["result_types"][0]).kind == "f"
        for op in operators
    )


def delegated(operators: Sequence[Any]) -> set[int]:
    """Return the indices of the operators that a delegate has taken over.

    The interpreter still lists them; a delegate covers everything between its inputs and outputs.
    """
    makers = {int(i): op for op in operators if op["op_name"] != "DELEGATE" for i in op["outputs"]}
    taken: set[int] = set()
    for delegate in (op for op in operators if op["op_name"] == "DELEGATE"):
        edge, todo = {int(i) for i in delegate["inputs"]}, [int(i) for i in delegate["outputs"]]
        while todo:
            maker = makers.get(todo.pop())
            if maker is not None and maker["index"] not in taken:
                taken.add(maker["index"])
                todo += [int(i) for i in maker["inputs"] if int(i) not in edge]
    return taken
