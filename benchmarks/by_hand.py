"""Loops that somebody would write by hand around an engine, one a process: for expert.py and own_models.py.

python benchmarks/by_hand.py file network ARM MODEL DEVICE SHARED [SPEC]
python benchmarks/by_hand.py file FOLDER ARM
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers_turn import mean_s

from edgescope.models import zoo
from edgescope.verify import judge, measures

Batch = dict[str, np.ndarray[Any, Any]]
NetworkRun = Callable[[Batch], Sequence[np.ndarray[Any, Any]]]

NETWORK_WARM_S = 2.0
EXPORTS = Path(tempfile.gettempdir()) / "edgescope-expert-onnx"
CHECKED = 16
"""Inputs on which an arm's outputs are held against eager fp32."""


def eager(model: str, device: str) -> Any:
    """The network in eval mode on the device, and torch."""
    import torch

    torch.backends.cudnn.benchmark = True
    return torch, zoo.get(model).module().eval().to(device)


def ours(model: str, device: str, spec: dict[str, Any]) -> NetworkRun:
    """The pick or the baseline, through the session that edgescope measures."""
    from edgescope import cache, registry
    from edgescope.backends.base import Spec

    backend = registry.load(registry.BACKENDS, spec["backend"], "backend")()
    asked = Spec(precision=spec["precision"], options=spec["options"], device=device)
    session = backend.load(backend.prepare(zoo.get(model), asked, cache.folder("artifacts")))
    run: NetworkRun = session
    return run


def torch_fp32(model: str, device: str) -> NetworkRun:
    """Eager fp32: the reference of the outputs, not an expert's choice."""
    torch, net = eager(model, device)
    return _torch_loop(torch, net, device, torch.float32)


def compiled(model: str, device: str, precision: str) -> NetworkRun:
    """torch.compile max-autotune, weights and inputs channels last; of clips the faster of both layouts."""
    import torch

    if len(zoo.get(model).inputs[0].shape) == 3:
        return _compiled(model, device, precision, torch.channels_last)
    layouts = (torch.contiguous_format, torch.channels_last_3d)  # which is faster differs between devices
    pool = batches(model, judge.Purpose.BENCH, 8)
    return faster([_compiled(model, device, precision, layout) for layout in layouts], pool)


def faster(runs: Sequence[NetworkRun], pool: list[Batch], seconds: float = NETWORK_WARM_S) -> NetworkRun:
    """The run with the least median, each warmed up first."""
    for run in runs:
        measure(run, pool, seconds)
    medians = [measure(run, pool, seconds)["median_s"] for run in runs]
    return runs[medians.index(min(medians))]


def _compiled(model: str, device: str, precision: str, layout: Any) -> NetworkRun:
    torch, net = eager(model, device)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    net = net.to(dtype)
    if layout is not torch.contiguous_format:
        net = net.to(memory_format=layout)
    return _torch_loop(torch, torch.compile(net, mode="max-autotune"), device, dtype, layout)


def _torch_loop(torch: Any, net: Any, device: str, dtype: Any, layout: Any = None) -> NetworkRun:
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


def openvino_latency(model: str, device: str, precision: str) -> NetworkRun:
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


def onnxruntime_cpu(model: str, device: str) -> NetworkRun:
    """ONNX Runtime's CPU provider as it comes."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(onnx_of(model, half=False)), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: next(iter(batch.values()))})


def onnxruntime_graph(model: str, device: str, precision: str) -> NetworkRun:
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


EXPERTS: dict[str, dict[str, Callable[[str, str], NetworkRun]]] = {
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


def difference(run: NetworkRun, model: str, shared: Path) -> float:
    """Centred L2 of the arm's outputs against eager fp32 on the CPU, as the gate measures it.

    ValueError where they are no numbers at all.
    """
    checked = batches(model, judge.Purpose.GATE, CHECKED)
    got = _joined(run, checked)
    if not all(np.isfinite(output).all() for output in got):
        raise ValueError("its outputs are not finite")
    return measures.centred_l2(got, truth(model, checked, shared))


def truth(model: str, checked: list[Batch], shared: Path) -> tuple[np.ndarray[Any, Any], ...]:
    """Eager fp32's outputs on the CPU, by the first arm that needs them; arms load one after another."""
    path = shared / "truth.npz"
    if not path.exists():
        half = path.with_name("half.npz")
        np.savez(half, *_joined(torch_fp32(model, "cpu"), checked))
        half.rename(path)  # an arm that is killed leaves nothing that looks whole
    with np.load(path) as kept:
        return tuple(kept.values())


