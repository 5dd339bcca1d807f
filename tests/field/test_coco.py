"""COCO annotations as other people write them, and mean average precision held to pycocotools.

The situations are those of supervision#2577, label-studio#6608, fiftyone#3778, shitspotter#18 and Yolo_mark#107
(pictures that a phone turns), augmented-maskrcnn#3, ultralytics#18251 and supervision#150 (ids and categories).
"""

import contextlib
import io
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgescope.data import opening
from edgescope.data.samples import Wanted, made
from edgescope.errors import UsageError
from edgescope.models.base import Purpose, TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.verify.measures import CROWD, IGNORED, JUDGED, MeanAp

SIDE = 64
KINDS = [{"id": k, "name": str(k)} for k in (1, 3, 7)]


NAMES = map("{}.json".format, itertools.count())


def written(root, images, boxes, kinds=KINDS, encoding="utf-8"):
    name = next(NAMES)  # one name is read once a process
    (root / name).write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": kinds}), encoding=encoding
    )
    return root / name


@pytest.fixture
def plain(tmp_path):
    """Six pictures with a box each, of categories 1, 3, 7 in turn."""
    for i in range(6):
        Image.fromarray(np.full((20, 20, 3), i, np.uint8)).save(tmp_path / f"{i}.png")
    images = [{"id": i + 1, "file_name": f"{i}.png"} for i in range(6)]
    boxes = [
        {"id": i, "image_id": i + 1, "category_id": [1, 3, 7][i % 3], "bbox": [1, 2, 5, 6]} for i in range(6)
    ]
    return tmp_path, images, boxes


def read(*about, **how):
    found = opening.read(str(written(*about, **how)))
    return found, [row for r in found.records for row in r.boxes.tolist()]


def test_plain_annotations(plain):
    found, boxes = read(*plain)
    assert boxes == [[1, 2, 6, 8, i % 3] for i in range(6)] and found.notes == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_any_encoding(plain, encoding):
    assert len(read(*plain, encoding=encoding)[1]) == 6


def test_what_finds_no_partner_is_left_out_counted_and_named(plain):
    root, images, boxes = plain
    found, kept = read(root, images, boxes, KINDS[:2])
    assert len(kept) == 4 and "2 of categories that are not listed (7)" in found.notes[0]
    stray = {"id": 99, "image_id": 77, "category_id": 1, "bbox": [1, 1, 2, 2]}
    found, kept = read(root, images, [*boxes, stray])
    assert (
        len(kept) == 6 and "of 7 annotations left out: 1 of images that are not listed (77)" in found.notes[0]
    )


def test_a_polygon_has_the_box_around_it_and_a_mask_without_a_box_is_counted(plain):
    root, images, boxes = plain
    about = {"id": 9, "image_id": 1, "category_id": 3}
    found, kept = read(
        root, images, [*boxes, about | {"segmentation": [[1, 1, 4, 2, 3, 9], [0, 5, 1, 5, 1, 6]]}]
    )
    assert [0, 1, 4, 9, 1] in kept and "1 box drawn around polygons" in found.notes[0]
    found, kept = read(root, images, [*boxes, about | {"segmentation": {"counts": "abc", "size": [2, 2]}}])
    assert len(kept) == 6 and "1 without a box" in found.notes[0]


@pytest.mark.parametrize(
    "bbox",
    [
        [1, 2, 0, 5],
        [1, 2, -3, 5],
        [1, 2, 5, 0],
        [1, 2, 5, -3],
        [1, 2, 3],
        ["a", 1, 2, 3],
        [1, 2, None, 3],
        "1234",
        5,
    ],
)
def test_impossible_boxes_are_left_out_and_counted(plain, bbox):
    root, images, boxes = plain
    found, kept = read(root, images, [*boxes, {"id": 9, "image_id": 1, "category_id": 3, "bbox": bbox}])
    assert len(kept) == 6 and "1 without a box that can be drawn" in found.notes[0]


def test_ids_are_joined_however_they_are_written(plain):
    root, images, boxes = plain
    boxes = [b | {"image_id": str(b["image_id"]), "category_id": float(b["category_id"])} for b in boxes]
    found, kept = read(root, images, boxes, [k | {"id": f"{k['id']:02}"} for k in KINDS])
    assert [row[4] for row in kept] == [0, 1, 2, 0, 1, 2] and found.notes == ()


def test_categories_are_in_the_order_of_their_numbers(plain):
    root, images, boxes = plain
    kinds = [{"id": str(k), "name": str(k)} for k in (10, 9, 1, 3, 7)]
    found, _ = read(root, images, boxes, kinds)
    assert found.classes == ("1", "3", "7", "9", "10")


