"""PyTorch in eager mode, as most people run it, and through torch.compile, on the CPU or a CUDA device.

Eager mode: a reduced precision converts the whole module, so every convolution and matrix product runs in it; the
precision is read back from those operators' outputs in the first call. With `graph=true` on a CUDA device the whole
call, a compiled one too, is captured once and replayed, copies included (see backends/pytorch/cuda.py). It also tells
the time, FLOPs and bytes of every operation, each under the path of the module that calls it. On a CPU an operation is
timed around its call. On a GPU all operations are enqueued behind a kernel that only waits, so that the device runs
them back to back and the events between them hold no launches.

torch.compile: inductor with frozen weights. Compilation happens in the first call (that is `first_s`) and its kernels
are cached by inductor across processes. Freezing folds weights into the graph, which lets inductor fold batch norms and
pre-pack weights; it needs inference without gradients.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from edgescope import registry
from edgescope.analysis.roofline import Layer
from edgescope.backends.base import LAYER_RUNS, Artifact, Session, Spec, choice, flag
from edgescope.backends.pytorch import module as shared
from edgescope.backends.pytorch.about import AboutCompile, AboutEager
from edgescope.backends.pytorch.cuda import CudaSession, GraphSession
from edgescope.errors import UnavailableError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective

TUNES = ("default", "max-autotune")


class TorchSession:
    """One module on the CPU; inputs and outputs are numpy arrays on the host."""

    def __init__(
        self, module: torch.nn.Module, artifact: Artifact, precision_check: shared.PrecisionCheck
    ) -> None:
        self.run, self.spec, self.dtype = module, artifact.spec, shared.require(artifact.spec)
        self.names = shared.input_names(artifact)
        self.precision_check = precision_check

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs as float32 arrays."""
        with torch.inference_mode():
            inputs = (torch.from_numpy(batch[name]) for name in self.names)
            outputs = self.run(*(shared.shaped(tensor, self.spec, self.dtype) for tensor in inputs))
        self.precision_check.stop()
        return shared.arrays(outputs)

    def effective(self) -> Effective:
        """Return the precision that most heavy operators produced in the first call."""
        return self.precision_check.effective(self.spec)

    def close(self) -> None:
        """Drop the module."""
        del self.run


def session_of(artifact: Artifact) -> type[TorchSession] | type[CudaSession]:
    """Return the session for a spec's device and options."""
    if not artifact.spec.place.cuda:
        return TorchSession
    return GraphSession if flag(artifact.spec, "graph") else CudaSession


class TorchEager(AboutEager):
    """torch_eager: fp32 and bf16 on a CPU that has it; fp32, tf32, fp16 and bf16 on a CUDA device."""

    OPTIONS: ClassVar[dict[str, str]] = shared.OPTIONS

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; nothing is built."""
        return shared.prepared("torch_eager", model, spec, self.OPTIONS)

    def load(self, artifact: Artifact) -> Session:
        """Return a session over the module."""
        module = shared.ready(artifact)
        return session_of(artifact)(module, artifact, shared.Heavy(module))

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return the time, FLOPs and bytes of every operation, without a CUDA graph around them."""
        spec, dtype = artifact.spec, shared.require(artifact.spec)
        module = shared.ready(artifact)
        where, names = spec.place.called("torch"), shared.input_names(artifact)
        tensors = (torch.from_numpy(batch[name]).to(where) for name in names)
        inputs = [shared.shaped(tensor, spec, dtype) for tensor in tensors]
        return layers(module, inputs, spec.device, spec.precision, LAYER_RUNS)


class Frames:
    """Counts the frames that dynamo compiled; hooks would break its graphs."""

    def __init__(self) -> None:
        self.frames: Counter[str] = torch._dynamo.utils.counters["frames"]
        self.frames.clear()

    def stop(self) -> None:
        """Nothing is hooked."""

    def effective(self, spec: Spec, prefix: str = "") -> Effective:
        """Return the parameters' precision; a graph that fell back to eager is reported as such."""
        ok, total = self.frames["ok"], self.frames["total"]
        where = spec.device if ok else f"{spec.device} (eager fallback: nothing was compiled)"
        dtype = shared.NAMES[shared.DTYPES[spec.precision]]
        return shared.effective(spec, where, dtype, f"{prefix}dynamo compiled {ok} of {total} frames")


