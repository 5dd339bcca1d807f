"""The arms of benchmarks/expert.py: loops an expert would write by hand, and edgescope's pick. One process, one arm.

Each arm is a function of (model name, device) that returns a callable of one batch: host arrays in, host arrays out,
the answer complete when it returns. None of the experts' uses edgescope's sessions or its exporter; the network, its
weights and the inputs are the same. The arm says when it has its libraries; the parent writes `load`, then `go SECONDS`
as often as it likes, and the arm answers with how near its outputs are, then with the median of its latencies.

    python benchmarks/expert_arms.py ARM MODEL DEVICE SHARED [SPEC]

started by expert.py; SHARED: a folder of the arms of one comparison, SPEC: one of edgescope's own.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.models import zoo
from edgescope.verify import closeness, judge

Batch = dict[str, np.ndarray[Any, Any]]
Run = Callable[[Batch], Sequence[np.ndarray[Any, Any]]]

WARM_S = 2.0
EXPORTS = Path(tempfile.gettempdir()) / "edgescope-expert-onnx"
CHECKED = 16
"""Inputs on which an arm's outputs are held against eager fp32."""


def eager(model: str, device: str) -> Any:
    """The network in eval mode on the device, and torch."""
    import torch

    torch.backends.cudnn.benchmark = True
    return torch, zoo.get(model).module().eval().to(device)


def ours(model: str, device: str, spec: dict[str, Any]) -> Run:
    """The pick or the baseline, through the session that edgescope measures."""
    from edgescope import cache, registry
    from edgescope.backends.base import Spec

    backend = registry.load(registry.BACKENDS, spec["backend"], "backend")()
    asked = Spec(precision=spec["precision"], options=spec["options"], device=device)
    session = backend.load(backend.prepare(zoo.get(model), asked, cache.folder("artifacts")))
    run: Run = session
    return run


def torch_fp32(model: str, device: str) -> Run:
    """Eager fp32: the reference of the outputs, not an expert's choice."""
    torch, net = eager(model, device)
    return _torch_loop(torch, net, device, torch.float32)


def compiled(model: str, device: str, precision: str) -> Run:
    """torch.compile max-autotune, weights and inputs channels last; of clips the faster of both layouts."""
    import torch

    if len(zoo.get(model).inputs[0].shape) == 3:
        return _compiled(model, device, precision, torch.channels_last)
    layouts = (torch.contiguous_format, torch.channels_last_3d)  # which is faster differs between devices
    pool = batches(model, judge.Purpose.BENCH, 8)
    return faster([_compiled(model, device, precision, layout) for layout in layouts], pool)


def faster(runs: Sequence[Run], pool: list[Batch], seconds: float = WARM_S) -> Run:
    """The run with the least median, each warmed up first."""
    for run in runs:
        measure(run, pool, seconds)
    medians = [measure(run, pool, seconds)["median_s"] for run in runs]
    return runs[medians.index(min(medians))]


def _compiled(model: str, device: str, precision: str, layout: Any) -> Run:
    torch, net = eager(model, device)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    net = net.to(dtype)
    if layout is not torch.contiguous_format:
        net = net.to(memory_format=layout)
    return _torch_loop(torch, torch.compile(net, mode="max-autotune"), device, dtype, layout)


def _torch_loop(torch: Any, net: Any, device: str, dtype: Any, layout: Any = None) -> Run:
    layout = layout or torch.contiguous_format
    staged: dict[str, Any] = {}

    def put(name: str, array: np.ndarray[Any, Any]) -> Any:
        """The input on the device; on a GPU by way of pinned memory, which each call ends before it is used again."""
        given = torch.from_numpy(array)
        if device == "cuda":
            if name not in staged:
                staged[name] = torch.empty(given.shape, dtype=dtype, pin_memory=True)
            given = staged[name].copy_(given)
        return given.to(device, dtype, non_blocking=True).contiguous(memory_format=layout)

    def run(batch: Batch) -> list[np.ndarray[Any, Any]]:
        with torch.inference_mode():
            found = net(*(put(n, a) for n, a in batch.items()))
            return [t.float().cpu().numpy() for t in (found if isinstance(found, tuple) else (found,))]

    return run


def openvino_latency(model: str, device: str, precision: str) -> Run:
    """OpenVINO's converter and latency hint; its own choice of precision, or fp32."""
    import openvino as ov
    import torch

    net = zoo.get(model).module().eval()
    shape = zoo.get(model).inputs[0].shape
    with torch.inference_mode():
        converted = ov.convert_model(net, example_input=torch.zeros(1, *shape), input=[1, *shape])
    config = {"PERFORMANCE_HINT": "LATENCY"} | (
        {"INFERENCE_PRECISION_HINT": "f32"} if precision == "fp32" else {}
    )
    request = ov.Core().compile_model(converted, "CPU", config).create_infer_request()
    return lambda batch: [np.array(a) for a in request.infer(list(batch.values())).values()]


def onnx_of(model: str, *, half: bool) -> Path:
    """The network through torch.onnx.export, batch 1 fixed, as an expert would; once for all rounds."""
    import torch

    path = EXPORTS / f"{model}-{'fp16' if half else 'fp32'}-{torch.__version__}" / "model.onnx"
    if path.exists():
        return path
    source = zoo.get(model)
    net = source.module().eval()
    example = torch.zeros(1, *source.inputs[0].shape)
    if half:
        net, example = net.half(), example.half()
    EXPORTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=EXPORTS))
    torch.onnx.export(net, (example,), str(folder / path.name), dynamo=True, verbose=False)
    folder.rename(path.parent)  # whole or not at all
    return path


