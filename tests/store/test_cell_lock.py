"""Two runs in one store: no cell is measured twice, and each hears of the other."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edgescope.errors import StoreError
from edgescope.isolate.fresh import Limits
from edgescope.records import Machine, Status, Trial
from edgescope.runner import run as sweep
from edgescope.store import cell_lock
from edgescope.store.cell_lock import CellLock, Holder
from edgescope.store.results import Store
from making import MACHINE, result

TRIAL = Trial(model="null", backend="null")
OTHER = Trial(model="null", backend="null", batch=2)
#: Holds a cell of a store and says so; released when its stdin ends.
HOLDS = """
import sys
from pathlib import Path
from edgescope.store.cell_lock import CellLock
lock = CellLock(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
assert lock.take("edgescope sweep their.toml") is None
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


class Runner:
    def __init__(self, status: Status = Status.OK) -> None:
        self.ran: list[str] = []
        self.status = status

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        self.ran.append(trial.id)
        return result(trial, status=self.status)


@pytest.fixture
def holder(tmp_path):
    """Another process that measures TRIAL's cell on this machine."""
    argv = [sys.executable, "-c", HOLDS, str(tmp_path), MACHINE.id, TRIAL.cell]
    other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    yield other
    other.kill()
    other.communicate()


def cells(root: Path, runner: Runner, said: list[str]) -> sweep.ExperimentRunner:
    return sweep.ExperimentRunner(Store(root), Limits(), runner, MACHINE, say=said.append)


@pytest.mark.slow
def test_who_holds_a_cell_is_told_with_process_command_and_time(tmp_path, holder):
    told = CellLock(tmp_path, MACHINE.id, TRIAL.cell).take()
    assert told.pid == holder.pid
    assert f"process {holder.pid} (edgescope sweep their.toml) since {told.since}" == str(told)
    assert len(told.since.split(":")) == 3
    assert [h.pid for h in cell_lock.holders(tmp_path)] == [holder.pid]
    assert CellLock(tmp_path, MACHINE.id, OTHER.cell).take() is None
    assert CellLock(tmp_path, "f" * 16, TRIAL.cell).take() is None  # another machine measures for itself


@pytest.mark.slow
def test_a_killed_process_holds_nothing(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = CellLock(tmp_path, MACHINE.id, TRIAL.cell)
    assert lock.path.exists()
    assert cell_lock.holders(tmp_path) == []
    assert lock.take("mine") is None
    assert json.loads(lock.path.read_text())["pid"] == os.getpid()
    lock.release()
    assert not lock.path.exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """Between opening the file and locking it its holder may have removed it: such a lock protects nothing."""
    lock = CellLock(tmp_path, MACHINE.id, TRIAL.cell)
    real, calls = fcntl.flock, []

    def flock(handle, how):
        if not calls:
            lock.path.unlink()
        calls.append(how)
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert lock.take() is None
    assert len(calls) == 2
    assert CellLock(tmp_path, MACHINE.id, TRIAL.cell).take() is not None
    lock.release()


def test_a_lock_file_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "mine").write_text("a diary")
    lock = CellLock(tmp_path / "store", MACHINE.id, TRIAL.cell)
    lock.path.parent.mkdir(parents=True)
    lock.path.symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="a link"):
        lock.take()
    assert cell_lock.holders(tmp_path / "store") == []
    lock.path.unlink()
    lock.path.parent.rmdir()
    lock.path.parent.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="a link"):
        lock.take()
    assert (tmp_path / "mine").read_text() == "a diary"


@pytest.mark.parametrize(
    "words", [b"", b"{", b'{"pid": "x"}', b"[" * 9000, b'{"pid": 1, "command": "\\u001b[2J"}']
)
def test_what_a_holder_wrote_is_not_trusted(words, tmp_path):
    lock = CellLock(tmp_path, MACHINE.id, TRIAL.cell)
    assert lock.take() is None
    lock.path.write_bytes(words)
    told = CellLock(tmp_path, MACHINE.id, TRIAL.cell).take()
    assert told is not None
    assert str(told).isprintable()
    lock.release()


