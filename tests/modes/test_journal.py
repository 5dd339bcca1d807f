"""The journal: on disk before the change, replayed after any death, never held by two."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.devices.base import Undo
from edgescope.errors import SettingError, UnsupportedError
from edgescope.isolate import fresh
from edgescope.modes import catalog, enter
from edgescope.modes.cpu import Governor
from edgescope.modes.enter import DiskJournal
from edgescope.records import Trial
from edgescope.wings.doctor import noise
from fake_jetson import CPU, board, read
from refusing import refused

GOVERNOR = f"{CPU}/cpufreq/policy0/scaling_governor"
WORDS = ("write", f"/{GOVERNOR}", "schedutil")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A state folder of this test's own, and no journal of another test's."""
    where = tmp_path / "state"
    monkeypatch.setenv("EDGESCOPE_STATE", str(where))
    monkeypatch.setattr(enter, "_JOURNALS", {})
    return where


@pytest.fixture
def root(tmp_path):
    return board(tmp_path / "root")


def test_a_note_is_synced_before_it_returns_and_the_file_goes_with_the_last_restore(state, monkeypatch):
    order: list[str] = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (order.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1]
    )
    book = DiskJournal(state, lambda words, where: order.append("undone") or "")
    book.note("15W", Undo("nvpmodel 25W (1)", ("nvpmodel", "-m", "1")))
    assert order == [str(state / enter.FILE), str(state)]
    (line,) = (state / enter.FILE).read_text().splitlines()
    assert json.loads(line) == {
        "owner": "15W",
        "pid": os.getpid(),
        "what": "nvpmodel 25W (1)",
        "request": ["nvpmodel", "-m", "1"],
        "root": "/",
    }
    book.restore("15W")
    assert order[2] == "undone" and not (state / enter.FILE).exists()


def test_steps_are_undone_last_first_and_only_those_of_the_mode_that_leaves(state, capsys):
    undone: list[str] = []
    book = DiskJournal(state, lambda words, where: undone.append(words[1]) or "")
    for owner, word in (("a", "1"), ("b", "2"), ("a", "3")):
        book.note(owner, Undo(f"step {word}", ("x", word)))
    book.restore("a")
    assert undone == ["3", "1"]
    assert [json.loads(line)["owner"] for line in (state / enter.FILE).read_text().splitlines()] == ["b"]
    book.restore("b")
    assert undone == ["3", "1", "2"] and not (state / enter.FILE).exists()
    assert capsys.readouterr().err.splitlines()[0] == "I-RST: restored: step 3, step 1."


def test_a_step_that_fails_stays_on_disk_the_others_are_undone_and_a_later_start_tries_again(state):
    undone: list[str] = []

    def do(words, where):
        if words[1] == "2" and len(undone) < 3:
            raise SettingError("E-MODE-4", "no")
        undone.append(words[1])
        return ""

    book = DiskJournal(state, do)
    for word in "123":
        book.note("m", Undo(f"step {word}", ("x", word)))
    with pytest.raises(SettingError, match=r"E-MODE-5.*step 2"):
        book.restore("m")
    assert undone == ["3", "1"]
    book._drop()  # the process ends here
    with pytest.raises(SettingError, match="E-MODE-5"):
        DiskJournal(state, do).recover()
    undone.append("something was repaired")
    assert DiskJournal(state, do).recover()
    assert undone[-1] == "2" and not (state / enter.FILE).exists()
    assert not DiskJournal(state, do).recover()


class Stubborn:
    """Makes changes until told to fail."""

    def __init__(self):
        self.fails = False
        self.undone: list[str] = []

    def __call__(self, words, where):
        if self.fails:
            raise SettingError("E-MODE-4", "no")
        self.undone.append(words[1])
        return ""


def test_what_could_not_be_put_back_stops_the_next_entry_until_it_is_and_held_modes_are_left_alone(state):
    do = Stubborn()
    book = DiskJournal(state, do)
    book.note("outer", Undo("o", ("x", "1")))
    assert not book.recover()  # a mode that is held is not left behind
    book.note("inner", Undo("i", ("x", "2")))
    do.fails = True
    for attempt in (lambda: book.restore("inner"), book.recover, book.recover):
        with pytest.raises(SettingError, match="E-MODE-5"):
            attempt()
    do.fails = False
    assert book.recover() and do.undone == ["2"]
    assert not book.recover()
    book.restore("outer")
    assert do.undone == ["2", "1"] and not (state / enter.FILE).exists()
    do.fails = True
    book.note("alone", Undo("a", ("x", "3")))
    with pytest.raises(SettingError, match="E-MODE-5"):
        book.restore("alone")
    do.fails = False
    assert book.recover() and DiskJournal(state, do).note("b", Undo("b", ("x", "4"))) is None


