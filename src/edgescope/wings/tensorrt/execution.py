"""One query at a time through one context: the six steps of an inference, in memory that is allocated once.

    fill pinned memory -> H2D copy -> enqueue -> D2H copy -> one synchronise -> read pinned memory

All copies are asynchronous and from page-locked memory, on one stream, so nothing waits before the one synchronise.
With io `pinned` the inputs are in page-locked memory already and there is no first step; with `device` inputs and
outputs stay on the GPU and there are no copies.

With a CUDA graph only the enqueue is captured, as in trtexec: this saves launching kernels one by one, and the copies
may come from anywhere. A graph holds the addresses and shapes of its capture, so there is one graph for each.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgescope.backends.base import Phases
from edgescope.backends.cudart import CudaRuntime
from edgescope.errors import DeviceError, UnsupportedError, UsageError
from edgescope.models.base import Batch
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt import library
from edgescope.wings.tensorrt.api_types import Log, Shape
from edgescope.wings.tensorrt.library import trt

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
    context = _context(engine)
    if context is None:
        raise DeviceError(
            "E-TRT-7", "TensorRT could not create an execution context", evidence=log.last_errors()
        )
    return Io(engine, context, log)


def _context(engine: Any) -> Any:
    """Return a context; None if there is no memory. TensorRT-RTX compiles its kernels for the shapes in hand first.

    By itself it would begin with slower ones that take any shape, and change them in the middle of a measurement; a
    CUDA graph would keep those for good.
    """
    if not library.IS_RTX:
        return engine.create_execution_context()
    config = engine.create_runtime_config()
    strategy = cast(Any, trt).DynamicShapesKernelSpecializationStrategy.EAGER
    config.dynamic_shapes_kernel_specialization_strategy = strategy
    return engine.create_execution_context(config)


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


#: Graphs kept at once; the bench pool has fewer distinct inputs.
GRAPHS = 16
START, COPIED_IN, COMPUTED, COPIED_OUT = range(4)


class DeviceArray:
    """An array on the device: an address, a shape and a type; when deleted, it frees the memory it owns."""

    def __init__(
        self, cuda: CudaRuntime, shape: Shape, dtype: np.dtype[Any], address: int | None = None
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.address = cuda.malloc(max(1, self.nbytes)) if address is None else address
        if address is None:
            weakref.finalize(self, cuda.library.cudaFree, self.address).atexit = False


def _unmarked(step: int) -> None:
    """Record no time."""


class Lane:
    """A context, its stream and its memory."""

    def __init__(self, cuda: CudaRuntime, io: Io, kind: str, graph: bool) -> None:
        self.cuda, self.io, self.kind, self.graph = cuda, io, kind, graph
        self.inputs = [port for port in io.ports if port.is_input]
        self.outputs = [port for port in io.ports if not port.is_input]
        self.stream = cuda.stream()
        self.shapes: dict[str, Shape] = {}
        self.device: dict[str, DeviceArray] = {}
        self.host: dict[str, NDArray[Any]] = {}
        self.graphs: dict[tuple[int, ...], int] = {}
        self.events: list[int] = []

    def __call__(self, batch: Batch) -> Sequence[Any]:
        """Return the finished outputs: pinned arrays, or DeviceArrays with io `device`."""
        outputs = self._queue(batch, _unmarked)
        self.cuda.synchronize(self.stream)
        return outputs

    def phases(self, batch: Batch) -> Phases:
        """Answer one query with an event between its steps; enqueue is the compute call alone, as in trtexec.

        With io `device` nothing is copied: h2d and d2h are then the time between two adjacent events.
        """
        self.events = self.events or [self.cuda.event() for _ in range(4)]
        events, stream, enqueued = self.events, self.stream, [0, 0]

        def mark(step: int) -> None:
            if step == COMPUTED:
                enqueued[1] = time.monotonic_ns()
            self.cuda.record(events[step], stream)
            if step == COPIED_IN:
                enqueued[0] = time.monotonic_ns()

        start = time.monotonic_ns()
        self._queue(batch, mark)
        self.cuda.synchronize(stream)
        done = time.monotonic_ns()
        h2d, compute, d2h = (self.cuda.elapsed_ns(events[i], events[i + 1]) for i in range(3))
        return Phases(done - start, enqueued[1] - enqueued[0], h2d, compute, d2h)

    def _queue(self, batch: Batch, mark: Callable[[int], None]) -> Sequence[Any]:
        self._fit(batch)
        if self.kind == "host":
            for port in self.inputs:
                np.copyto(self.host[port.name], batch[port.name], casting="same_kind")
        mark(START)
        for port in self.inputs:
            if self.kind == "device":
                self.io.address(port.name, cast(Any, batch[port.name]).address)
            else:
                source = self.host[port.name] if self.kind == "host" else batch[port.name]
                self.cuda.to_device(self.device[port.name].address, source, self.stream)
        mark(COPIED_IN)
        self._compute(batch)
        mark(COMPUTED)
        if self.kind == "device":
            mark(COPIED_OUT)
            return [self.device[port.name] for port in self.outputs]
        for port in self.outputs:
            self.cuda.to_host(self.host[port.name], self.device[port.name].address, self.stream)
        mark(COPIED_OUT)
        return [self.host[port.name] for port in self.outputs]

    def _fit(self, batch: Batch) -> None:
        """Allocate memory for the batch's shapes, if they have changed."""
        shapes = {port.name: tuple(batch[port.name].shape) for port in self.inputs}
        if shapes == self.shapes:
            return
        self._drop_graphs()
        self.shapes = {}  # if a shape is refused, the next call starts over
        for name, shape in shapes.items():
            self.io.shape(name, shape)
        for port in (*self.inputs, *self.outputs):
            self._place(port, self.io.resolved(port.name))
        self.shapes = shapes

    def _place(self, port: Port, shape: Shape) -> None:
        if port.is_input and self.kind == "device":
            return
        self.device.pop(port.name, None)  # free the old memory before allocating the new
        self.host.pop(port.name, None)
        self.device[port.name] = DeviceArray(self.cuda, shape, port.dtype)
        self.io.address(port.name, self.device[port.name].address)
        if self.kind == "host" or (self.kind == "pinned" and not port.is_input):
            self.host[port.name] = self.cuda.pinned(shape, port.dtype)

    def _compute(self, batch: Batch) -> None:
        if not self.graph:
            self.io.enqueue(self.stream)
            return
        key = tuple(cast(Any, batch[p.name]).address for p in self.inputs) if self.kind == "device" else ()
        if key in self.graphs:
            self.cuda.launch(self.graphs[key], self.stream)
            return
        self.io.enqueue(self.stream)  # TensorRT's one-time work for new shapes must not be captured
        if len(self.graphs) >= GRAPHS:
            self._drop_graphs()
        self.graphs[key] = self._captured()

    def _captured(self) -> int:
        """Return a graph of one enqueue; UnsupportedError if the engine cannot be captured."""
        self.cuda.begin_capture(self.stream)
        try:
            self.io.enqueue(self.stream)
        except DeviceError as error:
            self._abandon_capture()
            raise _uncapturable(error) from error
        try:
            return self.cuda.end_capture(self.stream)
        except DeviceError as error:
            raise _uncapturable(error) from error

    def _abandon_capture(self) -> None:
        """Leave capture mode, or nothing else could use the stream; its error is ignored."""
        try:
            self.cuda.destroy_graph(self.cuda.end_capture(self.stream))
        except DeviceError:
            return

    def _drop_graphs(self) -> None:
        if self.graphs:
            self.cuda.synchronize(self.stream)  # a graph may still be running
        for graph in self.graphs.values():
            self.cuda.destroy_graph(graph)
        self.graphs.clear()

    def stage(self, batch: Batch) -> Batch:
        """Return a copy of a host batch, in pinned memory or on the device, as this lane takes it."""
        staged: dict[str, Any] = {}
        for port in self.inputs:
            array = typed(batch[port.name], port)
            pinned = self.cuda.pinned(array.shape, port.dtype)
            np.copyto(pinned, array)
            staged[port.name] = pinned
            if self.kind == "device":
                staged[port.name] = DeviceArray(self.cuda, array.shape, port.dtype)
                self.cuda.to_device(staged[port.name].address, pinned, self.stream)
                self.cuda.synchronize(self.stream)
        return staged

    def fetch(self, outputs: Sequence[Any]) -> list[NDArray[Any]]:
        """Return outputs as arrays on the host, copied from the device if they are there."""
        fetched = []
        for output in outputs:
            if not isinstance(output, DeviceArray):
                fetched.append(output)
                continue
            array = self.cuda.pinned(output.shape, output.dtype)
            self.cuda.to_host(array, output.address, self.stream)
            self.cuda.synchronize(self.stream)
            fetched.append(array)
        return fetched

    def close(self) -> None:
        """Free graphs, events, memory and the stream."""
        self._drop_graphs()
        for event in self.events:
            self.cuda.destroy_event(event)
        self.events, self.shapes = [], {}
        self.device.clear()
        self.host.clear()
        self.cuda.destroy_stream(self.stream)


def _uncapturable(error: DeviceError) -> UnsupportedError:
    return UnsupportedError(
        "E-TRT-11",
        "this engine cannot be captured in a CUDA graph",
        evidence=error.what,
        effect="It would run without one, and its label would be false",
        fix="--option graph=false",
    )
