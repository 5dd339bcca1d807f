"""What a trial has started ends with it, however it hides and however the trial ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edgescope.isolate import fresh, warden
from edgescope.isolate.fresh import GuardedProcess, Limits
from edgescope.records import Status

pytestmark = pytest.mark.process

#: Starts a daemon as the book says: fork, a session of its own, fork, and both parents gone.
HIDES = """
import os, signal, sys, time
def hide(note):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(note + ".new", "w").write(str(os.getpid()))
            os.rename(note + ".new", note)
            time.sleep(600)
        os._exit(0)
    while not os.path.exists(note):
        time.sleep(0.005)
hide(sys.argv[1])
"""
ENDINGS = {
    "well": ("", None),
    "with an exit code": ("sys.exit(3)", Status.CRASHED),
    "with a signal": ("os.kill(os.getpid(), signal.SIGSEGV)", Status.CRASHED),
    "at the time-out": ("time.sleep(600)", Status.TIMEOUT),
}


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def guard(code: str, tmp_path: Path, *words: str, limit_s: float = 60) -> fresh.Stopped | None:
    argv = [sys.executable, "-I", "-S", "-c", code, *words]
    return fresh._watch(argv, tmp_path, Limits(timeout_s=limit_s, floor_bytes=0))[0]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_daemon_of_the_trial_does_not_outlive_it(ending, tmp_path):
    code, status = ENDINGS[ending]
    note = tmp_path / "pid"
    for limit_s in (2, 8, 30) if status is Status.TIMEOUT else (60,):  # a busy machine starts slowly
        stopped = guard(HIDES + code, tmp_path, str(note), limit_s=limit_s)
        if note.exists():
            break
    assert (stopped.status if stopped else None) is status
    assert gone(int(note.read_text()))
    if ending == "with a signal":
        assert "SIGSEGV" in str(stopped.reason)
    if ending == "with an exit code":
        assert "exited with 3" in str(stopped.reason)
    assert not (tmp_path / warden.SURVIVORS).exists()


def test_a_process_that_forks_while_it_is_looked_for_is_found(tmp_path):
    """Each process lives a moment and starts the next: a single look would always be too late."""
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        open(sys.argv[1], "w").write(str(os.getpid()))
else:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.005)
"""
    note = tmp_path / "pid"
    assert guard(code, tmp_path, str(note)) is None
    assert not (tmp_path / warden.SURVIVORS).exists()
    last = note.read_text()
    time.sleep(0.2)
    assert note.read_text() == last


def test_many_generations_end_at_once(tmp_path):
    code = """
import os, sys, time
for _ in range(6):
    os.fork()
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
if os.getpid() != os.getpgid(0) and os.getppid() != int(sys.argv[2]):
    os.setsid()
time.sleep(600)
"""
    (tmp_path / "pids").mkdir()
    stopped = guard(code, tmp_path, str(tmp_path / "pids"), "0", limit_s=2)
    assert stopped.status is Status.TIMEOUT
    pids = [int(p.name) for p in (tmp_path / "pids").iterdir()]
    assert pids
    assert all(map(gone, pids))


def test_a_killed_edgescope_leaves_neither_process_nor_folder(tmp_path):
    note = tmp_path / "pid"
    script = f"""
import os
from pathlib import Path
from edgescope.process import scratch_folder
from edgescope.isolate import fresh
with scratch_folder("trial") as name:
    fresh._watch(
        [{sys.executable!r}, "-I", "-S", "-c", {HIDES + "time.sleep(600)"!r}, {str(note)!r}],
        Path(name), fresh.Limits(floor_bytes=0))
"""
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    parent = subprocess.Popen([sys.executable, "-c", script], env=env)
    until = time.monotonic() + 60
    while not note.exists() and time.monotonic() < until:
        time.sleep(0.02)
    family = psutil.Process(parent.pid).children(recursive=True)
    assert list((tmp_path / "tmp").glob("edgescope-trial-*"))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    assert gone(int(note.read_text()))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_warden_that_does_not_answer_is_ended_with_all_it_guards(tmp_path):
    note = tmp_path / "pid"
    child = GuardedProcess([sys.executable, "-I", "-S", "-c", HIDES + "time.sleep(600)", str(note)], tmp_path)
    until = time.monotonic() + 60
    while not note.exists() and time.monotonic() < until:
        time.sleep(0.01)
    family = psutil.Process(child.pid).children(recursive=True)
    assert len(family) >= 2
    os.kill(child.pid, signal.SIGSTOP)
    child.end(patience_s=0.2)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def test_ending_waits_for_nobody(tmp_path):
    child = GuardedProcess([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], tmp_path)
    until = time.monotonic() + 60
    while len(warden.below(child.pid)) < 1 and time.monotonic() < until:
        time.sleep(0.01)
    begun = time.monotonic()
    child.end(patience_s=300)
    assert time.monotonic() - begun < 60
    child.end(patience_s=300)  # harmless when it is gone


def test_strangers_end_and_those_who_are_known_stay(tmp_path):
    note = tmp_path / "pid"
    script = (
        HIDES.replace("hide(sys.argv[1])", "")
        + f"""
import importlib.util
spec = importlib.util.spec_from_file_location("warden", {warden.__file__!r})
warden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(warden)
warden.adopt()
kept = os.fork()
if kept == 0:
    time.sleep(600)
hide(sys.argv[1])
warden.end_strangers({{kept}})
assert os.waitpid(kept, os.WNOHANG) == (0, 0)
try:
    os.kill(int(open(sys.argv[1]).read()), 0)
    print("the stranger lives")
except ProcessLookupError:
    print("as it should be")
os.kill(kept, 9)
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(note)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split("\n")[-2:] == ["as it should be", ""], done
