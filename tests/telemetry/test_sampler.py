from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu.device import CpuDevice
from edgescope.errors import UsageError
from edgescope.telemetry.sampler import NullSampler, Sampler
from edgescope.telemetry.watcher import COST_CHANNEL, ROW, RowFile

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _fakes_reach_the_watcher(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))))


def fake(kind: str, every: int = 1, *, edges: bool = False, **kwargs) -> SourceSpec:
    return SourceSpec(f"fake_sensors:{kind}", kwargs, every, edges)


def channel(readings, name):
    return next(c for c in readings.channels if c.name == name)


def rows(sampler, name) -> int:
    return len(sampler.readings().series(name)[0])


def until(condition, seconds: float = 20.0) -> None:
    """Wait until the condition holds, however busy the machine is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.01)


def ticks(sampler, n: int) -> None:
    """Wait for n more ticks; the reading of a tick is done when its row is there."""
    target = rows(sampler, COST_CHANNEL) + n
    until(lambda: rows(sampler, COST_CHANNEL) >= target)


def kill(sampler) -> None:
    """Kill the watcher and wait until it is dead."""
    os.kill(sampler.pid, signal.SIGKILL)
    until(lambda: not alive(sampler.pid))


def test_it_ticks_on_schedule_in_another_process_on_this_clock(tmp_path):
    before = time.monotonic_ns()
    with Sampler([fake("Counting"), fake("Pid", name="pid")], 50, tmp_path) as sampler:
        time.sleep(0.6)
    after = time.monotonic_ns()
    readings, cost = sampler.readings(), sampler.cost()
    t_ns, count = readings.series("count")
    assert before <= t_ns[0] and t_ns[-1] <= after
    assert list(count) == list(range(1, len(count) + 1))  # no reading lost
    assert set(readings.series("pid")[1]) == {float(sampler.pid)} != {float(os.getpid())}
    assert cost["alive"] and cost["end"] == "stopped"
    assert cost["ticks"] == len(count) - 1 and cost["ticks"] + cost["missed_ticks"] >= 28
    assert 0 < cost["cpu_share"] < 0.5
    assert cost["lost_rows"] == 0 and cost["write_error"] == ""


def test_windows_lie_inside_the_readings(tmp_path):
    with Sampler([fake("Counting", every=1000)], 10, tmp_path) as sampler:
        start = time.monotonic_ns()
        time.sleep(0.05)
        stop = time.monotonic_ns()
    t_ns, _ = sampler.readings().series("count")
    assert t_ns[0] <= start < stop <= t_ns[-1]


def test_slow_channels_are_read_less_often(tmp_path):
    with Sampler([fake("Counting"), fake("Pid", every=10, name="slow")], 100, tmp_path) as sampler:
        until(lambda: rows(sampler, "count") >= 40)
    readings = sampler.readings()
    fast, slow = len(readings.series("count")[0]), len(readings.series("slow")[0])
    assert 1 <= slow <= fast / 4


def test_a_dear_source_is_read_less_often(tmp_path):
    with Sampler([fake("Dear"), fake("Pid", name="pid")], 50, tmp_path) as sampler:
        until(lambda: rows(sampler, "pid") >= 20)
    cost = sampler.cost()
    assert 3 <= rows(sampler, "count") <= rows(sampler, "pid") / 2
    assert list(cost["slowed"]) == ["fake_sensors:Dear"]
    assert cost["slowed"]["fake_sensors:Dear"] >= 100


def test_a_source_that_only_looks_cheap_at_first_is_read_less_often_too(tmp_path):
    with Sampler([fake("Cached"), fake("Pid", name="pid")], 50, tmp_path) as sampler:
        until(lambda: rows(sampler, "pid") >= 30)
    cost = sampler.cost()
    assert rows(sampler, "count") <= 12  # three at first, five that are tried, one at the end
    assert cost["slowed"]["fake_sensors:Cached"] >= 50


def test_an_edge_source_is_read_at_an_edge_and_until_it_moves_and_hardly_else(tmp_path):
    specs = [fake("Stepping", every=10_000, edges=True), fake("Pid", name="pid")]
    with Sampler(specs, 20, tmp_path) as sampler:
        until(lambda: rows(sampler, "pid") >= 8)
        begun = rows(sampler, "count")
        marked = time.monotonic_ns()
        sampler.mark()
        until(lambda: rows(sampler, "count") > begun)
        until(lambda: rows(sampler, "pid") >= 20)
        inside = rows(sampler, "count")
        stopped = time.monotonic_ns()
        sampler.mark()
    t_ns, count = sampler.readings().series("count")
    assert 2 <= inside - begun <= 4, "at the edge and on up to three ticks, of twelve"
    assert marked <= t_ns[begun] and stopped <= t_ns[inside]
    assert count[inside - 1] > count[begun] and (count[begun : inside - 1] == count[begun]).all()
    assert count[-1] > count[inside], "it waited for the next step although it was told to stop at once"
    cost = sampler.cost()
    assert cost["alive"] and cost["ticks"] <= rows(sampler, "pid") + 1, "a mark is no tick"


def test_an_edge_source_that_has_moved_is_left_alone(tmp_path):
    specs = [fake("Counting", every=10_000, edges=True), fake("Pid", name="pid")]
    with Sampler(specs, 50, tmp_path) as sampler:
        ticks(sampler, 2)
        begun = rows(sampler, "count")
        sampler.mark()
        until(lambda: rows(sampler, "count") > begun)
        ticks(sampler, 6)
        assert rows(sampler, "count") - begun == 2


def test_an_edge_source_that_does_not_move_is_given_up(tmp_path):
    with Sampler([fake("Pid", every=10_000, edges=True, name="pid")], 50, tmp_path) as sampler:
        ticks(sampler, 2)
        begun, start = rows(sampler, "pid"), time.monotonic()
        sampler.mark()
    assert rows(sampler, "pid") - begun == 4  # at the edge, and three times after it
    assert time.monotonic() - start < 4


def test_a_mark_for_nobody_does_no_harm(tmp_path):
    sampler = Sampler([fake("Counting", edges=True)], 50, tmp_path)
    sampler.mark()
    with sampler:
        kill(sampler)
        sampler.mark()
    sampler.mark()
    NullSampler().mark()
    assert not sampler.cost()["alive"]


def test_a_killed_watcher_keeps_its_readings_and_never_looks_clean(tmp_path):
    with Sampler([fake("Counting")], 100, tmp_path) as sampler:
        until(lambda: rows(sampler, "count") >= 5)
        kill(sampler)
        killed = time.monotonic_ns()
    readings, cost = sampler.readings(), sampler.cost()
    t_ns, count = readings.series("count")
    assert len(count) >= 5 and t_ns[-1] <= killed
    assert channel(readings, "count").status == "measured"
    assert not cost["alive"]
    assert "died of SIGKILL" in cost["end"]
    assert cost["cpu_share"] is not None


def test_a_row_cut_in_half_is_left_out(tmp_path):
    with Sampler([fake("Counting")], 50, tmp_path) as sampler:
        ticks(sampler, 3)
        kill(sampler)
    file = tmp_path / "readings.bin"
    whole = len(sampler.readings().t_ns)
    file.write_bytes(file.read_bytes()[:-5])
    assert len(sampler.readings().t_ns) == whole - 1


def test_a_sensor_that_disappears(tmp_path):
    device = tmp_path / "device"
    device.touch()
    with Sampler([fake("Vanishing", file=str(device)), fake("Counting")], 50, tmp_path) as sampler:
        ticks(sampler, 3)
        device.unlink()
        ticks(sampler, 3)
    readings = sampler.readings()
    gone, count = len(readings.series("vanishing")[0]), len(readings.series("count")[0])
    assert 0 < gone < count
    assert channel(readings, "vanishing").status == "failed"
    assert "No such device" in str(channel(readings, "vanishing").reason)
    assert sampler.cost()["alive"]


def test_a_sensor_that_vanished_is_known_even_when_the_watcher_dies(tmp_path):
    device = tmp_path / "device"
    device.touch()
    with Sampler([fake("Vanishing", file=str(device))], 50, tmp_path) as sampler:
        device.unlink()
        ticks(sampler, 3)
        kill(sampler)
    assert channel(sampler.readings(), "vanishing").status == "failed"


def test_failures_between_readings_are_counted(tmp_path):
    with Sampler([fake("Flapping")], 100, tmp_path) as sampler:
        time.sleep(3.0)  # more status changes than the pipe may carry
    got = channel(sampler.readings(), "count")
    assert sampler.cost()["alive"]
    assert got.status in ("measured", "failed")
    assert "failed" in str(got.reason) or "bus busy" in str(got.reason)


def test_a_source_that_cannot_be_opened_does_not_end_the_watch(tmp_path):
    with Sampler([fake("Refusing"), fake("Counting")], 50, tmp_path) as sampler:
        time.sleep(0.1)
    readings = sampler.readings()
    refused = channel(readings, "fake_sensors:Refusing")
    assert refused.status == "failed" and "no driver" in str(refused.reason)
    assert len(readings.series("count")[0])


FULL = """
import resource, sys, time
from pathlib import Path
from edgescope.devices.base import SourceSpec
from edgescope.telemetry.sampler import Sampler
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # not a whole number of rows
# a source whose reads look dear for the period is read less often, and the count below would differ
with Sampler([SourceSpec("fake_sensors:Counting")], 20, Path(sys.argv[1])) as sampler:
    time.sleep(1.0)
