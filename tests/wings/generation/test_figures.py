"""The figures of tokens, by hand: each formula on moments that were written down."""

import numpy as np
import pytest

from edgescope.metrics import METRICS
from edgescope.records import QUERY_ERROR, QUERY_OK, UNIT, Absent, Measured, Queries, Window
from edgescope.records.rows import QUERY_DTYPES
from edgescope.wings.generation import figures
from edgescope.wings.generation.engine import Generated
from edgescope.wings.generation.figures import Answer, Answers, Figures, Limits

MS = 1_000_000


def answer(issued_ms, *times_ms, prompt=10, cached=None, counts=None, tokens=None):
    counts = counts or [1] * len(times_ms)
    got = Generated(
        times_ns=[round(t * MS) for t in times_ms],
        counts=counts,
        output_tokens=tokens or sum(counts),
        prompt_tokens=prompt,
        cached_tokens=cached,
    )
    return Answer(round(issued_ms * MS), got)


def rows_of(*answers, failed=()):
    """Query rows as the load generator keeps them, one for each answer."""
    found = {
        "query_id": range(len(answers)),
        "issued_ns": [a.issued_ns for a in answers],
        "done_ns": [a.last_ns for a in answers],
        "samples": [a.got.output_tokens for a in answers],
        "status": [QUERY_ERROR if n in failed else QUERY_OK for n in range(len(answers))],
    }
    missing = [-1] * len(answers)
    return Queries({k: np.array(found.get(k, missing), dtype) for k, dtype in QUERY_DTYPES.items()})


def measured(*answers, limits=None, broken=None, failed=(), stop_ms=None):
    rows = rows_of(*answers, failed=failed)
    kept = Answers()
    kept.found = dict(enumerate(answers))
    stop = round(stop_ms * MS) if stop_ms else max((a.last_ns for a in answers), default=0)
    window = Window(0, len(rows), 0, stop)
    return Figures(kept.of(rows), rows, window).all(limits or Limits(), broken or {})


def value(field):
    assert isinstance(field, Measured), field
    return field.value


def test_rates_and_gaps_are_their_formulas():
    found = measured(answer(0, 100, 110, 130), answer(130, 180, 200, 220))
    assert value(found["decode_tps"]) == pytest.approx(4 / 0.070)
    assert value(found["prefill_tps"]) == pytest.approx(20 / 0.150)
    assert value(found["output_tps"]) == pytest.approx(6 / 0.220)
    assert value(found["itl_p50_s"]) == pytest.approx(0.0175)
    assert value(found["token_gap_p50_s"]) == pytest.approx(0.020)
    assert value(found["prompt_tokens"]) == 10 and value(found["output_tokens"]) == 3
    assert isinstance(found["itl_p99_s"], Absent) and "need 100" in found["itl_p99_s"].reason
    assert isinstance(found["cached_tokens"], Absent)
    assert "goodput_rps" not in found


def test_every_figure_has_its_row_among_the_metrics():
    found = measured(answer(0, 1, 2), limits=Limits(1.0, 1.0), broken={"stalled": 1})
    known = {name for name in found if name in METRICS} | {"broken_stalled"}
    assert known == set(found) and "broken_*" in METRICS
    assert all(
        METRICS[n].unit == f.unit for n, f in found.items() if n in METRICS and isinstance(f, Measured)
    )


def test_only_answers_of_queries_that_succeeded_count():
    good, bad = answer(0, 10, 20), answer(20, 1000, 2000)
    found = measured(good, bad, failed=(1,), broken={"closed_early": 1})
    assert value(found["decode_tps"]) == pytest.approx(100)
    assert found["broken_closed_early"].value == 1 and found["broken_closed_early"].unit == "queries"


def test_answers_of_one_token_have_no_decode_rate():
    found = measured(answer(0, 10), answer(10, 20))
    for name in ("decode_tps", "itl_p50_s"):
        assert isinstance(found[name], Absent) and "need 2" in found[name].reason
    assert value(found["output_tps"]) == pytest.approx(100)


