"""The ten lines that run a variant with its engine alone: what `run.py` beside a deployed model is made of.

Each backend's lines end in a function `run(batch)`, of arrays by input name to a list of arrays, that does what the
backend's session did when it was measured. `{...}` are filled from the trial.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgescope.errors import UnsupportedError
from edgescope.records import Trial

HEAD = '''"""{model}, {label}: runs with numpy and {engine} alone. How it was made, measured and checked: card.md.

python run.py                          answers sample.npz and compares with fp32
python run.py INPUTS.npz OUTPUTS.npz   arrays by input name; rows a multiple of the batch {batch}

Both end with the median time of up to 30 more calls on the first batch.
"""

{system}import sys
import time
from pathlib import Path

import numpy as np
{imports}

HERE, BATCH, INPUTS = Path(__file__).parent, {batch}, {inputs}
'''

TAIL = """

def seconds(batch, calls=30, most=3.0):
    taken = []
    while len(taken) < calls and sum(taken) < most:
        start = time.perf_counter()
        run(batch)
        taken.append(time.perf_counter() - start)
    return taken


if __name__ == "__main__":
    given = dict(np.load(sys.argv[1] if len(sys.argv) > 2 else HERE / "sample.npz"))
    batches = [{n: given[n][i : i + BATCH] for n in INPUTS} for i in range(0, len(given[INPUTS[0]]), BATCH)]
    parts = [[np.array(a) for a in run(batch)] for batch in batches]
    outputs = [np.concatenate(column) for column in zip(*parts)]
    if len(sys.argv) > 2:
        np.savez(sys.argv[2], **{f"output_{i}": a for i, a in enumerate(outputs)})
    else:
        for i, a in enumerate(outputs):
            print(f"output {i} {a.shape}: differs from fp32 by at most {np.abs(a - given[f'fp32_{i}']).max():.3g}")
    taken = seconds(batches[0])
    print(f"median of {len(taken)} calls: {sorted(taken)[len(taken) // 2]:.6g} s")
"""

ONNXRUNTIME = """
{libraries}options = ort.SessionOptions()
{masked}options.intra_op_num_threads = {pool}
options.add_free_dimension_override_by_name("N", BATCH)
session = ort.InferenceSession(str(HERE / "{file}"), options, providers={providers})
{took}


def run(batch):
    return session.run(None, batch)
"""

#: How many threads the measured session took where it was not told.
MASKED = "allowed = len(os.sched_getaffinity(0))  # left to itself, the runtime takes cores outside the mask, too\n"
POOL = "allowed if allowed < os.cpu_count() else 0"

#: Loads the CUDA libraries that pip installed; older builds look only where the linker does.
LIBRARIES = """if hasattr(ort, "preload_dlls"):
    ort.preload_dlls()
"""

#: The runtime takes the CPU without an error where the provider cannot start.
TOOK = """if session.get_providers()[0] != "{provider}":
    sys.exit(f"ONNX Runtime took {{session.get_providers()[0]}}, not {provider}: its libraries cannot be loaded")
"""

#: A captured graph replays on fixed memory, so inputs are copied into the same place every time.
ONNXRUNTIME_GRAPH = """
{libraries}options = ort.SessionOptions()
{masked}options.intra_op_num_threads = {pool}
options.add_free_dimension_override_by_name("N", BATCH)
session = ort.InferenceSession(str(HERE / "{file}"), options, providers={providers})
{took}
binding, held = session.io_binding(), {{}}


def run(batch):
    for name in INPUTS:
        if name not in held:
            held[name] = ort.OrtValue.ortvalue_from_numpy(batch[name], "cuda", 0)
            binding.bind_ortvalue_input(name, held[name])
            if len(held) == len(INPUTS):
                for output in session.get_outputs():
                    shape = [BATCH, *output.shape[1:]]
                    kind = np.float16 if "float16" in output.type else np.float32
                    value = ort.OrtValue.ortvalue_from_shape_and_type(shape, kind, "cuda", 0)
                    binding.bind_ortvalue_output(output.name, value)
        held[name].update_inplace(np.ascontiguousarray(batch[name]))
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
"""

OPENVINO = """
core = ov.Core()
graph = core.read_model(HERE / "{file}")
graph.reshape({{port.any_name: [BATCH, *port.partial_shape[1:]] for port in graph.inputs}})
settings = {settings}
request = core.compile_model(graph, "CPU", settings).create_infer_request()


def run(batch):
    return list(request.infer(batch, share_inputs=True).values())
"""

TORCH_MODULE = """
{setup}module = torch.export.load(HERE / "{file}").module().to("{device}")
{laid}{compiled}

def forward(tensors):
    outputs = module(*({given} if t.is_floating_point() else t for t in tensors))
    outputs = list(outputs.values()) if isinstance(outputs, dict) else outputs
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [o.float() if o.is_floating_point() else o for o in outputs]

"""

TORCH = (
    TORCH_MODULE
    + """
def run(batch):
    with torch.inference_mode():
        outputs = forward([torch.from_numpy(batch[name]).to("{device}") for name in INPUTS])
        return [o.cpu().numpy() for o in outputs]
"""
)

#: One CUDA graph of the whole call, copies included, between fixed buffers; the first call captures it.
TORCH_GRAPH = (
    TORCH_MODULE
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

LITERT = """
interpreter = Interpreter(str(HERE / "{file}"), num_threads={threads} or len(os.sched_getaffinity(0)))
interpreter.allocate_tensors()
slots = [d["index"] for d in interpreter.get_input_details()]


