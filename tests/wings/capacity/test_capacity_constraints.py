"""Promises as people write them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Measured, Queries, Trial
from edgescope.wings.capacity.question import (
    Compliance,
    Held,
    _latency,
    _resource,
    _share,
    _together,
    client_constraints,
    tail,
    timed,
    words,
)
from making import queries, result


@pytest.mark.parametrize(
    ("text", "name", "limit", "strict", "quantile"),
    [
        ("p99<40ms", "p99", 0.04, True, 0.99),
        (" p50 <= 10 ms ", "p50", 0.01, False, 0.5),
        ("p99.9<0.1s", "p99.9", 0.1, True, 0.999),
        ("p999<100000us", "p999", 0.1, True, 0.999),
        ("memory<=2GB", "memory", 2e9, False, None),
        ("power<10W", "power", 10.0, True, None),
        ("energy<=50mJ", "energy", 0.05, False, None),
        ("p90<33ms", "p90", 0.033, True, 0.9),
    ],
)
def test_what_can_be_promised(text, name, limit, strict, quantile):
    found = client_constraints([text])[0]
    assert (found.name, found.strict, found.quantile) == (name, strict, quantile)
    assert found.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "metric", "title"),
    [
        ("p97<1s", "p97_s", "p97"),
        ("p50<1s", "p50_s", None),  # one that every run has
        ("frame_age_p90<1s", "frame_age_p90_s", "frame_age_p90"),
        ("age<1s", "frame_age_p99_s", "age"),
    ],
)
def test_a_promise_is_of_a_metric_by_its_own_name(text, metric, title):
    found = client_constraints([text])[0].metric
    assert found.name == metric and title in (None, found.title) and found.unit == "s" and not found.higher


def test_the_limit_itself_keeps_a_promise_of_at_most():
    assert client_constraints(["p99<=40ms"])[0].holds(0.04) and not client_constraints(["p99<40ms"])[0].holds(
        0.04
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p99",
        "p99>40ms",
        "p99<40",
        "p99<0ms",
        "p100<1s",
        "p49<1s",
        "p99.<1s",
        "p5<1s",
        "memory<2W",
        "x<1s",
    ],
)
def test_what_cannot_is_refused_with_what_can(text):
    with pytest.raises(UsageError) as caught:
        client_constraints([text])
    assert caught.value.code == "E-CONS-1" and caught.value.evidence


@pytest.mark.parametrize("text", ["throughput>=30", "accuracy>=0.9", "top1>=0.98ref"])
def test_a_constraint_that_is_no_promise_is_told_so(text):
    with pytest.raises(UsageError, match="is a constraint of recommend and optimize"):
        client_constraints([text])[0]


def test_several_promises_by_commas_or_flags():
    assert [s.text for s in client_constraints(["p99<40ms, p50<10ms", "memory<=1GB"])] == [
        "p99<40ms",
        "p50<10ms",
        "memory<=1GB",
    ]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"[a-z0-9.]{1,6}<=?[0-9.e]{1,8}[a-zA-Z]{0,3}", fullmatch=True))
@pytest.mark.slow
def test_any_text_is_read_or_refused(text):
    try:
        assert all(p.limit > 0 for p in client_constraints([text]))
    except UsageError as error:
        assert error.code == "E-CONS-1"


@pytest.mark.parametrize(
    ("text", "deadline_s", "found"),
    [
        ("p99<40ms", None, (0.99, 0.04)),
        ("p99<40ms", 0.1, (0.99, 0.04)),
        ("misses<1%", 0.033, (0.99, 0.033)),
        ("misses<50%", 0.033, (0.5, 0.033)),
        ("misses<51%", 0.033, None),
        ("misses<1%", None, None),
        ("dropped<1%", 0.033, None),
        ("memory<1GB", 0.033, None),
    ],
)
def test_a_promise_about_time_is_a_quantile_and_its_limit(text, deadline_s, found):
    assert tail(client_constraints([text])[0], deadline_s) == (found and pytest.approx(found))


def stamped(late_ms, dropped=()):
    """Queries that last 1 ms each and came so much later than their frames were made."""
    made = queries(len(late_ms))
    c = dict(made.columns)
    c["issued_ns"], c["done_ns"] = c["issued_ns"] + 10**9, c["done_ns"] + 10**9
    c["source_ns"] = c["done_ns"] - np.asarray(late_ms, dtype=np.int64) * 1_000_000
    c["status"] = np.full(len(late_ms), QUERY_OK, np.int8)
    c["status"][list(dropped)] = QUERY_DROPPED
    return Queries(c)


def test_latencies_are_judged_of_a_latency_and_ages_of_an_age_or_a_share():
    rows = stamped([5, 7, 9])
    assert timed(client_constraints(["p99<1s"])[0], rows) == pytest.approx([0.001] * 3)
    for text in ("age<1s", "frame_age_p50<1s", "misses<1%"):
        assert timed(client_constraints([text])[0], rows) == pytest.approx([0.005, 0.007, 0.009])


@pytest.mark.parametrize(
    ("late", "limit", "kept", "clear", "likely"),
    [
        (0, "10%", Compliance.YES, True, True),  # at most 3.7 % of so many independent ones
        (4, "3%", Compliance.PERHAPS, True, False),  # 4 % measured: more than a quarter above
        (4, "3.5%", Compliance.PERHAPS, False, False),
        (4, "5%", Compliance.PERHAPS, False, True),
        (4, "0.1%", Compliance.NO, True, False),
    ],
)
def test_a_share_is_judged_by_the_ends_of_its_interval(late, limit, kept, clear, likely):
    rows = stamped([30 if i % 25 == 7 and i // 25 < late else 5 for i in range(100)])
    run = result(Trial(model="null", deadline_s=0.02))
    held = _share(client_constraints([f"misses<{limit}"])[0], run, rows)
    assert (held.kept, held.clear, held.likely) == (kept, clear, likely)
    assert held.found.value == pytest.approx(late / 100) and held.found.lo <= late / 100 < held.bound.value
    assert held.bound == Measured(held.found.hi, "share", n=100)


def test_drops_need_no_deadline_and_misses_do():
    rows, run = stamped([5] * 40, dropped=[3]), result(Trial(model="null"))
    held = _share(client_constraints(["dropped<50%"])[0], run, rows)
    assert held.kept is Compliance.YES and held.found.value == pytest.approx(1 / 40)
    none = _share(client_constraints(["misses<50%"])[0], run, rows)
    assert none.kept is Compliance.NO and none.found == none.bound == Absent("no --deadline")


@pytest.mark.parametrize(
    ("text", "found", "kept", "bound"),
    [
        ("power<10W", Measured(9.0, "W", 8.0, 9.9, 5), Compliance.YES, 9.9),
        ("power<10W", Measured(9.0, "W", 8.0, 10.0, 5), Compliance.NO, 10.0),
        ("power<=10W", Measured(9.0, "W", 8.0, 10.0, 5), Compliance.YES, 10.0),
        ("power<10W", Measured(9.0, "W", n=5), Compliance.YES, 9.0),
        ("power<10W", Absent("no meter"), Compliance.NO, None),
    ],
)
def test_watts_are_judged_by_their_worse_end(text, found, kept, bound):
    held = _resource(client_constraints([text])[0], result(Trial(model="null"), metrics={"power_w": found}))
    assert held.kept is kept and held.found == found
    assert held.bound == (found if bound is None else Measured(bound, "W", n=5))


STEADY = np.linspace(0.010, 0.020, 1000)[np.random.default_rng(3).permutation(1000)]


@pytest.mark.parametrize(
    ("text", "x", "guide", "expected"),
    [
        ("p50<30ms", STEADY, 1.0, (Compliance.YES, True, True, True)),
        ("p50<9ms", STEADY, 1.0, (Compliance.NO, True, True, True)),
        ("p99<30ms", STEADY[:120], 1.0, (Compliance.PERHAPS, False, True, True)),  # too few for its bound
        ("p99<30ms", STEADY[:120], 1.6, (Compliance.PERHAPS, False, False, True)),
        ("p99<20ms", STEADY[:120], 1.6, (Compliance.PERHAPS, True, False, True)),
        (
            "p99<30ms",
            STEADY[:99],
            0.5,
            (Compliance.PERHAPS, False, True, False),
        ),  # not even one beyond the quantile
        ("p99<30ms", STEADY[:100], 0.5, (Compliance.PERHAPS, False, True, True)),
        ("p99<1s", STEADY[:0], 1.0, (Compliance.NO, True, True, True)),
    ],
)
def test_a_latency_is_judged_by_its_bound_and_else_by_what_is_to_be_expected(text, x, guide, expected):
    constraint = client_constraints([text])[0]
    held = _latency(constraint, x, constraint.quantile, guide)
    assert (held.kept, held.clear, held.likely, held.whole) == expected
    if not len(x):
        assert held.found == held.bound == Absent("no query succeeded")
    else:
        q = constraint.quantile if held.whole else 1.0
        assert held.found.value == pytest.approx(np.quantile(x, q)) and held.found.n == len(x)
        at = held.found.value * max(1.0, guide) if held.kept is Compliance.PERHAPS else 0.0
        assert held.expected == pytest.approx(at)


def held(kept, clear=True):
    return Held(client_constraints(["p99<1s"])[0], Absent(""), Absent(""), kept, clear)


YES, NO, PERHAPS = Compliance.YES, Compliance.NO, Compliance.PERHAPS


@pytest.mark.parametrize(
    ("parts", "grows", "found"),
    [
        ([held(YES)], False, (YES, True)),
        ([held(YES), held(PERHAPS)], False, (PERHAPS, True)),
        ([held(PERHAPS), held(PERHAPS, False)], False, (PERHAPS, False)),
        ([held(NO, False), held(PERHAPS)], False, (NO, False)),
        ([held(NO, False), held(NO)], False, (NO, True)),
        ([held(NO, False)], True, (NO, True)),
        ([held(YES)], True, (NO, True)),
        ([], False, (YES, True)),
    ],
)
def test_all_promises_together_are_as_good_as_the_worst(parts, grows, found):
    assert _together(parts, grows) == found


def ms(value, **keys):
    return Measured(value / 1e3, "s", n=50, **keys)


@pytest.mark.parametrize(
    ("text", "found", "bound", "keys", "said"),
    [
        ("p99<40ms", ms(31.2), ms(33), {}, "p99 31.2 ms (bound 33 ms) < 40 ms"),
        ("p99<=40ms", ms(31.2), ms(41), {}, "p99 31.2 ms (bound 41 ms) > 40 ms"),
        ("p99<40ms", ms(31.2), ms(40), {"whole": False}, "the slowest of 50 queries 31.2 ms (bound 40 ms) > 40 ms"),
        ("p99<40ms", ms(31.2), Absent("n/a: have 50, need 459"), {},
         "p99 31.2 ms < 40 ms, no bound (have 50 independent queries, need 459)"),
        ("p99<40ms", ms(41), Absent("n/a: have 5, need 459"), {},
         "p99 41 ms > 40 ms, no bound (have 5 independent queries, need 459)"),
        ("p99<40ms", ms(31.2), Absent("n/a"), {"likely": False, "expected": 0.05},
         "p99 31.2 ms of 40 ms, and a bound of some 50 ms is to be expected"),
        ("p99<40ms", ms(31.2), Absent("n/a"), {"likely": False, "expected": 0.0312},
         "p99 31.2 ms < 40 ms, no bound (n/a)"),
        ("power<10W", Measured(9.0, "W"), Measured(9.5, "W"), {}, "power 9 W < 10 W"),
        ("power<10W", Absent("no meter"), Absent("no meter"), {}, "power<10W cannot be judged: no meter"),
    ],
)  # fmt: skip
def test_a_promise_in_words(text, found, bound, keys, said):
    assert words(Held(client_constraints([text])[0], found, bound, Compliance.PERHAPS, **keys)) == said
