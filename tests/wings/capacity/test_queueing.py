"""The forecast against what queueing theory says, and its arrivals."""

import math

import numpy as np
import pytest

from edgescope.stats import needed, quantile_effective_n, upper_rank
from edgescope.wings.capacity.question import (
    Load,
    arrivals,
    ceiling,
    client_constraints,
    estimate,
    forecast,
    latencies,
    tail,
)

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
    asked = [(0.99, 0.040)]
    assert 1 <= estimate(SERVICE, Load(15), asked, 30) <= estimate(SERVICE, Load(15, "even"), asked, 30) <= 6
    assert estimate(np.full(10, 1.0), Load(15), asked, 30) == 1


def test_a_run_must_be_longer_where_queries_wait_for_each_other():
    light, heavy = (forecast(SERVICE, Load(1), n, 0.99, 5) for n in (20, 70))
    assert light.seconds * 20 < heavy.seconds * 70 and heavy.over > 1


def one_by_one(due, service, servers):
    """The same queue, told event by event: a query begins when it is due and the earliest of the servers is free."""
    free, out = [0.0] * servers, []
    for t, s in zip(due, service, strict=True):
        first = min(range(servers), key=lambda k: free[k])
        free[first] = max(free[first], t) + s
        out.append(free[first] - t)
    return np.array(out)


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["poisson", "even", "camera"])
def test_each_latency_is_that_of_a_queue_told_event_by_event(pattern, servers):
    load, clients, seed = Load(18, pattern, servers), 5 * servers, 4
    due = arrivals(load, clients, 500, np.random.default_rng((seed, clients)))
    got = latencies(SERVICE, load, clients, seed=seed, n=500)
    assert got == pytest.approx(one_by_one(due, np.full(500, 0.01), servers), abs=1e-9)


def test_where_nothing_waits_the_latencies_are_the_service_times_in_their_order():
    service = np.linspace(0.001, 0.002, 7)
    x = latencies(service, Load(0.01, "even"), 1, n=21)
    assert x[:7] == pytest.approx(x[7:14]) and x[:7] == pytest.approx(x[14:])
    begin = int(np.argmin(x[:7]))
    assert np.roll(x[:7], -begin) == pytest.approx(service)
    begins = {int(np.argmin(latencies(service, Load(0.01), 1, seed=s, n=7))) for s in range(20)}
    assert len(begins) > 3  # a run may begin anywhere in the recording


def test_queries_in_the_system_are_rate_times_latency():
    """Little's law: the time integral of how many are there is the sum of what each was there for."""
    due = arrivals(Load(16), 5, 4000, np.random.default_rng((0, 5)))
    x = latencies(SERVICE, Load(16), 5, n=4000)
    moments = np.sort(np.concatenate([due, due + x]))
    middles = (moments[1:] + moments[:-1]) / 2
    there = np.searchsorted(due, middles, side="right") - np.searchsorted(np.sort(due + x), middles)
    assert float(there @ np.diff(moments)) == pytest.approx(x.sum(), rel=1e-9)
    assert 4000 / due[-1] == pytest.approx(80, rel=0.05)


@pytest.mark.parametrize(("servers", "wait_s"), [(1, 0.01), (2, 1 / 300)])
def test_the_mean_wait_of_exponential_services_is_erlangs(servers, wait_s):
    """Half-busy servers of mean 10 ms: Erlang's C is 1/2 of one server, 1/3 of two; the wait is C / (mu c - lambda)."""
    service = np.random.default_rng(1).exponential(0.01, 200_000)
    x = latencies(service, Load(10, "poisson", servers), 5 * servers, n=200_000)
    assert x.mean() - service.mean() == pytest.approx(wait_s, rel=0.06)
    if servers == 1:  # the sojourn of M/M/1 is exponential
        assert np.quantile(x, 0.99) == pytest.approx(math.log(100) / 50, rel=0.06)


