"""What the runs of a search say together: the most that was confirmed, and the least above it that missed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.errors import Message
from edgescope.records import Absent, Measured, Queries, Trial, Trust, Verdict, Window
from edgescope.wings.capacity.answer import answer, doubts
from edgescope.wings.capacity.question import Compliance, Held, Point, Question, client_constraints
from edgescope.wings.capacity.search import Edge, Tried, edge, following
from making import queries, result

ASKED = Question(Trial(model="null"), 15.0, client_constraints(["p99<40ms"]))
NONE = Absent("x")


def point(clients, kept, stage="search", seconds=5.0, weaker=False, likely=True):
    held = Held(ASKED.constraints[0], NONE, NONE, kept, likely=likely)
    return Point(
        clients, stage, result(), seconds, 1.0, NONE, NONE, NONE, (held,), kept, True, "", weaker=weaker
    )


YES, NO, PERHAPS = Compliance.YES, Compliance.NO, Compliance.PERHAPS
RATE = Measured(100.0, "queries/s")


def test_only_confirmed_numbers_count_and_the_largest_of_them():
    runs = [point(5, YES), point(3, YES, "confirm"), point(4, YES, "confirm"), point(6, NO, "confirm")]
    found = answer(ASKED, runs, RATE, [Message("W-A-1", "said")])
    assert (found.clients, found.confirmed, found.above) == (4, runs[2], runs[3])
    assert (
        found.points == tuple(runs)
        and found.warnings == (Message("W-A-1", "said"),)
        and found.throughput is RATE
    )
    none = answer(ASKED, [point(1, NO, "confirm")], RATE)
    assert (none.clients, none.confirmed, none.above.clients) == (0, None, 1)
    assert answer(ASKED, [point(9, YES, "confirm")], RATE).above is None


def test_the_miss_that_counts_is_the_least_above_confirmed_before_searched_and_longer_before_shorter():
    ours = point(4, YES, "confirm")
    five = [
        point(5, NO),
        point(5, NO, seconds=9.0),
        point(5, NO, "confirm", 3.0),
        point(5, NO, "confirm", 30.0),
    ]
    assert answer(ASKED, [ours, point(6, NO), *five], RATE).above is five[3]
    assert answer(ASKED, [ours, point(6, NO, "confirm"), *five[:2]], RATE).above is five[1]
    assert answer(ASKED, [ours, point(4, NO), point(3, NO)], RATE).above is None


def test_a_run_that_may_fit_is_a_miss_only_where_it_was_to_confirm():
    ours, unsure = point(4, YES, "confirm"), point(5, PERHAPS)
    assert answer(ASKED, [ours, unsure], RATE).above is None
    confirming = point(5, PERHAPS, "confirm")
    assert answer(ASKED, [ours, unsure, confirming], RATE).above is confirming
    unlikely = point(5, PERHAPS, likely=False)
    assert answer(ASKED, [ours, unlikely], RATE).above is unlikely
    weaker = point(5, PERHAPS, "confirm", weaker=True)
    assert answer(ASKED, [ours, weaker], RATE).clients == 5


@pytest.mark.parametrize(
    ("tried", "found"),
    [
        ([], Edge(0, None)),
        ([(3, True)], Edge(3, None)),
        ([(3, False)], Edge(0, 3)),
        ([(3, True), (5, False)], Edge(3, 5)),
        ([(3, True), (5, False, False)], Edge(3, 5, True)),
        ([(5, False, False), (5, False, False)], Edge(0, 5)),  # twice is clear
        ([(5, False), (5, True)], Edge(5, None)),  # a number that fitted once fits
        ([(5, False, False), (7, True)], Edge(7, None)),  # noise below what fits
        ([(5, False), (7, True), (3, True)], Edge(3, 5)),  # a clear miss is none
        ([(5, False, False), (7, True), (9, False)], Edge(7, 9)),
    ],
)
def test_where_the_edge_is_by_these_runs(tried, found):
    assert edge([Tried(*t) for t in tried]) == found
    assert Edge(4, 5).adjacent and not Edge(3, 5).adjacent and not Edge(3).adjacent


@pytest.mark.parametrize(
    ("tried", "estimate", "following_"),
    [
        ([], 0, 1),
        ([], 70, 70),
        ([], 700, 500),
        ([(100, True)], 100, 105),  # one twentieth of the estimate
        ([(100, True), (105, True)], 100, 110),
        ([(100, True), (105, True), (110, True)], 100, 120),  # then twice as far
        ([(100, True), (105, True), (110, True), (120, True)], 100, 140),
        ([(5, True)], 5, 6),
        ([(499, True)], 499, 500),
        ([(500, True)], 400, None),
        ([(100, False)], 100, 95),
        ([(100, False), (95, False)], 100, 90),
        ([(100, False), (95, False), (90, False)], 100, 80),
        ([(3, False), (2, False)], 60, 1),
        ([(10, True), (20, False)], 10, 15),
        ([(10, True), (13, False)], 10, 11),
        ([(10, True), (11, False)], 10, None),
        ([(10, True), (11, False, False)], 10, 11),
    ],
)
def test_the_next_number_to_try(tried, estimate, following_):
    assert following([Tried(*t) for t in tried], estimate, 500) == following_


def crew(*each_ms, trust=Trust.CLEAN, constraints="p99<40ms", processes=None):
    """A run of one worker for each list of latencies in milliseconds, judged on one constraint."""
    worker = np.concatenate([np.full(len(ms), n) for n, ms in enumerate(each_ms)]).astype(np.int16)
    took = np.round(np.concatenate(each_ms) * 1e6).astype(np.int64)
    due = np.arange(len(took), dtype=np.int64) * 1000
    columns = queries(len(took)).columns | {"worker": worker, "scheduled_ns": due, "issued_ns": due}
    run = result(
        Trial(model="null", backend="null", processes=processes or len(each_ms)),
        queries=Queries(columns | {"done_ns": due + took}),
        window=Window(0, len(took), 0, 10**9),
        verdict=Verdict(trust, ("one", "two", "three")),
    )
    held = tuple(Held(p, NONE, NONE, YES, likely=True) for p in client_constraints([constraints]))
    return replace(point(4, YES, "confirm"), result=run, held=held)


def doubted(confirmed, above=None):
    return [w.code for w in doubts(SimpleNamespace(confirmed=confirmed, above=above))]


FAST, DISTURBED = [10.0] * 100, {"trust": Trust.DISTURBED}


def test_the_run_that_counts_is_the_confirmed_one_else_the_one_above():
    assert doubted(None) == [] and doubted(crew(FAST)) == []
    assert doubted(crew(FAST), crew(FAST, **DISTURBED)) == []
    assert doubted(crew(FAST, **DISTURBED)) == doubted(None, crew(FAST, **DISTURBED)) == ["W-CAP-3"]
    assert doubted(replace(crew(FAST, **DISTURBED), held=())) == []
    (told,) = doubts(SimpleNamespace(confirmed=crew(FAST, **DISTURBED), above=None))
    assert "one; two" in str(told) and "three" not in str(told)


@pytest.mark.parametrize(
    ("second", "constraints", "told"),
    [
        (FAST, "p99<40ms", []),
        ([50.0] * 100, "p99<40ms", ["W-CAP-4"]),
        ([40.0] * 100, "p99<40ms", ["W-CAP-4"]),
        ([40.0] * 100, "p99<=40ms", []),
        ([50.0] * 99, "p99<40ms", []),  # not one of its own lies beyond p99
        ([50.0] * 2, "p50<40ms", ["W-CAP-4"]),  # two times one half is one
        ([50.0], "p50<40ms", []),
        ([10.0] * 98 + [50.0] * 2, "p99<40ms", ["W-CAP-4"]),
        ([10.0] * 98 + [50.0] * 2, "p50<40ms", []),
        ([50.0] * 100, "memory<=2GB", []),
    ],
)
def test_each_client_of_its_own_process_is_judged_by_its_own_tail(second, constraints, told):
    assert doubted(crew(FAST, second, constraints=constraints)) == told
    assert doubted(crew(second, FAST, constraints=constraints)) == told
    assert doubted(crew(second, FAST, constraints=constraints, processes=1)) == [], "all clients share one"
    if told == ["W-CAP-4"]:
        both = doubted(crew(FAST, second, constraints=constraints, **DISTURBED))
        assert both == ["W-CAP-3", "W-CAP-4"]
        assert doubted(None, crew(FAST, second, constraints=constraints)) == []


def test_clients_with_too_few_queries_each_are_not_judged_one_by_one():
    for constraints in ("p99<40ms", "p99<1s"):
        assert doubted(crew([50.0] * 99, [50.0] * 99, constraints=constraints)) == []