def test_as_is_is_not_entered_while_a_setting_is_still_changed(state, root):
    policy = (root / GOVERNOR).parent
    with pytest.raises(SettingError, match="E-MODE-5"), enter.entered(Governor("performance", root)):
        policy.rename(policy.with_name("gone"))
    with (
        pytest.raises(SettingError, match="E-MODE-5"),
        enter.entered(catalog.find("as_is", {})),
    ):
        pytest.fail("as_is was entered with the governor changed")
    policy.with_name("gone").rename(policy)
    with enter.entered(catalog.find("as_is", {})):
        assert read(root, GOVERNOR) == "schedutil"


def test_the_same_mode_within_itself_is_left_once_each(state, root):
    with enter.entered(Governor("performance", root)):
        with enter.entered(Governor("performance", root)):
            pass
        assert read(root, GOVERNOR) == "performance"
    assert read(root, GOVERNOR) == "schedutil"


def test_a_disk_that_is_full_when_it_is_put_back_is_our_own_error(state, monkeypatch):
    do = Stubborn()
    book = DiskJournal(state, do)
    for word in "12":
        book.note(word, Undo(f"step {word}", ("x", word)))

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        with pytest.raises(SettingError, match=r"E-MODE-6.*No space left"):
            book.restore("2")
    assert do.undone == ["2"]
    book.restore("1")
    assert not (state / enter.FILE).exists()


def test_a_disk_that_is_full_when_the_modes_are_taken_leaves_them_free(state, monkeypatch):
    def full(*a):
        raise OSError(28, "No space left on device")

    book = DiskJournal(state, Stubborn())
    with monkeypatch.context() as m:
        m.setattr(os, "pwrite", full)
        with pytest.raises(SettingError, match="E-MODE-12"):
            book.note("a", Undo("a", ("x", "1")))
    DiskJournal(state, Stubborn()).note("b", Undo("b", ("x", "2")))


def test_a_state_folder_that_cannot_be_used_is_our_own_error(state, monkeypatch):
    state.mkdir()
    (state / enter.FILE).write_text("")
    (state / enter.LOCK).mkdir()  # whoever runs this: it cannot be opened for writing
    with pytest.raises(SettingError, match=r"E-MODE-6.*modes\.lock"):
        DiskJournal(state, Stubborn()).recover()

    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", denied)  # as in a folder of another user's, to one who is not root
    with pytest.raises(SettingError, match=r"E-MODE-6.*Permission denied"):
        DiskJournal(state, Stubborn()).recover()
    assert enter.left_behind(state)[0].startswith("E-MODE-6")


def test_a_line_cut_short_and_nothing_else_does_not_spoil_the_next_note(state):
    state.mkdir()
    (state / enter.FILE).write_text('{"owner": "m", "pid')
    book = DiskJournal(state, Stubborn())
    book.note("a", Undo("a", ("x", "1")))
    book._drop()  # the process ends here
    do = Stubborn()
    assert DiskJournal(state, do).recover() and do.undone == ["1"]


def test_two_edgescopes_do_not_hold_the_modes_at_once(state):
    one, other = DiskJournal(state, lambda w, r: ""), DiskJournal(state, lambda w, r: "")
    one.note("a", Undo("a", ("x", "1")))
    with pytest.raises(SettingError, match=f"E-MODE-3.*process {os.getpid()} holds") as caught:
        other.note("b", Undo("b", ("x", "2")))
    assert caught.value.exit_code == 4
    with pytest.raises(SettingError, match="E-MODE-3"):
        other.recover()  # a run as_is would measure the other's mode
    assert enter.left_behind(state) == []  # it is in use, not left behind
    one.restore("a")
    other.note("b", Undo("b", ("x", "2")))
    other.restore("b")


