"""A small typed binding of libcudart, the CUDA runtime library, through ctypes.

TensorRT's Python API computes but moves no data: device memory, pinned host memory, copies, streams, events and graph
capture are the CUDA runtime's. PyTorch or CuPy would bring them, and a gigabyte, into the measured process; PyCUDA
must be compiled on the board. The two dozen functions needed have kept their C signatures since CUDA 10.2, except the
one that instantiates a captured graph.

Every return code is checked. Queued work that failed is reported at the next call, so an error may name a later call
than the one that caused it, as CUDA documents.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edgescope.errors import DeviceError, SafetyError, UnavailableError

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
MAJOR, MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, ...Minor
#: Other threads of the process may allocate during a capture (cudaStreamCaptureModeThreadLocal).
CAPTURE_THREAD_LOCAL = 1
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
#: From this runtime on a graph is instantiated with flags; before, with a buffer for a log.
INSTANTIATE_WITH_FLAGS = 11040
#: Larger than cudaDeviceProp of any version so far (1 KiB); the name is its first field in all of them.
PROPERTIES_BYTES, NAME_BYTES = 8192, 256

VOID, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
POINTER = ctypes.POINTER(VOID)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudaMalloc": (POINTER, SIZE),
    "cudaFree": (VOID,),
    "cudaHostAlloc": (POINTER, SIZE, ctypes.c_uint),
    "cudaFreeHost": (VOID,),
    "cudaMemcpyAsync": (VOID, VOID, SIZE, INT, VOID),
    "cudaMemGetInfo": (ctypes.POINTER(SIZE), ctypes.POINTER(SIZE)),
    "cudaStreamCreate": (POINTER,),
    "cudaStreamSynchronize": (VOID,),
    "cudaStreamDestroy": (VOID,),
    "cudaStreamBeginCapture": (VOID, INT),
    "cudaStreamEndCapture": (VOID, POINTER),
    "cudaGraphInstantiate": (POINTER, VOID, POINTER, VOID, SIZE),
    "cudaGraphInstantiateWithFlags": (POINTER, VOID, ctypes.c_ulonglong),
    "cudaGraphLaunch": (VOID, VOID),
    "cudaGraphDestroy": (VOID,),
    "cudaGraphExecDestroy": (VOID,),
    "cudaEventCreate": (POINTER,),
    "cudaEventRecord": (VOID, VOID),
    "cudaEventElapsedTime": (ctypes.POINTER(ctypes.c_float), VOID, VOID),
    "cudaEventDestroy": (VOID,),
    "cudaGetDevice": (ctypes.POINTER(INT),),
    "cudaGetDeviceProperties": (VOID, INT),
    "cudaDeviceGetAttribute": (ctypes.POINTER(INT), INT, INT),
    "cudaRuntimeGetVersion": (ctypes.POINTER(INT),),
}


class CudaRuntime:
    """The CUDA runtime of one process; handles are integers, sizes bytes."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.cudaGetErrorName.restype = ctypes.c_char_p
        library.cudaGetErrorName.argtypes = (INT,)
        for name, types in SIGNATURES.items():
            if name == "cudaGraphInstantiateWithFlags" and self.version() < INSTANTIATE_WITH_FLAGS:
                continue
            function = getattr(library, name)
            function.argtypes, function.restype = types, INT

    def call(self, name: str, *arguments: Any) -> None:
        """Call `name`; DeviceError with CUDA's name of the error, SafetyError if memory ran out."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise _failed(name, int(code), self.library.cudaGetErrorName(code))

    def _made(self, name: str, *arguments: Any) -> int:
        """Return the handle that `name` writes to its first argument."""
        handle = VOID()
        self.call(name, ctypes.byref(handle), *arguments)
        return int(handle.value or 0)

    def version(self) -> int:
        """Return the runtime's version, 1000 x major + 10 x minor: 12040 is CUDA 12.4."""
        return self._number("cudaRuntimeGetVersion")

    def _number(self, name: str, *arguments: int) -> int:
        value = INT()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def compute_capability(self) -> str:
        """Return the compute capability of the current device, e.g. `8.7`."""
        device = self._number("cudaGetDevice")
        major, minor = (self._number("cudaDeviceGetAttribute", what, device) for what in (MAJOR, MINOR))
        return f"{major}.{minor}"

    def device_name(self) -> str:
        """Return the name of the current device, e.g. `Orin`."""
        properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
        self.call("cudaGetDeviceProperties", properties, self._number("cudaGetDevice"))
        return properties.raw[:NAME_BYTES].split(b"\0")[0].decode(errors="replace")

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes of device memory; on a board shared with the CPU, of all memory."""
        free, total = SIZE(), SIZE()
        self.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def malloc(self, size: int) -> int:
        """Return the address of `size` bytes of device memory."""
        return self._made("cudaMalloc", size)

    def free(self, address: int) -> None:
        """Free device memory."""
        self.call("cudaFree", address)

    def pinned(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised array in page-locked host memory, which is freed when its last view goes."""
        kind = np.dtype(dtype)
        size = max(1, int(np.prod(shape, dtype=np.int64)) * kind.itemsize)
        address = self._made("cudaHostAlloc", size, 0)
        block = (ctypes.c_byte * size).from_address(address)
        # not at exit: the driver may be gone by then, and its memory with it
        weakref.finalize(block, self.library.cudaFreeHost, address).atexit = False
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(memoryview(block), dtype=kind, count=count).reshape(shape)

    def to_device(self, address: int, array: NDArray[Any], stream: int) -> None:
        """Queue a copy of a contiguous host array; it must live until the stream is synchronised."""
        self.call("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, HOST_TO_DEVICE, stream)

    def to_host(self, array: NDArray[Any], address: int, stream: int) -> None:
        """Queue a copy into a contiguous host array."""
        self.call("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, DEVICE_TO_HOST, stream)

    def stream(self) -> int:
        """Return a new stream."""
        return self._made("cudaStreamCreate")

    def synchronize(self, stream: int) -> None:
        """Return once all work queued on the stream is done."""
        self.call("cudaStreamSynchronize", stream)

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self.call("cudaStreamDestroy", stream)

    def event(self) -> int:
        """Return a new event."""
        return self._made("cudaEventCreate")

    def record(self, event: int, stream: int) -> None:
        """Queue an event that records the time."""
        self.call("cudaEventRecord", event, stream)

    def elapsed_ns(self, start: int, stop: int) -> int:
        """Return the nanoseconds of device time between two finished events; resolution about 0.5 us."""
        milliseconds = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, stop)
        return round(milliseconds.value * 1e6)

    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        self.call("cudaEventDestroy", event)

    def begin_capture(self, stream: int) -> None:
        """Begin to capture the stream: work is recorded instead of executed."""
        self.call("cudaStreamBeginCapture", stream, CAPTURE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """Return the executable graph of the work recorded since `begin_capture`."""
        handle = VOID()
        self.call("cudaStreamEndCapture", stream, ctypes.byref(handle))
        graph = int(handle.value or 0)
        try:
            if self.version() >= INSTANTIATE_WITH_FLAGS:
                return self._made("cudaGraphInstantiateWithFlags", graph, 0)
            return self._made("cudaGraphInstantiate", graph, None, None, 0)
        finally:
            self.call("cudaGraphDestroy", graph)

    def launch(self, graph: int, stream: int) -> None:
        """Queue all work of an executable graph at once."""
        self.call("cudaGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """Destroy an executable graph."""
        self.call("cudaGraphExecDestroy", graph)


def _failed(name: str, code: int, error: bytes | None) -> DeviceError | SafetyError:
    message = (error or b"unknown error").decode()
    if code == OUT_OF_MEMORY:
        return SafetyError(
            "E-CUDART-2",
            "the GPU's memory ran out",
            evidence=f"{name}: {message} ({code})",
            effect="There is no number for this cell",
            fix="a smaller --batch, or end other programs that use the GPU",
        )
    return DeviceError(
        "E-CUDART-1",
        f"{name} failed with {message} ({code})",
        effect="Work queued before it may have failed too; there is no number for this cell",
        fix="nvidia-smi (or on a Jetson: sudo dmesg | tail), then run it again",
    )


@lru_cache(maxsize=1)
def runtime() -> CudaRuntime:
    """Return the CUDA runtime of this process; UnavailableError if there is no libcudart."""
    return CudaRuntime(library())


def library() -> Any:
    """Return the first libcudart that loads; the UnavailableError lists the paths tried."""
    tried = []
    for name in candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(str(error))
    raise UnavailableError(
        "E-CUDART-3",
        "the CUDA runtime library (libcudart) cannot be loaded",
        evidence="; ".join(tried)[:300] or "no file called libcudart.so* was found",
        fix="install JetPack or CUDA, or pip install nvidia-cuda-runtime-cu12; CUDA_HOME=/path/to/cuda",
    )


def candidates() -> Iterator[str]:
    """Yield the possible paths of libcudart: CUDA_HOME, the linker's path, CUDA's usual folders, NVIDIA's wheels."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib/aarch64-linux-gnu"]
    if home:
        yield from _inside([f"{home}/lib64", f"{home}/lib"])
    if found := ctypes.util.find_library("cudart"):
        yield found
    yield from _inside(folders)
    sites = [Path(p) for p in sys.path if p.endswith("-packages")]
    yield from _inside([str(site / "nvidia" / "*" / "lib") for site in sites])


def _inside(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from sorted(glob.glob(f"{folder}/libcudart.so*"), reverse=True)
