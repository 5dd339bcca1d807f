"""The Trial: one complete question. Its fields have roles, and the keys that compare trials are made from roles."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from types import MappingProxyType

from edgescope import registry
from edgescope.errors import UsageError, closest_name
from edgescope.records.answers import Json, Scalar, digest


@dataclass(frozen=True)
class Place:
    """What a place can do. The defaults are the least: an accelerator whose engine takes and gives host arrays."""

    name: str
    word: str = "accelerator"
    """What a sentence calls it."""
    is_host: bool = False
    """It is the host's own cores: threads, the affinity mask and the CPU's counters tell of the work."""
    own_memory: bool = False
    """Inputs and outputs are copied to it and back, so `io` may be pinned or device."""
    streams: bool = False
    """Queries run at the same time only on streams of their own, which a session prepares (Laned)."""
    events: bool = False
    """Its streams take events, by which PyTorch tells how long a part took there."""
    cuda: bool = False
    """It is programmed as CUDA devices are: graphs, MPS, CUPTI and PyTorch's cuDNN settings."""
    sharing: tuple[str, ...] = ("time_slicing", "pinned")
    """The ways in which several workers may share it."""
    sensors: tuple[str, ...] = ()
    """Devices (registry.DEVICES) that sense it: it is here if one of them is."""
    channels: str = ""
    """How the names of its channels begin: `gpu` for gpu_busy or gpu0_busy; '' if nothing senses it."""
    unseen_by: tuple[str, ...] = ()
    """Scopes of power meters that do not see its work."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Engine (Entry.engine) -> what that engine calls it; a plug-in's place offers itself to these engines."""
    vendor: int = 0
    """The PCI id of who makes all of its devices; 0 for several makers."""
    synchronize: str = ""
    """`module:function` that returns once it has nothing left to do; '' where a call returns with its outputs."""

    def called(self, engine: str) -> str:
        """Return what an engine calls it: its own name unless another is known."""
        return self.names.get(engine, self.name)


CPU = Place(
    "cpu",
    "CPU",
    is_host=True,
    unseen_by=("gpu_board",),
    names={"torch": "cpu", "openvino": "CPU", "onnxruntime": "CPU"},
)
CUDA = Place(
    "cuda",
    "GPU",
    own_memory=True,
    streams=True,
    events=True,
    cuda=True,
    sharing=("time_slicing", "pinned", "mps"),
    sensors=("nvidia", "jetson"),
    channels="gpu",
    unseen_by=("cpu_package",),
    names={"torch": "cuda", "onnxruntime": "GPU"},
    vendor=0x10DE,
    synchronize="torch.cuda:synchronize",
)
#: Both lie in the CPU's package, whose meter sees them; OpenVINO takes and gives arrays in the memory they share.
INTEL_GPU = Place(
    "intel_gpu",
    "Intel GPU",
    unseen_by=("gpu_board",),
    names={"openvino": "GPU", "onnxruntime": "GPU"},
    vendor=0x8086,
)
INTEL_NPU = Place(
    "intel_npu",
    "NPU",
    unseen_by=("gpu_board",),
    names={"openvino": "NPU", "onnxruntime": "NPU"},
    vendor=0x8086,
)


PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8", "as_is")
IO_KINDS = ("host", "pinned", "device")
CHOICES: Mapping[str, Collection[str]] = {
    "precision": PRECISIONS,
    "device": registry.PLACES,
    "io": IO_KINDS,
    "sharing": ("time_slicing", "pinned", "mps"),
}
"""Fields that take one of a set of values."""
SHARING = re.compile(r"time_slicing|pinned|mps(=(100|[1-9]\d?)(\.\d+)?)?")


#: Ending of a model's file -> the engine that it is measured in unless one is named.
OF_FILE = {".onnx": "onnxruntime", ".tflite": "litert", ".gguf": "openvino_genai"}
#: Beginning of a model's name, before a colon -> likewise.
OF_PREFIX = {"llm": "openvino_genai", "http": "openai", "https": "openai"}

