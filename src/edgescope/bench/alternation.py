"""Two trials measured together: two fresh processes that are alive at once and take turns, baseline first, ABBA.

A machine that changes its speed then does so for both, and the ratio of their times is free of it. This process leads:
it computes nothing, asks one side at a time, and watches the machine meanwhile. What cannot live together says why
(`apart`); such variants run one after the other, each in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from edgescope import registry
from edgescope.analysis.run import summary
from edgescope.bench import outcome
from edgescope.bench.drivers import Run, require
from edgescope.bench.watch import Devices, Watch, peak_rss
from edgescope.bench.workers import fields, told
from edgescope.errors import Message
from edgescope.isolate.forks import ForkedWorker, Forks
from edgescope.isolate.fresh import PAIR
from edgescope.isolate.notes import Imports
from edgescope.isolate.worker import WorkerError, WorkerProcess, WorkerRun
from edgescope.process import Line, scratch_folder
from edgescope.records import (
    QUERY_OK,
    Absent,
    Alternation,
    Effective,
    Field,
    Json,
    Measured,
    ModelInfo,
    Queries,
    Result,
    Status,
    Trial,
    Turn,
    Window,
    codec,
)

ORDER = (0, 1, 1, 0)
"""Who has the turns of a block: a drift that is even within it favours nobody."""
LEAST_BLOCKS = 2
FEWEST = 2
"""What counts of a turn lasts as long as so many queries, where that is longer than `turn_s`."""
PATIENCE = 3.0
"""A pair ends after so many times the seconds it should take, with the blocks that it has."""
LIMIT_S, FORKED_LIMIT_S = 600.0, 200.0
"""Seconds that a side may need, loading included; a forked one that hangs leaves time for a pair of started ones."""
AWAKE = 0.05
"""Share of a core that a side may take while the other has its turns."""
SHARED_MEMORY = Absent("another variant was loaded at the same time")
IMPORTED = Absent("the process was forked with its imports done")
"""What a started process spends on imports: seconds, and the pages of the files that it reads meanwhile."""

Pair = tuple[Result, Result]


def apart(a: Trial, b: Trial) -> str:
    """Return why two trials cannot be alive together and take turns; '' if nothing is known against it."""
    for trial in (a, b):
        if trial.multi_process:
            return f"{trial.label} runs in several processes"
        if not registry.scenario(trial.scenario).pauses:
            return f"a load of scenario {trial.scenario} cannot pause"
        if trial.turn_s is None:
            return "power or energy is asked for, and no meter tells two processes apart"
        if trial.tracer != Trial.tracer or trial.idle_s:
            return "a profiler, or idling for energy, needs the machine alone"
    return "" if (a.mode, a.device) == (b.mode, b.device) else "they need the machine in different modes"


class SideError(Exception):
    """Raised for what went wrong on one side of the pair."""

    def __init__(self, side: int, error: Exception) -> None:
        super().__init__(str(error))
        self.side, self.error = side, error


class Side:
    """One process of the pair, as its leader sees it."""

    def __init__(self, number: int, begun: Result, run: WorkerRun) -> None:
        self.number, self.begun, self.run = number, begun, run
        self.opened: Line = {}
        self.driven: Line = {}
        self.its_own: dict[str, Field] = {}
        self.check: Line = {}
        self.peak: Field = Absent("not measured")
        self.turn_s, self.warmed = 0.0, True
        self.turns: list[Turn] = []
        self.idle_ns = self.idle_cpu_ns = 0

    @property
    def process(self) -> WorkerProcess:
        """Return its process."""
        return self.run.workers[0]

    def ask(self, do: str, event: str, **what: Json) -> Line:
        """Have it do one thing, and wait for the answer."""
        self.process.order(do, **what)
        return self.wait(event)

    def wait(self, event: str) -> Line:
        """Return its next event of that name; SideError if it fails, dies or hangs."""
        try:
            return self.run.gather(event, event)[0]
        except WorkerError as error:
            raise SideError(self.number, error) from error

    def open(self) -> None:
        """Have it load its trial; `opened` is there once `loaded` returns."""
        trial = self.begun.trial.to_json()
        folder = str(self.run.folder)
        self.process.order("open", trial=trial, number=self.number, workers=1, folder=folder, again=False)

    def loaded(self) -> None:
        """Wait until it has loaded its trial and check that it runs what was asked."""
        self.opened = self.wait("opened")
        try:
            require(self.begun.trial, Effective(**self.opened["effective"]))
        except Exception as error:
            raise SideError(self.number, error) from error

    def warm(self) -> None:
        """Let it warm up alone, and see how long its turns must be."""
        found = self.ask("warm", "warmed")
        self.warmed = bool(found["settled"])
        self.turn_s = max(self.begun.trial.turn_s or 0.0, FEWEST * float(found["typical_s"]))

    def turn(self, block: int, *, again: bool) -> None:
        """Let it have one turn; `again`: it had the last one, too."""
        found = self.ask("turn", "turned", seconds=self.turn_s, block=block, again=again)
        self.turns.append(Turn(**{name: found[name] for name in Turn.__dataclass_fields__}))
        if len(self.turns) > 1:
            self.idle_ns += int(found["idle_ns"])
            self.idle_cpu_ns += int(found["idle_cpu_ns"])

    def hand_in(self) -> None:
        """Have it hand in the rows of its turns."""
        self.driven = self.ask("rows", "driven")

    def report(self) -> None:
        """Have it report its workload's own metrics, from its first turn to its last."""
        ends = {"start_ns": self.turns[0].start_ns, "stop_ns": self.turns[-1].stop_ns}
        self.its_own = fields(self.ask("metrics", "metrics", **ends)["metrics"])

    def verify(self) -> None:
        """Have it check its outputs."""
        self.check = self.ask("verify", "verified", machine=told(self.begun.machine))

    def taken(self, partner: str, purpose: str) -> Alternation:
        """Return the turns that it took with the Result of that id."""
        return Alternation(partner, PAIR[self.number], purpose, tuple(self.turns), self.idle_share)

    @property
    def forked(self) -> bool:
        """Return whether its process began with its imports done."""
        return isinstance(self.process, ForkedWorker)

    @property
    def measured_s(self) -> float:
        """Return the seconds of its turns so far."""
        return sum(t.stop_ns - t.start_ns for t in self.turns) * 1e-9

    @property
    def idle_share(self) -> float:
        """Return the share of a core that it took between its turns."""
        return self.idle_cpu_ns / self.idle_ns if self.idle_ns else 0.0


