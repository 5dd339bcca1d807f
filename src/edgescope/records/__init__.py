"""The two records everything revolves around: a Trial (what we ask) and a Result (what happened).

    Trial  = model x backend x precision x batch x shapes x workload x scenario x concurrency x mode
             x options, io, seed, replicate
    Result = Trial + machine + queries + readings + status + verdict

Both are frozen and versioned. A Trial's id is the hash of every field, so two different questions never share
a name. A value that was not measured is `Absent(reason)`: never 0, never a guess.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError

SCHEMA_VERSION = 1

Scalar = str | int | float | bool
Json = Any  # what json.loads returns

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")
IO_KINDS = ("host", "pinned", "device")
DEVICE_KINDS = ("cpu", "cuda")
SHARING = re.compile(r"shared|pinned|mps(=(100|[1-9]\d?)(\.\d+)?)?")


class Status(str, Enum):
    """Whether a trial finished, each other than `ok` with a reason."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    WRONG_OUTPUT = "wrong_output"
    UNSTABLE = "unstable"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    FAILED = "failed"


class Trust(str, Enum):
    """Whether the number may be trusted, each with evidence."""

    CLEAN = "CLEAN"
    THROTTLED = "THROTTLED"
    DISTURBED = "DISTURBED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Verdict:
    """May this number be trusted, and on what evidence."""

    trust: Trust
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A measured value in `unit`, with a 95 % interval where one can be given and the count behind it."""

    value: float
    unit: str
    lo: float | None = None
    hi: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Absent:
    """A value that was not measured, and why."""

    reason: str


Field = Measured | Absent


def digest(value: Json) -> str:
    """Sixteen hex digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One question, whole: `run(trial)` answers it with a Result."""

    model: str
    """Zoo name, `name@weights.pth`, `file.onnx` or `module:callable`; files carry `#digest` once pinned."""
    backend: str = "torch_eager"
    device: str = "cpu"
    """Where the heavy operators run: cpu or cuda; an engine that ran elsewhere is an error."""
    precision: str = "fp32"
    batch: int = 1
    """Samples in one query."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Input name -> full shape, for models whose axes are open."""
    workload: str = "inference"
    scenario: str = "single_stream"
    rate: float | None = None
    """Queries per second offered by an open-loop scenario."""
    arrivals: str = ""
    """What a scenario needs beside a rate: of burst the queries in one burst, of trace the file of arrival times."""
    in_flight: int = 1
    """Queries that may be outstanding at once."""
    processes: int = 1
    """Worker processes that run this model at once, each with its own load; start and stop are agreed."""
    sharing: str = "shared"
    """How the workers share the device: shared (a GPU slices time, a CPU's scheduler decides), mps, mps=50 (at most
    that per cent of the GPU's threads each), pinned (each worker has CPUs of its own)."""
    beside: str = ""
    """Other models that run meanwhile, one more worker each, joined by `+`; their figures stand apart."""
    mode: str = "as_is"
    """Reversible settings entered for this trial and restored after it, e.g. 15W, cpus=0-1, MAXN+jetson_clocks."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Backend options (threads, layout, streams ...); each backend names its own."""
    io: str = "host"
    """Where inputs and outputs live; `host` puts the copies inside the latency."""
    warmup: float | None = None
    """Seconds of warm-up; None lets the data decide."""
    idle_s: float = 0.0
    """Seconds for which the loaded process idles before the warm-up and again after the window, watched."""
    min_s: float = 1.0
    max_s: float = 10.0
    """Measured seconds: at least, and at most."""
    rel_width: float = 0.01
    """Stop once the mean latency's 95 % half-width is this share of it."""
    max_queries: int | None = None
    gate: float | None = None
    """Asked-for lower bound of the accuracy gate; None takes the precision's default."""
    seed: int = 0
    replicate: int = 0
    """Number of the fresh process that repeats this cell."""

    def __post_init__(self) -> None:
        """Validate; freeze the mappings; 1 and 1.0 seconds are one question."""
        problem = _mistyped(self)
        if not problem:
            shapes = {name: tuple(int(n) for n in shape) for name, shape in self.shapes.items()}
            object.__setattr__(self, "shapes", MappingProxyType(shapes))
            object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
            for name in _NUMBERS:
                value = getattr(self, name)
                object.__setattr__(self, name, None if value is None else float(value))
            problem = _problem(self)
        if problem:
            raise UsageError(
                "E-TRIAL-1", problem, effect="Nothing was measured", fix="edgescope bench --help"
            )

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """Hash of every field: the name of this question."""
        return digest(self.to_json())

    @property
    def cell(self) -> str:
        """Hash of every field but the replicate: the name of the cell that replicates share."""
        return digest(self.to_json() | {"replicate": None})

    @property
    def label(self) -> str:
        """Short human name of the variant, e.g. `onnxruntime int8 b1`."""
        extra = "".join(f" {k}={v}" for k, v in sorted(self.options.items()))
        where = "" if self.device == "cpu" else f" {self.device}"
        crowd = "" if self.processes == 1 else f" P{self.processes}"
        crowd += "" if self.in_flight == 1 else f" T{self.in_flight}"
        crowd += "" if self.sharing == "shared" else f" {self.sharing}"
        crowd += f" beside {self.beside}" if self.beside else ""
        mode = "" if self.mode == "as_is" else f" {self.mode}"
        load = "" if self.scenario == "single_stream" else f" {self.load}"
        return f"{self.backend}{where} {self.precision} b{self.batch}{crowd}{extra}{mode}{load}"

    @property
    def load(self) -> str:
        """How queries arrive: `server 30/s`, `burst 40/s of 8`; of a trace the file's name."""
        rate = "" if self.rate is None else f" {self.rate:g}/s"
        of = self.arrivals.rpartition("/")[2].partition("#")[0]
        return f"{self.scenario}{rate}{f' of {of}' if of else ''}"

    @property
    def crowded(self) -> bool:
        """Whether workers must agree on a start and a stop: several of them, or one under a sharing of its own."""
        return self.processes > 1 or self.sharing != "shared" or bool(self.beside)

    def to_json(self) -> dict[str, Json]:
        """Return a plain dict that `from_json` reads back."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out["shapes"] = {name: list(shape) for name, shape in self.shapes.items()}
        out["options"] = dict(self.options)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Trial:
        """Read a Trial back; an unknown key is a UsageError."""
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise UsageError(
                "E-TRIAL-2", f"unknown keys {unknown}", evidence=f"known: {', '.join(sorted(known))}"
            )
        return cls(**data)


_WORDS = (
    "model",
    "backend",
    "device",
    "precision",
    "workload",
    "scenario",
    "arrivals",
    "sharing",
    "beside",
    "mode",
    "io",
)
_COUNTS = ("batch", "in_flight", "processes", "seed", "replicate", "max_queries")
_NUMBERS = ("rate", "warmup", "idle_s", "min_s", "max_s", "rel_width", "gate")


def _mistyped(t: Trial) -> str:
    """Say which field of a Trial, as read from a file, has the wrong type, or ''."""
    kinds: dict[str, tuple[type, ...]] = dict.fromkeys(_WORDS, (str,))
    kinds |= dict.fromkeys(_COUNTS, (int,)) | dict.fromkeys(_NUMBERS, (int, float))
    kinds |= {"shapes": (Mapping,), "options": (Mapping,)}
    optional = {"rate", "warmup", "gate", "max_queries"}
    for name, allowed in kinds.items():
        value = getattr(t, name)
        if value is None and name in optional:
            continue
        if not isinstance(value, allowed) or isinstance(value, bool):
            return f"{name} must be a {' or '.join(k.__name__ for k in allowed)}, not {value!r}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} must be finite, not {value}"
    for name, shape in t.shapes.items():
        if isinstance(shape, str) or not all(isinstance(n, int) for n in shape):
            return f"the shape of {name} must be a list of whole numbers, not {shape!r}"
    return ""


def _problem(t: Trial) -> str:
    """Say what is wrong with a Trial, or ''."""
    rules = (
        (t.batch >= 1, f"batch must be at least 1, not {t.batch}"),
        (t.precision in PRECISIONS, f"precision must be one of {', '.join(PRECISIONS)}, not {t.precision!r}"),
        (t.device in DEVICE_KINDS, f"device must be one of {', '.join(DEVICE_KINDS)}, not {t.device!r}"),
        (t.io in IO_KINDS, f"io must be one of {', '.join(IO_KINDS)}, not {t.io!r}"),
        (t.in_flight >= 1, f"in_flight must be at least 1, not {t.in_flight}"),
        (t.processes >= 1, f"processes must be at least 1, not {t.processes}"),
        (
            SHARING.fullmatch(t.sharing) is not None,
            f"sharing must be shared, pinned, mps or mps=PER CENT, not {t.sharing!r}",
        ),
        (t.rate is None or t.rate > 0, f"rate must be positive, not {t.rate}"),
        (0 <= t.min_s <= t.max_s, f"need 0 <= min_s <= max_s, not {t.min_s} and {t.max_s}"),
        (0 < t.rel_width < 1, f"rel_width must lie between 0 and 1, not {t.rel_width}"),
        (t.warmup is None or t.warmup >= 0, f"warmup must not be negative, not {t.warmup}"),
        (t.idle_s >= 0, f"idle_s must not be negative, not {t.idle_s}"),
        (t.max_queries is None or t.max_queries >= 1, f"max_queries must be at least 1, not {t.max_queries}"),
        (t.gate is None or 0 <= t.gate <= 1, f"gate must lie between 0 and 1, not {t.gate}"),
        (
            all(n >= 1 for s in t.shapes.values() for n in s),
            f"every dimension must be at least 1: {dict(t.shapes)}",
        ),
    )
    return next((text for ok, text in rules if not ok), "")


@dataclass(frozen=True)
class Machine:
    """Everything about the machine that could explain a difference between two results."""

    stable: Mapping[str, Json]
    """Facts that name the machine: CPU model, cores, memory, GPU, operating system. Their hash is the id."""
    state: Mapping[str, Json]
    """Facts of the moment: clocks, governor, temperatures, load, versions, environment, command line."""

    @property
    def id(self) -> str:
        """Hash of the stable facts; the folder a store keeps this machine's results in."""
        return digest(dict(self.stable))


