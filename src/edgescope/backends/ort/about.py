"""Facts about the two ONNX Runtime backends that need no ONNX Runtime; the lines of a run.py that needs only that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.errors import UnsupportedError
from edgescope.records import Scalar, Trial

_GRAPH: Mapping[str, Scalar] = {"graph": True}


class AboutOrt(About):
    """onnxruntime."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("fp32", "int8"),
        "cuda": ("fp32", "tf32", "fp16"),
    }
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": tried("fp32 int8"),
        "cuda": (
            *tried("fp32 tf32 fp16", _GRAPH),
            *tried("fp16", {"layout": "channels_last", **_GRAPH}),
        ),
    }
    TRACER: ClassVar[str] = "engine"
    PACKAGES: ClassVar[Sequence[str]] = (
        *("onnxruntime", "onnxruntime-gpu"),
        *("onnxruntime-ep-openvino", "onnxruntime-ep-webgpu", "onnxruntime-ep-nv-tensorrt-rtx"),
    )

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the ONNX file on the trial's provider."""
        if trial.options.get("provider"):
            raise UnsupportedError("E-DEPLOY-2", "there is no run.py for a plug-in provider yet")
        return _script(trial, file)


class AboutOrtTensorrt(About):
    """ort_tensorrt."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cuda": ("fp32", "tf32", "fp16", "bf16", "int8")}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    PACKAGES: ClassVar[Sequence[str]] = ("onnxruntime", "onnxruntime-gpu", "tensorrt")

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the ONNX file on the TensorRT provider."""
        return _script(trial, file, tensorrt=True)


#: Sizes that the file leaves open are those of the measured inputs: an open one costs speed.
OPENED = """
{libraries}
{masked}
def opened(sizes):
    options = ort.SessionOptions()
    options.intra_op_num_threads = {pool}
    for axis, size in sizes.items():
        options.add_free_dimension_override_by_name(axis, size)
    return ort.InferenceSession(str(HERE / "{file}"), options, providers={providers})


session, sizes = opened({{"N": BATCH}}), {{}}
for port in session.get_inputs():
    for axis, size in zip(port.shape, (BATCH, *INPUTS[port.name])):
        if isinstance(axis, str):
            sizes.setdefault(axis, set()).add(size)
if sizes:
    session = opened({{"N": BATCH}} | {{axis: min(found) for axis, found in sizes.items() if len(found) == 1}})
{took}
"""

PLAIN = """

def run(batch):
    return session.run(None, batch)
"""

#: The number of CPUs that the process may use.
MASKED = "allowed = len(os.sched_getaffinity(0))  # left to itself, the runtime takes cores outside the mask, too\n"

#: The default number of threads of the measured session.
POOL = "allowed if allowed < os.cpu_count() else 0"

#: Loads the CUDA libraries that pip installed; older builds look only where the linker does.
LIBRARIES = """if hasattr(ort, "preload_dlls"):
    ort.preload_dlls()
"""

#: The runtime uses the CPU without an error if the provider cannot start.
TOOK = """if session.get_providers()[0] != "{provider}":
    sys.exit(f"ONNX Runtime took {{session.get_providers()[0]}}, not {provider}: its libraries cannot be loaded")
"""

#: A captured graph replays on fixed memory, so inputs are copied into the same place every time.
GRAPH = """
binding, held = session.io_binding(), {}


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


def _script(trial: Trial, file: str, *, tensorrt: bool = False) -> Script:
    """Return the lines for a trial of onnxruntime, or of its TensorRT provider, which leave out a CUDA graph."""
    graph = bool(trial.options.get("graph"))
    providers, threads = _providers(trial, tensorrt=tensorrt), trial.options.get("threads")
    first = providers[0][0] if isinstance(providers[0], tuple) else ""
    filled = OPENED.format(
        file=file,
        masked="" if threads else MASKED,
        pool=threads or POOL,
        providers=providers,
        libraries=LIBRARIES if first else "",
        took=TOOK.format(provider=first) if first else "",
    )
    filled += GRAPH if graph and not tensorrt else PLAIN
    left = ("graph",) if graph and tensorrt else ()
    return Script("ONNX Runtime", "import onnxruntime as ort", filled, left)


def _providers(trial: Trial, *, tensorrt: bool) -> list[object]:
    if trial.place.is_host:
        return ["CPUExecutionProvider"]
    cuda = {"use_tf32": str(int(trial.precision == "tf32"))}
    if trial.options.get("graph"):
        cuda["enable_cuda_graph"] = "1"
    if trial.options.get("layout") == "channels_last":
        cuda["prefer_nhwc"] = "1"
    if tensorrt:
        half, whole = int(trial.precision == "fp16"), int(trial.precision == "int8")
        first = {"trt_fp16_enable": str(half), "trt_int8_enable": str(whole)}
        return [("TensorrtExecutionProvider", first), ("CUDAExecutionProvider", cuda)]
    return [("CUDAExecutionProvider", cuda)]