cost = sampler.cost()
print(len(sampler.readings().series("count")[0]), cost["alive"], cost["lost_rows"], cost["write_error"] != "")
print(list(sampler.readings().series("count")[1]) == [float(i + 1) for i in range(cost["ticks"] + 1)])
"""


def test_a_full_disk_loses_no_reading(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    (rows, alive, lost, told), (in_order,) = (line.split() for line in done.stdout.splitlines())
    assert int(rows) >= 10
    assert (alive, lost, told, in_order) == ("True", "0", "True", "True")


def test_memory_for_unwritten_rows_is_bounded(monkeypatch):
    monkeypatch.setattr("edgescope.telemetry.watcher._MAX_PENDING", 10 * ROW.size)
    file = RowFile("/dev/full")
    for _ in range(15):
        file.append(ROW.pack(1, 2, 3.0))
    assert file.lost_rows == 5
    assert len(file.pending) == 10 * ROW.size
    assert "No space left" in file.error


ORPHAN = """
import os, sys, time
from pathlib import Path
from edgescope.devices.base import SourceSpec
from edgescope.telemetry.sampler import Sampler
sampler = Sampler([SourceSpec("fake_sensors:Counting")], 50, Path(sys.argv[1])).__enter__()
keeper = os.fork()  # keeps the pipe open, so that only the parent check can notice
if keeper == 0:
    time.sleep(20)
    os._exit(0)
