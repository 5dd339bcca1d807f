"""What looks at the machine: the memory of boards, the cost of watching, counters joined, idling by a fake clock."""

import re
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.bench import watch as watching
from edgescope.bench.watch import Footprint, Watch, available, footprints, joined, pss, total
from edgescope.devices.base import Failed, NullDevice, Throttle
from edgescope.records import Absent, Channel, Machine, Measured, Readings, Trust, Window
from fake_time import FakeClock

SECOND = 1_000_000_000
WINDOW = Window(0, 1, 10 * SECOND, 20 * SECOND)


class Device:
    """Present unless told otherwise."""

    def __init__(self, missing="", memory=None):
        self.missing, self.memory = missing, memory

    def present(self):
        return self.missing

    def process_memory(self, pids):
        return {pid: self.memory[pid] for pid in pids if pid in self.memory}


def looked(name, seconds, values, devices=None):
    watch = Watch(devices or {}, 0)
    t = np.round(np.array(seconds) * SECOND).astype(np.int64)
    channel = Channel(name, "bytes", "gpu", "gauge", "test")
    watch.readings = Readings((channel,), t, np.zeros(len(t), np.int16), np.array(values, dtype=float))
    return watch


def test_a_boards_memory_is_the_most_within_the_window_ends_included(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = looked("gpu0_memory_used_bytes", [9.9, 10, 15, 20, 20.1], [99, 5, 7, 6, 98])
    assert seen.board_memory("cuda", WINDOW, None) == {"gpu_board_memory_bytes": Measured(7.0, "bytes", n=3)}
    assert seen.board_memory("cpu", WINDOW, None) == {}
    outside = looked("gpu0_memory_used_bytes", [9.9, 20.1], [99, 98])
    (found,) = outside.board_memory("cuda", WINDOW, None).values()
    assert found == Absent("no reading of gpu0_memory_used_bytes fell into the window")


def test_a_jetsons_memory_is_by_how_much_the_shared_one_fell():
    jetson = {"jetson": Device()}
    seen = looked("mem_available_bytes", [9, 11, 12, 21], [1, 700, 600, 2], jetson)
    found = seen.board_memory("cuda", WINDOW, 1000)
    assert isinstance(found["gpu_board_memory_bytes"], Absent)
    assert found["unified_memory_bytes"] == Measured(400.0, "bytes", n=2)
    by_one = seen.board_memory("cuda", WINDOW, 601)["unified_memory_bytes"]
    assert by_one == Measured(1.0, "bytes", n=2)
    assert "gave back" in str(seen.board_memory("cuda", WINDOW, 600)["unified_memory_bytes"].reason)
    assert "was not read" in str(seen.board_memory("cuda", WINDOW, None)["unified_memory_bytes"].reason)
    blind = looked("mem_available_bytes", [9, 21], [1, 2], jetson)
    assert "was not read" in str(blind.board_memory("cuda", WINDOW, 1000)["unified_memory_bytes"].reason)
    absent = looked("mem_available_bytes", [11], [700], {"jetson": Device("no Jetson")})
    assert list(absent.board_memory("cuda", WINDOW, 1000)) == ["gpu_board_memory_bytes"]


def test_what_watching_cost_is_told_or_why_not():
    watch = Watch({}, 0)
    watch.cost = {"cpu_share": 0.004, "achieved_hz": 9.9, "ticks": 50, "end": "stopped"}
    share, hz = Measured(0.004, "1", n=50), Measured(9.9, "Hz", n=50)
    unknown = Absent("no two CPUs that this run may use answered each other")
    assert watch.metrics() == {"core_to_core_s": unknown, "sampler_cpu_share": share, "sampler_hz": hz}
    none = Absent("fewer than two readings: the sampler off (hz = 0)")
    asleep = Watch({}, 0)
    asleep.core_to_core = 2.5e-8
    way = Measured(2.5e-8, "s")
    assert asleep.metrics() == {"core_to_core_s": way, "sampler_cpu_share": none, "sampler_hz": none}


def test_counters_of_several_devices_are_joined_in_order():
    one = Throttle(("a",), ("b",), ("c",), ("d",))
    two = Throttle(("e",), (), ("f",), ("g", "h"))
    assert joined([one, two]) == Throttle(("a", "e"), ("b",), ("c", "f"), ("d", "g", "h"))
    assert joined([one]) == one and joined([]) is None


def test_idling_lasts_as_long_as_asked_on_both_sides():
    clock, watch = FakeClock(), Watch({}, 0)
    with watch.idling(2.5, clock):
        clock.t += 7 * SECOND
    assert [(i.when, i.start_ns, i.stop_ns) for i in watch.idle] == [
        ("before", 0, 2_500_000_000),
        ("after", 9_500_000_000, 12 * SECOND),
    ]
    for asked, seen in ((0, []), (0.5, [SECOND // 2] * 2)):
        watch = Watch({}, 0)
        with watch.idling(asked, clock):
            pass
        assert [i.stop_ns - i.start_ns for i in watch.idle] == seen
    assert clock.t == 13 * SECOND


def test_a_watch_of_nothing_still_probes_the_machine_and_certifies_nothing(monkeypatch):
    spins = iter([100, 130])
    monkeypatch.setattr(watching.clocks, "calibrate", lambda: 7)
    monkeypatch.setattr(watching.clocks, "spin", lambda loops: next(spins) if loops == 7 else 0)
    monkeypatch.setattr(watching.clocks, "slowdown", lambda before, after: after / before)
    answers = iter([0.010, 2.25e-7, 0.016, 2.07e-7])
    monkeypatch.setattr(watching.Prober, "seconds", lambda self, number: next(answers))
    watch = Watch({"null": NullDevice()}, 0)
    with watch.watching():
        pass
    assert watch.slowdown == 1.3 and watch.memory == pytest.approx(1.6) and watch.core_to_core == 2.07e-7
    found = watch.verdict(WINDOW, "two speed states: 1 ms for 50%, 2 ms for 50%; change at 1.0 s", apart=True)
    assert any(" 207 ns apart" in text for text in found.evidence)
    assert not any("apart" in text for text in watch.verdict(WINDOW).evidence)
    assert found.trust is Trust.DISTURBED and found.evidence[0].startswith("two speed states")
    assert any("walk through memory took 60.0% more time" in text for text in found.evidence)


@pytest.mark.parametrize(
    ("answers", "way"), [((None, 3e-8), 3e-8), ((3e-8, None), 3e-8), ((None, None), None)]
)
def test_what_one_end_of_a_run_says_of_the_distance_is_enough(monkeypatch, answers, way):
    said = iter([0.010, answers[0], 0.010, answers[1]])
    monkeypatch.setattr(watching.Prober, "seconds", lambda self, number: next(said))
    watch = Watch({"null": NullDevice()}, 0)
    with watch.watching():
        pass
    assert watch.core_to_core == way and watch.memory == 1.0


@pytest.mark.parametrize("walks", [(None, 0.01), (0.01, None), (None, None)])
def test_memory_that_one_end_does_not_tell_has_no_ratio(monkeypatch, walks):
    said = iter([walks[0], 3e-8, walks[1], 3e-8])
    monkeypatch.setattr(watching.Prober, "seconds", lambda self, number: next(said))
    watch = Watch({}, 0)
    with watch.watching():
        pass
    assert watch.memory is None


def test_probers_that_were_started_before_are_those_that_probe(monkeypatch):
    started = []
    monkeypatch.setattr(watching.Prober, "__init__", lambda self, *probes: started.append(probes))
    with ExitStack() as stack:
        watch = Watch({}, 0)
        watch.get_ready(stack)
        with watch.watching():
            pass
    assert started == [("memory", "core_to_core")]


def test_only_devices_that_are_there_are_watched(monkeypatch):
    class Counts(Device):
        def throttle_watch(self):
            asked.append(self)
            return nullcontext(SimpleNamespace(evidence=lambda: Throttle((), ("counter",), (), ())))

    asked = []
    devices = {"gone": Counts("no driver"), "here": Counts(), "without": Device(), "too": Counts()}
    monkeypatch.setattr(watching.Prober, "seconds", lambda self, number: None)
    watch = Watch(devices, 0)
    with watch.watching():
        pass
    assert asked == [devices["here"], devices["too"]] and watch.throttle.looked_at == ("counter", "counter")
    assert (watch.memory, watch.core_to_core) == (None, None)


def test_the_memory_that_could_be_had_is_read_from_the_machines_facts():
    assert available(Machine({}, {"cpu": {"memory_available_bytes": 5}})) == 5
    assert available(Machine({}, {"cpu": {}})) is None
    assert available(Machine({}, {"cpu": "?"})) is None and available(Machine({}, {})) is None


def test_a_process_on_the_gpu_holds_what_the_first_driver_that_knows_it_says(monkeypatch):
    mine = footprints([1], {}, "cpu")[1]
    assert isinstance(mine.gpu, Absent) and mine.gpu.reason.endswith(" on the CPU")
    assert isinstance(mine, Footprint)
    devices = {
        "gone": Device("no driver", {1: 11, 2: 22, 3: 33}),
        "first": Device("", {1: 100, 2: Failed("numbered otherwise")}),
        "second": Device("", {1: 900, 2: 200}),
        "mute": NullDevice(),
    }
    found = footprints([1, 2, 3], devices, "cuda")
    assert found[1].gpu == Measured(100.0, "bytes") and found[2].gpu == Measured(200.0, "bytes")
    assert found[3].gpu == Absent("no device here reports memory by process")
    only = footprints([2], {"first": devices["first"]}, "cuda")
    assert only[2].gpu == Absent("numbered otherwise")


def test_the_proportional_set_is_read_in_kilobytes():
    import os

    found = pss(os.getpid())
    assert 1e6 < found.value < 1e11 and found.unit == "bytes"
    assert found.value <= footprints([os.getpid()], {}, "cpu")[os.getpid()].peak_rss.value * 1.01
    assert "smaps_rollup" in str(pss(2**22 + 1).reason)


def test_a_sum_is_of_all_workers_or_of_none():
    ten = Measured(10.0, "bytes")
    assert total([ten, ten], "the GPU memory") == Measured(20.0, "bytes", n=2)
    lacking = total([ten, Absent("a"), Absent("b")], "the GPU memory")
    assert isinstance(lacking, Absent)
    assert re.fullmatch("the GPU memory of 2 of 3 .*: a", lacking.reason)
    assert total([], "x") == Absent("no worker")


@pytest.mark.parametrize(("hz", "kind"), [(0, "NullSampler"), (5, "Sampler")])
def test_a_rate_of_0_means_no_sampler(hz, kind, tmp_path):
    assert type(Watch({}, hz)._made(tmp_path)).__name__ == kind