def _joined(run: NetworkRun, checked: list[Batch]) -> tuple[np.ndarray[Any, Any], ...]:
    answers = [[np.array(o) for o in run(b)] for b in checked]
    return tuple(np.concatenate(column) for column in zip(*answers, strict=True))


def measure(run: NetworkRun, pool: list[Batch], seconds: float) -> dict[str, Any]:
    """Median latency of a bare loop."""
    times, i = [], 0
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times) < 5:
        start = time.perf_counter()
        run(pool[i % len(pool)])
        times.append(time.perf_counter() - start)
        i += 1
    return {"median_s": statistics.median(times), "n": len(times)}


def network() -> None:
    """The arms of expert.py: loops an expert would write by hand, and edgescope's pick. One process, one arm.

    Each arm is a function of (model name, device) that returns a callable of one batch: host arrays in, host arrays
    out, the answer complete when it returns. None of the experts' uses edgescope's sessions or its exporter; the
    network, its weights and the inputs are the same. The arm says when it has its libraries; the parent writes
    `load`, then `go SECONDS` as often as it likes, and the arm answers with how near its outputs are, then with the
    median of its latencies.

        python benchmarks/by_hand.py file network ARM MODEL DEVICE SHARED [SPEC]

    started by expert.py; SHARED: a folder of the arms of one comparison, SPEC: one of edgescope's own.
    """
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
        measure(run, pool, NETWORK_WARM_S)
        ready = {"load_s": took, "centred_l2": difference(run, model, Path(shared))}
    except Exception as error:  # an engine that is missing or refuses the network is an arm that is not there
        traceback.print_exc()
        ready = {"absent": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(run, pool, float(line.split()[1]))), file=out, flush=True)


FileRun = Callable[[Mapping[str, Any]], Sequence[Any]]
SCREEN_S, TURN_S, FILE_WARM_S = 0.5, 0.1, 0.5
BLOCKS, TRIED, JUDGED = 10, 2, 64
FEWEST_RIGHT, MOST_APART, FEWEST_RANKS = 0.80, 0.10, 0.90
"""What the gate asks of int8: of classes, or of the outputs where there are none (edgescope/verify/judge.py)."""
LIMIT_S = 120.0
"""Seconds that an arm may take to be ready, or for a turn."""


def onnxruntime(file: Path, threads: int = 0) -> FileRun:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, dict(given))


def openvino(file: Path, threads: int = 0, precision: str = "") -> FileRun:
    import openvino as ov

    settings = {"PERFORMANCE_HINT": "LATENCY"} | ({"INFERENCE_NUM_THREADS": str(threads)} if threads else {})
    settings |= {"INFERENCE_PRECISION_HINT": precision} if precision else {}
    core = ov.Core()
    model = core.read_model(str(file))
    given = dict(np.load(file.parent / "gate.npz"))
    model.reshape({port: [1, *given[port.any_name].shape[1:]] for port in model.inputs})
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda given: list(request.infer(dict(given)).values())


def torch(folder: Path, *, compiled: bool) -> FileRun:
    import torch as framework

    from edgescope.bench.parts import HERE
    from edgescope.records import Trial

    net = HERE.model(Trial.from_json(json.loads((folder / "trial.json").read_text()))).module().eval()
    call = framework.compile(net) if compiled else net

    def run(given: Mapping[str, Any]) -> Sequence[Any]:
        with framework.inference_mode():
            found = call(*(framework.from_numpy(given[name]) for name in given))
        found = found.values() if isinstance(found, dict) else found
        return [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]

    return run


def pick(folder: Path) -> FileRun:
    """What `edgescope optimize --save` left."""
    spec = importlib.util.spec_from_file_location("saved_run", folder / "run.py")
    assert spec and spec.loader, f"no run.py in {folder}"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: FileRun = module.run
    return run