def test_a_file_system_without_locks_stops_nobody(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert CellLock(tmp_path, MACHINE.id, TRIAL.cell).take() is None


@pytest.mark.slow
def test_a_held_cell_comes_last_and_what_was_measured_meanwhile_is_not_measured_again(tmp_path, holder):
    said: list[str] = []
    runner = Runner()
    mine = cells(tmp_path, runner, said)

    def finish() -> None:
        while not runner.ran:
            time.sleep(0.01)
        Store(tmp_path).save(result(TRIAL, id_=f"{TRIAL.id}-theirs"))
        holder.kill()

    threading.Thread(target=finish).start()
    results = list(sweep.run([TRIAL, OTHER], mine))
    assert [r.trial.id for r in results] == [OTHER.id, TRIAL.id]
    assert runner.ran == [OTHER.id]
    assert results[1].id == f"{TRIAL.id}-theirs"
    assert len(list(Store(tmp_path).results())) == 2
    text = "\n".join(said)
    assert f"process {holder.pid} (edgescope sweep their.toml) since" in text
    assert "W-STORE-1: " in text
    assert f"tail --pid={holder.pid} -f /dev/null" in text
    assert "so other cells come first" in text
    assert "I-STORE-2: another process " in text


@pytest.mark.slow
def test_a_cell_whose_holder_was_killed_is_measured(tmp_path, holder):
    runner = Runner()
    said: list[str] = []
    mine = cells(tmp_path, runner, said)
    threading.Timer(1.0, holder.kill).start()
    assert mine.run(TRIAL).trial == TRIAL
    assert "which this run waits for" in said[-1]
    assert runner.ran == [TRIAL.id]


def test_a_run_of_ones_own_is_no_other_ones(tmp_path):
    runner = Runner()
    mine = cells(tmp_path, runner, [])
    mine.run(TRIAL)
    (Store(tmp_path).root / MACHINE.id / result(TRIAL).id).rename(
        Store(tmp_path).root / MACHINE.id / f"{TRIAL.id}-x"
    )
    mine._known.add(f"{TRIAL.id}-x")
    mine.run(TRIAL)
    assert runner.ran == [TRIAL.id] * 2


@pytest.mark.parametrize("why", ["cancelled", "other software", "unreadable"])
def test_what_answers_nothing_is_measured_all_the_same(why, tmp_path):
    runner = Runner()
    mine = cells(tmp_path, runner, [])
    keys = {"cancelled": {"status": Status.CANCELLED}}.get(why, {})
    if why == "other software":
        keys["machine"] = Machine(MACHINE.stable, {"packages": {"numpy": "0.1"}})
    folder = Store(tmp_path).save(result(TRIAL, id_=f"{TRIAL.id}-theirs", **keys))
    if why == "unreadable":
        (folder / "result.json").write_text("{")
    mine.run(TRIAL)
    assert runner.ran == [TRIAL.id]


def test_the_lock_is_given_back_when_a_trial_fails(tmp_path):
    class Broken(Runner):
        def run(self, trial, limits):
            assert CellLock(tmp_path, MACHINE.id, TRIAL.cell).take() is not None
            raise RuntimeError

    mine = cells(tmp_path, Broken(), [])
    with pytest.raises(RuntimeError):
        mine.run(TRIAL)
    assert list((tmp_path / cell_lock.FOLDER).iterdir()) == []


@pytest.mark.process
def test_two_sweeps_of_one_grid_measure_every_trial_once(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from making import MACHINE, result
from edgescope.study import grid as study
from edgescope.runner import run as sweep
from edgescope.isolate.fresh import Limits
from edgescope.store.results import Store
class Slow:
    def prepare(self, trial, limits): return None
    def run(self, trial, limits):
        time.sleep(0.05)
        return result(trial, id_=trial.id + "-" + sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
grid = study.grid({{"model": "null", "backend": "null", "batch": [1, 2, 3, 4], "replicates": 3}})
list(sweep.run(grid, sweep.ExperimentRunner(Store(Path(sys.argv[1])), Limits(), Slow(), MACHINE)))
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for one in both:
        assert one.stdout.readline() == "ready\n"
    said = []
    for one in both:
        one.stdin.write("\n")
        one.stdin.flush()
    for one in both:
        said.append(one.communicate(timeout=120)[1])
        assert one.returncode == 0, said[-1]
    ids = [r.trial.id for r in Store(tmp_path).results()]
    assert len(ids) == len(set(ids)) == 12
    assert "W-STORE-1" in "".join(said)


@pytest.mark.slow
def test_another_process_alone_is_told_at_the_start(tmp_path, holder):
    said: list[str] = []
    cells(tmp_path, Runner(), said)
    assert len(said) == 1 and re.match(r"W-STORE-1: .* measures ", said[0])
    assert str(Holder()) == "another process"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "another process"),
        ({"pid": 5, "since": "10:00:00"}, "process 5 on  since 10:00:00"),
        ({"pid": 5, "host": "HERE", "since": "10:00:00"}, "process 5 since 10:00:00"),
        ({"pid": 5, "host": "far", "command": "sweep", "since": "1"}, "process 5 on far (sweep) since 1"),
    ],
)
def test_a_holder_is_named_as_far_as_it_is_known(monkeypatch, keys, said):
    monkeypatch.setattr(cell_lock.socket, "gethostname", lambda: "HERE")
    assert str(cell_lock.Holder(**keys)) == said


def test_a_lock_is_taken_once_and_its_file_goes_with_it(tmp_path, monkeypatch):
    seen, real = [], os.open
    monkeypatch.setattr(cell_lock.os, "open", lambda path, *how: seen.append(how) or real(path, *how))
    lock = cell_lock.CellLock(tmp_path, "machine", "cell")
    assert lock.take("sweep") is None and lock.take("again") is None and lock.path.exists()
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    assert seen == [(flags, 0o644)]
    written = json.loads(lock.path.read_text())
    assert (written["pid"], written["command"]) == (os.getpid(), "sweep")
    lock.release()
    assert not lock.path.exists() and lock._handle == -1
    lock.release()
    with lock.released():
        assert lock.take() is None
    assert not lock.path.exists() and len(seen) == 2


@pytest.mark.parametrize(("number", "free"), [(errno.ENOLCK, True), (errno.ENOSYS, True), (errno.EIO, False)])
def test_an_error_of_a_disk_is_none_of_a_file_system_without_locks(tmp_path, monkeypatch, number, free):
    def refused(handle, how):
        assert how == fcntl.LOCK_EX | fcntl.LOCK_NB
        handles.append(handle)
        raise OSError(number, "no")

    handles = []
    monkeypatch.setattr(cell_lock.fcntl, "flock", refused)
    lock = cell_lock.CellLock(tmp_path, "m", "c")
    if free:
        assert lock.take() is None
    else:
        with pytest.raises(OSError):
            lock.take()
    with pytest.raises(OSError):  # its file is closed again
        os.fstat(handles[0])