def measure(
    begun: Pair,
    devices: Devices,
    hz: float,
    *,
    forks: Forks,
    purpose: str = "confirming",
) -> Pair:
    """Return the finished Results of a pair that has begun.

    `forks` may have processes whose imports are done; what fails in such a process runs again in started ones.
    Where one side fails it says so, and the other is cancelled: it took turns with nothing.
    """
    ends = _ended(begun, devices, hz, purpose, forks)
    failed = [end.trial for end in ends if end.status not in (Status.OK, Status.UNSTABLE, Status.CANCELLED)]
    if forks.distrust(failed):
        ends = _ended(begun, devices, hz, purpose, forks)
    return outcome.marked(ends[0]), outcome.marked(ends[1])


def _ended(begun: Pair, devices: Devices, hz: float, purpose: str, forks: Forks) -> Pair:
    try:
        return _measured(begun, devices, hz, purpose, forks)
    except Exception as error:  # models and engines raise anything
        side, cause = (error.side, error.error) if isinstance(error, SideError) else (0, error)
        why = Message("I-PAIR-1", f"the other side of its pair, {begun[side].trial.label}, did not finish")
        ends = [one.ended(Status.CANCELLED, why) for one in begun]
        ends[side] = begun[side].ended(*outcome.status_of(cause))
        return ends[0], ends[1]


