"""Whatever a model does, what comes back is a recorded Result with the reason. Real processes, where one may die."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from edgescope.devices.cpu.limits import Memory
from edgescope.errors import StoreError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.process import TAIL_BYTES, Launch, Process
from edgescope.records import Status, Trial, codec

HERE = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def hostile_models_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH")))))


def trial(factory: str, **keys) -> Trial:
    keys = {"min_s": 0.2, "max_s": 0.5, "warmup": 0.1} | keys
    return Trial(model=f"hostile_models:{factory}", **keys)


def run(factory: str, limits: Limits | None = None, **keys):
    return fresh.run(trial(factory, **keys), limits or Limits(timeout_s=120))


def last_words(result) -> str:
    """The one warning that holds the end of the process's stderr, or ''."""
    found = [w for w in result.warnings if w.code == "I-TRACE-1"]
    assert len(found) <= 1
    return "".join(map(str, found))


@pytest.mark.process
def test_an_ordinary_model_is_measured():
    result = run("ordinary")
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason  # a busy machine is unstable
    assert result.verification.passed
    assert "no task accuracy" in result.verification.detail
    assert len(result.queries) > 10
    assert result.metrics["peak_rss_bytes"].value > 50e6
    assert last_words(result) == ""


@pytest.mark.slow
def test_what_raises_is_failed_with_its_message_and_can_be_debugged_from_its_result():
    result = run("raises")
    assert result.status is Status.FAILED
    assert "the sky is falling" in str(result.reason)
    words = last_words(result)
    assert "Traceback (most recent call last): | File" in words
    assert "hostile_models.py" in words
    assert "RuntimeError: the sky is falling" in words
    assert "\n" not in words


@pytest.mark.process
@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("not_a_model", "hostile_models:not_a_model"),
        ("broken_factory", "no weights today"),
        ("no_such_name", "no_such_name"),
    ],
)
def test_what_is_no_model_is_failed_with_its_message(factory, says, trials_here):
    result = run(factory)
    assert result.status is Status.FAILED
    assert says in str(result.reason)


@pytest.mark.slow
def test_a_process_that_ends_with_0_and_no_result_is_told_as_that():
    result = run("quits")
    assert result.status is Status.CRASHED
    assert re.match(r"E-RUN-2: .* exited with 0 and wrote no result", str(result.reason))
    assert "rm -r" not in str(result.reason)


@pytest.mark.slow
def test_only_the_end_of_much_noise_is_kept():
    words = last_words(run("fails_loudly"))
    assert "RuntimeError: after much noise" in words
    assert len(words) < fresh.TAIL_CHARACTERS + 100


@pytest.mark.process
def test_only_the_tail_of_stderr_is_read():
    # a sparse file: reading all of it would cost a gigabyte
    noise = "import os; os.lseek(2, 1 << 30, 0); os.write(2, b'\\n\\n\\x1b[31mred\\xff\\r\\nlast')"
    process = Process([sys.executable, "-I", "-S", "-c", noise])
    process.end(60)
    lines = process.tail()
    assert lines[-2:] == ["[31mred\ufffd", "last"]
    assert sum(map(len, lines)) <= TAIL_BYTES


@pytest.mark.slow
def test_a_query_that_fails_in_the_middle_fails_the_trial_and_keeps_the_rows(trials_here):
    result = run("raises_later", warmup=0, max_queries=100, max_s=60)
    assert result.status is Status.FAILED
    assert "only once" in str(result.reason)
    assert len(result.queries) == 100
    assert result.metrics["errors"].value == 1


@pytest.mark.slow
def test_a_trial_that_is_stopped_while_it_measures_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    long = Trial(model="null", backend="null", warmup=0, min_s=60, max_s=60, options={"delay_us": 1000})
    assert any(seen_until_stopped(long, limit_s, tmp_path) for limit_s in (3, 9, 60))  # a start may take long
    assert not list(tmp_path.glob("edgescope-*"))


def seen_until_stopped(long: Trial, limit_s: float, scratch: Path) -> list[Path]:
    """Run it into its time-out; return the raw readings that lay there while it ran."""
    seen, over = [], threading.Event()

    def look() -> None:
        while not seen and not over.wait(0.05):
            seen.extend(scratch.rglob("readings.bin"))

    looking = threading.Thread(target=look)
    looking.start()
    assert fresh.run(long, Limits(timeout_s=limit_s)).status is Status.TIMEOUT
    over.set()
    looking.join()
    return seen


