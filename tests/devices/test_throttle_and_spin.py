from __future__ import annotations

import itertools
import mmap

import pytest

from edgescope.devices import clocks, probes
from edgescope.devices.base import Throttle
from edgescope.devices.clocks import Looks, Trip, next_trip
from edgescope.devices.cpu.device import CpuDevice, CpuThrottleWatch, _Look, compare
from fake_board import board, write


def evidence(root, changes):
    with CpuThrottleWatch(root) as watch:
        write(root, changes)
    return watch.evidence()


def test_nothing_moved(tmp_path):
    got = evidence(board(tmp_path), {})
    assert got.events == ()
    assert len(got.looked_at) == 3


def test_a_throttle_count_that_rose(tmp_path):
    path = "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count"
    got = evidence(board(tmp_path), {path: "14"})
    assert got.events == ("cpu3 core_throttle_count rose by 12",)


def test_a_processor_cooling_device_counts_and_a_fan_does_not(tmp_path):
    got = evidence(board(tmp_path), {"sys/class/thermal/cooling_device1/cur_state": "2"})
    assert len(got.events) == 1
    assert "cpufreq-cpu0" in got.events[0]


def test_a_clock_below_the_policys_minimum(tmp_path):
    got = evidence(board(tmp_path), {"sys/devices/system/cpu/cpufreq/policy2/cpuinfo_cur_freq": "50000"})
    assert "policy2 runs at 50 MHz" in got.events[0]


def test_idle_down_clocking_is_not_throttling(tmp_path):
    got = evidence(board(tmp_path), {"sys/devices/system/cpu/cpufreq/policy2/cpuinfo_cur_freq": "115200"})
    assert got.events == ()


def test_where_nothing_is_readable_it_says_so(tmp_path):
    with CpuDevice(tmp_path).throttle_watch() as watch:
        pass
    assert watch.evidence().looked_at == ()
    assert len(watch.evidence().absent) == 3


def test_an_unfinished_watch_is_no_evidence(tmp_path):
    watch = CpuThrottleWatch(board(tmp_path))
    watch.__enter__()
    assert watch.evidence().looked_at == ()
    assert watch.evidence().absent


def ticking(*steps):
    moments = itertools.accumulate(itertools.chain.from_iterable((0.0, s) for s in steps))
    return lambda: next(moments)


def test_the_best_round_is_the_speed():
    probe = clocks.spin(1, rounds=3, clock=ticking(0.030, 0.025, 0.040))
    assert probe.best_s == pytest.approx(0.025)


def test_slowdown_is_after_over_before():
    before, after = clocks.Spin(10, (0.02, 0.03)), clocks.Spin(10, (0.05, 0.04))
    assert clocks.slowdown(before, after) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="different work"):
        clocks.slowdown(before, clocks.Spin(11, (0.02,)))


def test_calibration_scales_to_the_target():
    assert clocks.calibrate(0.02, clock=ticking(0.001, 0.0005, 0.001, 0.001, 0.001)) == 80_000


@pytest.mark.slow
def test_the_probe_is_steady_here():
    loops = clocks.calibrate(0.005)
    ratios = [clocks.slowdown(clocks.spin(loops), clocks.spin(loops)) for _ in range(8)]
    assert 0.25 < sorted(ratios)[4] < 4.0  # the other half of the tests runs beside it
    assert 0.4 < clocks.spin(2 * loops, rounds=25).best_s / clocks.spin(loops, rounds=25).best_s / 2 < 2.5


def look(counts=(), cooling=(), below=()):
    return _Look(dict(counts), dict(cooling), dict(below))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (look({"a": 2}), look({"a": 2}), []),
        (look({"a": 2}), look({"a": 3}), ["a rose by 1"]),
        (look({"a": 2}), look({"a": 1}), []),
        (look({"a": 2}), look(), []),
        (look(), look({"a": 2}), []),
        (look((), {"c": 2}), look((), {"c": 0}), ["state 2"]),
        (look(), look((), {"c": 1}), ["state 1"]),
        (look((), {"c": 1}), look((), {"c": 3}), ["state 3"]),
        (look((), {"c": 0}), look((), {"c": 0}), []),
        (look(), look((), (), {"p": (949e6, 1e9)}), ["949 MHz, below its own minimum of 1000 MHz"]),
        (look(), look((), (), {"p": (950e6, 1e9)}), []),
        (look(), look((), (), {"p": (0.0, 1e9)}), []),
        (look(), look((), (), {"p": (1.0, 1e9)}), ["0 MHz"]),
    ],
)
def test_two_looks_tell_what_held_the_clocks(before, after, says):
    found = compare(before, after)
    assert len(found.events) == len(says) and all(map(str.__contains__, found.events, says))
    assert len(found.looked_at) + len(found.absent) == 3
    assert [what[0] for what in found.looked_at] == ["1"] * sum(
        map(bool, (after.counts, after.cooling, after.below_floor))
    )


def test_a_probe_takes_ten_milliseconds_five_times():
    loops = clocks.calibrate(clock=ticking(*[0.001] * 5))
    assert loops == 20_000 and clocks.calibrate(clock=ticking(*[1e9] * 5)) == 1
    assert len(clocks.spin(1).rounds_s) == 5 and clocks.spin(1).loops == 1


def test_a_walk_touches_every_line_seven_times_over_pages_of_its_own(monkeypatch):
    touched = []

    class Buffer(bytearray):
        def __getitem__(self, part):
            touched.append(part)
            return super().__getitem__(part)

    probes.walk(Buffer(4096))
    assert touched == [slice(None, None, 64)] * 7
    monkeypatch.setattr(probes, "size", lambda: 3 * mmap.PAGESIZE)
    monkeypatch.setattr(probes, "walk", lambda buffer: buffer[:: mmap.PAGESIZE])
    probe = probes.walking()
    assert probe() == b"\1\1\1" == probe()


@pytest.mark.parametrize(
    ("trips", "found"),
    [
        ({0: ("active", 40_000), 1: ("passive", 90_000), 2: ("critical", 100_000)}, ("passive", 90.0)),
        ({0: ("hot", 95_000), 10: ("critical", 94_999)}, ("critical", 94.999)),
        ({0: ("passive", 0), 1: ("passive", -1000)}, None),
        ({0: ("passive", 1)}, ("passive", 0.001)),
        ({0: ("passive", "x"), 1: ("active", 5)}, None),
        ({}, None),
    ],
)
def test_the_lowest_trip_that_harms_counts(tmp_path, trips, found):
    for n, (kind, celsius) in trips.items():
        write(tmp_path, {f"trip_point_{n}_type": f"{kind}\n", f"trip_point_{n}_temp": f"{celsius}\n"})
    assert next_trip(tmp_path) == (Trip(*found) if found else None)


def test_a_watch_compares_its_two_looks_and_begins_anew():
    looks = iter([1, 2, 5, 9])
    watch = Looks(lambda: next(looks), lambda a, b: Throttle((f"{a} {b}",)), "missed")
    assert watch.evidence().absent == ("missed",)
    found = []
    for _ in range(2):
        with watch:
            assert watch.evidence().absent == ("missed",)
        found += watch.evidence().events
    assert found == ["1 2", "5 9"]
