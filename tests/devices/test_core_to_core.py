"""How long a cache line takes from CPU to CPU: two real processes, and what is taken off and left out."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from edgescope.devices import probes
from edgescope.devices.probes import Prober

NS = 1e-9


@pytest.fixture
def pretended(monkeypatch):
    """Have the two CPUs answer each other within these seconds, and this process itself within `own`."""

    def pretend(trips, own=80 * NS):
        monkeypatch.setattr(probes.os, "sched_getaffinity", lambda pid: {3, 5})
        monkeypatch.setattr(probes, "_on", lambda cpu: contextlib.nullcontext())
        monkeypatch.setattr(probes, "_answering", lambda page, cpu: contextlib.nullcontext())
        monkeypatch.setattr(probes, "_trip", lambda page, n, reply: own)
        monkeypatch.setattr(probes, "_trips", lambda page: iter(trips))
        return probes.one_way()

    return pretend


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no other one")
@pytest.mark.slow
def test_two_cpus_answer_each_other_and_nothing_is_left_behind():
    with Prober("core_to_core") as child:
        found = [child.seconds() for _ in range(20)]
        assert psutil.Process(child._child.pid).children() == []
        assert len(psutil.Process(child._child.pid).cpu_affinity()) == len(os.sched_getaffinity(0))
    assert any(s is not None and s < 5e-6 for s in found), found  # other tests may have one for themselves


def test_what_the_interpreter_takes_is_no_distance(pretended):
    assert pretended([220 * NS] * 200) == pytest.approx(30 * NS)
    assert pretended([575 * NS] * 200) == pytest.approx(207.5 * NS)
    assert pretended([150 * NS] * 200) == 0.0


def test_a_trip_that_something_disturbed_does_not_count(pretended):
    assert pretended([220 * NS] * 30 + [9e-3] * 170) == pytest.approx(30 * NS)
    assert pretended([1 * NS] + [220 * NS] * 199) == pytest.approx(30 * NS)


def test_few_trips_tell_nothing(pretended):
    assert pretended([220 * NS] * probes.LEAST_TRIPS) is not None
    assert pretended([220 * NS] * (probes.LEAST_TRIPS - 1)) is None


def test_one_cpu_has_no_distance(monkeypatch):
    monkeypatch.setattr(probes.os, "sched_getaffinity", lambda pid: {0})
    assert probes.one_way() is None


def test_where_no_process_can_be_started_there_is_no_distance(pretended, monkeypatch):
    def refused(page, cpu):
        raise BlockingIOError("fork: Resource temporarily unavailable")

    assert pretended([220 * NS] * 200) is not None
    monkeypatch.setattr(probes, "_answering", refused)
    assert probes.one_way() is None


@pytest.mark.process
def test_nobody_answers_and_the_time_is_up():
    code = (
        "import mmap\n"
        "from edgescope.devices import probes as c\n"
        "print(list(c._trips(mmap.mmap(-1, mmap.PAGESIZE))))"
    )
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert ran.stdout.strip() == "[]", ran.stderr
    assert time.monotonic() - began < 10


@pytest.mark.process
def test_who_answers_ends_by_itself_where_its_parent_was_killed():
    """Also where an earlier probe left its own handler of the alarm."""
    code = (
        "import mmap, os, time\n"
        "from edgescope.devices import probes as c\n"
        "page = mmap.mmap(-1, mmap.PAGESIZE)\n"
        "list(c._trips(page))\n"
        "with c._answering(page, min(os.sched_getaffinity(0))):\n"
        "    print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "up\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    assert not psutil.wait_procs([child], timeout=10)[1]


class Hands:
    """In place of `os`, `signal` and `time` of the probe: what they are told is kept."""

    SIGALRM, SIGKILL, ITIMER_REAL = signal.SIGALRM, signal.SIGKILL, signal.ITIMER_REAL

    def __init__(self, pid=0, ticks=()):
        self.pid, self.ticks, self.did = pid, list(ticks), []

    def __getattr__(self, name):
        return lambda *words: self.did.append((name, *words))

    def fork(self):
        return self.pid

    def sched_getaffinity(self, pid):
        assert pid == 0  # this thread's own
        return {3, 5}

    def perf_counter(self):
        return self.ticks.pop(0)

    def _exit(self, code):
        raise SystemExit(code)


@pytest.fixture
def hands(monkeypatch):
    def made(*how):
        found = Hands(*how)
        for name in ("os", "signal", "time"):
            monkeypatch.setattr(probes, name, found)
        return found

    return made


def test_a_process_stays_on_one_cpu_and_returns_to_all(hands):
    here = hands()
    with pytest.raises(ValueError, match="late"), probes._on(5):
        assert here.did == [("sched_setaffinity", 0, {5})]
        raise ValueError("late")
    assert here.did[1:] == [("sched_setaffinity", 0, {3, 5})]


def test_the_other_process_is_there_while_it_is_asked(hands):
    here, page = hands(77), {}
    with probes._answering(page, 5):
        assert page == {probes.ASKED: 0, probes.ANSWERED: 0} and not here.did
    assert here.did == [("kill", 77, signal.SIGKILL), ("waitpid", 77, 0)]


def test_the_other_process_answers_on_its_cpu_and_ends_by_an_alarm(hands, monkeypatch):
    here = hands(0)
    monkeypatch.setattr(probes, "_answer", lambda page: here.did.append("answers"))
    with pytest.raises(SystemExit) as ended, probes._answering({}, 5):
        pass
    assert ended.value.code == 1
    assert here.did == [("setitimer", signal.ITIMER_REAL, 0.06), ("sched_setaffinity", 0, {5}), "answers"]


class Page(dict):
    """Shared memory: `after` looks later, what was asked is answered, or asked next."""

    def __init__(self, later):
        super().__init__({probes.ASKED: 0, probes.ANSWERED: 0})
        self.later, self.seen = list(later), []

    def __setitem__(self, at, token):
        assert 1 <= token <= 255
        self.seen.append((at, token))
        super().__setitem__(at, token)

    def __getitem__(self, at):
        if not self.later:
            raise StopIteration
        if (now := self.later.pop(0)) is not None:
            super().__setitem__(*now)
        return super().__getitem__(at)


def test_an_answer_is_the_token_that_was_asked_each_once():
    asked, answered = probes.ASKED, probes.ANSWERED
    page = Page([None, (asked, 4), None, None, (asked, 9), None])
    with pytest.raises(StopIteration):
        probes._answer(page)
    assert page.seen == [(answered, 4), (answered, 9)]


def test_a_trip_takes_from_the_question_to_its_answer(hands):
    hands(0, [10.0, 12.5])
    asked, answered = probes.ASKED, probes.ANSWERED
    page = Page([None, (answered, 7), (answered, 8)])
    assert probes._trip(page, 7, answered) == 2.5 and page.seen == [(asked, 8)] and not page.later


def test_tokens_tell_a_question_from_the_last_and_from_none(hands):
    hands(0, range(1200))
    asked, page = probes.ASKED, Page([None] * 600)
    tokens = [probes._trip(page, n, asked) and page.seen[-1][1] for n in range(600)]
    assert set(tokens) == set(range(1, 256)) and tokens[0] == 1
    assert all(a != b for a, b in itertools.pairwise(tokens))


@pytest.mark.parametrize(("answers", "trips"), [(5000, 2000), (7, 7)])
def test_trips_end_when_there_are_enough_or_the_time_is_up(hands, monkeypatch, answers, trips):
    def trip(page, n, reply):
        assert reply == probes.ANSWERED
        if n == answers:
            raise TimeoutError
        return n

    here = hands()
    monkeypatch.setattr(probes, "_trip", trip)
    assert list(probes._trips(None)) == list(range(trips))
    assert here.did == [
        ("signal", signal.SIGALRM, probes._late),
        ("setitimer", signal.ITIMER_REAL, 0.03),
        ("setitimer", signal.ITIMER_REAL, 0),
    ]
    with pytest.raises(TimeoutError):
        probes._late()


def test_the_first_two_cpus_are_asked_and_the_interpreter_on_one_of_them(monkeypatch):
    where, replies = [], []

    def on(cpu, *more):
        where.append(cpu)
        return contextlib.nullcontext()

    monkeypatch.setattr(probes.os, "sched_getaffinity", lambda pid: {9, 5, 3})
    monkeypatch.setattr(probes, "_on", on)
    monkeypatch.setattr(probes, "_answering", lambda page, cpu: on(cpu))
    monkeypatch.setattr(probes, "_trip", lambda page, n, reply: replies.append((n, reply)) or 8 * NS)
    monkeypatch.setattr(probes, "_trips", lambda page: [56 * NS] * 100)
    assert probes.one_way() == pytest.approx(20 * NS)
    assert where == [3, 5] and replies == [(n, probes.ASKED) for n in range(2000)]
