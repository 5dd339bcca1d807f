"""What the leader of a pair asks its sides for and makes of their answers, with sides that answer at once."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope import bench
from edgescope.bench import alternation as turned
from edgescope.bench.alternation import SHARED_MEMORY, Side, SideError
from edgescope.bench.outcome import SHARED_METER
from edgescope.bench.watch import Watch
from edgescope.errors import Message, UnsupportedError
from edgescope.isolate.worker import WorkerError
from edgescope.records import (
    QUERY_DTYPES,
    QUERY_ERROR,
    Absent,
    Machine,
    Measured,
    Result,
    Status,
    Trial,
    Turn,
    codec,
)
from edgescope.registry import REPLAYED

SLOW = Trial(model="null", backend="null", options={"delay_us": 8000}, min_s=0.1, max_s=0.5, turn_s=0.05)
FAST = replace(SLOW, options={"delay_us": 2000}, max_s=0.4)
OPENED = {
    "effective": {"device": "cpu", "precision": "fp32", "threads": 1, "evidence": "says so"},
    "facts": {"load_s": codec.field_to_json(Measured(0.5, "s"))},
    "artifact": {"path": None},
    "model": {"name": "null", "task": "unknown", "trained": False, "source": "nothing", "digest": "d1"},
}


def begun():
    return tuple(Result.begun(trial, Machine({"cpu": "one"}, {"load1": 0.5})) for trial in (SLOW, FAST))


class Process:
    """A side's process that answers orders at once; a turn takes its time of a clock that all share."""

    now_ns = 0

    def __init__(self, number, folder, log, says):
        self.number, self.folder, self.log, self.says, self.pid = number, folder, log, says, 100 + number
        self.asked = []

    def order(self, do, **what):
        self.asked.append((do, what))
        self.log.append((self.number, do))

    def end(self):
        self.log.append((self.number, "end"))

    def answer(self):
        do, what = self.asked[-1]
        said = self.says.get(do, getattr(self, f"_{do}", dict))
        if isinstance(said, Exception):
            raise said
        return said(**what) if callable(said) else said

    def _open(self, **_):
        return OPENED

    def _warm(self):
        return {"settled": True, "typical_s": 0.001}

    def _turn(self, seconds, block, again):
        start = Process.now_ns
        Process.now_ns += round(seconds * 1e9)
        turn = {"block": block, "start_ns": start, "stop_ns": Process.now_ns, "queries": 4, "time_s": 0.01}
        return turn | {"idle_ns": 100, "idle_cpu_ns": 5 + self.number}

    def _rows(self):
        rows = {name: np.zeros(12, dtype) for name, dtype in QUERY_DTYPES.items()}
        rows["samples"][:], rows["done_ns"][:], rows["status"][-1] = 2, 10**9, QUERY_ERROR
        np.savez(self.folder / f"{self.number}.npz", **rows)
        return {"rows": self.folder / f"{self.number}.npz", "first": 3, "stop": 12, "failure": "first"}

    def _metrics(self, start_ns, stop_ns):
        return {"metrics": {"own_s": codec.field_to_json(Measured((stop_ns - start_ns) * 1e-9, "s"))}}

    def _verify(self, machine):
        assert machine == {"stable": {"cpu": "one"}, "state": {"load1": 0.5}}
        return {"verification": codec.judged_to_json(Message("W-GATE-2", "it answers nothing"))}

    def _modules(self):
        return {"names": ["numpy", "torch"]}


class Forked(Process):
    """One that began with its imports done."""


class Forks:
    """Hands out the processes of the sides; `known`: what they import."""

    def __init__(self, folder, kinds=(Process, Process), *, known=False, says=({}, {})):
        self.log, self.known, self.learnt, self.expected = [], known, [], []
        self.made = [kind(number, folder, self.log, says[number]) for number, kind in enumerate(kinds)]

    def expect(self, trials):
        self.expected = list(trials)

    def worker(self, number, trial):
        assert trial is self.expected[number]
        return self.made[number]

    def unknown(self, trial):
        return not self.known

    def learn(self, trial, imports):
        self.learnt.append((trial, imports.names, imports.took_bytes))

    def distrust(self, trials):
        return False


