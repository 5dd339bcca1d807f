"""Suppression of overlapping boxes: every version is the definition, and groups do not collide."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.models.boxes import by_element, groups, overlap, suppressed


def some_boxes(seed, n=40, kinds=3):
    """Boxes on a coarse grid, so that equal overlaps, equal scores and touching sides occur."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 12, (n, 2)).astype(float)
    boxes = np.hstack([low, low + rng.integers(0, 8, (n, 2))])
    return boxes, rng.integers(0, 10, n) / 10, rng.integers(0, kinds, n)


def defined(boxes, scores, of, threshold):
    """A box is kept unless a better one that is kept, of its group, overlaps it by more than the threshold."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    kept = []
    for i in order:
        rivals = [k for k in kept if of[k] == of[i]]
        if not any(overlap(tuple(boxes[i]), tuple(boxes[k])) > threshold for k in rivals):
            kept.append(i)
    return kept


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0]))
@pytest.mark.slow
def test_every_version_is_the_definition(seed, threshold):
    import torch

    from edgescope.models.boxes import suppressed_on_device

    boxes, scores, of = some_boxes(seed)
    wanted = defined(boxes, scores, of, threshold)
    assert suppressed(boxes, scores, threshold, of).tolist() == wanted
    assert by_element([tuple(b) for b in boxes.tolist()], scores.tolist(), of.tolist(), threshold) == wanted
    given = [torch.from_numpy(np.asarray(x)) for x in (boxes, scores)]
    assert suppressed_on_device(*given, threshold, torch.from_numpy(of)).tolist() == wanted


def test_overlap_counted_by_hand():
    assert overlap((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert overlap((0, 0, 2, 2), (2, 0, 4, 2)) == 0.0
    assert overlap((0, 0, 0, 0), (0, 0, 0, 0)) == 0.0


@given(st.integers(1, 90), st.integers(1, 9))
def test_no_two_pairs_of_class_and_image_share_a_group(count, images):
    pairs = [(kind, image) for kind in range(count) for image in range(images)]
    assert len({groups(kind, image, count) for kind, image in pairs}) == len(pairs)


def test_the_product_of_class_and_image_collides():
    """Class 2 of image 3 and class 3 of image 2 have one product: the better box drops the other's."""
    boxes, scores = np.array([[0, 0, 10, 10], [0, 0, 10, 10]], float), np.array([0.9, 0.8])
    classes, images = np.array([2, 3]), np.array([3, 2])
    assert len(suppressed(boxes, scores, 0.5, classes * images)) == 1
    assert len(suppressed(boxes, scores, 0.5, groups(classes, images, 81))) == 2


def test_no_boxes_are_no_error():
    import torch

    from edgescope.models.boxes import suppressed_on_device

    assert suppressed(np.zeros((0, 4)), np.zeros(0), 0.5).tolist() == []
    empty = torch.zeros(0, 4), torch.zeros(0), 0.5, torch.zeros(0, dtype=torch.int64)
    assert suppressed_on_device(*empty).tolist() == []
    assert by_element([], [], [], 0.5) == []