#: Fields that are tables of options: of the backend, of the workload, of the scenario.
TABLES = ("options", "workload_options", "scenario_options")


class Role(Flag):
    """The role of a Trial's field: the keys that group, prepare and compare trials are made from roles."""

    ARTIFACT = auto()
    """What is built and loaded."""
    BATCH = auto()
    """How much one query holds."""
    CONCURRENCY = auto()
    """How many queries and processes there are at once."""
    SHARING = auto()
    """How processes share the device, and what else runs meanwhile."""
    LOAD = auto()
    """How queries arrive."""
    MODE = auto()
    """Settings of the machine."""
    EFFORT = auto()
    """How long and how well it is measured."""
    TRACING = auto()
    """The profilers that watch it, and slow it down."""
    JUDGING = auto()
    """The agreement required of the outputs."""
    REPEAT = auto()
    """Which of several runs of the same cell this is."""

    @classmethod
    def all(cls) -> Role:
        """Return every role."""
        return ~cls(0)


@dataclass(frozen=True)
class Range:
    """The values that a number may have, as words and as a rule."""

    words: str
    holds: Callable[[float], bool]


AT_LEAST_1 = Range("be at least 1", lambda n: n >= 1)
POSITIVE = Range("be positive", lambda x: x > 0)
NOT_NEGATIVE = Range("not be negative", lambda x: x >= 0)
A_SHARE = Range("lie between 0 and 1", lambda x: 0 <= x <= 1)
INSIDE = Range("lie between 0 and 1", lambda x: 0 < x < 1)


