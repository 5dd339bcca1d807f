"""COCO annotations line by line: what becomes a box, what is counted as left out, and what is no COCO at all."""

import json

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.verify.measures import CROWD, IGNORED, JUDGED
from edgescope.wings import datasets

KINDS = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]


def box(image=1, category=3, bbox=(1, 2, 3, 4), **more):
    return {"image_id": image, "category_id": category, "bbox": list(bbox)} | more


def files(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def images(*names, **more):
    return [{"id": i + 1, "file_name": name} | more for i, name in enumerate(names)]


@pytest.fixture
def read(tmp_path):
    """Read annotations of a.png (1) and b.png (2), which lie beside them."""
    files(tmp_path, "a.png", "b.png")

    def reading(boxes, kinds=KINDS, pictures=None, name="a.json"):
        about = {"images": images("a.png", "b.png") if pictures is None else pictures}
        (tmp_path / name).write_text(json.dumps(about | {"annotations": boxes, "categories": kinds}))
        return datasets.read_coco(str(tmp_path / name))

    return reading


def refused(read, *given, **how):
    """Return code and evidence of the error that reading raises."""
    with pytest.raises(UsageError) as caught:
        read(*given, **how)
    return caught.value.code, caught.value.evidence


def test_boxes_are_corners_and_numbers_of_classes(read):
    found = read([box(), box(2, 7, (0, 0, 10, 20)), box(2, 3, (5, 6, 1, 1))])
    assert [r.boxes.tolist() for r in found.records] == [
        [[1, 2, 4, 6, 0]],
        [[0, 0, 10, 20, 1], [5, 6, 6, 7, 0]],
    ]
    assert found.classes == ("cat", "dog") and found.notes == () and found.rules == ""
    assert [r.name for r in found.records] == ["a.png", "b.png"] and found.records[0].size is None
    assert found.records[0].boxes.dtype == np.float32 and found.records[0].label is None


@pytest.mark.parametrize(
    ("word", "value", "kind"),
    [
        ("iscrowd", 1, CROWD),
        ("iscrowd", "1", CROWD),
        ("iscrowd", True, CROWD),
        ("ignore", 1, IGNORED),
        ("difficult", 1, IGNORED),
        ("iscrowd", 0, JUDGED),
        ("iscrowd", "0", JUDGED),
        ("iscrowd", False, JUDGED),
        ("iscrowd", None, JUDGED),
        ("hard", 1, JUDGED),
    ],
)
def test_regions_that_nobody_is_judged_by(read, word, value, kind):
    found = read([box(), box(7 - 5, 7, **{word: value})])
    last = [r.boxes.tolist()[0][5:] for r in found.records]
    assert last == ([[], []] if kind == JUDGED else [[JUDGED], [kind]])
    assert found.notes == (() if kind == JUDGED else (f"1 region not judged ({word})",))


def test_two_words_of_one_region_count_as_the_first(read):
    found = read([box(category=7, ignore=1, iscrowd=1), box(difficult=1), box(difficult=1)])
    assert [row[5] for row in found.records[0].boxes.tolist()] == [CROWD, IGNORED, IGNORED]
    assert found.notes == ("1 region not judged (iscrowd); 2 regions not judged (difficult)",)


@pytest.mark.parametrize(
    ("bad", "why", "example"),
    [
        (box(9), "of images that are not listed", "9"),
        (box(None), "of images that are not listed", "None"),
        (box(category=4), "of categories that are not listed", "4"),
        (box(bbox=(1, 2, 0, 4)), "without a box that can be drawn", "[1, 2, 0, 4]"),
        (box(bbox=(1, 2, 4, 0)), "without a box that can be drawn", "[1, 2, 4, 0]"),
        (box(bbox=(1, 2, -1, 4)), "without a box that can be drawn", "[1, 2, -1, 4]"),
        (box(bbox=(1, 2, 4)), "without a box that can be drawn", "[1, 2, 4]"),
        (box(bbox=(1, 2, 3, float("inf"))), "without a box that can be drawn", "[1, 2, 3, inf]"),
        ({"image_id": 1, "category_id": 3}, "without a box that can be drawn", "no bbox"),
        (box(category="x" * 50), "of categories that are not listed", "x" * 40),
    ],
)
def test_what_finds_no_partner_is_counted_with_an_example(read, bad, why, example):
    found = read([box(), box(2, 7), bad, bad | {"image_id": bad["image_id"]}])
    assert [len(r.boxes) for r in found.records] == [1, 1]
    assert found.notes == (f"of 4 annotations left out: 2 {why} ({example})",)


def test_each_reason_has_its_own_count_and_its_first_example(read):
    found = read([box(9), box(8), box(category=5), box(), box(category=7)])
    said = "2 of images that are not listed (9), 1 of categories that are not listed (5)"
    assert found.notes == (f"of 5 annotations left out: {said}",)


def test_annotations_of_which_none_can_be_used(read):
    code, evidence = refused(read, [box(9)])
    assert code == "E-DATASET-10" and "of 1 annotation left out: 1 of images" in evidence
    found = read([])
    assert [len(r.boxes) for r in found.records] == [0, 0] and found.notes == ()


@pytest.mark.parametrize(
    ("given", "corners"),
    [
        ([[1, 2, 5, 2, 5, 9]], (1, 2, 5, 9)),
        ([[4, 8, 2, 6], [9, 3, 7, 1]], (2, 1, 9, 8)),
        ([["1", "2", "3", "4"]], (1, 2, 3, 4)),
        ([[1, 2, 1, 9]], None),
        ([[1, 2, 9, 2]], None),
        ([[1, 2, 3]], None),
        ([[1, 2, 3], [4, 5, 6]], None),
        ([[1, 2, 3, 4], ["x", 2]], None),
        ([[]], None),
        ([], None),
        ({"counts": [1, 2], "size": [3, 4]}, None),
        (None, None),
    ],
)
def test_a_box_is_drawn_around_polygons_where_there_is_none(read, given, corners):
    assert datasets._around(given) == corners
    row = {"image_id": 2, "category_id": 7, "segmentation": given}
    found = read([box(), row])
    if corners:
        assert found.records[1].boxes.tolist() == [[*corners, 1]]
        assert found.notes == ("1 box drawn around polygons",)
    else:
        assert len(found.records[1].boxes) == 0


@pytest.mark.parametrize(
    ("given", "count", "numbers"),
    [
        ([1, "2", 3.5], None, (1, 2, 3.5)),
        ([1, 2], 2, (1, 2)),
        ([1, 2], 3, None),
        ([1, float("nan")], None, None),
        ("12", None, None),
        ("12", 2, None),
        (["x"], None, None),
        (None, None, None),
        (7, None, None),
        ([10**400], None, None),
    ],
)
def test_numbers_are_finite_however_they_are_written(given, count, numbers):
    assert datasets._numbers(given, count) == numbers


def test_classes_are_numbered_by_their_ids_numbers_before_words(read):
    kinds = [{"id": key, "name": f"n{key}"} for key in ("b", 10, "9", "a", 2)]
    found = read([box(category=key) for key in (10, 9, "b", 2, "a")], kinds)
    assert found.classes == ("n2", "n9", "n10", "na", "nb")
    assert [row[4] for row in found.records[0].boxes.tolist()] == [2, 1, 4, 0, 3]


@pytest.mark.parametrize(
    ("key", "found"),
    [(3, 3), (3.0, 3), ("03", 3), ("x", "x"), (2.5, 2.5), (True, None), (None, None), ([3], None)],
)
def test_ids_are_the_same_however_they_are_written(key, found):
    assert datasets._key(key) == found and isinstance(datasets._key(key), type(found))


@pytest.mark.parametrize(
    ("used", "note"),
    [
        ((0, 1, 2, 3, 4), ()),
        ((0, 2, 3, 4), ("categories without a box: k1 (class 1)",)),
        ((1, 3), ("categories without a box: k0 (class 0), k2 (class 2), k4 (class 4)",)),
        ((4,), ("categories without a box: k0 (class 0), k1 (class 1), k2 (class 2) and 1 more",)),
        ((), ()),
    ],
)
def test_categories_without_a_box_are_said(read, used, note):
    kinds = [{"id": i, "name": f"k{i}"} for i in range(5)]
    assert read([box(category=i) for i in used], kinds).notes == note


def test_a_category_without_a_name_is_called_by_its_id(read):
    assert read([box(category=7)], [{"id": 7}]).classes == ("7",)


@pytest.mark.parametrize(
    ("wide", "high", "size"),
    [
        (4, 5, (4, 5)),
        ("4", 5.0, (4, 5)),
        (0, 5, None),
        (4, 0, None),
        (4, -1, None),
        (None, 5, None),
        (1, 1, (1, 1)),
    ],
)
def test_the_size_that_boxes_are_given_for(read, wide, high, size):
    found = read([box(), box(2, 7)], pictures=images("a.png", "b.png", width=wide, height=high))
    assert [r.size for r in found.records] == [size, size]


def test_images_that_are_not_there_are_said_with_their_boxes(read):
    names = ("a.png", "lost.png", "b.png", "gone.png")
    found = read([box(), box(2, 7), box(2, 7), box(4)], pictures=images(*names))
    assert [r.name for r in found.records] == ["a.png", "b.png"]
    assert found.notes == ("2 of 4 listed images are not there (lost.png, gone.png), and 3 boxes of them",)
    assert [len(r.boxes) for r in found.records] == [1, 0]


def test_three_names_of_lost_images_are_enough(read, tmp_path):
    here = [f"{i}.png" for i in range(4)]
    files(tmp_path, *here)
    lost = [f"lost{i}.png" for i in range(4)]
    found = read([box(), box(5, 7)], pictures=images(*here, *lost))
    note = "4 of 8 listed images are not there (lost0.png, lost1.png, lost2.png), and 1 box of them"
    assert found.notes == (note,)


@pytest.mark.parametrize(
    "place", [".", "images", "train2017", "val2017", "..", "instances_one", "../one", "../two"]
)
def test_images_are_found_beside_the_annotations(tmp_path, place):
    home = files(tmp_path / "home")
    files(home / place, "c.png", "d.png")
    name = "two.json" if place == "../two" else "instances_one.json"
    about = {"images": images("c.png", "d.png"), "annotations": [box()], "categories": KINDS}
    (home / name).write_text(json.dumps(about))
    assert [r.name for r in datasets.read_coco(str(home / name)).records] == ["c.png", "d.png"]


def test_the_folder_with_most_images_is_theirs(tmp_path):
    files(tmp_path, "c.png")
    files(tmp_path / "images", "c.png", "d.png")
    assert datasets._root(tmp_path / "a.json", ["c.png", "d.png"]) == tmp_path / "images"
    files(tmp_path / "val2017", "c.png", "d.png")
    assert datasets._root(tmp_path / "a.json", ["c.png", "d.png"]) == tmp_path / "images"


@pytest.mark.parametrize(
    ("there", "wanted", "found"), [(1, 2, True), (1, 3, False), (0, 1, False), (0, 0, False)]
)
def test_half_of_the_images_have_to_be_there(tmp_path, there, wanted, found):
    files(tmp_path / "images", *(f"{i}.png" for i in range(there)))
    names = [f"{i}.png" for i in range(wanted)]
    if found:
        assert datasets._root(tmp_path / "a.json", names) == tmp_path / "images"
        return
    with pytest.raises(UsageError) as caught:
        datasets._root(tmp_path / "a.json", names)
    best = tmp_path / "images" if there else tmp_path
    first, second = (p for p in (tmp_path, tmp_path / "images", tmp_path / "train2017") if p != best)
    said = f"{there} of {wanted} images found in {best}, fewer in {first}, {second} ..."
    assert (caught.value.code, caught.value.evidence) == ("E-DATASET-9", said)


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("[]", "it is a list, as detections are, and not an object"),
        ('{"images": []}', "categories is missing"),
        ('{"categories": 3, "images": []}', "categories is no list of objects"),
        ('{"categories": [3], "images": []}', "categories is no list of objects"),
        ('{"categories": [], "images": []}', "annotations is missing"),
        ('{"categories": [{"name": "x"}], "images": []}', "one of its categories has no id: {'name': 'x'}"),
        (
            '{"categories": [{"id": 1, "name": "x"}, {"id": 1, "name": "y"}]}',
            "ids of its categories are not unique: 1 is x and y",
        ),
    ],
)
def test_what_is_no_coco_is_told_why(tmp_path, text, evidence):
    (tmp_path / "a.json").write_text(text)
    assert refused(datasets.read_coco, str(tmp_path / "a.json")) == ("E-DATASET-10", evidence)


def test_a_category_listed_twice_alike_is_one(read):
    assert read([box(), box(category=7)], [*KINDS, KINDS[0]]).classes == ("cat", "dog")


@pytest.mark.parametrize("text", ["{" + "x" * 400, "[" * 100_000])
def test_what_is_no_json_is_told_in_short(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    code, evidence = refused(datasets.read_coco, str(tmp_path / "a.json"))
    assert code == "E-DATASET-10" and evidence.startswith(("JSONDecodeError: ", "RecursionError: "))
    assert refused(datasets.read_coco, str(tmp_path / "none.json"))[1].startswith("FileNotFoundError: ")


def test_long_evidence_is_cut(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps({"categories": [{"name": "x" * 400}], "images": []}))
    assert len(refused(datasets.read_coco, str(tmp_path / "a.json"))[1]) == 200

    def fails(path):
        raise ValueError("x" * 400)

    monkeypatch.setattr(datasets.foreign, "read", fails)
    assert len(refused(datasets.read_coco, str(tmp_path / "a.json"))[1]) == 200
