"""The search for how many clients fit: a closed loop, short runs, a sustained one.

One closed loop says how long a query takes and what can be answered at most; from these analysis.predict.queueing
guesses where the edge is. Short open-loop runs then bracket it (analysis.capacity.answer says which comes next), and
the answer is confirmed by a run long enough for the promised quantile's upper bound; where that fails, one client
fewer is confirmed. Every run is a Trial through Cells, so the store is the only memory: what was interrupted resumes,
and takes the same decisions from the same rows.

Which search of a question goes on: the newest that the store holds of it, or another one, measured from anew.

Searches of one question are told apart by the replicates of their runs: the same model, load and arrivals, measured
again. One that was interrupted is continued before another begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edgescope.analysis.capacity.answer import Capacity, Tried, answer, doubts, edge, following
from edgescope.analysis.capacity.promises import FULL, MEASURED, Point, judge, near
from edgescope.analysis.predict import queueing
from edgescope.analysis.predict.queueing import Load
from edgescope.analysis.run.open_loop import measured_rows
from edgescope.analysis.run.usage import usage
from edgescope.errors import StoreError, message
from edgescope.records import Absent, Field, Measured, Result, Status, Trial
from edgescope.search.capacity_question import Question, Runs, judgeable
from edgescope.stats import needed, quantile_effective_n
from edgescope.sweep.memory import fitting

#: Seconds of the closed loop, and the shortest of the open ones.
CLOSED_S, SHORTEST_S = 3.0, 5.0
#: Queries beyond the promised quantile that a short run should hold: their number then varies by some 40 %.
BEYOND = 6
#: Confirmations that fail before the step down gets longer than one client.
PATIENCE = 3
#: Replicates of confirming runs begin here, out of reach of the search's.
CONFIRMING = 100
#: A second confirmation of the same number, which every() makes, begins this much later.
AGAIN = 10
#: Ends that mean that no number of clients can be asked for.
HOPELESS = (Status.UNSUPPORTED, Status.WRONG_OUTPUT)


@dataclass(frozen=True)
class Step:
    """What is about to run, told before it."""

    stage: str
    """closed, search or confirm."""
    clients: int
    seconds: float
    note: str = ""


Tell = Callable[[Step], None]
Found = Callable[[Point], None]


class Search:
    """One search; afterwards `points` holds its runs, `closed` the closed loop, `warnings` what a reader must know."""

    def __init__(
        self,
        asked: Question,
        cells: Runs,
        tell: Tell = lambda step: None,
        found: Found = lambda point: None,
    ) -> None:
        self.asked, self.cells, self.tell, self.found = asked, cells, tell, found
        self.known = cells.finished()
        self.closed: Result | None = None
        self.points: list[Point] = []
        self.warnings: list[str] = []
        self.stored = 0

    @property
    def load(self) -> Load:
        """One client's load, and how many queries the machine may be expected to serve at once."""
        asked, servers = self.asked, self.asked.base.in_flight
        cpu = usage(self.closed).cpu if self.closed and asked.serve == "processes" else None
        if isinstance(cpu, Measured) and asked.base.device == "cpu":
            servers *= max(1, round(1 / max(cpu.value, 0.01)))
        return Load(asked.rate, asked.arrivals, servers)

    def run(self) -> None:
        """Search and confirm; ends early where a run shows that nothing can be asked (`hopeless`)."""
        if not self.begin():
            return
        asked, tried = self.asked, list[Tried]()
        start = queueing.estimate(self._service(1), self.load, asked.promised, asked.confirm_s)
        if asked.serve == "processes" and self.closed is not None:
            start = min(start, fitting(self.closed, asked.base, asked.most))
        clients: int | None = min(start, asked.most)
        while clients is not None:
            point = self.look(clients, sum(t.clients == clients for t in tried))
            if self.hopeless:
                return
            tried.append(Tried(clients, point.fits, point.clear and not point.disturbed))
            clients = following(tried, start, asked.most)
        self._settle(edge(tried).fits)

    def _settle(self, clients: int) -> None:
        """Confirm the answer, or the next smaller one that is confirmed."""
        failed = 0
        while clients >= 1 and not self.confirm(clients).shown and not self.hopeless:
            failed += 1
            clients -= 1 if failed < PATIENCE else max(1, clients // 20)

    def every(self) -> None:
        """Confirm every number from one client up, until one fails twice: what the search saves."""
        if not self.begin():
            return
        clients = 1
        while clients <= self.asked.most and not self.hopeless:
            if not self.confirm(clients).shown and not self.confirm(clients, AGAIN).shown:
                return
            clients += 1

    def begin(self) -> bool:
        """Run the closed loop; return whether it gave service times to go on with.

        UnsupportedError where something is promised that nothing measures here.
        """
        base = replace(self.asked.base, processes=1, sharing="time_slicing", colocated="")
        trial = replace(
            base, scenario="single_stream", rate=None, scenario_options={}, min_s=CLOSED_S, max_s=CLOSED_S
        )
        self.tell(Step("closed", 1, CLOSED_S))
        self.closed = self._answered(trial)
        if self.closed.status not in MEASURED:
            return False
        for promise in self.asked.promised:
            if promise.quantile is None:
                judgeable(promise, self.closed)
        return True

    @property
    def hopeless(self) -> bool:
        """Whether the newest run ended in a way that no number of clients changes."""
        return bool(self.points) and self.points[-1].result.status in HOPELESS

    def answer(self) -> Capacity:
        """Return what the runs say together."""
        found = answer(self.asked.summary, self.points, self.throughput, self.warnings)
        return replace(found, warnings=(*found.warnings, *doubts(found)))

    @property
    def throughput(self) -> Field:
        """Queries per second of the closed loop."""
        found = self.closed.metrics.get("throughput_sps") if self.closed else None
        if not isinstance(found, Measured):
            return found or Absent("the closed loop was not measured")
        size = self.asked.base.batch
        lo, hi = (None if end is None else end / size for end in (found.lo, found.hi))
        return Measured(found.value / size, "queries/s", lo, hi, found.n)

    def look(self, clients: int, attempt: int = 0) -> Point:
        """Return a short run of so many clients; of one that failed for no lack of room, the second."""
        seconds = self.short_s(clients)
        self.tell(Step("search", clients, seconds, "again" if attempt else ""))
        point = self._point(clients, seconds, attempt, "search")
        if point.result.status in (*MEASURED, *FULL, *HOPELESS):
            return self._kept(point)
        self._kept(point)
        again = f"{clients} clients: the run ended as {point.result.status.value}, and is tried once more"
        self.warnings.append(message("W-CAP-2", again, evidence=point.result.reason))
        self.tell(Step("search", clients, seconds, f"again: {point.result.status.value}"))
        return self._kept(self._point(clients, seconds, attempt + 50, "search"))

    def confirm(self, clients: int, attempt: int = 0) -> Point:
        """Return a run of so many clients that is long enough for every promise's bound.

        One that came out too short, that something else disturbed, or that a lucky tail would have passed, is
        repeated once: a number of clients fails twice, here as in an exhaustive search.
        """
        seconds, weaker = self.sustained_s(clients)
        point = self._sustained(clients, seconds, attempt, weaker)
        longer = self._longer(point)
        failed = point.result.status not in (*MEASURED, *FULL, *HOPELESS)
        unlucky = failed or point.disturbed or near(point)
        if point.shown or not (longer or unlucky):
            return point
        if longer > self.asked.longest_s:
            return self._weaker(point, longer)
        return self._sustained(
            clients, max(seconds, longer), attempt + 1, False, "too short" if longer else "disturbed"
        )

    def _sustained(self, clients: int, seconds: float, attempt: int, weaker: bool, note: str = "") -> Point:
        self.tell(Step("confirm", clients, seconds, note))
        point = self._point(clients, seconds, CONFIRMING + attempt, "confirm")
        return self._kept(replace(point, weaker=weaker))

    def sustained_s(self, clients: int) -> tuple[float, bool]:
        """Return how long a confirming run must be, and whether no affordable one gives every bound."""
        asked, need = self.asked, self.asked.confirm_s
        for promise in asked.promised:
            if promise.quantile is not None:
                found = queueing.forecast(
                    self._service(clients), self.load, clients, promise.quantile, asked.confirm_s
                )
                need = max(need, found.seconds if math.isfinite(found.seconds) else 0.0)
        if need <= asked.longest_s:
            return float(math.ceil(need)), False
        self._too_slow(clients, need)
        return asked.confirm_s, True

    def _too_slow(self, clients: int, need: float) -> None:
        asked = self.asked
        self.warnings.append(
            message(
                "W-CAP-1",
                f"an upper bound of what is promised would take {need:.0f} s at {clients * asked.rate:.4g} queries/s",
                evidence=f"--longest {asked.longest_s:.0f}s",
                effect="The answer rests on the point estimate, without a bound",
                fix=f"--longest {math.ceil(need / 60)}min",
            )
        )

    def _weaker(self, point: Point, need: float) -> Point:
        self._too_slow(point.clients, need)
        self.points[-1] = replace(point, weaker=True)
        return self.points[-1]

    def _longer(self, point: Point) -> float:
        """Return how many seconds would give the bounds that this run was too short for; 0 where it has them all."""
        need = 0.0
        for held in point.held:
            q = held.asked.quantile
            if q is not None and isinstance(held.bound, Absent) and point.fits:
                x = measured_rows(point.result).latency_ns()
                share = needed(q, queueing.CONFIDENCE) / max(1.0, quantile_effective_n(x, q))
                need = max(need, queueing.SPARE * share * point.seconds)
        return float(math.ceil(need))

    def short_s(self, clients: int) -> float:
        """Return the seconds of a short run: as many queries as the promised quantile needs to show at all."""
        asked = self.asked
        tails = [s.quantile for s in asked.promised if s.quantile is not None]
        queries = max((BEYOND / (1 - q) for q in tails), default=0.0)
        wanted = math.ceil(queries / (clients * asked.rate))
        return float(min(max(SHORTEST_S, wanted), max(SHORTEST_S, asked.confirm_s)))

    def _point(self, clients: int, seconds: float, attempt: int, stage: str) -> Point:
        asked = self.asked
        result = self._answered(asked.trial(clients, seconds, attempt, self.cells.store.root))
        guide = 1.0 if stage == "confirm" else self._guide(clients)
        return judge(result, clients, asked.promised, offered=clients * asked.rate, stage=stage, guide=guide)

    def _guide(self, clients: int) -> float:
        """Return by how much a confirming run's bound may be expected to exceed the figure."""
        timed = [s.quantile for s in self.asked.promised if s.quantile is not None]
        service, load, at_least = self._service(clients), self.load, self.asked.confirm_s
        return max((queueing.forecast(service, load, clients, q, at_least).over for q in timed), default=1.0)

    def _service(self, clients: int) -> queueing.Floats:
        """Return the service times (s) of the run whose number of clients is nearest, the closed loop's before any."""
        near = [p for p in self.points if p.result.status in MEASURED and p.held]
        nearest = min(near, key=lambda p: abs(p.clients - clients), default=None)
        result = nearest.result if nearest else self.closed
        assert result is not None
        c = measured_rows(result).columns
        took = (c["done_ns"] - c["issued_ns"])[(c["done_ns"] >= 0) & (c["issued_ns"] >= 0)]
        return np.asarray(took, dtype=np.float64) * 1e-9

    def _kept(self, point: Point) -> Point:
        self.points.append(point)
        self.found(point)
        return point

    def _answered(self, trial: Trial) -> Result:
        """Return the trial's result with its raw rows, from the store where it is there."""
        found = self.known.get(trial.id)
        try:
            if found is not None:
                full = self.cells.store.full(found)
                self.stored += 1
                return full
        except StoreError:  # its raw rows are damaged: measured again
            pass
        return self.cells.run(trial)


#: Distance between the replicates of two searches: more than one needs.
APART = 1000


class _Unfinished(Exception):
    """The store does not hold the next run."""


class _Stored:
    """Runs that the store holds, and no other."""

    def __init__(self, cells: Runs) -> None:
        self.store, self._known = cells.store, cells.finished()

    def finished(self) -> dict[str, Result]:
        return self._known

    def run(self, trial: Trial) -> Result:
        raise _Unfinished


def going_on(asked: Question, cells: Runs, *, fresh: bool = False, exhaustive: bool = False) -> Question:
    """Return the question as its newest stored search asks it; with `fresh` as one more does, where that is whole."""
    stored, number, whole = _Stored(cells), 0, True
    while (found := _state(_numbered(asked, number + 1), stored, exhaustive)) is not None:
        number, whole = number + 1, found
    return _numbered(asked, number + (fresh and whole))


def _numbered(asked: Question, number: int) -> Question:
    return replace(asked, base=replace(asked.base, replicate=APART * number))


def _state(asked: Question, stored: _Stored, exhaustive: bool) -> bool | None:
    """Return whether the store holds all of a search, None where none of its own: any question begins alike."""
    search = Search(asked, stored)
    try:
        search.every() if exhaustive else search.run()
    except _Unfinished:
        return False if search.stored > 1 else None
    return True
