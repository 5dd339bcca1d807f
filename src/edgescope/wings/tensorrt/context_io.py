"""One execution context and its inputs and outputs by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tensorrt as trt
from numpy.typing import NDArray

from edgescope.errors import DeviceError, UnsupportedError, UsageError
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt.api_types import Log, Shape

#: Names of trt.DataType -> numpy; a type that is not listed has no numpy type.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class Port:
    """One input or output."""

    name: str
    dtype: np.dtype[Any]
    is_input: bool


def open_io(engine: Any, log: Log) -> Io:
    """Return a new context of the engine; DeviceError if there is no memory for one."""
    context = engine.create_execution_context()
    if context is None:
        raise DeviceError(
            "E-TRT-7", "TensorRT could not create an execution context", evidence=log.last_errors()
        )
    return Io(engine, context, log)


class Io:
    """A context with its inputs and outputs."""

    def __init__(self, engine: types.Engine, context: types.Context, log: Log) -> None:
        self.context, self.log = context, log
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self.ports = [
            Port(
                name,
                _numpy(engine.get_tensor_dtype(name)),
                engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
            )
            for name in names
        ]

    def shape(self, name: str, shape: Shape) -> None:
        """Set the shape of an input; UsageError if it lies outside the engine's profile."""
        if not self.context.set_input_shape(name, shape):
            raise _outside(name, shape, self.log)

    def resolved(self, name: str) -> Shape:
        """Return the shape of a tensor, after the shapes of all inputs are set."""
        return _closed(name, tuple(self.context.get_tensor_shape(name)))

    def address(self, name: str, address: int) -> None:
        """Set the device address of a tensor."""
        if not self.context.set_tensor_address(name, address):
            raise _refused("an address", self.log)

    def enqueue(self, stream: int) -> None:
        """Enqueue one inference on the stream; DeviceError if TensorRT refuses."""
        if not self.context.execute_async_v3(stream):
            raise _refused("to run", self.log)


def _numpy(dtype: Any) -> np.dtype[Any]:
    name = str(dtype.name)
    if name not in DTYPES:
        raise UnsupportedError(
            "E-TRT-8",
            f"the engine has an input or output of type {name}, which numpy has not",
            fix="export the model with fp32 or fp16 inputs and outputs",
        )
    return np.dtype(DTYPES[name])


def _closed(name: str, shape: Shape) -> Shape:
    if any(n < 0 for n in shape):
        raise UnsupportedError(
            "E-TRT-9",
            f"the size of {name} depends on the data: {shape}",
            effect="Its memory cannot be set aside before the call",
            fix="--backend onnxruntime",
        )
    return shape


def _outside(name: str, shape: Shape, log: Log) -> UsageError:
    return UsageError(
        "E-TRT-3",
        f"the engine was not built for {name} of shape {'x'.join(map(str, shape))}",
        evidence=log.last_errors(),
        fix="--option profile_min=1 --option profile_max=N, with N the largest batch",
    )


def _refused(what: str, log: Log) -> DeviceError:
    return DeviceError(
        "E-TRT-10",
        f"TensorRT refused {what}",
        evidence=log.last_errors(),
        effect="There is no number for this cell",
        fix="run it again; if it stays so, build the engine again (delete it from the cache)",
    )


def typed(array: NDArray[Any], port: Port) -> NDArray[Any]:
    """Return a contiguous array of the port's type; TensorRT before 10 reads int64 as int32."""
    return np.ascontiguousarray(cast(Any, array).astype(port.dtype, casting="same_kind", copy=False))