def test_without_an_answer_nothing_is_a_rate():
    found = measured(stop_ms=1000)
    assert all(isinstance(f, Absent) for name, f in found.items() if name.endswith("tps"))


def test_arrivals_of_several_tokens_are_never_counted_as_tokens():
    found = measured(answer(0, 10, 40, counts=[2, 3]), answer(50, 60, 90, counts=[0, 0], tokens=5))
    assert value(found["decode_tps"]) == pytest.approx(8 / 0.060)
    assert isinstance(found["token_gap_p50_s"], Absent)
    assert "second_token" not in answer(0, 10, 40, counts=[2, 3]).marks()
    assert answer(0, 10, 40).marks() == {"first_token": 10 * MS, "second_token": 40 * MS}


def test_cached_tokens_are_no_prefill():
    found = measured(answer(0, 100, 110, prompt=100, cached=90))
    assert value(found["prefill_tps"]) == pytest.approx(10 / 0.1) and value(found["cached_tokens"]) == 90


@pytest.mark.parametrize(
    ("limits", "good"), [((0.05, 0.0), 1), ((0.0, 0.015), 1), ((0.2, 0.03), 2), ((0.001, 0.0), 0)]
)
def test_goodput_counts_requests_that_kept_every_limit(limits, good):
    found = measured(answer(0, 100, 110), answer(110, 150, 170), limits=Limits(*limits), stop_ms=500)
    assert value(found["goodput_rps"]) == pytest.approx(good / 0.5)
    assert value(found["goodput_share"]) == pytest.approx(good / 2)


def test_a_failed_request_is_not_good():
    found = measured(answer(0, 1, 2), answer(2, 3, 4), limits=Limits(1.0), failed=(0,), stop_ms=1000)
    assert value(found["goodput_share"]) == 0.5


def series(answers, tokens, gap, noise, slope=0.0, seed=0, state=lambda t: 1.0):
    """Answers of so many tokens, one after the other; each gap grows with its place, and varies."""
    rng, now, found = np.random.default_rng(seed), 0.0, []
    for _ in range(answers):
        begun, times = now, []
        now += 50.0
        for place in range(tokens):
            now += (gap + slope * place) * state(now) * (1 + noise * rng.standard_normal()) if place else 0
            times.append(now)
        found.append(answer(begun, *times))
    return found


def test_the_interval_of_the_decode_rate_ignores_what_every_answer_repeats():
    steep = measured(*series(20, 64, 20, 0.02, slope=0.3))["decode_tps"]
    flat = measured(*series(20, 64, 29.6, 0.02))["decode_tps"]
    assert steep.value == pytest.approx(flat.value, rel=0.01)
    assert (steep.hi - steep.lo) < 2 * (flat.hi - flat.lo)
    assert steep.lo < steep.value < steep.hi


def test_the_interval_holds_the_rate_of_the_long_run():
    held = 0
    for seed in range(100):
        found = measured(*series(8, 64, 20, 0.1, seed=seed))["decode_tps"]
        held += found.lo <= 50 <= found.hi
    assert held >= 90


def test_steps_that_answers_share_count_once():
    """Four answers in flight have the same gaps: the interval is that of one of them."""
    alone = series(20, 64, 20, 0.1)
    together = [a for a in alone for _ in range(4)]
    one, four = (measured(*each)["decode_tps"] for each in (alone, together))
    assert four.hi - four.lo > 0.7 * (one.hi - one.lo)


def test_a_machine_of_two_speeds_has_no_interval():
    found = measured(*series(20, 64, 20, 0.02, state=lambda t: 1.0 if t < 15000 else 1.6))["decode_tps"]
    assert (found.lo, found.hi) == (None, None)


def test_phases_of_an_answer_fill_it():
    found = figures.spans([(7, answer(0, 100, 110, 130))])
    assert set(found.names) == {UNIT, "prefill", "token"}
    assert found.durations_ns("prefill").tolist() == [100 * MS]
    assert found.durations_ns("token").tolist() == [10 * MS, 20 * MS]
    assert found.durations_ns(UNIT).sum() == 130 * MS and set(found.columns["query_id"]) == {7}