class TorchCompile(AboutCompile):
    """torch_compile: the precisions of torch_eager through inductor."""

    OPTIONS: ClassVar[dict[str, str]] = {
        **shared.OPTIONS,
        "tune": "default or max-autotune: inductor times kernels for minutes (default)",
    }

    def __init__(self) -> None:
        """Import inductor: that takes a second, which listing the engines need not wait for."""
        self._inductor: Any = importlib.import_module("torch._inductor.config")

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact; the first call compiles."""
        choice(spec, "tune", TUNES)
        return shared.prepared("torch_compile", model, spec, self.OPTIONS)

    def load(self, artifact: Artifact) -> Session:
        """Return a session that compiles in its first call."""
        _require_compiler(artifact.spec)
        self._inductor.freezing = True
        tune = choice(artifact.spec, "tune", TUNES)
        if artifact.spec.place.cuda and tune != "default":
            _assembler_of_workers()
        mode = None if tune == "default" else "max-autotune-no-cudagraphs"
        precision_check = Frames()
        run = cast(torch.nn.Module, torch.compile(shared.ready(artifact), dynamic=False, mode=mode))
        return session_of(artifact)(run, artifact, precision_check)


def _assembler_of_workers() -> None:
    """Make this process use the same ptxas as inductor's compile workers.

    Some versions (torch 2.11) give the workers PyTorch's ptxas and leave Triton's to this process, which times the
    kernels. The version of ptxas is in the key of Triton's cache, so the kernels that the workers had compiled in
    parallel were compiled again here, one after another.
    """
    with contextlib.suppress(ImportError):  # private: a version without it has another way
        from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

        _set_triton_ptxas_path()


def _require_compiler(spec: Spec) -> None:
    from torch._inductor import cpp_builder
    from torch.utils import _triton

    if spec.place.cuda and not _triton.has_triton():
        raise UnavailableError(
            "E-COMP-2",
            "torch.compile needs Triton to make kernels for a GPU, and it does not work here",
            evidence=f"torch {torch.__version__}: has_triton() is false",
            fix="--backend torch_eager --option fold=true",
        )
    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        raise UnavailableError(
            "E-COMP-1", "torch.compile needs a C++ compiler", evidence=str(error), fix="apt install g++"
        ) from error


WAIT_CYCLES = 300_000_000
"""Clock cycles of the kernel behind which a GPU's operations are enqueued: some tenths of a second."""
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
VIEWS = frozenset(
    {"view", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze"}
    | {"detach", "alias", "as_strided", "split", "unbind", "reshape", "flatten"}
)
"""Operations that move nothing."""


class _Recorder(TorchDispatchMode):
    """Records each operation that runs within the block."""

    def __init__(self, module: nn.Module, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cuda, self.path, self.rows = registry.place(device).cuda, [""], list[dict[str, Any]]()
        self.hooks = [
            hook
            for name, part in module.named_modules()
            for hook in (
                part.register_forward_pre_hook(lambda m, a, n=name: self.path.append(n)),
                part.register_forward_hook(lambda m, a, o: self.path.pop() and None),
            )
        ]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        marks = self._mark()
        out = func(*args, **given)
        ended = self._mark()
        name = func._schema.name.partition("::")[2]
        if name not in VIEWS:
            row = {"name": self.path[-1], "kind": name, "marks": (marks, ended)}
            self.rows.append(row | _work(func, args, given, out))
        return out

    def _mark(self) -> Any:
        if not self.cuda:
            return time.monotonic_ns()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self.hooks:
            hook.remove()


def _work(func: Any, args: Any, kwargs: Any, out: Any) -> dict[str, Any]:
    """Return FLOPs, bytes, precision and whether it is a depthwise convolution."""
    tensors = [t for t in _tensors(args)] + [t for t in _tensors(out)]
    moved = sum(t.numel() * t.element_size() for t in tensors)
    count = flop_registry.get(func._overloadpacket)
    flops = int(count(*args, **kwargs, out_val=out)) if count is not None else 0
    kinds = [NAMES[t.dtype] for t in tensors if t.dtype in NAMES]
    groups = args[8] if func._schema.name == "aten::convolution" and len(args) > 8 else 1
    return {
        "flops": flops,
        "bytes": moved,
        "precision": kinds[0] if kinds else "fp32",
        "grouped": bool(groups > 1 and len(tensors) > 1 and tensors[1].shape[1] == 1),
    }


def _tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def layers(
    module: nn.Module, inputs: Sequence[torch.Tensor], device: str, precision: str, repeats: int = 10
) -> list[Layer]:
    """Return every operation of one forward pass, with the median of its times over `repeats` passes."""
    runs: list[list[dict[str, Any]]] = []
    with torch.no_grad():
        for _ in range(3):
            module(*inputs)
        for _ in range(repeats):
            runs.append(_pass(module, inputs, device))
    least = min(len(run) for run in runs)
    same = [run for run in runs if len(run) == least]
    return [_layer([run[i] for run in same], device, precision) for i in range(least)]


def _pass(module: nn.Module, inputs: Sequence[torch.Tensor], device: str) -> list[dict[str, Any]]:
    recorder = _Recorder(module, device)
    try:
        if registry.place(device).cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(WAIT_CYCLES)  # type: ignore[no-untyped-call]
        with recorder:
            module(*inputs)
        if registry.place(device).cuda:
            torch.cuda.synchronize()
    finally:
        recorder.close()
    return recorder.rows


def _layer(rows: Sequence[dict[str, Any]], device: str, precision: str) -> Layer:
    first = rows[0]
    times = [_seconds(row["marks"], device) for row in rows]
    tf32 = precision == "tf32" and first["precision"] == "fp32"
    return Layer(
        first["name"] or "(network)",
        first["kind"],
        statistics.median(times),
        first["flops"],
        first["bytes"],
        "tf32" if tf32 else first["precision"],
        first["grouped"],
        tuple(times),
    )


def _seconds(marks: tuple[Any, Any], device: str) -> float:
    start, end = marks
    return float(start.elapsed_time(end)) * 1e-3 if registry.place(device).cuda else (end - start) * 1e-9
