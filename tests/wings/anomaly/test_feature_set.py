"""A folder of features and its manifest: what is read, what is passed over, and what is damaged."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from edgescope.errors import ModelError, StoreError
from edgescope.wings.anomaly import features
from edgescope.wings.anomaly.features import MANIFEST, Manifest, Row, read_features
from edgescope.wings.anomaly.preparation import Preparation

PREPARED = Preparation("motion", 16, 2, (40, 32), (32, 32), (0.5,) * 3, (0.25,) * 3, 3)
ROW = Row("train/b", "train", "normal", (), 40, 25.0, 3, 8, 0, "key")
OTHER = replace(ROW, name="a", split="test", category="fall", intervals=((3, 9), (20, 30)), fps=None)
OUT = replace(ROW, name="c", left_out="damaged", snippets=0)


@pytest.fixture
def made(tmp_path):
    """Three videos, one of which was left out."""
    Manifest(tmp_path, {"preparation": asdict(PREPARED), "engine": {}}, [ROW, OTHER, OUT])
    for row in (ROW, OTHER):
        (tmp_path / row.file).parent.mkdir(exist_ok=True)
        np.save(tmp_path / row.file, np.ones((3, 2, 3), np.float32))
    return tmp_path


def damaged(root, row=ROW):
    with pytest.raises(ModelError) as caught:
        read_features(root).features(row)
    assert caught.value.code == "E-ANOMALY-13"
    return caught.value.evidence


def test_what_was_extracted_is_read(made):
    found = read_features(made)
    assert found.rows == (OTHER, ROW) and found.left_out == (OUT,) and found.preparation == PREPARED
    assert (found.of("train"), found.of("test"), found.of("validation")) == ((ROW,), (OTHER,), ())
    assert found.about["engine"] == {} and found.features(ROW).shape == (3, 2, 3)
    assert OTHER.anomalous and not ROW.anomalous and OTHER.file == "a.npy"


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.ones((4, 2, 3)), r".* \(4, 2, 3\), the manifest says \(3, 2, 3\)"),
        (np.ones((3, 1, 3)), r".* \(3, 1, 3\), the manifest says \(3, 2, 3\)"),
        (np.full((3, 2, 3), np.nan), ".* no numbers"),
        (np.where(np.arange(18).reshape(3, 2, 3) == 17, np.inf, 0), ".* no numbers"),
    ],
)
def test_an_array_is_what_the_manifest_says(made, array, said):
    np.save(made / ROW.file, array)
    assert re.fullmatch(said, damaged(made))


@pytest.mark.parametrize("content", [b"", b"no numpy", None])
def test_an_array_that_cannot_be_read(made, content):
    path = made / ROW.file
    path.unlink() if content is None else path.write_bytes(content)
    assert damaged(made)


def rewritten(root, change):
    lines = (root / MANIFEST).read_text().splitlines()
    (root / MANIFEST).write_text("\n".join(change(lines)) + "\n")
    return features.entries(root)


@pytest.mark.parametrize("first", ["", "{", "[]", "3", "null", '{"format": "other"}', '{"preparation": {}}'])
def test_a_folder_without_a_manifest_holds_nothing(made, first):
    assert rewritten(made, lambda lines: [first, *lines[1:]]) == (None, {})
    with pytest.raises(ModelError, match="E-ANOMALY-13"):
        read_features(made)
    (made / MANIFEST).write_text("")
    assert features.entries(made) == (None, {})
    (made / MANIFEST).unlink()
    assert features.entries(made) == (None, {})


@pytest.mark.parametrize(
    "line", ['{"name": "d"', "{}", "[]", '{"name": "d", "intervals": [[1]]}', "3", '{"intervals": null}']
)
def test_a_line_that_was_cut_off_is_passed_over(made, line):
    _, rows = rewritten(made, lambda lines: [*lines[:2], line, *lines[2:]])
    assert list(rows) == ["train/b", "a", "c"] and rows["a"] == OTHER


def test_the_last_line_of_a_name_counts(made):
    manifest = Manifest.__new__(Manifest)
    manifest.path = made / MANIFEST
    manifest.add(replace(ROW, frames=41))
    about, rows = features.entries(made)
    assert rows["train/b"].frames == 41 and len(rows) == 3 and about["format"] == features.FORMAT


def test_intervals_that_nobody_knows_stay_so(made):
    manifest = Manifest(made / "sub" / "folder", {"preparation": asdict(PREPARED)}, [])
    manifest.add(replace(OTHER, intervals=None))
    assert features.entries(made / "sub" / "folder")[1]["a"].intervals is None


def test_a_manifest_without_a_usable_video_is_refused(made):
    Manifest(made, {"preparation": asdict(PREPARED)}, [OUT])
    with pytest.raises(ModelError) as caught:
        read_features(made)
    assert caught.value.evidence == "it names no video with features"


def test_each_video_is_a_line(made):
    lines = [json.loads(line) for line in (made / MANIFEST).read_text().splitlines()]
    assert [line.get("name") for line in lines] == [None, "train/b", "a", "c"]
    Manifest(made, {"preparation": asdict(PREPARED)}, [ROW])
    assert len((made / MANIFEST).read_text().splitlines()) == 2


def test_a_manifest_that_cannot_be_written_is_told(made):
    (made / "there" / MANIFEST).mkdir(parents=True)
    with pytest.raises(StoreError, match="E-ANOMALY-12"):
        Manifest(made / "there", {}, [])
