"""The offload answer: edge, cloud or shared among devices, why, the network that changes it, and what was assumed.

Edge and cloud are compared first, by the objective; if their intervals overlap the edge stays, because it needs
no network. If neither keeps the constraints, queries are shared: over more boards, or between board and cloud.

The break-even curve has two borders over the round trip: for each, the least bandwidth at which the cloud is as good,
or good enough. Each is found by bisection (a network can be ordered: more bandwidth never hurts):

* equal: the cloud's p99 (p50 if there are too few rows for a p99) equals the edge's;
* fits: the cloud keeps every constraint, judged on the worse end of the interval.

Below a border the edge is better, or the cloud breaks a constraint. The border ends at the round trip from which no
bandwidth helps, because round trip and remote service alone are too long; the Curve names that round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgescope.analysis.cells.row import Row
from edgescope.records import Absent, Field, Measured
from edgescope.wings.offload.model import (
    MOST_BOARDS,
    SHARES,
    Draws,
    Model,
    Option,
    cloud,
    edge,
    judged,
    part,
    rows_behind,
    saturated,
    timed,
    untimed,
)
from edgescope.wings.offload.network import (
    FASTEST_BPS,
    LONGEST_S,
    Floats,
    Profile,
    bandwidth,
    with_bandwidth,
    with_rtt,
)

LEAST_BPS = 1e3
LEAST_SHARE = 0.01
"""A smaller part of the queries is not worth sharing."""
STEPS = 18
"""Halvings of a search over ten decades: the border is known to 0.01 decades (2 %) or better."""


@dataclass(frozen=True)
class Flip:
    """The value (`at`, in SI) of one network property at which the answer changes, and the answer beyond it."""

    what: str
    """bandwidth or rtt."""
    at: float
    becomes: str
    below: bool
    """Whether the other answer holds below `at`."""


@dataclass(frozen=True)
class Answer:
    """One decision with everything behind it."""

    options: tuple[Option, ...]
    pick: Option | None
    """None if nothing keeps the constraints."""
    reason: str
    nearest: Option | None = None
    """If there is no pick: the option that breaks the constraints the least."""


def answer(model: Model, network: Profile) -> Answer:
    """Return the decision for this network, with every option that was weighed."""
    rate = model.request.rate
    near, far = edge(model, rate), cloud(model, network, rate)
    if rate is None or near.fits or far.fits:
        shared: list[Option] = []
    else:
        shared = [o for o in (boards(model, rate), split(model, network, rate)) if o]
    options = (near, far, *shared)
    chosen = _better(model, [o for o in (near, far) if o.fits]) or _better(
        model, [o for o in shared if o.fits]
    )
    if chosen is None:
        nearest = min(options, key=lambda o: _excess(model, o))
        return Answer(
            options, None, f"nothing keeps the constraints; the nearest is {nearest.words}", nearest
        )
    return Answer(options, chosen, _why(model, options, chosen))


def kind(model: Model, network: Profile) -> str:
    """Return the kind of answer (edge, cloud, shared or nothing), which a change of the network can flip."""
    rate = model.request.rate
    fit = [o for o in (edge(model, rate), cloud(model, network, rate)) if o.fits]
    best = _better(model, fit)
    return best.name if best else "neither"


def boards(model: Model, rate: float) -> Option | None:
    """Return the option of the fewest boards (2 to MOST_BOARDS) that keeps the constraints, else of the most."""
    found = None
    for n in range(2, MOST_BOARDS + 1):
        found = edge(model, rate, n)
        if found.fits:
            return found
    return found


def split(model: Model, network: Profile, rate: float) -> Option | None:
    """Return the split in which the edge takes as much as the constraints allow, or None if it can take nothing."""
    own = part(model.wanted)

    def fits(share: float) -> bool:
        return judged(edge(model, rate * share), own, _only_saturation(edge(model, rate * share))).fits

    low, high = 0.0, 1.0
    for _ in range(SHARES // 2):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low < LEAST_SHARE:
        return None
    return _mixed(model, network, rate, low)


def _only_saturation(option: Option) -> tuple[str, ...]:
    return tuple(text for text in option.broken if "saturated" in text)


def _mixed(model: Model, network: Profile, rate: float, kept: float) -> Option:
    """Return the option of edge and cloud together: the share `kept` stays, and each side must keep the constraints."""
    near, far = edge(model, rate * kept), cloud(model, network, rate * (1 - kept), whole=False)
    over = _only_saturation(far)
    row = untimed(near.figures, over[0]) if over else _mixture(model, network, rate, kept)
    figures = row.having(
        throughput_sps=_sum(near.figures["throughput_sps"], far.figures["throughput_sps"]),
        energy_per_sample_j=_weighted(
            near.figures["energy_per_sample_j"], far.figures["energy_per_sample_j"], kept
        ),
        power_w=Absent("sending while computing was not run, so its power is not measured"),
    )
    words = f"{kept:.0%} at the edge, {1 - kept:.0%} in the cloud"
    mixed = judged(
        Option("split", words, figures, (*near.busy, *far.busy), share=1 - kept), model.wanted, over
    )
    return replace(mixed, broken=tuple(f"the cloud's part: {b}" for b in far.broken) or mixed.broken)


def _mixture(model: Model, network: Profile, rate: float, kept: float) -> Row:
    """Return the percentiles over the queries of both sides: the draws of both, in proportion."""

    def mixed(draws: Draws) -> Floats:
        near = model.edge_s(draws, rate * kept)
        far = model.cloud_s(draws, network, rate * (1 - kept))
        here = np.random.default_rng(model.request.seed).uniform(size=near.shape) < kept
        return np.where(here, near, far)

    rows = min(model.local.service.n, rows_behind(model, network))
    return timed(model.local.row, mixed(model.points), mixed(model.ends), rows)


def _sum(a: Field, b: Field) -> Field:
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if isinstance(a, Absent) else b
    return Measured(a.value + b.value, a.unit, n=min(a.n, b.n))


def _weighted(a: Field, b: Field, share: float) -> Field:
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if isinstance(a, Absent) else b
    return Measured(a.value * share + b.value * (1 - share), a.unit, n=min(a.n, b.n))


def _better(model: Model, options: Sequence[Option]) -> Option | None:
    """Return the best option by the objective: the first (least network) unless another is clearly better."""
    if not options:
        return None
    best = options[0]
    for other in options[1:]:
        if clearly_better(model, other, best):
            best = other
    return best


def clearly_better(model: Model, a: Option, b: Option) -> bool:
    """Whether a beats b by the objective with intervals that do not overlap; False if a was not measured."""
    goal = model.wanted.goal
    x: Field = a.figures[goal.name]
    y: Field = b.figures[goal.name]
    if isinstance(x, Absent) or isinstance(y, Absent):
        return isinstance(y, Absent) and isinstance(x, Measured) and not b.fits
    if goal.higher:
        return (x.value if x.lo is None else x.lo) > (y.value if y.hi is None else y.hi)
    return (x.value if x.hi is None else x.hi) < (y.value if y.lo is None else y.lo)


def _excess(model: Model, option: Option) -> float:
    """Return how far the worst constraint is exceeded; a saturated queue is worse than any."""
    if _only_saturation(option):
        return float("inf")
    return max((c.excess(option.figures.metrics) for c in model.wanted.constraints), default=1.0)


def _why(model: Model, options: Sequence[Option], chosen: Option) -> str:
    """Return the reason in a sentence."""
    near, far = options[0], options[1]
    goal = model.wanted.goal.best
    if chosen.name in ("boards", "split"):
        return "neither one board nor the cloud alone keeps the constraints; shared, they are kept"
    other = far if chosen is near else near
    if not other.fits:
        return f"{other.words} it would not do: {other.broken[0]}"
    ours, theirs = (o.figures[model.wanted.goal.name] for o in (chosen, other))
    if isinstance(theirs, Absent):
        return f"{goal}; {other.words} it is not known ({theirs.reason})"
    if isinstance(ours, Absent):
        return f"both keep the constraints; {goal} is not known {chosen.words} ({ours.reason})"
    if clearly_better(model, chosen, other):
        return f"{goal}, and both keep the constraints" if model.wanted.constraints else goal
    return "the two are not clearly apart, and the edge needs no network"


def flips(model: Model, network: Profile) -> list[Flip]:
    """Return the values of bandwidth and round trip at which the answer flips, all else equal; at most one each way."""
    found = []
    for what, span, moved, here in (
        ("bandwidth", (LEAST_BPS, FASTEST_BPS), with_bandwidth, network.up_bps),
        ("rtt", (1e-5, LONGEST_S), with_rtt, max(network.rtt_s, 1e-5)),
    ):
        for end in span:

            def then(x: float, moved: Callable[[Profile, float], Profile] = moved) -> str:
                return kind(model, moved(network, x))

            at = _flip_at((here, end), then)
            if at is not None:
                found.append(Flip(what, at, then(at), end < here))
    return found


def _flip_at(span: tuple[float, float], then: Callable[[float], str]) -> float | None:
    """Return the value in `span` from which the answer differs from that at span[0], or None if it never does."""
    here, end = span
    now = then(here)
    if here == end or then(end) == now:
        return None
    for _ in range(STEPS):
        middle = float(np.sqrt(here * end))
        here, end = (middle, end) if then(middle) == now else (here, middle)
    return end


def time_limit_s(model: Model) -> tuple[str, float] | None:
    """Return the tightest latency constraint as (percentile, seconds), or None if there is none."""
    times = [c for c in model.wanted.constraints if c.quantile]
    tightest = min(times, key=lambda c: c.limit, default=None)
    return (tightest.name, tightest.limit) if tightest else None


# -- the break-even curve -------------------------------------------------------------------------------------


MOST_BPS = 1e12
CURVE_STEPS = 12
"""Halvings of nine decades: 0.5 %."""
CURVE_POINTS = 14


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
    return [float(x) for x in np.geomspace(top / 50, top, CURVE_POINTS)]


def _border(network: Profile, rtt_s: float, good: Callable[[Profile], bool]) -> float | None:
    """Return the least bandwidth up at which `good` holds, None if it never does, 0 if it always does."""
    at = with_rtt(network, rtt_s)
    low, high = LEAST_BPS, MOST_BPS
    if not good(with_bandwidth(at, high)):
        return None
    if good(with_bandwidth(at, low)):
        return 0.0
    for _ in range(CURVE_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if good(with_bandwidth(at, middle)) else (middle, high)
    return high


def _last(network: Profile, good: Callable[[Profile], bool]) -> float | None:
    """Return the longest round trip at which some bandwidth is enough, or None if none is, even at the shortest."""
    wide = with_bandwidth(network, MOST_BPS)
    low, high = 1e-6, 10.0
    if not good(with_rtt(wide, low)):
        return None
    for _ in range(2 * CURVE_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if good(with_rtt(wide, middle)) else (low, middle)
    return low


# -- all of it together ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Everything that is printed, drawn and written."""

    model: Model
    network: Profile
    answer: Answer
    flips: tuple[Flip, ...]
    curve: Curve
    limit: tuple[str, float] | None
    """The tightest constraint on a latency: (p99, 0.05)."""
    notes: tuple[str, ...]
    """Warnings first, then assumptions."""


