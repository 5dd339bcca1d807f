"""The simulated pipeline against what is known of queues: services, Lindley, Little, bounds, policies, batches."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from video import DROPPED, StageModel, frame_ages

from edgescope.wings.capacity.question import Load, arrivals, latencies
from edgescope.wings.video.flow import POLICIES

MS = 1_000_000
RNG = np.random.default_rng(0)
UNEVEN = RNG.gamma(4.0, 0.002, 501)


def every(period_ms, n=200):
    return (np.arange(n) * period_ms * MS).astype(np.int64)


def stage(ms, **keys):
    return StageModel(np.atleast_1d(np.asarray(ms, dtype=float)) / 1e3, **keys)


def kept(ages):
    return ages[ages != DROPPED]


@pytest.mark.parametrize("load", [Load(15), Load(15, "camera"), Load(15, servers=2)])
def test_one_stage_is_the_queue_that_capacity_simulates(load):
    clients, n = 6, 5000
    rng = np.random.default_rng((0, clients))
    due = arrivals(load, clients, n, rng)
    service = np.roll(UNEVEN, -int(rng.integers(len(UNEVEN))))
    found = frame_ages(np.round(due * 1e9).astype(np.int64), [StageModel(service, servers=load.servers)])
    assert found * 1e-9 == pytest.approx(latencies(UNEVEN, load, clients, n=n), abs=2e-6)


@pytest.mark.slow
def test_an_m_d_1_stage_waits_as_pollaczek_and_khinchine_say():
    rho, service_ms = 0.7, 7.0
    due = np.cumsum(RNG.exponential(service_ms * MS / rho, 60_000)).astype(np.int64)
    wait = frame_ages(due, [stage(service_ms)]).mean() / MS - service_ms
    assert wait == pytest.approx(rho * service_ms / (2 * (1 - rho)), rel=0.05)


services = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=4)


@settings(max_examples=50, deadline=None)
@given(st.lists(services, min_size=1, max_size=4))
def test_without_load_a_frame_ages_by_its_services_alone(several):
    """Frames a second apart meet nobody, whatever the queues are."""
    models = [stage(ms, queue=1, policy=POLICIES[i % 3]) for i, ms in enumerate(several)]
    found = frame_ages(every(1000, 12), models)
    expected = [sum(ms[n % len(ms)] for ms in several) for n in range(12)]
    assert found / MS == pytest.approx(expected, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            stage,
            services,
            servers=st.integers(1, 3),
            batch=st.integers(1, 4),
            gather_s=st.sampled_from([0.0, 0.01]),
            queue=st.none() | st.integers(1, 5),
            policy=st.sampled_from(POLICIES),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 30),
)
@pytest.mark.slow
def test_every_frame_comes_out_or_is_dropped_and_none_before_its_services(models, period):
    found = frame_ages(every(period, 100), models)
    assert len(found) == 100
    least = sum(min(m.service_s) for m in models)
    assert (kept(found) >= least * 1e9 - 4).all()
    if all(m.policy == "block" or m.queue is None for m in models):
        assert not (found == DROPPED).any()


@pytest.mark.slow
def test_littles_law_holds_within_the_pipeline():
    """Frames in the machine, averaged over time, are the rate times the mean age."""
    due = np.cumsum(RNG.exponential(12 * MS, 20_000)).astype(np.int64)
    found = frame_ages(due, [stage([5, 9, 7]), stage([15, 20], servers=2), stage(4, queue=3)])
    ends = due + found
    at = RNG.uniform(due[100], due[-100], 20_000)
    inside = np.searchsorted(due, at) - np.searchsorted(np.sort(ends), at)
    rate = len(due) / (due[-1] - due[0])
    assert inside.mean() == pytest.approx(rate * found.mean(), rel=0.03)


def test_the_slowest_stage_sets_the_pace_and_blocks_those_before_it():
    """A blocked server keeps its frame, so a frame that passes a queue of one waits before the first stage."""
    found = frame_ages(every(10), [stage(1, queue=1), stage(20, queue=1)])
    assert np.diff(every(10) + found)[5:] == pytest.approx(20 * MS)
    assert found[-1] > found[100] > found[10]  # arrivals > service: the age grows


def test_dropping_the_oldest_keeps_results_fresh_and_dropping_the_newest_does_not():
    oldest, newest = (
        frame_ages(every(10, 1000), [stage(25, queue=4, policy=p)]) for p in ("drop_oldest", "drop_newest")
    )
    for found in (oldest, newest):
        assert np.mean(found == DROPPED) == pytest.approx(1 - 10 / 25, abs=0.02)
    while_they_come = slice(10, 950)  # the last frames are overtaken by none
    assert kept(oldest[while_they_come]).max() < 75 * MS < np.median(kept(newest))
    shorter = frame_ages(every(10, 1000), [stage(25, queue=1, policy="drop_oldest")])
    assert kept(shorter[while_they_come]).max() <= 35 * MS


def test_a_batch_is_gathered_until_it_is_full_or_its_first_frame_has_waited():
    full = frame_ages(every(10, 8), [stage(5, batch=4, gather_s=1.0)])
    assert full[:4] / MS == pytest.approx([35, 25, 15, 5])
    timed = frame_ages(every(10, 8), [stage(5, batch=4, gather_s=0.015)])
    assert timed[:4] / MS == pytest.approx([20, 10, 20, 10])
    alone = frame_ages(every(10, 8), [stage(5, batch=4)])
    assert alone / MS == pytest.approx(5)
    lagging = frame_ages(every(10, 400), [stage(30, batch=4)])  # 4 frames in 30 ms: it keeps up by batches
    assert lagging.max() < 80 * MS


def test_a_stage_that_cannot_be_is_refused():
    for wrong in ({"queue": 0}, {"policy": "drop"}, {"servers": 0}, {"batch": 0}, {"gather_s": -1.0}):
        with pytest.raises(ValueError, match=r"."):
            stage(1, **wrong)
    with pytest.raises(ValueError, match="service"):
        StageModel(np.array([]))


def test_the_time_grows_with_the_frames_of_eight_cameras_not_with_their_square():
    models = [
        stage([4, 5], servers=2, queue=8),
        stage(2, queue=8),
        stage([12, 14], batch=4, gather_s=0.005),
        stage(1),
    ]

    def spent(frames):
        due = arrivals(Load(15, "camera"), 8, frames, np.random.default_rng(1))
        due_ns, each = np.round(due * 1e9).astype(np.int64), []
        for _ in range(3):
            begun = time.thread_time()
            found = frame_ages(due_ns, models)
            each.append(time.thread_time() - begun)
            assert not (found == DROPPED).any()
        return min(each)

    assert spent(4000) < 9 * spent(1000), "four times as long, or sixteen"
