"""Arrays in one file: which are inputs, what labels may look like, and what is refused."""

import re

import numpy as np
import pytest

from edgescope.data import opening
from edgescope.errors import UsageError

X = np.arange(8.0).reshape(4, 2)


def refused(arrays):
    with pytest.raises(UsageError) as caught:
        opening.rows(arrays, "folder/a.npz")
    return caught.value.code, caught.value.evidence


def labels_of(given, key="labels"):
    found = opening.rows({"x": X, key: np.asarray(given)}, "a.npz")
    return [r.label for r in found.records], found


@pytest.mark.parametrize("key", ["labels", "label", "y"])
def test_rows_are_inputs_with_labels(key):
    got, found = labels_of([3, 1, 0, 2], key)
    assert got == [3, 1, 0, 2] and all(isinstance(label, int) for label in got)
    assert [r.name for r in found.records] == [f"row {i} of a.npz" for i in range(4)]
    assert [list(r.load()["x"]) for r in found.records] == X.tolist() and list(found.records[0].load()) == [
        "x"
    ]
    assert len({r.content() for r in found.records}) == 4 and found.notes == () and found.classes == ()


def test_one_array_is_the_input_whatever_it_is_called():
    found = opening.rows({"y": X}, "a.npz")
    assert [list(r.load()["y"]) for r in found.records] == X.tolist() and found.records[0].label is None
    found = opening.rows({"y": X, "labels": np.arange(4)}, "a.npz")
    assert list(found.records[0].load()) == ["y"] and found.records[3].label == 3


@pytest.mark.parametrize(
    ("arrays", "evidence"),
    [
        ({}, "its arrays hold no rows"),
        ({"x": X, "labels": np.arange(3)}, "its arrays hold x 4, labels 3 rows"),
        ({"x": X[:0]}, "its arrays hold x 0 rows"),
        ({"x": np.float32(3)}, "its arrays hold x 0 rows"),
        ({"labels": np.arange(4), "boxes": np.zeros((4, 1, 5))}, "its arrays hold labels 4, boxes 4 rows"),
        ({"x": X, "boxes": np.zeros((4, 5))}, "boxes has shape (4, 5), not (n, most, 5)"),
        ({"x": X, "boxes": np.zeros((4, 2, 4))}, "boxes has shape (4, 2, 4), not (n, most, 5)"),
        ({"x": X, "boxes": np.zeros((4, 2, 7))}, "boxes has shape (4, 2, 7), not (n, most, 5)"),
        ({"x": X, "labels": np.array([0.5, 1, 2, 3])}, "labels holds float64, not class numbers"),
        ({"x": X, "labels": np.array([np.nan, 1, 2, 3])}, "labels holds float64, not class numbers"),
        ({"x": X, "labels": np.array([np.inf, 1, 2, 3])}, "labels holds float64, not class numbers"),
        ({"x": X, "labels": np.ones(4, complex)}, "labels holds complex128, not class numbers"),
    ],
)
def test_what_is_no_data_set(arrays, evidence):
    assert refused(arrays) == ("E-DATASET-11", evidence)


@pytest.mark.parametrize("columns", [5, 6])
def test_boxes_end_where_rows_are_not_numbers(columns):
    boxes = np.full((4, 2, columns), np.nan)
    boxes[1, 0], boxes[2] = np.arange(columns), 7
    boxes[3, 1, :-1] = 3
    found = opening.rows({"x": X, "boxes": boxes}, "a.npz")
    assert [r.boxes.tolist() for r in found.records] == [
        [],
        [list(range(columns))],
        [[7] * columns] * 2,
        [],
    ]
    assert found.records[0].boxes.dtype == np.float32 and list(found.records[0].load()) == ["x"]
    assert opening.rows({"x": X}, "a.npz").records[0].boxes is None


@pytest.mark.parametrize(
    ("given", "labels", "classes"),
    [
        ([[3], [1], [0], [2]], [3, 1, 0, 2], ()),
        ([[[3]], [[1]], [[0]], [[2]]], [3, 1, 0, 2], ()),
        ([3.0, 1.0, 0.0, 2.0], [3, 1, 0, 2], ()),
        ([[3.0], [1.0], [0.0], [2.0]], [3, 1, 0, 2], ()),
        ([True, False, True, True], [True, False, True, True], ()),
        (["b", "a", "b", "c"], ["b", "a", "b", "c"], ("a", "b", "c")),
        ([b"b", b"a", b"b", b"c"], ["b", "a", "b", "c"], ("a", "b", "c")),
        (["03", "1", "2.0", "7"], [3, 1, 2, 7], ()),
        (["3", "1", "x", "7"], ["3", "1", "x", "7"], ("1", "3", "7", "x")),
    ],
)
def test_labels_are_numbers_or_names(given, labels, classes):
    got, found = labels_of(given)
    assert got == labels and found.classes == classes and found.notes == ()
    assert [type(label) for label in got] == [type(label) for label in labels]


@pytest.mark.parametrize("kind", [int, float, bool, np.uint8])
def test_one_hot_labels_are_places_and_that_is_said(kind):
    got, found = labels_of(np.eye(4, dtype=kind)[[2, 0, 1, 3]], "y")
    assert got == [2, 0, 1, 3]
    assert found.notes == ("y of shape (4, 4) are one-hot: the place of the 1 is the class",)
    assert labels_of(np.eye(2, dtype=kind)[[1, 0, 1, 1]])[0] == [1, 0, 1, 1]


@pytest.mark.parametrize(
    "given",
    [
        [[1, 0], [0, 1], [1, 1], [0, 1]],
        [[1, 0], [0, 1], [0, 0], [0, 1]],
        [[2, -1], [0, 1], [1, 0], [0, 1]],
        [[0, 2], [1, 0], [0, 1], [1, 0]],
        [["a", "b"]] * 4,
        np.full((4, 2, 2), "a"),
        np.ones((4, 2, 2, 2), int),
    ],
)
def test_labels_that_are_neither_numbers_nor_maps_are_left_to_a_measure_of_ones_own(given):
    _, found = labels_of(given)
    shape = np.shape(given)
    said = f"labels of shape {shape} are neither class numbers, one-hot nor maps of classes"
    assert found.notes == (f"{said}: only a measure of your own can read them",)
    assert found.records[2].classes().tolist() == np.asarray(given)[2].tolist()


@pytest.mark.parametrize("shape", [(4, 2, 3), (4, 2, 3, 1), (4, 1, 2, 3)])
def test_maps_of_classes_may_have_one_channel(shape):
    maps = np.arange(24).reshape(shape)
    got, found = labels_of(maps)
    assert got == [None] * 4 and found.notes == ()
    assert [r.classes().tolist() for r in found.records] == maps.reshape(4, 2, 3).tolist()
    assert len({r.mark for r in found.records}) == 4


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no zip", None])
def test_a_file_that_cannot_be_read_is_told(tmp_path, content):
    path = tmp_path / "a.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        opening.read_npz(str(path))
    assert caught.value.code == "E-DATASET-11" and caught.value.what.startswith("a.npz ")
    assert re.match("it cannot .*: ", caught.value.evidence)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_file_is_read_by_its_name(tmp_path, size):
    np.savez(tmp_path / "a.npz", x=X[:size], labels=np.arange(size))
    found = opening.read_npz(str(tmp_path / "a.npz"))
    assert [(r.name, r.label) for r in found.records] == [(f"row {i} of a.npz", i) for i in range(size)]
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="E-DATASET-11"):
        opening.read_npz(str(tmp_path / "a.npz"))
