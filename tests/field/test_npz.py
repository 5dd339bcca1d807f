"""Arrays of labels in the forms that Keras, scikit-learn and others give them."""

import numpy as np
import pytest

from edgescope.data import opening
from edgescope.data.samples import number
from edgescope.errors import UsageError
from edgescope.verify.measures import TopK

NUMBERS = np.arange(24) % 3
INPUTS = np.random.default_rng(0).random((24, 3, 8, 8), dtype=np.float32)


def read(labels, **others):
    return opening.rows({"x": INPUTS, "labels": labels, **others}, "d.npz")


@pytest.mark.parametrize(
    "labels",
    [
        NUMBERS,
        NUMBERS.astype(np.uint8),
        NUMBERS.astype(np.float32),
        NUMBERS[:, None],
        NUMBERS[:, None, None],
        NUMBERS[:, None].astype(np.float64),
        np.eye(3, dtype=np.int64)[NUMBERS],
        np.eye(3, dtype=np.float32)[NUMBERS],
        np.eye(3, dtype=bool)[NUMBERS],
        NUMBERS.astype(str),
        np.array([f"{n}.0" for n in NUMBERS]),
        np.array([b"%d" % n for n in NUMBERS]),
    ],
)
def test_numbers_in_every_form(labels):
    found = read(labels)
    assert [number(r, found) for r in found.records] == NUMBERS.tolist()
    assert all(r.classes is None for r in found.records)


def test_names_are_classes():
    found = read(np.array(["b", "a", "c"])[NUMBERS])
    assert found.classes == ("a", "b", "c") and [number(r, found) for r in found.records[:3]] == [1, 0, 2]


@pytest.mark.parametrize("shape", [(24, 8, 8), (24, 1, 8, 8), (24, 8, 8, 1)])
def test_maps_of_classes_with_or_without_a_channel(shape):
    found = read(np.zeros(shape, np.int64))
    assert found.records[0].classes().shape == (8, 8) and found.records[0].label is None


def test_labels_that_are_no_classes_are_said_so_and_top_k_says_why():
    several = np.random.default_rng(1).integers(0, 2, (24, 5))
    found = read(several)
    assert any("neither class numbers, one-hot nor maps" in note for note in found.notes)
    with pytest.raises(ValueError, match="shape"):
        TopK(several).tally([np.zeros((24, 5))], slice(0, 24))


def test_one_row_of_two_ones_makes_labels_no_classes():
    labels = np.eye(3, dtype=np.int64)[NUMBERS]
    labels[5] = 1, 1, 0
    assert read(labels).notes and read(labels).records[0].classes is not None


@pytest.mark.parametrize("labels", [np.linspace(0, 1, 24), np.full(24, np.nan), np.full(24, 1 + 2j)])
def test_labels_that_are_no_numbers_are_refused(labels):
    with pytest.raises(UsageError) as error:
        read(labels)
    assert error.value.code == "E-DATASET-11"


@pytest.mark.parametrize("boxes", [np.zeros((24, 5)), np.zeros((24, 2, 4)), np.zeros((24, 2, 7))])
def test_boxes_of_another_form_are_refused(boxes):
    with pytest.raises(UsageError) as error:
        opening.rows({"x": INPUTS, "boxes": boxes}, "d.npz")
    assert error.value.code == "E-DATASET-11"


def test_a_loader_with_labels_of_one_column_is_read_as_numbers(tmp_path):
    batches = [(INPUTS[i : i + 6], NUMBERS[i : i + 6, None]) for i in range(0, 24, 6)]
    found = opening.read(opening.name_of(batches))
    assert [r.label for r in found.records] == NUMBERS.tolist()
