"""What becomes of a trial's folder once its process has ended, without starting one."""

import inspect
import json
import os
import platform
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from edgescope.errors import Message, StoreError
from edgescope.isolate import fresh, notes, warden
from edgescope.isolate.fresh import GuardedProcess, Limits, Stopped, crash, environment, outcome
from edgescope.process import Launch, Process, signal_name
from edgescope.records import Status, Trial
from edgescope.store import handed_rows, results
from making import result

TRIAL = Trial(model="null", backend="null")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def nothing_is_prepared(monkeypatch):
    """Have every trial prepared here: another test of this session may have prepared the same one."""
    monkeypatch.setattr(notes, "is_prepared", lambda trial: False)


def written(folder, name="result", **keys):
    (folder / name).mkdir()
    results.write(result(TRIAL, **keys), folder / name, handed_rows)


def test_a_result_that_is_whole_counts_whatever_stopped_the_process(tmp_path):
    written(tmp_path)
    for stopped in (None, Stopped(Status.TIMEOUT, Message("E-TIME-1", "late"))):
        found = outcome(TRIAL, stopped, NOW, tmp_path, ["a warning of the engine"])
        assert found.status is Status.OK and found.queries is not None
        assert found.warnings == result().warnings  # what an engine prints is told of failures only


def test_a_process_that_ended_well_without_a_result_is_a_crash_with_its_last_words(tmp_path):
    found = outcome(TRIAL, None, NOW, tmp_path, ["one", "two"])
    assert found.status is Status.CRASHED
    assert re.search(r"E-RUN-2: .* exited with 0 .*\(one \| two\)", str(found.reason))
    assert found.started_at == "2026-01-02T03:04:05.000+00:00" and found.trial == TRIAL
    assert found.warnings[-1].code == "I-TRACE-1" and "one | two" in str(found.warnings[-1])
    assert "before it had described the machine" in str(found.machine.stable)


def test_what_was_begun_is_kept_of_a_process_that_was_stopped(tmp_path):
    written(tmp_path, "begun", started_at="2026-01-02T00:00:00+00:00", status=Status.FAILED)
    full = Message("E-MEM-1", "x")
    found = outcome(TRIAL, Stopped(Status.OOM, full), NOW, tmp_path, [])
    assert (found.status, found.reason) == (Status.OOM, full)
    assert found.started_at == "2026-01-02T00:00:00+00:00" and found.id == result(TRIAL).id


def test_a_process_that_builds_has_an_environment_of_its_own_and_one_that_measures_has_not(monkeypatch):
    seen = []

    def ended(program, folder, limits, launch):
        seen.append({name: launch.env.get(name) for name in (*fresh.BUILDING, "OMP_NUM_THREADS")})
        return None, []

    monkeypatch.setattr(fresh, "_watch", ended)
    fresh.prepare(TRIAL)
    fresh.prepare(TRIAL, Limits(threads=3))
    fresh.run(TRIAL, Limits(threads=3))
    alone = fresh.BUILDING | {"OMP_NUM_THREADS": None}
    assert seen == [alone, fresh.BUILDING | {"OMP_NUM_THREADS": "3"}, dict.fromkeys(alone)]
    assert fresh.BUILDING["OMP_WAIT_POLICY"] == "passive"


