"""The scope of a result's watts, that is, the part of the machine they cover: figures of two scopes are never compared.

A module's rail, a GPU board's counter and a plug at the wall see different consumers, so one variant may look
twice as frugal as another only because of its meter. Two rails share a scope's name and still feed different parts.

A power or energy of one run has either a 95 % interval or bounds that hold for certain. Only energy per sample has an
interval within one run (window.py); every other pair of ends bounds the energy that the meter may have missed. The
two answer different questions and may differ widely in width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from edgescope.records import Absent, Field, Measured, Result


def scope(result: Result) -> str:
    """Return the scope of a result's watts, with the rail's name if it is one rail; '' if none is known."""
    if result.meter is None:
        return ""
    return f"rail {result.meter.name}" if result.meter.scope == "rail" else result.meter.scope


def scopes(results: Iterable[Result]) -> set[str]:
    """Return the scopes that power or energy was measured in.

    For a result without a meter (older results): the scopes of its channels, if they are loaded.
    """
    found: set[str] = set()
    for result in results:
        if result.meter is not None:
            found.add(scope(result))
        elif result.readings is not None and not isinstance(result.metrics.get("power_w"), Absent):
            channels = result.readings.channels
            found |= {c.scope for c in channels if c.unit in ("W", "J") and c.status == "measured"}
    return found


def usual(results: Sequence[Result]) -> str:
    """Return the most frequent scope of these results (the first of equals), or '' if none is known."""
    counted = Counter(filter(None, map(scope, results)))
    return counted.most_common(1)[0][0] if counted else ""


def within(field: Field, results: Sequence[Result], wanted: str) -> Field:
    """Return a power or energy field of these results, or Absent if one was measured in another scope."""
    others = sorted({s for s in map(scope, results) if s} - {wanted})
    if not wanted or not others or not isinstance(field, Measured):
        return field
    return Absent(f"measured in scope {', '.join(others)}, the others in {wanted}: not comparable")


def ends(field: Field | None, whole: Field | None) -> str:
    """Return `bounds`, `95 % over 12 blocks`, or '' if it has no ends; `whole` is the energy of the same window.

    Bounds come from dividing those of the whole window, so they count the same updates; blocks are fewer.
    """
    if field is None or isinstance(field, Absent) or field.lo is None or field.hi is None:
        return ""
    if field.unit != "J" or whole is None or isinstance(whole, Absent) or field.n == whole.n:
        return "bounds"
    return f"95 % over {field.n} blocks"
