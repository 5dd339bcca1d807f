"""Labels that are not the network's own: beyond its classes, or one off."""

import re

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.verify import reference

CYCLE = np.arange(200) % 4


def answered(classes, of=10):
    """Scores whose highest class is the given one."""
    return np.eye(of)[classes]


def shifted(share, by=1, given=0):
    """Labels 0 to 3, of which so many of 200 are answered `by` beside them and `given` as they are."""
    told = np.full(200, 9)
    told[:share] = CYCLE[:share] + by
    told[share : share + given] = CYCLE[share : share + given]
    return answered(told)


@pytest.mark.parametrize("by", [1, -1])
def test_labels_that_fit_better_one_class_on_are_shifted(by):
    with pytest.raises(UsageError) as raised:
        reference.check_labels(answered(CYCLE + 1 + by), CYCLE + 1, "net")
    error = raised.value
    assert error.code == "E-LABEL-2" and "10 classes of net" in error.what
    assert re.fullmatch(rf"fp32 .* 0/200 as .* 200/200 with .* {re.escape(f'{by:+d}')}", error.evidence)
    assert f"label_offset={by}," in error.fix


@pytest.mark.parametrize(
    ("share", "given", "refused"),
    [(63, 0, True), (62, 0, False), (80, 50, True), (69, 50, False)],
    ids=["above chance", "the commonest label", "above as given", "as given may be as good"],
)
def test_shifted_labels_are_surely_better_than_the_given_and_than_chance(share, given, refused):
    """A quarter of the labels is of each class; the interval of 63 of 200 lies above it, that of 62 does not."""
    try:
        reference.check_labels(shifted(share, given=given), CYCLE, "net")
    except UsageError as error:
        assert refused and error.code == "E-LABEL-2"
    else:
        assert not refused


def test_the_chance_of_two_classes_is_a_half():
    """Nobody can be told from a guess who is right on 57 % of 200."""
    told = np.zeros(200, dtype=int)
    told[:114] = 1
    reference.check_labels(answered(told, of=2), np.zeros(200, dtype=int), "net")


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (answered(CYCLE + 1), None),
        (answered(CYCLE + 1)[:, :, None], CYCLE),
        (answered(CYCLE + 1), CYCLE[:, None]),
        (answered(CYCLE + 1), CYCLE[:-1]),
    ],
    ids=["none", "maps", "labels of rows", "another number"],
)
def test_what_is_no_classifiers_is_not_checked(answer, given):
    reference.check_labels(answer, given, "net")


def test_labels_beyond_the_classes_are_counted_and_shown():
    given = CYCLE.copy()
    reference.check_labels(answered(given, of=4), given, "net")  # 0 to 3 of four classes
    given[:8] = [4, 9, -1, 12, 4, 7, 30, -5]
    with pytest.raises(UsageError) as raised:
        reference.check_labels(answered(CYCLE, of=4), given, "net")
    error = raised.value
    assert error.code == "E-LABEL-1" and error.what.startswith("8 of 200 labels") and "net" in error.what
    assert error.evidence == "it has 4: 0 to 3; found -5, -1, 4, 7, 9"
