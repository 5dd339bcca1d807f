"""How a leader listens, against workers that are only pipes: who said what, who is late, who failed."""

import json
import os
import threading
import time
from collections import deque
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.errors import Message
from edgescope.isolate import pool as pools
from edgescope.isolate import worker
from edgescope.isolate.worker import Look, Placement, WorkerError, WorkerRun
from edgescope.records import Status, Trial

TRIAL = Trial(model="null", backend="null", processes=2)


class Scripted:
    """A worker that a test speaks for; answers orders by `answers`: what it says when it is told something."""

    def __init__(self, number, answers=None):
        self.number, self.pid, self.used, self.kills = number, 100 + number, False, 0
        self.inbox, self.told, self.answers = deque(), [], answers or {}
        self.read_end, self.write_end = os.pipe()

    def fileno(self):
        return self.read_end

    def speak(self, event, **what):
        os.write(self.write_end, json.dumps({"event": event, **what}).encode() + b"\n")

    def order(self, do, **what):
        self.told.append((do, what))
        for event in self.answers.get(do, ()):
            self.speak(**event)

    def listen(self):
        lines = os.read(self.read_end, 1 << 16).splitlines()
        self.inbox.extend(map(json.loads, lines))

    def events(self):
        while self.inbox:
            yield self.inbox.popleft()

    def silent(self, what, seconds):
        return WorkerError(Status.TIMEOUT, f"worker {self.number} not {what} after {seconds:.2f}")


class Looks:
    """A counter that can be looked at."""

    def __init__(self, path, workers):
        self.n = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def look(self):
        self.n += 1
        return Look(self.n, (self.n, self.n), self.n)