def question(model: Model, network: Profile, notes: Iterable[str] = ()) -> Question:
    """Return the whole answer for a network."""
    return Question(
        model,
        network,
        answer(model, network),
        tuple(flips(model, network)),
        curve(model, network),
        time_limit_s(model),
        (*notes, *_assumed(model, network)),
    )


def _assumed(model: Model, network: Profile) -> list[str]:
    """Return the assumptions behind the figures: everything that was not measured."""
    out = []
    if not network.measured:
        shape = "without jitter" if network.jitter_s == 0 else "RTT jitter modelled as exponential"
        out.append(f"the network was given, not measured: {shape}")
    if network.loss_absent:
        out.append(f"loss: {network.loss_absent}; none is added")
    for way in ("up", "down"):
        got, given = bandwidth(network, way), network.up_bps if way == "up" else network.down_bps
        if got < given:
            out.append(
                f"{network.loss:.2g} lost at {network.rtt_s * 1e3:.3g} ms hold one TCP connection to "
                f"{got / 1e6:.3g} Mbit/s {way} (Mathis 1997), below the {given / 1e6:.3g} given"
            )
    if model.request.rate is not None:
        kind = "at random (Poisson)" if model.request.poisson else "at a steady beat"
        out.append(f"queries arrive {kind}; waiting is modelled from measured service times")
    sent = model.request.radio_w is not None or model.request.radio_j_per_mb is not None
    if sent and not isinstance(model.local.idle_power_w, Absent):
        out.append(
            "energy of sending: the radio as given, and the board's measured idle power until the answer is back"
        )
    return out
