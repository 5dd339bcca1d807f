"""Search how many clients fit: a closed loop, short runs, a sustained run.

The closed loop measures how long a query takes and the highest throughput; the queue that it would feed guesses the
edge. Short open-loop runs then bracket it: the search steps by one twentieth and soon doubles the step until it has one
number that fits and one that does not, bisects between them, and repeats a run next to the edge if its result was not
clear. A run long enough for the upper bound of the promised quantile confirms the answer; if that fails, the search
confirms one client fewer. Every run is a Trial of the loop (search/loop.py), so the store is the only memory: an
interrupted search resumes, and takes the same decisions from the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgescope.analysis.cells.objective import Compliance
from edgescope.analysis.run.usage import usage
from edgescope.errors import Message
from edgescope.records import Absent, Field, Measured, Result, Status, Trial
from edgescope.runner.memory import fitting
from edgescope.search.loop import Step, Strategy
from edgescope.stats import needed, quantile_effective_n
from edgescope.units import counted, lasting
from edgescope.wings.capacity.answer import Capacity, answer, doubts
from edgescope.wings.capacity.keeping_up import measured_rows
from edgescope.wings.capacity.question import (
    CONFIDENCE,
    MEASURED,
    OUT_OF_MEMORY,
    PER_CLIENT,
    RESOURCES,
    SPARE,
    Floats,
    Load,
    Point,
    Question,
    estimate,
    forecast,
    judge,
    judgeable,
    near,
    tail,
    timed,
)

#: Seconds of the closed loop, and the shortest of the open ones.
CLOSED_S, SHORTEST_S = 3.0, 5.0
#: Queries beyond the promised quantile that a short run should hold: their number then varies by some 40 %.
BEYOND = 6
#: Failed confirmations after which the search steps down by more than one client.
PATIENCE = 3
#: First replicate number of the confirming runs; those of the search stay below it.
CONFIRMING = 100
#: Offset of the replicate numbers of a second confirmation (`exhaustive`).
AGAIN = 10
#: The most short runs that a search usually takes.
USUAL_LOOKS = 6
#: Statuses after which no other number of clients can succeed.
HOPELESS = (Status.UNSUPPORTED, Status.WRONG_OUTPUT)


Found = Callable[[Point], None]
Look = Generator[Step, tuple[Result, ...], Point]
"""A strategy of one run; it returns the judged run."""


class Search:
    """One search; afterwards `points` holds its runs, `closed` the closed loop, `warnings` its warnings."""

    def __init__(
        self,
        question: Question,
        folder: Path,
        found: Found = lambda point: None,
    ) -> None:
        self.question, self.folder, self.found = question, folder, found
        """`folder` is the store's folder; the arrival times of cameras are written there."""
        self.closed: Result | None = None
        self.points: list[Point] = []
        self.warnings: list[Message] = []
        self._goes_on = " if it confirms"
        """Until when the estimate of a confirming run holds."""

    @property
    def load(self) -> Load:
        """One client's load, and how many queries the machine probably serves at once."""
        question, servers = self.question, self.question.base.in_flight
        cpu = usage(self.closed).cpu if self.closed and question.server_processes == PER_CLIENT else None
        if isinstance(cpu, Measured) and question.base.place.is_host:
            servers *= max(1, round(1 / max(cpu.value, 0.01)))
        return Load(question.rate, question.arrivals, servers)

    def run(self, *, exhaustive: bool = False) -> Strategy:
        """Search and confirm; stop early if a run shows that no number of clients can succeed (`hopeless`).

        `exhaustive` confirms every number from one client up, until one fails twice; a search saves these runs.
        """
        yield from self._closed_loop()
        if self.closed is not None and self.closed.status in MEASURED:
            yield from self._every() if exhaustive else self._searched()

    def _searched(self) -> Strategy:
        question, tried = self.question, list[Tried]()
        start = estimate(self._service(1), self.load, question.tails, question.confirm_s)
        if question.server_processes == PER_CLIENT and self.closed is not None:
            start = min(start, fitting(self.closed, question.base, question.max_clients))
        clients: int | None = min(start, question.max_clients)
        while clients is not None:
            point = yield from self._look(clients, sum(t.clients == clients for t in tried), edge(tried))
            if self.hopeless:
                return
            tried.append(Tried(clients, point.fits, point.clear and not point.disturbed))
            clients = following(tried, start, question.max_clients)
        yield from self._settle(edge(tried).fits)

    def _settle(self, clients: int) -> Strategy:
        """Confirm the answer; step down until a number of clients is confirmed."""
        failed = 0
        while clients >= 1 and not (yield from self._confirm(clients)).shown and not self.hopeless:
            failed += 1
            clients -= 1 if failed < PATIENCE else max(1, clients // 20)

    def _every(self) -> Strategy:
        """Confirm every number from one client up, until one fails twice."""
        self._goes_on = " for this number"
        for clients in range(1, self.question.max_clients + 1):
            if self.hopeless:
                return
            point = yield from self._confirm(clients)
            if not point.shown and not (yield from self._confirm(clients, AGAIN)).shown:
                return

    def _closed_loop(self) -> Strategy:
        """Run one query after the other; UnsupportedError if a constraint is about something not measured here."""
        base = replace(self.question.base, processes=1, sharing="time_slicing", colocated="")
        trial = replace(
            base,
            scenario="single_stream",
            rate=None,
            scenario_options={},
            deadline_s=None,  # no query of a closed loop is due at a time
            min_s=CLOSED_S,
            max_s=CLOSED_S,
        )
        what = f"one query after the other, {CLOSED_S:g} s"
        ahead = self._ahead(self.question.max_clients, SHORTEST_S)
        (self.closed,) = yield Step(
            stage="closed loop", trial=trial, what=what, ahead=ahead, then=self._sustained
        )
        if self.closed.status in MEASURED:
            for constraint in self.question.constraints:
                if constraint.name in RESOURCES:
                    judgeable(constraint, self.closed)

    @property
    def hopeless(self) -> bool:
        """Whether the newest run failed in a way that any number of clients would."""
        return bool(self.points) and self.points[-1].result.status in HOPELESS

    def answer(self) -> Capacity:
        """Return the answer from all runs so far."""
        found = answer(self.question, self.points, self.throughput, self.warnings)
        return replace(found, warnings=(*found.warnings, *doubts(found)))

    @property
    def throughput(self) -> Field:
        """Queries per second of the closed loop."""
        found = self.closed.metrics.get("throughput_sps") if self.closed else None
        if not isinstance(found, Measured):
            return found or Absent("the closed loop was not measured")
        size = self.question.base.batch
        lo, hi = (None if end is None else end / size for end in (found.lo, found.hi))
        return Measured(found.value / size, "queries/s", lo, hi, found.n)

    def _look(self, clients: int, attempt: int, known: Edge) -> Look:
        """Run `clients` for a short window; retry once if the run failed for another reason than lack of memory."""
        seconds = self.short_s(clients)
        between = known.misses - known.fits if known.misses else 2 * max(1, round(clients / 20))
        ahead = self._ahead(between, seconds)
        point = yield from self._point(
            "search", clients, seconds, attempt, note="again" if attempt else "", ahead=ahead
        )
        if point.result.status in (*MEASURED, *OUT_OF_MEMORY, *HOPELESS):
            return point
        why = point.result.status.value
        again = f"{counted(clients, self.question.client)}: the run ended as {why} and is repeated once"
        self.warnings.append(Message("W-CAP-2", again, evidence=str(point.result.reason)))
        return (
            yield from self._point(
                "search", clients, seconds, attempt + 50, note=f"again: {why}", ahead=ahead
            )
        )

    def _confirm(self, clients: int, attempt: int = 0) -> Look:
        """Run `clients` long enough for the bound of every constraint.

        A run that was too short, that was disturbed, or whose figures nearly keep the promises is repeated once: a
        number of clients must fail twice, here as in an exhaustive search.
        """
        seconds, weaker = self.sustained_s(clients)
        point = yield from self._point("confirm", clients, seconds, CONFIRMING + attempt, weaker=weaker)
        longer = self._longer(point)
        failed = point.result.status not in (*MEASURED, *OUT_OF_MEMORY, *HOPELESS)
        unlucky = failed or point.disturbed or near(point)
        if point.shown or not (longer or unlucky):
            return point
        if longer > self.question.max_duration_s:
            return self._weaker(point, longer)
        note, seconds = "too short" if longer else "disturbed", max(seconds, longer)
        return (yield from self._point("confirm", clients, seconds, CONFIRMING + attempt + 1, note=note))

    def _ahead(self, between: int, seconds: float) -> list[Trial]:
        """Return the short runs that probably follow: halving the gap between two numbers of clients."""
        looks = min(USUAL_LOOKS, max(1, between).bit_length())
        return [replace(self.question.base, min_s=seconds, max_s=seconds)] * looks

    @property
    def _sustained(self) -> str:
        """Return how long the confirming run may be: that depends on the answer, up to twentyfold."""
        least, most = (lasting(s) for s in (self.question.confirm_s, self.question.max_duration_s))
        return f", then {least} to {most} to confirm" if least != most else f", then {least} to confirm"

    def sustained_s(self, clients: int) -> tuple[float, bool]:
        """Return (seconds of a confirming run, whether --max-duration is too short for every bound)."""
        question, need = self.question, self._needed(clients)
        if need <= question.max_duration_s:
            return float(math.ceil(need)), False
        self._too_slow(clients, need)
        return question.confirm_s, True

    def _needed(self, clients: int) -> float:
        """Return the seconds of a confirming run that gives every constraint's bound."""
        service, load, least = self._service(clients), self.load, self.question.confirm_s
        found = [forecast(service, load, clients, q, least).seconds for q, _ in self.question.tails]
        return max([least, *filter(math.isfinite, found)])

    def _too_slow(self, clients: int, need: float) -> None:
        question = self.question
        offered = clients * question.rate
        self.warnings.append(
            Message(
                "W-CAP-1",
                f"an upper bound of what is promised would take {need:.0f} s at {offered:.4g} queries/s",
                evidence=f"--max-duration {question.max_duration_s:.0f}s",
                effect="The answer rests on the point estimate, without a bound",
                fix=f"--max-duration {math.ceil(need / 60)}min",
            )
        )

    def _weaker(self, point: Point, need: float) -> Point:
        self._too_slow(point.clients, need)
        self.points[-1] = replace(point, weaker=True)
        return self.points[-1]

    def _longer(self, point: Point) -> float:
        """Return the seconds that would give this run's missing bounds; 0 if none is missing."""
        need = 0.0
        for held in point.held:
            found = tail(held.constraint, self.question.base.deadline_s)
            if found is None or not point.fits or held.kept is Compliance.YES:
                continue
            x, (q, _) = timed(held.constraint, measured_rows(point.result)), found
            share = needed(q, CONFIDENCE) / max(1.0, quantile_effective_n(x, q))
            seconds = SPARE * share * point.seconds
            if isinstance(held.bound, Absent) or (
                held.constraint.quantile is None and seconds > point.seconds
            ):
                need = max(need, seconds)
        return float(math.ceil(need))

    def short_s(self, clients: int) -> float:
        """Return the seconds of a short run: enough queries to see the promised quantile."""
        question = self.question
        queries = max((BEYOND / (1 - q) for q, _ in question.tails), default=0.0)
        wanted = math.ceil(queries / (clients * question.rate))
        return float(min(max(SHORTEST_S, wanted), max(SHORTEST_S, question.confirm_s)))

    def _point(
        self,
        stage: str,
        clients: int,
        seconds: float,
        attempt: int,
        *,
        note: str = "",
        ahead: Sequence[Trial] = (),
        weaker: bool = False,
    ) -> Look:
        """Run `clients` for `seconds` and judge the result."""
        question, guide = self.question, 1.0 if stage == "confirm" else self._guide(clients)
        who = counted(clients, question.client)
        what = f"{who}, {seconds:g} s{', ' * bool(note)}{note}"
        trial = question.trial(clients, seconds, attempt, self.folder)
        then = self._goes_on if stage == "confirm" else self._sustained
        results = yield Step(stage=stage, trial=trial, what=what, ahead=ahead, then=then)
        point = judge(
            results[0],
            clients,
            question.constraints,
            offered=clients * question.rate,
            stage=stage,
            guide=guide,
        )
        self.points.append(replace(point, weaker=weaker))
        self.found(self.points[-1])
        return self.points[-1]

    def _guide(self, clients: int) -> float:
        """Return the expected ratio of a confirming run's bound to its figure."""
        service, load, at_least = self._service(clients), self.load, self.question.confirm_s
        over = (forecast(service, load, clients, q, at_least).over for q, _ in self.question.tails)
        return max(over, default=1.0)

    def _service(self, clients: int) -> Floats:
        """Return the service times (s) of the run nearest in clients; the closed loop's before the first run."""
        near = [p for p in self.points if p.result.status in MEASURED and p.held]
        nearest = min(near, key=lambda p: abs(p.clients - clients), default=None)
        result = nearest.result if nearest else self.closed
        assert result is not None
        c = measured_rows(result).columns
        took = (c["done_ns"] - c["issued_ns"])[(c["done_ns"] >= 0) & (c["issued_ns"] >= 0)]
        return np.asarray(took, dtype=np.float64) * 1e-9


# -- which number of clients next -------------------------------------------------------------------------------


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
