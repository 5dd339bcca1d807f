"""Items of an iterable: inputs, pairs, dicts and batches, how many are taken, and what is no data."""

import sys

import numpy as np
import pytest
from PIL import Image

from edgescope.data import opening
from edgescope.errors import UsageError


def read(items):
    """Return (arrays by name, label) of each sample that is kept."""
    found = opening.read_npz(str(opening.materialised(items)))
    return [({k: v.tolist() for k, v in r.load().items()}, r.label) for r in found.records]


def refused(items):
    with pytest.raises(UsageError) as caught:
        opening.materialised(items)
    return caught.value.code, caught.value.what, caught.value.evidence


class Tensor:
    """As torch's: numpy reads it once it is detached and on the CPU."""

    def __init__(self, *values):
        self.values = values

    def detach(self):
        return self

    def cpu(self):
        return np.array(self.values)


@pytest.mark.parametrize(
    ("item", "samples"),
    [
        (np.array([1, 2]), [({"input": [1, 2]}, None)]),
        ([1, 2, 3], [({"input": [1, 2, 3]}, None)]),
        (Tensor(1, 2), [({"input": [1, 2]}, None)]),
        ((np.array([1, 2]), 5), [({"input": [1, 2]}, 5)]),
        ([np.array([[1], [2]]), Tensor(5, 6)], [({"input": [1]}, 5), ({"input": [2]}, 6)]),
        ((np.array([1, 2]), "cat"), [({"input": [1, 2]}, "cat")]),
        ({"a": np.array([1])}, [({"a": [1]}, None)]),
        ({"a": np.array([1]), "label": 4}, [({"a": [1]}, 4)]),
        ({"a": np.array([1]), "y": 4}, [({"a": [1]}, 4)]),
        ({"a": np.array([1]), "y": np.array([4])}, [({"a": 1}, 4)]),
        (({"a": np.array([1]), "y": np.array([3])}, 9), [({"a": [1], "y": [3]}, 9)]),
        ({"y": np.array([1])}, [({"y": [1]}, None)]),
        ((np.array([[1, 2], [3, 4]]), np.array([7, 8])), [({"input": [1, 2]}, 7), ({"input": [3, 4]}, 8)]),
        (({"a": np.array([1, 2]), "b": np.array([3, 4])}, [7, 8]), [({"a": 1, "b": 3}, 7), ({"a": 2, "b": 4}, 8)]),
        ((np.array([[1], [2]]), ["x", "y"]), [({"input": [1]}, "x"), ({"input": [2]}, "y")]),
    ],
)  # fmt: skip
def test_an_item_is_an_input_a_pair_or_a_batch(item, samples):
    got = [({k: v.tolist() for k, v in a.items()}, _plain(label)) for a, label in opening._samples(item)]
    assert got == samples


def _plain(label):
    return label if label is None or isinstance(label, str) else label.item()


def test_a_picture_is_read_in_colour():
    image = Image.fromarray(np.array([[7, 9]], np.uint8))
    assert read([image]) == [({"input": [[[7] * 3, [9] * 3]]}, None)]


@pytest.mark.parametrize("item", [{3: np.ones(1)}, np.ones(1)])
def test_names_are_words(item):
    assert list(next(iter(opening._samples(item)))[0]) == ["3" if isinstance(item, dict) else "input"]


def test_labels_are_kept_where_all_have_one():
    assert [label for _, label in read([(np.ones(1), 3), (np.zeros(1), 4)])] == [3, 4]
    assert [label for _, label in read([(np.ones(1), 3), np.zeros(1)])] == [None, None]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_no_more_is_taken_than_is_used(monkeypatch, size):
    monkeypatch.setattr(opening, "MOST", 5)
    given = []

    def batches():
        for i in range(100):
            given.append(i)
            yield np.full((size, 2), i), np.full(size, i)

    taken = {1: 5, 3: 2, 5: 1}[size]
    got = [label for _, label in read(batches())]
    assert got == [i for i in range(taken) for _ in range(size)][:5]
    assert given == list(range(taken))


@pytest.mark.parametrize(
    ("items", "what", "evidence"),
    [
        ([], "ended before its first sample", "ValueError: it holds nothing"),
        ([np.ones(2), np.ones(3)], "gives samples that differ in names or shapes", "ValueError: "),
        ([{"a": np.ones(2)}, {"b": np.ones(2)}], "gives samples that differ in names or shapes", "KeyError: 'a'"),
        ([(np.ones(1), np.array([1, 2]))], "raised after 1 samples", "IndexError: "),
    ],
)  # fmt: skip
def test_what_is_no_data_is_told(items, what, evidence):
    code, said, shown = refused(items)
    assert (code, said) == ("E-DATASET-13", f"the loader the data {what}") and shown.startswith(evidence)


def test_what_the_users_code_raises_is_told_with_what_it_gave_before():
    def breaks():
        yield np.ones(1), np.array([1])
        yield np.ones(3), np.array([1, 2, 3])
        raise KeyError("x  " * 200)

    _, said, shown = refused(breaks())
    assert said.endswith("raised after 4 samples") and len(shown) == len("KeyError: ") + 200


def test_the_same_samples_are_kept_once(monkeypatch):
    first = opening.materialised([np.ones(2)], "a name/of:it")
    before = first.stat().st_mtime_ns
    assert opening.materialised([np.ones(2)], "a name/of:it") == first and first.stat().st_mtime_ns == before
    assert opening.materialised([np.zeros(2)], "a name/of:it") != first


def test_a_module_of_the_folder_that_one_is_in_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    (tmp_path / "own_31.py").write_text("def give():\n    return [1.0, 2.0]\nnumber = 3\n")
    found = opening.read_callable("own_31:give")
    assert [r.load()["input"].item() for r in found.records] == [1, 2]
    assert sys.path[0] == str(tmp_path) and opening.read_npz(found.copy).records[1].load()["input"] == 2
    opening.read_callable("own_31:give")
    assert sys.path.count(str(tmp_path)) == 1
    for name in ("own_31:nothing", "own_31:number", "none_31:give"):
        with pytest.raises(UsageError) as caught:
            opening.read_callable(name)
        assert caught.value.what == f"the loader {name} cannot be called"
    sys.modules.pop("own_31")
