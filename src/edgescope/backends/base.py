"""The interface of backends: prepare an artifact once, load it, call it.

A Session never times itself: the scenario's one clock times every engine alike. It reports what it did through
`effective()`, so that an engine which silently chose another device or precision is caught.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from edgescope import registry
from edgescope.artifacts import REDUCED_SHARE
from edgescope.errors import Message, SettingError, UsageError, closest_name, known_names
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Field, Json, Place, Queries, Scalar, Spans, Trial, Window
from edgescope.records.lazy import NDArray, np

if TYPE_CHECKING:
    from edgescope.analysis.roofline import Layer


@dataclass(frozen=True)
class Spec:
    """The settings of an engine: precision, batch, fixed shapes, where inputs live, its own options."""

    precision: str = "fp32"
    batch: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    io: str = "host"
    options: Mapping[str, Scalar] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def place(self) -> Place:
        """What the device can do."""
        return registry.place(self.device)


@dataclass(frozen=True)
class Artifact:
    """The input of `load`: the model, the spec, a file if the engine reads one, and how it was made."""

    model: Model
    spec: Spec
    path: Path | None = None
    digest: str = ""
    build_s: float | None = None
    """Seconds it took to make the file, when it was made; None if nothing is built."""
    notes: Mapping[str, Json] = field(default_factory=dict)


def spec_of(trial: Trial) -> Spec:
    """Return a trial's settings for its backend."""
    return Spec(trial.precision, trial.batch, trial.shapes, trial.io, trial.options, trial.device)


class Session(Protocol):
    """One loaded model, ready to answer."""

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs of one batch, once they are truly on the host.

        The arrays may be the engine's own memory: they are valid until the next call.
        """

    def effective(self) -> Effective:
        """Return what the engine did, as it reports it; valid after the first call."""

    def close(self) -> None:
        """Free the engine's memory and threads."""


@runtime_checkable
class Staged(Protocol):
    """Optional interface of a session on a device with its own memory: it keeps inputs and outputs where `io` says."""

    def stage(self, batch: Batch) -> Batch:
        """Return the batch in pinned host memory (`pinned`) or on the device (`device`), as this session takes it."""

    def fetch(self, outputs: Sequence[Any]) -> Sequence[NDArray[Any]]:
        """Return the outputs of a call as arrays on the host."""


@dataclass(frozen=True)
class Phases:
    """The phases of one query in nanoseconds, as trtexec defines them; transfers that io leaves out do not count."""

    latency_ns: int
    """Host time from the call to its return."""
    enqueue_ns: int | None
    """Host time of the call that enqueues the network, without copies; None if that call also waits for the device."""
    h2d_ns: int
    compute_ns: int
    d2h_ns: int


@runtime_checkable
class Phased(Protocol):
    """Optional interface of a session: it answers one query with device events around its parts."""

    def phases(self, batch: Batch) -> Phases:
        """Answer one query and return how long each part took; slower than a plain call."""


@runtime_checkable
class Laned(Protocol):
    """Optional interface of a session on a GPU: calls from several threads run in parallel, each on its own stream.

    A session without it serialises calls from all threads; more than one query in flight is refused there, because the
    figure's label would be false.
    """

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Prepare for n parallel calls, with a batch like those to come, before any thread calls.

        `owned`: later calls overwrite no outputs; otherwise outputs are valid until another call takes the same lane.
        """


@dataclass(frozen=True)
class ProgramRun:
    """The run of a program that owns its loop: every query it made, on this process's monotonic clock."""

    queries: Queries
    """With a column for each moment of a query that the program tells (`records.mark_column`)."""
    window: Window
    effective: Effective
    answer: Callable[[Batch], Sequence[NDArray[Any]]]
    """The outputs of one batch of the trial's size, through the same program and artifact."""
    facts: Mapping[str, Field] = field(default_factory=dict)
    """build_s, load_s, first_s, and the phases enqueue_s, h2d_s, gpu_compute_s, d2h_s."""
    notes: Mapping[str, Json] = field(default_factory=dict)
    """Program, version, command line, its own summary, clock offset and its uncertainty."""
    warnings: tuple[Message, ...] = ()
    answer_rows: int | None = None
    """Rows that `answer` takes at once, if they are more than the trial's batch."""
    settled: bool = True
    """Whether the latencies had settled when the window began, as far as the program tells."""
    spans: Spans | None = None
    """The parts of its units, if it tells them."""


@runtime_checkable
class SelfDriven(Protocol):
    """Optional interface of a backend: a program that owns its loop (trtexec); the Result has driver = external."""

    def drive(self, artifact: Artifact, trial: Trial) -> Sequence[ProgramRun]:
        """Run the program in all of the trial's processes at once; return what each did. It times itself."""