def test_a_torn_last_line_is_a_change_that_was_never_made(state):
    undone: list[str] = []
    state.mkdir()
    whole = json.dumps({"owner": "m", "pid": 1, "what": "w", "request": ["x", "1"], "root": "/"})
    (state / enter.FILE).write_text(f"{whole}\n{whole[:40]}")
    assert DiskJournal(state, lambda words, where: undone.append(words[1]) or "").recover()
    assert undone == ["1"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_a_spoilt_journal_is_our_own_error_and_is_kept(tmp_path_factory, data):
    where = tmp_path_factory.mktemp("spoilt")
    (where / enter.FILE).write_bytes(b'{"owner": 1}\n' + data)
    with pytest.raises(SettingError, match="E-MODE-6"):
        DiskJournal(where, lambda words, root: pytest.fail("it was obeyed")).recover()
    assert (where / enter.FILE).exists() and enter.left_behind(where)[0].startswith("E-MODE-6")


def test_a_journal_of_another_user_is_not_obeyed(state, monkeypatch):
    DiskJournal(state, lambda w, r: "").note("m", Undo("w", ("x", "1")))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingError, match="another user"):
        list(enter._read(state / enter.FILE))


def test_a_journal_cannot_say_more_than_the_helper_does(state, root):
    state.mkdir()
    victim = root / "etc/passwd"
    victim.write_text("untouched")
    for request in (["write", "/etc/passwd", "x"], ["sh", "-c", "true"], ["mps_quit", "/etc"]):
        line = {"owner": "m", "pid": 1, "what": "w", "request": request, "root": str(root)}
        (state / enter.FILE).write_text(json.dumps(line) + "\n")
        with pytest.raises(SettingError, match="E-MODE-5"):
            DiskJournal(state).recover()
    assert victim.read_text() == "untouched"


def test_no_disk_no_change(state, root, monkeypatch):
    state.write_text("a file where the folder should be")
    refused(Governor("performance", root), SettingError, "E-MODE-12")
    assert read(root, GOVERNOR) == "schedutil"


def test_an_exception_in_the_block_restores_and_is_passed_on(state, root, capsys):
    with pytest.raises(ZeroDivisionError), enter.entered(Governor("performance", root)):
        assert read(root, GOVERNOR) == "performance" and (state / enter.FILE).exists()
        raise ZeroDivisionError
    assert read(root, GOVERNOR) == "schedutil" and not (state / enter.FILE).exists()
    assert "I-RST: restored: policy0 governor schedutil." in " ".join(capsys.readouterr().err.split())


HOLDER = """
import sys, time
from pathlib import Path
from edgescope.modes.enter import entered
from edgescope.modes.cpu import Governor
with entered(Governor("performance", Path(sys.argv[1]))):
    print("entered", flush=True)
    {body}
"""


def holder(root: Path, body: str = "time.sleep(60)") -> subprocess.Popen[str]:
    """Start a real process that holds the governor; return once it has."""
    code = HOLDER.format(body=body)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "entered\n"
    return child


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_stop_a_program_restore(state, root, number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("whoever started these tests has it ignored, as nohup does with SIGHUP")
    child = holder(root)
    assert read(root, GOVERNOR) == "performance"
    child.send_signal(number)
    _, err = child.communicate(timeout=20)
    assert child.returncode in (1, 130, 128 + number, -number)
    assert "I-RST: restored" in err
    assert read(root, GOVERNOR) == "schedutil" and not (state / enter.FILE).exists()


@pytest.mark.process
def test_kill_9_leaves_a_journal_and_the_next_start_restores_before_anything_else(state, root, capsys):
    child = holder(root)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert read(root, GOVERNOR) == "performance"  # nobody could put it back
    assert enter.left_behind() == ["policy0 governor schedutil"]
    with enter.entered(catalog.find("as_is", {})):
        assert read(root, GOVERNOR) == "schedutil"
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"I-RST: .* killed: policy0 governor schedutil", said)
    assert enter.left_behind() == []


@pytest.mark.process
def test_noise_is_not_measured_on_a_machine_that_a_killed_run_left_changed(state, root, monkeypatch):
    child = holder(root)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    seen: list[str] = []

    def pair(leader, trials, purpose):
        seen.append(read(root, GOVERNOR))
        raise UnsupportedError("E-NOISE-3", "one run is enough here")

    monkeypatch.setattr(fresh, "prepare", lambda trial: None)
    monkeypatch.setattr(noise.PersistentChild, "pair", pair)
    with pytest.raises(UnsupportedError, match="one run"):
        noise.measure(1.0, workloads=[Trial(model="null", backend="null")])
    assert seen == ["schedutil"]


