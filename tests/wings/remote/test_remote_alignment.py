import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.remote.wire import Offset, clock_facts, offset

TIMES = st.floats(1e-5, 0.2)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=8), st.floats(-1e6, 1e6))
@pytest.mark.slow
def test_the_true_offset_is_within_the_uncertainty(ways, true):
    """Ways there and back of any length, however unequal."""
    pings, now = [], 1000.0
    for there, back in ways:
        pings.append((now, now + there + true, now + there + back))
        now += there + back + 0.01
    found = offset(pings)
    assert abs(found.offset_s - true) <= found.uncertainty_s + 1e-6
    assert found.uncertainty_s == pytest.approx(min(a + b for a, b in ways) / 2)


def test_there_must_be_one():
    with pytest.raises(ValueError):
        offset([])


def test_a_drift_is_told_only_where_it_exceeds_what_is_not_known():
    first = Offset(0.0, 10.0, 0.001, 8)
    assert clock_facts(first, None)["drift_ppm"] == {"absent": "the clocks were compared once only"}
    still = clock_facts(first, Offset(100.0, 10.0015, 0.001, 8))
    assert still["drift_ppm"] == {"absent": "below 20 ppm: the change is within the uncertainty"}
    moved = clock_facts(first, Offset(100.0, 10.01, 0.001, 8))
    assert moved["drift_ppm"] == pytest.approx(100.0)
    assert (moved["offset_to_host_s"], moved["offset_to_host_after_s"]) == (10.0, 10.01)
