"""The parts of a unit, each by its median."""

import pytest

from edgescope.analysis.run import summary
from edgescope.records import UNIT, Absent, Spans

MS = 1_000_000


def test_each_part_has_its_median_and_a_unit_another_name():
    rows = [(UNIT, i, 0, 10 * MS) for i in range(3)]
    rows += [("decode", i, MS, (2 + i) * MS) for i in range(3)]
    found = summary.of_spans(Spans.of("stage", rows))
    assert set(found) == {"phased_latency_s", "decode_s"}
    assert (found["decode_s"].value, found["decode_s"].n) == (pytest.approx(0.002), 3)
    assert found["phased_latency_s"].value == pytest.approx(0.010)


def test_a_part_without_spans_is_absent():
    found = summary.of_spans(Spans.of("phase", [("a", i, 0, MS) for i in range(3)], ["a", "h2d"]))
    assert isinstance(found["h2d_s"], Absent) and found["a_s"].value == pytest.approx(0.001)
    assert summary.of_spans(Spans.none()) == {}