def test_twice_as_many_clients_come_twice_as_often():
    rng = np.random.default_rng
    assert np.diff(arrivals(Load(10, "even"), 4, 9, rng(0))) == pytest.approx(1 / 40)
    assert arrivals(Load(10, "even"), 4, 9, rng(0))[0] == 0
    once, twice = (arrivals(Load(10), n, 1000, rng(0)) for n in (4, 8))
    assert once == pytest.approx(2 * twice) and once[-1] == pytest.approx(25, rel=0.1)
    cameras = arrivals(Load(10, "camera"), 4, 10, rng(0))
    assert len(cameras) == 10 and cameras[0] >= 0 and cameras[3] < 0.1 and cameras[4] == cameras[0] + 0.1
    assert len(arrivals(Load(10, "camera"), 3, 10, rng(0))) == 10


UNEVEN = np.random.default_rng(3).permutation(np.linspace(0.008, 0.012, 20_011))


def test_a_forecast_of_what_never_waits_is_arithmetic():
    """918 queries are twice the 459 that a bound of p99 needs; the bound is then the order statistic of that rank."""
    found = forecast(UNEVEN, Load(0.1, "even"), 5, 0.99)
    p99 = float(np.quantile(UNEVEN, 0.99))
    assert found.quantile_s == pytest.approx(p99, rel=1e-3)
    share = quantile_effective_n(latencies(UNEVEN, Load(0.1, "even"), 5), 0.99) / 20_000
    assert found.seconds == pytest.approx(918 / 0.5 / share) and share > 0.5
    rank = upper_rank(918, 0.99, 0.99)
    assert found.over * p99 == pytest.approx(np.quantile(UNEVEN, rank / 918), rel=1e-3)
    assert found.over > 1.002
    longer = forecast(UNEVEN, Load(0.1, "even"), 5, 0.99, 40_000)
    assert longer.seconds == 40_000 and 1 < longer.over < found.over
    short = forecast(UNEVEN, Load(0.1, "even"), 5, 0.5).seconds
    assert 1 <= short / (2 * needed(0.5, 0.99) / 0.5) < 2


def test_a_queue_is_forecast_until_it_is_full():
    assert math.isfinite(forecast(UNEVEN, Load(1, "even"), 97, 0.9).seconds)
    full = forecast(UNEVEN, Load(1, "even"), 98, 0.9)
    assert math.isinf(full.quantile_s) and math.isinf(full.seconds)
    assert math.isfinite(forecast(UNEVEN, Load(1, "even", 2), 98, 0.9).quantile_s)
    assert ceiling(SERVICE, Load(15, servers=2)) == 13


@pytest.mark.parametrize("limit", ["p99<30ms", "p99<40ms", "p90<=19ms,p99<90ms"])
def test_the_estimate_is_the_most_clients_that_a_walk_through_all_of_them_finds(limit):
    load, asked = Load(6), client_constraints([limit])

    def fits(clients):
        found = [(s, forecast(UNEVEN, load, clients, s.quantile, 30)) for s in asked]
        return all(s.holds(f.quantile_s * f.over) for s, f in found)

    walk = next(n - 1 for n in range(1, 17) if not fits(n))
    assert estimate(UNEVEN, load, [tail(s, None) for s in asked], 30) == walk and 2 <= walk < ceiling(
        UNEVEN, load
    )


def test_without_a_promise_of_latency_the_estimate_is_what_can_be_answered():
    assert estimate(SERVICE, Load(15), [], 30) == ceiling(SERVICE, Load(15)) == 6


def test_the_limit_itself_is_beyond_what_fits():
    """Of clients whose bound is just the limit one fewer fits."""
    load = Load(6)
    two, three = (forecast(UNEVEN, load, n, 0.9, 30) for n in (2, 3))
    limit = three.quantile_s * three.over
    assert two.quantile_s * two.over < limit
    assert estimate(UNEVEN, load, [(0.9, limit)], 30) == 2
    assert estimate(UNEVEN, load, [(0.9, limit * 1.0001)], 30) >= 3
