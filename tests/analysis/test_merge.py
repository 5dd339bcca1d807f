"""The figures of several workers become one as metrics.toml says, and are absent where it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.run.workers import merge, merged
from edgescope.records import Absent, Measured

NONE = Absent("no epoch ended")


def frames(value, n=1):
    return Measured(value, "frames", n=n)


def seconds(value, n=1, lo=None, hi=None):
    return Measured(value, "s", lo, hi, n)


@pytest.mark.parametrize(
    ("name", "each", "wanted"),
    [
        ("frames", [frames(14.0, 14), frames(12.0, 6)], frames(26.0, 20)),
        ("frames_dropped", [frames(0.0, 9), frames(3.0, 12)], frames(3.0, 21)),
        ("log_busy_s", [seconds(0.01, 1), seconds(0.04, 2)], seconds(0.03, 3)),
        ("stall_share", [seconds(0.5, 0), seconds(0.7, 0)], seconds(0.6, 0)),
        ("epoch_later_s", [seconds(1.0, 1, 0.5, 2.0), seconds(4.0, 2, 3.5, 5.0)], seconds(3.0, 3, 2.5, 4.0)),
        ("epoch_later_s", [seconds(1.0, 1), seconds(4.0, 2, 3.5, 5.0)], seconds(3.0, 3)),
        ("load_s", [seconds(1.0), seconds(3.0), seconds(2.0)], seconds(3.0, 3)),
        ("load_s", [seconds(1.0), NONE], seconds(1.0, 1)),
        ("epoch_later_s", [NONE, seconds(4.0, 2)], seconds(4.0, 2)),
        ("epochs", [NONE, Absent("other")], NONE),
    ],
)
def test_a_figure_is_merged_by_its_rule(name, each, wanted):
    found = merge(name, each)
    if isinstance(wanted, Absent):
        assert found == wanted
        return
    ends = [(found.value, wanted.value), (found.lo, wanted.lo), (found.hi, wanted.hi)]
    assert all(a == (b if b is None else pytest.approx(b)) for a, b in ends)
    assert (found.unit, found.n) == (wanted.unit, wanted.n)


def test_a_sum_of_which_a_part_is_unknown_is_unknown_and_names_the_worker():
    found = merge("epochs", [Measured(1.5, "epochs"), NONE])
    assert isinstance(found, Absent) and found.reason == "worker 1: no epoch ended"


def test_a_figure_that_no_rule_is_known_for_is_absent_and_not_that_of_one_worker():
    found = merged([{"own": frames(1.0)}, {"own": frames(2.0)}])["own"]
    assert isinstance(found, Absent) and "add-a-metric" in found.reason
    assert merged([{"own": frames(1.0)}]) == {"own": frames(1.0)}


def test_a_figure_that_one_worker_does_not_report_lacks_there():
    found = merged([{"frames": frames(1.0)}, {"frames": frames(2.0), "log_busy_s": seconds(0.1, 4)}])
    assert found["frames"].value == 3 and found["log_busy_s"] == seconds(0.1, 4)
    lacking = merged([{}, {"frames": frames(2.0)}])["frames"]
    assert isinstance(lacking, Absent)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 1000)), min_size=1, max_size=8))
@pytest.mark.slow
def test_merging_keeps_the_mean_between_the_smallest_and_the_largest_and_every_unit(parts):
    fields = [seconds(value, n) for value, n in parts]
    mean, total, most = (merge(name, fields) for name in ("log_busy_s", "frames", "load_s"))
    values = [value for value, _ in parts]
    assert min(values) * (1 - 1e-9) <= mean.value <= max(values) * (1 + 1e-9)
    assert mean.n == total.n == sum(n for _, n in parts)
    assert total.value == pytest.approx(sum(values)) and most.value == max(values)
    if len({value for value in values}) == 1:
        assert mean.value == pytest.approx(values[0])
