"""Edge or cloud: the model against closed forms, order in the network, degenerate cases, every kind of answer."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.cells.objective import wanted
from edgescope.errors import Message, UsageError
from edgescope.records import Absent, Measured, Status
from edgescope.stats import tau
from edgescope.wings.offload import answer as answers
from edgescope.wings.offload import answer as questions
from edgescope.wings.offload import model as offload
from edgescope.wings.offload import model as services
from edgescope.wings.offload import network
from edgescope.wings.offload.answer import _sum, _weighted, answer, curve, flips
from edgescope.wings.offload.model import Service, bootstrapped, cloud, edge, fifo, plain
from edgescope.wings.offload.network import Profile
from edgescope.wings.offload.verb import place, remarks
from two_places import board, measured, model, server, spread

FAST = Profile(rtt_s=0.002, up_bps=1e8, down_bps=1e8)
SLOW = Profile(rtt_s=0.080, up_bps=5e6, down_bps=5e6)


@pytest.fixture(autouse=True, scope="module")
def few_draws():
    """A tenth of the draws: these tests ask for order and rough size."""
    before = offload.POINTS, offload.ROWS, offload.DRAWS
    offload.POINTS, offload.ROWS, offload.DRAWS = 3000, 12, 600
    yield
    offload.POINTS, offload.ROWS, offload.DRAWS = before


@pytest.fixture(scope="module")
def plain_model(few_draws):
    return model()


@pytest.fixture(scope="module")
def loaded_model(few_draws):
    return model(["p99<=100ms"], rate=20.0)


def test_without_jitter_loss_or_load_the_cloud_is_a_sum(plain_model):
    got = plain_model.cloud_s(plain_model.points, SLOW, None) - plain_model.points.remote
    assert got == pytest.approx(0.080 + 8 * 44e3 / 5e6)


def test_the_sum_of_tails_is_no_tail():
    """p99 of a sum lies below the sum of the p99 of its parts, which a table of percentiles would give."""
    found = model()
    wild = replace(FAST, jitter_s=0.010)
    row = cloud(found, wild, None).figures
    rtt99 = np.quantile(network.round_trips(wild, found.points.way), 0.99)
    served99 = np.quantile(found.points.remote, 0.99)
    assert row["p99_s"].value <= rtt99 + served99 + 8 * 44e3 / 1e8 + 1e-9


def test_jitter_has_the_median_and_deviation_it_says(plain_model):
    got = network.round_trips(
        Profile(rtt_s=0.05, jitter_s=0.005, up_bps=1e6, down_bps=1e6), plain_model.points.way
    )
    assert np.median(got) == pytest.approx(0.05, rel=0.02) and got.std() == pytest.approx(0.005, rel=0.1)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.001, 0.2), st.integers(1, 60))
def test_rounds_of_sending_again_have_the_stated_law(p, m):
    u = (np.arange(20_000) + 0.5)[None, :] / 20_000
    got = network._rounds(p, m, u)
    for r in range(3):
        assert np.mean(got <= r) == pytest.approx((1 - p ** (r + 1)) ** m, abs=2e-3)


def test_one_lost_segment_message_waits_for_the_time_out(plain_model):
    lossy = Profile(rtt_s=0.01, up_bps=1e9, down_bps=1e9, loss=0.1)
    rtt = network.round_trips(lossy, plain_model.points.way)
    got = network.recovery(lossy, plain_model.points.way, rtt, 100, 0)
    assert set(np.round(np.unique(got), 6)) <= {0.0, *(round(0.2 * (2**k - 1), 6) for k in range(1, 13))}
    assert np.mean(got > 0) == pytest.approx(0.1, abs=0.02)


@pytest.mark.slow
def test_waiting_is_that_of_the_textbook():
    """M/D/1: mean wait = rho s / (2 (1 - rho)) (Pollaczek-Khinchine); a beat slower than the service never waits."""
    rng = np.random.default_rng(1)
    n, s, rho = 200_000, 0.01, 0.6
    arrive = np.cumsum(rng.exponential(s / rho, (1, n)), axis=1)
    serve = np.full((1, n), s)
    assert (fifo(arrive, serve) - arrive - s).mean() == pytest.approx(rho * s / 2 / (1 - rho), rel=0.05)
    beat = np.arange(n)[None, :] * 0.011
    assert fifo(beat, serve) - beat == pytest.approx(s)


def test_several_servers_take_turns():
    arrive = np.array([[0.0, 0.0, 0.0, 0.0]])
    assert fifo(arrive, np.ones((1, 4)), 2).tolist() == [[1, 1, 2, 2]]
    assert fifo(arrive, np.ones((1, 4)), 9).tolist() == [[1, 1, 1, 1]]


def test_resampling_keeps_the_rows_and_replicates_widen_it():
    rng = np.random.default_rng(0)
    alike = Service((spread(0.01, seed=1), spread(0.01, seed=2), spread(0.01, seed=3)))
    apart = Service((spread(0.01, seed=1), spread(0.02, seed=2), spread(0.03, seed=3)))
    assert set(plain(alike, rng, 500).ravel()) <= set(np.concatenate(alike.replicates))
    width = [np.ptp(np.median(bootstrapped(s, rng, 20, 400), axis=1)) / s.mean_s for s in (alike, apart)]
    assert width[1] > 5 * width[0]


LINKS = st.tuples(
    st.floats(1e-4, 0.5), st.floats(0, 0.02), st.floats(1e5, 1e9), st.sampled_from([0.0, 0.01, 0.05])
)


@settings(max_examples=25, deadline=None)
@given(LINKS, st.floats(1, 50), st.floats(1, 50), st.booleans())
@pytest.mark.slow
def test_more_bandwidth_never_hurts_and_distance_never_helps(
    plain_model, loaded_model, link, wider, further, load
):
    rtt, jitter, bps, loss = link
    here = Profile(rtt_s=rtt, jitter_s=jitter, up_bps=bps, down_bps=bps, loss=loss)
    asked, rate = (loaded_model, 20.0) if load else (plain_model, None)
    base = asked.cloud_s(asked.ends, here, rate)
    assert np.all(asked.cloud_s(asked.ends, network.with_bandwidth(here, bps * wider), rate) <= base + 1e-9)
    assert np.all(asked.cloud_s(asked.ends, network.with_rtt(here, rtt * further), rate) >= base - 1e-9)


def test_the_border_rises_with_distance_and_ends(plain_model):
    found = curve(plain_model, FAST)
    border = [p.equal_bps for p in found.points]
    known = [b for b in border if b is not None]
    assert known == sorted(known) and len(known) >= 3 and border[-1] is None
    assert found.points[len(known) - 1].rtt_s <= found.equal_ends_s < found.edge_s.value
    assert all(p.fits_bps == 0 for p in found.points), "without constraints any cloud will do"


def test_at_the_border_the_two_are_equal(plain_model):
    found = curve(plain_model, FAST)
    point = next(p for p in found.points if p.equal_bps)
    at = network.with_bandwidth(network.with_rtt(FAST, point.rtt_s), point.equal_bps)
    assert cloud(plain_model, at, None).figures["p99_s"].value == pytest.approx(found.edge_s.value, rel=0.02)


def test_near_and_wide_the_cloud_answers_far_and_narrow_the_edge(plain_model):
    near, far = answer(plain_model, FAST), answer(plain_model, SLOW)
    assert near.pick.name == "cloud" and far.pick.name == "edge"
    assert not far.options[0].modelled and far.options[1].modelled


def test_a_flip_is_where_the_answer_changes(plain_model):
    found = flips(plain_model, FAST)
    assert {f.what for f in found} == {"bandwidth", "rtt"} and all(f.becomes == "edge" for f in found)
    for f in found:
        moved = network.with_bandwidth if f.what == "bandwidth" else network.with_rtt
        sides = [answer(plain_model, moved(FAST, f.at * k)).pick.name for k in (0.9, 1.1)]
        assert sides == (["edge", "cloud"] if f.below else ["cloud", "edge"])


def test_where_neither_can_be_told_apart_the_edge_stays():
    same = model(local=board(0.030), remote=server(0.030))
    tiny = replace(FAST, rtt_s=0.0, up_bps=1e13, down_bps=1e13)
    found = answer(same, tiny)
    assert found.pick.name == "edge" and "not clearly apart" in found.reason


def test_a_rate_beyond_one_board_is_shared_over_boards():
    found = answer(model(["p99<=100ms"], rate=80.0, poisson=False), SLOW)
    names = {o.name: o for o in found.options}
    assert found.pick.name == "boards" and names["boards"].boards == 3, "80/s x 30 ms = 2.4 boards"
    assert "saturated" in names["edge"].broken[0] and isinstance(names["edge"].figures["p99_s"], Absent)
    assert "uplink is saturated" in names["cloud"].broken[0]


def test_boards_more_than_the_limit_are_not_promised():
    found = answer(model(["p99<=100ms"], rate=2000.0), SLOW)
    assert found.pick is None and "nothing keeps the constraints" in found.reason


def test_a_narrow_uplink_takes_only_a_share():
    narrow = Profile(rtt_s=0.005, up_bps=1.1e7, down_bps=1e8)  # 34 queries/s of 40 kB
    found = answer(model(["p99<=100ms", "throughput>=40"], rate=50.0, poisson=False), narrow)
    shared = next(o for o in found.options if o.name == "split")
    assert shared.fits and 0.35 < shared.share < 0.65
    assert shared.figures["p99_s"].value < 0.1 and dict(shared.busy)["edge"] <= 0.95


def test_infeasible_names_the_nearest_and_what_breaks():
    found = answer(model(["p99<=10ms"]), SLOW)
    assert found.pick is None and found.nearest.name == "edge"
    assert any("p99<=10ms broken" in text for text in found.nearest.broken)


@pytest.mark.slow
def test_what_was_not_measured_keeps_no_constraint():
    found = answer(model(["energy<=500mJ"]), FAST)
    sent = found.options[1]
    assert found.pick.name == "edge" and "not measured here" in sent.broken[0]
    assert any("memory" in b for b in cloud(model(["memory<=1GB"]), FAST, None).broken)


@pytest.mark.slow
def test_energy_of_sending_is_radio_and_idle():
    asked = model(["energy<=500mJ"], local=board(idle_w=3.0), radio_w=2.0, objective="energy")
    sent = cloud(asked, FAST, None)
    mean = asked.cloud_s(asked.points, FAST, None).mean()
    assert sent.figures["energy_per_sample_j"].value == pytest.approx(3.0 * mean + 2.0 * 8 * 44e3 / 1e8)
    assert answer(asked, FAST).pick.name == "cloud", "0.2 J at the edge"
    assert "idle power was" in cloud(model(radio_w=2.0), FAST, None).figures["energy_per_sample_j"].reason


@pytest.mark.slow
def test_few_rows_or_round_trips_give_no_tail():
    thin = place([measured("a server", spread(0.002, 60))], "CLOUD", "cloud")
    row = cloud(model(remote=thin), FAST, None).figures
    assert row["p99_s"] == Absent("n/a: have 60, need 100") and isinstance(row["p50_s"], Measured)
    probed = replace(FAST, rtt_samples_s=(0.001, 0.002, 0.003) * 10)
    assert cloud(model(), probed, None).figures["p99_s"] == Absent("n/a: have 30, need 100")
    assert not cloud(model(["p99<=1s"]), probed, None).fits
    assert curve(model(), probed).quantity == "p50"


def test_degenerate_networks_and_payloads():
    found = model(up_bytes=0.0, down_bytes=0.0)
    nothing = Profile(rtt_s=0.0, up_bps=1e2, down_bps=1e2)
    assert cloud(found, nothing, None).figures["p50_s"].value == pytest.approx(np.median(found.points.remote))
    assert math.isinf(found.link_sps(nothing))
    assert {f.what for f in flips(found, nothing)} == {"rtt"}


def test_loss_holds_one_connection_below_its_link():
    long = Profile(rtt_s=0.1, up_bps=1e9, down_bps=1e9, loss=0.01)
    assert network.bandwidth(long, "up") == pytest.approx(8 * 1448 / 0.1 * math.sqrt(1.5 / 0.01))
    assert network.bandwidth(replace(long, up_samples_bps=(1e9,)), "up") == 1e9, (
        "a measured one has its losses in it"
    )


def test_slots_of_a_crowded_cell_serve_at_once():
    crowded = place([measured("a server", spread(0.020), processes=4)], "CLOUD", "cloud")
    assert crowded.service.slots == 4
    assert dict(model(remote=crowded).cloud_busy(FAST, 100.0))["remote server"] == pytest.approx(0.5, rel=0.1)


@pytest.mark.slow
def test_places_are_checked():
    with pytest.raises(UsageError, match="E-OFF-1"):
        place([measured("a", spread(0.01)), measured("a", spread(0.01), precision="fp32")], "x", "edge")
    failed = replace(measured("a", spread(0.01)), status=Status.CRASHED, reason=Message("E-X-1", "died"))
    with pytest.raises(UsageError, match="E-OFF-2"):
        place([failed], "x", "edge")
    with pytest.raises(UsageError, match="E-OFF-3"):
        remarks(board(), server(batch=4))
    assert any("same machine" in str(said) for said in remarks(board(), board()))
    assert any("different models" in str(said) for said in remarks(board(), server(model="alexnet")))


def test_the_unloaded_edge_is_as_measured(plain_model):
    assert edge(plain_model, None).figures["p99_s"] == plain_model.local.row["p99_s"]


@pytest.mark.slow
def test_an_edge_that_carries_no_load_is_met_by_any_cloud_that_carries_it():
    """80/s x 30 ms saturates the board; 80/s x 40 kB needs 25.6 Mbit/s at a full link, 27 Mbit/s at 95 %."""
    found = curve(model(rate=80.0, poisson=False), FAST)
    assert isinstance(found.edge_s, Absent) and found.quantity == "p99"
    assert all(p.equal_bps == pytest.approx(80 * 8 * 40e3 / 0.95, rel=0.01) for p in found.points)
    assert found.equal_ends_s == pytest.approx(10.0, rel=0.01)


@pytest.mark.slow
def test_a_curve_is_drawn_up_to_what_matters():
    def grid(asked, network):
        return [p.rtt_s for p in curve(asked, network).points]

    limited = grid(model(["p99<=100ms", "p50<=400ms"]), FAST)
    assert limited[-1] == pytest.approx(0.1) and limited[0] == pytest.approx(0.002) and len(limited) == 14
    own = grid(model(), FAST)
    assert own[-1] == pytest.approx(edge(model(), None).figures["p99_s"].value)
    assert grid(model(), SLOW)[-1] == pytest.approx(0.12)
    assert curve(model(), replace(FAST, down_bps=4e8)).down_per_up == pytest.approx(4.0)


@pytest.mark.slow
def test_a_border_of_constraints_is_where_they_begin_to_be_kept():
    """40 kB up and 4 kB down in 100 ms less what answering and the way take."""
    asked = model(["p50<=100ms"])
    found = curve(asked, FAST)
    point = next(p for p in found.points if p.fits_bps and p.rtt_s > 0.03)
    wide, narrow = (
        network.with_bandwidth(network.with_rtt(FAST, point.rtt_s), point.fits_bps * k) for k in (1.01, 0.99)
    )
    assert cloud(asked, wide, None).fits and not cloud(asked, narrow, None).fits
    assert found.fits_ends_s == pytest.approx(0.098, abs=0.002)
    assert curve(model(["p50<=1ms"]), FAST).fits_ends_s is None


@pytest.mark.slow
def test_the_reason_names_what_the_other_place_would_break():
    near = answer(model(["p99<=60ms"]), SLOW)
    assert near.pick.name == "edge" and near.reason.startswith(
        "in the cloud it would not do: p99<=60ms broken"
    )
    far = answer(model(["p99<=20ms"]), FAST)
    assert far.pick.name == "cloud" and far.reason.startswith("at the edge it would not do: p99<=20ms broken")
    both = answer(model(["p99<=500ms"]), FAST)
    assert both.pick.name == "cloud" and both.reason.endswith(", and both keep the constraints")
    assert answer(model(), FAST).reason == both.reason.removesuffix(", and both keep the constraints")
    unsaid = answer(model(objective="energy"), FAST)
    assert unsaid.pick.name == "edge" and "in the cloud it is not known (not measured here" in unsaid.reason


def test_twice_the_boards_at_twice_the_rate_are_as_busy(plain_model):
    assert plain_model.edge_busy(40.0, 2) == plain_model.edge_busy(20.0)
    assert plain_model.edge_busy(20.0)[0][1] == pytest.approx(20 * plain_model.local.service.mean_s)
    assert plain_model.edge_busy(None) == () == plain_model.cloud_busy(FAST, None)


def test_a_sum_of_what_is_not_known_is_not_known():
    one, none = Measured(1.0, "s", n=3), Absent("no link")
    assert _sum(one, none) == none == _sum(none, one) == _sum(none, Absent("other"))
    assert _sum(one, Measured(2.0, "s", n=2)) == Measured(3.0, "s", n=2)
    assert _weighted(one, none, 0.5) == none == _weighted(none, one, 0.5)
    assert _weighted(one, Measured(3.0, "s", n=5), 0.25) == Measured(2.5, "s", n=3)


def test_one_slot_answers_one_query_at_a_time():
    times = np.array([0.01, 0.03])
    assert Service((times,)).slots == 1 and Service((times, times), 6).slots == 6
    assert Service((times, times[:1])).n == 3 and Service((times, times[:1])).mean_s == pytest.approx(
        0.05 / 3
    )


def test_several_servers_answer_as_many_times_as_much_within_as_many_times_the_bounds():
    rate = Measured(4.0, "samples/s", 3.0, 6.0, 9)
    assert offload._times(rate, 3) == Measured(12.0, "samples/s", 9.0, 18.0, 9)
    assert offload._times(rate, 1) is rate and offload._times(Absent("x"), 3) == Absent("x")
    assert offload._times(Measured(4.0, "samples/s", None, 6.0), 2) == Measured(8.0, "samples/s", None, 12.0)


@pytest.mark.parametrize(
    ("enough", "taken", "fits"), [(1, 2, True), (2, 2, True), (5, 5, True), (99, 0, False)]
)
def test_the_fewest_boards_that_keep_the_constraints_or_the_most_that_are_tried(
    monkeypatch, enough, taken, fits
):
    tried: list[int] = []

    def edge(model, rate, n):
        tried.append(n)
        return SimpleNamespace(n=n, fits=n >= enough)

    monkeypatch.setattr(answers, "edge", edge)
    found = answers.boards(None, 9.0)
    assert (found.n, found.fits) == (taken or offload.MOST_BOARDS, fits)
    assert tried == list(range(2, found.n + 1))
    monkeypatch.setattr(
        answers, "edge", lambda model, rate, n: SimpleNamespace(n=n, fits=n == offload.MOST_BOARDS)
    )
    assert answers.boards(None, 9.0).fits


def of(value, lo=None, hi=None, *, broken=()):
    row = {"p50_s": Measured(value, "s", lo, hi), "throughput_sps": Measured(value, "samples/s", lo, hi)}
    return SimpleNamespace(figures=row, fits=not broken, broken=broken)


@pytest.mark.parametrize(
    ("a", "b", "less", "more"),
    [
        (of(1.0), of(2.0), True, False),
        (of(2.0), of(1.0), False, True),
        (of(1.0), of(1.0), False, False),
        (of(1.0, 0.9, 1.1), of(2.0, 1.11, 2.1), True, False),
        (of(1.0, 0.9, 1.1), of(2.0, 1.1, 2.1), False, False),
        (of(2.0, 1.11, 2.1), of(1.0, 0.9, 1.1), False, True),
        (of(2.0, 1.1, 2.1), of(1.0, 0.9, 1.1), False, False),
    ],
)
def test_one_place_is_clearly_better_where_the_intervals_lie_apart(a, b, less, more):
    for objective, better in (("latency", less), ("throughput", more)):
        asked = SimpleNamespace(wanted=wanted(objective))
        assert answers.clearly_better(asked, a, b) is better
        unknown = SimpleNamespace(figures={asked.wanted.goal.name: Absent("x")}, fits=True)
        lost = SimpleNamespace(figures=unknown.figures, fits=False)
        assert not answers.clearly_better(asked, unknown, b) and not answers.clearly_better(asked, a, unknown)
        assert answers.clearly_better(asked, a, lost) and not answers.clearly_better(asked, unknown, lost)
        assert answers._better(asked, [a, b]) is (b if answers.clearly_better(asked, b, a) else a)
        assert answers._better(asked, []) is None


@pytest.mark.parametrize(("border", "beyond"), [(3e5, True), (3e5, False)])
def test_a_flip_is_found_within_two_per_cent_on_either_side(border, beyond):
    span = (1e4, 1e9) if beyond else (1e9, 1e4)
    at = answers._flip_at(span, lambda x: "cloud" if x >= border else "edge")
    assert at == pytest.approx(border, rel=0.02) and (at >= border) is beyond
    assert answers._flip_at(span, lambda x: "edge") is None and answers._flip_at((1.0, 1.0), str) is None


def test_what_both_places_give_is_added_or_weighed():
    a, b, none = Measured(2.0, "J", n=5), Measured(6.0, "J", n=3), Absent("x")
    assert _sum(a, b) == Measured(8.0, "J", n=3) and _weighted(a, b, 0.25) == Measured(5.0, "J", n=3)
    for joined in (_sum, lambda x, y: _weighted(x, y, 0.5)):
        assert joined(a, none) is none and joined(none, b) is none and joined(none, Absent("y")) is none


@pytest.mark.parametrize(
    ("q", "rows", "told"),
    [(0.5, 1, None), (0.5, 2, False), (0.9, 9, None), (0.9, 10, False), (0.99, 99, None), (0.99, 100, False)],
)
def test_a_quantile_needs_a_row_beyond_it_and_its_interval_both_of_its_ends(q, rows, told):
    found = offload._told(q, (2.0, 1.0, 3.0), rows)
    assert isinstance(found, Absent) is (told is None)
    assert told is None or (found.value, found.lo, found.n) == (2.0, None, rows)


def test_an_interval_holds_its_value_from_the_rows_on_that_bound_both_ends():
    least = max(offload.needed(0.9, 0.975), offload.needed(0.1, 0.975))
    assert offload._told(0.9, (2.0, 1.0, 3.0), least - 1).lo is None
    assert offload._told(0.9, (2.0, 1.0, 3.0), least) == Measured(2.0, "s", 1.0, 3.0, least)
    assert (
        offload._told(0.9, (2.0, 2.5, 3.0), least).lo == 2.0 == offload._told(0.9, (2.0, 1.0, 1.5), least).hi
    )
    assert offload._told(0.1, (2.0, 1.0, 3.0), least - 1).lo is None, "the lower tail, too"


def test_a_part_is_saturated_beyond_ninety_five_per_cent():
    (told,) = offload.saturated([("uplink", 0.95), ("board", 0.951), ("server", 0.1)])
    assert told.startswith("the board is saturated") and "95%" in told


@pytest.mark.parametrize(
    ("rate", "boards", "latency"),
    [
        (1.0, 1, [2, 3, 4, 5]),
        (0.5, 1, [2, 2, 2, 2]),
        (1.0, 2, [2, 2, 2, 2]),
        (2.0, 2, [2, 2, 3, 3]),
        (None, 1, [2] * 4),
    ],
)
def test_queries_of_two_seconds_wait_at_the_edge_as_they_come(rate, boards, latency):
    made = model()
    draws = replace(made.points, local=np.full((1, 4), 2.0), gaps=np.ones((1, 4)))
    assert made.edge_s(draws, rate, boards).tolist() == [pytest.approx(latency)]
    busy = dict(made.edge_busy(rate, boards))
    mean = made.local.service.mean_s
    assert busy == ({} if rate is None else {"edge": pytest.approx(rate * mean / boards)})


@pytest.mark.slow
def test_what_is_sent_waits_for_the_link_and_the_server():
    """The network takes nothing beside 0.1 s a way and a round trip of 0.002 s; the server takes 2 s, one a second."""
    made = model()
    shape = (1, 4)
    way = network.draw(np.random.default_rng(0), *shape)
    draws = replace(made.points, remote=np.full(shape, 2.0), gaps=np.ones(shape), way=way)
    there = Profile(rtt_s=0.002, up_bps=8 * 40e3 / 0.1, down_bps=8 * 4e3 / 0.1)
    alone = made.cloud_s(draws, there, None)
    assert alone.tolist() == [pytest.approx([2.202] * 4, rel=0.05)]
    waiting = made.cloud_s(draws, there, 1.0) - alone
    assert waiting.tolist() == [pytest.approx([0, 1, 2, 3], abs=1e-6)]
    four = model(servers=4).cloud_s(draws, there, 1.0) - alone
    assert four.tolist() == [pytest.approx([0] * 4, abs=1e-6)]


@pytest.mark.parametrize("n", [1, 40, 41, 200])
def test_rows_are_drawn_in_blocks_longer_than_their_correlation(n):
    x = np.repeat(np.random.default_rng(0).normal(size=100), 8)
    length = min(len(x) // 8, math.ceil(4 * tau(x)))
    assert 16 < length < 100
    found = services._blocks(x, np.random.default_rng(1), n)
    assert len(found) == n and set(found.tolist()) <= set(range(len(x)))
    steps = np.diff(found) % len(x)
    inside = np.arange(1, n) % length != 0
    assert (steps[inside] == 1).all() and not (steps[~inside] == 1).any()
    single = services._blocks(np.array([3.0]), np.random.default_rng(1), 5)
    assert single.tolist() == [0] * 5


def noted(network, **request):
    return questions._assumed(model(local=request.pop("local", None), **request), network)


@pytest.mark.slow
def test_the_notes_are_what_was_not_measured():
    assert noted(FAST) == ["the network was given, not measured: without jitter"]
    assert noted(replace(FAST, jitter_s=0.001)) == [
        "the network was given, not measured: RTT jitter modelled as exponential"
    ]
    probed = replace(FAST, rtt_samples_s=(0.002,), loss_absent="TCP hides it")
    assert noted(probed) == ["loss: TCP hides it; none is added"]
    arrivals = [noted(probed, rate=1.0, poisson=poisson)[1] for poisson in (True, False)]
    assert "at random" in arrivals[0] and "at a steady beat" in arrivals[1]


@pytest.mark.parametrize(("up", "down", "held"), [(1e8, 1e8, 2), (1e8, 1e6, 1), (1e6, 1e8, 1), (1e6, 1e6, 0)])
def test_loss_that_holds_tcp_below_the_bandwidth_is_told_for_each_way(up, down, held):
    """1448 bytes over 80 ms and sqrt(1.5 / 0.01) are 1.77 Mbit/s."""
    lossy = replace(SLOW, loss=0.01, up_bps=up, down_bps=down, rtt_samples_s=(0.08,))
    told = noted(lossy)
    assert len(told) == held
    for note, way in zip(told, [w for w, bps in (("up", up), ("down", down)) if bps > 1e7], strict=True):
        assert (
            note.startswith("0.01 lost at 80 ms")
            and f"1.77 Mbit/s {way} (Mathis 1997), below the 100" in note
        )


@pytest.mark.parametrize(
    ("radio", "idle_w", "told"),
    [
        ({"radio_w": 1.0}, 3.0, 1),
        ({"radio_j_per_mb": 1.0}, 3.0, 1),
        ({}, 3.0, 0),
        ({"radio_w": 1.0}, None, 0),
    ],
)
def test_the_energy_of_sending_is_told_where_it_is_known(radio, idle_w, told):
    probed = replace(FAST, rtt_samples_s=(0.002,))
    assert len(noted(probed, local=board(idle_w=idle_w), **radio)) == told


def test_a_question_holds_its_whole_answer(plain_model):
    found = questions.question(plain_model, SLOW, ["warned"])
    assert found.notes[0] == "warned" and found.notes[1:] == tuple(questions._assumed(plain_model, SLOW))
    assert found.answer.pick == answer(plain_model, SLOW).pick and found.limit is None
    assert (
        found.network is SLOW
        and found.model is plain_model
        and found.flips == tuple(flips(plain_model, SLOW))
    )
