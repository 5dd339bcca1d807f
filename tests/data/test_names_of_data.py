"""From a name to the kind of data that lies there, and its pin."""

import numpy as np
import pytest

from edgescope import cache
from edgescope.data import opening
from edgescope.errors import UsageError


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("photos#0123456789ab", "photos"),
        ("photos", "photos"),
        ("a#0123456789ab#0123456789ab", "a#0123456789ab"),
        ("photos#0123456789abc", "photos#0123456789abc"),
        ("photos#0123456789a", "photos#0123456789a"),
        ("photos#0123456789aX", "photos#0123456789aX"),
    ],
)
def test_a_pin_is_twelve_digits_at_the_end(name, bare):
    assert opening.bare(name) == bare


@pytest.mark.parametrize(
    ("files", "name", "kind"),
    [
        (["a.png"], "", "folder"),
        ([], "", "folder"),
        (["a.npy"], "", "npy"),
        (["a.npy", "b.png"], "", "folder"),
        (["state.json", "dataset_info.json"], "", "datasets"),
        (["state.json", "a.npy"], "", "npy"),
        (["dataset_info.json", "a.png"], "", "folder"),
        (["a.CSV"], "a.CSV", "csv"),
        (["a.tsv"], "a.tsv", "csv"),
        (["a.json"], "a.json", "coco"),
        (["a.npz"], "a.npz", "npz"),
        (["a:b.npz"], "a:b.npz", "npz"),
        ([], "module:callable", "loader"),
    ],
)
def test_what_lies_there_tells_the_kind(tmp_path, monkeypatch, files, name, kind):
    monkeypatch.chdir(tmp_path)
    for file in files:
        (tmp_path / file).touch()
    assert opening.kind(name or str(tmp_path)) == kind


def test_a_plug_in_is_called_by_its_word(monkeypatch):
    monkeypatch.setattr(opening, "DATA", type("D", (dict,), {"plugins": {"lake": "x"}})())
    assert opening.kind("lake:anything") == opening.kind("lake") == "lake"


@pytest.mark.parametrize(
    ("name", "said"), [("a.txt", "kinds: folder, csv"), ("none.txt", "no such file"), ("a:b.txt", "kinds: ")]
)
def test_what_is_no_data(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    for file in ("a.txt", "a:b.txt"):
        (tmp_path / file).touch()
    with pytest.raises(UsageError) as caught:
        opening.kind(name)
    assert caught.value.code == "E-DATASET-7" and caught.value.evidence.startswith(said)


@pytest.fixture
def rows(tmp_path):
    def written(*values):
        np.savez(tmp_path / "a.npz", x=np.array(values, np.float32))
        return str(tmp_path / "a.npz")

    return written


def test_a_pin_belongs_to_the_content_as_it_is_now(rows):
    name = rows(1, 2, 3)
    first = opening.pin(name)
    assert first.startswith(f"{name}#") and opening.pin("") == "" and opening.pin(first) == first
    assert opening.read(first).name == name
    rows(1, 2, 4)
    second = opening.pin(name)
    assert second != first and opening.read(second).records[2].load()["x"] == 4
    with pytest.raises(UsageError) as caught:
        opening.read(first)
    assert caught.value.code == "E-DATASET-8"
    assert caught.value.evidence == f"content {second[-12:]}, planned {first[-12:]}"


def test_what_was_opened_is_kept_until_it_is_pinned_again(rows):
    name = rows(1, 2, 3)
    opening._read.cache_clear()
    first = opening.read(name)
    rows(4, 5, 6)
    assert opening.read(name) is first
    opening.pin(name)
    assert opening.read(name) is not first


def test_a_copy_is_read_in_place_of_the_users_code(tmp_path, rows, monkeypatch):
    copy = rows(1, 2, 3)
    pinned = opening.pin(copy)
    digest = pinned[-12:]
    with pytest.raises(UsageError, match="E-DATASET"):
        opening.read(f"nowhere:give#{digest}")
    cache.write_json(opening._known(digest), copy)
    assert len(opening.read(f"nowhere:give#{digest}").records) == 3
    cache.write_json(opening._known(digest), str(tmp_path / "gone.npz"))
    with pytest.raises(UsageError, match="E-DATASET"):
        opening.read(f"nowhere:give#{digest}")
    cache.write_json(opening._known(digest), copy)


def test_data_are_called_by_their_name_or_that_of_their_copy(tmp_path):
    assert opening.name_of("photos") == "photos" and opening.name_of(tmp_path) == str(tmp_path)
    assert opening.name_of([np.ones(2), np.zeros(2)]).endswith(".npz")
