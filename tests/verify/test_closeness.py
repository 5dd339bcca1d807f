"""How far outputs lie from fp32's, counted by hand."""

import math

import numpy as np
import pytest

from edgescope.verify.measures import Closeness, centred_l2, rank_agreement


def test_the_distance_is_the_worst_outputs_share_of_what_inputs_change():
    wanted = np.array([[0.0, 4.0], [6.0, 4.0]])  # 3 from its mean in each row
    got = np.array([[1.0, 4.0], [6.0, 2.0]])
    assert centred_l2((got,), (wanted,)) == pytest.approx(math.sqrt(5) / math.sqrt(18))
    assert centred_l2((wanted, got), (wanted, wanted)) == centred_l2((got,), (wanted,))
    flat = np.ones((2, 3))
    assert centred_l2((flat,), (flat,)) == 0.0 and centred_l2((flat + 1,), (flat,)) == math.inf
    with pytest.raises(ValueError):
        centred_l2((wanted,), (wanted, wanted))


def test_order_is_the_worst_outputs_share_of_pairs_and_equal_ones_do_not_count():
    wanted = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [3.0, 5.0]])  # five pairs differ in the first
    swapped = wanted[[1, 0, 2, 3]]
    assert rank_agreement((swapped,), (wanted,)) == pytest.approx(4 / 5)
    assert rank_agreement((wanted, swapped), (wanted, wanted)) == pytest.approx(4 / 5)
    assert rank_agreement((swapped[:, 1:],), (wanted[:, 1:],)) == 1.0  # nothing to order
    assert rank_agreement((np.zeros((4, 2)),), (wanted,)) == 0.0


@pytest.mark.parametrize(("row", "seen"), [(0, True), (63, True), (64, False)])
def test_the_first_64_inputs_are_ordered(row, seen):
    wanted = np.arange(70.0)[:, None]
    got = wanted.copy()
    got[row] = 35.5
    assert (rank_agreement((got,), (wanted,)) < 1) is seen


@pytest.mark.parametrize(
    ("size", "element", "seen"),
    [(3999, 1, True), (4000, 1, False), (4000, 2, True), (6000, 2, False), (6000, 3, True)],
)
def test_some_two_thousand_elements_are_ordered_all_of_a_smaller_output(size, element, seen):
    wanted = np.tile(np.arange(3.0)[:, None], (1, size))
    got = wanted.copy()
    got[:, element] = 0.0
    assert (rank_agreement((got,), (wanted,)) < 1) is seen


def test_as_a_measure_more_is_better_and_any_inputs_may_be_asked_for():
    wanted = (np.array([[0.0], [1.0], [5.0]]),)
    ours = (np.array([[0.0], [1.0], [0.5]]),)
    ranks, distance = Closeness(wanted, ranks=True), Closeness(wanted, ranks=False)
    tally = ranks.tally([ours[0].tolist()], slice(0, 1))
    assert [part.tolist() for part in tally] == [ours[0].tolist()]
    first, every = np.array([0, 1]), np.arange(3)
    assert (ranks.value(tally, first), ranks.value(tally, every)) == (1.0, pytest.approx(2 / 3))
    assert str(distance.value(tally, first)) == "0.0" and distance.value(tally, every) == pytest.approx(
        -4.5 / math.sqrt(14)
    )