@pytest.fixture
def run(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(worker, "Counter", Looks)

    def make(*members, grace_s=0.05, limit_s=5.0):
        made.extend(members)
        return WorkerRun(members, tmp_path, limit_s, grace_s)

    yield make
    for member in made:
        os.close(member.read_end)
        os.close(member.write_end)


def test_words_are_gathered_by_worker_whatever_their_order(run):
    a, b = Scripted(0), Scripted(1)
    b.speak("ready", n=2)
    b.speak("chatter")
    a.speak("ready", n=1)
    found = run(a, b).gather("ready", "ready")
    assert [word["n"] for word in found] == [1, 2]


def test_of_some_workers_only_their_words_are_waited_for_and_known_ones_are_not_asked_again(run):
    a, b = Scripted(0), Scripted(1)
    b.speak("ready", n=2)
    both = run(a, b)
    assert both.gather("ready", "ready", of=[b]) == [{"event": "ready", "n": 2}]
    a.speak("done", n=5)
    found = both.gather("done", "done", before=[{}, {"event": "done", "n": 6}])
    assert [word["n"] for word in found] == [5, 6]


def test_who_is_late_is_named_with_the_time_it_had(run):
    a, b = Scripted(0), Scripted(1)
    a.speak("ready")
    with pytest.raises(WorkerError, match=r"worker 1 not open after 0\.05") as caught:
        run(a, b).gather("ready", "open", limit_s=0.05)
    assert caught.value.status is Status.TIMEOUT


def test_no_wait_is_longer_than_what_is_left_of_the_shift(run):
    late = run(Scripted(0), limit_s=0.05)
    with pytest.raises(WorkerError, match=r"after 0\.0\d"):
        late.gather("ready", "open", limit_s=9.0)
    late.started -= 10
    with pytest.raises(WorkerError, match=r"after 0\.00"):
        late.gather("ready", "open")


def test_until_a_moment_whoever_has_not_spoken_has_an_empty_word(run):
    a, b = Scripted(0), Scripted(1)
    b.speak("driven", n=2)
    began = time.monotonic_ns()
    found = run(a, b).gather("driven", "done", until_ns=began + 50_000_000)
    assert found == [{}, {"event": "driven", "n": 2}] and time.monotonic_ns() - began >= 50_000_000


def test_a_failure_ends_the_wait_with_its_status_and_the_workers_number(run):
    a, b = Scripted(0), Scripted(1)
    full = Message("E-OOM-1", "no room", fix="a smaller --batch")
    b.speak("failed", status="oom", reason=asdict(full))
    with pytest.raises(WorkerError) as caught:
        run(a, b).gather("ready", "ready")
    assert (caught.value.status, caught.value.reason) == (
        Status.OOM,
        replace(full, what="worker 1: no room"),
    )
    alone = Scripted(0)
    alone.speak("failed", status="failed", reason=asdict(full))
    with pytest.raises(WorkerError) as caught:
        run(alone).gather("ready", "ready")
    assert caught.value.reason == full and str(caught.value) == str(full)


def test_every_worker_is_told_its_trial_its_number_and_whether_it_has_worked_before(run, tmp_path):
    opened = {"open": [{"event": "opened", "facts": {}}]}
    a, b = Scripted(0, opened), Scripted(1, opened)
    b.used = True
    both = run(a, b)
    both.open([TRIAL, TRIAL])
    ((_, first),), ((_, second),) = a.told, b.told
    assert (first["number"], first["workers"], first["again"]) == (0, 2, False)
    assert (second["number"], second["workers"], second["again"]) == (1, 2, True)
    assert first["folder"] == str(tmp_path) and len(both.opened) == 2


def test_a_start_in_the_future_a_stop_later_and_looks_on_both_sides(run):
    def member(n):
        return Scripted(
            n, {"drive": [{"event": "ready", "settled": True}], "start": [{"event": "driven", "n": n}]}
        )

    both = run(member(0), member(1))
    began = time.monotonic_ns()
    found = both.drive(0.25, lambda pids: pids)
    assert 100_000_000 <= found.span.start_ns - began < 300_000_000
    assert found.span.stop_ns - found.span.start_ns == 250_000_000
    orders = [dict(m.told)["start"] for m in both.workers]
    assert orders == [{"start_ns": found.span.start_ns, "stop_ns": found.span.stop_ns}] * 2
    assert [look.counts for look in found.looks] == [(1, 1), (2, 2)] and found.seen == [100, 101]
    assert [w["n"] for w in found.done] == [0, 1] and all(w["settled"] for w in found.ready)


def test_after_the_stop_there_is_grace_and_twice_a_first_query_for_each_and_the_patience_asked_for(run):
    both = run(Scripted(0), Scripted(1), grace_s=3.0)
    assert both._grace_s() == 3.0
    both.opened = [{"facts": {"first_s": {"value": 0.5}}}, {"facts": {"first_s": {"value": 2.0}}}]
    assert both._grace_s() == 3.0 + 2 * 2 * 2.0
    both.opened = [{"facts": {}}, {"facts": {"first_s": {"absent": "x"}}}]
    assert both._grace_s() == 3.0
    waiting = run(*(Scripted(n, {"drive": [{"event": "ready"}]}) for n in (0, 1)), grace_s=0.05)
    with pytest.raises(WorkerError, match=r"worker 0 not done after 0\.15"):
        waiting.drive(0.0, lambda pids: pids, patience_s=0.1)


def test_only_the_asked_workers_are_told(run):
    a, b = Scripted(0, {"answer": [{"event": "answer", "n": 7}]}), Scripted(1)
    assert run(a, b).ask("answer", "answer", [a], more=1) == [{"event": "answer", "n": 7}]
    assert a.told == [("answer", {"more": 1})] and b.told == []


def test_a_trial_is_given_up_only_when_all_have_closed(run):
    closing = {"abandon": [{"event": "late word"}, {"event": "closed"}]}
    assert run(Scripted(0, closing), Scripted(1, closing)).abandon()
    assert not run(Scripted(0, closing), Scripted(1)).abandon()
    slow = Scripted(0)
    threading.Timer(0.1, slow.speak, ["closed"]).start()
    assert run(slow, grace_s=5.0).abandon()


def test_defaults_leave_time_to_hear_and_to_end():
    """A worker reads the line of its start in milliseconds; ten seconds for the query at hand; ten minutes in all."""
    assert (worker.LEAD_NS, worker.GRACE_S, worker.PATIENCE_S) == (100_000_000, 10.0, 600.0)


class Started(Scripted):
    """A worker that opens, loads and closes as it is told; `peaks` by number, 0 for one that cannot load."""

    made: ClassVar[list] = []
    peaks: ClassVar[dict] = {}

    def __init__(self, number, placement):
        yes = [{"event": "closed"}]
        super().__init__(number, {"open": [{"event": "opened", "facts": {}}], "close": yes, "abandon": yes})
        self.placement, self.loaded, self.ended = placement, False, 0
        self.code = None
        Started.made.append(self)

    def order(self, do, **what):
        super().order(do, **what)
        if do == "load":
            peak = Started.peaks.get(self.number, 50.0)
            word = {"event": "loaded", "peak_bytes": peak}
            self.speak(**word) if peak else self.speak(
                "failed", status="failed", reason=asdict(Message("E-X-1", "no"))
            )

    def kill(self):
        pass

    def end(self):
        self.ended += 1


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(pools, "WorkerProcess", Started)
    monkeypatch.setattr(pools, "available", lambda: 1000)
    monkeypatch.setattr(Started, "made", [])
    monkeypatch.setattr(Started, "peaks", {})
    with pools.WorkerPool(grace_s=0.05) as made:
        yield made
    for member in Started.made:
        os.close(member.read_end)
        os.close(member.write_end)


class Room:
    """A Prestart that has room for so many more."""

    def __init__(self, workers, room):
        self.workers, self.room, self.asked = workers, room, []

    def fits(self, more, each_bytes):
        self.asked.append((more, each_bytes))
        return more <= self.room


PLACES = [Placement(), Placement()]


def loads(members):
    return [[do for do, _ in m.told].count("load") for m in members]


def test_workers_for_later_are_started_after_those_of_the_trial_have_loaded(pool, monkeypatch):
    free = iter([1000, 700])  # before any, and once two have loaded: 150 each
    monkeypatch.setattr(pools, "available", lambda: next(free))
    room = Room(5, 3)
    with pool.run([TRIAL, TRIAL], PLACES, 5, prestart=room) as run:
        assert len(pool.workers) == 5 and len(run.workers) == 2
    assert room.asked == [(3, 150.0)] and pool.took == 150.0 and loads(pool.workers) == [1] * 5
    assert [m.used for m in pool.workers] == [True, True, False, False, False]


def test_what_one_worker_takes_is_its_own_peak_where_that_is_more(pool):
    Started.peaks = {1: 400.0}
    room = Room(3, 0)
    with pool.run([TRIAL, TRIAL], PLACES, 5, prestart=room):
        assert len(pool.workers) == 2  # no room
    assert room.asked == [(1, 400.0)] and loads(pool.workers) == [1, 1]
    with pool.run([TRIAL, TRIAL], PLACES, 5, prestart=Room(3, 9)):
        assert len(pool.workers) == 3  # those that have loaded need not again
    assert loads(pool.workers) == [1, 1, 1]


def test_nobody_is_started_for_later_without_a_need_or_with_seats_that_differ(pool):
    for prestart, places in ((Room(2, 9), PLACES), (Room(9, 9), [Placement(), Placement(cpus=(1,))])):
        with pool.run([TRIAL, TRIAL], places, 5, prestart=prestart):
            assert len(pool.workers) == 2 and prestart.asked == []


def test_nobody_is_started_for_later_where_it_was_never_seen_what_one_takes(pool):
    with pool.run([TRIAL, TRIAL], PLACES, 5):
        pass
    prestart = Room(4, 9)
    with pool.run([TRIAL, TRIAL], PLACES, 5, prestart=prestart):
        assert len(pool.workers) == 2 and prestart.asked == []


def test_a_worker_for_later_that_cannot_load_is_ended_and_the_trial_goes_on(pool):
    Started.peaks = {3: 0}
    with pool.run([TRIAL, TRIAL], PLACES, 5, prestart=Room(4, 9)) as run:
        assert len(pool.workers) == len(run.workers) == 2
    assert [m.ended for m in Started.made] == [0, 0, 1, 1]


def test_workers_are_kept_between_trials_and_replaced_where_a_seat_or_a_process_is_gone(pool):
    def trial(places):
        with pool.run([TRIAL] * len(places), places, 5):
            return list(pool.workers)

    first = trial(PLACES)
    assert trial(PLACES) == first and trial(PLACES[:1]) == first
    third = trial([*PLACES, Placement()])
    assert third[:2] == first and len(third) == 3
    moved = trial([Placement(cpus=(1,)), Placement()])
    assert not set(moved) & set(third) and all(m.ended for m in third)
    moved[1].code = 0
    assert not set(trial([Placement(cpus=(1,)), Placement()])) & set(moved)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (WorkerError(Status.UNSUPPORTED, Message("E-X-1", "not this precision")), True),
        (WorkerError(Status.CRASHED, Message("E-X-1", "gone")), False),
        (KeyError("a bug"), False),
    ],
)
def test_workers_outlive_only_a_trial_that_the_engine_cannot_run(pool, error, kept):
    with pytest.raises(type(error)), pool.run([TRIAL, TRIAL], PLACES, 5):
        members = list(pool.workers)
        raise error
    assert (pool.workers == members) is kept
    assert all(m.used and m.loaded for m in members) and not any(pool.folder.iterdir())