@pytest.mark.process
def test_a_hang_is_stopped_by_the_time_out_and_leaves_no_process(tmp_path, monkeypatch):
    """Nor does a daemon that it had started: it has other parents by then."""
    monkeypatch.setenv("DAEMON_FILE", str(tmp_path / "pid"))
    before = set(psutil.Process().children(recursive=True))
    for limit_s in (5, 15, 90):  # a start may take long
        result = run("hides_and_hangs", Limits(timeout_s=limit_s))
        assert result.status is Status.TIMEOUT and f"{limit_s} s" in str(result.reason)
        if (tmp_path / "pid").exists():
            break
    assert "waiting for a lock" in last_words(result)
    assert set(psutil.Process().children(recursive=True)) == before
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_nan_is_wrong_output():
    result = run("nan_alone")
    assert result.status is Status.WRONG_OUTPUT
    assert "NaN" in str(result.reason)


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["nan_alone", "infinite_alone", "wrong_alone", "nan_alone_of_chance"])
def test_a_wrong_answer_is_wrong_output_on_any_cpu(factory, trials_here):
    result = run(factory)
    assert result.status is Status.WRONG_OUTPUT
    assert not result.verification.passed and result.unverified is None


@pytest.mark.slow
def test_a_network_whose_own_fp32_is_nan_on_random_numbers_cannot_be_judged(trials_here):
    result = run("nan")
    assert result.status in (Status.OK, Status.UNSTABLE)
    assert result.verification is None and result.unverified.code == "E-GATE-6"
    assert "NaN" in str(result.unverified)


@pytest.mark.slow
def test_a_fast_wrong_answer_is_wrong_output(trials_here):
    result = run("wrong_in_bf16", precision="bf16")
    if result.status is Status.UNSUPPORTED:
        pytest.skip(str(result.reason))
    assert result.status is Status.WRONG_OUTPUT
    assert not result.verification.passed


@pytest.mark.process
def test_a_crash_names_the_signal():
    result = run("segfaults")
    assert result.status is Status.CRASHED
    assert "SIGSEGV" in str(result.reason)


def test_a_signal_without_a_name_is_a_number():
    stopped = fresh.crash(-35, [])
    assert stopped.status is Status.CRASHED
    assert "died of signal 35" in str(stopped.reason)
    assert "SIGKILL" in str(fresh.crash(-9, []).reason)


def free() -> int:
    with Memory() as memory:
        return memory.available()


@pytest.mark.slow
def test_a_model_that_eats_memory_is_stopped_at_the_floor(tmp_path, monkeypatch):
    before, room = free(), 1_500_000_000
    if before < 2 * room:
        pytest.skip(f"needs 3 GB of free memory, there are {before / 1e9:.1f}")
    eaten = tmp_path / "eaten"
    monkeypatch.setenv("EATEN_FILE", str(eaten))
    result = run("eats_memory", Limits(timeout_s=120, floor_bytes=before - room))
    assert result.status is Status.OOM
    assert eaten.exists(), "it was stopped before it had eaten anything"
    assert "floor" in str(result.reason)
    assert "--batch" in str(result.reason)
    assert free() > before - room


