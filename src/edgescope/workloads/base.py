"""The workload seam: a kind of work that the load generator can offer, one unit at a time.

An inference, a training step and a video frame are the same to the load generator. The workload alone knows what a
unit is, how it is prepared, whether it was right and where its time went; bench calls it and knows no workload by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from edgescope.backends.base import Backend, ProgramRun, spec_of
from edgescope.models.base import Batch, Model
from edgescope.options import Option, read
from edgescope.records import (
    Effective,
    Field,
    GateOutcome,
    Json,
    Machine,
    Marks,
    ModelInfo,
    Queries,
    Result,
    Spans,
    Trial,
    Verification,
    Window,
)
from edgescope.records.lazy import NDArray

NOTHING = Verification(True, "none", {}, 0.0, "there is nothing to verify: nothing is computed")


class Done(Protocol):
    """Reports that one unit is done: from any thread, in any order, once its results are truly there."""

    def __call__(
        self,
        query_id: int,
        status: int,
        samples: int = 0,
        source_ns: int = -1,
        marks: Marks | None = None,
        /,
    ) -> None:
        """Note the unit and its status: QUERY_OK, QUERY_ERROR, or QUERY_DROPPED if the work's own queue gave it up.

        `samples` is its number of samples, if that is not the trial's batch (a last, partial one). `source_ns` is when
        its input was created (a camera's exposure), on the monotonic clock. `marks` are moments of the unit on
        the same clock: its first token (`first_token`), a part's begin and end (`forward_begin`, `forward_end`).
        """


class EndOfInput(Exception):
    """Raised by `Work.issue` if no input is left; the unit that raised it does not count."""


class Work(Protocol):
    """The load generator's view of the work: it takes units and reports when each is done."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start (or do) one unit; call `done` once when its results are there.

        If no input is left: call `done` with QUERY_END, so that no scenario waits for the unit, and raise EndOfInput.
        """

    def flush(self) -> None:
        """Return when everything issued has at least been started."""


@runtime_checkable
class TakesTurns(Protocol):
    """Optional for a Work: its units come from several streams (cameras) in turn."""

    streams: int
    """Unit k belongs to stream k modulo this number."""


Answer = Callable[[Batch], Sequence[NDArray[Any]]]
"""The outputs of one batch of the trial's size."""


@dataclass(frozen=True)
class ReferenceSet:
    """Inputs that an external load generator (LoadGen) requests one by one, and the expected outputs."""

    size: int
    answers: Callable[[Sequence[int]], list[tuple[NDArray[Any], ...]]]
    """The outputs of the inputs with these numbers."""
    expected: tuple[NDArray[Any], ...]
    """The same engine's outputs when it is called directly: each output, (size, ...)."""


@dataclass(frozen=True)
class SampleOutput:
    """A worker's outputs for the first input, for comparison with the other workers."""

    outputs: Sequence[NDArray[Any]] = ()
    input_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class OpenWorkload:
    """An open workload: the work, the cost of opening it, and the checks and metrics available after the window."""

    work: Work
    model: ModelInfo
    effective: Callable[[], Effective]
    """Returns the device, precision and threads that the engine ran with, read back from it."""
    verify: Callable[[Machine], GateOutcome | None] = lambda machine: None
    """Returns whether its outputs are right, or why that cannot be judged; None if there is no such question."""
    facts: Mapping[str, Field] = field(default_factory=dict)
    """build_s, load_s, first_s: what happened before steady state, in seconds."""
    artifact: Mapping[str, Json] = field(default_factory=dict)
    failure: Callable[[], str] = lambda: ""
    """Returns the text of the first unit that failed, or ''."""
    breakdown: Callable[[], Spans] = Spans.none
    """Does a few more units and returns where the time of each went; called once, after the window."""
    metrics: Callable[[Queries, Window], Mapping[str, Field]] = lambda rows, window: {}
    """Returns the workload's own metrics of the window, whose rows are given; what lies before or after is left out.

    Called once, after the window, before `breakdown`, whose they override. Of several workers each is asked for its own
    part of the window that all share, and metrics.toml says how the answers become one (`edgescope docs add-a-metric`).
    """
    warmed: bool | None = None
    """Whether it has warmed up while it was opened, and settled; None: it has not tried, so its units show it."""
    watched: Callable[[], None] = lambda: None
    """Does more work after the window, outside of every figure of it, while the sensors are still read."""
    review: Callable[[Result], Result] = lambda result: result
    """Returns the Result with what only all of it tells; called last, with the work closed. Not of several workers."""
    sample_output: Callable[[], SampleOutput] = SampleOutput
    reference_set: Callable[[], ReferenceSet | None] = lambda: None


class Parts(Protocol):
    """The models and backends that a workload may use; bench, which alone composes, provides them."""

    @property
    def folder(self) -> Path:
        """Return the artifact cache."""

    def model(self, trial: Trial) -> Model:
        """Return the model that a trial names, with its shapes and batch."""

    def backend(self, name: str) -> Backend:
        """Return the engine called `name`."""

    def reference(self, name: str) -> Backend:
        """Return the engine called `name` on this machine, which computes fp32 answers wherever the trial runs."""


class Workload(Protocol):
    """One kind of work."""

    OPTIONS: ClassVar[Mapping[str, Option]]
    """The options that Trial.workload_options may hold, by name."""

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Build the artifacts that `open` would otherwise build, in a process that does not measure."""

    def open(self, trial: Trial, parts: Parts) -> AbstractContextManager[OpenWorkload]:
        """Return a context that holds the open work."""


@runtime_checkable
class Tunable(Protocol):
    """Optional for a workload: it has settings of its own that change speed and not answers."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]]
    """Device -> what a search tries with every engine: fields of the trial, those that are tables merged into it."""


@runtime_checkable
class Choosy(Protocol):
    """Optional for a workload: some engines and settings cannot do its work, which a search need not try."""

    def check(self, trial: Trial) -> None:
        """Raise UnsupportedError for a trial that would be refused, before anything is built."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that owns its loop, ready to run; bench watches it but does not drive it."""

    model: ModelInfo
    drive: Callable[[], Sequence[ProgramRun]]
    """Runs it in all of the trial's processes at once."""
    verify: Callable[[ProgramRun, Machine], GateOutcome | None]
    artifact: Mapping[str, Json]


@runtime_checkable
class RunsPrograms(Protocol):
    """Optional for a workload: it supports engines that are programs with their own loop (trtexec)."""

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return the program that does this trial's work, or None if edgescope drives it."""


class NullWork:
    """Calls `done` at once."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Do nothing."""
        done(query_id, 0)

    def flush(self) -> None:
        """Return at once: nothing is ever outstanding."""


class NullWorkload:
    """Opens nothing."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Prepare the model's artifact, so that an error in its name or engine is reported."""
        read("null", trial.workload_options, self.OPTIONS)
        parts.backend(trial.backend).prepare(parts.model(trial), spec_of(trial), parts.folder)

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Hold work that does nothing."""
        yield OpenWorkload(
            work=NullWork(),
            model=parts.model(trial).info,
            effective=lambda: Effective("cpu", trial.precision),
            verify=lambda machine: NOTHING,
        )
