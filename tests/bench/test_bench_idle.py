"""Idling before and after a run, inside the sampler's life, in fake time and in real."""

from __future__ import annotations

import pytest

from edgescope import bench
from edgescope.analysis.run.energy import inner
from edgescope.bench.watch import Watch
from edgescope.cli.main import parser
from edgescope.commandline.trial_flags import keys
from edgescope.devices.base import NullDevice
from edgescope.errors import UsageError
from edgescope.records import Absent, Status, Trial, codec
from edgescope.telemetry.sampler import NullSampler
from edgescope.wings.optimize.racing import short
from fake_time import FakeClock


def null(**given) -> Trial:
    base = {"model": "null", "backend": "null", "warmup": 0.05, "min_s": 0.2, "max_s": 0.2}
    return Trial(**(base | given))


@pytest.mark.slow
def test_the_process_idles_before_the_warm_up_and_after_the_window():
    trial = null(idle_s=7, min_s=1, max_s=1)
    result = bench.run(trial, clock=FakeClock(look_ns=1_000), hz=0, devices={"null": NullDevice()})
    before, after = result.idle
    assert (before.when, after.when) == ("before", "after")
    for stretch in result.idle:
        assert stretch.stop_ns - stretch.start_ns == 7_000_000_000
    assert before.stop_ns <= result.queries.columns["issued_ns"].min()
    assert after.start_ns >= result.window.stop_ns >= result.queries.columns["done_ns"].max()
    assert isinstance(result.metrics["idle_power_w"], Absent)
    assert "no power or energy channel was watched" in str(result.metrics["idle_power_w"].reason)
    assert codec.from_json(codec.to_json(result)).idle == result.idle


@pytest.mark.slow
def test_every_edge_that_energy_is_taken_between_is_marked(monkeypatch):
    """The window's two, and those of what counts of each idle stretch."""
    clock, marks = FakeClock(look_ns=1_000), []

    class Marked(NullSampler):
        def mark(self):
            marks.append(clock.now())

    monkeypatch.setattr(Watch, "_made", lambda self, folder: Marked())
    result = bench.run(null(idle_s=7, min_s=1, max_s=1), clock=clock, hz=10, devices={"null": NullDevice()})
    before, after = (inner(stretch) for stretch in result.idle)
    window = result.window.start_ns, result.window.stop_ns
    wanted = [*before, *window, *after]
    assert len(marks) == 6
    assert all(0 <= mark - edge < 1e7 for mark, edge in zip(marks, wanted, strict=True))


@pytest.mark.slow
def test_without_asking_nothing_idles():
    result = bench.run(null(), clock=FakeClock(look_ns=1_000), hz=0, devices={"null": NullDevice()})
    assert result.status in (Status.OK, Status.UNSTABLE)
    assert result.idle == () and "idle_s is 0" in str(result.metrics["energy_dynamic_j"].reason)


@pytest.mark.slow
def test_the_sampler_watches_the_idling_too():
    result = bench.run(null(idle_s=0.5))
    t_ns = result.readings.t_ns
    for stretch in result.idle:
        assert ((t_ns >= stretch.start_ns) & (t_ns <= stretch.stop_ns)).sum() >= 3


def test_a_load_that_fails_is_not_waited_for():
    clock, watch = FakeClock(look_ns=1_000), Watch({}, 0)
    with pytest.raises(ZeroDivisionError), watch.idling(10, clock):
        1 / 0  # noqa: B018
    assert [i.when for i in watch.idle] == ["before"]


def test_the_flag_is_a_key_of_the_trial_and_screening_does_not_idle():
    args = parser().parse_args(["bench", "null", "--backend", "null", "--idle", "10s"])
    assert keys(args)["idle_s"] == 10.0
    assert short(null(idle_s=10, min_s=5, max_s=5), 0).idle_s == 0.0
    assert null(idle_s=10).id != null().id
    with pytest.raises(UsageError, match=r"E-TRIAL-1: idle_s .* -1"):
        null(idle_s=-1)