def test_a_category_without_a_box_is_named_with_its_number(plain):
    root, images, boxes = plain
    found, kept = read(root, images, boxes, [{"id": 0, "name": "all"}, *KINDS])
    assert kept[0][4] == 1 and "all (class 0)" in found.notes[0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda images, boxes, kinds: images.append({"id": 1, "file_name": "5.png"}),
        lambda images, boxes, kinds: kinds.append({"id": 3, "name": "other"}),
        lambda images, boxes, kinds: images.append({"file_name": "5.png"}),
        lambda images, boxes, kinds: boxes.append(5),
        lambda images, boxes, kinds: kinds.clear(),
    ],
)
def test_what_cannot_be_joined_at_all_is_refused(plain, spoil):
    root, images, boxes = plain
    kinds = list(KINDS)
    spoil(images, boxes, kinds)
    with pytest.raises(UsageError) as error:
        read(root, images, boxes, kinds)
    assert error.value.code == "E-DATASET-10" and "KeyError" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", '[{"image_id": 1, "score": 0.5}]', "{", "nul", '{"images": 3}'])
def test_what_is_no_coco_file_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError) as error:
        opening.read(str(tmp_path / "a.json"))
    assert error.value.code == "E-DATASET-10"


def test_pictures_that_are_not_there_are_counted_and_more_than_half_refused(plain):
    root, images, boxes = plain
    (root / "0.png").unlink()
    found, _ = read(root, images, boxes)
    assert (
        len(found.records) == 5 and "1 of 6 listed images are not there (0.png), and 1 box" in found.notes[0]
    )
    for i in range(1, 4):
        (root / f"{i}.png").unlink()
    with pytest.raises(UsageError) as error:
        read(root, images, boxes)
    assert error.value.code == "E-DATASET-9"


def test_paths_as_windows_writes_them(plain):
    root, images, boxes = plain
    (root / "images").mkdir()
    for i in range(6):
        (root / f"{i}.png").rename(root / "images" / f"{i}.png")
    assert len(read(root, [i | {"file_name": f"images\\{i['file_name']}"} for i in images], boxes)[1]) == 6


# -- the prepared picture -----------------------------------------------------------------------------------------


def square_of(root, orientation, size, bbox, white=(60, 70, 10, 20), **image):
    """A picture of 40 x 80 as a person sees it, stored turned, with a white square; the square's ends, the boxes."""
    up = np.zeros((80, 40, 3), np.uint8)
    up[white[0] : white[1], white[2] : white[3]] = 255
    turned = {1: up, 3: np.rot90(up, 2), 6: np.rot90(up, 1), 8: np.rot90(up, 3), 5: up.transpose(1, 0, 2)}
    turned |= {2: up[:, ::-1], 4: up[::-1], 7: np.rot90(up, 2).transpose(1, 0, 2)}
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turned[orientation]))
    stored.save(root / "p.png", exif=exif)
    Image.fromarray(np.full((80, 40, 3), 9, np.uint8)).save(root / "q.png")
    about = {} if size is None else {"width": size[0], "height": size[1]}
    images = [{"id": 1, "file_name": "p.png", **about}, {"id": 2, "file_name": "q.png"}]
    found, _ = read(root, images, [{"id": 1, "image_id": 1, "category_id": 1, "bbox": bbox}])
    way = Preprocess(size=(SIDE, SIDE), mean=(0, 0, 0), std=(1, 1, 1), resize="stretch")
    given = made(found, None, 2, Wanted((TensorSpec("x", (3, SIDE, SIDE), "float32"),), way))
    row = next((i for i in range(len(given)) if given.arrays["x"][i].max() > 0.6), None)
    if row is None:
        return None, given
    ys, xs = np.where(given.arrays["x"][row][0] > 0.6)
    return (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1), given.boxes[row]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [None, (40, 80)])
def test_boxes_drawn_on_the_turned_picture_lie_on_what_they_frame(tmp_path, orientation, size):
    square, boxes = square_of(tmp_path, orientation, size, [10, 60, 10, 10])
    assert np.allclose(boxes[:, :4], square, atol=1.5)


@pytest.mark.parametrize(
    ("orientation", "bbox"),
    [(5, [60, 10, 10, 10]), (6, [60, 20, 10, 10]), (7, [10, 20, 10, 10]), (8, [10, 10, 10, 10])],
)
def test_boxes_drawn_on_the_stored_picture_are_turned_with_it(tmp_path, orientation, bbox):
    square, boxes = square_of(tmp_path, orientation, (80, 40), bbox)
    assert np.allclose(boxes[:, :4], square, atol=1.5)


def test_boxes_of_another_size_are_left_out_and_named(tmp_path):
    _, given = square_of(tmp_path, 1, (400, 800), [10, 60, 10, 10])
    assert len(given) == 1 and "400 x 800, it is 40 x 80" in given.unread[0]


def test_boxes_of_pictures_in_arrays_follow_them_too(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 90, (4, 40, 80, 3), dtype=np.uint8)
    pixels[:, 10:20, 40:60] = 255
    boxes = np.tile(np.array([[40, 10, 60, 20, 0]], np.float32), (4, 1, 1))
    np.savez(tmp_path / "a.npz", x=pixels, boxes=boxes)
    way = Preprocess(size=(SIDE, SIDE), mean=(0, 0, 0), std=(1, 1, 1), resize="stretch")
    spec = (TensorSpec("x", (3, SIDE, SIDE), "float32"),)
    given = made(opening.read(str(tmp_path / "a.npz")), Purpose.GATE, 2, Wanted(spec, way))
    assert np.allclose(given.boxes[0][0, :4], [32, 16, 48, 32])


