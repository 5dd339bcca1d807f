"""How far two clocks are apart, from questions and answers over a pipe.

The host notes its clock, the board says its own when the question arrives, the host notes its clock again. The board's
moment lies between the two; the middle is taken, half the round trip is the uncertainty, and the shortest round trip
knows best (Cristian 1989; NTP, RFC 5905, does the same). Two such estimates some time apart give the drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgescope.records import Json

Ping = tuple[float, float, float]
"""(host before, board, host after), each in seconds of its own monotonic clock."""
PINGS = 8


@dataclass(frozen=True)
class Offset:
    """The board's clock less the host's at one moment of the host's."""

    at_s: float
    offset_s: float
    uncertainty_s: float
    """The true offset lies within this of `offset_s`, whatever the way there and back took."""
    pings: int


def offset(pings: Sequence[Ping]) -> Offset:
    """Return the offset by the shortest round trip; ValueError where there is none."""
    before, board, after = min(pings, key=lambda ping: ping[2] - ping[0])
    middle = (before + after) / 2
    return Offset(middle, board - middle, (after - before) / 2, len(pings))


def told(first: Offset, last: Offset | None) -> dict[str, Json]:
    """Return what a Result says of the two clocks; the drift only where it exceeds its own uncertainty."""
    out: dict[str, Json] = {
        "clock": "CLOCK_MONOTONIC of the board",
        "offset_to_host_s": first.offset_s,
        "offset_uncertainty_s": first.uncertainty_s,
        "pings": first.pings,
    }
    if last is None or last.at_s <= first.at_s:
        return out | {"drift_ppm": {"absent": "the clocks were compared once only"}}
    change, unsure = last.offset_s - first.offset_s, first.uncertainty_s + last.uncertainty_s
    lasted = last.at_s - first.at_s
    out |= {"offset_to_host_after_s": last.offset_s, "offset_uncertainty_after_s": last.uncertainty_s}
    if abs(change) <= unsure:
        bound = f"below {unsure / lasted * 1e6:.0f} ppm: the change is within the uncertainty"
        return out | {"drift_ppm": {"absent": bound}}
    return out | {"drift_ppm": change / lasted * 1e6}
