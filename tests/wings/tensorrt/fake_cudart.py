"""A CUDA runtime without a GPU: device memory is host memory, and nothing is done before a stream is synchronised.

Work given to a stream waits in a queue, as on a GPU, so code that reads a result too early reads the old one. A
stream that captures notes work down for a graph instead. Addresses that were never allocated are refused.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

INVALID_VALUE, OUT_OF_MEMORY, CAPTURE_UNSUPPORTED = 1, 2, 900
NAMES = {
    INVALID_VALUE: b"cudaErrorInvalidValue",
    OUT_OF_MEMORY: b"cudaErrorMemoryAllocation",
    CAPTURE_UNSUPPORTED: b"cudaErrorStreamCaptureUnsupported",
}
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class Function:
    """One C function: takes argtypes and restype like those of ctypes."""

    def __init__(self, library: FakeCudart, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *arguments: Any) -> Any:
        self.library.calls[self.name] += 1
        if self.name in self.library.failing:
            return self.library.failing[self.name]
        return getattr(self.library, f"do_{self.name[4:]}")(*arguments) or 0


class FakeCudart:
    """Stands where the loaded library stands."""

    def __init__(self, *, name: str = "Orin", capability: str = "8.7", runtime: int = 12060) -> None:
        self.name, self.capability, self.version = name, capability, runtime
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {}
        self.limit = 1 << 32
        self.device: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.queues: dict[int, list[Callable[[], None]]] = {}
        self.capturing: dict[int, list[Callable[[], None]]] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.executables: dict[int, list[Callable[[], None]]] = {}
        self.events: dict[int, int] = {}
        self.handles = itertools.count(1000)
        self.functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Function:
        if not name.startswith("cuda") or not hasattr(type(self), f"do_{name[4:]}"):
            raise AttributeError(name)
        return self.functions.setdefault(name, Function(self, name))

    def queue(self, stream: int, work: Callable[[], None]) -> None:
        """Give work to a stream, or note it down while the stream captures."""
        target = self.capturing if stream in self.capturing else self.queues
        target[stream].append(work)

    def drain(self) -> None:
        """Do everything that waits."""
        for waiting in self.queues.values():
            while waiting:
                waiting.pop(0)()

    def holds(self, address: int, size: int) -> bool:
        """Return whether the bytes lie in device memory that was allocated."""
        return any(a <= address and address + size <= a + ctypes.sizeof(b) for a, b in self.device.items())

    def do_GetErrorName(self, code):
        return NAMES.get(code, b"cudaErrorUnknown")

    def do_RuntimeGetVersion(self, out):
        out._obj.value = self.version

    def do_GetDevice(self, out):
        out._obj.value = 0

    def do_DeviceGetAttribute(self, out, what, device):
        out._obj.value = int(self.capability.split(".")[{75: 0, 76: 1}[what]])

    def do_GetDeviceProperties(self, buffer, device):
        buffer[: len(self.name) + 1] = self.name.encode() + b"\0"

    def do_MemGetInfo(self, free, total):
        used = sum(ctypes.sizeof(block) for block in self.device.values())
        free._obj.value, total._obj.value = self.limit - used, self.limit

    def _allocate(self, blocks, out, size):
        if size > self.limit:
            return OUT_OF_MEMORY
        block = (ctypes.c_byte * size)(*b"\x7f" * min(size, 16))
        blocks[ctypes.addressof(block)] = block
        out._obj.value = ctypes.addressof(block)
        return 0

    def do_Malloc(self, out, size):
        return self._allocate(self.device, out, size)

    def do_HostAlloc(self, out, size, flags):
        return self._allocate(self.pinned, out, size)

    def do_Free(self, address):
        self.drain()  # the real one waits for the device too
        return 0 if self.device.pop(address, None) is not None else INVALID_VALUE

    def do_FreeHost(self, address):
        return 0 if self.pinned.pop(address, None) is not None else INVALID_VALUE

    def do_MemcpyAsync(self, target, source, size, kind, stream):
        device = target if kind == HOST_TO_DEVICE else source
        if kind not in (HOST_TO_DEVICE, DEVICE_TO_HOST) or not self.holds(device, size):
            return INVALID_VALUE
        self.queue(stream, lambda: ctypes.memmove(target, source, size))
        return 0

    def do_StreamCreate(self, out):
        out._obj.value = next(self.handles)
        self.queues[out._obj.value] = []

    def do_StreamSynchronize(self, stream):
        if stream in self.capturing:
            return CAPTURE_UNSUPPORTED
        waiting = self.queues[stream]
        while waiting:
            waiting.pop(0)()
        return 0

    def do_StreamDestroy(self, stream):
        del self.queues[stream]

    def do_StreamBeginCapture(self, stream, mode):
        self.capturing[stream] = []

    def do_StreamEndCapture(self, stream, out):
        out._obj.value = next(self.handles)
        self.graphs[out._obj.value] = self.capturing.pop(stream)

    def _instantiate(self, out, graph):
        out._obj.value = next(self.handles)
        self.executables[out._obj.value] = self.graphs[graph]

    def do_GraphInstantiate(self, out, graph, node, log, size):
        return INVALID_VALUE if self.version >= 12000 else self._instantiate(out, graph)

    def do_GraphInstantiateWithFlags(self, out, graph, flags):
        return self._instantiate(out, graph)

    def do_GraphLaunch(self, executable, stream):
        for work in self.executables[executable]:
            self.queue(stream, work)

    def do_GraphDestroy(self, graph):
        del self.graphs[graph]

    def do_GraphExecDestroy(self, executable):
        del self.executables[executable]

    def do_EventCreate(self, out):
        out._obj.value = next(self.handles)
        self.events[out._obj.value] = -1

    def do_EventRecord(self, event, stream):
        self.queue(stream, lambda: self.events.__setitem__(event, time.perf_counter_ns()))

    def do_EventElapsedTime(self, out, start, stop):
        if min(self.events[start], self.events[stop]) < 0:
            return INVALID_VALUE
        out._obj.value = (self.events[stop] - self.events[start]) / 1e6
        return 0

    def do_EventDestroy(self, event):
        del self.events[event]
