"""Training put together anew from its parts, and the plan of taking turns."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.training import interleave
from edgescope.wings.training import prediction as model
from edgescope.wings.training.interleave import Side
from loading_facts import WAITS

FACTS = replace(WAITS, device_cpu=0.001, cores=4)


def test_without_workers_loading_and_computing_add_up():
    assert FACTS.seconds() == pytest.approx(0.06) and FACTS.load == pytest.approx(0.04)


def test_workers_hide_loading_until_the_device_is_the_slowest():
    gains = [model.gain(FACTS, model.with_workers(FACTS, n)) for n in (1, 2, 4)]
    assert gains[0] == pytest.approx(0.06 / 0.04) and gains[1] == pytest.approx(0.06 / 0.0204)
    assert gains[2] == gains[1]  # more workers than needed


def test_a_disk_serves_one_read_at_a_time():
    cold = replace(FACTS, from_disk=1.0)
    assert model.with_workers(cold, 4).seconds() == pytest.approx(0.03 + 0.01 / 4)
    assert model.with_workers(model.without(cold, "read"), 4).seconds() == pytest.approx(0.0204)


def test_few_cores_bound_what_workers_can_do():
    busy = replace(FACTS, loader_cpu=0.04, device_cpu=0.02, cores=1)
    assert model.with_workers(busy, 4).seconds() == pytest.approx(0.06)


def test_workers_that_start_in_every_epoch_cost_its_steps():
    starting = replace(FACTS, workers=2, step=0.0304)
    assert starting.seconds() == pytest.approx(0.0204 + 0.01)
    assert model.gain(starting, replace(starting, persistent=True)) == pytest.approx(0.0304 / 0.0204)


def test_bursts_go_only_where_the_loader_is_far_enough_ahead():
    bursts = replace(FACTS, workers=4, persistent=True, step=0.03)
    assert model.gain(bursts, replace(bursts, notes={"smooth": 1.0})) == pytest.approx(0.03 / 0.0204)
    assert model.gain(bursts, replace(bursts, device=0.01)) < 0.03 / 0.019


@given(st.integers(0, 8), st.floats(0.001, 0.1), st.floats(0.0, 1.0))
def test_no_change_is_a_gain_of_one_and_a_faster_part_never_loses(workers, device, left):
    facts = replace(FACTS, workers=workers, device=device, persistent=True)
    facts = replace(facts, step=facts.seconds() * 1.05)
    assert model.gain(facts, facts) == pytest.approx(1.0)
    assert model.gain(facts, model.without(facts, "read", left)) >= 1 - 1e-9


def test_a_batch_with_the_same_step_gains_what_it_holds():
    after = model.on_device(replace(FACTS, work={}), 0.02, 0.02, 32)
    assert after.samples / after.seconds() == pytest.approx(4 * 8 / 0.02)


def test_the_plan_trains_fastest_within_both_budgets():
    served = [Side(1, 0.005, 10.0), Side(8, 0.02, 12.0)]
    trained = [Side(16, 0.03, 20.0), Side(64, 0.08, 24.0)]
    free = interleave.plan(served, trained, 40, latency_s=1.0)
    assert free is not None and (free.served.batch, free.trained.batch) == (8, 64)
    tight = interleave.plan(served, trained, 40, latency_s=0.05)
    assert tight is not None and (tight.served.batch, tight.trained.batch) == (1, 16)
    assert tight.trained_sps == pytest.approx(0.8 * 16 / 0.03) and tight.watts == pytest.approx(18.0)
    assert interleave.plan(served, trained, 40, latency_s=0.02) is None
    assert interleave.plan(served, trained, 40, latency_s=1.0, watts=11.0) is None
    assert interleave.plan([Side(1, 0.05)], trained, 40, latency_s=1.0) is None  # serving alone is too much


def test_a_long_tail_costs_latency_and_no_training():
    found = interleave.expected(Side(1, 0.005, tail=0.2), Side(16, 0.03), 40)
    assert found.latency_s == pytest.approx(0.23) and found.trained_sps == pytest.approx(0.8 * 16 / 0.03)


def test_power_that_was_not_measured_keeps_no_budget():
    pair = ([Side(1, 0.005)], [Side(16, 0.03)])
    assert interleave.plan(*pair, 10, latency_s=1.0) is not None
    assert interleave.plan(*pair, 10, latency_s=1.0, watts=50) is None
