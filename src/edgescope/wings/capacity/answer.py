"""Decide which number of clients to try next, and combine the runs into a capacity answer.

Three facts bound the answer before anything is searched: the closed loop's throughput (what one process can answer),
the queue it would feed (analysis.predict.queueing), and one client (less cannot be offered). The search starts from
there, steps by one twentieth and soon doubles the step until it has one number that fits and one that does not,
bisects between them, and repeats a run next to the edge if its result was not clear.

Two things can weaken a capacity answer: a disturbed machine, and a client that is served worse than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgescope import units
from edgescope.analysis.cells.objective import Constraint
from edgescope.analysis.run.open_loop import measured_rows
from edgescope.errors import Message
from edgescope.records import Field, Queries, Trust
from edgescope.stats import percentile
from edgescope.wings.capacity.constraints import Point, timed
from edgescope.wings.capacity.limit import Limit, binding

#: A number of clients does not fit when it clearly failed, or failed this often.
FAILURES = 2


@dataclass(frozen=True)
class Tried:
    """One short run: whether it fits, and whether a repetition would almost surely agree."""

    clients: int
    fits: bool
    clear: bool = True


@dataclass(frozen=True)
class Edge:
    """The most clients known to fit (0: none yet) and the fewest known not to fit (None: none yet)."""

    fits: int = 0
    misses: int | None = None
    open: bool = False
    """Whether the miss rests on a single run that was not clear."""

    @property
    def adjacent(self) -> bool:
        """Whether no number lies between the two."""
        return self.misses is not None and self.misses - self.fits == 1


def edge(tried: Sequence[Tried]) -> Edge:
    """Return the edge that these runs show; a number that fitted once counts as fitting."""
    fitted = {t.clients for t in tried if t.fits}
    missed = sorted({t.clients for t in tried} - fitted)
    # if a larger number fits, a miss at a smaller one is noise
    top = max(fitted, default=0)
    misses = next((n for n in missed if n > top or _sure(tried, n)), None)
    below = max((n for n in fitted if misses is None or n < misses), default=0)
    return Edge(below, misses, misses is not None and not _sure(tried, misses))


def _sure(tried: Sequence[Tried], clients: int) -> bool:
    runs = [t for t in tried if t.clients == clients]
    return any(t.clear for t in runs) or len(runs) >= FAILURES


def following(tried: Sequence[Tried], estimate: int, most: int) -> int | None:
    """Return the number of clients to try next, or None if the edge is known or `most` fit."""
    known = edge(tried)
    if not tried:
        return min(max(1, estimate), most)
    if known.adjacent:
        return known.misses if known.open else None
    ups, downs = len({t.clients for t in tried if t.fits}), len({t.clients for t in tried if not t.fits})
    stride = max(1, round(estimate / 20))
    if known.misses is None:
        return None if known.fits >= most else min(most, known.fits + (stride << max(0, ups - 2)))
    if known.fits == 0:
        return max(1, known.misses - (stride << max(0, downs - 2)))
    return (known.fits + known.misses) // 2


@dataclass(frozen=True)
class Terms:
    """The terms of the question how many clients can be served with all constraints kept."""

    subject: str
    """The model and how it runs."""
    rate: float
    """Queries per second of one client."""
    constraints: tuple[Constraint, ...]
    server_processes: str = "one"
    arrivals: str = "poisson"
    in_flight: int = 1
    confirm_s: float = 30.0

    @property
    def client(self) -> str:
        """The word for one client: camera if each is periodic."""
        return "camera" if self.arrivals == "camera" else "client"


@dataclass(frozen=True)
class Capacity:
    """How many clients fit, the runs that show it, and the limit that keeps one more out."""

    terms: Terms
    clients: int
    confirmed: Point | None
    """The sustained run at the answer; None if not one client fits."""
    above: Point | None
    """The run that shows that more do not fit; None if none was tried."""
    limit: Limit
    points: tuple[Point, ...]
    throughput: Field
    """Queries per second of the closed loop: one process that is never idle, in_flight queries at a time."""
    warnings: tuple[Message, ...] = ()


def answer(
    terms: Terms, points: Sequence[Point], throughput: Field, warnings: Sequence[Message] = ()
) -> Capacity:
    """Return the capacity: the largest number confirmed, and the least number above it that does not fit."""
    confirmed = max(
        (p for p in points if p.stage == "confirm" and p.shown), key=lambda p: p.clients, default=None
    )
    clients = confirmed.clients if confirmed else 0
    missed = [p for p in points if p.clients > clients and not p.shown and not p.fits]
    missed += [p for p in points if p.clients > clients and p.stage == "confirm" and not p.shown]
    above = min(missed, key=lambda p: (p.clients, p.stage != "confirm", -p.seconds), default=None)
    return Capacity(
        terms,
        clients,
        confirmed,
        above,
        binding(above, confirmed, terms.in_flight),
        tuple(points),
        throughput,
        tuple(warnings),
    )


def doubts(found: Capacity) -> tuple[Message, ...]:
    """Return the warnings about the run on which the answer rests."""
    rests_on = found.confirmed or found.above
    if rests_on is None or not rests_on.held:
        return ()
    unequal = _unequal(found.confirmed) if found.confirmed else None
    return tuple(said for said in (_untrusted(rests_on), unequal) if said)


def _untrusted(point: Point) -> Message | None:
    verdict = point.result.verdict
    if verdict.trust is Trust.CLEAN:
        return None
    what = f"the run that the answer rests on is {verdict.trust.value}"
    effect = "The answer holds for the machine in the state of that run"
    fix = "the same command with --no-cache on a quiet machine"
    return Message("W-CAP-3", what, evidence="; ".join(verdict.evidence[:2]), effect=effect, fix=fix)


def _unequal(point: Point) -> Message | None:
    """Return a warning if a client with its own process misses a constraint that all clients together get."""
    if point.result.trial.processes == 1:
        return None
    rows = measured_rows(point.result)
    for constraint in (h.constraint for h in point.held if h.constraint.quantile is not None):
        q = constraint.quantile or 0.0
        each = [timed(constraint, _of(rows, n)) for n in range(point.result.trial.processes)]
        worst = max((percentile(x, q) for x in each if len(x) * (1 - q) >= 1), default=0.0)
        if not constraint.holds(worst):
            return Message(
                "W-CAP-4",
                f"the worst client's own {constraint.name} is {units.text(worst, 's')}",
                evidence=f"promised {units.text(constraint.limit, 's')}, which all clients together keep",
                effect="The promise does not hold for each of them",
                fix="--sharing pinned, or --server-processes one",
            )
    return None


def _of(rows: Queries, worker: int) -> Queries:
    """Return the rows of one worker."""
    mine = rows.columns["worker"] == worker
    return Queries({name: column[mine] for name, column in rows.columns.items()})