@dataclass(frozen=True)
class Lessons:
    """What a program somewhere else trains on: samples that it holds in memory, in another order in each epoch."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    size: int
    """Samples in an epoch, which are drawn from the others in turn."""
    options: Mapping[str, Any]
    """Those of the training workload."""


@runtime_checkable
class Trainer(Protocol):
    """Optional interface of a backend: its program takes the steps of training itself, and marks their parts."""

    def train(self, model: Model, trial: Trial, lessons: Lessons) -> Sequence[ProgramRun]:
        """Train in all of the trial's processes; return what each did.

        The `answer` of a run takes minibatches from the initial weights, without dropout: `inputs` and `labels` one
        behind the other, `sizes` of each. It returns the losses of these steps.
        """


Tried = tuple[str, Mapping[str, Scalar]]
"""A candidate: a precision and the options to run it with."""


class About:
    """Facts about a backend that need no engine; its class inherits them from a module that imports no engine.

    They are used to plan trials for another machine, to describe an engine that is not installed here, and in processes
    that must not hold an engine. The defaults here apply to a backend that defines nothing else.
    """

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Device -> precisions that it supports on some machine; a device that is not listed has no limits."""
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {}
    """Device -> the candidates of `optimize`, the simplest first; empty if the backend only runs when it is named."""
    SLOW_OPTIONS: ClassVar[Mapping[str, Scalar]] = {}
    """Options with which a first start takes minutes: a candidate with one of them is tried only if it is named."""
    SLOW_START: ClassVar[bool] = False
    """Whether every start runs a compiler: such candidates are tried once, after the others."""
    READS: ClassVar[frozenset[str]] = frozenset({"network", "onnx"})
    """The kinds of model that it can run: network (PyTorch's module, to be exported), onnx and tflite (files)."""
    RUNNING: ClassVar[frozenset[str]] = frozenset({"threads", "streams"})
    """Options for running an artifact that change no output."""
    BUILDS: ClassVar[bool] = True
    """Whether it builds something for a precision and options; False: one preparation of a model serves them all."""
    BASELINE: ClassVar[bool] = False
    """Whether its fp32 is what the variants of a network are compared with, unless another baseline is named."""
    COMPILES: ClassVar[bool] = True
    """Whether it plans the network as a whole; False: it calls each operator as the model's code does."""
    CAPTURES: ClassVar[bool] = False
    """Whether it launches all kernels of a query at once, without an option that asks for it."""
    TRAINS: ClassVar[bool] = False
    """Whether it computes gradients, so that the training workload runs in it."""
    TRACER: ClassVar[str] = ""
    """The tracer that sees its operators on a CPU: `engine` if it profiles itself; '' if none does."""
    PACKAGES: ClassVar[Sequence[str]] = ()
    """Installed packages whose versions affect its outputs or speed; every result lists them."""


def tried(precisions: str, *options: Mapping[str, Scalar]) -> tuple[Tried, ...]:
    """Return one candidate per precision and option set; with no option set, one per precision."""
    return tuple((precision, chosen) for precision in precisions.split() for chosen in options or ({},))


@dataclass(frozen=True)
class Script:
    """The parts of the `run.py` of a deployed model, which needs only one engine."""

    engine: str
    """The engine's name, for the reader."""
    imports: str
    lines: str
    """They end in a function `run(batch)`, from arrays by input name to a list of arrays, that does what the backend's
        session did when it was measured. HERE, BATCH, INPUTS (name -> shape of one) and numpy (as np) are defined."""
    left_out: tuple[str, ...] = ()
    """Options of the trial that the lines leave out: the same answers, another speed."""


@runtime_checkable
class Scripted(Protocol):
    """Optional class data of a backend: its engine can run the artifact without edgescope."""

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that run `file` (in the same folder) as the trial ran its artifact."""


@runtime_checkable
class Backend(Protocol):
    """One engine family."""

    OPTIONS: ClassVar[Mapping[str, str]]
    """Option -> its meaning and default, for the user; other options are refused."""

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the artifact, built once and cached by content under `folder`; UnsupportedError if impossible."""

    def load(self, artifact: Artifact) -> Session:
        """Return a session ready for its first call."""


@runtime_checkable
class Layered(Protocol):
    """Optional interface of a backend: it says how long each operator of an artifact takes."""

    def layers(self, artifact: Artifact, batch: Batch) -> Sequence[Layer]:
        """Return every operator with its time in a query, each of its times, its FLOPs, bytes and precision."""


LAYER_RUNS = 10
"""Queries after the first ones over which operators are timed."""


