"""What a diagnosis is made of: evidence, remedies, findings, and the answer: the cause, which may be `unknown`.

Findings are ordered by the share of the time that they explain, less where they are less sure. Why a stage is slow
goes before which stage is slow. Two causes of the same depth that both claim most of the time cannot both be right: the
cause is then unknown, unless something that was tried decides between them. A cause that evidence speaks against is
ruled out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "spinning threads": "threads wait for each other on CPUs that other programs want, and compute next to nothing",
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


WORTH = 0.12
"""A cause that explains less of the time than this is not worth a change."""
MATTERS = 0.17
"""Waste of at least this weight goes before what a machine naturally is bound by."""
STANDS_FOR = 0.6
"""A more specific cause that explains this share of what a general one does stands for it."""
OVERFULL = 1.25
"""Two causes whose shares add to more than this contradict each other."""
NATURAL = frozenset({"compute-bound", "memory-bound"})
"""Causes that say that the machine does what it can: whatever wastes time goes before them."""
OUTSIDE = frozenset(
    {
        "offered load",
        "quota",
        "throttled",
        "contention",
        "oversubscription",
        "spinning threads",
        "too few threads",
    }
)
"""Causes that slow down all parts alike: their shares are no rivals of a part's."""


def judged(result: Result | None, found: Sequence[Finding], missing: tuple[str, ...] = ()) -> Diagnosis:
    """Return the diagnosis from the findings of every cause."""
    against = [f for f in found if _refuted(f)]
    small = [f for f in found if f not in against and f.weight < WORTH]
    left = sorted((f for f in found if f not in against and f not in small), key=lambda f: -f.weight)
    ruled_out = (*against, *small)
    if not left:
        return Diagnosis(result, (), _nothing(ruled_out), ruled_out, missing)
    ordered = _waste_first(_specific_first(left))
    if rival := _rival(ordered):
        first = ordered[0]
        reason = (
            f"{first.name} explains {first.share:.0%} of the time and {rival.name} {rival.share:.0%}: "
            "they cannot both be right, and nothing that was tried decides between them"
        )
        return Diagnosis(result, (), reason, (*ordered, *ruled_out), missing)
    return Diagnosis(result, tuple(ordered), "", ruled_out, missing)


def _refuted(finding: Finding) -> bool:
    """Return whether as much speaks against a finding as for it."""
    against = sum(e.against for e in finding.evidence)
    return (
        against > 0
        and against >= len(finding.evidence) - against
        and (finding.confidence is not Confidence.CONFIRMED)
    )


def _nothing(ruled_out: Sequence[Finding]) -> str:
    if not ruled_out:
        return "no cause fits the figures that were measured"
    most = max(ruled_out, key=lambda f: f.weight)
    return (
        f"no cause explains enough of the time; the most that one explains is {most.share:.0%} ({most.name})"
    )


def _specific_first(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with a more specific one before the general one that it explains."""
    ordered = list(found)
    for special in sorted(found, key=lambda f: f.depth):
        at = ordered.index(special)
        for i, general in enumerate(ordered[:at]):
            same = not special.part or not general.part or special.part == general.part or general.depth == 0
            if general.depth < special.depth and same and special.share >= STANDS_FOR * general.share:
                ordered.insert(i, ordered.pop(at))
                break
    return ordered


def _waste_first(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with those of NATURAL after all that waste time for sure, and after why a part wastes it."""
    sure = [f for f in found if f.confidence is not Confidence.POSSIBLE and f.cause not in NATURAL]
    much = [f for f in sure if f.weight >= MATTERS]
    waste = [f for f in sure if f in much or any(_says_why(f, general) for general in much)]
    return [*waste, *(f for f in found if f not in waste)]


def _says_why(special: Finding, general: Finding) -> bool:
    """Return whether a finding tells why the part is slow that another one names."""
    same = special.part == general.part != ""
    return same and special.depth > general.depth and special.share >= STANDS_FOR * general.share


def _rival(ordered: Sequence[Finding]) -> Finding | None:
    """Return the finding that contradicts the first one, or None."""
    first = ordered[0]
    if first.cause in OUTSIDE or first.confidence is Confidence.CONFIRMED:
        return None
    for other in ordered[1:]:
        alike = other.depth == first.depth and other.cause not in OUTSIDE and other.part == first.part
        sure = other.confidence is not Confidence.POSSIBLE or first.confidence is Confidence.POSSIBLE
        if alike and sure and first.share + other.share > OVERFULL:
            return other
    return None