#: One row per query: all times in nanoseconds of the monotonic clock; -1 where there is no such time.
QUERY_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "query_id": "int64",
        "worker": "int16",
        "stream": "int16",
        "source_ns": "int64",
        "scheduled_ns": "int64",
        "issued_ns": "int64",
        "done_ns": "int64",
        "samples": "int32",
        "status": "int8",
    }
)
QUERY_OK, QUERY_ERROR, QUERY_DROPPED = 0, 1, 2


@dataclass(frozen=True)
class Queries:
    """The raw rows of a run as columns (QUERY_DTYPES), warm-up first; nothing is ever dropped from them."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["query_id"])

    def rows(self, window: Window) -> Queries:
        """Return the rows that belong to the measured window."""
        return Queries({k: v[window.first : window.stop] for k, v in self.columns.items()})

    def latency_ns(self) -> NDArray[np.int64]:
        """Nanoseconds from scheduled (where there is such a time) or issued to done, of the rows that succeeded."""
        c = self.columns
        start = np.where(c["scheduled_ns"] >= 0, c["scheduled_ns"], c["issued_ns"])
        return np.asarray((c["done_ns"] - start)[c["status"] == QUERY_OK], dtype=np.int64)


@dataclass(frozen=True)
class Window:
    """The measured part of a run: rows [first, stop) and the monotonic times that bound it."""

    first: int
    stop: int
    start_ns: int
    stop_ns: int


@dataclass(frozen=True)
class Idle:
    """A stretch in which the process had its model loaded and did nothing; monotonic times, as the window's."""

    when: str
    """before or after the load."""
    start_ns: int
    stop_ns: int


