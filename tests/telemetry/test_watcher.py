"""The watcher inside this process, in fake time: when it ticks, what it reads, what it says of what fails."""

import base64
import errno
import json
import math
import os
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.devices.base import ChannelSpec, Failed, SourceSpec, Unsupported
from edgescope.errors import UsageError
from edgescope.telemetry import watcher
from edgescope.telemetry.sampler import NullSampler, Sampler
from edgescope.telemetry.watcher import COST_CHANNEL, ROW, Board, Reader, RowFile, Watcher

SECOND = 1_000_000_000
SPEC = ChannelSpec("x", "1", "system", "gauge", "test")


READY = 'import os, sys, time; print(\'{"channels": [], "every": [], "hz": 10}\', flush=True); '
"""A watcher's program up to where it is ready."""


class Time:
    """All the clocks that the watcher looks at, and its pipe: waiting passes time, and `until_ns` closes it."""

    def __init__(self, until_ns=10 * SECOND, late_ns=lambda n: 0):
        self.sent = []
        self.ns, self.cpu_s, self.until_ns, self.late_ns, self.waits = 5 * SECOND, 0.0, until_ns, late_ns, []

    def monotonic_ns(self):
        return self.ns

    def perf_counter(self):
        return self.ns / 1e9

    def process_time(self):
        return self.cpu_s

    def ready(self, wait_s):
        self.waits.append(max(0, wait_s))
        self.ns += round(self.waits[-1] * 1e9) + self.late_ns(len(self.waits))
        return self.ns >= 5 * SECOND + self.until_ns

    def fill(self):
        raise EOFError

    def send(self, **message):
        self.sent.append(json.loads(json.dumps(message)))


@pytest.fixture
def time(monkeypatch):
    def install(**keys):
        made = Time(**keys)
        monkeypatch.setattr(watcher, "time", made)
        monkeypatch.setattr(watcher, "gc", SimpleNamespace(freeze=lambda: None, disable=lambda: None))
        return made

    return install


class Source:
    """Yields what it is told, and takes as much of the fake clocks' time."""

    made: ClassVar[list] = []

    def __init__(self, values=None, wall_s=0.0, cpu_s=0.0, clock=None):
        self.values, self.wall_s, self.cpu_s, self.clock, self.reads = values, wall_s, cpu_s, clock, []
        Source.made.append(self)

    def channels(self):
        return [SPEC]

    def read(self):
        clock = watcher.time
        clock.ns += round(self.wall_s * 1e9)
        clock.cpu_s += self.cpu_s
        self.reads.append(clock.ns)
        if self.values is None:
            return [("x", clock.ns, float(len(self.reads)))]
        value = self.values[min(len(self.reads), len(self.values)) - 1]
        if isinstance(value, Exception):
            raise value
        return [("x", clock.ns, value)]


@pytest.fixture(autouse=True)
def _none_made():
    Source.made = []


def spec(every=1, **kwargs):
    return SourceSpec("test_watcher:Source", kwargs, every)


@pytest.fixture(autouse=True)
def _found_by_name(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "test_watcher", sys.modules[__name__])


def watched(tmp_path, *specs, hz=10.0, parent=None):
    """Run a watch; return the watcher, why it stopped, and what it said."""
    sources = [{"target": s.target, "kwargs": s.kwargs, "every": s.every} for s in specs]
    path = tmp_path / "rows"
    clock = watcher.time
    request = {"sources": sources, "hz": hz, "path": str(path)}
    made = Watcher(request, clock, os.getppid() if parent is None else parent)
    why, said = made.run(), clock.sent
    rows = [ROW.unpack(path.read_bytes()[i : i + ROW.size]) for i in range(0, path.stat().st_size, ROW.size)]
    return made, why, said, rows


def ticks(rows):
    return [t for t, channel, _ in rows if channel == 0]


