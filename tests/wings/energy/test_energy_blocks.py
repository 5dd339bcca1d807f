"""The interval of energy per sample: over blocks of one run, over processes, and how often it holds the truth."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.run import energy_window
from edgescope.records import Measured

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import energy as simulation


def test_blocks_of_one_run_give_an_interval_and_too_few_give_none():
    rng = np.random.default_rng(0)
    joules, samples = rng.normal(10, 1, 40), np.full(40, 5.0)
    got = energy_window.ratio(joules, samples)
    assert got.value == pytest.approx(joules.sum() / 200)
    assert got.lo < got.value < got.hi and got.n >= 10
    assert got.hi - got.lo == pytest.approx(2 * 2.02 * 1 / 5 / 40**0.5, rel=0.5)
    assert energy_window.ratio(joules[:9], samples[:9]) is None
    assert energy_window.ratio(joules, np.zeros(40)) is None


def test_blocks_that_differ_in_samples_alone_are_no_noise():
    samples = np.random.default_rng(0).uniform(1, 9, 30)
    got = energy_window.ratio(2.0 * samples, samples)
    assert got.value == pytest.approx(2.0) and got.hi - got.lo == pytest.approx(0, abs=1e-9)


def test_neighbours_that_resemble_each_other_widen_the_interval():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=64)
    slow = np.repeat(noise[:32], 2)
    apart, alike = (energy_window.ratio(10 + x, np.ones(64)) for x in (noise, slow))
    assert alike.n < apart.n
    assert alike.hi - alike.lo > 1.3 * (apart.hi - apart.lo)


def test_blocks_that_still_resemble_each_other_when_none_can_be_joined_give_no_interval():
    noise = np.random.default_rng(1).normal(size=64)
    assert energy_window.ratio(10 + np.repeat(noise[:8], 8), np.ones(64)) is None
    assert energy_window.ratio(10 + np.linspace(0, 1, 12), np.ones(12)) is None
    found = simulation.blocks(np.random.default_rng(5), 20, 3.0, 60)
    assert found["missed"] <= 0.08 and 0.2 <= found["given"] <= 0.8


def test_processes_that_lag_alike_reach_to_the_meters_bounds():
    """Three seconds after 0.2 s of warm-up behind a sensor that is late: all five are too low alike."""
    found = simulation.replicates(np.random.default_rng(6), 3, 0.2, 30, warmup_s=0.2)
    assert found["covered"] >= 0.9


def test_a_run_of_ten_blocks_has_an_interval_and_a_short_one_the_meters_bounds():
    rng = np.random.default_rng(0)
    long, short = simulation.run(rng, 30, 0.2), simulation.run(rng, 10, 0.2)
    assert 10 <= long.n <= 64
    assert (long.hi - long.lo) / long.value < 0.1
    assert short.n > 15, "the sensor's updates, not blocks"
    assert short.lo < short.value < short.hi


@pytest.mark.slow
def test_nominal_95_per_cent_of_a_slow_sensor_holds_the_truth():
    """The published simulation in small: 430 ms averages read at 10 Hz, correlated power."""
    rng = np.random.default_rng(3)
    found = simulation.blocks(rng, 30, 0.2, 150)
    assert found["covered"] >= 0.90 and found["given"] >= 0.8
    assert found["median_half_width"] < 0.05, "wide enough to hold anything proves nothing"
    assert isinstance(simulation.run(rng, 30, 0.2), Measured)
    processes = simulation.replicates(rng, 20, 0.2, 40)
    assert processes["covered"] >= 0.85


def test_the_simulated_sensor_repeats_itself_and_lags():
    rng = np.random.default_rng(4)
    watts = np.where(np.arange(3000) * simulation.STEP_S < 15, 5.0, 9.0)
    t, shown = simulation.sensor(rng, watts)
    assert shown[t < 15].max() <= 5.0 + 1e-9 and t[shown > 5.0 + 1e-9].min() > 15.0