ALLOCATES = """
import resource
blocks = lambda: [bytearray(b"1") * 60_000_000 for _ in range(2)]
blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    blocks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library keeps freed memory in its own way"
)
def test_a_process_that_builds_gets_no_large_block_cleared_twice():
    def pages(**env):
        usual = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        return int(subprocess.check_output([sys.executable, "-c", ALLOCATES], env=usual | env))

    assert pages(**fresh.BUILDING) < 100
    assert pages() > 200  # ten blocks of 15,000 pages, or of 28 huge ones


def test_half_a_result_is_none(tmp_path):
    written(tmp_path)
    whole = (tmp_path / "result/result.json").read_text()
    (tmp_path / "result/result.json").write_text(whole[: len(whole) // 2])
    found = outcome(TRIAL, None, NOW, tmp_path, [])
    assert found.status is Status.CRASHED and "E-STORE-4" in str(found.reason)


@pytest.mark.process
def test_of_what_was_written_last_only_the_end_is_told(tmp_path):
    noise = "import sys; [print(f'line {k:06d}', file=sys.stderr) for k in range(2000)]"
    process = Process([sys.executable, "-I", "-S", "-c", noise])
    process.end(60)
    lines = process.tail()
    assert lines[-1] == "line 001999" and 8192 // 12 - 1 <= len(lines) <= 8192 // 12 + 1
    found = outcome(TRIAL, Stopped(Status.CRASHED, Message("E-R-1", "r")), NOW, tmp_path, lines)
    words = str(found.warnings[-1])
    assert "line 001999" in words and "line 001720" in words and "line 001700" not in words  # 4000 characters


@pytest.mark.parametrize("status", [Status.UNSUPPORTED, Status.WRONG_OUTPUT, Status.OK])
def test_what_says_all_in_its_reason_has_no_trace(tmp_path, status):
    written(tmp_path, status=status)
    assert not any(
        w.code.startswith("I-TRACE") for w in outcome(TRIAL, None, NOW, tmp_path, ["words"]).warnings
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (-9, "died of SIGKILL (often the kernel's OOM killer: see dmesg) (a | b | c)"),
        (-11, "died of SIGSEGV (a | b | c)"),
        (3, "exited with 3 (a | b | c)"),
        (0, "ended without an answer"),
    ],
)
def test_a_crash_tells_its_code_and_three_lines(code, says):
    found = crash(code, ["z", "a", "b", "c"])
    assert found.status is Status.CRASHED and says in str(found.reason)
    assert "nothing to stderr" in str(crash(code, []).reason)
    assert len(str(crash(1, ["x" * 999]).reason)) < 500
    assert signal_name(signal.SIGTERM) == "SIGTERM" and signal_name(35) == "signal 35"


def test_the_process_is_told_its_limit_and_launchers_have_the_last_word(tmp_path, monkeypatch):
    monkeypatch.delenv(fresh.TIMEOUT, raising=False)
    monkeypatch.setenv(fresh.COMMAND, "the outer command")
    told = environment(Limits(7.5), str(tmp_path)) + Launch(("nice",), {"A": "launch"}) + Launch(("env",))
    assert told.env[fresh.TIMEOUT] == "7.5" and told.env["A"] == "launch" and told.prefix == ("nice", "env")
    assert told.env[fresh.COMMAND] == "the outer command" and str(tmp_path) in told.env.values()


def test_a_warden_that_does_not_end_is_killed_with_all_below_it(monkeypatch):
    waits, killed = [], []

    def kill(pid, number):
        killed.append((pid, number))
        if pid == 11:
            raise ProcessLookupError

    def child(ends):
        made = GuardedProcess.__new__(GuardedProcess)
        made.pid = 10
        monkeypatch.setattr(made, "terminate", lambda: killed.append("asked"), raising=False)
        monkeypatch.setattr(made, "wait", lambda seconds: waits.append(seconds) or ends, raising=False)
        return made

    monkeypatch.setattr(fresh.warden, "below", lambda pid: [11, 12])
    monkeypatch.setattr(fresh.os, "kill", kill)
    monkeypatch.setattr(Process, "end", lambda self: killed.append("ended"))
    child(None).end(0.5)
    assert waits == [0.5]
    assert killed == ["asked", (10, signal.SIGKILL), (11, signal.SIGKILL), (12, signal.SIGKILL), "ended"]
    killed.clear()
    child(0).end(0.5)
    assert killed == ["asked", "ended"]


def test_processes_that_could_not_be_ended_are_told_once(tmp_path):
    written(tmp_path)
    (tmp_path / warden.SURVIVORS).write_text("12 not-a-number 13\n")
    (text,) = (str(w) for w in outcome(TRIAL, None, NOW, tmp_path, []).warnings if w.code == "W-RUN-1")
    assert "2 processes" in text and "process 12, 13" in text and "ps -fp 12,13" in text
    (tmp_path / warden.SURVIVORS).write_text("none\n")
    assert not any(w.code == "W-RUN-1" for w in outcome(TRIAL, None, NOW, tmp_path, []).warnings)


def test_one_trials_failure_is_told_of_another_under_a_name_of_its_own():
    failed = result(TRIAL, status=Status.UNSUPPORTED, reason=Message("E-X-1", "no"))
    other = Trial(model="null", backend="null", batch=2)
    told = failed.inherited(other)
    assert (told.trial, told.status, told.reason) == (other, Status.UNSUPPORTED, failed.reason)
    assert told.reason.code == "E-X-1"
    assert re.fullmatch(rf"{other.id}-\d{{8}}T\d{{6}}-[0-9a-f]{{6}}", told.id) and told.id != failed.id


def test_the_process_has_a_session_and_no_input_of_its_own_and_may_not_start(tmp_path, monkeypatch):
    """Ctrl-C is for the parent, which then ends the child in order."""
    asked = {}

    def popen(argv, **keys):
        asked.update(keys)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", popen)
    stopped, _ = fresh._watch(["true"], tmp_path, Limits(), Launch(env={"PATH": "/bin:/usr/bin"}))
    assert (
        stopped.status is Status.FAILED
        and "E-RUN-5" in str(stopped.reason)
        and "allocate" in str(stopped.reason)
    )
    assert asked["start_new_session"] is True and asked["stdin"] is subprocess.DEVNULL
    assert asked["env"]["PATH"] == "/bin:/usr/bin"


def test_the_warden_gets_longer_than_it_gives_the_child():
    assert inspect.signature(GuardedProcess.end).parameters["patience_s"].default > warden.PATIENCE_S


def test_the_last_words_are_cut_to_400_characters():
    assert crash(3, ["x" * 900]).reason.evidence == "x" * 400


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 1, 3])
def test_only_a_process_that_ended_with_0_ended_well(code, tmp_path):
    argv = [sys.executable, "-I", "-S", "-c", f"raise SystemExit({code})"]
    stopped, _ = fresh._watch(argv, tmp_path, Limits(timeout_s=60))
    assert (stopped is None) == (code == 0)
    assert stopped is None or (stopped.status, f"exited with {code}" in str(stopped.reason)) == (
        Status.CRASHED,
        True,
    )


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Processes that write a result with this status, and what they have imported; how each was started is kept."""
    seen = []

    def process(status):
        def ended(program, folder, limits, launch):
            trial = Trial.from_json(json.loads((folder / "trial.json").read_text()))
            seen.append((program[3], trial, (folder / fresh.HOLD).exists(), launch.prefix, folder))
            if status is not None:
                written(folder, status=status)
                notes.tell(folder, result(TRIAL))
            return None, []

        monkeypatch.setattr(fresh, "_watch", ended)
        return seen

    monkeypatch.setattr(
        fresh.placement, "traced_launch", lambda trial, folder: Launch(("traced", folder.name))
    )
    monkeypatch.setattr(
        fresh.placement, "with_spans", lambda found, folder: replace(found, id=f"with spans of {folder.name}")
    )
    return process


