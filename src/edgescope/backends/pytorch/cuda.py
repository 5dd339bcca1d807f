"""A PyTorch module on a CUDA device: plain calls, or one CUDA graph replayed.

At batch 1 most networks are bound by launching kernels one by one from Python. A graph captures the whole call once,
copies included: host memory -> pinned buffer (host), pinned -> device, the network, device -> pinned. A replay is one
launch and one synchronisation. Its input and output addresses are fixed, so calls are serialised by a lock. The
phases need the network alone, in a separate graph, which is captured when they are first requested.

Threads alone would not run in parallel: PyTorch's calls go to the default stream from every thread, and a graph has
one set of buffers. For several queries in flight there are lanes, each with its own stream and, with `graph=true`, its
own graph and buffers; a call borrows one lane. The interpreter's lock still lets only one thread launch at a time,
which slows eager mode but hardly graphs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgescope.backends.base import Artifact, Phases
from edgescope.backends.pytorch import module as shared
from edgescope.models.base import Batch
from edgescope.records import Effective

#: Calls before a capture: cuDNN picks its algorithms and inductor compiles in the first ones.
SETTLE = 3


class CudaSession:
    """Eager calls: inputs to the device, the module, outputs to the host, which waits for the device."""

    def __init__(
        self, run: Callable[..., Any], artifact: Artifact, precision_check: shared.PrecisionCheck
    ) -> None:
        self.run, self.spec, self.dtype = run, artifact.spec, shared.require(artifact.spec)
        self.names, self.precision_check = shared.input_names(artifact), precision_check
        self.streams: SimpleQueue[Any] | None = None
        """Free streams, if there are lanes."""
        self.owned = False
        """Whether outputs are the caller's own."""

    def __call__(self, batch: Batch) -> Sequence[Any]:
        """Return the outputs as float32 arrays, or with io device as finished tensors on the device."""
        if self.streams is None:
            return self._answer(batch)
        stream, reader = self.streams.get(), torch.cuda.current_stream()
        try:
            with torch.cuda.stream(stream):
                return _read_on(reader, self._answer(batch))
        finally:
            self.streams.put(stream)

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Make n streams, and run each a few times, because cuDNN keeps a workspace for each."""
        torch.cuda.synchronize()
        self.owned = owned
        streams = [torch.cuda.Stream() for _ in range(n)]  # type: ignore[no-untyped-call]
        self.streams = SimpleQueue()
        for stream in streams:
            self.streams.put(stream)
        for _ in range(SETTLE * n):
            self(batch)

    def _answer(self, batch: Batch) -> Sequence[Any]:
        with torch.inference_mode():
            outputs = self._forward([self._tensor(batch[name]) for name in self.names])
            self.precision_check.stop()
            if self.spec.io != "device":
                return shared.arrays(outputs)
            torch.cuda.current_stream().synchronize()
            return outputs

    def _forward(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return shared.widened(self.run(*(shared.shaped(tensor, self.spec, self.dtype) for tensor in inputs)))

    def _tensor(self, value: Any) -> torch.Tensor:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
        return tensor.to("cuda", non_blocking=self.spec.io == "pinned")

    def stage(self, batch: Batch) -> Batch:
        """Return the batch as tensors in pinned host memory, or on the device."""
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
        if self.spec.io == "pinned":
            return {name: tensor.pin_memory() for name, tensor in tensors.items()}  # type: ignore[misc]
        return {name: tensor.to("cuda") for name, tensor in tensors.items()}  # type: ignore[misc]

    def fetch(self, outputs: Sequence[Any]) -> Sequence[NDArray[Any]]:
        """Return a call's outputs on the host."""
        return [o.cpu().numpy() if isinstance(o, torch.Tensor) else o for o in outputs]

    def phases(self, batch: Batch) -> Phases:
        """Answer one query with CUDA events before and after each of its parts."""
        marks = _events()
        torch.cuda.synchronize()
        with torch.inference_mode():
            start = time.monotonic_ns()
            marks[0].record()
            inputs = [self._tensor(batch[name]) for name in self.names]
            marks[1].record()
            handed = time.monotonic_ns()
            outputs = self._forward(inputs)
            enqueued = time.monotonic_ns()
            marks[2].record()
            if self.spec.io != "device":
                shared.arrays(outputs)
            marks[3].record()
            marks[3].synchronize()
            end = time.monotonic_ns()
        return _phases(marks, enqueued - handed, end - start)

    def effective(self) -> Effective:
        """Return the precision that most heavy operators produced in the first call, and the GPU."""
        return self.precision_check.effective(self.spec)

    def close(self) -> None:
        """Drop the module and free its memory."""
        del self.run
        torch.cuda.empty_cache()


