"""The forecast against what queueing theory says, and its arrivals."""

import math

import numpy as np
import pytest

from edgescope.analysis.queueing import (
    Load,
    arrivals,
    ceiling,
    estimate,
    forecast,
    latencies,
)
from edgescope.analysis.slo import promises

SERVICE = np.full(100, 0.01)


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_mean_wait_of_a_poisson_queue_is_pollaczek_and_khinchins(utilisation):
    x = latencies(SERVICE, Load(utilisation * 100), 1, n=200_000)
    assert x.mean() - 0.01 == pytest.approx(0.01 * utilisation / 2 / (1 - utilisation), rel=0.06)


def test_clients_that_take_turns_never_wait():
    assert latencies(SERVICE, Load(15, "even"), 6).max() == pytest.approx(0.01)


def test_several_servers_are_one_where_there_is_one_and_never_slower():
    load = Load(15, "poisson")
    one = latencies(SERVICE, load, 5, n=2000)
    two = latencies(SERVICE, Load(15, "poisson", 2), 5, n=2000)
    assert (two <= one + 1e-9).all() and two.mean() < one.mean()


def test_cameras_keep_their_period_and_phase():
    times = arrivals(Load(10, "camera"), 3, 30, np.random.default_rng(0)).reshape(-1, 3)
    assert np.allclose(np.diff(times, axis=0), 0.1) and (np.diff(times.ravel()) > 0).all()


def test_no_more_fit_than_can_be_answered():
    assert ceiling(SERVICE, Load(15)) == 6
    assert math.isinf(forecast(SERVICE, Load(15), 7, 0.99).seconds)
    asked = promises(["p99<40ms"])
    assert 1 <= estimate(SERVICE, Load(15), asked, 30) <= estimate(SERVICE, Load(15, "even"), asked, 30) <= 6
    assert estimate(np.full(10, 1.0), Load(15), asked, 30) == 1


def test_a_run_must_be_longer_where_queries_wait_for_each_other():
    light, heavy = (forecast(SERVICE, Load(1), n, 0.99, 5) for n in (20, 70))
    assert light.seconds * 20 < heavy.seconds * 70 and heavy.over > 1
