"""Every kind of data gives the same records: inputs, labels, boxes, a pin of its content."""

import json

import numpy as np
import pytest
from PIL import Image

from data_sets import coco, folder, picture
from edgescope import registry
from edgescope.data import opening
from edgescope.errors import UnavailableError, UsageError
from edgescope.verify.measures import CROWD, JUDGED


def labels(name):
    return [record.label for record in opening.read(str(name)).records]


def test_sub_folders_are_classes_and_numbers_are_labels_themselves(tmp_path):
    found = opening.read(str(folder(tmp_path / "a", each=2)))
    assert (
        found.classes == ("dark", "light")
        and [r.label for r in found.records] == ["dark"] * 2 + ["light"] * 2
    )
    folder(tmp_path / "b", each=1, names=("7", "12"))
    picture(tmp_path / "b" / "none.jpg", 3)
    assert (
        sorted(labels(tmp_path / "b"), key=str) == [12, 7, None]
        and not opening.read(str(tmp_path / "b")).classes
    )


def test_classes_txt_orders_the_classes_and_an_empty_folder_is_said(tmp_path):
    root = folder(tmp_path, each=1)
    (root / "classes.txt").write_text("light\ndark\n")
    (root / "mist").mkdir()
    found = opening.read(str(root))
    assert found.classes == ("light", "dark")
    assert found.notes == ("class folders without an image: mist",)


@pytest.mark.wings
def test_a_csv_lists_files_labels_and_masks(tmp_path):
    for i in range(3):
        picture(tmp_path / f"{i}.png", 90, i)
    Image.fromarray(np.arange(120, dtype=np.uint8).reshape(10, 12) % 3).save(tmp_path / "mask.png")
    (tmp_path / "a.csv").write_text("file,label\n0.png,cat\n1.png,\n2.png,mask.png\n")
    found = opening.read(str(tmp_path / "a.csv"))
    assert [r.label for r in found.records] == ["cat", None, None] and found.classes == ("cat",)
    assert found.records[2].classes().max() == 2 and found.records[2].truth
    (tmp_path / "b.csv").write_text("0.png,4\n9.png,5\n")
    with pytest.raises(UsageError, match=r"E-DATASET-9.*1 of 2: 9.png"):
        opening.read(str(tmp_path / "b.csv"))


LONG = "y" * 5000 + ".png"
"""As a cell is where a quote does not end: longer than any system takes for a name."""


@pytest.mark.wings
@pytest.mark.parametrize("row", [f"{LONG},1", f"0.png,{LONG}", "\0.png,1", "0.png,\0.png"])
def test_a_name_that_no_file_can_have_is_a_file_that_is_not_there(tmp_path, row):
    picture(tmp_path / "0.png", 90)
    (tmp_path / "a.csv").write_text(f"file,label\n0.png,1\n0.png,2\n{row}\n")
    with pytest.raises(UsageError, match=r"E-DATASET-9") as caught:
        opening.read(str(tmp_path / "a.csv"))
    assert len(str(caught.value)) < 1000


def test_data_called_by_a_name_that_no_file_can_have_are_no_data():
    with pytest.raises(UsageError, match=r"E-DATASET-7"):
        opening.kind(LONG)


@pytest.mark.wings
def test_coco_boxes_are_corners_and_classes_follow_their_ids(tmp_path):
    found = opening.read(str(coco(tmp_path)))
    assert found.classes == ("cat", "dog") and len(found.records) == 4
    assert found.records[1].boxes.tolist() == [[6, 5, 9, 7, 1, JUDGED]]
    assert found.records[0].boxes[:, 5].tolist() == [JUDGED, CROWD]
    (tmp_path / "no.json").write_text(json.dumps({"images": []}))
    with pytest.raises(UsageError, match="E-DATASET-10"):
        opening.read(str(tmp_path / "no.json"))


def test_a_npz_holds_inputs_labels_maps_and_boxes(tmp_path):
    boxes = np.full((3, 2, 5), np.nan, dtype=np.float32)
    boxes[1, 0] = 1, 2, 3, 4, 0
    np.savez(
        tmp_path / "a.npz", ids=np.eye(3, dtype=np.int64), mask=np.ones((3, 3)), labels=[4, 5, 6], boxes=boxes
    )
    found = opening.read(str(tmp_path / "a.npz"))
    assert [r.label for r in found.records] == [4, 5, 6] and set(found.records[0].load()) == {"ids", "mask"}
    assert [len(r.boxes) for r in found.records] == [0, 1, 0]
    np.savez(tmp_path / "b.npz", x=np.ones((2, 3, 4, 4)), labels=np.ones((2, 4, 4), dtype=int))
    assert opening.read(str(tmp_path / "b.npz")).records[0].classes().shape == (4, 4)
    np.savez(tmp_path / "c.npz", x=np.ones((2, 3)), labels=np.ones(3, dtype=int))
    with pytest.raises(UsageError, match=r"E-DATASET-11.*x 2, labels 3"):
        opening.read(str(tmp_path / "c.npz"))