class GraphSession(CudaSession):
    """One captured graph; captured in the first call, whose batch fixes the shapes."""

    def __init__(
        self, run: Callable[..., Any], artifact: Artifact, precision_check: shared.PrecisionCheck
    ) -> None:
        super().__init__(run, artifact, precision_check)
        self.lock = threading.Lock()
        self.ready: _Captured | None = None
        self.idle: SimpleQueue[_Captured] | None = None
        """Free lanes, if there are several."""

    def __call__(self, batch: Batch) -> Sequence[Any]:
        """Return the outputs as float32 arrays in pinned memory, valid until the lane's next; io device: tensors."""
        if self.idle is not None:
            lane, reader = self.idle.get(), torch.cuda.current_stream()
            try:
                outputs = lane.replay([batch[name] for name in self.names], owned=self.owned)
                return _read_on(reader, outputs) if self.owned else outputs
            finally:
                self.idle.put(lane)
        with self.lock:
            captured = self.ready or self._capture(batch)
            return captured.replay([batch[name] for name in self.names])

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Capture a graph for each of n queries in flight, one after the other: parallel calls break a capture."""
        example = [batch[name] for name in self.names]
        made = [self.ready or self._capture(batch)]
        made += [_Captured(self._forward, example, self.spec.io, self.dtype) for _ in range(n - 1)]
        self.idle, self.owned = SimpleQueue(), owned
        for lane in made:
            lane.replay(example)
            self.idle.put(lane)

    def _capture(self, batch: Batch) -> _Captured:
        example = [batch[name] for name in self.names]
        self.ready = _Captured(self._forward, example, self.spec.io, self.dtype)
        self.precision_check.stop()
        return self.ready

    def phases(self, batch: Batch) -> Phases:
        """Answer one query with its copies outside the graph and CUDA events between the parts."""
        with self.lock:
            captured = self.ready or self._capture(batch)
            return captured.phases([batch[name] for name in self.names])

    def effective(self) -> Effective:
        """Return the precision of the calls that were captured."""
        lanes = self.idle.qsize() if self.idle else 1
        prefix = "one CUDA graph; " if lanes == 1 else f"{lanes} CUDA graphs, a stream each; "
        return self.precision_check.effective(self.spec, prefix)

    def close(self) -> None:
        """Drop the graph before the module whose memory it uses."""
        self.ready = self.idle = None
        super().close()


class _Captured:
    """Fixed buffers and the graphs between them."""

    def __init__(
        self,
        forward: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]],
        example: Sequence[Any],
        io: str,
        dtype: torch.dtype,
    ) -> None:
        self.forward, self.io = forward, io
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        given = [x if isinstance(x, torch.Tensor) else torch.from_numpy(x) for x in example]
        # 16-bit inputs are rounded on the way into pinned memory, which then takes half as long to cross the bus
        kinds = [dtype if io == "host" and t.is_floating_point() else t.dtype for t in given]
        self.pinned = [
            torch.empty(t.shape, dtype=k, pin_memory=True) for t, k in zip(given, kinds, strict=True)
        ]
        self.inputs = [torch.empty_like(t, device="cuda") for t in self.pinned]
        for mine, theirs in zip(self.inputs, given, strict=True):
            mine.copy_(theirs)
        torch.cuda.synchronize()
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            for _ in range(SETTLE):
                outputs = forward(self.inputs)
            self.results = [torch.empty(o.shape, dtype=o.dtype, pin_memory=True) for o in outputs]
            del outputs
            self.stream.synchronize()
        self.exit = [t.numpy() for t in self.results]
        self.whole = self._with_copies() if io == "host" else None

    def _with_copies(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph, stream=self.stream):
            self._upload(self.pinned)
            self._download(self.forward(self.inputs))
        return graph

    @cached_property
    def compute(self) -> torch.cuda.CUDAGraph:
        """Return the graph of the network alone, which fills `outputs`; captured at the first use."""
        graph = torch.cuda.CUDAGraph()
        pool = self.whole.pool() if self.whole else None  # never replayed at once, so they may share memory
        with torch.inference_mode(), torch.cuda.graph(graph, stream=self.stream, pool=pool):
            self.outputs = self.forward(self.inputs)
        return graph

    def _take(self, given: Sequence[NDArray[Any]]) -> None:
        for mine, theirs in zip(self.pinned, given, strict=True):
            mine.copy_(torch.from_numpy(theirs))

    def _upload(self, source: Sequence[torch.Tensor]) -> None:
        for mine, theirs in zip(self.inputs, source, strict=True):
            mine.copy_(theirs, non_blocking=True)

    def _download(self, outputs: Sequence[torch.Tensor]) -> None:
        for mine, theirs in zip(self.results, outputs, strict=True):
            mine.copy_(theirs, non_blocking=True)

    def replay(self, given: Sequence[Any], *, owned: bool = False) -> Sequence[Any]:
        """Return the outputs of the given inputs once the device is done; `owned`: copies of the caller's own."""
        network = self.whole or self.compute
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            if self.io == "host":
                self._take(given)
                network.replay()
            else:
                self._upload(given)
                network.replay()
                if self.io == "pinned":
                    self._download(self.outputs)
            kept = [o.clone() for o in self.outputs] if owned and self.io == "device" else []
        self.stream.synchronize()
        if self.io == "device":
            return kept or self.outputs
        return [o.copy() for o in self.exit] if owned else self.exit

    def phases(self, given: Sequence[Any]) -> Phases:
        """Replay the network alone with its copies around it, and an event after each part."""
        marks, network = _events(), self.compute
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            start = time.monotonic_ns()
            if self.io == "host":
                self._take(given)
            marks[0].record()
            self._upload(self.pinned if self.io == "host" else given)
            marks[1].record()
            handed = time.monotonic_ns()
            network.replay()
            enqueued = time.monotonic_ns()
            marks[2].record()
            if self.io != "device":
                self._download(self.outputs)
            marks[3].record()
        self.stream.synchronize()
        return _phases(marks, enqueued - handed, time.monotonic_ns() - start)


def _read_on(stream: torch.cuda.Stream, outputs: Sequence[Any]) -> Sequence[Any]:
    """Return outputs whose memory is free for other tensors only once `stream` has read them."""
    for output in outputs:
        if isinstance(output, torch.Tensor) and output.is_cuda:
            output.record_stream(stream)
    return outputs


def _events() -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]


def _phases(marks: Sequence[torch.cuda.Event], enqueue_ns: int, latency_ns: int) -> Phases:
    spans = [round(a.elapsed_time(b) * 1e6) for a, b in itertools.pairwise(marks)]
    return Phases(latency_ns, enqueue_ns, *spans)