@pytest.fixture
def led(monkeypatch):
    """Measure a pair with these Forks; return its ends and the seconds that each side was given."""
    limits = []

    class Led:
        def __init__(self, workers, folder, limit_s):
            self.workers, self.folder = workers, folder
            limits.append(limit_s)

        def gather(self, event, done):
            assert event == done
            return [self.workers[0].answer()]

    @contextmanager
    def watching(self):
        yield

    monkeypatch.setattr(turned, "ForkedWorker", Forked)
    monkeypatch.setattr(turned, "WorkerRun", Led)
    monkeypatch.setattr(turned, "peak_rss", lambda pid: Measured(float(pid), "bytes"))
    monkeypatch.setattr(turned, "time", SimpleNamespace(monotonic=lambda: Process.now_ns * 1e-9))
    monkeypatch.setattr(Watch, "watching", watching)
    monkeypatch.setattr(Watch, "get_ready", lambda self, stack: None)
    monkeypatch.setattr(Process, "now_ns", 10**9)

    def measure(forks, purpose="selecting"):
        return turned.measure(begun(), {}, 0.0, forks=forks, purpose=purpose), limits

    return measure


def test_a_pair_is_led_side_by_side(led, tmp_path):
    forks = Forks(tmp_path)
    (first, second), limits = led(forks)
    together = [(0, "open"), (1, "open"), (0, "warm"), (1, "warm")]
    block = [(0, "turn"), (1, "turn"), (1, "turn"), (0, "turn")]
    rest = [(side, do) for do in ("rows", "metrics", "verify", "modules") for side in (0, 1)]
    assert forks.log == [*together, *block * 4, *rest, (1, "end"), (0, "end")]  # 0.4 s of turns of 0.05 s
    assert limits == [600.0, 600.0] and forks.expected == [SLOW, FAST]
    assert forks.learnt == [(SLOW, ("numpy", "torch"), 100.0), (FAST, ("numpy", "torch"), 101.0)]
    opened = forks.made[1].asked[0][1]
    assert (opened["number"], opened["workers"], opened["again"]) == (1, 1, False)
    assert opened["trial"] == FAST.to_json()
    assert (first.alternation.partner, second.alternation.partner) == (second.id, first.id)
    assert (first.alternation.side, second.alternation.side) == ("baseline", "candidate")
    assert first.alternation.purpose == second.alternation.purpose == "selecting"


def test_a_side_is_told_by_its_turns(led, tmp_path):
    (first, second), _ = led(Forks(tmp_path))
    assert [t.block for t in first.alternation.turns] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert first.alternation.turns[1] == Turn(0, 1_150_000_000, 1_200_000_000, 4, 0.01)
    assert first.window.first == 3 and first.window.stop == 12
    assert (first.window.start_ns, first.window.stop_ns) == (10**9, 1_800_000_000)
    assert (second.window.start_ns, second.window.stop_ns) == (1_050_000_000, 1_750_000_000)
    assert first.metrics["throughput_sps"] == Measured(pytest.approx(8 * 2 / 0.4), "samples/s", n=8)
    assert first.metrics["own_s"] == Measured(pytest.approx(0.8), "s")
    assert first.metrics["load_s"] == Measured(0.5, "s")
    assert first.metrics["peak_rss_bytes"] == Measured(100.0, "bytes")
    assert first.metrics["power_w"] == SHARED_METER and first.meter is None
    assert first.unverified.code == "W-GATE-2" and first.status is Status.FAILED  # one of its queries did
    assert "first" in str(first.reason) and first.process != "forked"
    assert first.alternation.idle_share == pytest.approx(0.05)
    assert second.alternation.idle_share == pytest.approx(0.06)
    awake = [[w.evidence for w in end.warnings if w.code == "W-PAIR-2"] for end in (first, second)]
    assert awake[0] == [] and len(awake[1]) == 1 and " 6% " in awake[1][0]


def test_a_forked_side_has_less_time_and_no_figures_of_its_start(led, tmp_path):
    forks = Forks(tmp_path, (Process, Forked), known=True)
    (first, second), limits = led(forks)
    assert limits == [600.0, 200.0] and forks.learnt == []
    assert (first.process == "forked", second.process == "forked") == (False, True)
    assert second.metrics["load_s"] == second.metrics["peak_rss_bytes"] == turned.IMPORTED
    assert first.metrics["load_s"] == Measured(0.5, "s")


def test_what_was_not_told_is_not_learnt(led, tmp_path, monkeypatch):
    monkeypatch.setattr(turned, "peak_rss", lambda pid: Absent("no /proc"))
    forks = Forks(tmp_path)
    led(forks)
    assert [peak for *_, peak in forks.learnt] == [0.0, 0.0]


def test_a_gpu_that_two_share_has_no_memory_of_one(led, tmp_path, monkeypatch):
    monkeypatch.setattr(Watch, "board_memory", lambda *_: {"gpu_board_memory_bytes": Measured(9.0, "bytes")})
    (first, _), _ = led(Forks(tmp_path))
    assert first.metrics["gpu_board_memory_bytes"] == SHARED_MEMORY


