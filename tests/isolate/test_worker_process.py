"""What is told of a worker that has ended or hangs, with shells in its place."""

import re
import signal
import time

import pytest

from edgescope.isolate import worker as workers
from edgescope.isolate.worker import Placement, WorkerProcess
from edgescope.process import Launch
from edgescope.records import Status


@pytest.fixture
def shell():
    """A worker whose program is this line of shell."""
    made = []

    def start(line, number=3, env=None):
        made.append(WorkerProcess(number, Placement(Launch(("sh", "-c", line, "sh"), env or {}))))
        return made[-1]

    yield start
    for one in made:
        one.end()


def told(worker):
    """Listen until it is lost."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            worker.listen()
        except workers.WorkerError as error:
            return error
        time.sleep(0.005)
    raise AssertionError("still there")


@pytest.mark.process
def test_its_words_are_heard_line_by_line_however_they_are_cut(shell):
    one = shell(
        """printf 'nsys\\n{"event": "a"}\\n{"ev'; sleep 0.1; printf 'ent": "b"}\\n'; cat >/dev/null"""
    )
    deadline, found = time.monotonic() + 10, []
    while len(found) < 2 and time.monotonic() < deadline:
        one.listen()
        found += one.events()
    assert found == [{"event": "a"}, {"event": "b"}]  # what a launcher prints is none


@pytest.mark.process
def test_below_a_launcher_the_worker_says_its_own_id(shell):
    one = shell("""echo '{"event": "here", "pid": 7}'; cat >/dev/null""")
    assert one.pipe.ready(10)
    one.listen()
    assert list(one.events()) == [{"event": "here", "pid": 7}] and one.pid == 7


@pytest.mark.process
def test_an_exit_is_told_with_its_code_and_last_words(shell):
    error = told(shell("echo starting >&2; printf 'no\\033 card\\n\\n' >&2; exit 3"))
    assert error.status is Status.CRASHED
    assert str(error.reason).startswith("E-WORKER-2: worker 3 exited with 3 (starting | no  card).")
    gone = shell("exit 0")
    assert "nothing to stderr" in str(told(gone).reason)
    gone.order("open")  # harmless: found out when it is listened to


@pytest.mark.process
def test_a_signal_is_named_and_a_kill_may_have_been_the_kernels(shell, monkeypatch):
    assert "worker 3 died of SIGTERM (" in str(told(shell("kill -TERM $$")).reason)
    killed = told(shell("kill -KILL $$"))
    assert killed.status is Status.CRASHED and re.search(r"SIGKILL \(.* OOM killer", str(killed.reason))
    one = shell("kill -KILL $$")
    monkeypatch.setattr(workers, "oom_kills", lambda: one.kills + 2)
    ours = told(one)
    assert ours.status is Status.OOM and re.search(r"OOM killer .*\b2 of ", str(ours.reason))
    ended = shell("exit 9")
    ended.kills = -5  # the kernel ended others meanwhile; this one was not killed
    assert told(ended).status is Status.CRASHED


@pytest.mark.process
def test_one_that_hangs_is_told_with_its_state(shell):
    one = shell("echo loading >&2; kill -STOP $$")
    deadline = time.monotonic() + 10
    while "T (stopped)" not in one.state() and time.monotonic() < deadline:
        time.sleep(0.005)
    error = one.silent("ready", 2.5)
    assert error.status is Status.TIMEOUT
    assert error.reason.code == "E-WORKER-3"
    assert re.fullmatch(r"worker 3 hangs: .* not ready after 2\.5 s", error.reason.what)
    assert error.reason.evidence == f"process {one.pid} is T (stopped); loading"
    one._child.send_signal(signal.SIGCONT)
    one.end()
    assert one.state() == "gone"


@pytest.mark.process
def test_only_the_end_of_what_it_wrote_is_told(shell):
    one = shell("i=0; while [ $i -lt 3000 ]; do echo line$i >&2; i=$((i+1)); done; exit 1")
    text = told(one) and one.stderr_tail()
    assert text.endswith("line2998 | line2999") and len(text) == 600
    one.end()
    assert one.stderr_tail() == text  # it is known when it is gone


@pytest.mark.process
def test_its_environment_adds_to_ours(shell, monkeypatch):
    monkeypatch.setenv("KEPT", "yes")
    assert (
        told(shell('echo "$KEPT and $MORE" >&2; exit 1', env={"MORE": "added"})).reason.evidence
        == "yes and added"
    )


@pytest.mark.parametrize(
    ("group", "machine", "kills"),
    [
        ("low 0\noom_kill 3\n", "oom_kill 70\n", 3),
        ("low 0\noom 1\n", "pgfault 5\noom_kill 70\n", 70),
        ("oom_kill\n", "oom_kill 70\n", 70),
        ("oom_kill many\n", "oom_kill 70\n", 70),
        (None, "oom_kill 70\n", 70),
        (None, "pgfault 5\n", 0),
        (None, None, 0),
    ],
)
def test_the_kernels_kills_are_those_of_the_group_or_else_of_the_machine(tmp_path, group, machine, kills):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.events").write_text("oom_kill 900\n")  # of all groups
    for path, text in (("sys/fs/cgroup/job/memory.events", group), ("proc/vmstat", machine)):
        if text is not None:
            (tmp_path / path).write_text(text)
    assert workers.oom_kills(tmp_path) == kills
