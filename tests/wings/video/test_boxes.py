"""Two sets of detections of the same frames: what matches, what does not, and how sure that is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.base import Detections
from edgescope.wings.video.workload import matched_share


def frame(*rows):
    """Detections of (x1, y1, x2, y2, score, class)."""
    table = np.array(rows, dtype=np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int64))


def some(seed, n=30):
    rng = np.random.default_rng(seed)
    frames = []
    for count in rng.integers(0, 4, n):
        low = 100 * np.arange(count)[:, None] + rng.uniform(0, 20, (count, 2))
        boxes = np.hstack([low, low + rng.uniform(20, 60, (count, 2))])
        scores = np.sort(rng.random(count))[::-1]
        frames.append(frame(*np.hstack([boxes, scores[:, None], np.zeros((count, 1))])))
    return frames


@settings(max_examples=20, deadline=None)  # each draws a thousand sets for an interval
@given(st.integers(0, 2**32 - 1))
def test_a_set_is_the_same_as_itself(seed):
    frames = some(seed, 6)
    assert matched_share(frames, frames).value == 1


def test_matches_counted_by_hand():
    theirs = [frame((0, 0, 10, 10, 0.9, 0), (50, 50, 60, 60, 0.8, 1)), frame((0, 0, 10, 10, 0.9, 0))]
    ours = [
        frame((0, 0, 10, 8, 0.9, 0), (50, 50, 60, 60, 0.8, 2)),  # a little smaller; another class
        frame((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 9, 0.5, 0)),  # the better of two takes the match
    ]
    assert matched_share(ours, theirs).value == pytest.approx(4 / 7)
    assert matched_share(ours, theirs, iou=0.9).value == pytest.approx(2 / 7)


def test_the_interval_takes_the_boxes_of_a_frame_together():
    theirs = some(1, 60)
    ours = [frame() if i % 10 == 0 else found for i, found in enumerate(theirs)]
    found = matched_share(ours, theirs)
    assert found.n_eff <= 60 and found.lo < found.value < found.hi <= 1.0


def test_frames_without_boxes_are_alike_and_as_many_are_needed():
    assert matched_share([frame()] * 3, [frame()] * 3).value == 1
    with pytest.raises(ValueError):
        matched_share([frame()], [])


def squares(*rows):
    """Detections of (x, y, class): squares of 10."""
    return frame(*((x, y, x + 10, y + 10, 0.9, kind) for x, y, kind in rows))


def test_the_share_counts_what_either_lacks_and_a_box_once_and_only_for_its_class():
    def share(ours, theirs):
        return matched_share([squares(*ours)], [squares(*theirs)]).value

    assert share([(0, 0, 1), (1, 0, 1)], [(0, 0, 1)]) == pytest.approx(2 / 3)
    assert share([(0, 0, 1)], [(0, 0, 2)]) == 0
    assert share([(0, 0, 1)], [(4, 0, 1)]) == 0  # 6 x 10 of 14 x 10
    assert share([(0, 0, 1)], [(3, 0, 1)]) == 1
    assert share([], []) == 1 and share([], [(0, 0, 1)]) == 0
    both = matched_share([squares((0, 0, 1), (50, 0, 1)), squares()], [squares((0, 0, 1)), squares()])
    assert both.value == pytest.approx((2 + 1) / (3 + 1))


def test_the_share_of_sets_of_different_lengths_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        matched_share([squares()], [])


def test_a_box_that_is_half_the_same_is_the_same_and_without_a_limit_the_class_alone_counts():
    whole, half = frame((0, 0, 10, 10, 0.9, 0)), frame((0, 0, 10, 5, 0.9, 0))
    assert matched_share([whole], [half]).value == 1
    assert matched_share([whole], [frame((0, 0, 10, 4.9, 0.9, 0))]).value == 0
    assert matched_share([whole], [half], iou=0.51).value == 0
    far = frame((50, 50, 60, 60, 0.9, 0), (70, 50, 80, 60, 0.9, 1))
    assert matched_share([whole], [far], iou=0.0).value == pytest.approx(2 / 3)
