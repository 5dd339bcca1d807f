"""Two trials in turns: the ratio that is known beforehand, what a side does between its turns, and what goes wrong."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from edgescope import bench
from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.compare import compare
from edgescope.bench import alternation as turned
from edgescope.bench import worker as of_side
from edgescope.bench.worker import DROPPED_S, WARM_QUERIES, WARM_S, Side
from edgescope.errors import UnsupportedError
from edgescope.isolate.fresh import Limits
from edgescope.records import Absent, Machine, Measured, Result, Status, Trial
from edgescope.runner.builds import needed
from edgescope.runner.isolated import Isolated
from edgescope.runner.run import ExperimentRunner
from edgescope.store.results import Store
from edgescope.workloads.blocking import Failures, Inline

SLOW = Trial(
    model="null", backend="null", options={"delay_us": 8000}, warmup=0.05, min_s=0.2, max_s=0.2, turn_s=0.05
)
FAST = replace(SLOW, options={"delay_us": 2000})


@pytest.fixture(scope="module")
def found(tmp_path_factory, answered_here):
    """Pairs of real processes whose ratio is 4 by construction, stored, as a search would run them; led from here."""
    store = Store(tmp_path_factory.mktemp("store"))
    cells = ExperimentRunner(store, Limits(), Isolated(), bench.here())
    with answered_here():
        ends = [
            cells.run_pair(replace(SLOW, replicate=n), replace(FAST, replicate=n), alternation.CONFIRMING)
            for n in range(3)
        ]
    return store, ends


@pytest.mark.process
def test_the_ratio_of_two_sleeping_engines_is_that_of_their_sleeps(found):
    _, ends = found
    assert {r.status for pair in ends for r in pair} <= {Status.OK, Status.UNSTABLE}
    ratio = alternation.speedup(alternation.pairs([b for _, b in ends], [a for a, _ in ends]))
    assert 1 < ratio.value < 8 and ratio.n == 3  # on a busy machine each sleep ends late by as much


@pytest.mark.process
def test_the_store_holds_the_pairing_and_the_turns(found):
    store, ends = found
    stored = list(store.results())
    assert len(stored) == 6
    for a, b in ends:
        assert (a.alternation.partner, b.alternation.partner) == (b.id, a.id)
    table = variants.table(stored, SLOW.cell)
    row = table.row(FAST.cell)
    assert row.pairs == "3 pairs in turns"
    said = compare(
        [r for r in stored if r.trial.cell == SLOW.cell], [r for r in stored if r.trial.cell == FAST.cell]
    )
    speedup, ratio = row["speedup"], said.rows[0].ratio
    assert said.pairs == 3
    if isinstance(speedup, Measured):
        assert speedup.n == 3 and ratio.value == pytest.approx(1 / speedup.value)
    else:  # on a busy machine the three may disagree too much; then for both
        assert not isinstance(ratio, Measured)
    again = ExperimentRunner(store, Limits(), Isolated(), bench.here())
    pair = again.stored_pair(SLOW, FAST, alternation.CONFIRMING)
    assert pair is not None and [r.id for r in pair] == [r.id for r in ends[0]]
    assert again.stored_pair(SLOW, FAST, alternation.SELECTING) is None


@pytest.mark.process
def test_turns_are_abba_and_never_overlap(found):
    _, ends = found
    for a, b in ends:
        turns = sorted(
            [(t.start_ns, t.stop_ns, "a") for t in a.alternation.turns]
            + [(t.start_ns, t.stop_ns, "b") for t in b.alternation.turns]
        )
        assert "".join(side for *_, side in turns) == "abba" * (len(turns) // 4)
        assert all(first[1] < second[0] for first, second in pairwise(turns))


@pytest.mark.process
def test_the_rows_that_count_are_those_of_the_turns(found):
    _, ends = found
    for one in ends[0]:
        rows = one.queries.rows(one.window).columns
        turns = one.alternation.turns
        assert len(rows["query_id"]) == sum(t.queries for t in turns)
        inside = [any(t.start_ns <= at <= t.stop_ns for t in turns) for at in rows["issued_ns"]]
        assert all(inside)
        busy = sum(t.stop_ns - t.start_ns for t in turns) * 1e-9
        assert one.metrics["throughput_sps"].value == pytest.approx(len(inside) / busy)
        assert one.alternation.idle_share < 0.2 and isinstance(one.metrics["power_w"], Absent)


@pytest.mark.slow
def test_a_side_that_fails_says_so_and_the_other_is_not_stored(tmp_path):
    cells = ExperimentRunner(Store(tmp_path), Limits(), Isolated(), bench.here())
    broken = replace(SLOW, model="hostile_models:segfaults", backend="torch_eager", options={})
    cells.builds.pace.builds[needed(broken)] = 1.0  # as if it had been built
    first, second = cells.run_pair(SLOW, broken, alternation.CONFIRMING)
    assert second.status is Status.CRASHED and first.status is Status.CANCELLED
    assert "SIGSEGV" in str(second.reason)
    assert [r.trial.id for r in cells.store.results()] == [broken.id]
    pair = ExperimentRunner(Store(tmp_path), Limits(), Isolated(), bench.here()).stored_pair(
        SLOW, broken, "confirming"
    )
    assert pair is not None and pair[1].status is Status.CRASHED


@pytest.mark.parametrize(("forked", "times"), [(True, 2), (False, 1)])
def test_what_fails_in_a_forked_process_is_measured_again_in_started_ones(monkeypatch, forked, times):
    begun = tuple(Result.begun(trial, Machine({"cpu": "one"}, {})) for trial in (SLOW, FAST))
    distrusted, calls = [], []

    class Kept:
        def distrust(self, trials):
            distrusted.extend(trials)
            return forked

    def measured(*args):
        calls.append(args)
        raise turned.SideError(1, UnsupportedError("E-X-1", "it does so in a fork"))

    monkeypatch.setattr(turned, "_measured", measured)
    first, second = turned.measure(begun, {}, 1.0, forks=Kept())
    assert len(calls) == times and distrusted == [FAST]
    assert first.status is Status.CANCELLED and "in a fork" in str(second.reason)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"processes": 2}, "several processes"),
        ({"scenario": "server", "rate": 30.0}, "cannot pause"),
        ({"turn_s": None}, "no meter"),
        ({"idle_s": 1.0}, "needs the machine alone"),
        ({"mode": "cpus=0"}, "different modes"),
    ],
)
def test_what_cannot_live_together_says_why(change, why):
    assert why in bench.apart(SLOW, replace(FAST, **change))
    assert bench.apart(SLOW, FAST) == ""


class Told:
    """A leader's pipe: these orders, then what was answered."""

    def __init__(self, *orders):
        self.orders, self.sent = list(orders), []

    def receive(self):
        return self.orders.pop(0)

    def send(self, **what):
        self.sent.append(what)