@pytest.mark.parametrize("says", [{}, {"warm": WorkerError(Status.CRASHED, Message("E-WORKER-2", "gone"))}])
def test_beside_a_recording_each_side_says_so(led, tmp_path, monkeypatch, says):
    played = Machine({"cpu": "one"}, {REPLAYED: {"board": "orin", "made": "typed"}})
    monkeypatch.setitem(globals(), "begun", lambda: tuple(Result.begun(t, played) for t in (SLOW, FAST)))
    ends, _ = led(Forks(tmp_path, says=(says, {})))
    assert [[w.code for w in end.warnings if w.code == "W-REC-1"] for end in ends] == [["W-REC-1"]] * 2


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("do", ["open", "warm", "turn", "rows", "verify"])
def test_the_side_that_fails_is_named_whatever_it_was_asked(led, tmp_path, number, do):
    gone = WorkerError(Status.CRASHED, Message("E-WORKER-2", "gone"))
    says = [{}, {}]
    says[number] = {do: gone}
    ends, _ = led(Forks(tmp_path, says=says))
    assert ends[number].status is Status.CRASHED and ends[number].reason.code == "E-WORKER-2"
    assert ends[1 - number].status is Status.CANCELLED and ends[1 - number].reason.code == "I-PAIR-1"


@pytest.mark.parametrize("number", [0, 1])
def test_a_side_that_runs_elsewhere_is_named(led, tmp_path, number):
    says = [{}, {}]
    says[number] = {"open": {"effective": OPENED["effective"] | {"precision": "bf16"}}}
    ends, _ = led(Forks(tmp_path, says=says))
    assert ends[number].reason.code == "E-RAN-2" and ends[1 - number].status is Status.CANCELLED


def test_what_no_side_did_is_told_of_the_first(led, tmp_path, monkeypatch):
    monkeypatch.setattr(turned.outcome, "require_mode", lambda *_: 1 / 0)
    ends, _ = led(Forks(tmp_path))
    assert [end.status for end in ends] == [Status.FAILED, Status.CANCELLED]


def test_a_warm_up_that_was_cut_off_is_said(led, tmp_path):
    cut = {"warm": {"settled": False, "typical_s": 0.03}}
    (first, second), _ = led(Forks(tmp_path, says=(cut, {})))
    assert "W-WARM-1" in [w.code for w in first.warnings] and first.alternation.turns[0].block == 0
    assert "W-WARM-1" not in [w.code for w in second.warnings]
    took = [end.alternation.turns[0].stop_ns - end.alternation.turns[0].start_ns for end in (first, second)]
    assert took == [60_000_000, 50_000_000]  # two of its queries


@pytest.mark.parametrize(
    ("status", "distrusted"),
    [(Status.OK, 0), (Status.UNSTABLE, 0), (Status.CANCELLED, 0), (Status.FAILED, 2), (Status.OOM, 2)],
)
def test_what_ended_well_is_not_measured_again(monkeypatch, status, distrusted):
    calls, asked = [], []

    def ended(pair, *_):
        calls.append(pair)
        return tuple(replace(one, status=status) for one in pair)

    monkeypatch.setattr(turned, "_ended", ended)
    forks = SimpleNamespace(distrust=lambda trials: asked.append(trials) or bool(trials))
    turned.measure(begun(), {}, 1.0, forks=forks)
    assert len(asked[0]) == distrusted and len(calls) == (2 if distrusted else 1)


class Taker:
    """A side whose turns each take so long by the clock, and measure so much of it."""

    def __init__(self, max_s, turn_s, measured_s, clock):
        self.begun, self.turn_s, self.each, self.clock = (
            SimpleNamespace(trial=replace(SLOW, min_s=0.0, max_s=max_s)),
            *(
                turn_s,
                measured_s,
                clock,
            ),
        )
        self.turns = []

    @property
    def measured_s(self):
        return self.each * len(self.turns)

    def turn(self, block, *, again):
        self.clock[0] += self.turn_s
        self.turns.append(block)