@runtime_checkable
class Usable(Protocol):
    """Optional interface of a backend for which a successful import does not show that it works here."""

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if it does not work here on `device` (a place); it runs no model."""


def checked(name: str, spec: Spec, known: Mapping[str, str]) -> Spec:
    """Return `spec` if the backend `name` has all its options; the UsageError otherwise lists the known ones."""
    unknown = sorted(set(spec.options) - set(known))
    if unknown:
        close = [f"--option {c}={spec.options[u]}" for u in unknown if (c := closest_name(u, known))]
        raise UsageError(
            "E-OPT-1",
            f"{name} has no option {', '.join(unknown)}",
            evidence=known_names(known),
            fix=" ".join(close) or "edgescope backends",
        )
    return spec


#: Reduced precision -> the wider precisions that some operators may stay in; for all others that is fp32.
WIDER: Mapping[str, frozenset[str]] = {
    "int8": frozenset({"fp16", "bf16", "tf32", "fp32"}),
    "fp8": frozenset({"fp16", "bf16", "tf32", "fp32"}),
    "fp16": frozenset({"tf32", "fp32"}),
    "bf16": frozenset({"tf32", "fp32"}),
    "fp32": frozenset(),
}


#: Variable that names the folder for an engine's own profile; not set unless the tracer `engine` is at work.
PROFILE = "EDGESCOPE_ENGINE_PROFILE"


def profile_folder() -> Path | None:
    """Return the folder that the engine's own profile goes to as files `engine*`, or None if it is not wanted."""
    folder = os.environ.get(PROFILE)
    return Path(folder) if folder else None


def precision_of(kinds: Mapping[str, int]) -> str:
    """Return the precision that heavy operators ran in, from operator counts by precision.

    fp32 means all of them. A reduced precision may leave some operators in wider ones (a first layer, say), as long as
    three in four are reduced; anything else is `mixed (...)`, which never counts as the requested precision.
    """
    for top, n in kinds.items():
        wider = WIDER.get(top, frozenset({"fp32"}))
        if set(kinds) <= wider | {top} and n >= REDUCED_SHARE * sum(kinds.values()):
            return top
    return f"mixed ({counted(kinds)})"


def counted(kinds: Mapping[str, int]) -> str:
    """Return `48 int8, 2 fp32`."""
    return ", ".join(f"{n} {k}" for k, n in sorted(kinds.items(), key=lambda item: -item[1]))


def threads_of(spec: Spec) -> int | None:
    """Return the requested thread count, or None for the engine's default."""
    value = spec.options.get("threads")
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        raise UsageError("E-OPT-2", f"threads must be a whole number of at least 1, not {value!r}")
    return int(value)


def flag(spec: Spec, name: str, *, default: bool = False) -> bool:
    """Return an option that is true or false (or the text of either); UsageError for anything else."""
    value = spec.options.get(name, default)
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise UsageError("E-OPT-4", f"{name} must be true or false, not {value!r}")
    return value == "true"


def choice(spec: Spec, name: str, known: Sequence[str]) -> str:
    """Return an option that takes one of the values `known`, by default the first; UsageError for another."""
    value = spec.options.get(name, known[0])
    if value not in known:
        raise UsageError("E-OPT-3", f"{name} must be one of {', '.join(known)}, not {value!r}")
    return str(value)


def unforced(spec: Spec) -> None:
    """Raise SettingError if the environment makes NVIDIA's libraries compute in the other of fp32 and tf32."""
    forced = os.environ.get("NVIDIA_TF32_OVERRIDE")
    other = {"tf32": "fp32", "fp32": "tf32"}.get(spec.precision)
    if not forced or other is None or (forced != "0") == (spec.precision == "tf32"):
        return
    raise SettingError(
        "E-TF32-1",
        f"{spec.precision} was requested and the environment requests {other}",
        evidence=f"NVIDIA_TF32_OVERRIDE={forced}",
        effect=f"NVIDIA's libraries may compute in {other} despite the request, under this label",
        fix=f"unset NVIDIA_TF32_OVERRIDE, or --precision {other}",
    )


class NullSession:
    """Answers with one zero."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.delay_s = float(spec.options.get("delay_us", 0)) / 1e6
        self.answer = (np.zeros((1, 1), dtype=np.float32),)

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return a (1, 1) zero, after the delay."""
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.answer

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Do nothing: threads share nothing and sleep in parallel."""

    def effective(self) -> Effective:
        """Return exactly the requested settings."""
        return Effective(self.spec.device, self.spec.precision, 1, "the null backend computes nothing")

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class NullBackend:
    """Accepts any model and precision."""

    OPTIONS: ClassVar[dict[str, str]] = {"delay_us": "microseconds each call sleeps (0)"}

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return an artifact without a file."""
        return Artifact(model, checked("null", spec, self.OPTIONS))

    def load(self, artifact: Artifact) -> NullSession:
        """Return a session."""
        return NullSession(artifact.spec)