def onnxruntime_cpu(model: str, device: str) -> Run:
    """ONNX Runtime's CPU provider as it comes."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(onnx_of(model, half=False)), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: next(iter(batch.values()))})


def onnxruntime_graph(model: str, device: str, precision: str) -> Run:
    """ONNX Runtime's CUDA provider with IO binding and graph capture."""
    import onnxruntime as ort
    import torch

    if hasattr(ort, "preload_dlls"):  # CUDA's libraries come with PyTorch's packages
        ort.preload_dlls()
    half = precision == "fp16"
    options = {"enable_cuda_graph": "1", "use_tf32": "1", "cudnn_conv_algo_search": "EXHAUSTIVE"}
    session = ort.InferenceSession(
        str(onnx_of(model, half=half)), providers=[("CUDAExecutionProvider", options)]
    )
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise RuntimeError("ONNX Runtime has no CUDA provider here")
    dtype = np.float16 if half else np.float32
    shape = (1, *zoo.get(model).inputs[0].shape)
    given = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input(session.get_inputs()[0].name, given)
    for output in session.get_outputs():  # a captured graph writes to the same place for ever
        held = ort.OrtValue.ortvalue_from_shape_and_type([int(n) for n in output.shape], dtype, "cuda", 0)
        binding.bind_ortvalue_output(output.name, held)

    def put(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The input as the network takes it; PyTorch halves an array many times quicker than NumPy."""
        return torch.from_numpy(array).half().numpy() if half else array

    def run(batch: Batch) -> list[np.ndarray[Any, Any]]:
        given.update_inplace(put(next(iter(batch.values()))))
        session.run_with_iobinding(binding)
        return [v.numpy().astype(np.float32) for v in binding.get_outputs()]

    return run


EXPERTS: dict[str, dict[str, Callable[[str, str], Run]]] = {
    "cpu": {
        "torch_compile_fp32": lambda m, d: compiled(m, d, "fp32"),
        "torch_compile_bf16": lambda m, d: compiled(m, d, "bf16"),
        "onnxruntime_fp32": onnxruntime_cpu,
        "openvino_latency": lambda m, d: openvino_latency(m, d, "its own"),
        "openvino_latency_fp32": lambda m, d: openvino_latency(m, d, "fp32"),
    },
    "cuda": {
        "torch_compile_tf32": lambda m, d: compiled(m, d, "tf32"),
        "torch_compile_fp16": lambda m, d: compiled(m, d, "fp16"),
        "onnxruntime_graph_tf32": lambda m, d: onnxruntime_graph(m, d, "tf32"),
        "onnxruntime_graph_fp16": lambda m, d: onnxruntime_graph(m, d, "fp16"),
    },
}


def batches(model: str, purpose: Any, n: int) -> list[Batch]:
    """Batches of one of the network's own inputs."""
    samples = zoo.get(model).samples(purpose, n)
    assert samples is not None, "every network of the zoo has inputs"
    return [
        {k: np.ascontiguousarray(a[i : i + 1]) for k, a in samples.arrays.items()}
        for i in range(len(samples))
    ]


def difference(run: Run, model: str, shared: Path) -> float:
    """Centred L2 of the arm's outputs against eager fp32 on the CPU, as the gate measures it.

    ValueError where they are no numbers at all.
    """
    checked = batches(model, judge.Purpose.GATE, CHECKED)
    got = _joined(run, checked)
    if not all(np.isfinite(output).all() for output in got):
        raise ValueError("its outputs are not finite")
    return closeness.centred_l2(got, truth(model, checked, shared))


def truth(model: str, checked: list[Batch], shared: Path) -> tuple[np.ndarray[Any, Any], ...]:
    """Eager fp32's outputs on the CPU, by the first arm that needs them; arms load one after another."""
    path = shared / "truth.npz"
    if not path.exists():
        half = path.with_name("half.npz")
        np.savez(half, *_joined(torch_fp32(model, "cpu"), checked))
        half.rename(path)  # an arm that is killed leaves nothing that looks whole
    with np.load(path) as kept:
        return tuple(kept.values())


def _joined(run: Run, checked: list[Batch]) -> tuple[np.ndarray[Any, Any], ...]:
    answers = [[np.array(o) for o in run(b)] for b in checked]
    return tuple(np.concatenate(column) for column in zip(*answers, strict=True))


def measure(run: Run, pool: list[Batch], seconds: float) -> dict[str, Any]:
    """Median latency of a bare loop."""
    times, i = [], 0
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times) < 5:
        start = time.perf_counter()
        run(pool[i % len(pool)])
        times.append(time.perf_counter() - start)
        i += 1
    return {"median_s": statistics.median(times), "n": len(times)}


def main() -> None:
    arm, model, device, shared, *spec = sys.argv[1:]
    out, sys.stdout = sys.stdout, sys.stderr  # engines print; the pipe carries JSON alone
    importlib.import_module("torch")  # what every arm needs: the slow part of starting, side by side
    print(json.dumps({"imported": True}), file=out, flush=True)
    if not sys.stdin.readline():  # the parent is gone
        return
    begun = time.perf_counter()
    try:
        run = ours(model, device, json.loads(spec[0])) if spec else EXPERTS[device][arm](model, device)
        pool = batches(model, judge.Purpose.BENCH, 8)
        run(pool[0])
        took = time.perf_counter() - begun
        measure(run, pool, WARM_S)
        ready = {"load_s": took, "centred_l2": difference(run, model, Path(shared))}
    except Exception as error:  # an engine that is missing or refuses the network is an arm that is not there
        traceback.print_exc()
        ready = {"absent": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(run, pool, float(line.split()[1]))), file=out, flush=True)


if __name__ == "__main__":
    main()
