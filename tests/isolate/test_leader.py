"""How a leader listens, against workers that are only pipes: who said what, who is late, who failed."""

import json
import os
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.isolate import leader
from edgescope.isolate.counter import Look
from edgescope.isolate.leader import Shift
from edgescope.isolate.process import CrewError
from edgescope.records import Status, Trial

TRIAL = Trial(model="null", backend="null", processes=2)


class Pipe:
    """A worker's end that a test speaks for; answers orders by `answers`: what it says when it is told something."""

    def __init__(self, number, answers=None):
        self.number, self.pid, self.used, self.kills = number, 100 + number, False, 0
        self.inbox, self.told, self.answers = deque(), [], answers or {}
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def fileno(self):
        return self.read_end

    def speak(self, said, **what):
        os.write(self.write_end, json.dumps({"said": said, **what}).encode() + b"\n")

    def say(self, do, **what):
        self.told.append((do, what))
        for word in self.answers.get(do, ()):
            self.speak(**word)

    def listen(self):
        lines = os.read(self.read_end, 1 << 16).splitlines()
        self.inbox.extend(map(json.loads, lines))

    def silent(self, what, seconds):
        return CrewError(Status.TIMEOUT, f"worker {self.number} not {what} after {seconds:.2f}")


class Looks:
    """A counter that can be looked at."""

    def __init__(self):
        self.n = 0

    def look(self):
        self.n += 1
        return Look(self.n, (self.n, self.n), self.n)


@pytest.fixture
def shift(tmp_path):
    made = []

    def make(*members, grace_s=0.05, limit_s=5.0):
        made.extend(members)
        return Shift(SimpleNamespace(grace_s=grace_s), members, tmp_path, Looks(), limit_s)

    yield make
    for member in made:
        os.close(member.read_end)
        os.close(member.write_end)


def test_words_are_gathered_by_worker_whatever_their_order(shift):
    a, b = Pipe(0), Pipe(1)
    b.speak("ready", n=2)
    b.speak("chatter")
    a.speak("ready", n=1)
    found = shift(a, b).gathered("ready", "ready")
    assert [word["n"] for word in found] == [1, 2]


def test_of_some_workers_only_their_words_are_waited_for_and_known_ones_are_not_asked_again(shift):
    a, b = Pipe(0), Pipe(1)
    b.speak("ready", n=2)
    both = shift(a, b)
    assert both.gathered("ready", "ready", of=[b]) == [{"said": "ready", "n": 2}]
    a.speak("done", n=5)
    found = both.gathered("done", "done", before=[{}, {"said": "done", "n": 6}])
    assert [word["n"] for word in found] == [5, 6]


def test_who_is_late_is_named_with_the_time_it_had(shift):
    a, b = Pipe(0), Pipe(1)
    a.speak("ready")
    with pytest.raises(CrewError, match=r"worker 1 not open after 0\.05") as caught:
        shift(a, b).gathered("ready", "open", limit_s=0.05)
    assert caught.value.status is Status.TIMEOUT


def test_no_wait_is_longer_than_what_is_left_of_the_shift(shift):
    late = shift(Pipe(0), limit_s=0.05)
    with pytest.raises(CrewError, match=r"after 0\.0\d"):
        late.gathered("ready", "open", limit_s=9.0)
    late.begun -= 10
    with pytest.raises(CrewError, match=r"after 0\.00"):
        late.gathered("ready", "open")


def test_until_a_moment_whoever_has_not_spoken_has_an_empty_word(shift):
    a, b = Pipe(0), Pipe(1)
    b.speak("driven", n=2)
    began = time.monotonic_ns()
    found = shift(a, b).gathered("driven", "done", until_ns=began + 50_000_000)
    assert found == [{}, {"said": "driven", "n": 2}] and time.monotonic_ns() - began >= 50_000_000


def test_a_failure_ends_the_wait_with_its_status_and_the_workers_number(shift):
    a, b = Pipe(0), Pipe(1)
    b.speak("failed", status="oom", reason="E-OOM-1: no room")
    with pytest.raises(CrewError) as caught:
        shift(a, b).gathered("ready", "ready")
    assert (caught.value.status, caught.value.reason) == (Status.OOM, "E-OOM-1: worker 1: no room")
    alone = Pipe(0)
    alone.speak("failed", status="failed", reason="E-OOM-1: no room")
    with pytest.raises(CrewError) as caught:
        shift(alone).gathered("ready", "ready")
    assert caught.value.reason == "E-OOM-1: no room"
    bare = Pipe(0)
    bare.speak("failed", status="failed", reason="words without a code")
    with pytest.raises(CrewError) as caught:
        shift(bare, Pipe(1)).gathered("ready", "ready")
    assert caught.value.reason == "words without a code"


