"""Every family's members as data: name -> the path of its class and the command that makes it importable.

Nothing heavy is imported until a name is loaded, so `edgescope --help` stays fast and a missing engine
costs one sentence. Adding a member is one file, one line here and one row in the test matrix of its family; an
installed package adds one by an entry point (`edgescope docs add-a-backend`, `add-a-place`, `add-a-device`).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edgescope.errors import UnavailableError, UsageError, closest_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any

    from edgescope.backends.base import About
    from edgescope.records.trial import Place


@dataclass(frozen=True)
class Entry:
    """Where a member lives (`module:attribute`; of a verb its module or class) and what makes it importable."""

    target: str
    fix: str = ""
    summary: str = ""
    devices: tuple[str, ...] = ("cpu",)
    """For a backend: the places (PLACES) it runs on, the usual one first."""
    engine: str = ""
    """For a backend: the engine's name in Place.names, where a place that a package adds may say what it is called."""
    about: str = ""
    """For a backend: the path of its class data, which can be read without its engine."""
    open_loop: bool = False
    """For a scenario: queries fall due whether or not earlier ones are done, so they may wait in a queue."""
    keeps_in_flight: bool = False
    """For a scenario: in_flight queries are always under way; when one ends, the next starts."""
    rated: bool = False
    """For a scenario: it offers queries at --rate."""
    timed: bool = True
    """For a scenario: a query has a latency; False if all arrive at once and it would be a place in the queue."""
    idles: bool = False
    """For a scenario: it waits before queries, so throughput means nothing."""
    one_sample: bool = False
    """For a scenario: a query is one sample, so the batch is 1."""
    one_in_flight: bool = False
    """For a scenario: one query is in flight at a time."""
    self_driven: bool = False
    """For a scenario: an engine that owns its loop (trtexec) can offer it."""
    pauses: bool = False
    """For a scenario: it can stop after any query and go on later, so two variants can take turns."""
    alone: bool = False
    """For a scenario: it ends by itself, so several processes cannot agree on a start and a stop."""
    made_of: str = ""
    """For a workload: what a unit is made of: `phases` of a query, `parts` of a step, `stages` of a pipeline."""
    driver: str = "edgescope"
    """For a scenario or a backend: `external` if another program makes the load."""
    functions: tuple[str, ...] = ()
    """For a verb: what it adds to Python, each a `module:name` that is then `edgescope.name`."""
    stamps: bool = False
    """For a workload: a pipeline of frames, which may carry a camera's time stamp, with a queue that may drop them."""


@dataclass(frozen=True)
class Broken:
    """A plug-in's entry point that cannot be used, and why."""

    group: str
    name: str
    package: str
    why: str


