"""The search for how many clients fit: a closed loop, short runs, a sustained one.

One closed loop says how long a query takes and what can be answered at most; from these analysis.predict.queueing
guesses where the edge is. Short open-loop runs then bracket it (analysis.capacity.answer says which comes next), and
the answer is confirmed by a run long enough for the promised quantile's upper bound; where that fails, one client
fewer is confirmed. Every run is a Trial of the loop (loop.py), so the store is the only memory: what was interrupted
resumes, and takes the same decisions from the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgescope.analysis.capacity.answer import Capacity, Edge, Tried, answer, doubts, edge, following
from edgescope.analysis.capacity.promises import FULL, MEASURED, Point, judge, near
from edgescope.analysis.predict import queueing
from edgescope.analysis.predict.queueing import Load
from edgescope.analysis.run.open_loop import measured_rows
from edgescope.analysis.run.usage import usage
from edgescope.errors import Message
from edgescope.records import Absent, Field, Measured, Result, Status, Trial
from edgescope.runner.memory import fitting
from edgescope.search.capacity_question import PER_CLIENT, Question, judgeable
from edgescope.search.loop import Step, Strategy
from edgescope.stats import needed, quantile_effective_n

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
#: Short runs that a search usually takes, at most.
USUAL_LOOKS = 6
#: Ends that mean that no number of clients can be asked for.
HOPELESS = (Status.UNSUPPORTED, Status.WRONG_OUTPUT)


Found = Callable[[Point], None]
Look = Generator[Step, tuple[Result, ...], Point]
"""A strategy that ends with what came of one run."""


class Search:
    """One search; afterwards `points` holds its runs, `closed` the closed loop, `warnings` what a reader must know."""

    def __init__(
        self,
        asked: Question,
        folder: Path,
        found: Found = lambda point: None,
    ) -> None:
        self.asked, self.folder, self.found = asked, folder, found
        """`folder` is the store's, beside whose results the arrivals of cameras lie."""
        self.closed: Result | None = None
        self.points: list[Point] = []
        self.warnings: list[Message] = []

    @property
    def load(self) -> Load:
        """One client's load, and how many queries the machine may be expected to serve at once."""
        asked, servers = self.asked, self.asked.base.in_flight
        cpu = usage(self.closed).cpu if self.closed and asked.server_processes == PER_CLIENT else None
        if isinstance(cpu, Measured) and asked.base.device == "cpu":
            servers *= max(1, round(1 / max(cpu.value, 0.01)))
        return Load(asked.rate, asked.arrivals, servers)

    def run(self, *, exhaustive: bool = False) -> Strategy:
        """Search and confirm; ends early where a run shows that nothing can be asked (`hopeless`).

        `exhaustive` confirms every number from one client up, until one fails twice: what the search saves.
        """
        yield from self._closed_loop()
        if self.closed is not None and self.closed.status in MEASURED:
            yield from self._every() if exhaustive else self._searched()

    def _searched(self) -> Strategy:
        asked, tried = self.asked, list[Tried]()
        start = queueing.estimate(self._service(1), self.load, asked.promised, asked.confirm_s)
        if asked.server_processes == PER_CLIENT and self.closed is not None:
            start = min(start, fitting(self.closed, asked.base, asked.max_clients))
        clients: int | None = min(start, asked.max_clients)
        while clients is not None:
            point = yield from self._look(clients, sum(t.clients == clients for t in tried), edge(tried))
            if self.hopeless:
                return
            tried.append(Tried(clients, point.fits, point.clear and not point.disturbed))
            clients = following(tried, start, asked.max_clients)
        yield from self._settle(edge(tried).fits)

    def _settle(self, clients: int) -> Strategy:
        """Confirm the answer, or the next smaller one that is confirmed."""
        failed = 0
        while clients >= 1 and not (yield from self._confirm(clients)).shown and not self.hopeless:
            failed += 1
            clients -= 1 if failed < PATIENCE else max(1, clients // 20)

    def _every(self) -> Strategy:
        """Confirm every number from one client up, until one fails twice."""
        for clients in range(1, self.asked.max_clients + 1):
            if self.hopeless:
                return
            point = yield from self._confirm(clients)
            if not point.shown and not (yield from self._confirm(clients, AGAIN)).shown:
                return

    def _closed_loop(self) -> Strategy:
        """Run one query after the other; UnsupportedError where something is promised that nothing measures here."""
        base = replace(self.asked.base, processes=1, sharing="time_slicing", colocated="")
        trial = replace(
            base, scenario="single_stream", rate=None, scenario_options={}, min_s=CLOSED_S, max_s=CLOSED_S
        )
        what = f"one query after the other, {CLOSED_S:g} s"
        ahead = self._ahead(1, self.asked.max_clients, SHORTEST_S)
        (self.closed,) = yield Step(stage="closed loop", trial=trial, what=what, ahead=ahead)
        if self.closed.status in MEASURED:
            for promise in self.asked.promised:
                if promise.quantile is None:
                    judgeable(promise, self.closed)

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

    def _look(self, clients: int, attempt: int, known: Edge) -> Look:
        """Make a short run of so many clients; of one that failed for no lack of room, the second."""
        seconds = self.short_s(clients)
        ahead = self._ahead(known.fits or clients, (known.misses or 2 * clients) - known.fits, seconds)
        point = yield from self._point(
            "search", clients, seconds, attempt, note="again" if attempt else "", ahead=ahead
        )
        if point.result.status in (*MEASURED, *FULL, *HOPELESS):
            return point
        why = point.result.status.value
        again = f"{clients} clients: the run ended as {why}, and is tried once more"
        self.warnings.append(Message("W-CAP-2", again, evidence=str(point.result.reason)))
        return (
            yield from self._point(
                "search", clients, seconds, attempt + 50, note=f"again: {why}", ahead=ahead
            )
        )

    def _confirm(self, clients: int, attempt: int = 0) -> Look:
        """Make a run of so many clients that is long enough for every promise's bound.

        One that came out too short, that something else disturbed, or that a lucky tail would have passed, is
        repeated once: a number of clients fails twice, here as in an exhaustive search.
        """
        seconds, weaker = self.sustained_s(clients)
        point = yield from self._point("confirm", clients, seconds, CONFIRMING + attempt, weaker=weaker)
        longer = self._longer(point)
        failed = point.result.status not in (*MEASURED, *FULL, *HOPELESS)
        unlucky = failed or point.disturbed or near(point)
        if point.shown or not (longer or unlucky):
            return point
        if longer > self.asked.max_duration_s:
            return self._weaker(point, longer)
        note, seconds = "too short" if longer else "disturbed", max(seconds, longer)
        return (yield from self._point("confirm", clients, seconds, CONFIRMING + attempt + 1, note=note))

    def _ahead(self, clients: int, between: int, seconds: float) -> list[Trial]:
        """Return about what follows: halving what lies between two numbers of clients, and the confirming run."""
        asked, looks = self.asked, min(USUAL_LOOKS, max(1, between).bit_length())
        sustained = self._needed(clients) if self.closed else asked.confirm_s
        lasting = [seconds] * looks + [sustained if sustained <= asked.max_duration_s else asked.confirm_s]
        return [replace(asked.base, min_s=s, max_s=s) for s in lasting]

    def sustained_s(self, clients: int) -> tuple[float, bool]:
        """Return how long a confirming run must be, and whether no affordable one gives every bound."""
        asked, need = self.asked, self._needed(clients)
        if need <= asked.max_duration_s:
            return float(math.ceil(need)), False
        self._too_slow(clients, need)
        return asked.confirm_s, True

    def _needed(self, clients: int) -> float:
        """Return the seconds of a confirming run that gives every promise's bound."""
        timed = [s.quantile for s in self.asked.promised if s.quantile is not None]
        service, load, least = self._service(clients), self.load, self.asked.confirm_s
        found = [queueing.forecast(service, load, clients, q, least).seconds for q in timed]
        return max([least, *filter(math.isfinite, found)])

    def _too_slow(self, clients: int, need: float) -> None:
        asked = self.asked
        self.warnings.append(
            Message(
                "W-CAP-1",
                f"an upper bound of what is promised would take {need:.0f} s at {clients * asked.rate:.4g} queries/s",
                evidence=f"--max-duration {asked.max_duration_s:.0f}s",
                effect="The answer rests on the point estimate, without a bound",
                fix=f"--max-duration {math.ceil(need / 60)}min",
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
        """Have so many clients served for so long, and judge what came of it."""
        asked, guide = self.asked, 1.0 if stage == "confirm" else self._guide(clients)
        what = f"{clients} client{'s' * (clients != 1)}, {seconds:g} s{', ' * bool(note)}{note}"
        trial = asked.trial(clients, seconds, attempt, self.folder)
        results = yield Step(stage=stage, trial=trial, what=what, ahead=ahead)
        point = judge(results[0], clients, asked.promised, offered=clients * asked.rate, stage=stage, guide=guide)
        self.points.append(replace(point, weaker=weaker))
        self.found(self.points[-1])
        return self.points[-1]

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