ARMS: dict[str, Callable[[Path], FileRun]] = {
    "torch eager": lambda f: torch(f, compiled=False),
    "torch.compile": lambda f: torch(f, compiled=True),
    "onnxruntime fp32": lambda f: onnxruntime(f / "fp32.onnx"),
    "onnxruntime fp32, 1 thread": lambda f: onnxruntime(f / "fp32.onnx", 1),
    "onnxruntime static int8": lambda f: onnxruntime(f / "static.onnx"),
    "onnxruntime static int8, 1 thread": lambda f: onnxruntime(f / "static.onnx", 1),
    "onnxruntime dynamic int8": lambda f: onnxruntime(f / "dynamic.onnx"),
    "openvino, latency hint": lambda f: openvino(f / "fp32.onnx"),
    "openvino, latency hint, 1 thread": lambda f: openvino(f / "fp32.onnx", 1),
    "openvino, latency hint, fp32": lambda f: openvino(f / "fp32.onnx", precision="f32"),
    "openvino, latency hint, fp32, 1 thread": lambda f: openvino(f / "fp32.onnx", 1, "f32"),
    "openvino of static int8": lambda f: openvino(f / "static.onnx"),
}
PICK = "pick"


def made(folder: Path, trial: Mapping[str, Any], judged_on: int, *, calibrated: bool) -> None:
    """Write what the arms need: as many inputs, the fp32 file, and the files of ONNX Runtime's own quantisers."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from edgescope.bench.parts import HERE
    from edgescope.models.base import Purpose
    from edgescope.records import Trial

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trial.json").write_text(json.dumps(trial))
    model = HERE.model(Trial.from_json(dict(trial)))
    judged = model.samples(Purpose.GATE, judged_on)
    assert judged is not None
    np.savez(folder / "gate.npz", **{name: np.asarray(a) for name, a in judged.arrays.items()})
    file = folder / "fp32.onnx"
    file.write_bytes(model.onnx(HERE.folder).read_bytes())
    if not calibrated or (inputs := model.samples(Purpose.CALIBRATION, 96)) is None:
        return

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        rows = iter(range(len(inputs)))

        def get_next(self) -> dict[str, Any] | None:
            i = next(self.rows, None)
            return None if i is None else {n: np.asarray(a[i : i + 1]) for n, a in inputs.arrays.items()}

    ready = folder / "ready.onnx"
    for name, make in (
        ("static", lambda to: q.quantize_static(str(ready), str(to), Reader(), per_channel=True)),
        ("dynamic", lambda to: q.quantize_dynamic(str(ready), str(to))),
    ):
        try:
            if not ready.exists():
                quant_pre_process(str(file), str(ready))
            make(folder / f"{name}.onnx")
        except Exception as error:  # the tool may fail on a network: its arm is absent then
            print(f"{name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)


class Side:
    """A process of one arm that takes turns."""

    def __init__(self, folder: Path, arm: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "file", str(folder.resolve()), arm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ready = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            self.process.kill()
            return {"absent": f"no answer within {LIMIT_S:g} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"absent": f"the process ended with {self.process.wait()}"}

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        return self.process.pid

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn; RuntimeError where the process died."""
        assert self.process.stdin
        with contextlib.suppress(OSError):  # it died: reading says so
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        found = self._read()
        if "absent" in found:
            raise RuntimeError(found["absent"])
        return float(found["mean_s"])

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def right(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]], classes: bool) -> dict[str, Any]:
    """Return how an arm's outputs compare with those of fp32, by class or by value, and whether they are right."""
    from edgescope.verify.measures import centred_l2, rank_agreement

    mine, fp32 = (tuple(map(np.concatenate, zip(*rows, strict=True))) for rows in (ours, theirs))
    shapes = [[output.shape for output in side] for side in (mine, fp32)]
    if shapes[0] != shapes[1]:
        return {"right": False, "why": f"outputs {shapes[0]}, fp32 {shapes[1]}"}
    if classes and fp32[0].ndim == 2:
        same = float((mine[0].argmax(1) == fp32[0].argmax(1)).mean())
        return {"agreement": same, "right": same >= FEWEST_RIGHT}
    apart, ranks = centred_l2(mine, fp32), rank_agreement(mine, fp32)
    return {"apart": apart, "ranks": ranks, "right": apart <= MOST_APART and ranks >= FEWEST_RANKS}


def screened(folder: Path, classes: bool) -> dict[str, dict[str, Any]]:
    """Return what each arm came to alone: its time and whether it is right, or why it is absent."""
    found: dict[str, dict[str, Any]] = {}
    truth = None
    for name in sorted(
        ARMS, key=lambda name: name != "onnxruntime fp32"
    ):  # its answers are what others must give
        with Side(folder, name) as side:
            row = dict(side.ready)
            if "absent" not in row:
                with np.load(row.pop("outputs"), allow_pickle=True) as kept:
                    answers = list(kept["rows"])
                truth = truth or answers
                row |= right(answers, truth, classes)
                try:
                    row["mean_s"] = side.turn(SCREEN_S)
                except RuntimeError as error:
                    row = {"absent": str(error)}
        found[name] = row
    return found