# -- mean average precision ---------------------------------------------------------------------------------------


def pycocotools(truth, found, images, areas):
    """The mean average precision of pycocotools; `areas` are what it knows of each region's."""
    COCO = pytest.importorskip("pycocotools.coco").COCO
    from pycocotools.cocoeval import COCOeval

    regions = [
        {"id": n + 1, "image_id": i + 1, "category_id": int(b[4]) + 1, "iscrowd": int(b[5] == CROWD)}
        | {"bbox": [b[0], b[1], b[2] - b[0], b[3] - b[1]], "area": areas(b)}
        for n, (i, b) in enumerate((i, list(map(float, b))) for i, image in enumerate(truth) for b in image)
    ]
    answers = [
        {"image_id": i + 1, "category_id": int(c) + 1, "score": float(s)}
        | {"bbox": [float(b[0]), float(b[1]), float(b[2] - b[0]), float(b[3] - b[1])]}
        for i, (boxes, scores, classes) in enumerate(found)
        for b, s, c in zip(boxes, scores, classes, strict=True)
    ]
    kinds = [{"id": k + 1, "name": str(k)} for k in range(4)]
    with contextlib.redirect_stdout(io.StringIO()):
        about = COCO()
        about.dataset = {
            "images": [{"id": i + 1} for i in range(images)],
            "annotations": regions,
            "categories": kinds,
        }
        about.createIndex()
        judge = COCOeval(about, about.loadRes(answers), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats[0]


def world(seed, images, kinds, crowded, ignored):
    rng = np.random.default_rng(seed)
    truth, found = [], []
    for _ in range(images):
        corners = rng.integers(0, 60, (rng.integers(1, 7), 2)).astype(np.float32)
        sides = rng.integers(8, 40, corners.shape)
        what = rng.choice([JUDGED, CROWD, IGNORED], len(corners), p=[1 - crowded - ignored, crowded, ignored])
        regions = np.column_stack([corners, corners + sides, rng.integers(0, kinds, len(corners)), what])
        truth.append(regions.astype(np.float32))
        seen = regions[rng.integers(0, len(regions), rng.integers(1, 12))]
        boxes = seen[:, :4] + rng.integers(-5, 6, (len(seen), 4))
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        scores = rng.permutation(len(seen)).astype(np.float32) / len(seen)
        found.append((boxes.astype(np.float32), scores, seen[:, 4].astype(int)))
    return truth, found


def value(truth, found):
    measure = MeanAp(truth, lambda outputs: found)
    return measure.value(measure.tally([], slice(0, len(found))), np.arange(len(found)))


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3), st.floats(0, 0.4), st.floats(0, 0.4))
@settings(deadline=None, max_examples=60)
def test_it_is_that_of_pycocotools_with_crowds_and_regions_to_ignore(seed, images, kinds, crowded, ignored):
    """An area beyond all makes a region one to ignore there, too; its own field `ignore` is overwritten by iscrowd."""
    truth, found = world(seed, images, kinds, crowded, ignored)
    theirs = pycocotools(truth, found, images, lambda b: 1e11 if b[5] == IGNORED else 100.0)
    ours = value(truth, found)
    assert (np.isnan(ours) and theirs == -1) or ours == pytest.approx(theirs, abs=1e-9)


def test_boxes_found_in_a_crowd_are_no_false_alarms():
    crowd = np.array([[0, 0, 100, 100, 0, CROWD], [200, 200, 240, 240, 0, JUDGED]], np.float32)
    inside = [[i * 10.0, 0, i * 10 + 20, 20] for i in range(6)]
    boxes = np.array([*inside, [200, 200, 240, 240]], np.float32)
    scores = np.array([0.9] * 6 + [0.5], np.float32)
    assert value([crowd], [(boxes, scores, np.zeros(7, int))]) == pytest.approx(1)
    assert value([crowd[:, :5][1:]], [(boxes, scores, np.zeros(7, int))]) == pytest.approx(1 / 7, abs=1e-3)


def test_a_region_to_ignore_takes_one_box_and_a_crowd_any_number():
    boxes = np.array([[0, 0, 40, 40], [0, 0, 40, 39], [50, 50, 90, 90]], np.float32)
    scores, classes = np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, int)
    truth = np.array([[0, 0, 40, 40, 0, IGNORED], [50, 50, 90, 90, 0, JUDGED]], np.float32)
    assert value([truth], [(boxes, scores, classes)]) == pytest.approx(0.5)
    truth[0, 5] = CROWD
    assert value([truth], [(boxes, scores, classes)]) == pytest.approx(1)


@pytest.mark.parametrize(("word", "kind"), [("iscrowd", CROWD), ("ignore", IGNORED), ("difficult", IGNORED)])
def test_words_that_say_that_a_region_is_not_judged(plain, word, kind):
    root, images, boxes = plain
    boxes[0][word] = 1
    for box in boxes[1:]:
        box[word] = 0
    found, kept = read(root, images, boxes)
    assert [row[5] for row in kept] == [kind] + [JUDGED] * 5
    assert f"1 region not judged ({word})" in found.notes[0]