def test_every_worker_is_told_its_trial_its_number_and_whether_it_has_worked_before(shift, tmp_path):
    opened = {"open": [{"said": "opened", "facts": {}}]}
    a, b = Pipe(0, opened), Pipe(1, opened)
    b.used = True
    both = shift(a, b)
    both.open([TRIAL, TRIAL])
    ((_, first),), ((_, second),) = a.told, b.told
    assert (first["number"], first["workers"], first["again"]) == (0, 2, False)
    assert (second["number"], second["workers"], second["again"]) == (1, 2, True)
    assert first["folder"] == str(tmp_path) and len(both.opened) == 2


def test_a_start_in_the_future_a_stop_later_and_looks_on_both_sides(shift):
    def member(n):
        return Pipe(n, {"drive": [{"said": "ready", "settled": True}], "start": [{"said": "driven", "n": n}]})

    both = shift(member(0), member(1))
    began = time.monotonic_ns()
    found = both.drive(0.25, lambda pids: pids)
    assert 100_000_000 <= found.span.start_ns - began < 300_000_000
    assert found.span.stop_ns - found.span.start_ns == 250_000_000
    orders = [dict(m.told)["start"] for m in both.members]
    assert orders == [{"start_ns": found.span.start_ns, "stop_ns": found.span.stop_ns}] * 2
    assert [look.counts for look in found.looks] == [(1, 1), (2, 2)] and found.seen == [100, 101]
    assert [w["n"] for w in found.words] == [0, 1] and all(w["settled"] for w in found.ready)


def test_after_the_stop_there_is_grace_and_twice_a_first_query_for_each_and_the_patience_asked_for(shift):
    both = shift(Pipe(0), Pipe(1), grace_s=3.0)
    assert both._grace_s() == 3.0
    both.opened = [{"facts": {"first_s": {"value": 0.5}}}, {"facts": {"first_s": {"value": 2.0}}}]
    assert both._grace_s() == 3.0 + 2 * 2 * 2.0
    both.opened = [{"facts": {}}, {"facts": {"first_s": {"absent": "x"}}}]
    assert both._grace_s() == 3.0
    waiting = shift(*(Pipe(n, {"drive": [{"said": "ready"}]}) for n in (0, 1)), grace_s=0.05)
    with pytest.raises(CrewError, match=r"worker 0 not done after 0\.15"):
        waiting.drive(0.0, lambda pids: pids, patience_s=0.1)


def test_only_the_asked_workers_are_told(shift):
    a, b = Pipe(0, {"answer": [{"said": "answer", "n": 7}]}), Pipe(1)
    assert shift(a, b).asked("answer", "answer", [a], more=1) == [{"said": "answer", "n": 7}]
    assert a.told == [("answer", {"more": 1})] and b.told == []


def test_a_trial_is_given_up_only_when_all_have_closed(shift):
    closing = {"abandon": [{"said": "late word"}, {"said": "closed"}]}
    assert shift(Pipe(0, closing), Pipe(1, closing)).abandoned()
    assert not shift(Pipe(0, closing), Pipe(1)).abandoned()
    slow = Pipe(0)
    threading.Timer(0.1, slow.speak, ["closed"]).start()
    assert shift(slow, grace_s=5.0).abandoned()


def test_defaults_leave_time_to_hear_and_to_end():
    """A worker reads the line of its start in milliseconds; ten seconds for the query at hand; ten minutes in all."""
    assert (leader.LEAD_NS, leader.GRACE_S, leader.PATIENCE_S) == (100_000_000, 10.0, 600.0)


class Hired(Pipe):
    """A worker that opens, loads and closes as it is told; `peaks` by number, 0 for one that cannot load."""

    made: ClassVar[list] = []
    peaks: ClassVar[dict] = {}

    def __init__(self, number, seat, folder):
        yes = [{"said": "closed"}]
        super().__init__(number, {"open": [{"said": "opened", "facts": {}}], "close": yes, "abandon": yes})
        self.seat, self.loaded, self.ended = seat, False, 0
        self.process = SimpleNamespace(kill=lambda: None, poll=lambda: self.gone)
        self.gone = None
        Hired.made.append(self)

    def say(self, do, **what):
        super().say(do, **what)
        if do == "load":
            peak = Hired.peaks.get(self.number, 50.0)
            word = {"said": "loaded", "peak_bytes": peak}
            self.speak(**word) if peak else self.speak("failed", status="failed", reason="E-X: no")

    def end(self):
        self.ended += 1


