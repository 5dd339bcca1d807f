"""Which of the findings is the cause: the one that explains most of the time, or none where they contradict each other.

Findings are ordered by the share of the time that they explain, less where they are less sure. Why a stage is slow
goes before which stage is slow. Two causes of the same depth that both claim most of the time cannot both be right: the
cause is then unknown, unless something that was tried decides between them. A cause that evidence speaks against is
ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.finding import Confidence, Diagnosis, Finding
from edgescope.records import Result

LEAST = 0.12
"""A cause that explains less of the time than this is not worth a change."""
MATTERS = 0.17
"""Waste of at least this weight goes before what a machine naturally is bound by."""
CLOSE = 0.6
"""A more specific cause that explains this share of what a general one does stands for it."""
OVERFULL = 1.25
"""Two causes whose shares add to more than this contradict each other."""
NATURAL = frozenset({"compute-bound", "memory-bound"})
"""Causes that say that the machine does what it can: whatever wastes time goes before them."""
OUTSIDE = frozenset(
    {"offered load", "quota", "throttled", "contention", "oversubscription", "too few threads"}
)
"""Causes that slow down all parts alike: their shares are no rivals of a part's."""


def judged(result: Result | None, found: Sequence[Finding], missing: tuple[str, ...] = ()) -> Diagnosis:
    """Return the diagnosis from the findings of every cause."""
    against = [f for f in found if _refuted(f)]
    small = [f for f in found if f not in against and f.weight < LEAST]
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
            if general.depth < special.depth and same and special.share >= CLOSE * general.share:
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
    return same and special.depth > general.depth and special.share >= CLOSE * general.share


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
