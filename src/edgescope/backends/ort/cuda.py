"""ONNX Runtime on its CUDA provider, bound to buffers of ours on a stream of ours.

A plain `run` allocates, copies from pageable memory and waits at every step. Here inputs and outputs have fixed
addresses (IO binding), host copies go through pinned memory on the session's own stream, and the host waits once, at
the end. With `graph=true` the runtime captures its kernels in a CUDA graph in the first call, which needs fixed
addresses. It also waits for each replay inside the call that starts it, so the time of that call is not the time of
enqueueing.

Three silent failures are prevented: a provider that cannot start is an error, not a session on the CPU; tf32 is
refused if the GPU has none; and the operators and their providers are read from a profiled run.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends import cudart
from edgescope.backends.base import Artifact, Phases, Spec, choice, counted, flag, precision_of, unforced
from edgescope.errors import ModelError, UnavailableError, UnsupportedError
from edgescope.models.base import Batch, Model
from edgescope.onnx_operators import HEAVY, KINDS, computes_in
from edgescope.records import Effective, Json

PROVIDER = "CUDAExecutionProvider"
LAYOUTS = ("contiguous", "channels_last")
#: Compute capability from which tensor cores take tf32 (Ampere, Orin).
AMPERE = (8, 0)
#: Number of plain runs before the first answer: the runtime captures a graph in one of them.
SETTLE = 3


def require(provider: str = PROVIDER, code: str = "E-CUDA-2", packages: str = "onnxruntime-gpu") -> None:
    """Load the CUDA libraries that pip installed, if any; UnavailableError if this build has no such provider."""
    if provider not in ort.get_available_providers():
        raise UnavailableError(
            code,
            f"this ONNX Runtime has no {provider}",
            evidence=f"onnxruntime {ort.__version__} offers {', '.join(ort.get_available_providers())}",
            fix=f"pip uninstall onnxruntime && pip install {packages}; on a Jetson the wheel of its JetPack",
        )
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def able(spec: Spec) -> None:
    """Raise an error if the provider is missing or this GPU lacks the precision: tf32 would be fp32 by another name."""
    require()
    if spec.precision != "tf32":
        return
    cuda = cudart.runtime()
    capability = cuda.compute_capability()
    if tuple(map(int, capability.split("."))) < AMPERE:
        raise UnsupportedError(
            "E-PREC-3",
            "ONNX Runtime has no tf32 on this GPU",
            evidence=f"{cuda.device_name()}, compute capability {capability}, tf32 begins with 8.0",
            effect="It would run in fp32 under this label",
            fix="--precision fp32",
        )


def shapes(model: Model, spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input, including its batch."""
    return {i.name: (spec.batch, *i.shape) for i in model.inputs}


def provider(spec: Spec, stream: int = 0) -> tuple[str, dict[str, str]]:
    """Return the CUDA provider with the options of a spec; `stream` 0 lets the runtime make its own."""
    options = {
        "use_tf32": str(int(spec.precision == "tf32")),
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "prefer_nhwc": str(int(choice(spec, "layout", LAYOUTS) == "channels_last")),
    }
    if stream:
        options["user_compute_stream"] = str(stream)
    if flag(spec, "graph"):
        options["enable_cuda_graph"] = "1"
    return PROVIDER, options


def executed(path: Path, spec: Spec, options: Any, given: Mapping[str, tuple[int, ...]]) -> Json:
    """Return {"Conv fp16 CUDAExecutionProvider": n} of one profiled run on zeros of the `given` shapes."""
    require()
    plain = Spec(spec.precision, options={"layout": choice(spec, "layout", LAYOUTS)})
    with tempfile.TemporaryDirectory(dir=cache.folder("ort")) as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = opened(path, options, [provider(plain), "CPUExecutionProvider"])
        feeds = {i.name: np.zeros(given[i.name], dtype=dtype(i.type)) for i in session.get_inputs()}
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    return dict(Counter(_operator(e["args"]) for e in events if e.get("cat") == "Node" and _heavy(e)))