print(sampler.pid, keeper, flush=True)
os._exit(0)
"""


def test_a_dead_parent_takes_the_watcher_along(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path)], stdout=-1, text=True)
    watcher, keeper = map(int, child.stdout.readline().split())
    child.wait()
    try:
        deadline = time.monotonic() + 5
        while alive(watcher) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not alive(watcher)
    finally:
        os.kill(keeper, 9)
        child.stdout.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_in_the_terminal_does_not_reach_the_watcher(tmp_path):
    with Sampler([fake("Counting")], 50, tmp_path) as sampler:
        assert os.getpgid(sampler.pid) != os.getpgid(0)


def test_an_error_in_the_run_still_stops_the_watcher(tmp_path):
    with pytest.raises(KeyError), Sampler([fake("Counting")], 50, tmp_path) as sampler:
        raise KeyError
    assert not alive(sampler.pid)
    assert sampler.cost()["alive"]


def test_an_interpreter_that_does_not_start_is_a_dead_watcher(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/python")
    with Sampler([fake("Counting")], 50, tmp_path) as sampler:
        pass
    assert not sampler.cost()["alive"]
    assert "not be started" in sampler.cost()["end"] and "/no/python" in sampler.cost()["end"]
    assert len(sampler.readings().t_ns) == 0


def test_a_watcher_that_dies_at_once_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Sampler([fake("Counting")], 50, tmp_path) as sampler:
        pass
    assert not sampler.cost()["alive"]


@pytest.mark.parametrize("hz", [0, -1, 1e9, float("nan")])
def test_a_foolish_rate_is_refused(hz, tmp_path):
    with pytest.raises(UsageError, match="E-SAMPLE-1"):
        Sampler([], hz, tmp_path)


def test_the_null_sampler_has_the_same_face():
    with NullSampler() as sampler:
        pass
    assert len(sampler.readings().t_ns) == 0
    nothing = {"hz": 0.0, "ticks": 0, "missed_ticks": 0, "cpu_s": 0.0, "alive": False, "end": "off (hz = 0)"}
    assert sampler.cost() == nothing


def test_the_real_cpu_is_watched(tmp_path):
    with Sampler(CpuDevice().sources(os.getpid()), 20, tmp_path) as sampler:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    readings = sampler.readings()
    cpu_s = readings.series("proc_cpu_s")[1]
    assert 0.2 <= cpu_s[-1] - cpu_s[0] <= 1.0
    busy = readings.series("cpu_busy")[1]
    assert len(busy) >= 2 and 0 < np.mean(busy) <= 1 + 1e-9  # all CPUs busy: rounding
    for c in readings.channels:
        assert (c.status == "measured") == (len(readings.series(c.name)[0]) > 0)
        assert c.status == "measured" or c.reason