def test_ticks_come_at_the_rate_with_a_wandering_phase_and_do_not_drift(time, tmp_path):
    time(until_ns=100 * SECOND)
    _, why, said, rows = watched(tmp_path, spec(), hz=10)
    t = [(at - 5 * SECOND) / 1e8 for at in ticks(rows)]  # in periods
    assert why == "stopped" and t[0] == 0.0  # one reading before it says that it is ready
    phase = [x - k for k, x in enumerate(t[1:-1], 1)]
    assert 0 <= min(phase) < 0.01 and 0.19 < max(phase) <= 0.2
    assert sum(phase) / len(phase) == pytest.approx(0.1, abs=0.005)
    assert phase[:3] == [pytest.approx(0.2 * (k * 0.6180339887498949 % 1), abs=1e-6) for k in (1, 2, 3)]
    assert len(t) == pytest.approx(1002, abs=1)
    assert said[0]["every"] == [["test_watcher:Source", 1, 1]]
    assert [c["name"] for c in said[0]["channels"]] == [COST_CHANNEL, "x"]


def test_a_late_tick_is_skipped_and_never_made_up_for_in_a_bunch(time, tmp_path):
    clock = time(until_ns=20 * SECOND, late_ns=lambda n: 5 * SECOND if n == 50 else 0)
    _, _, _, rows = watched(tmp_path, spec(), hz=10)
    gaps = [(b - a) / SECOND for a, b in zip(ticks(rows), ticks(rows)[1:], strict=False)]
    assert max(gaps) > 5 and sum(g > 1 for g in gaps) == 1
    assert min(gaps[:-1]) > 0.07  # a period less what the phase wanders
    assert min(clock.waits) >= 0.0


def test_the_last_tick_reads_everything_however_seldom_it_is_read(time, tmp_path):
    time(until_ns=3 * SECOND)
    watched(tmp_path, spec(), spec(every=7), spec(every=1000), hz=10)
    often, seldom, once = Source.made
    stop = often.reads[-1]
    assert (
        once.reads == [5 * SECOND, 5 * SECOND, stop] and seldom.reads[-1] == stop
    )  # the first two are timed
    assert len(seldom.reads) == 3 + 29 // 7 and len(often.reads) in (32, 33)


def test_ticks_are_no_quicker_than_the_quickest_source_that_tells_anything(time, tmp_path):
    """Waking up is half of what watching costs: 5 Hz where what asked for 10 Hz is not here."""
    time(until_ns=60 * SECOND)
    nothing = [Unsupported("no such sensor")]
    _, _, said, rows = watched(tmp_path, spec(values=nothing), spec(every=2), spec(every=5), hz=10)
    silent, quick, slow = Source.made
    assert said[0]["hz"] == pytest.approx(5.0)
    assert len(ticks(rows)) == pytest.approx(60 * 5, abs=3)
    assert len(quick.reads) == pytest.approx(60 * 5, abs=3)
    assert len(slow.reads) == pytest.approx(60 * 5 / 3, abs=4), "every fifth of 10 Hz is every third of 5 Hz"
    assert len(silent.reads) == pytest.approx(60 / 5, abs=4), "asked now and then whether it has come"
    assert said[0]["every"] == [["test_watcher:Source", n, n] for n in (50, 2, 6)]


def test_a_source_that_failed_keeps_its_rate(time, tmp_path):
    time(until_ns=10 * SECOND)
    _, _, said, _ = watched(tmp_path, spec(values=[Failed("busy")]), spec(every=2), hz=10)
    assert said[0]["hz"] == 10 and len(Source.made[0].reads) > 95


def test_a_source_that_is_dear_in_cpu_is_read_as_seldom_as_its_budget_asks(time, tmp_path):
    """A thousandth of a core: 1.05 ms of CPU are to come once in 1.05 s, on every 11th tick of 10 Hz."""
    time(until_ns=10 * SECOND)
    _, _, said, _ = watched(tmp_path, spec(cpu_s=0.00105), hz=10)
    assert said[0]["every"] == [["test_watcher:Source", 11, 1]]
    assert len(Source.made[0].reads) == pytest.approx(3 + 9 + 1, abs=1)