class Leaving:
    """A worker that ends once nobody talks to it; waiting for it takes a second."""

    def __init__(self, pid, now):
        self.pid, self.now, self.pipe, self.waited, self.did = pid, now, self, [], []

    def hang_up(self):
        self.did.append("hang up")

    def wait(self, seconds):
        self.waited.append(seconds)
        self.now[0] += 1.0

    def kill(self):
        self.did.append("kill")

    def end(self):
        self.did.append("end")


def test_workers_under_a_profiler_share_the_patience_and_are_killed_after_it(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(pools.time, "monotonic", lambda: now[0])
    pool = pools.WorkerPool()
    pool.workers = members = [Leaving(n, now) for n in range(3)]
    pool.close(1.5)
    assert [m.waited for m in members] == [[1.5], [0.5], [0.0]]
    assert {(*m.did,) for m in members} == {("hang up", "kill", "end")}
    assert not pool.workers and not pool.folder.exists()


def test_nobody_waits_for_workers_that_write_no_trace():
    pool = pools.WorkerPool()
    pool.workers = members = [Leaving(n, [0.0]) for n in range(2)]
    pool.close()
    assert {(*m.waited, *m.did) for m in members} == {("kill", "end")}


@pytest.mark.parametrize(("folder", "patience"), [("/trace", 90.0), (None, 0.0)])
def test_pools_are_closed_with_patience_where_a_profiler_writes(monkeypatch, folder, patience):
    closed = []
    monkeypatch.setattr(pools.time, "monotonic", lambda: 50.0)
    monkeypatch.setattr(pools.WorkerPool, "close", lambda pool, patience_s: closed.append(patience_s))
    monkeypatch.setenv("EDGESCOPE_TIMEOUT", "100")
    monkeypatch.delenv(pools.FOLDER, raising=False)
    if folder:
        monkeypatch.setenv(pools.FOLDER, folder)
    with pools.WorkerPools() as many:
        many.of(TRIAL).workers = [Leaving(7, []), Leaving(8, [])]
        many.of(replace(TRIAL, sharing="pinned")).workers = [Leaving(9, [])]
        assert many.pids == {7, 8, 9}
    assert closed == [patience] * 2 and many.pids == set()


def test_a_start_that_took_too_long_to_tell_is_not_waited_for(run, monkeypatch):
    """The workers find it passed, too, and begin at once."""
    clock = SimpleNamespace(now=1_000, slept=[], monotonic=time.monotonic)
    clock.sleep = clock.slept.append
    clock.monotonic_ns = lambda: clock.now
    monkeypatch.setattr(worker, "time", clock)
    member = Scripted(0, {"drive": [{"event": "ready"}], "start": [{"event": "driven"}]})
    plain = member.order

    def slow(do, **what):
        plain(do, **what)
        clock.now += 60_000_000 if do == "start" else 0

    member.order = slow
    both = run(member)
    assert both.drive(1.0, lambda pids: pids).span.start_ns == 100_001_000 and clock.slept == [0.04]
    member.order = lambda do, **what: slow(do, **what) or slow("start") if do == "start" else slow(do, **what)
    both.drive(1.0, lambda pids: pids)
    assert clock.slept == [0.04, 0.0]


def test_a_runs_folder_may_be_gone_when_it_ends(pool):
    with pool.run([TRIAL], PLACES[:1], 5) as run:
        pools.shutil.rmtree(run.folder)
    assert not run.folder.exists() and len(pool.workers) == 1
