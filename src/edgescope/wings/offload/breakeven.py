"""The break-even curve: for each round trip, the least bandwidth at which the cloud is as good, or good enough.

Two borders over the round trip, each found by bisection (a network can be ordered: more bandwidth never hurts):

* equal: the cloud's p99 (p50 if there are too few rows for a p99) equals the edge's;
* fits: the cloud keeps every constraint, judged on the worse end of the interval.

Below a border the edge is better, or the cloud breaks a constraint. The border ends at the round trip from which no
bandwidth helps, because round trip and remote service alone are too long; the Curve names that round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgescope.records import Absent, Field, Measured
from edgescope.wings.offload.answer import LEAST_BPS, time_limit_s
from edgescope.wings.offload.model import Model, cloud, edge, saturated
from edgescope.wings.offload.network import Profile
from edgescope.wings.offload.transit import with_bandwidth, with_rtt

MOST_BPS = 1e12
STEPS = 12
"""Halvings of nine decades: 0.5 %."""
POINTS = 14


@dataclass(frozen=True)
class Point:
    """The border at one round trip: bits per second up, None if no bandwidth is enough, 0 if any is."""

    rtt_s: float
    equal_bps: float | None
    fits_bps: float | None


@dataclass(frozen=True)
class Curve:
    """The two borders, with the quantity they compare and the round trips at which they end."""

    points: tuple[Point, ...]
    quantity: str
    """p99 or p50: what `equal` compares."""
    edge_s: Field
    """The edge's own figure; Absent if it cannot carry the load."""
    equal_ends_s: float | None
    """The round trip from which no bandwidth makes the cloud equal; None if there is none."""
    fits_ends_s: float | None
    down_per_up: float


def curve(model: Model, network: Profile) -> Curve:
    """Return the borders around this network; bandwidth down changes with bandwidth up, in proportion."""
    rate = model.request.rate
    own = edge(model, rate).figures
    quantity, target = ("p99", own["p99_s"]) if _comparable(model, network) else ("p50", own["p50_s"])
    equal = _equal(model, target, 0.99 if quantity == "p99" else 0.5)

    def fits(at: Profile) -> bool:
        return cloud(model, at, rate).fits

    grid = _grid(model, network, target)
    points = tuple(Point(x, _border(network, x, equal), _border(network, x, fits)) for x in grid)
    return Curve(
        points,
        quantity,
        target,
        _last(network, equal),
        _last(network, fits),
        network.down_bps / network.up_bps,
    )


def _comparable(model: Model, network: Profile) -> bool:
    """Whether both sides have enough rows for a p99."""
    own, sent = edge(model, None).figures, cloud(model, network, None).figures
    return isinstance(own["p99_s"], Measured) and isinstance(sent["p99_s"], Measured)


def _equal(model: Model, target: Field, q: float) -> Callable[[Profile], bool]:
    """Return a test whether the cloud is as fast as the edge; an edge that cannot carry the load loses to any cloud."""
    rate = model.request.rate

    def test(at: Profile) -> bool:
        if saturated(model.cloud_busy(at, rate)):
            return False
        if isinstance(target, Absent):
            return True
        return bool(np.quantile(model.cloud_s(model.points, at, rate), q) <= target.value)

    return test


def _grid(model: Model, network: Profile, target: Field) -> list[float]:
    """Return the round trips of the curve: up to the limit, the edge's latency, or 1.5 times the network's."""
    limit = time_limit_s(model)
    scale = [target.value] if isinstance(target, Measured) else []
    scale += [limit[1]] if limit else []
    top = max([*scale, 1.5 * network.rtt_s, 1e-3])
    return [float(x) for x in np.geomspace(top / 50, top, POINTS)]


def _border(network: Profile, rtt_s: float, good: Callable[[Profile], bool]) -> float | None:
    """Return the least bandwidth up at which `good` holds, None if it never does, 0 if it always does."""
    at = with_rtt(network, rtt_s)
    low, high = LEAST_BPS, MOST_BPS
    if not good(with_bandwidth(at, high)):
        return None
    if good(with_bandwidth(at, low)):
        return 0.0
    for _ in range(STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if good(with_bandwidth(at, middle)) else (middle, high)
    return high


def _last(network: Profile, good: Callable[[Profile], bool]) -> float | None:
    """Return the longest round trip at which some bandwidth is enough, or None if none is, even at the shortest."""
    wide = with_bandwidth(network, MOST_BPS)
    low, high = 1e-6, 10.0
    if not good(with_rtt(wide, low)):
        return None
    for _ in range(2 * STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if good(with_rtt(wide, middle)) else (low, middle)
    return low