def of(role: Role, within: Range | None = None) -> dict[str, Role | Range | None]:
    """Return what is known of a field besides its type and default: its role, and its range where it has one."""
    return {"role": role, "range": within}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One complete question: `run(trial)` answers it with a Result."""

    model: str = field(metadata=of(Role.ARTIFACT))
    """Zoo name, `name@weights.pth`, `file.onnx` or `module:callable`; files carry `#digest` once pinned."""
    backend: str = field(default="", metadata=of(Role.ARTIFACT))
    """The engine; one that is left out becomes the usual one of the model: `usual_backend`."""
    device: str = field(default="cpu", metadata=of(Role.ARTIFACT))
    """Where the heavy operators run (registry.PLACES): cpu, cuda ...; an engine that ran elsewhere is an error."""
    precision: str = field(default="fp32", metadata=of(Role.ARTIFACT))
    batch: int = field(default=1, metadata=of(Role.BATCH, AT_LEAST_1))
    """Samples in one query."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=of(Role.ARTIFACT))
    """Input name -> full shape, for models with open axes."""
    data: str = field(default="", metadata=of(Role.ARTIFACT))
    """The user's own inputs and labels (registry.DATA), `folder#digest` once pinned; '' for the model's own."""
    preprocess: str = field(default="", metadata=of(Role.ARTIFACT))
    """How pictures become inputs: keys, a name, or a file that carries `#digest` once pinned; '' as it is known."""
    workload: str = field(default="inference", metadata=of(Role.ARTIFACT))
    """What one unit of work is (registry.WORKLOADS): a forward pass, a training step, a frame of a video ..."""
    workload_options: Mapping[str, Scalar] = field(default_factory=dict, metadata=of(Role.ARTIFACT))
    """Options of the workload; each names its own."""
    scenario: str = field(default="single_stream", metadata=of(Role.LOAD))
    rate: float | None = field(default=None, metadata=of(Role.LOAD, POSITIVE))
    """Queries per second offered by an open-loop scenario."""
    scenario_options: Mapping[str, Scalar] = field(default_factory=dict, metadata=of(Role.LOAD))
    """Options of the scenario (burst_size, trace, gaps_ms ...); each names its own."""
    in_flight: int = field(default=1, metadata=of(Role.CONCURRENCY, AT_LEAST_1))
    """Queries that may be outstanding at once."""
    processes: int = field(default=1, metadata=of(Role.CONCURRENCY, AT_LEAST_1))
    """Worker processes that run this model at once, each with its own load; start and stop are agreed."""
    sharing: str = field(default="time_slicing", metadata=of(Role.SHARING))
    """How the workers share the device: time_slicing (a GPU runs them in turn, a CPU as its scheduler decides), mps,
    mps=50 (at most that per cent of the GPU's threads each), pinned (each worker has CPUs of its own)."""
    colocated: str = field(default="", metadata=of(Role.SHARING))
    """The models that run at the same time, one more worker each, joined by `+`; they have their own figures.

    Each is a model, followed by the settings that differ from this trial: `lenet5 workload=training batch=32`.
    """
    mode: str = field(default="as_is", metadata=of(Role.MODE))
    """Reversible settings entered for this trial and restored after it, e.g. 15W, cpus=0-1, MAXN+jetson_clocks."""
    options: Mapping[str, Scalar] = field(default_factory=dict, metadata=of(Role.ARTIFACT))
    """Backend options (threads, layout, streams ...); each backend names its own."""
    io: str = field(default="host", metadata=of(Role.ARTIFACT))
    """Where inputs and outputs live; `host` puts the copies inside the latency."""
    warmup: float | None = field(default=None, metadata=of(Role.EFFORT, NOT_NEGATIVE))
    """Seconds of warm-up; None lets the data decide."""
    idle_s: float = field(default=0.0, metadata=of(Role.EFFORT, NOT_NEGATIVE))
    """Seconds for which the loaded process idles before the warm-up and again after the window, watched."""
    min_s: float = field(default=1.0, metadata=of(Role.EFFORT))
    max_s: float = field(default=10.0, metadata=of(Role.EFFORT))
    """Measured seconds: at least, and at most."""
    rel_width: float = field(default=0.01, metadata=of(Role.EFFORT, INSIDE))
    """Stop once the 95 % half-width of the mean latency is this share of the mean."""
    max_queries: int | None = field(default=None, metadata=of(Role.EFFORT, AT_LEAST_1))
    turn_s: float | None = field(default=None, metadata=of(Role.EFFORT, POSITIVE))
    """Seconds of a turn where two variants are measured in alternation; None where a trial is measured alone."""
    tracer: str = field(default="none", metadata=of(Role.TRACING))
    """The profiler that watches the trial's processes (registry.TRACERS); its cost is included in the numbers."""
    metric: str = field(default="", metadata=of(Role.JUDGING))
    """The measure of right answers that the gate judges by: top1, top5, map, miou, agreement, or `module:callable`; ''
    takes what the labels of the inputs call for. Code carries `#digest` once pinned."""
    min_accuracy: float | None = field(default=None, metadata=of(Role.JUDGING, A_SHARE))
    """Required share of fp32's value of the measure; None takes the gate's default, 0.99."""
    min_agreement: float | None = field(default=None, metadata=of(Role.JUDGING, A_SHARE))
    """Required lower bound of the agreement with fp32, which then judges; None takes the gate's default."""
    deadline_s: float | None = field(default=None, metadata=of(Role.JUDGING, POSITIVE))
    """Seconds in which a result must come after its query was due or its frame was created; None: no deadline."""
    seed: int = field(default=0, metadata=of(Role.REPEAT))
    replicate: int = field(default=0, metadata=of(Role.REPEAT))
    """Number of the fresh process that repeats this cell."""

    def __post_init__(self) -> None:
        """Validate; name the engine; freeze the mappings; 1 and 1.0 seconds are one question."""
        problem = _mistyped(self)
        if not problem:
            object.__setattr__(self, "backend", self.backend or usual_backend(self.model))
            shapes = {name: tuple(int(n) for n in shape) for name, shape in self.shapes.items()}
            object.__setattr__(self, "shapes", MappingProxyType(shapes))
            for name in TABLES:
                object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
            for name in _FLOATS:
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, float(value))
            problem = next(_problems(self), "")
        if problem:
            fix = _closest(self) or "edgescope bench --help"
            raise UsageError("E-TRIAL-1", problem, effect="Nothing was measured", fix=fix)

    def __hash__(self) -> int:
        return hash(self.id)

    @functools.cached_property
    def id(self) -> str:
        """Hash of every field that differs from its default: the name of this question."""
        return self.key(Role.all())

    @functools.cached_property
    def cell(self) -> str:
        """Hash of the trial without its replicate number: the name of the cell that replicates share."""
        return digest([self.key(Role.all(), but=("replicate",))])

    @functools.cached_property
    def variant(self) -> str:
        """Hash of the trial without its replicate number and duration: the name that cells of one variant share."""
        return self.key(Role.all() & ~Role.EFFORT, but=("replicate",))

    def key(self, roles: Role, *, but: Collection[str] = ()) -> str:
        """Return the hash of the fields in `roles` that differ from their defaults, `but` some.

        Two trials with the same key agree in these roles; a field that is added later changes no key.
        """
        plain, usual = self.to_json(), _usual()
        named = (name for name in _named(roles) if name not in but)
        return digest({name: plain[name] for name in named if plain[name] != usual.get(name, _NONE)})

    @property
    def place(self) -> Place:
        """What the device can do."""
        return registry.place(self.device)

    @property
    def label(self) -> str:
        """Short human name of the variant, e.g. `onnxruntime int8 b1`."""
        extra = _spelt(self.options)
        where = "" if self.device == Trial.device else f" {self.device}"
        kind = "" if self.workload == Trial.workload else f" {self.workload}"
        kind += _spelt(self.workload_options)
        workers = "" if self.processes == 1 else f" P{self.processes}"
        workers += "" if self.in_flight == 1 else f" T{self.in_flight}"
        workers += "" if self.sharing == "time_slicing" else f" {self.sharing}"
        workers += f" with {self.colocated}" if self.colocated else ""
        mode = "" if self.mode == "as_is" else f" {self.mode}"
        load = "" if self.scenario == Trial.scenario else f" {self.load}"
        return f"{self.backend}{where}{kind} {self.precision} b{self.batch}{workers}{extra}{mode}{load}"

    @property
    def load(self) -> str:
        """How queries arrive: `server 30/s`, `burst 40/s burst_size=8`; for a file, its name."""
        rate = "" if self.rate is None else f" {self.rate:g}/s"
        return f"{self.scenario}{rate}{_spelt(self.scenario_options)}"

    @property
    def multi_process(self) -> bool:
        """Whether workers must agree on a start and a stop: with several workers, or with one under MPS or pinned."""
        return self.processes > 1 or self.sharing != "time_slicing" or bool(self.colocated)

    @property
    def has_data(self) -> bool:
        """Whether it names data, or how they are prepared: its model's samples are other ones then."""
        return bool(self.data or self.preprocess or self.options.get("calibration"))

    def to_json(self) -> dict[str, Json]:
        """Return a plain dict that `from_json` reads back."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out["shapes"] = {name: list(shape) for name, shape in self.shapes.items()}
        return out | {name: dict(getattr(self, name)) for name in TABLES}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Trial:
        """Return the Trial in a plain dict; an unknown key is a UsageError."""
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise UsageError(
                "E-TRIAL-2", f"unknown keys {unknown}", evidence=f"known: {', '.join(sorted(known))}"
            )
        return cls(**data)


ROLES: Mapping[str, Role] = {f.name: f.metadata["role"] for f in dataclasses.fields(Trial)}
_RANGES: Mapping[str, Range] = {f.name: r for f in dataclasses.fields(Trial) if (r := f.metadata["range"])}
_NONE = object()
_BY_TYPE: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}
_KINDS = {f.name: _BY_TYPE.get(str(f.type), (Mapping,)) for f in dataclasses.fields(Trial)}
_FLOATS = tuple(name for name, kinds in _KINDS.items() if float in kinds)


def usual_backend(model: str) -> str:
    """Return the engine that a model is measured in unless one is named: that of its fp32 reference."""
    plain = model.partition("#")[0].lower()
    of_prefix = OF_PREFIX.get(plain.partition(":")[0], "torch_eager")
    return next((engine for ending, engine in OF_FILE.items() if plain.endswith(ending)), of_prefix)


def colocated_with(colocated: str, change: Callable[[str], str]) -> str:
    """Return `colocated` with each of its models changed and the settings after a model kept."""
    parts = [part.split() for part in colocated.split("+") if part.strip()]
    return "+".join(" ".join((change(model), *differs)) for model, *differs in parts)


def _spelt(options: Mapping[str, Scalar]) -> str:
    """Return ` name=value` for each option, as it can be typed; for a file, its name."""
    texts = {k: _text(v) for k, v in sorted(options.items())}
    return "".join(
        f" {k}={v.rpartition('/')[2].partition('#')[0] if '#' in v else v}" for k, v in texts.items()
    )


def _text(value: Scalar) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def _named(roles: Role) -> tuple[str, ...]:
    """Return the fields in `roles`."""
    return tuple(name for name, role in ROLES.items() if role in roles)


@functools.cache
def _usual() -> dict[str, Json]:
    """Return every default as plain JSON; the model has no default."""
    usual = Trial(model="").to_json()
    del usual["model"]
    return usual


def _mistyped(t: Trial) -> str:
    """Return which field of a Trial read from a file has the wrong type, or ''."""
    for name, allowed in _KINDS.items():
        value = getattr(t, name)
        kind = type(value)
        if kind not in allowed and (kind is bool or not isinstance(value, allowed)):
            words = " or ".join(k.__name__ for k in allowed if k is not type(None))
            return f"{name} must be a {words}, not {value!r}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} must be finite, not {value}"
    for name, shape in t.shapes.items():
        if isinstance(shape, str) or not all(isinstance(n, int) for n in shape):
            return f"the shape of {name} must be a list of whole numbers, not {shape!r}"
    return ""


def _closest(trial: Trial) -> str:
    """Return the flag with the closest valid choice for a misspelt one, or ''."""
    for name, words in CHOICES.items():
        value = str(getattr(trial, name))
        if value.partition("=")[0] not in words:
            close = closest_name(value, words)
            return f"--{name} {close}" if close else ""
    return ""


def _problems(t: Trial) -> Iterator[str]:
    """Yield what is wrong with a Trial; its right values are put into no words."""
    if t.device not in registry.PLACES:
        yield f"device must be one of {', '.join(registry.PLACES)}, not {t.device!r}"
    for name, within in _RANGES.items():
        value = getattr(t, name)
        if value is not None and not within.holds(value):
            yield f"{name} must {within.words}, not {value}"
    if t.precision not in PRECISIONS:
        yield f"precision must be one of {', '.join(PRECISIONS)}, not {t.precision!r}"
    if t.io not in IO_KINDS:
        yield f"io must be one of {', '.join(IO_KINDS)}, not {t.io!r}"
    if SHARING.fullmatch(t.sharing) is None:
        yield f"sharing must be time_slicing, pinned, mps or mps=PER CENT, not {t.sharing!r}"
    if not 0 <= t.min_s <= t.max_s:
        yield f"need 0 <= min_s <= max_s, not {t.min_s} and {t.max_s}"
    if any(n < 1 for shape in t.shapes.values() for n in shape):
        yield f"every dimension must be at least 1: {dict(t.shapes)}"
