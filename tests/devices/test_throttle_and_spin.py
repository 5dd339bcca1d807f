from __future__ import annotations

import itertools

import pytest
from fake_board import board, write

from edgescope.devices import spin
from edgescope.devices.cpu.device import CpuDevice, CpuThrottleWatch


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
    probe = spin.spin(1, rounds=3, clock=ticking(0.030, 0.025, 0.040))
    assert probe.best_s == pytest.approx(0.025)


def test_slowdown_is_after_over_before():
    before, after = spin.Spin(10, (0.02, 0.03)), spin.Spin(10, (0.05, 0.04))
    assert spin.slowdown(before, after) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="different work"):
        spin.slowdown(before, spin.Spin(11, (0.02,)))


def test_calibration_scales_to_the_target():
    assert spin.calibrate(0.02, clock=ticking(0.001, 0.0005, 0.001, 0.001, 0.001)) == 80_000


def test_the_probe_is_steady_here():
    loops = spin.calibrate(0.005)
    ratios = [spin.slowdown(spin.spin(loops), spin.spin(loops)) for _ in range(8)]
    assert 0.25 < sorted(ratios)[4] < 4.0  # the other half of the tests runs beside it
    assert 0.4 < spin.spin(2 * loops, rounds=25).best_s / spin.spin(loops, rounds=25).best_s / 2 < 2.5
