"""What was offered, what was done, and the queue between: known answers, rows in any order, odd windows."""

import re
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.run.lateness import BACKLOG, backlog, in_system, warning
from edgescope.records import QUERY_DROPPED, Absent, Queries, Window
from making import queries as made

S = 1_000_000_000


def rows(due_s, done_s):
    """Queries due and done at these seconds; -1: never done."""
    done = np.array([-1 if d < 0 else round(d * S) for d in done_s], np.int64)
    columns = dict(made(len(done)).columns)
    columns |= {"scheduled_ns": (np.array(due_s) * S).astype(np.int64), "done_ns": done}
    columns["status"] = np.where(done < 0, QUERY_DROPPED, 0).astype(np.int8)
    return Queries(columns)


def test_what_is_in_the_system_when_a_query_falls_due():
    found = rows([0, 1, 2, 3], [2.5, 2.6, 2.7, 3.1])
    assert list(in_system(found)) == [0, 1, 2, 0]


def test_rates_and_backlog_of_a_queue_that_grows_by_one_a_second():
    due = np.arange(0, 100, 0.5)
    done = np.arange(1, 201, 1.0)
    found = backlog(rows(due, done), Window(0, 200, 0, 200 * S))
    assert found.fields["offered_rate_qps"].value == pytest.approx(2)
    assert found.fields["achieved_rate_qps"].value == pytest.approx(1)
    assert found.fields["backlog_growth_qps"].value == pytest.approx(1, rel=0.05)
    assert found.fields["backlog_queries"].value == pytest.approx(100, abs=2)
    assert found.behind
    told = warning(found)
    assert told.code == "W-LOAD-1" and re.search(r" 2/s .* 1/s: latency .* 0\.5 s ", told.what)


def test_the_order_of_the_rows_does_not_matter():
    """Rows of several workers stand one after another, dropped ones anywhere."""
    due, done = np.arange(0, 50, 0.25), np.arange(0, 50, 0.25) + 0.1
    done[150:] = -1
    order = np.random.default_rng(0).permutation(200)
    window = Window(0, 200, 0, 50 * S)
    straight, shuffled = backlog(rows(due, done), window), backlog(rows(due[order], done[order]), window)
    assert straight == shuffled
    assert straight.behind
    assert straight.fields["backlog_queries"].value == 49


def test_a_queue_that_is_served_is_not_behind():
    due = np.arange(0, 100, 0.5)
    assert not backlog(rows(due, due + 0.4), Window(0, 200, 0, 100 * S)).behind


@pytest.mark.parametrize("n", [0, 1, 3])
def test_of_one_moment_there_is_no_rate(n):
    found = backlog(rows([5.0] * n, [6.0] * n), Window(0, n, 0, 10 * S))
    assert set(found.fields) == set(BACKLOG)
    assert all(isinstance(field, Absent) for field in found.fields.values())
    assert not found.behind


def test_every_number_is_defined_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    assert all(f"`{name}`" in text for name in BACKLOG)


def test_a_queue_that_never_formed_does_not_grow():
    """Enough blocks, all of them 0: the growth is 0, not "have 15 blocks, need 8"."""
    found = backlog(rows(range(15), [t + 0.1 for t in range(15)]), Window(0, 15, 0, 15 * S))
    growth = found.fields["backlog_growth_qps"]
    assert (growth.value, growth.lo, growth.hi) == (0, 0, 0)
    few = backlog(rows(range(5), [t + 0.1 for t in range(5)]), Window(0, 5, 0, 5 * S))
    assert few.fields["backlog_growth_qps"] == Absent("n/a: have 5 blocks, need 8")
