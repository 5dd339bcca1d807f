"""Sets of boxes: what is the same in both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.models.base import Detections
from edgescope.video.matching import matched, overlap, pairs


def some(*rows):
    """Detections of (x, y, class): squares of 10."""
    boxes = np.array([[x, y, x + 10, y + 10] for x, y, _ in rows], dtype=np.float32).reshape(-1, 4)
    kinds = np.array([kind for *_, kind in rows], dtype=np.int64)
    return Detections(boxes, np.ones(len(rows), dtype=np.float32), kinds)


def test_a_box_counts_once_and_only_for_its_class():
    assert pairs(some((0, 0, 1), (1, 0, 1)), some((0, 0, 1))) == 1
    assert pairs(some((0, 0, 1)), some((0, 0, 2))) == 0
    assert pairs(some((0, 0, 1)), some((4, 0, 1))) == 0  # 6 x 10 of 14 x 10
    assert pairs(some((0, 0, 1)), some((3, 0, 1))) == 1
    assert pairs(some(), some((0, 0, 1))) == 0 == pairs(some((0, 0, 1)), some())


def test_the_share_counts_what_either_lacks():
    found = matched([some((0, 0, 1), (50, 0, 1)), some()], [some((0, 0, 1)), some()])
    assert found.value == pytest.approx((2 + 1) / (3 + 1))
    assert matched([some()], [some()]).value == 1.0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 2)), max_size=8))
def test_anything_matches_itself(rows):
    assert matched([some(*rows)], [some(*rows)]).value == 1.0


def test_overlap_is_intersection_over_union():
    assert overlap(some((0, 0, 0)).boxes, some((5, 0, 0)).boxes)[0, 0] == pytest.approx(50 / 150)