def _measured(begun: Pair, devices: Devices, hz: float, purpose: str, forks: Forks) -> Pair:
    in_effect = outcome.require_mode(begun[0].trial, devices)
    watch = Watch(devices, hz)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(scratch_folder("pair")))
        watch.get_ready(stack)  # they start while the sides load
        sides = []
        forks.expect(one.trial for one in begun)
        for number, one in enumerate(begun):
            worker = forks.worker(number, one.trial)
            stack.callback(worker.end)
            limit_s = FORKED_LIMIT_S if isinstance(worker, ForkedWorker) else LIMIT_S
            sides.append(Side(number, one, WorkerRun([worker], folder, limit_s)))
        for side in sides:
            side.open()
        for side in sides:
            side.loaded()
        for side in sides:
            side.warm()
        with watch.watching():
            _take_turns(sides)
        for side in sides:
            side.peak = peak_rss(str(side.process.pid))
        for side in sides:
            side.hand_in()
        for side in sides:  # one by one: each side's threads spin while they wait
            side.report()
        for side in sides:
            side.verify()
        for side in sides:
            if forks.unknown(side.begun.trial):
                took = side.peak.value if isinstance(side.peak, Measured) else 0.0
                names = side.ask("modules", "modules")["names"]
                forks.learn(side.begun.trial, Imports(tuple(names), took))
        runs = [_run(side, side.taken(begun[1 - side.number].id, purpose), watch) for side in sides]
    first, second = (
        outcome.concluded(one, watch, run, in_effect) for one, run in zip(begun, runs, strict=True)
    )
    return first, second


def _take_turns(sides: Sequence[Side]) -> None:
    """Let the sides take turns, block by block, until each has measured for its trial's `max_s`."""
    wanted = min(side.begun.trial.max_s for side in sides)
    block, last, until = 0, -1, time.monotonic() + PATIENCE * len(sides) * wanted
    while block < LEAST_BLOCKS or min(side.measured_s for side in sides) < wanted:
        if block and time.monotonic() > until:
            break
        for number in ORDER:
            sides[number].turn(block, again=number == last)
            last = number
        block += 1


def _run(side: Side, taken: Alternation, watch: Watch) -> Run:
    """Return what one side measured: the rows of its turns, the figures derived from them, and its check."""
    trial, driven = side.begun.trial, side.driven
    with np.load(driven["rows"]) as columns:
        queries = Queries(dict(columns))
    window = Window(driven["first"], driven["stop"], side.turns[0].start_ns, side.turns[-1].stop_ns)
    check = codec.judged_from_json(side.check["verification"])
    return Run(
        model=ModelInfo(**side.opened["model"]),
        artifact=side.opened["artifact"],
        effective=Effective(**side.opened["effective"]),
        verification=check,
        queries=queries,
        window=window,
        metrics={
            **fields(side.opened["facts"]),
            **side.its_own,
            **summary.metrics(queries, window, trial.scenario, trial.deadline_s),
            "throughput_sps": _throughput(side, queries, window),
            "peak_rss_bytes": side.peak,
            **(dict.fromkeys(("load_s", "peak_rss_bytes"), IMPORTED) if side.forked else {}),
            **(dict.fromkeys(watch.board_memory(trial.device, window, None), SHARED_MEMORY)),
        },
        warnings=_warnings(side),
        warmed=side.warmed,
        failure=driven["failure"],
        process="forked" if side.forked else "fresh",
        alternation=taken,
    )


def _throughput(side: Side, queries: Queries, window: Window) -> Field:
    """Return the samples a second of its turns, without the time in which the other side had its own."""
    rows = queries.rows(window).columns
    right = rows["status"] == QUERY_OK
    if not right.any():
        return Absent("no query succeeded in its turns")
    return Measured(float(rows["samples"][right].sum()) / side.measured_s, "samples/s", n=int(right.sum()))


def _warnings(side: Side) -> tuple[Message, ...]:
    if side.idle_share <= AWAKE:
        return ()
    return (
        Message(
            "W-PAIR-2",
            f"{side.begun.trial.label} did not rest while the other side had its turns",
            evidence=f"its threads took {side.idle_share:.0%} of a core",
            effect="The other side was slowed down by so much of a core",
        ),
    )