@pytest.fixture
def hiring(monkeypatch):
    monkeypatch.setattr(leader, "Member", Hired)
    monkeypatch.setattr(leader, "available", lambda: 1000)
    monkeypatch.setattr(Hired, "made", [])
    monkeypatch.setattr(Hired, "peaks", {})
    with leader.Crew(grace_s=0.05) as crew:
        yield crew
    for member in Hired.made:
        os.close(member.read_end)
        os.close(member.write_end)


class Room:
    """A Staff that has room for so many more."""

    def __init__(self, workers, room):
        self.workers, self.room, self.asked = workers, room, []

    def fits(self, more, each_bytes):
        self.asked.append((more, each_bytes))
        return more <= self.room


SEATS = [leader.Seat(), leader.Seat()]


def loads(members):
    return [[do for do, _ in m.told].count("load") for m in members]


def test_workers_for_later_are_started_after_those_of_the_trial_have_loaded(hiring, monkeypatch):
    free = iter([1000, 700])  # before any, and once two have loaded: 150 each
    monkeypatch.setattr(leader, "available", lambda: next(free))
    room = Room(5, 3)
    with hiring.shift([TRIAL, TRIAL], SEATS, 5, staff=room) as shift:
        assert len(hiring.members) == 5 and len(shift.members) == 2
    assert room.asked == [(3, 150.0)] and hiring.took == 150.0 and loads(hiring.members) == [1] * 5
    assert [m.used for m in hiring.members] == [True, True, False, False, False]


def test_what_one_worker_takes_is_its_own_peak_where_that_is_more(hiring):
    Hired.peaks = {1: 400.0}
    room = Room(3, 0)
    with hiring.shift([TRIAL, TRIAL], SEATS, 5, staff=room):
        assert len(hiring.members) == 2  # no room
    assert room.asked == [(1, 400.0)] and loads(hiring.members) == [1, 1]
    with hiring.shift([TRIAL, TRIAL], SEATS, 5, staff=Room(3, 9)):
        assert len(hiring.members) == 3  # those that have loaded need not again
    assert loads(hiring.members) == [1, 1, 1]


def test_nobody_is_started_for_later_without_a_need_or_with_seats_that_differ(hiring):
    for staff, seats in ((Room(2, 9), SEATS), (Room(9, 9), [leader.Seat(), leader.Seat(cpus=(1,))])):
        with hiring.shift([TRIAL, TRIAL], seats, 5, staff=staff):
            assert len(hiring.members) == 2 and staff.asked == []


def test_nobody_is_started_for_later_where_it_was_never_seen_what_one_takes(hiring):
    with hiring.shift([TRIAL, TRIAL], SEATS, 5):
        pass
    staff = Room(4, 9)
    with hiring.shift([TRIAL, TRIAL], SEATS, 5, staff=staff):
        assert len(hiring.members) == 2 and staff.asked == []


def test_a_worker_for_later_that_cannot_load_is_ended_and_the_trial_goes_on(hiring):
    Hired.peaks = {3: 0}
    with hiring.shift([TRIAL, TRIAL], SEATS, 5, staff=Room(4, 9)) as shift:
        assert len(hiring.members) == len(shift.members) == 2
    assert [m.ended for m in Hired.made] == [0, 0, 1, 1]


def test_workers_are_kept_between_trials_and_replaced_where_a_seat_or_a_process_is_gone(hiring):
    def trial(seats):
        with hiring.shift([TRIAL] * len(seats), seats, 5):
            return list(hiring.members)

    first = trial(SEATS)
    assert trial(SEATS) == first and trial(SEATS[:1]) == first
    third = trial([*SEATS, leader.Seat()])
    assert third[:2] == first and len(third) == 3
    moved = trial([leader.Seat(cpus=(1,)), leader.Seat()])
    assert not set(moved) & set(third) and all(m.ended for m in third)
    moved[1].gone = 0
    assert not set(trial([leader.Seat(cpus=(1,)), leader.Seat()])) & set(moved)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (CrewError(Status.UNSUPPORTED, "not this precision"), True),
        (CrewError(Status.CRASHED, "gone"), False),
        (KeyError("a bug"), False),
    ],
)
def test_workers_outlive_only_a_trial_that_the_engine_cannot_run(hiring, error, kept):
    with pytest.raises(type(error)), hiring.shift([TRIAL, TRIAL], SEATS, 5):
        members = list(hiring.members)
        raise error
    assert (hiring.members == members) is kept
    assert all(m.used and m.loaded for m in members) and not any(hiring.folder.iterdir())