def run(batch):
    for slot, name in zip(slots, INPUTS):
        interpreter.set_tensor(slot, batch[name])
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
"""

TENSORRT = """
runner = TrtRunner(EngineFromBytes((HERE / "{file}").read_bytes()))
runner.activate()


def run(batch):
    return list(runner.infer(dict(batch)).values())
"""

#: backend -> (lines, imports, the engine's name).
LINES: Mapping[str, tuple[str, str, str]] = {
    "onnxruntime": (ONNXRUNTIME, "import onnxruntime as ort", "ONNX Runtime"),
    "ort_tensorrt": (ONNXRUNTIME, "import onnxruntime as ort", "ONNX Runtime"),
    "openvino": (OPENVINO, "import openvino as ov", "OpenVINO"),
    "torch_eager": (TORCH, "import torch", "PyTorch"),
    "torch_compile": (
        TORCH,
        "import torch\nimport torch._inductor.config",
        "PyTorch",
    ),
    "torch_tensorrt": (TORCH, "import torch\nimport torch_tensorrt", "PyTorch with Torch-TensorRT"),
    "litert": (LITERT, "from ai_edge_litert.interpreter import Interpreter", "LiteRT"),
    "tensorrt": (
        TENSORRT,
        "from polygraphy.backend.trt import EngineFromBytes, TrtRunner",
        "TensorRT (through polygraphy)",
    ),
    "trtexec": (
        TENSORRT,
        "from polygraphy.backend.trt import EngineFromBytes, TrtRunner",
        "TensorRT (through polygraphy)",
    ),
}
DTYPES = {"fp32": "torch.float32", "tf32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
#: The lines that replay a captured graph; of other backends run.py does without.
GRAPHS = {"onnxruntime": ONNXRUNTIME_GRAPH, "torch_eager": TORCH_GRAPH, "torch_compile": TORCH_GRAPH}


def script(trial: Trial, file: str, inputs: tuple[str, ...]) -> str:
    """Return the text of run.py for what a trial ran; UnsupportedError where there are no lines for its backend."""
    if trial.backend not in LINES:
        raise UnsupportedError("E-DEPLOY-2", f"there is no run.py for {trial.backend} yet")
    lines, imports, engine = LINES[trial.backend]
    if trial.options.get("graph"):
        lines = GRAPHS.get(trial.backend, lines)
    body = lines.format(file=file, device=trial.device, **_filled(trial))
    head = HEAD.format(
        model=trial.model.partition("#")[0],
        label=trial.label,
        engine=engine,
        system="import os\n" if "os.sched_getaffinity" in body else "",
        imports=imports,
        batch=trial.batch,
        inputs=inputs,
    )
    return head + body + TAIL


def left_out(trial: Trial) -> tuple[str, ...]:
    """Return the options of a trial that run.py does without: same answers, other speed."""
    return ("graph",) if trial.options.get("graph") and trial.backend not in GRAPHS else ()


def _filled(trial: Trial) -> dict[str, object]:
    last = trial.options.get("layout") == "channels_last"
    dtype = DTYPES.get(trial.precision, "torch.float32")
    compiled = trial.backend == "torch_compile"
    setup = ""
    if trial.device == "cuda" and trial.backend.startswith("torch"):
        tf32 = trial.precision == "tf32"
        setup = (
            "torch.backends.cudnn.benchmark = True\n"
            f"torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {tf32}\n"
        )
    threads = trial.options.get("threads")
    if trial.backend.startswith("torch") and (threads or trial.device == "cuda"):
        setup += f"torch.set_num_threads({threads or 1})\n"  # on cuda as when measured: the host only copies
    if compiled:
        setup += "torch._inductor.config.freezing = True\n"
    tune = ', mode="max-autotune-no-cudagraphs"' if trial.options.get("tune") == "max-autotune" else ""
    providers = _providers(trial)
    first = providers[0][0] if isinstance(providers[0], tuple) else ""
    return {
        "threads": threads or 0,
        "masked": "" if threads else MASKED,
        "pool": threads or POOL,
        "providers": providers,
        "libraries": LIBRARIES if first else "",
        "took": TOOK.format(provider=first) if first else "",
        "settings": _settings(trial),
        "setup": setup,
        "dtype": dtype,
        "laid": LAID if last else "",
        "given": f"laid(t.to({dtype}))" if last else f"t.to({dtype})",
        "compiled": f"module = torch.compile(module, dynamic=False{tune})\n" if compiled else "",
    }


def _settings(trial: Trial) -> dict[str, str]:
    settings = {
        "INFERENCE_PRECISION_HINT": HINTS.get(trial.precision, "f32"),
        "NUM_STREAMS": str(trial.options.get("streams", 1)),
    }
    if "threads" in trial.options:
        settings["INFERENCE_NUM_THREADS"] = str(trial.options["threads"])
    return settings


def _providers(trial: Trial) -> list[object]:
    if trial.device == "cpu":
        return ["CPUExecutionProvider"]
    cuda = {"use_tf32": str(int(trial.precision == "tf32"))}
    if trial.options.get("graph"):
        cuda["enable_cuda_graph"] = "1"
    if trial.options.get("layout") == "channels_last":
        cuda["prefer_nhwc"] = "1"
    if trial.backend == "ort_tensorrt":
        half, whole = int(trial.precision == "fp16"), int(trial.precision == "int8")
        first = {"trt_fp16_enable": str(half), "trt_int8_enable": str(whole)}
        return [("TensorrtExecutionProvider", first), ("CUDAExecutionProvider", cuda)]
    return [("CUDAExecutionProvider", cuda)]
