"""What stops a process, what is asked of one that is kept, and what lies below one, in fake time and memory."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.isolate import fresh, persistent, warden
from edgescope.isolate.fresh import FLOOR_BYTES, Limits, Stopped
from edgescope.isolate.notes import Imports
from edgescope.isolate.persistent import PersistentChild
from edgescope.process import Launch
from edgescope.records import Status, Trial
from edgescope.store import handed_rows, results
from making import result

TRIAL = Trial(model="null", backend="null")


class Watched:
    """A handle, a clock and a memory: each look at the handle waits for its whole limit, until it is readable."""

    POLLIN = 1

    def __init__(self, free, readable_after=10, total=1000):
        self.free, self.left, self.total, self.now, self.handles = list(free), readable_after, total, 0.0, []

    def register(self, handle, events):
        self.handles.append((handle, events))

    def poll(self, limit_ms=None):
        if limit_ms is None:  # the maker of such
            return self
        if not self.left:
            return [(self.handles[0][0], self.POLLIN)]
        self.left -= 1
        self.now += limit_ms / 1000
        return []

    def monotonic(self):
        return self.now

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def available(self):
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]


@pytest.fixture
def watch(monkeypatch):
    def waited(watched, limits):
        monkeypatch.setattr(fresh, "select", watched)
        monkeypatch.setattr(fresh, "time", watched)
        monkeypatch.setattr(fresh, "Memory", lambda: watched)
        return fresh.until_readable(5, limits)

    return waited


def test_memory_that_is_just_at_the_floor_is_enough(watch):
    watched = Watched([500])
    assert watch(watched, Limits(floor_bytes=500)) is None
    assert watched.handles == [(5, 1)] and watched.now == pytest.approx(1.0)  # ten looks of 100 ms


def test_one_byte_below_the_floor_stops_it_at_once(watch):
    watched = Watched([600e6, 500e6, 499e6, 600e6])
    found = watch(watched, Limits(floor_bytes=500_000_000))
    assert found.status is Status.OOM and found.reason.code == "E-MEM-1"
    assert re.fullmatch("MemAvailable 499 MB .*floor 500 MB", found.reason.evidence) and watched.left == 7
    assert watch(Watched([499]), Limits(floor_bytes=500)).status is Status.OOM


def test_the_floor_is_a_share_of_the_machine_and_no_less_than_some():
    assert fresh.floor_of(None, SimpleNamespace(total=10**9)) == FLOOR_BYTES == 400_000_000
    assert fresh.floor_of(None, SimpleNamespace(total=10**11)) == 8 * 10**9
    assert fresh.floor_of(0, SimpleNamespace(total=10**11)) == 0


def test_a_time_out_counts_from_the_start_and_ends_it_after_not_at_its_limit(watch):
    watched = Watched([500])
    watched.now = 50.0
    found = watch(watched, Limits(timeout_s=0.25, floor_bytes=0))
    assert found.status is Status.TIMEOUT and found.reason.code == "E-TIME-1"
    assert found.reason.evidence.endswith(" 0.25 s") and watched.left == 7
    assert watch(Watched([500], readable_after=2), Limits(timeout_s=0.2, floor_bytes=0)) is None


def test_what_is_readable_ends_the_wait_whatever_the_limits(watch):
    nothing = Limits(timeout_s=-1.0, floor_bytes=10**9, cancelled=lambda: True)
    assert watch(Watched([0], readable_after=0), nothing) is None
    with pytest.raises(KeyboardInterrupt):
        watch(Watched([0], readable_after=1), nothing)


def test_a_process_that_builds_keeps_half_a_gibibyte_of_what_it_freed():
    assert fresh.KEPT_BYTES == 536_870_912
    assert fresh.BUILDING["MALLOC_TRIM_THRESHOLD_"] == "536870912"
    assert fresh.BUILDING["MALLOC_MMAP_MAX_"] == "0"


# -- a process that is kept ------------------------------------------------------------------------------------


class Child:
    """A process that is none; `coming` says of each order whether it is answered, or the process ends instead."""

    made: ClassVar[list[object]] = []
    coming: ClassVar[list[bool]] = []
    exits: ClassVar[int] = 3

    def __init__(self, program, folder, launch, *, talks):
        self.program, self.launch, self.talks = program, launch, talks
        self.pid, self.code = 10 + len(self.made), None
        self.orders, self.ended, self.waited, self.hung_up = [], 0, [], False
        self.pipe = self
        self.made.append(self)

    def mark(self):
        self.orders.append("mark")

    def send(self, **order):
        self.orders.append(order)

    def receive(self):
        self.orders.append("answer")
        if not self.coming.pop(0):
            raise EOFError

    def fileno(self):
        return self.pid

    def hang_up(self):
        self.hung_up = True

    def wait(self, seconds=None):
        self.waited.append(seconds)
        return self.exits

    def tail(self):
        return [f"words of {self.pid}"]

    def end(self):
        self.ended += 1
        self.code = -9


@pytest.fixture
def kept(monkeypatch):
    """A child that is started when it is first needed; it answers as often as `Child.coming` says."""
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(Child, "coming", [])
    monkeypatch.setattr(persistent, "GuardedProcess", Child)
    monkeypatch.setattr(persistent, "until_readable", lambda handle, limits: None)
    with PersistentChild() as child:
        yield child


LIMITS = Limits(timeout_s=7.0, floor_bytes=9)
EXPECTED = {"verb": "expect", "timeout_s": 7.0, "floor_bytes": 9}


def test_what_gets_ready_owes_an_answer_which_is_waited_for_once(kept):
    kept.settle(LIMITS)
    assert not Child.made and not kept.alive
    kept.expect([(TRIAL, Imports(("a",), 2.0))], LIMITS)
    (one,) = Child.made
    told = [{"trial": TRIAL.to_json(), "imports": {"names": ("a",), "took_bytes": 2.0}}]
    assert one.orders == ["mark", EXPECTED | {"workers": told}] and one.talks and kept.alive
    Child.coming.append(True)
    kept.settle(LIMITS)
    kept.settle(LIMITS)
    assert one.orders[2:] == ["answer"] and kept.alive


def test_it_gets_ready_for_others_once_it_is_ready(kept):
    Child.coming.append(True)
    for _ in range(2):
        kept.expect([], LIMITS)
    assert [order if isinstance(order, str) else order["verb"] for order in Child.made[0].orders] == [
        *("mark", "expect", "answer"),
        *("mark", "expect"),
    ]


def test_one_that_was_stopped_owes_nothing(kept):
    kept.expect([], LIMITS)
    kept.stop()
    kept.settle(LIMITS)
    (one,) = Child.made
    assert one.ended == 1 and "answer" not in one.orders and not kept.alive


def test_one_that_cannot_be_started_owes_nothing(kept, monkeypatch):
    def refused(*how, **more):
        raise OSError(12, "no memory")

    with monkeypatch.context() as now:
        now.setattr(persistent, "GuardedProcess", refused)
        kept.expect([], LIMITS)
        assert kept.answer("run", TRIAL, LIMITS).reason.code == "E-RUN-5"
    assert not kept._owes and not kept.alive


def test_one_that_takes_too_long_to_get_ready_is_ended(kept, monkeypatch):
    late = Stopped(Status.TIMEOUT, fresh._timeout_message(7.0))
    kept.expect([], LIMITS)
    monkeypatch.setattr(persistent, "until_readable", lambda handle, limits: late)
    kept.settle(LIMITS)
    assert Child.made[0].ended == 1 and not kept.alive and "answer" not in Child.made[0].orders


def test_one_whose_answer_nobody_waits_for_is_ended(kept, monkeypatch):
    def cancelled(handle, limits):
        raise KeyboardInterrupt

    monkeypatch.setattr(persistent, "until_readable", cancelled)
    with pytest.raises(KeyboardInterrupt):
        kept.answer("run", TRIAL, LIMITS)
    assert Child.made[0].ended == 1 and not kept.alive


@pytest.mark.parametrize(("coming", "started"), [([True], 1), ([False, True], 2), ([False, False], 2)])
def test_an_order_is_given_again_where_its_trial_had_not_begun(kept, coming, started):
    Child.coming.extend(coming)
    found = kept.answer("run", TRIAL, LIMITS, {"A": "b"}, 4)
    assert len(Child.made) == started and found.status is Status.CRASHED  # it wrote no result
    orders = [child.orders[1] for child in Child.made]
    assert {(o["verb"], o["prestart"], o["env"]["A"], o["timeout_s"], o["floor_bytes"]) for o in orders} == {
        ("run", 4, "b", 7.0, 9)
    }
    assert len({order["folder"] for order in orders}) == 1
    assert [child.ended for child in Child.made] == [0 if answers else 1 for answers in coming]
    assert ("exited with 3" in str(found.reason)) is (not coming[-1])
    assert f"words of {9 + started}" in str(found.reason)


@pytest.mark.parametrize(
    ("exits", "says"), [(0, "exited with 0 and wrote no result"), (None, "with 0"), (-9, "SIGKILL")]
)
def test_one_that_ends_before_it_answers_is_told_with_its_code(kept, monkeypatch, exits, says):
    monkeypatch.setattr(Child, "exits", exits)
    Child.coming.extend([False, False])
    assert says in kept.answer("run", TRIAL, LIMITS).reason.what


def test_no_order_is_given_again_to_a_trial_that_had_begun(kept, monkeypatch):
    def begun(handle, limits):
        folder = Path(Child.made[0].orders[-1]["folder"]) / "begun"
        folder.mkdir()
        results.write(replace(result(TRIAL), id="begun-1"), folder, handed_rows)

    monkeypatch.setattr(persistent, "until_readable", begun)
    Child.coming.append(False)
    found = kept.answer("run", TRIAL, LIMITS)
    assert len(Child.made) == 1 and (found.id, found.status) == ("begun-1", Status.CRASHED)


def test_one_that_has_ended_is_replaced_before_it_is_asked(kept):
    Child.coming.extend([True, True])
    kept.answer("prepare", TRIAL, LIMITS)
    Child.made[0].code = 0
    assert not kept.alive
    kept.answer("prepare", TRIAL, LIMITS)
    assert [child.ended for child in Child.made] == [1, 0] and kept.alive


def test_one_that_is_closed_may_end_by_itself_first(kept):
    Child.coming.append(True)
    kept.answer("prepare", TRIAL, LIMITS)
    (one,) = Child.made
    kept.close()
    kept.close()
    assert one.hung_up and one.waited == [persistent.ENDING_S] and one.ended == 1


OTHER = replace(TRIAL, batch=2)


@pytest.fixture
def written(kept, monkeypatch):
    """What lay in the folder of a pair when it was asked for; `begun` sides write what they have begun."""
    seen, begun = [], []

    def waited(handle, limits):
        folder = Path(Child.made[-1].orders[-1]["folder"])
        files = sorted(path for path in folder.rglob("*") if path.is_file() and "begun" not in path.parts)
        seen.append({str(path.relative_to(folder)): path.read_text() for path in files})
        while begun:
            side = begun.pop()
            (folder / side / "begun").mkdir()
            results.write(replace(result(TRIAL), id=side), folder / side / "begun", handed_rows)

    monkeypatch.setattr(persistent, "until_readable", waited)
    return SimpleNamespace(seen=seen, begun=begun)


def test_a_pair_lies_in_two_folders_with_its_purpose(kept, written):
    Child.coming.append(True)
    first, second = kept.pair((TRIAL, OTHER), "gate", LIMITS, [(TRIAL, Imports(("a",), 2.0))])
    assert (first.trial, second.trial) == (TRIAL, OTHER) and first.status is second.status is Status.CRASHED
    (seen,) = written.seen
    assert sorted(seen) == ["baseline/trial.json", "candidate/trial.json", "purpose"]
    assert seen["purpose"] == "gate"
    sides = [Trial.from_json(json.loads(seen[f"{side}/trial.json"])) for side in fresh.PAIR]
    assert sides == [TRIAL, OTHER]
    order = Child.made[0].orders[1]
    assert (order["verb"], order["timeout_s"]) == ("pair", 7.0)
    assert order["workers"] == [{"trial": TRIAL.to_json(), "imports": {"names": ("a",), "took_bytes": 2.0}}]


@pytest.mark.parametrize(("begun", "asked"), [([], 2), (["candidate"], 2), (["baseline"], 1)])
def test_a_pair_is_asked_for_again_where_its_first_side_had_not_begun(kept, written, begun, asked):
    written.begun.extend([*begun])
    Child.coming.extend([False, True])
    found = kept.pair((TRIAL, OTHER), "", LIMITS)
    assert len(Child.made) == asked
    assert [side.id in fresh.PAIR for side in found] == [side in begun for side in fresh.PAIR]


def test_three_are_no_pair(kept):
    with pytest.raises(ValueError, match="zip"):
        kept.pair((TRIAL, OTHER, TRIAL), "")
    assert not Child.made


# -- what lies below a process ---------------------------------------------------------------------------------

TREE = {1: [2, 3], 2: [4], 3: [5, 4], 4: [6], 9: [9]}


def test_what_lies_below_is_found_to_the_last_generation_and_nobody_twice(monkeypatch):
    monkeypatch.setattr(warden, "_children", lambda pid: [*TREE.get(pid, [])])
    assert [warden.below(pid) for pid in (1, 2, 6, 9)] == [[2, 3, 4, 5, 6], [4, 6], [], [9]]


class Family:
    """Below this process, 1, one more process is found in each round; some of them cannot be ended."""

    WNOHANG, getpid = 1, staticmethod(lambda: 1)

    def __init__(self, *rounds, stays=()):
        self.rounds, self.stays, self.killed, self.now = list(rounds), list(stays), [], 0.0
        self.zombies: list[int] = []

    def children(self, pid):
        return [] if pid != 1 else [*(self.rounds[0] if self.rounds else []), *self.stays]

    def kill(self, pid, number):
        self.killed.append((pid, number))
        if pid in self.stays:
            raise PermissionError
        self.zombies.append(pid)

    def waitpid(self, pid, how):
        if self.zombies:
            return self.zombies.pop(), 9
        self.rounds = self.rounds[1:]
        if not self.children(1):
            raise ChildProcessError
        return 0, 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def family(monkeypatch):
    def made(*rounds, stays=()):
        found = Family(*rounds, stays=stays)
        monkeypatch.setattr(warden, "os", found)
        monkeypatch.setattr(warden, "time", found)
        monkeypatch.setattr(warden, "_children", found.children)
        return found

    return made


def test_who_is_found_in_a_later_round_is_ended_too(family):
    found = family([2, 3], [4])
    assert warden.end_all() == [] and found.killed == [(pid, signal.SIGKILL) for pid in (2, 3, 4)]
    assert found.now == pytest.approx(0.0005)


def test_who_cannot_be_ended_is_told_after_some_time(family):
    found = family([2], stays=[8])
    assert warden.end_all(0.0012) == [8] and found.now == pytest.approx(0.0015)
    assert [pid for pid, _ in found.killed] == [2, 8, 8, 8, 8]


def test_strangers_are_ended_for_some_time_and_those_who_are_known_stay(family):
    found = family(stays=[7, 8])
    warden.end_strangers({7}, 0.0012)
    assert {pid for pid, _ in found.killed} == {8} and found.now == pytest.approx(0.0015)
    found = family(stays=[7])
    warden.end_strangers({7}, 5.0)
    assert not found.killed and not found.now


def test_a_launch_is_what_a_kept_process_is_started_with(kept):
    kept.launch = Launch(("nice",))
    Child.coming.append(True)
    kept.answer("prepare", TRIAL, LIMITS)
    assert Child.made[0].launch.prefix == ("nice",) and Child.made[0].program[3] == "serve"
