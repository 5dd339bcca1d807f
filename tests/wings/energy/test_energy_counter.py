"""The script that holds integration against a hardware counter, on a made-up counter with a known truth."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

from edgescope.devices.base import Unsupported
from edgescope.records import Channel, Readings

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import energy as script

S = 1_000_000_000


class MadeUp:
    """A counter that moves every 100 ms behind a known power; reading it takes 3 ms of its own time."""

    def __init__(self, stuck=False):
        self.t, self.stuck = 0, stuck
        rng = np.random.default_rng(0)
        self.grid = np.arange(0, 400, 0.01)
        watts = np.repeat(rng.uniform(50, 300, 400), 100)[: len(self.grid)]
        self.watts = np.convolve(watts, np.ones(50) / 50, mode="same")
        self.used = np.concatenate(([0.0], np.cumsum(self.watts[:-1]) * 0.01))

    def now(self):
        return self.t

    def sleep(self, seconds):
        self.t += round(seconds * S)

    def read(self):
        self.t += 3_000_000
        shown = 0.0 if self.stuck else np.floor(self.t / S / 0.1) * 0.1
        return float(np.interp(shown, self.grid, self.used))

    def readings(self, hz=10.0):
        rng = np.random.default_rng(1)
        t = np.arange(0, self.t / S + 3, 1 / hz)
        t += rng.uniform(0, 0.02, len(t))
        power = Channel("gpu0_power_w", "W", "gpu_board", "gauge", "made up")
        value = np.interp(t, self.grid, self.watts)
        return Readings((power,), (t * S).astype(np.int64), np.zeros(len(t), np.int16), value)


def test_windows_open_and_close_on_edges_and_integration_agrees():
    counter = MadeUp()
    found = script.windows(counter.read, 5, 10.0, now=counter.now, sleep=counter.sleep, pause=0.0)
    for start, stop, joules in found:
        assert stop - start >= 10 * S
        assert min(start / S % 0.1, 0.1 - start / S % 0.1) < 0.004, "on an edge"
        assert joules == pytest.approx(
            np.interp(stop / S, counter.grid, counter.used)
            - np.interp(start / S, counter.grid, counter.used),
            rel=2e-3,
        )
    got = script.compare(counter.readings(), found)["gpu0_power_w"]
    assert got["windows"] == 5 and got["largest_error"] < 0.01
    assert got["within_bounds"] == 5


def test_a_sensor_that_reads_two_per_cent_low_is_found():
    counter = MadeUp()
    found = script.windows(counter.read, 3, 10.0, now=counter.now, sleep=counter.sleep, pause=0.0)
    r = counter.readings()
    low = Readings(r.channels, r.t_ns, r.channel, 0.98 * r.value)
    assert script.compare(low, found)["gpu0_power_w"]["mean_error"] == pytest.approx(-0.02, abs=0.005)


def test_where_there_are_two_kinds_the_one_that_a_trial_chooses_is_judged():
    counter = MadeUp()
    found = script.windows(counter.read, 3, 10.0, now=counter.now, sleep=counter.sleep, pause=0.0)
    r = counter.readings()
    average = Channel("gpu0_power_average_w", "W", "gpu_board", "average", "made up")
    both = Readings(
        (*r.channels, average),
        np.concatenate((r.t_ns, r.t_ns)),
        np.concatenate((r.channel, r.channel + 1)).astype(np.int16),
        np.concatenate((r.value, 0.5 * r.value)),  # far off, its bounds with it
    )
    rows = script.compare(both, found)
    assert sorted(rows) == [script.CHOSEN, "gpu0_power_average_w", "gpu0_power_w"]
    assert sum(rows[script.CHOSEN]["methods"].values()) == 3
    good, bad = rows["gpu0_power_w"], rows["gpu0_power_average_w"]
    assert not script.reached({"gpu0_power_w": good, script.CHOSEN: bad}, 3)
    assert script.reached({"gpu0_power_w": good, "gpu0_power_average_w": bad}, 3)
    assert not script.reached({"gpu0_power_w": good}, 4) and not script.reached({}, 3)


def test_a_counter_that_does_not_move_ends_it():
    counter = MadeUp(stuck=True)
    with pytest.raises(RuntimeError, match="does not move"):
        script.edge(counter.read, counter.now, 0.0)


def test_the_counter_takes_no_part_in_its_own_check():
    r = MadeUp().readings()
    both = Readings(
        (Channel("gpu0_energy_j", "J", "gpu_board", "counter", "made up"), *r.channels),
        np.concatenate((r.t_ns, r.t_ns)),
        np.concatenate((r.channel, r.channel + 1)).astype(np.int16),
        np.concatenate((r.value, r.value)),
    )
    left = script.without(both, ["gpu0_energy_j"])
    assert [c.name for c in left.channels] == ["gpu0_power_w"]
    assert left.series("gpu0_power_w")[1] == pytest.approx(r.value)


def test_the_differences_of_a_counter_are_power():
    t = np.arange(0, 20, 0.1)
    joules = np.concatenate(([0.0], np.cumsum(np.full(len(t) - 1, 0.5))))
    r = Readings(
        (Channel("cpu_package_energy_j", "J", "cpu_package", "counter", "x"),),
        (t * S).astype(np.int64),
        np.zeros(len(t), np.int16),
        joules,
    )
    power = script.differences(r, "cpu_package_energy_j")
    assert power.value == pytest.approx(5.0, rel=1e-6)
    assert power.channels[0].kind == "average"


def test_without_a_counter_nothing_is_published(monkeypatch, capsys):
    monkeypatch.setattr(script, "counters", lambda: iter(()))
    monkeypatch.setattr(script, "publish", lambda *a, **k: pytest.fail("nothing was measured"))
    monkeypatch.setattr(sys, "argv", ["energy_counter.py"])
    assert script.counter() == 1
    assert "nothing was measured" in " ".join(capsys.readouterr().err.split())


def test_a_source_that_answers_no_number_is_no_counter():
    class Source:
        def read(self):
            return [("gpu0_energy_j", 0, Unsupported("NVML: NotSupported"))]

    assert script.reader(Source(), "gpu0_energy_j")() is None


@pytest.mark.process
def test_the_whole_measurement_runs_with_the_shipped_sampler(monkeypatch, tmp_path):
    """Two short windows against the made-up counter in real time, without a load."""
    import contextlib
    import time

    start = time.monotonic()

    class Source:
        def read(self):
            return [("gpu0_energy_j", 0, float(np.floor((time.monotonic() - start) / 0.05) * 0.05 * 20))]

    monkeypatch.setattr(script, "load", lambda where, seed, beside: contextlib.nullcontext("none"))
    monkeypatch.setattr(script, "MARGIN_S", 0.2)
    args = argparse.Namespace(windows=2, seconds=0.3, hz=20.0, seed=0, beside="")
    got = script.measure((Source(), "gpu0_energy_j"), [], args)
    assert got["joules"] == pytest.approx([7.0, 7.0], abs=2.1)
    assert got["power"] == {}
