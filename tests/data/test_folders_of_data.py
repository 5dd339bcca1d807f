"""Folders of images, of arrays, and of rows that Hugging Face's `datasets` saved."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from edgescope.data import opening
from edgescope.errors import UsageError
from edgescope.wings import datasets


def touched(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


@pytest.mark.parametrize(
    ("empty", "note"),
    [
        ([], ()),
        (["mist"], ("class folders without an image: mist",)),
        ([f"k{i}" for i in range(7)], ("class folders without an image: k0, k1, k2, k3, k4",)),
    ],
)
def test_class_folders_without_an_image_are_named_up_to_five(tmp_path, empty, note):
    root = touched(tmp_path, "cat/1.png", "dog/2.jpg")
    for name in empty:
        (tmp_path / name).mkdir()
    found = opening.read_folder(root)
    assert [(r.name, r.label) for r in found.records] == [("cat/1.png", "cat"), ("dog/2.jpg", "dog")]
    assert found.notes == note and found.classes == ("cat", "dog", *empty)


def test_empty_folders_beside_images_without_a_class_are_nothing(tmp_path):
    root = touched(tmp_path, "1.png", "2.png")
    (tmp_path / "mist").mkdir()
    found = opening.read_folder(root)
    assert found.notes == () and [r.label for r in found.records] == [None, None]


def test_a_folder_without_images(tmp_path):
    with pytest.raises(UsageError, match="E-DATASET-1:"):
        opening.read_folder(touched(tmp_path, "a.txt"))


@pytest.mark.parametrize("name", ["preprocess.toml", "preprocess.json", "preprocessor_config.json"])
def test_the_rules_beside_the_images_are_theirs(tmp_path, name):
    root = touched(tmp_path, "train/cat/1.png", "val/cat/2.png", "val/dog/3.png", name)
    assert opening.read_folder(root).rules == str(tmp_path / name)
    touched(tmp_path, f"val/{name}")
    assert opening.read_folder(root).rules == str(tmp_path / "val" / name)
    assert opening.rules(tmp_path / "train") == ""


def save_arrays(root, **files):
    for name, value in files.items():
        path = root / f"{name.replace('__', '/')}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(value))
    return str(root)


def test_each_array_is_a_sample_of_its_folders_class(tmp_path):
    found = datasets.read_npy(save_arrays(tmp_path, cat__a=[1, 2], cat__b=[3, 4], dog__c=[5, 6]))
    assert [(r.name, r.label) for r in found.records] == [
        ("cat/a.npy", "cat"),
        ("cat/b.npy", "cat"),
        ("dog/c.npy", "dog"),
    ]
    assert found.records[2].load().tolist() == [5, 6] and len({r.content() for r in found.records}) == 3


def test_folders_that_hold_the_same_names_are_samples_of_several_inputs(tmp_path):
    found = datasets.read_npy(save_arrays(tmp_path, s1__ids=[1], s1__mask=[2], s0__ids=[3], s0__mask=[4]))
    assert [r.name for r in found.records] == ["s0", "s1"] and found.classes == ()
    assert {k: v.tolist() for k, v in found.records[0].load().items()} == {"ids": [3], "mask": [4]}
    assert found.records[0].content() != found.records[1].content()


@pytest.mark.parametrize(
    "files",
    [
        {"a__x": [1], "b__x": [2]},
        {"a__x": [1], "a__y": [3]},
        {"a__x": [1], "a__y": [3], "b__x": [2]},
        {"x": [1], "y": [2], "a__x": [1], "a__y": [3]},
    ],
    ids=["one name", "one folder", "other names", "beside them"],
)
def test_other_folders_of_arrays_are_classes(tmp_path, files):
    found = datasets.read_npy(save_arrays(tmp_path, **files))
    assert len(found.records) == len(files) and all(r.name.endswith(".npy") for r in found.records)


def png(level):
    out = io.BytesIO()
    Image.fromarray(np.full((2, 3), level, np.uint8)).save(out, "PNG")
    return out.getvalue()


class Table:
    """As pyarrow's: columns by name, values that say themselves in Python."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)
        self.num_rows = len(next(iter(columns.values())))

    def __getitem__(self, name):
        return [SimpleNamespace(as_py=lambda v=v: v) for v in self.columns[name]]


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Let a saved data set hold these columns."""

    def written(table, names=None, **state):
        features = {"label": {"names": names}} if names else {}
        (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]} | state))
        (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features}))
        found = {
            "pyarrow:concat_tables": lambda tables: tables[0],
            "pyarrow:memory_map": lambda name: name,
            "pyarrow.ipc:open_stream": lambda source: SimpleNamespace(read_all=lambda: table),
            "PIL.Image:open": Image.open,
        }
        monkeypatch.setattr(datasets, "need", lambda target, *_: found[target])
        return datasets.read_hugging_face(str(tmp_path))

    return written


@pytest.mark.parametrize("key", ["label", "labels", "fine_label"])
def test_columns_are_inputs_but_for_the_label(saved, key):
    found = saved(Table(**{"x": [[1, 2], [3, 4]], "name": ["a", "b"], key: [7, 8], "none": [None, None]}))
    assert [(r.name, r.label) for r in found.records] == [("row 0", 7), ("row 1", 8)]
    assert {k: v.tolist() for k, v in found.records[1].load().items()} == {"x": [3, 4]}
    assert found.classes == () and found.records[0].content() != found.records[1].content()


def test_names_of_a_class_label_are_the_classes(saved):
    assert saved(Table(x=[[1]], label=[1]), ["cat", "dog"]).classes == ("cat", "dog")
    assert saved(Table(x=[[1]])).classes == () and saved(Table(x=[[1]])).records[0].label is None


@pytest.mark.parametrize(
    ("given", "label"), [(3, 3), ("cat", "cat"), ([1, 2], None), (0.5, None), (None, None)]
)
def test_a_label_is_a_number_or_a_name(saved, given, label):
    assert saved(Table(x=[[1]], label=[given])).records[0].label == label


def test_pictures_are_decoded_from_their_bytes_or_their_file(saved, tmp_path):
    (tmp_path / "b.png").write_bytes(png(9))
    rows = [{"bytes": png(5), "path": "x"}, {"bytes": None, "path": "b.png"}]
    found = saved(Table(id=[1, 2], image=rows))
    levels = [np.asarray(record.load())[0, 0] for record in found.records]
    assert levels == [5, 9] and found.records[0].load().size == (3, 2)


def test_a_selection_beside_the_rows_is_refused(saved):
    with pytest.raises(UsageError, match="E-DATASET-12"):
        saved(Table(x=[[1]]), _indices_data_files=[{"filename": "i.arrow"}])