def against(saved: Path, folder: Path, arm: str, count: int) -> dict[str, Any]:
    """Return how many times faster the pick is than an arm, from fresh pairs in turns."""
    from peers import ratio, turns

    pairs = []
    for _ in range(count):
        with Side(folder, arm) as theirs, Side(saved, PICK) as ours:
            for side in (theirs, ours):
                if "absent" in side.ready:
                    return {"absent": side.ready["absent"]}
            pairs.append(turns((theirs, ours), BLOCKS, TURN_S))
    return ratio(pairs)


def compared(work: Path, name: str, found: Mapping[str, Any], saved: Path, count: int) -> dict[str, Any]:
    """Return every arm of a network, and how many times faster the pick is than the fastest right ones.

    `found` is the pick: its trial, and the measures that its gate judged it by.
    """
    trial, classes = found["trial"], bool({"accuracy", "agreement"} & set(found["judged"]))
    judged_on = min(JUDGED, max(row["n"] for row in found["judged"].values()))
    folder, before = work / "by_hand" / name, Path.cwd()
    os.chdir(work)
    try:
        made(folder, trial, judged_on, calibrated=bool(trial.get("data")))
        arms = screened(folder, classes)
        able = sorted((row["mean_s"], arm) for arm, row in arms.items() if row.get("right"))[:TRIED]
        ratios = {}
        for _, arm in able:
            try:
                ratios[arm] = against(saved, folder, arm, count)
            except RuntimeError as error:
                ratios[arm] = {"absent": str(error)}
    finally:
        os.chdir(before)
    least = min((r["value"] for r in ratios.values() if "value" in r), default=None)
    return {"arms": arms, "pick_over_by_hand": ratios, "least": least}


def file() -> None:
    """What somebody would do by hand with the engines' own tools, and the best of it in turns with a pick.

    The arms: PyTorch eager and torch.compile; ONNX Runtime as it comes, on one thread, and with its own quantisers
    (static on the calibration inputs, and dynamic); OpenVINO as `benchmark_app -hint latency` sets it (bf16 where the
    processor has it), the same with fp32 asked for, both on one thread, and the quantised file in it. int8 is made
    where inputs of the user's are there to set ranges. Each arm is a process with a plain loop around the engine's
    call. All are first run alone, then the TRIED fastest whose answers are right take turns with the pick's run.py,
    ABBA, in pairs of fresh processes (stats/alternation.py). Right is looser than the gate of a pick: the fp32
    network's class for 80 % of the inputs (no interval), or, where the outputs are no classes, or those of an
    untrained network, outputs that differ by at most 10 %.

    Used by own_models.py. `python benchmarks/by_hand.py file FOLDER ARM` is one arm, or `pick FOLDER`.
    """
    folder, arm = Path(sys.argv[1]), sys.argv[2]
    out, sys.stdout = sys.stdout, sys.stderr  # engines print; the pipe carries JSON alone
    try:
        run = pick(folder) if arm == PICK else ARMS[arm](folder)
        inputs = dict(np.load(folder / ("sample.npz" if arm == PICK else "gate.npz")))
        names = [name for name in inputs if not name.startswith("fp32_")]
        pool = [
            {n: np.ascontiguousarray(inputs[n][i : i + 1]) for n in names}
            for i in range(len(inputs[names[0]]))
        ]
        ready: dict[str, Any] = {"inputs": len(pool)}
        if arm != PICK:
            rows = np.empty(len(pool), dtype=object)
            for i, given in enumerate(pool):
                rows[i] = [np.array(output) for output in run(given)]
            ready["outputs"] = str(folder / f"{arm}.npz")
            np.savez(ready["outputs"], rows=rows)
        mean_s(run, pool[:8], FILE_WARM_S)
    except Exception as error:  # engines raise anything: the arm is absent then
        traceback.print_exc()
        ready = {"absent": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps({"mean_s": mean_s(run, pool[:8], float(line))}), file=out, flush=True)


if __name__ == "__main__":
    {"network": network, "file": file}[sys.argv.pop(1)]()
