"""Facts about the three PyTorch backends that need no PyTorch; the lines of a run.py that needs only that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.records import Scalar, Trial

_LAST: Mapping[str, Scalar] = {"layout": "channels_last"}
_GRAPH: Mapping[str, Scalar] = {"graph": True}
#: Fold batch norms and use cuDNN's fused convolutions.
_FOLD: Mapping[str, Scalar] = {**_LAST, **_GRAPH, "fold": True}
#: Inductor times its kernels for minutes at the first start.
_TUNED: Mapping[str, Scalar] = {"tune": "max-autotune"}


class AboutEager(About):
    """torch_eager."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("fp32", "bf16"),
        "cuda": ("fp32", "tf32", "fp16", "bf16"),
    }
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": (*tried("fp32"), *tried("fp32 bf16", _LAST)),
        "cuda": (*tried("fp32"), *tried("fp32 fp16", _GRAPH), *tried("tf32 fp16", _FOLD)),
    }
    READS: ClassVar[frozenset[str]] = frozenset({"network"})
    BUILDS: ClassVar[bool] = False
    BASELINE: ClassVar[bool] = True
    COMPILES: ClassVar[bool] = False
    TRAINS: ClassVar[bool] = True
    TRACER: ClassVar[str] = "kineto"
    PACKAGES: ClassVar[Sequence[str]] = ("torch",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the exported program and call it."""
        return _script(trial, file, "import torch")


class AboutCompile(AboutEager):
    """torch_compile."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": tried("fp32 bf16", _LAST, {**_LAST, **_TUNED}),
        "cuda": (
            *tried("fp32 tf32 fp16", {**_LAST, **_GRAPH}),
            *tried("tf32 fp16", {**_LAST, **_GRAPH, **_TUNED}),
        ),
    }
    BASELINE: ClassVar[bool] = False
    COMPILES: ClassVar[bool] = True
    SLOW_OPTIONS: ClassVar[Mapping[str, Scalar]] = _TUNED
    SLOW_START: ClassVar[bool] = True

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the exported program, compile it and call it."""
        return _script(trial, file, "import torch\nimport torch._inductor.config", compiled=True)


class AboutTensorrt(About):
    """torch_tensorrt."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16")}
    SLOW_START: ClassVar[bool] = True
    READS: ClassVar[frozenset[str]] = frozenset({"network"})
    PACKAGES: ClassVar[Sequence[str]] = ("torch", "torch-tensorrt", "tensorrt")

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the compiled program and call it."""
        imports = "import torch\nimport torch_tensorrt"
        return _script(trial, file, imports, engine="PyTorch with Torch-TensorRT", capturing=False)


MODULE = """
{setup}module = torch.export.load(HERE / "{file}").module().to("{device}")
{laid}{compiled}

def forward(tensors):
    outputs = module(*({given} if t.is_floating_point() else t for t in tensors))
    outputs = list(outputs.values()) if isinstance(outputs, dict) else outputs
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [o.float() if o.is_floating_point() else o for o in outputs]

"""

PLAIN = (
    MODULE
    + """
def run(batch):
    with torch.inference_mode():
        outputs = forward([torch.from_numpy(batch[name]).to("{device}") for name in INPUTS])
        return [o.cpu().numpy() for o in outputs]
"""
)

#: One CUDA graph of the whole call, including copies, between fixed buffers; the first call captures it.
GRAPH = (
    MODULE
    + """
def capture(batch):
    host = [torch.from_numpy(batch[name]) for name in INPUTS]
    kinds = [{dtype} if t.is_floating_point() else t.dtype for t in host]
    pinned = [torch.empty(t.shape, dtype=kind, pin_memory=True).copy_(t) for t, kind in zip(host, kinds)]
    inputs, stream, graph = [t.to("cuda") for t in pinned], torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):  # cuDNN searches and a compiler compiles in the first calls: no capture may hold that
            outputs = forward(inputs)
        answers = [torch.empty(o.shape, dtype=o.dtype, pin_memory=True) for o in outputs]
        stream.synchronize()
    with torch.inference_mode(), torch.cuda.graph(graph, stream=stream):
        for mine, given in zip(inputs, pinned):
            mine.copy_(given, non_blocking=True)
        for mine, output in zip(answers, forward(inputs)):
            mine.copy_(output, non_blocking=True)
    return pinned, inputs, answers, stream, graph


captured = []


def run(batch):
    if not captured:
        captured.extend(capture(batch))
    pinned, _, answers, stream, graph = captured
    for mine, name in zip(pinned, INPUTS):
        if batch[name].shape != mine.shape:  # a copy would repeat rows
            raise ValueError(f"{{name}} is {{batch[name].shape}}, the first call's was {{tuple(mine.shape)}}")
        mine.copy_(torch.from_numpy(batch[name]))
    with torch.cuda.stream(stream):
        graph.replay()
    stream.synchronize()
    return [a.numpy() for a in answers]  # good until the next call
"""
)

#: channels_last, for weights and inputs of images and of clips.
LAID = """LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def laid(t):
    return t.contiguous(memory_format=LAST[t.dim()]) if t.dim() in LAST else t


for parameter in module.parameters():
    parameter.data = laid(parameter.data)
"""

DTYPES = {"fp32": "torch.float32", "tf32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}


def _script(
    trial: Trial,
    file: str,
    imports: str,
    *,
    engine: str = "PyTorch",
    compiled: bool = False,
    capturing: bool = True,
) -> Script:
    """Return the lines for a trial; unless `capturing` they leave out its CUDA graph."""
    graph = bool(trial.options.get("graph"))
    lines = GRAPH if graph and capturing else PLAIN
    filled = lines.format(file=file, device=trial.place.called("torch"), **_filled(trial, compiled=compiled))
    return Script(engine, imports, filled, ("graph",) if graph and not capturing else ())


def _filled(trial: Trial, *, compiled: bool) -> dict[str, str]:
    last = trial.options.get("layout") == "channels_last"
    dtype = DTYPES.get(trial.precision, "torch.float32")
    tune = ', mode="max-autotune-no-cudagraphs"' if trial.options.get("tune") == "max-autotune" else ""
    return {
        "setup": _setup(trial) + ("torch._inductor.config.freezing = True\n" if compiled else ""),
        "dtype": dtype,
        "laid": LAID if last else "",
        "given": f"laid(t.to({dtype}))" if last else f"t.to({dtype})",
        "compiled": f"module = torch.compile(module, dynamic=False{tune})\n" if compiled else "",
    }


def _setup(trial: Trial) -> str:
    setup, threads = "", trial.options.get("threads")
    if trial.place.cuda:
        setup = (
            "torch.backends.cudnn.benchmark = True\n"
            "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "
            f"{trial.precision == 'tf32'}\n"
        )
    if threads or trial.place.cuda:
        setup += f"torch.set_num_threads({threads or 1})\n"  # on cuda as when measured: the host only copies
    return setup