def _heavy(event: Mapping[str, Any]) -> bool:
    arguments = event.get("args", {})
    return arguments.get("op_name") in HEAVY and "output_type_shape" in arguments


def _operator(arguments: Mapping[str, Any]) -> str:
    kind = next(iter(arguments["output_type_shape"][0]), "?") if arguments["output_type_shape"] else "?"
    kind = computes_in(arguments["op_name"], kind) if kind in KINDS else kind
    return f"{arguments['op_name']} {kind} {arguments.get('provider', '?')}"


def dtype(name: str) -> np.dtype[Any]:
    """Return the type of an array by the runtime's name for it, `tensor(float)`."""
    known = {"float": "float32", "double": "float64"}
    inner = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype(known.get(inner, inner))


class OrtCudaSession:
    """One InferenceSession with fixed buffers; calls are serialised by a lock, since they share them."""

    def __init__(self, artifact: Artifact, options: Any, runtime: cudart.CudaRuntime | None = None) -> None:
        self.spec, self.notes = artifact.spec, artifact.notes
        self.cuda = runtime or cudart.runtime()
        self.lock, self.stream = threading.Lock(), self.cuda.stream()
        self.session = self._open(artifact, options)
        self.addresses: dict[str, int] = {}
        self.entry = {i.name: self._pinned(i, artifact) for i in self.session.get_inputs()}
        self.exit = {o.name: self._pinned(o, artifact) for o in self.session.get_outputs()}
        self.binding = self._bound()
        self.graph = self.to_capture = flag(self.spec, "graph")
        self.once = None if self.graph else ort.RunOptions()
        if self.once:
            self.once.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def _open(self, artifact: Artifact, options: Any) -> Any:
        """Return the InferenceSession on this session's stream."""
        require()
        unforced(artifact.spec)
        assert artifact.path is not None
        return opened(artifact.path, options, [provider(artifact.spec, self.stream)])

    def _pinned(self, port: Any, artifact: Artifact) -> NDArray[Any]:
        shape = shapes(artifact.model, self.spec).get(port.name, port.shape)
        if not all(isinstance(n, int) for n in shape):
            raise ModelError(
                "E-ORT-2",
                f"{port.name} of {artifact.model.info.name} has open axes: {shape}",
                effect="Its buffer cannot be laid out beforehand",
                fix="--shapes, or --device cpu",
            )
        array = self.cuda.pinned(shape, dtype(port.type))
        array[...] = 0
        return array

    def _bound(self) -> Any:
        binding = self.session.io_binding()
        for arrays, bind in ((self.entry, binding.bind_input), (self.exit, binding.bind_output)):
            for name, array in arrays.items():
                at = self.cuda.malloc(array.nbytes)
                self.addresses[name] = at
                self.cuda.to_device(at, array, self.stream)  # zeros: random memory would make invalid indices
                bind(name, "cuda", 0, array.dtype, array.shape, at)
        return binding

    def _enqueue(self) -> None:
        self.session.run_with_iobinding(self.binding, self.once)

    def _captured(self) -> None:
        """Let the runtime capture its graph, once."""
        if self.to_capture:
            for _ in range(SETTLE):
                self._enqueue()
            self.to_capture = False

    def __call__(self, batch: Batch) -> Sequence[Any]:
        """Return the outputs in the file's order, in pinned memory, valid until the next call; io device: addresses."""
        with self.lock:
            self._captured()
            self._give(batch)
            self._upload(batch)
            self._enqueue()
            self._download()
            self.cuda.synchronize(self.stream)
            return list(self.exit.values())

    def _give(self, batch: Batch) -> None:
        if self.spec.io == "host":
            for name, mine in self.entry.items():
                np.copyto(mine, batch[name])

    def _upload(self, batch: Batch) -> None:
        if self.spec.io == "device":
            return
        source = self.entry if self.spec.io == "host" else batch
        for name in self.entry:
            self.cuda.to_device(self.addresses[name], source[name], self.stream)

    def _download(self) -> None:
        if self.spec.io == "device":
            return
        for name, mine in self.exit.items():
            self.cuda.to_host(mine, self.addresses[name], self.stream)

    def stage(self, batch: Batch) -> Batch:
        """Return the batch in pinned memory; io device: it is also copied to the one buffer that the session reads."""
        staged = {}
        for name, array in batch.items():
            staged[name] = self.cuda.pinned(array.shape, array.dtype)
            staged[name][...] = array
            if self.spec.io == "device":
                self.cuda.to_device(self.addresses[name], staged[name], self.stream)
        self.cuda.synchronize(self.stream)
        return staged

    def fetch(self, outputs: Sequence[Any]) -> Sequence[NDArray[Any]]:
        """Return a call's outputs on the host."""
        if self.spec.io == "device":
            for name, mine in self.exit.items():
                self.cuda.to_host(mine, self.addresses[name], self.stream)
            self.cuda.synchronize(self.stream)
        return outputs

    def phases(self, batch: Batch) -> Phases:
        """Answer one query with CUDA events before and after each of its parts."""
        with self.lock:
            self._captured()
            marks = [self.cuda.event() for _ in range(4)]
            start = time.monotonic_ns()
            self._give(batch)
            self.cuda.record(marks[0], self.stream)
            self._upload(batch)
            self.cuda.record(marks[1], self.stream)
            handed = time.monotonic_ns()
            self._enqueue()
            enqueued = time.monotonic_ns()
            self.cuda.record(marks[2], self.stream)
            self._download()
            self.cuda.record(marks[3], self.stream)
            self.cuda.synchronize(self.stream)
            end = time.monotonic_ns()
            spans = [self.cuda.elapsed_ns(a, b) for a, b in itertools.pairwise(marks)]
            for mark in marks:
                self.cuda.destroy_event(mark)
        return Phases(end - start, None if self.graph else enqueued - handed, *spans)

    def effective(self) -> Effective:
        """Return the provider and type of the heavy operators, from a profiled run of the same file."""
        ran: Counter[str] = Counter()
        where: Counter[str] = Counter()
        for operator, n in dict(self.notes.get("executed_cuda", {})).items():
            _, kind, on = operator.split(" ")
            ran[kind] += n
            where["cuda" if on == PROVIDER else "cpu" if on.startswith("CPU") else on] += n
        kept = self.session.get_provider_options().get(PROVIDER, {})
        precision = precision_of(ran) if ran else self.spec.precision
        if precision == "fp32" and kept.get("use_tf32") == "1":
            precision = "tf32"
        device = "cpu"
        if PROVIDER in self.session.get_providers():
            device = _list(where) if set(where) - {"cuda"} else "cuda"
        evidence = (
            f"profiled run: {counted(ran)} heavy operators on {_list(where)}; use_tf32={kept.get('use_tf32')}"
        )
        return Effective(device, precision, None, f"{evidence}; {self.cuda.device_name()}")

    def close(self) -> None:
        """Free the session, then the buffers bound to it."""
        del self.binding, self.session
        for address in self.addresses.values():
            self.cuda.free(address)
        self.cuda.destroy_stream(self.stream)


def _list(where: Mapping[str, int]) -> str:
    return " and ".join(f"{n} on {name}" if len(where) > 1 else name for name, n in where.items()) or "cpu"


def opened(path: Path, options: Any, providers: Sequence[Any]) -> Any:
    """Return a session with the CUDA provider, or raise: the runtime itself would go on without it and only log it."""
    try:
        session = ort.InferenceSession(str(path), options, providers=list(providers), enable_fallback=0)
    except Exception as error:  # the runtime's exceptions share no base class
        raise ModelError(
            "E-ORT-1",
            f"ONNX Runtime cannot run {path} on the CUDA provider as requested",
            evidence=str(error).splitlines()[0][:300],
            fix="--option graph=false, or --device cpu",
        ) from error
    if PROVIDER not in session.get_providers():
        raise UnavailableError(
            "E-ORT-3",
            "ONNX Runtime dropped its CUDA provider",
            evidence=f"the session has {', '.join(session.get_providers())}",
            effect="The number would be the CPU's",
            fix="install the CUDA and cuDNN that this onnxruntime-gpu was built for, or --device cpu",
        )
    return session