def test_only_what_is_run_is_traced(runs):
    seen, noted = runs(Status.OK), []
    found = fresh.run(TRIAL, launch=Launch(("nice",)), noted=lambda *what: noted.append(what))
    assert found.id == "with spans of trace" and [(t, "edgescope.records" in i.names) for t, i in noted] == [
        (TRIAL, True)
    ]
    assert fresh.look(TRIAL, noted=lambda *what: noted.append(what)).id == result(TRIAL).id
    assert fresh.prepare(TRIAL) is None and len(noted) == 2
    assert [(verb, *more) for verb, *more, _ in seen] == [
        ("run", TRIAL, False, ("nice", "traced", "trace")),
        ("look", TRIAL, True, ()),
        ("prepare", TRIAL, False, ()),
    ]
    assert not any(folder.exists() for *_, folder in seen)


def test_what_could_not_be_prepared_says_why(runs):
    runs(Status.UNSUPPORTED)
    assert fresh.prepare(TRIAL).status is Status.UNSUPPORTED


def test_a_process_that_wrote_nothing_tells_of_no_imports(runs):
    runs(None)
    noted = []
    assert fresh.look(TRIAL, noted=lambda *what: noted.append(what)).status is Status.CRASHED and not noted


def test_what_runs_meanwhile_has_ended_with_the_look(runs):
    runs(Status.OK)
    done = []
    fresh.look(TRIAL, meanwhile=lambda: done.append(1))
    assert done == [1]


def test_a_folder_that_cannot_be_used_is_an_error_of_the_store(monkeypatch):
    def full(kind):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fresh, "scratch_folder", full)
    with pytest.raises(StoreError) as caught:
        fresh.run(TRIAL)
    assert caught.value.message.code == "E-RUN-4" and "No space left" in caught.value.message.evidence


def test_only_what_is_not_of_the_interpreter_is_on_the_path_of_a_trial(monkeypatch, tmp_path):
    """A script's own folder is: its module:callable is found."""
    for paths, told in (
        (["", sys.prefix + "/lib", "/scripts", sys.base_prefix + "/lib", "/more"], "/scripts:/more"),
        ([""], None),
    ):
        monkeypatch.setattr(sys, "path", paths)
        assert environment(Limits(), str(tmp_path)).env.get("PYTHONPATH") == told


def test_a_program_that_is_not_there_is_told_before_a_warden_starts(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        GuardedProcess(["no-such-program"], tmp_path)
    assert (caught.value.errno, caught.value.filename) == (2, "no-such-program")
    stopped, lines = fresh._watch(["no-such-program"], tmp_path, Limits())
    assert (stopped.status, stopped.reason.code, lines) == (Status.FAILED, "E-RUN-5", [])


def test_a_program_is_looked_for_where_its_own_environment_says(tmp_path, monkeypatch):
    """And a launcher before it in its place; the warden is started before both."""
    (tmp_path / "here").write_text("")
    (tmp_path / "here").chmod(0o755)
    asked = []
    monkeypatch.setattr(
        Process, "__init__", lambda self, program, launch, **how: asked.append((program, launch, how))
    )
    own = Launch(("here", "-n"), {"PATH": str(tmp_path)})
    made = GuardedProcess(["no-such-program"], tmp_path, own, talks=True)
    ((program, launch, how),) = asked
    assert program == ["no-such-program"] and how == {"talks": True, "session": True} and made.launch is own
    assert launch.prefix[1:3] == ("-I", "-S") and launch.prefix[-3:] == (str(tmp_path), "here", "-n")