@pytest.mark.slow
def test_doctor_restores_what_kill_9_left_and_says_when_there_is_nothing(state, root):
    child = holder(root)
    command = [sys.executable, "-m", "edgescope.cli.main", "doctor", "--restore"]
    while_held = subprocess.run(command, capture_output=True, text=True, check=False)
    assert while_held.returncode == 4 and "E-MODE-3" in while_held.stderr
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "I-RST: restored" in done.stderr
    assert read(root, GOVERNOR) == "schedutil"
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0 and "nothing to restore" in again.stdout


@pytest.mark.slow
@pytest.mark.process
def test_killed_at_any_moment_the_setting_can_be_put_back(state, root):
    """Enter and leave in a loop, kill -9 at ten moments: after a recovery the governor is always the first one."""
    loop = HOLDER.replace("with entered(", "while True:\n  with entered(").replace("\n    ", "\n      ")
    code = loop.format(body="pass")
    for moment in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None and child.stdout.readline() == "entered\n"
        time.sleep(0.003 * moment)
        child.kill()
        child.communicate()
        DiskJournal(say=lambda text: None).recover()
        assert read(root, GOVERNOR) == "schedutil", moment


# -- by numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"EDGESCOPE_STATE": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/edgescope"),
        ({"HOME": "/h"}, "/h/.local/state/edgescope"),
    ],
)
def test_the_state_lies_where_the_environment_says(environ, where):
    assert enter.folder(environ) == Path(where)


@pytest.mark.parametrize(("written", "owner"), [("123", "123"), ("", "unknown"), ("9" * 30, "9" * 20)])
def test_who_holds_the_modes_is_told_by_its_number(tmp_path, written, owner):
    other = os.open(tmp_path / enter.LOCK, os.O_RDWR | os.O_CREAT)
    os.write(other, written.encode())
    enter.fcntl.flock(other, enter.fcntl.LOCK_EX)
    with pytest.raises(SettingError, match="E-MODE-3") as caught:
        DiskJournal(tmp_path).note("a", Undo("w", ("x",)))
    os.close(other)
    assert caught.value.evidence == f"process {owner} holds {tmp_path / enter.LOCK}"


def test_what_was_left_behind_is_told_unless_its_owner_lives(tmp_path):
    assert enter.left_behind(tmp_path) == []
    undo = {"what": "the old clock", "request": ["x"], "root": "/"}
    (tmp_path / enter.FILE).write_text(json.dumps({"owner": "a", "pid": 1, **undo}) + "\n")
    assert enter.left_behind(tmp_path) == ["the old clock"], "no lock is there"
    lock = os.open(tmp_path / enter.LOCK, os.O_RDWR | os.O_CREAT)
    assert enter.left_behind(tmp_path) == ["the old clock"], "nobody holds it"
    enter.fcntl.flock(lock, enter.fcntl.LOCK_EX)
    assert enter.left_behind(tmp_path) == []
    os.close(lock)
    (tmp_path / enter.FILE).write_text("no line\n")
    assert enter.left_behind(tmp_path)[0].startswith("E-MODE-6")


def test_a_lock_says_who_has_it_and_is_free_again_once_nothing_is_left(tmp_path):
    book = DiskJournal(tmp_path, do=lambda request, root: "", say=lambda text: None)
    first, second = Undo("one", ("x", "1")), Undo("two", ("x", "2"), "/there")
    book.note("a", first)
    assert (tmp_path / enter.LOCK).read_text() == str(os.getpid()) and enter._held(tmp_path / enter.LOCK)
    assert (tmp_path / enter.LOCK).stat().st_mode & 0o777 == 0o600
    book.note("b", second)
    assert book.holds(Undo("other words", ("x", "2"), "/there")) and not book.holds(Undo("two", ("x", "2")))
    rows = [json.loads(row) for row in (tmp_path / enter.FILE).read_text().splitlines()]
    assert rows[1] == {
        "owner": "b",
        "pid": os.getpid(),
        "what": "two",
        "request": ["x", "2"],
        "root": "/there",
    }
    book.restore("a")
    assert enter._held(tmp_path / enter.LOCK) and len((tmp_path / enter.FILE).read_text().splitlines()) == 1
    book.restore("b")
    assert not enter._held(tmp_path / enter.LOCK) and not (tmp_path / enter.FILE).exists()
    assert book.recover() is False