def test_a_source_that_blocks_is_read_as_seldom_as_its_budget_asks(time, tmp_path):
    """A fifth of the time: 50 ms of waiting once in 250 ms, on every third tick of 10 Hz."""
    time(until_ns=10 * SECOND)
    _, _, said, _ = watched(tmp_path, spec(wall_s=0.050), hz=10)
    assert said[0]["every"] == [["test_watcher:Source", 3, 1]]
    time(until_ns=10 * SECOND)
    _, _, said, _ = watched(tmp_path, spec(every=5, wall_s=0.050), hz=10)
    assert said[0]["every"] == [["test_watcher:Source", 5, 5]]  # seldom enough already


def test_a_read_that_was_preempted_once_slows_nothing(time, monkeypatch):
    clock = time()
    board = Board()
    reader = Reader(spec(), board)
    slow = iter([0.0, 1.0, 0.0])
    source = Source.made[0]
    monkeypatch.setattr(
        source, "read", lambda: (setattr(clock, "ns", clock.ns + round(next(slow) * 1e9)), [])[1]
    )
    reader.pace(0.1)
    assert reader.every == 1


def test_each_watch_ends_with_its_parent(time, tmp_path):
    time(until_ns=100 * SECOND)
    _, why, said, _ = watched(tmp_path, spec(), parent=-1)
    assert why == "the parent died" and len(said) == 1


def test_the_fate_of_a_channel_is_said_when_it_changes_and_its_failures_are_counted(time, tmp_path):
    time(until_ns=1 * SECOND)
    values = [1.0, 1.0, Failed("busy"), Failed("busy"), 2.0, OSError("gone"), Unsupported("never here")]
    made, _, said, rows = watched(tmp_path, spec(values=values), hz=10)
    assert [m["status"] for m in said[1:]] == [
        [1, "failed", "busy"],
        [1, "measured", "2 readings failed"],
        [1, "failed", "reading raised OSError('gone')"],
        [1, "unsupported", "never here"],
    ]
    assert [v for _, channel, v in rows if channel == 1] == [1.0, 1.0, 2.0]
    end = made.end("stopped")
    assert end["end"] == "stopped" and end["lost_rows"] == 0 and end["write_error"] == ""
    assert end["channels"][1]["status"] == "unsupported"


def test_no_more_is_said_than_the_pipe_holds_and_no_reason_is_endless(time, tmp_path):
    time(until_ns=30 * SECOND)
    values = [Failed("y" * 999) if k % 2 else 1.0 for k in range(999)]
    _, _, said, _ = watched(tmp_path, spec(values=values), hz=10)
    assert len(said) == 1 + 100 and max(len(m["status"][2]) for m in said[1:]) == 300


def test_before_an_interval_has_passed_a_channel_has_no_fate():
    board = Board()
    assert [board.add(SPEC), board.add(SPEC)] == [0, 1]
    board.note(1, 3.0)
    assert [(c["status"], c["reason"]) for c in board.table()] == [
        ("failed", "no interval has passed yet"),
        ("measured", ""),
    ]


def test_a_source_that_cannot_be_made_is_a_channel_that_failed(time):
    time()
    board = Board()
    for target in ("no_such_module:X", "test_watcher:Missing", "no colon"):
        reader = Reader(SourceSpec(target), board)
        assert reader.read() == b"" == reader.pace(0.1)
    table = board.table()
    assert [c["name"] for c in table] == ["no_such_module:X", "test_watcher:Missing", "no colon"]
    assert all(c["status"] == "failed" and "cannot be opened" in c["reason"] for c in table)


def test_rows_wait_while_the_disk_takes_none_and_are_written_in_order_when_it_does(tmp_path, monkeypatch):
    file = RowFile(str(tmp_path / "rows"))
    write, room = os.write, [10, None, 7]

    def stubborn(handle, data):
        limit = room.pop(0) if room else len(data)
        if limit is None:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data[:limit]))

    monkeypatch.setattr(watcher.os, "write", stubborn)
    rows = [ROW.pack(k, k, k / 2) for k in range(5)]
    for k, row in enumerate(rows):
        file.append(row)
        on_disk = (tmp_path / "rows").read_bytes()
        assert on_disk + file.pending == b"".join(rows[: k + 1])
    assert file.pending == b"" and file.lost_rows == 0
    assert file.error == "No space left on device after 10 bytes"