@pytest.mark.wings
def test_npy_files_are_samples_or_inputs_of_samples(tmp_path):
    for i, name in enumerate(("a/0", "a/1", "b/0")):
        (tmp_path / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "one" / f"{name}.npy", np.full(3, i))
        (tmp_path / "two" / name).mkdir(parents=True)
        np.save(tmp_path / "two" / name / "ids.npy", np.full(3, i))
        np.save(tmp_path / "two" / name / "mask.npy", np.ones(3))
    assert labels(tmp_path / "one") == ["a", "a", "b"]
    several = opening.read(str(tmp_path / "two"))
    assert len(several.records) == 3 and set(several.records[0].load()) == {"ids", "mask"}


@pytest.mark.wings
def test_a_saved_data_set_is_read_from_its_arrow_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    picture(tmp_path / "p.png", 50)
    rows = {
        "image": [{"bytes": (tmp_path / "p.png").read_bytes(), "path": "p.png"}] * 2,
        "label": [1, 0],
    }
    root = tmp_path / "saved"
    root.mkdir()
    with pa.OSFile(str(root / "data.arrow"), "wb") as sink:
        table = pa.table(rows)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    (root / "dataset_info.json").write_text(json.dumps({"features": {"label": {"names": ["cat", "dog"]}}}))
    found = opening.read(str(root))
    assert found.classes == ("cat", "dog") and labels(root) == [1, 0]
    assert found.records[0].load().size == (12, 10)


def test_a_loader_is_gone_through_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_17.py").write_text(
        "import numpy as np\ncalls = []\n"
        "def batches():\n    calls.append(1)\n"
        "    return [(np.full((2, 3), i, dtype=np.float32), np.array([i, i + 1])) for i in range(2)]\n"
        "def short():\n    yield np.ones(3)\n    raise OSError('the disk has gone')\n"
        "def none():\n    return []\n"
    )
    pinned = opening.pin("mine_17:batches")
    opening._read.cache_clear()
    found = opening.read(pinned)
    import mine_17

    assert len(mine_17.calls) == 1 and [r.label for r in found.records] == [0, 1, 1, 2]
    with pytest.raises(UsageError, match=r"E-DATASET-13.*raised after 1 samples.*disk has gone"):
        opening.pin("mine_17:short")
    with pytest.raises(UsageError, match=r"E-DATASET-13: .*first sample"):
        opening.pin("mine_17:none")
    with pytest.raises(UsageError, match=r"E-DATASET-13.*cannot be called"):
        opening.pin("mine_17:nothing")


def test_any_iterable_becomes_a_file_named_by_its_content():
    rows = [({"x": np.full(2, i)}, i) for i in range(3)]
    name = opening.name_of(iter(rows))
    assert name == opening.name_of(rows) != opening.name_of(rows[:2]) and labels(name) == [0, 1, 2]


def test_a_pin_changes_with_inputs_and_labels_alone(tmp_path):
    root = folder(tmp_path / "a", each=2)
    pinned = opening.pin(str(root))
    assert opening.pin(pinned) == pinned and opening.read(pinned)
    (root / "dark" / "0.png").rename(root / "light" / "7.png")
    assert opening.pin(str(root)) != pinned
    with pytest.raises(UsageError, match="E-DATASET-8"):
        opening.read(pinned)


def test_what_is_no_data_is_refused_with_the_kinds(tmp_path):
    for name in ("nowhere", str(tmp_path / "x.txt")):
        with pytest.raises(UsageError, match="E-DATASET-7"):
            opening.pin(name)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(UsageError, match="kinds: folder, csv"):
        opening.pin(str(tmp_path / "x.txt"))
    with pytest.raises(UsageError, match="E-DATASET-1:"):
        opening.pin(str(tmp_path))


@pytest.mark.wings
def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "x"}]}))
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(UnavailableError, match=r"edgescope\[datasets\]"):
        opening.read(str(tmp_path))


@pytest.mark.wings
def test_every_kind_can_be_loaded():
    for name in registry.DATA:
        assert callable(registry.load(registry.DATA, name, "data"))