def test_each_entry_undoes_its_own_steps_only(tmp_path):
    did = []
    book = DiskJournal(tmp_path, do=lambda request, root: did.append(tuple(request)), say=lambda text: None)
    outer, inner = enter.Entry(book), enter.Entry(book)
    outer.note("a", Undo("one", ("x", "1")))
    inner.note("a", Undo("two", ("x", "2")))
    inner.restore("a")
    assert did == [("x", "2")] and outer.holds(Undo("one", ("x", "1")))
    outer.restore("a")
    assert did == [("x", "2"), ("x", "1")]


def test_a_journal_that_somebody_removed_is_no_hindrance_on_the_way_back(tmp_path):
    book = DiskJournal(tmp_path, do=lambda request, root: "", say=lambda text: None)
    book.note("a", Undo("one", ("x",)))
    (tmp_path / enter.FILE).unlink()
    book.restore("a")
    assert book.lines == [] and not enter._held(tmp_path / enter.LOCK)


STOPPABLE = """
import signal
from edgescope.modes.enter import stoppable
numbers = (signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
for number in numbers:
    signal.signal(number, signal.SIG_DFL)
for number in numbers:
    try:
        with stoppable():
            signal.raise_signal(number)
    except SystemExit as stop:
        assert stop.code == 128 + number
    else:
        raise AssertionError(f"{number} did not stop the block")
    assert [signal.getsignal(each) for each in numbers] == [signal.SIG_DFL] * 2
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with stoppable():
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""


@pytest.mark.process
def test_signals_stop_a_block_as_an_exception_does_and_are_as_before_after_it():
    """In a process of its own: what a signal does to this one depends on the tests before it, and may end it."""
    done = subprocess.run([sys.executable, "-c", STOPPABLE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("handle", [0, 7, -1])
def test_whatever_number_a_lock_has_it_is_closed_once(state, monkeypatch, handle):
    """0 is a number like others: the standard input of a service may be closed."""
    closed = []
    book = DiskJournal(state, lambda words, where: "")
    book._lock = handle
    monkeypatch.setattr(enter.os, "close", closed.append)
    book._drop()
    book._drop()
    assert closed == ([handle] if handle >= 0 else [])


@pytest.fixture
def signals(monkeypatch):
    """What is asked of the signals of this process, which stay as they are; SIGHUP is ignored."""
    asked = []
    before = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(enter.signal, "pthread_sigmask", lambda *what: asked.append(what) or {signal.SIGUSR1})
    monkeypatch.setattr(enter.signal, "signal", lambda *what: asked.append(what))
    monkeypatch.setattr(enter.signal, "getsignal", before.get)
    return asked


def stopped_and_held(asked):
    """What is asked within blocks, and after them."""
    with enter._undisturbed(), enter.stoppable():
        within = asked.copy()
    return within, asked[len(within) :]


def test_what_stops_a_program_is_held_back_or_becomes_an_exception(signals):
    ((_, held), (number, stop)), after = stopped_and_held(signals)
    assert held == enter._STOPPING and number == signal.SIGTERM
    assert after == [(signal.SIGTERM, signal.SIG_DFL), (signal.SIG_SETMASK, {signal.SIGUSR1})]
    with pytest.raises(SystemExit) as stopped:
        stop(signal.SIGTERM, None)
    assert stopped.value.code == 143


def test_another_thread_changes_no_signals(signals):
    found = []
    thread = threading.Thread(target=lambda: found.append(stopped_and_held(signals)))
    thread.start()
    thread.join()
    assert found == [([], [])]


def test_a_lock_of_number_0_is_held_like_any_other(state):
    taken = []
    book = DiskJournal(state, lambda words, where: "", lambda text: None)
    book._take = lambda: taken.append(1)
    book._lock = 0
    assert book.recover() is False and not book.holds(Undo("one", ("x",))) and not taken
    state.mkdir()
    (state / enter.FILE).touch()
    book._lock = -1
    assert book.recover() is True and len(taken) == 1
