"""`--soak`: one window of that length, time for it, and both numbers on the card."""

from __future__ import annotations

import argparse

import pytest

from edgescope import bench
from edgescope.cli import bench as verb
from edgescope.commandline import context, trial_flags
from edgescope.devices.base import NullDevice
from edgescope.records import Absent, Measured, Status, Trial
from fake_time import FakeClock
from making import result, show_card


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    return parser.parse_args(["null", *words])


def test_a_soak_is_a_window_of_its_length_and_its_time_comes_on_top():
    args = flags("--soak", "20min")
    keys = trial_flags.keys(args)
    assert (keys["min_s"], keys["max_s"]) == (1200.0, 1200.0)
    assert context.limits(args).timeout_s == 900.0 + 1200.0
    assert context.limits(flags()).timeout_s == 900.0


@pytest.mark.slow
def test_a_whole_soak_in_fake_time():
    trial = Trial(model="null", backend="null", min_s=60, max_s=60, warmup=0.5)
    done = bench.run(trial, clock=FakeClock(look_ns=1_000_000), hz=0, devices={"null": NullDevice()})
    rate = done.metrics["throughput_sps"].value
    assert done.metrics["burst_throughput_sps"].value == pytest.approx(rate, rel=0.01)
    assert done.metrics["sustained_throughput_sps"].value == pytest.approx(rate, rel=0.01)
    assert done.metrics["settled_s"].value == 0.0
    assert isinstance(done.metrics["time_to_throttle_s"], Absent)
    assert any(text.code == "W-SUS-1" for text in done.warnings)


@pytest.mark.process
def test_a_short_run_has_neither_number():
    trial = Trial(model="null", backend="null", min_s=1, max_s=1, warmup=0.5)
    done = bench.run(trial, clock=FakeClock(look_ns=1_000_000), hz=0, devices={"null": NullDevice()})
    assert "need 60 s" in str(done.metrics["sustained_throughput_sps"].reason)


LONG = {
    "burst_throughput_sps": Measured(31.0, "samples/s"),
    "burst_latency_p50_s": Measured(0.032, "s"),
    "sustained_throughput_sps": Measured(24.6, "samples/s"),
    "sustained_latency_p50_s": Measured(0.041, "s"),
    "settled_s": Measured(225.0, "s"),
    "time_to_throttle_s": Measured(212.0, "s"),
}


def test_the_card_shows_both_numbers_and_the_moment(capsys):
    show_card(result(metrics=LONG))
    text = capsys.readouterr().out
    assert "burst          31 samples/s   p50 32 ms" in text
    assert "sustained      24.6 samples/s   p50 41 ms   settled after 225 s" in text
    assert "throttling     from second 212 on" in text


def test_the_card_says_why_there_is_no_sustained_number(capsys):
    why = Absent("not settled within 60 s: temperature_c still moves")
    show_card(result(metrics=LONG | {"sustained_throughput_sps": why, "settled_s": why}))
    assert "sustained      not settled within 60 s" in capsys.readouterr().out


def test_the_card_of_a_short_run_is_as_short_as_before(capsys):
    show_card(result())
    assert "sustained" not in capsys.readouterr().out


@pytest.mark.parametrize(("settled", "status"), [(True, Status.OK), (False, Status.UNSTABLE)])
def test_a_run_that_slows_down_and_settles_is_no_unstable_one(settled, status):
    from edgescope.bench.outcome import settled as judged

    drift = {"drift": Measured(0.6, "1", 0.5, 0.7, 100)}
    metrics = drift | (LONG if settled else {"settled_s": Absent("not settled")})
    trial = Trial(model="null", backend="null")
    assert judged(result(trial, metrics=metrics)).status is status
