"""The workload seam: a kind of work that the load generator can offer, one unit at a time.

An inference, a training step and a video frame are the same to the load generator. What a unit is, how it is made
ready, whether it was done right and what its time went to is the workload's own affair: bench asks, and knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from numpy.typing import NDArray

from edgescope.backends.base import Backend, Driven
from edgescope.models.base import Batch, Model
from edgescope.options import Option
from edgescope.records import Effective, Field, Json, Machine, ModelInfo, Spans, Trial, Verification


class Done(Protocol):
    """Says that one unit is done: from any thread, in any order, once its results are truly there."""

    def __call__(self, query_id: int, status: int, samples: int = 0, source_ns: int = -1, /) -> None:
        """Note it. `samples`: how many it held, where they are not the trial's batch (a last, partial one).

        `source_ns`: when what it answers came into being (a camera's exposure), on the monotonic clock.
        """


class EndOfInput(Exception):
    """Raised by `Work.issue` where nothing is left to do; the unit that met it does not count."""


class Work(Protocol):
    """What the load generator sees: it takes units and tells when each is done."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start (or do) one unit and call `done` once when its results are there; EndOfInput where none is left."""

    def flush(self) -> None:
        """Return when everything issued has at least been started."""


Answer = Callable[[Batch], Sequence[NDArray[Any]]]
"""The outputs of one batch of the trial's size."""


@dataclass(frozen=True)
class Exam:
    """Inputs that a load generator of its own (LoadGen) asks one by one, and the answers it should be given."""

    size: int
    answers: Callable[[Sequence[int]], list[tuple[NDArray[Any], ...]]]
    """The outputs of the inputs with these numbers."""
    expected: tuple[NDArray[Any], ...]
    """What the same engine answers when it is asked directly: each output, (size, ...)."""


@dataclass(frozen=True)
class Glimpse:
    """What a worker makes of the first input, for comparison with the other workers."""

    outputs: Sequence[NDArray[Any]] = ()
    input_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A workload that is open: the work, what opening it cost, and what it can say after the window."""

    work: Work
    model: ModelInfo
    effective: Callable[[], Effective]
    """What the engine did, read back from it."""
    verify: Callable[[Machine], Verification | None] = lambda machine: None
    """Whether it does the right thing; None where nothing can tell right from wrong."""
    facts: Mapping[str, Field] = field(default_factory=dict)
    """build_s, load_s, first_s: what happened before steady state, in seconds."""
    artifact: Mapping[str, Json] = field(default_factory=dict)
    failure: Callable[[], str] = lambda: ""
    """Text of the first unit that failed, or ''."""
    breakdown: Callable[[], Spans] = Spans.none
    """Does a few more units and says what the time of each went to; asked once, after the window."""
    metrics: Callable[[], Mapping[str, Field]] = dict
    """The workload's own metrics, asked once after the window and before the breakdown; they outrank its figures."""
    glimpse: Callable[[], Glimpse] = Glimpse
    exam: Callable[[], Exam | None] = lambda: None


class Parts(Protocol):
    """The members of other families that a workload is put together from; given by bench, which alone composes."""

    @property
    def folder(self) -> Path:
        """Return the artifact cache."""

    def model(self, trial: Trial) -> Model:
        """Return the model that a trial names, with its shapes and batch."""

    def backend(self, name: str) -> Backend:
        """Return the engine of that name."""


class Workload(Protocol):
    """One kind of work."""

    OPTIONS: ClassVar[Mapping[str, Option]]
    """What Trial.workload_options may hold, by name."""

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Make whatever opening would have to make, in a process that does not measure."""

    def open(self, trial: Trial, parts: Parts) -> AbstractContextManager[Opened]:
        """Return a context that holds the open work."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that owns its loop, ready to run: it is watched, not driven."""

    model: ModelInfo
    drive: Callable[[], Driven]
    verify: Callable[[Driven, Machine], Verification | None]
    artifact: Mapping[str, Json]


@runtime_checkable
class RunsPrograms(Protocol):
    """Optional, of a workload: some engines are programs that own their loop (trtexec)."""

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return the program that does this trial's work, None where edgescope drives it."""
