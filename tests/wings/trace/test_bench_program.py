"""A foreign program that is watched: what /proc says of its threads, and what stands in its trace."""

from types import SimpleNamespace

import pytest

from edgescope.errors import UsageError
from edgescope.records import Spans, Trace
from edgescope.wings.trace import program
from edgescope.wings.trace.program import Seen, watched


@pytest.fixture
def thread(tmp_path):
    """Write a thread into the /proc at `tmp_path`: its schedstat, the CPU it is on, the processes it has started."""

    def written(pid, tid, schedstat, cpu, children=""):
        place = tmp_path / f"{pid}/task/{tid}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "schedstat").write_text(schedstat)
        fields = " ".join(str(cpu if number == 39 else 100 + number) for number in range(3, 53))
        (place / "stat").write_text(f"{tid} (a (name) of) {fields}\n")
        (place / "children").write_text(children)

    return written


def test_every_thread_of_the_program_and_of_what_it_started_is_summed(tmp_path, thread):
    thread(5, 5, "100 20 3\n", 0, "8")
    thread(5, 6, "50 10 2\n", 1)
    thread(8, 8, "7 5 1\n", 0, "9 10")
    thread(10, 10, "1 1 1\n", 3)  # 9 has ended meanwhile
    thread(77, 77, "9999 9999 9999\n", 3)  # nobody's
    seen = Seen(proc=tmp_path)
    seen.look(5)
    facts = {"threads": 4, "on_cpu_ns": 158, "ready_ns": 36, "switches": 7, "migrations_seen": 0}
    assert seen.facts(1234) == facts | {"wall_ns": 1234, "exit_code": None}
    thread(5, 6, "60 11 4\n", 2)
    thread(8, 8, "8 5 2\n", 0)  # its children are nobody's any more
    thread(10, 10, "5 5 5\n", 0)
    seen.look(5)
    facts |= {"on_cpu_ns": 169, "ready_ns": 37, "switches": 10, "migrations_seen": 1}
    assert seen.facts(9) == facts | {"wall_ns": 9, "exit_code": None}
    thread(5, 6, "60 11 4\n", 1)
    seen.look(5)
    assert seen.moved == 2


@pytest.mark.parametrize("schedstat", ["", "100 20\n", "100 20 3 4\n", "a b c\n"])
def test_a_thread_that_tells_nothing_keeps_none_of_the_others_from_being_read(tmp_path, thread, schedstat):
    thread(5, 5, schedstat, 0)
    thread(5, 6, "50 10 2\n", 1)
    thread(5, 7, "50 10 2\n", 1)
    (tmp_path / "5/task/7/stat").write_text("7 (cut")
    seen = Seen(proc=tmp_path)
    seen.look(5)
    assert seen.facts(0)["on_cpu_ns"] == 100 and seen.cpus == {(5, 6): 1}
    Seen(proc=tmp_path).look(6)  # it has ended


@pytest.fixture
def bare(monkeypatch):
    """No sensors, and no profile but an empty one."""
    monkeypatch.setattr(program, "present", dict)
    empty = Trace(Spans.none(), "a program", clock="monotonic")
    monkeypatch.setattr(program, "collected", lambda folder: empty)


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 3])
def test_a_program_is_run_to_its_end_and_told_with_its_exit_code(bare, monkeypatch, code):
    monkeypatch.setenv("PYTHONPATH", "/of/its/own")
    launched = []
    launch = program.launch

    def noted(folder, path, seconds):
        launched.append((path, seconds))
        return launch(folder, path, seconds)

    monkeypatch.setattr(program, "launch", noted)
    command = ["sh", "-c", f"sleep 0.03; exit {code}"]
    trace = watched(command, 2.5)
    found = trace.facts["program"]
    assert (found["exit_code"], found["command"]) == (code, command) and launched == [("/of/its/own", 2.5)]
    assert found["threads"] >= 1 and 30_000_000 <= found["wall_ns"] < 30_000_000_000
    assert [note.code for note in trace.notes] == (["W-PROF-13"] if code else [])
    assert trace.samples is not None


@pytest.mark.process
def test_a_program_that_cannot_be_started_is_told(bare, tmp_path):
    with pytest.raises(UsageError, match="E-PROF-8"):
        watched([str(tmp_path / "nothing")])


def test_the_program_is_looked_at_while_it_runs_and_not_afterwards(monkeypatch):
    waits, looks = [], []

    class Event:
        def wait(self, seconds):
            waits.append(seconds)
            return len(waits) > 3

        def set(self):
            waits.append("end")

    monkeypatch.setattr(Seen, "look", lambda self, pid: looks.append(pid))
    thread = SimpleNamespace(Event=Event, Thread=Now)
    monkeypatch.setattr(program, "threading", thread)
    with program._looking(5):
        assert looks == [5] * 4 and waits == [program.PERIOD_S] * 4
    assert waits[-1] == "end" and program.PERIOD_S == 0.02 and len(looks) == 4


class Now:
    """A thread that has done all its work when it has started, and that is joined."""

    def __init__(self, target, *, daemon):
        assert daemon  # a program that hangs must not keep a process from ending
        self.start = target

    def join(self):
        """There is nothing left to wait for."""
