"""How many records calibrate and how many judge, copies and inputs under two labels."""

import pytest

from edgescope.data.base import Found, Record, digest_of, some
from edgescope.data.samples import split
from edgescope.errors import UsageError


def record(content, label=None):
    return Record(f"{content}", lambda: f"{content:04d}", dict, label)


def names(side):
    return [int(r.name) for r in side]


@pytest.mark.parametrize(
    ("total", "ranges"),
    [(2, 1), (3, 1), (7, 1), (8, 2), (383, 95), (384, 96), (387, 96), (400, 96), (1000, 96)],
)
def test_a_quarter_calibrates_and_at_most_ninety_six(total, ranges):
    parts = split([record(i) for i in reversed(range(total))], "x")
    assert names(parts.calibration) == list(range(ranges))
    assert names(parts.judged) == list(range(ranges, total))
    assert (parts.copies, parts.doubtful) == (0, 0)


@pytest.mark.parametrize(("bare", "ranges"), [(1, [0, 1]), (2, [6, 7]), (3, [5, 6])])
def test_those_without_a_label_calibrate_where_there_are_enough(bare, ranges):
    parts = split([record(i, 1 if i < 8 - bare else None) for i in range(8)], "x")
    assert names(parts.calibration) == ranges
    assert names(parts.judged) == [i for i in range(8) if i not in ranges]


def test_copies_count_once_and_inputs_under_two_labels_not_at_all():
    given = [
        record(0, 1),
        record(1),
        record(1),
        record(1, 2),
        record(2, 1),
        record(2, 2),
        record(3),
        record(3),
    ]
    parts = split(given, "x")
    assert names(parts.calibration) == [3] and names(parts.judged) == [0, 1]
    assert [r.label for r in parts.judged] == [1, 2]  # of copies the one with a label
    assert (parts.copies, parts.doubtful) == (2 + 1, 1)


@pytest.mark.parametrize(
    ("given", "what", "evidence"),
    [
        ([], "x holds 0 inputs", "0 records, 0 "),
        ([record(0), record(0)], "x holds 1 input ", "2 records, 1 "),
        ([record(0), record(1, 1), record(1, 2)], "x holds 1 input ", "3 records, 2 "),
    ],
)
def test_two_different_records_are_the_least(given, what, evidence):
    with pytest.raises(UsageError) as caught:
        split(given, "x")
    assert caught.value.code == "E-DATASET-2"
    assert caught.value.what.startswith(what) and caught.value.evidence.startswith(evidence)


@pytest.mark.parametrize(
    ("total", "most", "kept"),
    [
        (3, 5, [0, 1, 2]),
        (5, 5, [0, 1, 2, 3, 4]),
        (6, 3, [0, 2, 4]),
        (5, 3, [0, 1, 3]),
        (7, 1, [0]),
        (0, 3, []),
    ],
)
def test_an_even_selection_is_read(total, most, kept):
    assert names(some([record(i) for i in range(total)], most)) == kept


def test_a_pin_covers_names_labels_classes_and_contents():
    def pin(*records, classes=()):
        return digest_of(Found(records, classes))

    plain = pin(record(0), record(1))
    assert len(plain) == 12 and plain == pin(record(0), record(1))
    other = Record("0", lambda: "other", dict)
    pins = {plain, pin(record(0, 0), record(1)), pin(record(1), record(0)), pin(other, record(1))}
    assert len(pins | {pin(record(0), record(1), classes=("a",))}) == 5


def test_zero_is_a_label():
    assert record(0, 0).truth == "0" and record(0).truth == ""