@dataclass(frozen=True)
class Meter:
    """The meter that a result's watts and joules come from; figures of two scopes are not comparable."""

    name: str
    """Channel name without its suffix: `gpu0`, `cpu_package`, `vdd_in`."""
    scope: str
    """What the meter sits in front of, in the words of Channel.scope."""
    method: str
    """counter, trapezoid or trapezoid of averages."""


@dataclass(frozen=True)
class Channel:
    """One metric of one source: what was read, in which unit and scope, and whether it could be."""

    name: str
    unit: str
    scope: str
    """rail, sum_of_rails, module, carrier, gpu_board, cpu_package, wall, system, process ..."""
    kind: str
    """gauge, average, counter or interval."""
    source: str
    """Where the value comes from: a file, a library call."""
    status: str = "measured"
    """measured, unsupported or failed; the last two with a reason."""
    reason: str = ""


@dataclass(frozen=True)
class Readings:
    """The sampler's raw rows: t_ns (same clock as the queries), channel (index into channels), value."""

    channels: tuple[Channel, ...]
    t_ns: NDArray[np.int64]
    channel: NDArray[np.int16]
    value: NDArray[np.float64]

    def series(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return (t_ns, value) of one channel, in time order; empty where it was not read."""
        index = next((i for i, c in enumerate(self.channels) if c.name == name), -1)
        mine = self.channel == index
        return self.t_ns[mine], self.value[mine]


@dataclass(frozen=True)
class Verification:
    """The gate's answer: whether these are the outputs of the fp32 reference."""

    passed: bool
    method: str
    """`top1_agreement` for trained classifiers, `centred_l2` otherwise, `none` for the null model."""
    fields: Mapping[str, Field]
    """top1_agreement, centred_l2, rank_agreement, accuracy, reference_accuracy: what applies, Absent otherwise."""
    threshold: float
    detail: str
    """One sentence with the figures."""
    reference: str = ""
    """What it was compared with."""


@dataclass(frozen=True)
class Effective:
    """What the engine says it did, read back from it after the first inference."""

    device: str
    precision: str
    """The precision of the heavy operators."""
    threads: int | None = None
    evidence: str = ""
    """Where this was read, e.g. `OpenVINO runtime model: 52 of 52 convolutions f32`."""


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model without running it."""

    name: str
    task: str
    """classify or unknown."""
    trained: bool
    """False also where it is not known: no accuracy is claimed then."""
    source: str
    digest: str
    """Hash of the weights and the definition."""
    params: int | None = None
    macs: int | None = None
    """Multiply-accumulates of one sample; FLOPs are twice this."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One process of a crowded trial, as the process that led them saw it; its rows carry its number."""

    number: int
    """From 0; those of the trial's own model come first, then one for each model beside it."""
    model: str
    pid: int
    cpus: tuple[int, ...] = ()
    """The CPUs it may run on."""
    start_ns: int = -1
    """When its first measured query was issued; -1 where it issued none."""
    stop_ns: int = -1
    """When its last measured query was done."""
    counted: int | None = None
    """Queries done within the window by the counter that all workers share; None where it was not read."""
    load_s: Field = field(default_factory=lambda: Absent("not measured"))
    peak_rss_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    pss_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    """Its share of resident memory within the window, pages that workers share divided among them."""
    gpu_memory_bytes: Field = field(default_factory=lambda: Absent("not measured"))
    """What the GPU's driver says this process holds."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What happened when a Trial was run: facts, raw rows, a status and a verdict."""

    id: str
    trial: Trial
    machine: Machine
    status: Status
    reason: str = ""
    verdict: Verdict = field(default_factory=lambda: Verdict(Trust.UNKNOWN, ("nothing was measured",)))
    started_at: str = ""
    """UTC, ISO 8601."""
    driver: str = "edgescope"
    """`external` where a program owns its loop (trtexec, LoadGen), `agent` where it did so on a board."""
    model: ModelInfo | None = None
    artifact: Mapping[str, Json] = field(default_factory=dict)
    """Path, digest, and how the artifact was built."""
    effective: Effective | None = None
    verification: Verification | None = None
    window: Window | None = None
    workers: tuple[Worker, ...] = ()
    """The processes of a crowded trial; empty where the trial's own process did the work."""
    idle: tuple[Idle, ...] = ()
    """The idle stretches that were watched; empty where the trial's idle_s is 0."""
    meter: Meter | None = None
    """What power_w and the energies of `metrics` were measured with; None where no meter answered."""
    metrics: Mapping[str, Field] = field(default_factory=dict)
    """Derived from the raw rows by analysis.run.summary; recomputable."""
    warnings: tuple[str, ...] = ()
    queries: Queries | None = None
    readings: Readings | None = None