def test_a_file_that_cannot_be_opened_keeps_its_rows_in_memory_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(watcher, "_MAX_PENDING", 3 * ROW.size)
    file = RowFile(str(tmp_path / "no folder" / "rows"))
    for k in range(2):
        file.append(ROW.pack(k, 0, 0.0))
    file.append(ROW.pack(2, 0, 0.0) * 2)  # two more would be one too many
    file.append(ROW.pack(3, 0, 0.0))
    assert file.lost_rows == 2 and len(file.pending) == 3 * ROW.size
    assert file.error.endswith(f"rows: {os.strerror(errno.ENOENT)}")


def sampler(tmp_path, rows, *, hz=10.0, **last):
    """A sampler that has been told this much, as after a run."""
    made = Sampler([spec(), spec(every=5)], hz, tmp_path)
    (tmp_path / "readings.bin").write_bytes(b"".join(ROW.pack(*row) for row in rows))
    fates = {"status": "measured", "reason": ""}
    made._channels = [
        {"name": n, "unit": "s", "scope": "sampler", "kind": "counter", "source": "t"} | fates
        for n in (COST_CHANNEL, "x")
    ]
    made._died, made._last = "", last
    made._every = [("a", 1, 1), ("b", 5, 5)]
    return made


def test_the_cost_of_watching_is_from_the_first_tick_to_the_last(tmp_path):
    rows = [(k * SECOND // 10, 0, 0.001 * k) for k in range(11) if k not in (4, 5)]
    cost = sampler(tmp_path, rows).cost()
    assert (cost["ticks"], cost["missed_ticks"], cost["wall_s"]) == (9, 2, 1.0)
    assert cost["cpu_s"] == pytest.approx(0.010) and cost["cpu_share"] == pytest.approx(0.010)
    assert cost["achieved_hz"] == pytest.approx(8.0) and cost["hz"] == 10.0
    assert (cost["alive"], cost["end"], cost["slowed"]) == (True, "stopped", {})
    assert (cost["lost_rows"], cost["write_error"]) == (0, "")


def test_one_tick_costs_nothing_that_could_be_told(tmp_path):
    one = sampler(tmp_path, [(SECOND, 0, 0.5)], lost_rows=3, write_error="full")
    cost = one.cost()
    assert (cost["ticks"], cost["cpu_s"], cost["wall_s"], cost["missed_ticks"]) == (1, 0.0, 0.0, 0)
    assert cost["cpu_share"] is None and cost["achieved_hz"] is None
    assert (cost["lost_rows"], cost["write_error"]) == (3, "full")
    two = sampler(tmp_path, [(SECOND, 0, 0.5), (3 * SECOND, 0, 0.6)], hz=0.5).cost()
    assert (two["ticks"], two["wall_s"], two["missed_ticks"]) == (2, 2.0, 0)
    assert two["cpu_share"] == pytest.approx(0.05)


def test_only_what_is_read_less_often_than_asked_was_slowed(tmp_path):
    made = sampler(tmp_path, [])
    made._every = [("a", 2, 1), ("b", 5, 5)]
    assert made.cost()["slowed"] == {"a": 2}
    made._every = [("a", 1, 1), ("b", 6, 5)]
    assert made.cost()["slowed"] == {"b": 6}
    made._every = [("a", 1, 1), ("b", 5, 5)]
    assert made.cost()["slowed"] == {}
    made._died = "killed by signal 9"
    assert made.cost()["alive"] is False and made.cost()["end"] == "died: killed by signal 9"


def test_messages_that_waited_in_the_pipe_are_taken_in(tmp_path):
    made = sampler(tmp_path, [(SECOND, 0, 0.5)])
    for index, reason in ((1, "gone"), (0, "cut")):
        made._digest({"status": [index, "failed", reason]})
    assert [c["status"] for c in made._channels] == ["failed", "failed"]
    table = [c | {"reason": "new"} for c in made._channels]
    pending = base64.b64encode(ROW.pack(2 * SECOND, 1, 7.0) + b"half").decode()
    made._digest({"end": "stopped", "channels": table, "pending": pending})
    found = made.readings()
    assert list(found.t_ns) == [SECOND, 2 * SECOND] and list(found.value) == [0.5, 7.0]
    assert [c.reason for c in found.channels] == ["new", "new"]


@pytest.mark.parametrize(
    ("hz", "good"), [(1000.0, True), (1000.1, False), (1e-3, True), (0, False), (-1, False)]
)
def test_a_rate_lies_above_0_and_up_to_1000(tmp_path, hz, good):
    if good:
        assert Sampler([], hz, tmp_path).pid == 0
    else:
        with pytest.raises(UsageError, match="E-SAMPLE-1"):
            Sampler([], hz, tmp_path)


@pytest.mark.parametrize(
    ("program", "end"),
    [
        (
            "import sys; print('one\\ntwo', file=sys.stderr); sys.exit(2)",
            "died: it did not become ready: two",
        ),
        (
            READY + "sys.stdin.read(); print('x' * 999, file=sys.stderr); sys.exit(2)",
            "died: exited with 2: " + "x" * 300,
        ),
        (READY + "os.kill(os.getpid(), 11)", "died: died of SIGSEGV"),
        (READY + "time.sleep(60)", "died: it did not stop within 0.2 s"),
    ],
)
def test_a_dead_watcher_is_told_by_its_signal_or_code_and_its_last_line(program, end, tmp_path, monkeypatch):
    (tmp_path / "dying_watcher.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Sampler, "MODULE", "dying_watcher")
    monkeypatch.setattr("edgescope.telemetry.sampler._STOP_S", 0.2 if "sleep" in program else 20.0)
    with Sampler([], 10, tmp_path) as made:
        pass
    assert made.cost()["alive"] is False and made.cost()["end"] == end


def test_ticks_wander_by_a_number():
    assert not math.isnan(watcher._GOLDEN)


def test_an_edge_source_is_due_at_its_edges_and_seldom_else_but_not_at_the_end():
    reader = Reader(SourceSpec("test_watcher:Source", {"values": [1.0]}, every=3, edges=True), Board())
    assert reader.due(0) and reader.due(3) and not reader.due(4), "never marked: read at the end, too"
    reader.read()
    reader.at_edge(0.1)
    assert reader.awaited and reader.due(4)
    for _ in range(3):
        assert reader.awaited
        reader.read()  # the same value: it has not moved
    assert not reader.awaited and not reader.due(4)
    assert reader.due(3) and not reader.due(0)


def test_a_dear_source_has_two_more_opinions_before_it_is_slowed(time, tmp_path):
    time(until_ns=SECOND // 100)
    watched(tmp_path, spec(cpu_s=0.00105), hz=10)
    assert len(Source.made[0].reads) == 3 + 1


@pytest.mark.parametrize(("cpu_s", "every"), [(0.0004, 1), (0.00105, 11)])
def test_on_ticks_only_what_is_dear_by_itself_is_slowed(time, cpu_s, every):
    clock = time()
    reader = Reader(spec(), Board())
    Source.made[0].clock, Source.made[0].cpu_s = clock, cpu_s
    for _ in range(8):
        reader.paced(0.1)
    assert reader.every == every


def test_where_nothing_tells_anything_the_rate_stays(time, tmp_path):
    time(until_ns=SECOND)
    _, _, said, _ = watched(tmp_path, spec(values=[Unsupported("no")]), hz=10)
    assert said[0]["hz"] == 10


def test_a_sampler_that_was_never_started_takes_a_mark_and_says_so(tmp_path):
    made = Sampler([], 10.0, tmp_path)
    made.mark()
    assert made.cost()["end"] == "died: it was never started"


def test_the_null_sampler_says_that_nothing_was_watched():
    with NullSampler() as nothing:
        pass
    cost = {"hz": 0.0, "ticks": 0, "missed_ticks": 0, "cpu_s": 0.0, "alive": False, "end": "off (hz = 0)"}
    assert nothing.cost() == cost and len(nothing.readings().t_ns) == 0
