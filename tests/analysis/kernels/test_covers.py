"""Sets of time against a plain set of nanoseconds, and spans within each other against a stack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.kernels.gpu_time import own_ns
from edgescope.analysis.kernels.rows import Cover

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 20)), max_size=12)


def cover(pairs):
    start = np.array([s for s, _ in pairs], "int64")
    return Cover.of(start, start + np.array([n for _, n in pairs], "int64"))


def plain(pairs):
    return {t for s, n in pairs for t in range(s, s + n)}


def as_set(found):
    assert (found.start < found.end).all() and (found.start[1:] > found.end[:-1]).all(), "sorted, apart"
    return {t for s, e in zip(found.start.tolist(), found.end.tolist(), strict=True) for t in range(s, e)}


@given(INTERVALS, INTERVALS)
@pytest.mark.slow
def test_the_algebra_is_that_of_sets(a, b):
    one, two = cover(a), cover(b)
    assert as_set(one) == plain(a) and one.total == len(plain(a))
    assert as_set(one | two) == plain(a) | plain(b)
    assert as_set(one & two) == plain(a) & plain(b)
    assert as_set(one - two) == plain(a) - plain(b)


@given(INTERVALS, st.integers(-5, 90), st.integers(0, 40))
@pytest.mark.slow
def test_the_covered_part_of_an_interval(a, start, length):
    inside = set(range(start, start + length))
    found = cover(a).within(np.array([start]), np.array([start + length]))
    assert found.tolist() == [len(plain(a) & inside)]
    assert cover(a).holds(np.array([start])).tolist() == [start in plain(a)]


def nested(draw, start, end, depth, rows):
    rows.append((start, end))
    at = start
    while depth and at + 1 < end and draw(st.booleans()):
        begin = draw(st.integers(at, end - 1))
        stop = draw(st.integers(begin + 1, end))
        nested(draw, begin, stop, depth - 1, rows)
        at = stop


@given(st.data())
@pytest.mark.slow
def test_own_time_is_what_no_inner_span_has(data):
    rows = []
    nested(data.draw, 0, 60, 4, rows)
    rows.sort(key=lambda r: (r[0], -r[1]))
    start, end = (np.array(c, "int64") for c in zip(*rows, strict=True))
    place = np.zeros(len(rows), "int64")
    own = own_ns({"start_ns": start, "end_ns": end, "process": place, "thread": place})
    assert own.sum() == 60 and (own >= 0).all()
    stack, expected = [], [e - s for s, e in rows]
    for i, (s, e) in enumerate(rows):
        while stack and rows[stack[-1]][1] <= s:
            stack.pop()
        if stack:
            expected[stack[-1]] -= e - s
        stack.append(i)
    assert own.tolist() == expected