@pytest.mark.parametrize(
    ("first", "second", "blocks"),
    [
        ((1.0, 0.125, 0.125), (1.0, 0.125, 0.125), 4),
        ((1.0, 0.125, 0.125), (1.0, 0.125, 0.0625), 8),  # until the slower one has its second
        ((9.0, 0.125, 0.125), (1.0, 0.125, 0.125), 4),  # the shorter of the two
        ((0.1, 0.0, 0.125), (0.1, 0.0, 0.125), 2),  # twice at least
        ((2.0, 0.75, 0.125), (2.0, 0.75, 0.125), 5),  # twelve seconds, and what had begun
        ((1.0, 2.0, 0.125), (1.0, 2.0, 0.125), 1),
        ((1.0, 1.5, 0.125), (1.0, 1.5, 0.125), 2),  # six seconds are not over six
        ((1.0, 0.5, 0.0625), (1.0, 0.5, 0.0625), 4),
        ((1.0, 0.5, 0.0), (2.0, 0.5, 0.5), 4),
    ],
)
def test_turns_end_with_what_was_asked_for_or_after_three_times_as_long(monkeypatch, first, second, blocks):
    clock = [50.0]
    monkeypatch.setattr(turned, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sides = Taker(*first, clock), Taker(*second, clock)
    turned._take_turns(sides)
    assert [side.turns for side in sides] == [[n // 2 for n in range(2 * blocks)]] * 2


def side(trial=SLOW):
    return Side(1, SimpleNamespace(trial=trial), None)


def test_the_first_turn_follows_no_rest_of_its_own(monkeypatch):
    made = side()
    idle = iter([(900, 800), (50, 1), (70, 5)])

    def ask(do, event, **what):
        idle_ns, cpu_ns = next(idle)
        turn = {"block": 0, "start_ns": 10, "stop_ns": 30, "queries": 1, "time_s": 0.1}
        return turn | {"idle_ns": idle_ns, "idle_cpu_ns": cpu_ns}

    monkeypatch.setattr(made, "ask", ask)
    assert made.idle_share == 0.0 and made.measured_s == 0.0
    for _ in range(3):
        made.turn(0, again=False)
    assert (made.idle_ns, made.idle_cpu_ns, made.idle_share) == (120, 6, 0.05)
    assert made.measured_s == pytest.approx(60e-9) and turned._warnings(made) == ()
    made.idle_cpu_ns += 1
    assert [w.code for w in turned._warnings(made)] == ["W-PAIR-2"]


@pytest.mark.parametrize(
    ("turn_s", "typical_s", "lasts_s"), [(None, 0.2, 0.4), (0.05, 0.0, 0.05), (None, 0, 0)]
)
def test_a_turn_lasts_two_queries_or_as_asked(monkeypatch, turn_s, typical_s, lasts_s):
    made = side(replace(SLOW, turn_s=turn_s))
    assert (made.turn_s, made.warmed) == (0.0, True)
    monkeypatch.setattr(made, "ask", lambda do, event: {"settled": False, "typical_s": typical_s})
    made.warm()
    assert (made.turn_s, made.warmed) == (lasts_s, False)


def test_what_a_worker_ended_of_is_its_sides():
    made = side()

    def gather(event, done):
        raise WorkerError(Status.OOM, Message("E-X-1", "no room"))

    made.run = SimpleNamespace(gather=gather)
    with pytest.raises(SideError, match="no room") as raised:
        made.wait("warmed")
    assert raised.value.side == 1 and raised.value.error.status is Status.OOM


@pytest.mark.parametrize("of", [0, 1])
@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"processes": 2}, False),
        ({"scenario": "server", "rate": 30.0}, False),
        ({"turn_s": None}, False),
        ({"idle_s": 0.5}, False),
        ({"tracer": "perf"}, False),
        ({"mode": "cpus=0"}, False),
        ({"device": "cuda"}, False),
        ({"batch": 4, "precision": "fp16", "max_s": 9.0}, True),
    ],
)
def test_either_side_may_need_the_machine_alone(of, change, alike):
    pair = [SLOW, FAST]
    pair[of] = replace(pair[of], **change)
    assert (bench.apart(*pair) == "") is alike


def test_a_side_without_a_right_query_has_no_throughput():
    status = np.full(3, QUERY_ERROR, np.int8)
    rows = SimpleNamespace(rows=lambda window: SimpleNamespace(columns={"status": status}))
    assert isinstance(turned._throughput(side(), rows, None), Absent)


def test_an_error_that_is_no_sides_has_a_status_of_its_own(monkeypatch):
    def measured(*_):
        raise UnsupportedError("E-X-1", "not here")

    monkeypatch.setattr(turned, "_measured", measured)
    first, second = turned._ended(begun(), {}, 1.0, "", None)
    assert (first.status, second.status) == (Status.UNSUPPORTED, Status.CANCELLED)
    assert SLOW.label in second.reason.what