@contextmanager
def spinning(seconds):
    """Give an engine whose thread goes on spinning after each answer, as OpenMP's do."""
    until, ended = [0.0], threading.Event()

    def spin():
        while not ended.is_set():
            if time.monotonic() > until[0]:
                time.sleep(0.001)

    threading.Thread(target=spin, daemon=True).start()

    def call(query_id):
        time.sleep(0.002)
        until[0] = time.monotonic() + seconds

    yield Inline(call, Failures())
    ended.set()


@pytest.mark.alone
@pytest.mark.parametrize("seconds", [0.0, 0.06])
def test_a_turn_is_over_when_the_engines_threads_sleep(seconds):
    turn = {"do": "turn", "seconds": 0.03, "block": 0, "again": False}
    pipe = Told({"do": "warm"}, turn, turn, {"do": "rows"})
    with spinning(seconds) as engine:
        side = Side(replace(SLOW, warmup=0.01), engine, pipe)
        side.serve()
    first, second = pipe.sent[1:]
    assert (first["awake_s"] > 0.7 * seconds) and first["awake_s"] < of_side.ASLEEP_S + 0.2
    assert second["idle_cpu_ns"] < 0.02e9  # what it took after it had said that its turn was over
    assert side.counted == first["queries"] + second["queries"] < len(side.queries)


def taken(*orders, trial=SLOW, query_s=0.001):
    """What a side answers to these orders, and when each of its queries began."""
    calls = []

    def call(query_id):
        calls.append(time.monotonic_ns())
        time.sleep(query_s)

    pipe = Told(*orders, {"do": "rows"})
    Side(trial, Inline(call, Failures()), pipe).serve()
    return pipe.sent, calls


def test_what_follows_a_turn_of_the_other_side_does_not_count():
    turn = {"do": "turn", "seconds": 0.03, "block": 2}
    (first, second), calls = taken(turn | {"again": False}, turn | {"again": True})
    dropped = first["start_ns"] - calls[0]
    assert first["block"] == 2 and first["time_s"] >= 0.001 and dropped >= DROPPED_S * 1e9
    assert all(turn["stop_ns"] - turn["start_ns"] >= 0.03e9 for turn in (first, second))
    left_out = [at for at in calls if at < first["start_ns"] or first["stop_ns"] <= at < second["start_ns"]]
    assert max(left_out) < first["start_ns"]  # the second turn follows its own: all of it counts


def test_a_side_is_told_whether_it_had_the_last_turn_too():
    told = []

    class Taker:
        begun, measured_s = SimpleNamespace(trial=SLOW), 1.0

        def __init__(self, number):
            self.number = number

        def turn(self, block, *, again):
            told.append((block, self.number, again))

    turned._take_turns([Taker(0), Taker(1)])
    first = [(0, 0, False), (0, 1, False), (0, 1, True), (0, 0, False)]
    assert told == [*first, (1, 0, True), (1, 1, False), (1, 1, True), (1, 0, False)]


@pytest.mark.parametrize(("typical_s", "turn_s"), [(0.001, 0.05), (0.2, 0.4)])
def test_two_queries_of_a_turn_count_at_least(monkeypatch, typical_s, turn_s):
    side = turned.Side(0, SimpleNamespace(trial=SLOW), None)
    monkeypatch.setattr(side, "ask", lambda do, event: {"settled": True, "typical_s": typical_s})
    side.warm()
    assert side.turn_s == turn_s


def test_a_warm_up_that_does_not_settle_ends_soon_with_a_few_queries_at_least():
    usual = replace(SLOW, warmup=None)
    for query_s, least, most in ((0.02, WARM_S, 1.5 * WARM_S), (0.1, 0.28, 0.9)):
        (warmed,), calls = taken({"do": "warm"}, trial=usual, query_s=query_s)
        assert least <= (time.monotonic_ns() - calls[0]) * 1e-9 <= most + 0.5
        assert warmed["settled"] and len(calls) >= WARM_QUERIES
        assert warmed["typical_s"] == pytest.approx(query_s, rel=0.5)