NULL = Trial(model="null", backend="null", options={"delay_us": 1000}, warmup=0.0, min_s=0.1, max_s=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_what_was_finished_when_the_time_was_up_counts_and_half_of_it_does_not(whole, monkeypatch):
    real = fresh._wait

    def too_late(child, limits):
        real(child, limits)
        if not whole:
            path = Path(child._child.args[-2]) / "result/result.json"
            path.write_text(path.read_text()[:-20])
        return fresh.Stopped(Status.TIMEOUT, "E-TIME-1: too late")

    monkeypatch.setattr(fresh, "_wait", too_late)
    result = fresh.run(NULL)
    if whole:
        assert result.status in (Status.OK, Status.UNSTABLE)
        assert len(result.queries) > 10
    else:
        assert (result.status, result.reason) == (Status.TIMEOUT, "E-TIME-1: too late")
        assert result.queries is None


@pytest.mark.slow
def test_a_credential_on_the_command_line_is_in_no_part_of_the_result(monkeypatch):
    monkeypatch.delenv(fresh.COMMAND, raising=False)
    monkeypatch.setattr(sys, "orig_argv", ["edgescope", "bench", "null", "--api-key=hunter2"])
    result = fresh.run(NULL)
    assert result.machine.state["command"] == ["edgescope", "bench", "null", "--api-key=***"]
    assert "hunter2" not in json.dumps(codec.to_json(result))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_temporary_folder_that_takes_nothing_is_an_error(number, tmp_path, monkeypatch):
    def refuse(path, text):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(StoreError, match=r"TMPDIR=/another/folder") as caught:
        fresh.run(NULL)
    assert os.strerror(number) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_is_gone_is_the_same_error(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match=r"gone.*TMPDIR"):
        fresh.run(NULL)


def test_a_wrapper_that_is_not_installed_is_a_failed_trial():
    result = fresh.run(NULL, launch=Launch(prefix=("no-such-tracer",)))
    assert result.status is Status.FAILED
    assert result.reason.code == "E-RUN-5" and "no-such-tracer" in result.reason.evidence


@pytest.mark.process
def test_a_precision_the_device_lacks_is_unsupported(trials_here):
    result = run("ordinary", precision="fp16")
    assert result.status is Status.UNSUPPORTED
    assert "fp16" in str(result.reason)


@pytest.mark.process
def test_the_child_dies_with_its_parent():
    script = (
        "from edgescope.isolate import fresh\nfrom edgescope.records import Trial\n"
        "fresh.run(Trial(model='null', backend='null', options={'delay_us': 1000}, min_s=60, max_s=60))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 30
    family: list[psutil.Process] = []
    while len(family) < 4 and time.monotonic() < deadline:  # warden, trial, prober, sampler
        time.sleep(0.1)
        family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) >= 4  # a prober may have one of its own for some milliseconds
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


class FakeMemory:
    """So many bytes in all, so many free at each look."""

    def __init__(self, total: float, *free: float) -> None:
        self.total, self.free = int(total), [*map(int, free)]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def available(self) -> int:
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]


@pytest.fixture
def silent():
    """A pipe on which nobody says anything."""
    listens, says = os.pipe()
    yield listens
    os.close(listens)
    os.close(says)


@pytest.mark.parametrize(
    ("asked", "total", "floor"),
    [(None, 1e9, 400e6), (None, 4e9, 400e6), (None, 16e9, 1.28e9), (0, 16e9, 0), (7, 16e9, 7)],
)
def test_the_floor_is_a_share_of_the_machine_and_never_less_than_400_mb(asked, total, floor):
    assert fresh.floor_of(asked, FakeMemory(total, 0)) == floor


def test_memory_below_the_floor_stops_a_trial_and_memory_at_it_does_not(silent, monkeypatch):
    memory = FakeMemory(1e9, 400e6, 400e6, 399.9e6)
    monkeypatch.setattr(fresh, "Memory", lambda: memory)
    stopped = fresh.until_readable(silent, Limits(timeout_s=60))
    assert stopped.status is Status.OOM
    assert re.search("MemAvailable 400 MB .*floor 400 MB", str(stopped.reason))
    assert memory.free == [399_900_000]


def test_time_that_is_up_stops_a_trial(silent, monkeypatch):
    monkeypatch.setattr(fresh, "Memory", lambda: FakeMemory(1e9, 1e9))
    begun = time.monotonic()
    stopped = fresh.until_readable(silent, Limits(timeout_s=0.1))
    assert stopped.status is Status.TIMEOUT
    assert "0.1 s" in str(stopped.reason)
    assert time.monotonic() - begun >= 0.1


def test_what_is_said_in_time_stops_nothing(monkeypatch):
    monkeypatch.setattr(fresh, "Memory", lambda: FakeMemory(1e9, 1e9))
    listens, says = os.pipe()
    os.close(says)
    try:
        assert fresh.until_readable(listens, Limits(timeout_s=0)) is None
    finally:
        os.close(listens)


def test_what_could_not_be_ended_is_told(tmp_path):
    (tmp_path / "survivors").write_text("12 345 ;rm")
    (told,) = map(str, fresh._survivors(tmp_path))
    assert "2 processes" in told and "ps -fp 12,345" in told
    assert not [*fresh._survivors(tmp_path / "none")]
