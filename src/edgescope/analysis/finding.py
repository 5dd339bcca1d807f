"""What a diagnosis is made of: evidence, remedies, findings, and the answer, which may be `unknown`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from edgescope import units
from edgescope.records import Absent, Field, Json, Measured, Result

UNKNOWN = "unknown"


class Confidence(str, Enum):
    """How sure a finding is."""

    CONFIRMED = "confirmed"
    """Something that removes the cause was tried, and the throughput rose as the cause predicts."""
    LIKELY = "likely"
    """The time was measured directly, and nothing that was tried speaks against it."""
    POSSIBLE = "possible"
    """It fits the figures; other causes would fit them as well."""


WEIGHT: Mapping[Confidence, float] = {
    Confidence.CONFIRMED: 1.0,
    Confidence.LIKELY: 0.85,
    Confidence.POSSIBLE: 0.4,
}


@dataclass(frozen=True)
class Evidence:
    """One sentence with its figures, and where they come from."""

    text: str
    source: str
    against: bool = False
    """Whether it speaks against the cause."""


class Bound(str, Enum):
    """How a predicted gain is meant."""

    NONE = ""
    """It is the gain that is expected."""
    LEAST = "at least"
    MOST = "at most"


CLOSE = 0.2
"""A prediction is right if it is within this share of the gain."""


def between(one: float, other: float) -> tuple[Measured, Bound]:
    """Return the gain between two bounds: their middle if it is close to both, else the lower one as a bound."""
    low, high = sorted((one, other))
    if high <= low * (1 + CLOSE) ** 2:
        return Measured((low * high) ** 0.5, "ratio", low, high), Bound.NONE
    return Measured(low, "ratio", low, high), Bound.LEAST


@dataclass(frozen=True)
class Remedy:
    """What to change, and what that should gain."""

    words: str
    change: Mapping[str, Json] = field(default_factory=dict)
    """Fields of the Trial and their new values; empty if no flag does it."""
    gain: Field = field(default_factory=lambda: Absent("not predicted"))
    """Throughput afterwards over throughput before."""
    basis: str = ""
    """How the gain was computed."""
    bound: Bound = Bound.NONE

    @property
    def promise(self) -> str:
        """Return the gain in words: `1.8x [1.6, 2]`, `at least 2.2x`, or `n/a`."""
        return f"{self.bound.value} {units.ratio(self.gain)}".strip()


@dataclass(frozen=True)
class Finding:
    """A cause that the figures speak for."""

    cause: str
    """A name of CAUSES."""
    share: float
    """Share of a unit's time that would go if the cause went."""
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...] = ()
    part: str = ""
    """The stage or phase that it is about; '' for the whole unit."""
    depth: int = 0
    """How specific it is: why a stage is slow (1) goes before which stage is slow (0)."""
    guessed: bool = False
    """Whether the share is no more than a rank among the causes, because nothing measures it."""

    @property
    def extent(self) -> str:
        """Return how much of the time it explains, in words."""
        return "a part of the time that is not known" if self.guessed else f"{self.share:.0%} of the time"

    @property
    def weight(self) -> float:
        """Return what findings are ordered by: the share, less if it is less sure."""
        return self.share * WEIGHT[self.confidence]

    @property
    def name(self) -> str:
        """Return the cause with its part: `stage-bound (annotate)`."""
        return f"{self.cause} ({self.part})" if self.part else self.cause


@dataclass(frozen=True)
class Diagnosis:
    """The answer: findings, the first one first; none if the cause is unknown."""

    result: Result | None
    """What was explained; None for a trace alone."""
    findings: tuple[Finding, ...]
    reason: str = ""
    """Why the cause is unknown; '' if it is known."""
    ruled_out: tuple[Finding, ...] = ()
    """Causes that evidence speaks against, or that are too small to matter."""
    missing: tuple[str, ...] = ()
    """What would tell more: each a sentence with a command."""

    trace: str = ""
    """The file of the trace that was taken into account; '' for none."""

    @property
    def label(self) -> str:
        """Return the model and its variant, or the name of the trace."""
        if self.result is None:
            return self.trace
        return f"{self.result.trial.model.partition('#')[0]} {self.result.trial.label}"

    @property
    def cause(self) -> str:
        """Return the first cause's name, or `unknown`."""
        return self.findings[0].cause if self.findings else UNKNOWN


#: Cause -> what it means, for a reader.
CAUSES: Mapping[str, str] = {
    "offered load": "the load offers no more; nothing in the machine limits it",
    "quota": "a CPU quota stops the process for a part of each period",
    "throttled": "heat, power or voltage held the clocks down",
    "contention": "other work on the same cores or GPU takes the time",
    "oversubscription": "more threads are ready to run than there are cores",
    "too few threads": "the work uses fewer threads than it may use cores",
    "GIL-bound": "threads compute in Python, which lets one of them run at a time",
    "lock-bound": "threads wait for each other at a lock",
    "fetch-stalled": "it waits for data from a disk, a network or another program",
    "allocation-bound": "the kernel maps and clears fresh memory over and over",
    "decode-bound": "decoding frames takes the time",
    "preprocessing-bound": "preparing the network's input takes the time",
    "postprocessing-bound": "reading the network's output takes the time",
    "stage-bound": "a stage of your own takes the time",
    "optimizer-bound": "updating the weights takes the time",
    "launch-bound": "calling many small operations takes the time, not computing them",
    "compute-bound": "multiplying and adding takes the time: the arithmetic units are busy",
    "memory-bound": "moving weights and activations to the arithmetic units takes the time",
    "no tensor cores": "the arithmetic runs on the ordinary units of a GPU that has tensor cores",
    "transfer-bound": "copying between host and device takes the time",
    "sync-bound": "the host waits for the device again and again within a unit",
}
