"""The way there and back: lost segments by the protocol's own steps, bandwidths by hand."""

import math

import numpy as np
import pytest

from edgescope.wings.offload import network
from edgescope.wings.offload.network import Profile

NET = Profile(rtt_s=0.050, up_bps=1e7, down_bps=2e7)


MEDIAN = math.log(2.0)


def draws(body=0.5, tail=0.5, pick=0, excess=MEDIAN, n=1):
    def both(value):
        return np.broadcast_to(np.asarray(value, float), (1, n, 2)).copy()

    picks = np.full((1, n), pick, dtype=np.int64)
    return network.Transit(picks, np.full((1, n), excess), picks, both(body), both(tail))


def test_a_payload_takes_its_bits_over_the_bandwidth_of_its_way():
    assert network.serialisation(NET, draws(), "up", 1e5) == pytest.approx(0.08)
    assert network.serialisation(NET, draws(), "down", 1e5) == pytest.approx(0.04)
    measured = Profile(rtt_s=0.05, up_bps=1e7, down_bps=2e7, up_samples_bps=(5e6, 1e7, 2e7))
    assert [float(network.serialisation(measured, draws(pick=k), "up", 1e5)[0, 0]) for k in range(4)] == [
        pytest.approx(s) for s in (0.16, 0.08, 0.04, 0.16)
    ]


def test_the_median_of_a_jittery_round_trip_is_the_one_that_was_given():
    jittery = Profile(rtt_s=0.05, jitter_s=0.01, up_bps=1e7, down_bps=1e7)
    assert network.round_trips(jittery, draws()) == pytest.approx(0.05)
    assert network.round_trips(jittery, draws(excess=2.0)) == pytest.approx(0.05 + 0.01 * (2 - math.log(2)))
    near = Profile(rtt_s=0.001, jitter_s=0.01, up_bps=1e7, down_bps=1e7)
    assert network.round_trips(near, draws(excess=0.0)) == 0.0
    seen = Profile(rtt_s=0.05, up_bps=1e7, down_bps=1e7, rtt_samples_s=(0.04, 0.06))
    assert network.round_trips(seen, draws(pick=3)) == pytest.approx(0.06)
    assert network.deviation_s(seen) == pytest.approx(0.01) and network.deviation_s(jittery) == 0.01


def test_loss_holds_a_connection_to_mathis_and_others():
    lossy = Profile(rtt_s=0.05, up_bps=1e9, down_bps=1e6, loss=0.01)
    assert network.bandwidth(lossy, "up") == pytest.approx(8 * 1448 / 0.05 * math.sqrt(150))
    assert network.bandwidth(lossy, "down") == 1e6
    assert network.bandwidth(Profile(rtt_s=0.0, up_bps=1e9, down_bps=1e6, loss=0.01), "up") == 1e9
    measured = Profile(rtt_s=0.05, up_bps=1e9, down_bps=1e6, loss=0.01, up_samples_bps=(1e9,))
    assert network.bandwidth(measured, "up") == 1e9


@pytest.mark.parametrize("m", [1, 4, 100])
@pytest.mark.parametrize("p", [0.01, 0.3])
def test_rounds_are_the_least_after_which_all_are_through(p, m):
    for u in (0.01, 0.5, 0.9, 0.999, 0.999999):
        r = int(network._rounds(p, m, np.array([u]))[0])
        assert r == 12 or (1 - p ** (r + 1)) ** m >= u - 1e-12
        assert r == 0 or (1 - p**r) ** m < u
    assert (
        network._rounds(p, 0, np.array([0.9]))[0] == 0 and network._rounds(0.99, 50, np.array([0.9]))[0] == 12
    )


@pytest.mark.parametrize(
    ("segments", "body", "tail", "seconds"),
    [
        (1, 0.5, 0.5, 0.0),
        (1, 0.5, 0.95, 0.2),  # alone: the least time-out
        (1, 0.5, 0.995, 0.2 + 0.4),  # and doubled
        (2, 0.999999, 0.5, 0.0),  # no segment has three behind it
        (3, 0.5, 0.95, 0.1),  # a tail loss probe after two round trips
        (3, 0.5, 0.995, 0.1 + 0.2),  # lost again: the time-out
        (4, 0.95, 0.5, 0.05),  # seen by acknowledgements: one round trip
        (4, 0.995, 0.5, 0.10),
        (4, 0.95, 0.95, 0.05 + 0.1),
    ],
)
def test_a_lost_segment_costs_what_the_protocol_says(segments, body, tail, seconds):
    lossy = Profile(rtt_s=0.05, up_bps=1e7, down_bps=1e7, loss=0.1)
    # of three tail segments one is lost with 27 %, so a tail of 0.95 ** 3 asks for what 0.95 asks of one
    last = min(segments, 3)
    drawn = draws(body=body, tail=tail**last)
    payload = (segments - 1) * 1448 + 1
    rtt = np.full((1, 1), 0.05)
    assert float(network.recovery(lossy, drawn, rtt, payload, 0)[0, 0]) == pytest.approx(seconds)
    assert float(network.recovery(lossy, drawn, rtt, payload, 1)[0, 0]) == pytest.approx(seconds)


def test_a_probe_is_never_later_than_the_time_out_and_that_grows_with_the_round_trip():
    far = Profile(rtt_s=0.3, jitter_s=0.01, up_bps=1e7, down_bps=1e7, loss=0.1)
    slow = network.recovery(far, draws(tail=0.95**3), np.full((1, 1), 0.3), 4000, 0)
    assert float(slow[0, 0]) == pytest.approx(0.34)  # 0.3 + 4 x 0.01, sooner than two round trips
    assert network.recovery(NET, draws(tail=0.9999), np.full((1, 1), 0.05), 4000, 0) == 0.0
    assert network.recovery(far, draws(tail=0.9999), np.full((1, 1), 0.05), 0, 0) == 0.0


def test_another_bandwidth_or_distance_moves_all_of_it_in_proportion():
    seen = Profile(rtt_s=0.05, up_bps=1e7, down_bps=2e7, up_samples_bps=(5e6, 1e7), down_samples_bps=(2e7,))
    wide = network.with_bandwidth(seen, 3e7)
    assert (wide.up_bps, wide.down_bps) == (3e7, pytest.approx(6e7))
    assert wide.up_samples_bps == pytest.approx((1.5e7, 3e7)) and wide.down_samples_bps == pytest.approx(
        (6e7,)
    )
    moved = network.with_rtt(Profile(rtt_s=0.05, up_bps=1, down_bps=1, rtt_samples_s=(0.04, 0.05, 0.07)), 0.1)
    assert moved.rtt_s == 0.1 and np.median(moved.rtt_samples_s) == pytest.approx(0.1)
    assert network.with_rtt(NET, 0.1).rtt_samples_s == ()


def test_draws_are_the_seeds_and_of_the_asked_shape():
    one, two = (network.draw(np.random.default_rng(3), 2, 5) for _ in range(2))
    assert one.rtt_pick.shape == one.excess.shape == (2, 5) and one.body.shape == one.tail.shape == (2, 5, 2)
    assert np.array_equal(one.body, two.body) and not np.array_equal(one.body, one.tail)
    many = network.draw(np.random.default_rng(4), 1, 20_000)
    assert many.excess.mean() == pytest.approx(1.0, abs=0.03) and many.rtt_pick.min() >= 0
    assert many.rtt_pick.max() > 2**30.9 and many.body.min() >= 0 and many.body.max() < 1