class Family(Mapping[str, Entry]):
    """The built-in members of one family, then those that installed packages add to the entry-point group.

    Looking up a built-in name does not read the installed packages. `check` is for a family whose members are all used
    at once: it is called with a plug-in's entry, and an entry that fails is left out.
    """

    def __init__(
        self, group: str, built_in: Mapping[str, Entry], check: Callable[[Entry], object] | None = None
    ) -> None:
        self.group, self._built_in, self._check = group, built_in, check

    def __getitem__(self, name: str) -> Entry:
        return self._built_in[name] if name in self._built_in else self.plugins[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self.plugins

    def __len__(self) -> int:
        return len(self._built_in) + len(self.plugins)

    @property
    def plugins(self) -> Mapping[str, Entry]:
        """Return the members that installed packages add."""
        return self._read[0]

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Return the entry points of this group that cannot be used."""
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[Mapping[str, Entry], tuple[Broken, ...]]:
        found: dict[str, Entry] = {}
        broken: list[Broken] = []
        for point in _entry_points(self.group):
            try:
                found[point.name] = self._checked(point, found)
            except Exception as error:  # a plug-in's module may raise anything when it is imported
                why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                package = point.dist.name if point.dist else "an unknown package"
                broken.append(Broken(self.group, point.name, package, why))
        return found, tuple(broken)

    def _checked(self, point: EntryPoint, found: Mapping[str, Entry]) -> Entry:
        """Return a plug-in's entry; ValueError, or whatever its module raises, if it cannot be used."""
        if point.name in self._built_in:
            raise ValueError(f"{point.name} is the name of a built-in member")
        if point.name in found:
            raise ValueError(f"another package has added {point.name}")
        made = point.load()
        if not isinstance(made, Entry):
            raise ValueError(f"{point.value} is a {type(made).__name__}, not an edgescope.registry.Entry")
        if self._check:
            self._check(made)
        return made


def version(package: str) -> str | None:
    """Return the version of an installed package without importing it; None if it is not installed.

    importlib.metadata would load its reader of e-mails, which takes longer and more memory than all else that a command
    starts with. It is asked where packages lie in archives.
    """
    folders = tuple((folder, os.stat(folder).st_mtime_ns) for folder in _folders())
    place = _installed(folders).get(_plain(package))
    for file in (
        (f"{place}/METADATA", f"{place}/PKG-INFO", place) if place else ()
    ):  # distutils wrote one file, no folder
        try:
            with open(file, encoding="utf-8", errors="replace") as lines:
                return next((line[8:].strip() for line in lines if line.startswith("Version:")), None)
        except OSError:
            continue
    return None if place or not any(map(os.path.isfile, sys.path)) else _packed(package)


def _packed(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.lru_cache(1)
def _installed(folders: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    """Return where the installation of each package wrote about it; the first one of a name on the path counts."""
    found: dict[str, str] = {}
    for folder, _ in folders:
        for name in os.listdir(folder):
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                found.setdefault(_plain(stem.partition("-")[0]), f"{folder}/{name}")
    return found


def _plain(package: str) -> str:
    """Return a package's name as names are compared (packaging.python.org, name normalization)."""
    return "-".join(filter(None, package.lower().replace("_", "-").replace(".", "-").split("-")))


def _entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, sorted by name, without importing them."""
    return sorted((point for point in _of_plugins() if point.group == group), key=lambda point: point.name)


@functools.cache
def _of_plugins() -> tuple[EntryPoint, ...]:
    """Return every entry point of an installed package that names a group of edgescope.

    importlib.metadata reads the names of all packages for this, which takes longer than all else that a command starts
    with: it is imported where a file of entry points has such a group.
    """
    mine = [f"{folder}/{name}" for folder in _folders() for name in os.listdir(folder)]
    mine = [place for place in mine if place.endswith("-info") and _is_mine(f"{place}/entry_points.txt")]
    if not mine:
        return ()
    from importlib.metadata import PathDistribution
    from pathlib import Path

    seen = {
        package.name: package for package in map(PathDistribution, map(Path, reversed(mine)))
    }  # the first on the path counts
    return tuple(point for package in seen.values() for point in package.entry_points)


def _folders() -> Iterator[str]:
    """Yield the folders that modules are imported from."""
    return filter(os.path.isdir, (folder or os.curdir for folder in sys.path))


def _is_mine(file: str) -> bool:
    """Return whether a file of entry points is there and names a group of edgescope."""
    try:
        with open(file, encoding="utf-8", errors="replace") as points:
            return "[edgescope." in points.read()
    except OSError:
        return False


def _placed(found: Entry) -> None:
    """Raise ValueError unless a plug-in's entry names a Place."""
    kind = need("edgescope.records.trial:Place", "a place", "")
    if not isinstance(made := need(found.target, found.target, found.fix), kind):
        raise ValueError(f"{found.target} is a {type(made).__name__}, not an edgescope.records.trial.Place")


def _commands(found: Entry) -> Any:
    """Import and return the module or class of a verb; AttributeError if it lacks `configure` or `run`."""
    member = _member(found.target)
    _ = member.configure, member.run
    return member


PLACES = Family(
    "edgescope.places",
    {
        "cpu": Entry("edgescope.records.trial:CPU", summary="the host's cores"),
        "cuda": Entry("edgescope.records.trial:CUDA", summary="an NVIDIA GPU, a Jetson's too"),
        "intel_gpu": Entry("edgescope.records.trial:INTEL_GPU", summary="an Intel GPU, through OpenVINO"),
        "intel_npu": Entry("edgescope.records.trial:INTEL_NPU", summary="an Intel NPU, through OpenVINO"),
        "server": Entry("edgescope.wings.generation.about:SERVER", summary="wherever a server computes"),
    },
    check=_placed,
)
"""Where a trial's heavy operators compute: what `device` may be."""
EITHER = ("cpu", "cuda")
GENERATION = "edgescope.wings.generation"
GENAI = (
    "pip install 'edgescope[generate]'",
    "OpenVINO GenAI: language models from .gguf files",
    ("cpu", "intel_gpu", "intel_npu"),
)
DECODER = (
    "pip install 'edgescope[torch,generate]'",
    "language models from .gguf files in plain PyTorch",
    EITHER,
)
LLAMA_BENCH = ("build llama.cpp: llama-bench in PATH", "llama.cpp's benchmark, which owns its loop", EITHER)
#: Extra of pyproject.toml -> the modules that it installs.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch", "torchvision", "timm", "safetensors", "cloudpickle", "PIL"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("openvino",),
    "litert": ("ai_edge_litert",),
    "video": ("av",),
    "nvdec": ("PyNvVideoCodec",),
    "datasets": ("pyarrow",),
    "generate": ("openvino_genai", "gguf"),
    "rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
REPLAYED = "replayed"
"""The name of a recorded board among the devices and in a machine's facts."""
BOARD = "EDGESCOPE_BOARD"
"""Environment variable: the recording that stands in for this machine, a file or a shipped one's name."""

ON = "EDGESCOPE_ON"
"""Environment variable: the address of the board that a trial's process drives; set by `--on`."""

#: Modules that run as their own programs (`python -m`); their callers know only these names.
TRIAL_PROGRAM = "edgescope.bench.child"
WORKER_PROGRAM = "edgescope.bench.worker"
CEILINGS_PROGRAM = "edgescope.backends.pytorch.ceilings"
#: The function that runs a trial on a board which this machine drives: (verb, trial, address, folder).
ON_BOARD = "edgescope.wings.remote.run:serve"
#: The function that connects to a board and returns its facts, or why one of some trials cannot run there: (address,
#: trials).
CHECK_BOARD = "edgescope.wings.remote.run:check"
#: The function that refuses trials which no board can run over ssh: (trials).
REFUSE_ON_BOARD = "edgescope.wings.remote.run:refuse"
#: The class that runs trials of a sweep on the board which this machine drives (runner.run.Runner).
RUNNER_ON_BOARD = "edgescope.wings.remote.run:OneByOne"
#: The function that returns the rows of `edgescope backends` for a board: (address).
BOARD_ENGINES = "edgescope.wings.remote.run:engines"
#: The function that reads the layers in files that trtexec wrote: (files, names of modules).
LAYER_FILES = "edgescope.wings.tensorrt.trtexec.exports:read"
#: The function that returns the settings which keep a trial on some of these CPUs: (CPUs).
SOME_CPUS = "edgescope.modes.cpu:some"
#: First word of a change -> the module that knows whether it is in effect (modes.privileged.Check).
CHECKS: Mapping[str, str] = {"nvpmodel": "edgescope.wings.jetson.modes"}

OPENAI = "any server with OpenAI's interface, by its URL"
BACKENDS = Family(
    "edgescope.backends",
    {
        "null": Entry("edgescope.backends.base:NullBackend", "", "does nothing, in known time", EITHER),
        "torch_eager": Entry(
            "edgescope.backends.pytorch.backend:TorchEager",
            "pip install 'edgescope[torch]'",
            "PyTorch as it is",
            EITHER,
            engine="torch",
            about="edgescope.backends.pytorch.about:AboutEager",
        ),
        "torch_compile": Entry(
            "edgescope.backends.pytorch.backend:TorchCompile",
            "pip install 'edgescope[torch]' (and a C++ compiler, e.g. apt install g++)",
            "torch.compile with inductor, weights frozen",
            EITHER,
            engine="torch",
            about="edgescope.backends.pytorch.about:AboutCompile",
        ),
        "onnxruntime": Entry(
            "edgescope.backends.ort.backend:OnnxRuntime",
            "pip install 'edgescope[onnx]'",
            "ONNX Runtime, CPU and CUDA providers, and those of packages",
            (*EITHER, "intel_gpu", "intel_npu"),
            engine="onnxruntime",
            about="edgescope.backends.ort.about:AboutOrt",
        ),
        "openvino": Entry(
            "edgescope.wings.openvino.backend:OpenVino",
            "pip install 'edgescope[openvino]'",
            "OpenVINO, its CPU, GPU and NPU plugins",
            ("cpu", "intel_gpu", "intel_npu"),
            engine="openvino",
            about="edgescope.wings.openvino:AboutOpenVino",
        ),
        "tensorrt": Entry(
            "edgescope.wings.tensorrt.backend:TensorRt",
            "sudo apt install python3-libnvinfer (JetPack), or pip install tensorrt; pip install 'edgescope[rtx]' "
            "(for RTX cards, under NVIDIA's own licence)",
            "TensorRT in process, 8.5 to 11 and TensorRT-RTX",
            ("cuda",),
            about="edgescope.wings.tensorrt.about:AboutTensorRt",
        ),
        "trtexec": Entry(
            "edgescope.wings.tensorrt.trtexec.backend:TrtExec",
            "apt install libnvinfer-bin (JetPack has it)",
            "TensorRT through its trtexec program, which times itself",
            ("cuda",),
            about="edgescope.wings.tensorrt.about:AboutTensorRt",
            driver="external",
        ),
        "ort_tensorrt": Entry(
            "edgescope.wings.tensorrt.ort_provider:OrtTensorrt",
            "pip install onnxruntime-gpu in place of onnxruntime, and TensorRT (pip install tensorrt, or JetPack's)",
            "ONNX Runtime, TensorRT provider",
            ("cuda",),
            about="edgescope.backends.ort.about:AboutOrtTensorrt",
        ),
        "torch_tensorrt": Entry(
            "edgescope.wings.tensorrt.torch_engine:TorchTensorrt",
            "pip install torch-tensorrt, of the release that matches torch",
            "Torch-TensorRT, ahead of time",
            ("cuda",),
            about="edgescope.backends.pytorch.about:AboutTensorrt",
        ),
        "litert": Entry(
            "edgescope.wings.litert.backend:LiteRt",
            "pip install 'edgescope[litert]'",
            "LiteRT (TensorFlow Lite) with XNNPACK",
            about="edgescope.wings.litert:AboutLiteRt",
        ),
        **{
            name: Entry(
                f"{GENERATION}.{name}:{kind}",
                fix,
                summary,
                devices,
                engine,
                f"{GENERATION}.about:About{about}",
                driver=driver,
            )
            for name, kind, (fix, summary, devices), engine, about, driver in (
                ("openai", "OpenAi", ("", OPENAI, ("server", *EITHER)), "", "OpenAi", "edgescope"),
                ("openvino_genai", "OpenVinoGenAi", GENAI, "openvino", "GenAi", "edgescope"),
                ("torch_decoder", "TorchDecoder", DECODER, "torch", "Decoder", "edgescope"),
                ("llama_bench", "LlamaBench", LLAMA_BENCH, "", "LlamaBench", "external"),
            )
        },
    },
    check=lambda found: found.about and need(found.about, found.about, found.fix),
)

DEVICES = Family(
    "edgescope.devices",
    {
        "cpu": Entry("edgescope.devices.cpu.device:CpuDevice", summary="any Linux CPU, from /proc and sysfs"),
        "nvidia": Entry(
            "edgescope.wings.nvidia:NvidiaDevice",
            "install the NVIDIA driver",
            "NVIDIA GPUs through NVML",
        ),
        "jetson": Entry(
            "edgescope.wings.jetson.device:JetsonDevice",
            summary="NVIDIA Jetson boards, from sysfs and procfs alone",
        ),
        "null": Entry("edgescope.devices.base:NullDevice", summary="no sensors at all"),
        "replay": Entry(
            "edgescope.devices.replay:ReplayDevice", summary="a recorded board (--board), played back"
        ),
    },
    check=lambda found: need(found.target, found.target, found.fix)(),
)

WORKLOADS = Family(
    "edgescope.workloads",
    {
        "inference": Entry(
            "edgescope.workloads.inference:Inference",
            summary="one forward pass of one batch",
            made_of="phases",
        ),
        "training": Entry(
            "edgescope.wings.training.workload:Training", summary="one step of training", made_of="parts"
        ),
        "interleaved": Entry(
            "edgescope.wings.training.workload:Interleaved",
            summary="inference, with training in its gaps",
            made_of="phases",
        ),
        "video": Entry(
            "edgescope.wings.video.workload:Video",
            summary="video frames: decode, preprocess, infer, postprocess",
            stamps=True,
            made_of="stages",
        ),
        "generate": Entry(
            "edgescope.wings.generation.workload:Generation",
            summary="text generation: one prompt, and its answer token by token",
            made_of="phases",
        ),
        "null": Entry("edgescope.workloads.base:NullWorkload", summary="nothing, for measuring the harness"),
    },
)

TRACERS = Family(
    "edgescope.tracers",
    {
        "none": Entry("edgescope.tracing:NullTracer", summary="no profiler"),
        "cupti": Entry(
            "edgescope.wings.trace.cupti:CuptiTracer",
            "pip install cupti-python",
            "CUDA calls, kernels, copies of any engine",
            ("cuda",),
        ),
        "kineto": Entry(
            "edgescope.wings.trace.tracers:KinetoTracer",
            "pip install 'edgescope[torch]'",
            "torch.profiler: operators of PyTorch; on a GPU also every kernel of the process",
            ("cpu", "cuda"),
        ),
        "engine": Entry(
            "edgescope.wings.trace.tracers:EngineTracer",
            summary="the profile of ONNX Runtime or OpenVINO itself",
        ),
        "nsys": Entry(
            "edgescope.wings.trace.tracers:NsysTracer",
            summary="Nsight Systems, which starts the process",
            devices=("cuda",),
        ),
    },
)

LOADGEN = "pip install mlcommons-loadgen"
#: Entries of an open loop at --rate, and of a scenario that MLPerf's LoadGen drives.
_paced = functools.partial(Entry, open_loop=True, rated=True)
_loadgen = functools.partial(Entry, fix=LOADGEN, alone=True, driver="external")
SCENARIOS = Family(
    "edgescope.scenarios",
    {
        "single_stream": Entry(
            "edgescope.scenarios:SingleStream",
            summary="closed loop: next when one ends",
            keeps_in_flight=True,
            self_driven=True,
            pauses=True,
        ),
        "multi_stream": Entry(
            "edgescope.scenarios:MultiStream", summary="closed loop, in_flight x batch samples a query"
        ),
        "offline": Entry(
            "edgescope.scenarios:Offline",
            summary="everything is there at once: throughput",
            timed=False,
            self_driven=True,
            pauses=True,
        ),
        "fixed_rate": _paced("edgescope.scenarios:FixedRate", summary="open loop at --rate queries/s"),
        "server": _paced(
            "edgescope.scenarios:Server", summary="open loop, random (Poisson) arrivals at --rate"
        ),
        "burst": _paced(
            "edgescope.scenarios:Burst", summary="open loop, burst_size=8: eight queries at once"
        ),
        "trace": Entry(
            "edgescope.scenarios:Trace", summary="open loop, arrival times from a file", open_loop=True
        ),
        "idle_gap": Entry(
            "edgescope.scenarios:IdleGap",
            summary="the first query after being idle",
            idles=True,
            one_in_flight=True,
            alone=True,
        ),
        "mlperf_single_stream": _loadgen(
            "edgescope.wings.mlperf:SingleStream",
            summary="MLPerf LoadGen drives: one after another",
            one_sample=True,
            one_in_flight=True,
        ),
        "mlperf_multi_stream": _loadgen(
            "edgescope.wings.mlperf:MultiStream",
            summary="MLPerf LoadGen drives: in_flight x batch samples a query",
        ),
        "mlperf_server": _loadgen(
            "edgescope.wings.mlperf:Server",
            summary="MLPerf LoadGen drives: Poisson arrivals at --rate",
            one_sample=True,
            open_loop=True,
            rated=True,
        ),
        "mlperf_offline": _loadgen(
            "edgescope.wings.mlperf:Offline",
            summary="MLPerf LoadGen drives: everything at once",
            timed=False,
        ),
    },
)


MODELS = Family(
    "edgescope.models",
    {
        "zoo": Entry(
            "edgescope.models.image.network:ImageNetwork",
            summary="a named image network, timm:NAME or torchvision:NAME; each with @weights, too",
        ),
        "detectors": Entry(
            "edgescope.models.image.network:DetectionNetwork",
            summary="a named detector, or name@weights.pth",
        ),
        "faces": Entry(
            "edgescope.models.image.faces:FaceDetector", summary="a detector of faces with trained weights"
        ),
        "clips": Entry(
            "edgescope.wings.training.clips:ClipClassifier",
            summary="a named classifier of clips, or name@weights.pth",
        ),
        "anomaly": Entry(
            "edgescope.wings.anomaly.networks:network",
            summary="a named network of video anomaly detection, or name@weights.pth",
        ),
        "onnx": Entry("edgescope.models.user.files:OnnxFile", summary="any .onnx file"),
        "tflite": Entry("edgescope.wings.litert.tflite:TfliteFile", summary="any .tflite file"),
        "torch": Entry(
            "edgescope.models.user.networks:TorchFile",
            summary="any file of torch.export.save or torch.jit.save",
        ),
        "callable": Entry(
            "edgescope.models.user.networks:Custom",
            summary="module:callable returning (nn.Module, example inputs), or module:callable@weights",
        ),
        "live": Entry(
            "edgescope.models.user.networks:Live",
            summary="a network given in Python: edgescope.live(network, example_inputs)",
        ),
        "http": Entry("edgescope.wings.generation.endpoint:Endpoint", summary=OPENAI),
        "https": Entry("edgescope.wings.generation.endpoint:Endpoint", summary=OPENAI),
        "gguf": Entry("edgescope.wings.generation.gguf_file:GgufFile", summary="any language model's .gguf"),
        "llm": Entry("edgescope.wings.generation.gguf_file:named", summary="a language model by its name"),
        "null": Entry("edgescope.models.synthetic:NullModel", summary="nothing, for measuring the harness"),
    },
)

IMPORTERS = Family(
    "edgescope.importers",
    {
        name: Entry(f"edgescope.wings.trace.importers.{target}", summary=summary)
        for name, target, summary in (
            ("nsys", "nsys:IMPORTER", "Nsight Systems, exported to sqlite"),
            ("kineto", "kineto:IMPORTER", "torch.profiler's JSON, and edgescope's own Chrome trace"),
            ("onnxruntime", "engines:ONNXRUNTIME", "ONNX Runtime's profile"),
            ("trtexec", "engines:TRTEXEC", "trtexec --exportProfile and --exportTimes"),
            ("openvino", "engines:OPENVINO", "OpenVINO's performance counters"),
            ("summaries", "printed:SUMMARIES", "CSVs of nsys stats and of Nsight Compute"),
            ("nvprof", "nvprof:IMPORTER", "nvprof's traces, printed as CSV"),
            ("perf_sched", "printed:PERF_SCHED", "perf sched record, as text of perf script"),
        )
    },
)

DATA = Family(
    "edgescope.data",
    {
        "folder": Entry(
            "edgescope.data.opening:read_folder", summary="a folder of images, whose sub-folders are classes"
        ),
        "csv": Entry("edgescope.wings.datasets:read_csv", summary="a .csv of file,label"),
        "coco": Entry(
            "edgescope.wings.datasets:read_coco",
            summary="COCO annotations (.json) beside their images",
        ),
        "npz": Entry("edgescope.data.opening:read_npz", summary="a .npz of arrays by input name, and labels"),
        "npy": Entry("edgescope.wings.datasets:read_npy", summary="a folder of .npy files"),
        "datasets": Entry(
            "edgescope.wings.datasets:read_hugging_face",
            "pip install 'edgescope[datasets]'",
            "a folder that Hugging Face's datasets saved",
        ),
        "published": Entry(
            "edgescope.wings.training.published:read",
            summary="MNIST, CIFAR or GLD-23k in the files that their authors publish",
        ),
        "loader": Entry(
            "edgescope.data.opening:read_callable", summary="module:callable returning an iterable"
        ),
    },
)

VIDEO = "pip install 'edgescope[video]'"
SOURCES = Family(
    "edgescope.sources",
    {
        "file": Entry("edgescope.wings.video.sources.file:File", VIDEO, "a video file, each frame once"),
        "paced": Entry(
            "edgescope.wings.video.sources.simulated:paced",
            VIDEO,
            "a video file played as a camera, FILE or FILE@FPS",
        ),
        "camera": Entry(
            "edgescope.wings.video.sources.cameras:camera", VIDEO, "a camera of this machine (V4L2)"
        ),
        "rtsp": Entry(
            "edgescope.wings.video.sources.cameras:rtsp", VIDEO, "a network camera, rtsp://host/path"
        ),
        "synthetic": Entry(
            "edgescope.wings.video.sources.simulated:synthetic",
            summary="a made-up moving picture, 640x480 or 640x480@30",
        ),
        "nvdec": Entry(
            "edgescope.wings.video.sources.nvdec:Nvdec",
            "pip install 'edgescope[nvdec]'",
            "a video file decoded on an NVIDIA GPU",
        ),
        "gstreamer": Entry(
            "edgescope.wings.video.sources.gstreamer:gstreamer",
            VIDEO,
            "a GStreamer pipeline that ends in raw video",
        ),
    },
)

REINSTALL = "pip install --force-reinstall edgescope"
VERBS = Family(
    "edgescope.verbs",
    {
        "demo": Entry(
            "edgescope.wings.optimize.cli:Demo",
            summary="optimise a real classifier on photographs, in a few minutes",
        ),
        "doctor": Entry(
            "edgescope.wings.doctor.cli",
            summary="what this machine is and can measure, and what would disturb a measurement",
        ),
        "models": Entry(
            "edgescope.cli.available:Models",
            summary="list the models: task, parameters, MACs, FLOPs, trained or not",
        ),
        "modes": Entry(
            "edgescope.cli.available:Modes",
            summary="list the power modes and other settings that a run can set and restore",
        ),
        "monitor": Entry("edgescope.wings.monitor.cli", summary="show sensors and the running trial live"),
        "backends": Entry(
            "edgescope.cli.available:Backends",
            summary="the engines, whether each works here, and their options",
        ),
        "bench": Entry(
            "edgescope.cli.bench",
            summary="measure one model in one engine",
            functions=("edgescope.runner.setup:run",),
        ),
        "sweep": Entry(
            "edgescope.cli.sweep",
            summary="measure a grid of models, engines, precisions, batches and processes; resumable",
            functions=("edgescope.verbs.sweep:sweep",),
        ),
        "train": Entry(
            "edgescope.wings.training.cli",
            summary="advise on a training run, train between queries, train for clips, write data sets",
            functions=(
                "edgescope.wings.training.advise:train_advise",
                "edgescope.wings.studies.verb:train_characterize",
                "edgescope.wings.training.interleave:train_interleave",
            ),
        ),
        "anomaly": Entry(
            "edgescope.wings.anomaly.cli",
            summary="detect anomalies in video",
            functions=("edgescope.wings.anomaly.verb:watch",),
        ),
        "optimize": Entry(
            "edgescope.wings.optimize.cli",
            summary="try engines and precisions on a model, verify each, pick one",
            functions=("edgescope.wings.optimize.verb:optimize",),
        ),
        "recommend": Entry(
            "edgescope.wings.recommend.cli",
            summary="choose the best measured cell that keeps every constraint, or search for it",
            functions=("edgescope.wings.recommend.verb:recommend",),
        ),
        "predict": Entry(
            "edgescope.wings.predict.cli",
            summary="predict time, power and energy of every mode from a few profiled ones",
            functions=("edgescope.wings.predict.verb:predict",),
        ),
        "capacity": Entry(
            "edgescope.wings.capacity.cli",
            summary="find how many clients or cameras fit, and what limits them",
            functions=("edgescope.wings.capacity.verb:capacity",),
        ),
        "offload": Entry(
            "edgescope.wings.offload.cli",
            summary="choose edge, cloud or both, from two machines' results and a network; --probe measures one",
            functions=(
                "edgescope.wings.offload.verb:offload",
                "edgescope.wings.offload.verb:Sent",
            ),
        ),
        "trace": Entry(
            "edgescope.wings.trace.cli",
            summary="where the time goes: calls, kernels, copies, waits; of a trial, a program, or a trace file",
            functions=("edgescope.wings.trace.verb:trace",),
        ),
        "compare": Entry(
            "edgescope.cli.results:Compare",
            summary="compare two variants: settings that differ, ratios with intervals, a judgement",
            functions=("edgescope.verbs.compare:compare",),
        ),
        "gate": Entry(
            "edgescope.wings.gate.cli",
            summary="judge a change for a pipeline: PASS, FAIL or INCONCLUSIVE on each limit",
            functions=("edgescope.wings.gate.verb:gate",),
        ),
        "public": Entry(
            "edgescope.wings.public.cli",
            summary="published figures of edge boards, and a result beside them",
            functions=("edgescope.wings.public.verb:public",),
        ),
        "energy": Entry(
            "edgescope.wings.energy.cli",
            summary="a result's energy by every meter, and by an external meter's CSV",
            functions=("edgescope.wings.energy.verb:energy",),
        ),
        "explain": Entry(
            "edgescope.wings.explain.cli",
            summary="say what limits a result, with evidence, remedies and predicted gains",
            functions=("edgescope.wings.explain.verb:explain",),
        ),
        "layers": Entry(
            "edgescope.wings.layers.cli",
            summary="show the time, FLOPs, bytes and share of the roofline of each layer",
            functions=("edgescope.wings.layers.verb:layers",),
        ),
        "list": Entry("edgescope.cli.results:List", summary="list the results in a store"),
        "show": Entry("edgescope.cli.results:Show", summary="print the card of one result"),
        "rm": Entry("edgescope.cli.results:Remove", summary="remove results from a store"),
        "report": Entry(
            "edgescope.cli.results:Report", summary="write one HTML page (or .md, .csv) from stored results"
        ),
        "study": Entry(
            "edgescope.wings.studies.cli",
            summary="regenerate a published study's tables, figures and claims, next to its own",
            functions=("edgescope.wings.studies.verb:ladder",),
        ),
        "record": Entry(
            "edgescope.wings.record.cli",
            summary="record this machine's sensors into one file that any machine can replay",
        ),
        "verify-board": Entry(
            "edgescope.wings.verify_board.cli",
            summary="check every path on a real board; writes one file to send",
            functions=("edgescope.wings.verify_board.verb:verify_board",),
        ),
        "docs": Entry(
            "edgescope.cli.docs",
            summary="print a page of the documentation, or what a message code means and what helps",
        ),
        "help": Entry(
            "edgescope.cli.docs:Help",
            summary="print what a verb does and its flags, or the table of exit codes",
        ),
        "completion": Entry(
            "edgescope.cli.completion",
            summary="print a script that completes verbs, flags and values in bash, zsh or fish",
        ),
    },
    check=_commands,
)

#: An installed package's own: an entry names a text, tables as in metrics.toml.
METRICS = Family(
    "edgescope.metrics",
    {},
    check=lambda found: need("edgescope.metrics:read", "a metric", "")(
        need(found.target, "a metric", found.fix)
    ),
)

FAMILIES = (
    METRICS,
    VERBS,
    BACKENDS,
    PLACES,
    DEVICES,
    WORKLOADS,
    SCENARIOS,
    MODELS,
    DATA,
    SOURCES,
    TRACERS,
    IMPORTERS,
)


def entry(family: Family, name: str, word: str) -> Entry:
    """Return the entry called `name`; UsageError with the known names if there is none.

    Raises UnavailableError if a plug-in should have added it and could not.
    """
    if name not in family:
        for found in family.broken:
            if found.name == name:
                raise unusable(found, word)
        close = closest_name(name, family)
        flag = f"--{word} " if word in ("backend", "scenario", "workload") else ""
        raise UsageError(
            "E-NAME-1",
            f"no {word} is called {name!r}",
            evidence=f"known: {', '.join(sorted(family))}",
            fix=f"{flag}{close}" if close else "",
        )
    return family[name]


def installed(family: Family) -> list[str]:
    """Return the names of the members whose wing was not taken out."""
    return [name for name, found in family.items() if _is_there(found.target)]


def _is_there(target: str) -> bool:
    from importlib.util import find_spec

    wing = ".".join(target.partition(":")[0].split(".")[:3])
    try:
        return not wing.startswith(f"{__package__}.wings.") or bool(find_spec(wing))
    except ImportError:
        return False


def scenario(name: str) -> Entry:
    """Return the entry of a scenario; a closed loop's if a stored result names a scenario that is not installed."""
    return SCENARIOS.get(name, Entry(""))


def stamps(workload: str) -> bool:
    """Return whether the units of a workload may carry time stamps; False if it is not installed."""
    return WORKLOADS.get(workload, Entry("")).stamps


def made_of(workload: str) -> str:
    """Return what a unit of a workload is made of (Entry.made_of); '' if it is not installed."""
    return WORKLOADS.get(workload, Entry("")).made_of


@functools.cache
def place(name: str) -> Place:
    """Return what a place can do; of a name that is no place, as an engine may report one, the least."""
    if name in PLACES:
        found: Place = need(PLACES[name].target, f"device {name}", PLACES[name].fix)
    else:
        found = need("edgescope.records.trial:Place", "a place", "")(name)
    return found


def runs_on(backend: str) -> tuple[str, ...]:
    """Return the places that a backend runs on, the usual one first: its own, then those that name its engine."""
    found = entry(BACKENDS, backend, "backend")
    more = (name for name in PLACES.plugins if found.engine in place(name).names)
    return (*found.devices, *(name for name in more if name not in found.devices))


def home(backend: str) -> str:
    """Return the default device of a backend."""
    return entry(BACKENDS, backend, "backend").devices[0]


def about(backend: str) -> type[About]:
    """Return a backend's class data without importing its engine; UsageError if there is no such backend."""
    found = entry(BACKENDS, backend, "backend")
    data: type[About] = need(found.about or "edgescope.backends.base:About", f"backend {backend}", found.fix)
    return data


def facts(backend: str) -> type[About]:
    """Return the class data of a backend; those of one that does nothing if it is not installed."""
    try:
        return about(backend)
    except (UsageError, UnavailableError):
        return about("null")


def load(family: Family, name: str, word: str) -> Any:
    """Import and return the member called `name`; `word` is the family's name for messages."""
    found = entry(family, name, word)
    return need(found.target, f"{word} {name}", found.fix)


def verb(name: str) -> Any:
    """Import and return the module or class of a verb (configure, run); UnavailableError, with why, if it cannot be."""
    found = entry(VERBS, name, "verb")
    try:
        return _commands(found)
    except Exception as error:  # a wing that was taken out, or a fault in it, costs its own verb only
        raise UnavailableError(
            "E-VERB-1",
            f"edgescope {name} cannot be loaded",
            evidence=f"{type(error).__name__}: {error}",
            effect="Every other verb works as before",
            fix=REINSTALL,
        ) from error


def functions() -> dict[str, str]:
    """Return what the verbs add to Python: name -> `module:name`."""
    return {target.partition(":")[2]: target for found in VERBS.values() for target in found.functions}


def function(name: str) -> Any:
    """Import and return what a verb adds to Python under this name; AttributeError if none does."""
    target = functions().get(name)
    if target is None:
        raise AttributeError(f"module 'edgescope' has no attribute {name!r}")
    return need(target, f"edgescope.{name}", REINSTALL)


def unusable(found: Broken, word: str = "") -> UnavailableError:
    """Return the error for a plug-in that cannot be used."""
    return UnavailableError(
        "E-PLUGIN-1",
        f"the plug-in {found.package} adds no {word or found.group} {found.name}",
        evidence=found.why,
        effect="Everything else works as without it",
        fix=f"mend it, or pip uninstall {found.package}",
    )


CPU_TORCH = "pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu"


def without_cuda(fix: str) -> str:
    """Return `fix`; if it installs PyTorch, add the command that saves a machine without a GPU gigabytes of CUDA."""
    return (
        f"{fix}; on a machine without an NVIDIA GPU first: {CPU_TORCH}" if "edgescope[torch" in fix else fix
    )


def lacks(error: ImportError) -> UnavailableError:
    """Return what is missing, and what installs it, for a package that was imported without `need`."""
    package = (error.name or "").partition(".")[0]
    if package == __package__ or not package:
        raise error  # a fault of edgescope, not of the installation
    extra = next((name for name, packages in EXTRAS.items() if package in packages), "")
    fix = f"pip install 'edgescope[{extra}]'" if extra else f"pip install {package}"
    return UnavailableError(
        "E-NAME-2", f"the package {package} cannot be loaded", evidence=str(error), fix=without_cuda(fix)
    )


def need(target: str, what: str, fix: str) -> Any:
    """Import and return `module:attribute`; UnavailableError, with `fix`, if a package is missing."""
    try:
        return _member(target)
    except ImportError as error:
        wing = (error.name or "").startswith(f"{__package__}.wings")  # taken out, and its members with it
        raise UnavailableError(
            "E-NAME-2",
            f"{what} cannot be loaded",
            evidence=str(error),
            fix=REINSTALL if wing else without_cuda(fix),
        ) from error
    except Exception as error:
        if target.partition(".")[0] == __package__:
            raise
        why = f"{target} raised {type(error).__name__}: {error}"
        raise UnavailableError("E-PLUGIN-2", f"{what} cannot be loaded", evidence=why, fix=fix) from error


def _member(target: str) -> Any:
    """Import and return `module:attribute`, or the module if no attribute is named."""
    module, _, attribute = target.partition(":")
    made = importlib.import_module(module)
    return getattr(made, attribute) if attribute else made
